//! Expressions that are worked out for any row without an error.
//!
//! Comes in: an expression over columns. Goes out: whether there is no row for which it fails, as far as the types tell, and of whole numbers what grids know of their columns: rows that a join drops must not be the reason of an error. Functions may do anything. Never here:
//! what is done where something fails (`exec/guarded.rs`).

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_plan::PhysicalExpr;

use super::ranges::{self, Columns};
use crate::query::plan::meaning::checked::operands;

/// The operators that take all values of their types.
const OF_ANY_VALUE: [Operator; 10] = [
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

/// Whether it never fails, for columns of a schema, of whose whole numbers it is known between which they lie.
pub(super) fn never_fails(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    columns: Columns<'_>,
) -> bool {
    let parts = expression.children();
    let of_parts = || {
        let mut parts = parts.iter();
        parts.all(|part| never_fails(part, schema, columns))
    };
    let takes_all = expression.is::<Column>()
        || expression.is::<Literal>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
        || expression.is::<NotExpr>()
        || expression.is::<InListExpr>()
        || expression.is::<LikeExpr>()
        || expression.is::<CaseExpr>();
    if takes_all {
        return of_parts();
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| has_room(&from, cast.cast_type())) && of_parts();
    }
    if operands(expression).is_some()
        && let (Some(range), Ok(kind)) = (
            ranges::of(expression, columns),
            expression.data_type(schema),
        )
        && ranges::fits(range, &kind)
    {
        return of_parts();
    }
    let Some(binary) = expression.downcast_ref::<BinaryExpr>() else {
        return false;
    };
    let (left, right) = (
        binary.left().data_type(schema),
        binary.right().data_type(schema),
    );
    let (Ok(left), Ok(right)) = (left, right) else {
        return false;
    };
    let has_room = match binary.op() {
        Operator::Divide => divides_all(&left, binary.right()),
        operator => OF_ANY_VALUE.contains(operator) || is_within(&left, operator, &right),
    };
    has_room && of_parts()
}

/// Whether each value of a type of decimals has a quotient: the other number stands there and is not zero, and the value has room for the digits that are put after it before it is divided, of which the kernel of Arrow makes four more
/// than it has, and as many as the other number has.
fn divides_all(left: &DataType, right: &Arc<dyn PhysicalExpr>) -> bool {
    let (DataType::Decimal128(digits, scale), Some(number)) =
        (left, right.downcast_ref::<Literal>())
    else {
        return false;
    };
    let ScalarValue::Decimal128(Some(number), _, other) = number.value() else {
        return false;
    };
    let more = i16::from(*other) + 4;
    let most = i16::from(DECIMAL128_MAX_PRECISION);
    *number != 0 && more >= 0 && i16::from(*digits) + more <= most && i16::from(*scale) + 4 <= most
}

/// Whether a sum of so many values has room where aggregates keep it: of decimals in 38 digits, of all others anyhow.
pub(super) fn has_room_for_sums(value: &Arc<dyn PhysicalExpr>, schema: &Schema, rows: f64) -> bool {
    match value.data_type(schema) {
        Ok(DataType::Decimal128(digits, _)) => {
            f64::from(digits) + rows.max(1.0).log10() <= f64::from(DECIMAL128_MAX_PRECISION)
        }
        Ok(kind) => !matches!(kind, DataType::Decimal256(..)),
        Err(_) => false,
    }
}

/// Whether sums, differences and products of all values have room in the type of the result.
fn is_within(left: &DataType, operator: &Operator, right: &DataType) -> bool {
    let (digits, scale) = match (left, right) {
        (DataType::Float32 | DataType::Float64, DataType::Float32 | DataType::Float64) => {
            return matches!(
                operator,
                Operator::Plus | Operator::Minus | Operator::Multiply
            );
        }
        (DataType::Decimal128(digits, scale), DataType::Decimal128(others, other)) => {
            match operator {
                Operator::Plus | Operator::Minus => {
                    let scales = *(scale.max(other));
                    let before = (whole(*digits, *scale)).max(whole(*others, *other));
                    (before + i16::from(scales) + 1, scales)
                }
                Operator::Multiply => (
                    i16::from(*digits) + i16::from(*others) + 1,
                    scale.saturating_add(*other),
                ),
                _ => return false,
            }
        }
        _ => return false,
    };
    let most = i16::from(DECIMAL128_MAX_PRECISION);
    digits <= most && i16::from(scale) <= most
}

/// Whether each value of the one type is one of the other.
fn has_room(from: &DataType, to: &DataType) -> bool {
    let digits = match from {
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        DataType::Decimal128(digits, scale) => {
            return match to {
                DataType::Decimal128(others, other) => {
                    scale <= other && whole(*digits, *scale) <= whole(*others, *other)
                }
                DataType::Float64 => true,
                _ => false,
            };
        }
        DataType::Float32 => return *to == DataType::Float64,
        _ => return from == to,
    };
    match to {
        DataType::Float64 => true,
        DataType::Decimal128(others, other) => digits <= whole(*others, *other),
        DataType::Int64 => *from != DataType::UInt64,
        DataType::Int32 => digits < 10,
        _ => from == to,
    }
}

/// The digits before the point.
fn whole(digits: u8, scale: i8) -> i16 {
    i16::from(digits) - i16::from(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_room_until_the_digits_are_used_up() {
        let money = DataType::Decimal128(15, 2);
        let long = DataType::Decimal128(38, 2);
        assert!(is_within(&money, &Operator::Plus, &money));
        assert!(is_within(&money, &Operator::Multiply, &money));
        assert!(!is_within(&money, &Operator::Divide, &money));
        assert!(!is_within(&long, &Operator::Plus, &money));
        assert!(!is_within(
            &DataType::Decimal128(20, 0),
            &Operator::Multiply,
            &DataType::Decimal128(18, 0)
        ));
        assert!(!is_within(
            &DataType::Int64,
            &Operator::Plus,
            &DataType::Int64
        ));
        assert!(is_within(
            &DataType::Float64,
            &Operator::Multiply,
            &DataType::Float64
        ));
    }

    #[test]
    fn only_numbers_that_are_there_and_not_zero_divide_all_values() {
        let number = |number, digits, scale| {
            let value = ScalarValue::Decimal128(number, digits, scale);
            Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>
        };
        let money = DataType::Decimal128(15, 2);
        assert!(divides_all(&money, &number(Some(2), 1, 0)));
        assert!(divides_all(&money, &number(Some(-25), 2, 1)));
        assert!(!divides_all(&money, &number(Some(0), 1, 0)));
        assert!(!divides_all(&money, &number(None, 1, 0)));
        assert!(!divides_all(&money, &number(Some(1), 38, 20)));
        assert!(!divides_all(
            &DataType::Decimal128(35, 2),
            &number(Some(2), 1, 0)
        ));
        assert!(!divides_all(&DataType::Int64, &number(Some(2), 1, 0)));
        let column = Arc::new(Column::new("a", 0)) as Arc<dyn PhysicalExpr>;
        assert!(!divides_all(&money, &column));
    }

    #[test]
    fn casts_to_wider_types_take_all_values() {
        let decimal = |digits, scale| DataType::Decimal128(digits, scale);
        for (from, to, expected) in [
            (DataType::Int32, DataType::Int64, true),
            (DataType::Int64, DataType::Int32, false),
            (DataType::UInt32, DataType::Int32, false),
            (DataType::UInt64, DataType::Int64, false),
            (DataType::Int64, DataType::Float64, true),
            (DataType::Int32, decimal(10, 0), true),
            (DataType::Int32, decimal(10, 2), false),
            (decimal(7, 2), decimal(12, 4), true),
            (decimal(7, 2), decimal(7, 1), false),
            (DataType::Utf8, DataType::Int64, false),
            (DataType::Float32, DataType::Float64, true),
        ] {
            assert_eq!(has_room(&from, &to), expected, "{from} -> {to}");
        }
    }
}
