//! Between which whole numbers values lie.
//!
//! Comes in: an expression over columns, a plan that has these. Goes out: the least and the greatest number that it can be, from what grids know of their columns: exactly, since rows that a join drops must not be the reason of an error. Never here: estimates.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::{Expr, place_in};
use crate::query::exec::scan::GridScanExec;
use crate::query::plan::meaning::checked::operands;

/// The least and the greatest number.
pub(super) type Range = (i128, i128);

/// What is known of columns, by their numbers.
pub(super) type Columns<'a> = &'a dyn Fn(usize) -> Option<Range>;

/// Between which numbers a value lies.
pub(super) fn of(value: &Expr, columns: Columns<'_>) -> Option<Range> {
    if let Some(column) = value.downcast_ref::<Column>() {
        return columns(column.index());
    }
    if let Some(literal) = value.downcast_ref::<Literal>() {
        let number = number(literal.value())?;
        return Some((number, number));
    }
    if let Some(cast) = value.downcast_ref::<CastExpr>() {
        let range = of(cast.expr(), columns)?;
        return fits(range, cast.cast_type()).then_some(range);
    }
    let (operator, left, right) = operands(value)?;
    let (left, right) = (of(left, columns)?, of(right, columns)?);
    match operator {
        Operator::Plus => Some((left.0.checked_add(right.0)?, left.1.checked_add(right.1)?)),
        Operator::Minus => Some((left.0.checked_sub(right.1)?, left.1.checked_sub(right.0)?)),
        Operator::Multiply => {
            let ends = [
                left.0.checked_mul(right.0)?,
                left.0.checked_mul(right.1)?,
                left.1.checked_mul(right.0)?,
                left.1.checked_mul(right.1)?,
            ];
            Some((ends.into_iter().min()?, ends.into_iter().max()?))
        }
        _ => None,
    }
}

/// Whether all numbers between two have room in a type.
pub(super) fn fits((least, greatest): Range, kind: &DataType) -> bool {
    let (from, to): Range = match kind {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return false,
    };
    from <= least && greatest <= to
}

/// The numbers of a column of a plan, as its grid knows them: joins and filters only leave some out.
pub(super) fn of_column(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<Range> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let value = &projection.expr().get(column)?.expr;
        let input = projection.input();
        return of(value, &|column| of_column(input, column));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let column = match filter.projection().as_ref() {
            Some(columns) => *columns.get(column)?,
            None => column,
        };
        return of_column(filter.input(), column);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let (place, width) = (place_in(join, column)?, join.left().schema().fields().len());
        return match (join.join_type(), place.checked_sub(width)) {
            (JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full, Some(place)) => {
                of_column(join.right(), place)
            }
            (
                JoinType::Inner
                | JoinType::Left
                | JoinType::Right
                | JoinType::Full
                | JoinType::LeftSemi
                | JoinType::LeftAnti,
                None,
            ) => of_column(join.left(), place),
            _ => None,
        };
    }
    if !plan.is::<GridScanExec>() {
        return None;
    }
    let known = StatisticsContext::new();
    let known = known.compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    let known = known.column_statistics.get(column)?;
    let (least, greatest) = (known.min_value.get_value()?, known.max_value.get_value()?);
    Some((number(least)?, number(greatest)?))
}

/// A whole number.
fn number(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int8(number) => number.map(Into::into),
        ScalarValue::Int16(number) => number.map(Into::into),
        ScalarValue::Int32(number) => number.map(Into::into),
        ScalarValue::Int64(number) => number.map(Into::into),
        ScalarValue::UInt8(number) => number.map(Into::into),
        ScalarValue::UInt16(number) => number.map(Into::into),
        ScalarValue::UInt32(number) => number.map(Into::into),
        ScalarValue::UInt64(number) => number.map(Into::into),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_expr::expressions::{BinaryExpr, lit};

    use super::*;

    #[test]
    fn the_ends_of_products_may_be_those_of_any_factors() {
        let column = |place| Arc::new(Column::new("c", place)) as Expr;
        let two = |left, operator, right| Arc::new(BinaryExpr::new(left, operator, right)) as Expr;
        let columns = |place| match place {
            0 => Some((-3, 5)),
            1 => Some((-7, 2)),
            _ => None,
        };
        let of = |value: &Expr| of(value, &columns);
        assert_eq!(
            of(&two(column(0), Operator::Plus, column(1))),
            Some((-10, 7))
        );
        assert_eq!(
            of(&two(column(0), Operator::Minus, column(1))),
            Some((-5, 12))
        );
        assert_eq!(
            of(&two(column(0), Operator::Multiply, column(1))),
            Some((-35, 21))
        );
        assert_eq!(
            of(&two(column(0), Operator::Plus, lit(10_i64))),
            Some((7, 15))
        );
        assert_eq!(of(&two(column(0), Operator::Plus, column(2))), None);
        assert_eq!(of(&two(column(0), Operator::Divide, column(1))), None);
        assert!(fits((-128, 127), &DataType::Int8) && !fits((-129, 0), &DataType::Int8));
        assert!(!fits((-1, 0), &DataType::UInt64));
    }
}
