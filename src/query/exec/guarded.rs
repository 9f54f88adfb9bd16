//! AND and OR of which one side says for which rows the other is worked out.
//!
//! Comes in: an expression. Goes out: the same one, where a side that fails is worked out again for those rows that the other side leaves open, as in `k <> 0 AND 10 / k > 1`. Never here: what
//! fails, and why.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};

/// Operators that give an answer for all values.
const SAFE_OPERATORS: [Operator; 10] = [
    Operator::And,
    Operator::Or,
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
];

/// Whether some values make the expression fail. Comparisons, lists, patterns and their combinations never do.
pub(super) fn can_fail(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expression.exists(|node| {
        let safe_operator = |binary: &BinaryExpr| SAFE_OPERATORS.contains(binary.op());
        let is_safe = node.is::<Column>()
            || node.is::<Literal>()
            || node.is::<IsNullExpr>()
            || node.is::<IsNotNullExpr>()
            || node.is::<NotExpr>()
            || node.is::<InListExpr>()
            || node.is::<LikeExpr>()
            || node.is::<Guarded>()
            || node.downcast_ref::<BinaryExpr>().is_some_and(safe_operator);
        Ok(!is_safe)
    })
}

/// The expression, in which each AND and OR of something that can fail is guarded.
pub(crate) fn guarded(
    expression: Arc<dyn PhysicalExpr>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_down_up(
        |part| {
            // What is under the eyes of a guard stays.
            let recursion = match part.is::<Guarded>() {
                true => TreeNodeRecursion::Jump,
                false => TreeNodeRecursion::Continue,
            };
            Ok(Transformed::new(part, false, recursion))
        },
        |part| match Guarded::of(&part)? {
            Some(guarded) => Ok(Transformed::yes(Arc::new(guarded) as _)),
            None => Ok(Transformed::no(part)),
        },
    )
}

/// `left AND right`, or `left OR right`.
#[derive(Debug, Clone)]
struct Guarded {
    original: Arc<dyn PhysicalExpr>,
    is_and: bool,
}

impl Guarded {
    fn of(part: &Arc<dyn PhysicalExpr>) -> Result<Option<Self>> {
        let Some(binary) = part.downcast_ref::<BinaryExpr>() else {
            return Ok(None);
        };
        let is_and = match binary.op() {
            Operator::And => true,
            Operator::Or => false,
            _ => return Ok(None),
        };
        Ok(can_fail(part)?.then(|| Self {
            original: Arc::clone(part),
            is_and,
        }))
    }

    /// One side for all rows, then the other for those that it leaves open.
    ///
    /// # Errors
    /// `error` when each of the sides fails for some of all rows; that of a side for rows that are open.
    fn carefully(&self, batch: &RecordBatch, error: DataFusionError) -> Result<ColumnarValue> {
        let Some(binary) = self.original.downcast_ref::<BinaryExpr>() else {
            return Err(error);
        };
        let sides = [
            (binary.left(), binary.right()),
            (binary.right(), binary.left()),
        ];
        let known = sides.into_iter().find_map(|(first, second)| {
            let values = first.evaluate(batch).ok()?;
            Some((values.into_array(batch.num_rows()).ok()?, second))
        });
        let Some((first, second)) = known else {
            return Err(error);
        };
        let Some(first) = first.as_boolean_opt() else {
            return Err(error);
        };
        let open: BooleanArray = first
            .iter()
            .map(|value| Some(value != Some(!self.is_and)))
            .collect();
        let second = second.evaluate_selection(batch, &open)?;
        let second = second.into_array(batch.num_rows())?;
        // Null stands for what was left out, and decides nothing.
        let both = match self.is_and {
            true => and_kleene(first, second.as_boolean())?,
            false => or_kleene(first, second.as_boolean())?,
        };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.original.eq(&other.original)
    }
}

impl Eq for Guarded {}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.original.hash(state);
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt(formatter)
    }
}

impl PhysicalExpr for Guarded {
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
        let values = self.original.evaluate(batch);
        values.or_else(|error| self.carefully(batch, error))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.original]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(original) => Ok(Arc::new(Self {
                original,
                is_and: self.is_and,
            })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_sql(formatter)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, col, lit, not};

    use super::*;

    fn batch(values: Vec<Option<i64>>) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, true)]);
        let values = Arc::new(Int64Array::from(values));
        RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
    }

    /// `10 / k > 1`
    fn divided(schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let ten = lit(10_i64);
        let share = binary(ten, Operator::Divide, col("k", schema).unwrap(), schema).unwrap();
        binary(share, Operator::Gt, lit(1_i64), schema).unwrap()
    }

    fn is_zero(schema: &Schema) -> Arc<dyn PhysicalExpr> {
        binary(col("k", schema).unwrap(), Operator::Eq, lit(0_i64), schema).unwrap()
    }

    fn values_of(
        expression: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<Vec<Option<bool>>> {
        let values = expression.evaluate(batch)?;
        let values = values.into_array(batch.num_rows())?;
        Ok(values.as_boolean().iter().collect())
    }

    #[test]
    fn a_side_is_worked_out_where_the_other_leaves_it_open() {
        let batch = batch(vec![Some(0), Some(3), None, Some(20)]);
        let schema = batch.schema();
        let safe = not(is_zero(&schema)).unwrap();
        for (left, right) in [
            (Arc::clone(&safe), divided(&schema)),
            (divided(&schema), safe),
        ] {
            let both = binary(left, Operator::And, right, &schema).unwrap();
            assert!(both.evaluate(&batch).is_err());
            let both = guarded(both).unwrap().data;
            let expected = [Some(false), Some(true), None, Some(false)];
            assert_eq!(values_of(&both, &batch).unwrap(), expected);
        }
        let zero = is_zero(&schema);
        for (left, right) in [
            (Arc::clone(&zero), divided(&schema)),
            (divided(&schema), zero),
        ] {
            let either = binary(left, Operator::Or, right, &schema).unwrap();
            let either = guarded(either).unwrap().data;
            let expected = [Some(true), Some(true), None, Some(false)];
            assert_eq!(values_of(&either, &batch).unwrap(), expected);
        }
    }

    #[test]
    fn what_fails_where_nothing_guards_it_fails() {
        let batch = batch(vec![Some(0), Some(3)]);
        let schema = batch.schema();
        let safe = binary(
            col("k", &schema).unwrap(),
            Operator::Lt,
            lit(9_i64),
            &schema,
        )
        .unwrap();
        let both = binary(safe, Operator::And, divided(&schema), &schema).unwrap();
        let both = guarded(both).unwrap().data;
        assert!(both.evaluate(&batch).is_err());
    }

    #[test]
    fn what_cannot_fail_is_not_guarded() {
        let batch = batch(vec![Some(0)]);
        let schema = batch.schema();
        let both = binary(is_zero(&schema), Operator::And, is_zero(&schema), &schema).unwrap();
        assert!(!guarded(both).unwrap().transformed);
    }
}
