//! Sums, differences and products of decimals in 64 bits, where they fit.
//!
//! Comes in: an expression of +, - and * over decimals of 128 bits. Goes out: the same expression, worked out in whole numbers of 64 bits, a block of rows at a time
//! without arrays in between. Every step looks for overflow: a batch in which anything does not fit is worked out again as it was written. Never here: other types,
//! division, rounding.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};

/// Rows of a block: what is in between stays in the first cache.
const BLOCK_ROWS: usize = 512;

/// An expression that is worked out in 64 bits where it fits.
#[derive(Debug, Clone)]
pub(in crate::query) struct Narrow {
    original: Arc<dyn PhysicalExpr>,
    steps: Step,
    /// What the steps begin with.
    inputs: Vec<Arc<dyn PhysicalExpr>>,
    precision: u8,
    scale: i8,
}

/// One step, with those that it needs.
#[derive(Debug, Clone)]
enum Step {
    Input(usize),
    Constant(i64),
    Join(Arithmetic, Box<Step>, Box<Step>),
}

#[derive(Debug, Clone, Copy)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

impl Narrow {
    /// `None` for an expression that is no arithmetic of decimals, or whose scales do not follow the rules of addition and multiplication.
    pub(in crate::query) fn of(original: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let mut inputs = Vec::new();
        let (steps, scale) = steps_of(original, schema, &mut inputs)?;
        let is_fit = matches!(steps, Step::Join(..)) && !inputs.is_empty();
        match original.data_type(schema).ok()? {
            DataType::Decimal128(precision, own) if own == scale && is_fit => Some(Self {
                original: Arc::clone(original),
                steps,
                inputs,
                precision,
                scale,
            }),
            _ => None,
        }
    }

    /// The values; `None` when something does not fit into 64 bits.
    fn narrowly(&self, batch: &RecordBatch) -> Result<Option<ArrayRef>> {
        let num_rows = batch.num_rows();
        let columns = self
            .inputs
            .iter()
            .map(|input| input.evaluate(batch)?.into_array(num_rows));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let mut nulls: Option<NullBuffer> = None;
        let mut values: Vec<&[i128]> = Vec::with_capacity(columns.len());
        for column in &columns {
            let Some(column) = column.as_primitive_opt::<Decimal128Type>() else {
                return Ok(None);
            };
            nulls = NullBuffer::union(nulls.as_ref(), column.nulls());
            values.push(column.values());
        }
        let mut found: Vec<i128> = Vec::with_capacity(num_rows);
        for start in (0..num_rows).step_by(BLOCK_ROWS) {
            let stop = num_rows.min(start + BLOCK_ROWS);
            let block: Option<Vec<&[i128]>> = values
                .iter()
                .map(|values| values.get(start..stop))
                .collect();
            let Some(Block::Rows(block)) = block.and_then(|block| work_out(&self.steps, &block))
            else {
                return Ok(None);
            };
            found.extend(block.iter().map(|value| i128::from(*value)));
        }
        let array = Decimal128Array::new(found.into(), nulls);
        Ok(Some(Arc::new(
            array.with_precision_and_scale(self.precision, self.scale)?,
        )))
    }
}

/// The steps of an expression and the scale of its result.
fn steps_of(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    inputs: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Option<(Step, i8)> {
    if let Some(literal) = expression.downcast_ref::<Literal>() {
        let ScalarValue::Decimal128(Some(value), _, scale) = literal.value() else {
            return None;
        };
        return Some((Step::Constant(i64::try_from(*value).ok()?), *scale));
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>()
        && let Some(arithmetic) = arithmetic_of(*binary.op())
    {
        let (left, one) = steps_of(binary.left(), schema, inputs)?;
        let (right, other) = steps_of(binary.right(), schema, inputs)?;
        if matches!(arithmetic, Arithmetic::Multiply) {
            return Some((
                Step::Join(arithmetic, left.into(), right.into()),
                one.checked_add(other)?,
            ));
        }
        let scale = one.max(other);
        let (left, right) = (
            rescaled(left, scale - one)?,
            rescaled(right, scale - other)?,
        );
        return Some((Step::Join(arithmetic, left.into(), right.into()), scale));
    }
    let DataType::Decimal128(_, scale) = expression.data_type(schema).ok()? else {
        return None;
    };
    inputs.push(Arc::clone(expression));
    Some((Step::Input(inputs.len() - 1), scale))
}

fn arithmetic_of(operator: Operator) -> Option<Arithmetic> {
    match operator {
        Operator::Plus => Some(Arithmetic::Add),
        Operator::Minus => Some(Arithmetic::Subtract),
        Operator::Multiply => Some(Arithmetic::Multiply),
        _ => None,
    }
}

/// The step with `digits` more digits after the point.
fn rescaled(step: Step, digits: i8) -> Option<Step> {
    let factor = 10_i64.checked_pow(u32::try_from(digits).ok()?)?;
    Some(match step {
        step if factor == 1 => step,
        Step::Constant(value) => Step::Constant(value.checked_mul(factor)?),
        step => Step::Join(
            Arithmetic::Multiply,
            step.into(),
            Step::Constant(factor).into(),
        ),
    })
}

/// What a step gives for a block of rows.
enum Block {
    Rows(Vec<i64>),
    Same(i64),
}

/// `None` when something does not fit.
fn work_out(step: &Step, inputs: &[&[i128]]) -> Option<Block> {
    match step {
        Step::Constant(value) => Some(Block::Same(*value)),
        Step::Input(number) => {
            let mut is_wide = false;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "what it changes is seen in the same line"
            )]
            let narrow = |value: &i128| {
                is_wide |= i128::from(*value as i64) != *value;
                *value as i64
            };
            let rows = inputs.get(*number)?.iter().map(narrow).collect();
            (!is_wide).then_some(Block::Rows(rows))
        }
        Step::Join(arithmetic, left, right) => {
            let (left, right) = (work_out(left, inputs)?, work_out(right, inputs)?);
            match arithmetic {
                Arithmetic::Add => joined(left, &right, i64::overflowing_add),
                Arithmetic::Subtract => joined(left, &right, i64::overflowing_sub),
                Arithmetic::Multiply => joined(left, &right, i64::overflowing_mul),
            }
        }
    }
}

fn joined(left: Block, right: &Block, join: impl Fn(i64, i64) -> (i64, bool)) -> Option<Block> {
    let mut is_over = false;
    let mut put = |one: i64, other: i64| {
        let (value, over) = join(one, other);
        is_over |= over;
        value
    };
    let block = match (left, right) {
        (Block::Same(one), Block::Same(other)) => Block::Same(put(one, *other)),
        (Block::Rows(mut rows), Block::Same(other)) => {
            rows.iter_mut().for_each(|one| *one = put(*one, *other));
            Block::Rows(rows)
        }
        (Block::Same(one), Block::Rows(others)) => {
            Block::Rows(others.iter().map(|other| put(one, *other)).collect())
        }
        (Block::Rows(mut rows), Block::Rows(others)) => {
            rows.iter_mut()
                .zip(others)
                .for_each(|(one, other)| *one = put(*one, *other));
            Block::Rows(rows)
        }
    };
    (!is_over).then_some(block)
}

impl PartialEq for Narrow {
    fn eq(&self, other: &Self) -> bool {
        self.original.eq(&other.original)
    }
}

impl Eq for Narrow {}

impl Hash for Narrow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.original.hash(state);
    }
}

impl fmt::Display for Narrow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt(formatter)
    }
}

impl PhysicalExpr for Narrow {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.original.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.original.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.original.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.narrowly(batch)? {
            Some(array) => Ok(ColumnarValue::Array(array)),
            None => self.original.evaluate(batch),
        }
    }

    /// What it begins with, so that columns are renumbered in the steps as well.
    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.original]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        // Without a schema the steps cannot be found anew: the expression as it was written is right as well.
        match children.pop() {
            Some(original) if !Arc::ptr_eq(&original, &self.original) => Ok(original),
            _ => Ok(self),
        }
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_sql(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use proptest::prelude::*;

    fn batch(prices: Vec<Option<i128>>, rates: Vec<Option<i128>>) -> RecordBatch {
        let fields = vec![
            Field::new("price", DataType::Decimal128(15, 2), true),
            Field::new("rate", DataType::Decimal128(12, 4), true),
        ];
        let prices = Decimal128Array::from(prices)
            .with_precision_and_scale(15, 2)
            .unwrap();
        let rates = Decimal128Array::from(rates)
            .with_precision_and_scale(12, 4)
            .unwrap();
        RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            vec![Arc::new(prices), Arc::new(rates)],
        )
        .unwrap()
    }

    /// price * (1 - rate) + price
    fn expression(schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let one = lit(ScalarValue::Decimal128(Some(1), 20, 0));
        let rest = binary(one, Operator::Minus, col("rate", schema).unwrap(), schema).unwrap();
        let price = || col("price", schema).unwrap();
        let product = binary(price(), Operator::Multiply, rest, schema).unwrap();
        binary(product, Operator::Plus, price(), schema).unwrap()
    }

    proptest! {
        #[test]
        fn it_gives_what_the_expression_gives(
            rows in prop::collection::vec((prop::option::of(any::<i64>()), prop::option::of(-200_000_i64..200_000)), 0..1200),
            shift in 0_u32..60,
        ) {
            let prices = rows.iter().map(|(price, _)| price.map(|price| i128::from(price >> shift))).collect();
            let rates = rows.iter().map(|(_, rate)| rate.map(i128::from)).collect();
            let batch = batch(prices, rates);
            let original = expression(&batch.schema());
            let narrow = Narrow::of(&original, &batch.schema()).unwrap();
            let expected = original.evaluate(&batch).unwrap().into_array(rows.len()).unwrap();
            let found = narrow.evaluate(&batch).unwrap().into_array(rows.len()).unwrap();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(found.data_type(), &original.data_type(&batch.schema()).unwrap());
        }
    }

    #[test]
    fn what_fits_is_worked_out_in_64_bits_and_what_does_not_is_not() {
        let fits = batch(vec![Some(10_000), None], vec![Some(600), Some(1)]);
        let narrow = Narrow::of(&expression(&fits.schema()), &fits.schema()).unwrap();
        assert!(narrow.narrowly(&fits).unwrap().is_some());
        let wide = batch(vec![Some(i128::from(i64::MAX) + 1)], vec![Some(600)]);
        assert!(narrow.narrowly(&wide).unwrap().is_none());
    }

    #[test]
    fn a_column_alone_and_a_division_are_left_as_they_are() {
        let batch = batch(vec![], vec![]);
        let schema = batch.schema();
        assert!(Narrow::of(&col("price", &schema).unwrap(), &schema).is_none());
        let quotient = binary(
            col("price", &schema).unwrap(),
            Operator::Divide,
            col("rate", &schema).unwrap(),
            &schema,
        );
        assert!(Narrow::of(&quotient.unwrap(), &schema).is_none());
    }
}
