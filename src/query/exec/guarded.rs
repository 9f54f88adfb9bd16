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
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
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

/// A guard within a guard within a guard, and so on: below so many nothing is tried again, which would take time by the power of how many there are.
const MAX_DEPTH: usize = 5;

/// How often a side that fails is tried again after others have left fewer rows open.
const MAX_ROUNDS: usize = 2;

/// The expression, in which each AND and OR of something that can fail is guarded.
pub(crate) fn guarded(
    expression: Arc<dyn PhysicalExpr>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    guarded_below(expression, 0)
}

fn guarded_below(
    expression: Arc<dyn PhysicalExpr>,
    depth: usize,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_down(|part| {
        let found = match part.is::<Guarded>() {
            true => None,
            false => Guarded::of(&part, depth)?,
        };
        Ok(match found {
            Some(guarded) => {
                Transformed::new(Arc::new(guarded) as _, true, TreeNodeRecursion::Jump)
            }
            // What is under the eyes of a guard stays.
            None if part.is::<Guarded>() => Transformed::new(part, false, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    })
}

/// The sides of `a AND b AND c`, or of the same with OR.
fn sides(part: &Arc<dyn PhysicalExpr>, operator: Operator) -> Vec<Arc<dyn PhysicalExpr>> {
    let (mut sides, mut open) = (Vec::new(), vec![part]);
    while let Some(part) = open.pop() {
        match part.downcast_ref::<BinaryExpr>() {
            Some(binary) if *binary.op() == operator => {
                open.extend([binary.right(), binary.left()]);
            }
            _ => sides.push(Arc::clone(part)),
        }
    }
    sides
}

/// A chain of AND, or of OR.
#[derive(Debug, Clone)]
struct Guarded {
    original: Arc<dyn PhysicalExpr>,
    /// What is between AND or OR, with guards of their own.
    sides: Vec<Arc<dyn PhysicalExpr>>,
    is_and: bool,
    depth: usize,
}

impl Guarded {
    fn of(part: &Arc<dyn PhysicalExpr>, depth: usize) -> Result<Option<Self>> {
        let operator = part.downcast_ref::<BinaryExpr>().map(BinaryExpr::op);
        let operator = operator.filter(|op| matches!(op, Operator::And | Operator::Or));
        let Some(operator) = operator.filter(|_| depth < MAX_DEPTH) else {
            return Ok(None);
        };
        if !can_fail(part)? {
            return Ok(None);
        }
        let sides = sides(part, *operator).into_iter();
        let sides = sides.map(|side| Ok(guarded_below(side, depth + 1)?.data));
        Ok(Some(Self {
            original: Arc::clone(part),
            sides: sides.collect::<Result<_>>()?,
            is_and: *operator == Operator::And,
            depth,
        }))
    }

    /// One side after the other, each for the rows that those before leave open; one that fails comes after the others.
    ///
    /// # Errors
    /// That of a side which fails for rows that all others leave open.
    fn carefully(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let undecided = BooleanArray::from(vec![self.is_and; batch.num_rows()]);
        let mut known = undecided;
        let mut left: Vec<&Arc<dyn PhysicalExpr>> = self.sides.iter().collect();
        for round in 0..=MAX_ROUNDS {
            let (mut failed, count) = (Vec::new(), left.len());
            for side in left {
                match self.with(&known, side, batch) {
                    Ok(now) => known = now,
                    Err(error) => failed.push((side, error)),
                }
            }
            let is_stuck = failed.len() == count || round == MAX_ROUNDS;
            if is_stuck && !failed.is_empty() {
                let (_, error) = failed.swap_remove(0);
                return Err(error);
            }
            left = failed.into_iter().map(|(side, _)| side).collect();
            if left.is_empty() {
                break;
            }
        }
        Ok(ColumnarValue::Array(Arc::new(known)))
    }

    /// What is known once another side has been worked out for the rows that are open.
    fn with(
        &self,
        known: &BooleanArray,
        side: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<BooleanArray> {
        let open: BooleanArray = known
            .iter()
            .map(|value| Some(value != Some(!self.is_and)))
            .collect();
        let values = side.evaluate_selection(batch, &open)?;
        let values = values.into_array(batch.num_rows())?;
        let Some(values) = values.as_boolean_opt() else {
            return datafusion::common::internal_err!("a side of AND that is no truth value");
        };
        // Null stands for what was left out, and decides nothing.
        Ok(match self.is_and {
            true => and_kleene(known, values)?,
            false => or_kleene(known, values)?,
        })
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
        values.or_else(|_| self.carefully(batch))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.original]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let Some(original) = children.pop() else {
            return Ok(self);
        };
        Ok(match Self::of(&original, self.depth)? {
            Some(guarded) => Arc::new(guarded),
            None => original,
        })
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.original.fmt_sql(formatter)
    }
}

/// What may fail in the condition of a join, kept where it is: worked out below the join, for all rows of a side, nothing would guard it.
#[derive(Debug)]
struct Kept(Arc<dyn PhysicalExpr>);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// The condition, in which divisions and casts beside AND and OR are kept.
pub(super) fn kept(
    condition: &Arc<dyn PhysicalExpr>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    let condition = Arc::clone(condition);
    if Guarded::of(&condition, 0)?.is_none() {
        return Ok(Transformed::no(condition));
    }
    condition.transform_up(|part| {
        let operator = part.downcast_ref::<BinaryExpr>().map(BinaryExpr::op);
        let divides = operator.is_some_and(|op| matches!(op, Operator::Divide | Operator::Modulo));
        Ok(match divides || part.is::<CastExpr>() {
            true => Transformed::yes(Arc::new(Kept(part)) as _),
            false => Transformed::no(part),
        })
    })
}

/// The condition as it was before [`kept`].
pub(super) fn released(
    condition: &Arc<dyn PhysicalExpr>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Arc::clone(condition).transform_up(|part| {
        let original = part
            .downcast_ref::<Kept>()
            .map(|Kept(part)| Arc::clone(part));
        Ok(match original {
            Some(original) => Transformed::yes(original),
            None => Transformed::no(part),
        })
    })
}

impl fmt::Display for Kept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl PhysicalExpr for Kept {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.0.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.0.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.0.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let original = Arc::clone(&self.0).with_new_children(children)?;
        Ok(Arc::new(Self(original)))
    }

    fn fmt_sql(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(formatter)
    }

    /// The engine moves nothing of which it is said that it gives another value each time.
    fn is_volatile_node(&self) -> bool {
        true
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
    fn a_long_chain_that_fails_is_worked_out_few_times() {
        let batch = batch((0..100).map(Some).collect());
        let schema = batch.schema();
        let mut chain = divided(&schema);
        for number in 0..300_i64 {
            let less = lit(-1 - number);
            let less = binary(col("k", &schema).unwrap(), Operator::Lt, less, &schema).unwrap();
            chain = binary(chain, Operator::Or, less, &schema).unwrap();
        }
        // With a power of what is in it, it would not come to an end.
        let chain = guarded(chain).unwrap().data;
        assert!(chain.evaluate(&batch).is_err());
        let zero = binary(chain, Operator::Or, is_zero(&schema), &schema).unwrap();
        assert!(guarded(zero).unwrap().data.evaluate(&batch).is_ok());
        let mut nested = divided(&schema);
        for number in 0..40_i64 {
            let (operator, limit) = match number % 2 {
                0 => (Operator::And, lit(1000 + number)),
                _ => (Operator::Or, lit(-1 - number)),
            };
            let less = binary(col("k", &schema).unwrap(), Operator::Lt, limit, &schema).unwrap();
            nested = binary(nested, operator, less, &schema).unwrap();
        }
        assert!(guarded(nested).unwrap().data.evaluate(&batch).is_err());
    }

    #[test]
    fn what_cannot_fail_is_not_guarded() {
        let batch = batch(vec![Some(0)]);
        let schema = batch.schema();
        let both = binary(is_zero(&schema), Operator::And, is_zero(&schema), &schema).unwrap();
        assert!(!guarded(both).unwrap().transformed);
    }
}
