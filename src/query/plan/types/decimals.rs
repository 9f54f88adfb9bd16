//! Decimals beside floats, and decimals of 32 and 64 bits beside whole numbers.
//!
//! Comes in: values that are compared, or of which one is given, keys of a join, or a value that is looked for in a query. Goes out: the same; decimals beside floats are floats, and a float that is written (`0.05`) is the decimal that it is written as. The engine makes decimals of 15 digits before and behind the point of both: there are none for `1e300` and NaN, and `0.1` beside
//! money has the type of neither. Narrow decimals beside whole numbers, and floats of 16 bits, get more bits, also in arithmetic. Never here: parts of unions (`united.rs`); arithmetic with floats, where the engine makes floats of both.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, cast, lit,
};

const DIGITS_OF_64_BITS: u8 = 20;

/// What 128 bits have room for.
const MAX_DIGITS: usize = 38;

/// What 256 bits have room for.
const MAX_DIGITS_OF_LONG: usize = 76;

/// Gives decimals and floats among some values one type, and narrow numbers beside whole ones; says whether there are such.
pub(in crate::query) fn of_one_kind(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let beside_floats = beside_floats(parts, schema);
    as_narrow(parts, schema) || with_room_for_numbers(parts, schema) || beside_floats
}

/// The type of a value, or of those of a dictionary.
fn kind_of(part: &Expr, schema: &DFSchema) -> Option<DataType> {
    match part.get_type(schema).ok()? {
        DataType::Dictionary(_, values) => Some(*values),
        kind => Some(kind),
    }
}

/// Gives whole numbers that are written the type of the one kind of narrow decimals that they are beside, if all have room in it: the column stays as it is.
fn as_narrow(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_written =
        |part: &Expr| matches!(part, Expr::Literal(value, _) if value.data_type().is_integer());
    let others = parts.iter().filter(|part| !is_written(part));
    let mut kinds = others.map(|part| kind_of(part, schema));
    let Some(Some(kind)) = kinds.next() else {
        return false;
    };
    if !is_narrow_decimal(&kind) || kinds.any(|other| other.as_ref() != Some(&kind)) {
        return false;
    }
    let narrow = parts
        .iter()
        .enumerate()
        .filter_map(|(number, part)| match part {
            Expr::Literal(value, _) if value.data_type().is_integer() => {
                Some(value.cast_to(&kind).map(|value| (number, value)))
            }
            _ => None,
        });
    let Ok(narrow) = narrow.collect::<Result<Vec<_>>>() else {
        return false;
    };
    for (number, value) in &narrow {
        if let Some(part) = parts.get_mut(*number) {
            **part = lit(value.clone());
        }
    }
    !narrow.is_empty()
}

/// Gives decimals of 32 and 64 bits, and floats of 16, more bits beside whole numbers: the engine would make whole numbers of such decimals, and infinite ones of numbers beside such floats.
pub(in crate::query) fn with_room_for_numbers(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let kinds = parts.iter().map(|part| kind_of(part, schema));
    let kinds: Vec<Option<DataType>> = kinds.collect();
    if !kinds.iter().flatten().any(DataType::is_integer) {
        return false;
    }
    let mut is_changed = false;
    for (part, kind) in parts.iter_mut().zip(kinds) {
        if let Some(wide) = kind.as_ref().and_then(with_room) {
            **part = cast(std::mem::take(*part), wide);
            is_changed = true;
        }
    }
    is_changed
}

/// The type for a narrow one that has room for whole numbers, too.
pub(in crate::query) fn with_room(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) => {
            Some(DataType::Decimal128(*digits, *scale))
        }
        DataType::Float16 => Some(DataType::Float32),
        _ => None,
    }
}

fn is_narrow_decimal(kind: &DataType) -> bool {
    matches!(kind, DataType::Decimal32(..) | DataType::Decimal64(..))
}

fn beside_floats(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let kinds = parts.iter().map(|part| kind_of(part, schema));
    let kinds: Vec<Option<DataType>> = kinds.collect();
    let has = |is: fn(&DataType) -> bool| kinds.iter().flatten().any(is);
    if !has(is_decimal) || !has(DataType::is_floating) {
        return false;
    }
    let is_float = |kind: &Option<DataType>| kind.as_ref().is_some_and(DataType::is_floating);
    let written = parts.iter().zip(&kinds);
    let written = written.map(|(part, kind)| is_float(kind).then(|| as_written(part)));
    let written: Vec<Option<Option<Expr>>> = written.collect();
    // Whether each float is one that is written, and all have room in one type.
    let are_written = written.iter().flatten().all(Option::is_some);
    let literals = written.iter().flatten().flatten();
    let literals = literals.filter_map(|literal| literal.get_type(schema).ok());
    let decimals = kinds
        .iter()
        .flatten()
        .filter(|kind| is_decimal(kind))
        .cloned();
    let are_written = are_written && have_room(literals.chain(decimals));
    for ((part, kind), written) in parts.iter_mut().zip(&kinds).zip(written) {
        match (are_written, written) {
            (true, Some(Some(decimal))) => **part = decimal,
            (false, None) if kind.as_ref().is_some_and(is_decimal) => {
                let part = &mut **part;
                *part = match long_as_float(part) {
                    Some(float) => float,
                    None => cast(std::mem::take(part), DataType::Float64),
                };
            }
            _ => {}
        }
    }
    true
}

/// The float nearest to a decimal that is written with more digits than floats have (`rewrite/long_numbers.rs`): that of all its digits at once.
fn long_as_float(part: &Expr) -> Option<Expr> {
    match part {
        Expr::Negative(inner) => Some(Expr::Negative(Box::new(long_as_float(inner)?))),
        Expr::Cast(written) => match written.expr.as_ref() {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _)
                if is_decimal(written.field.data_type()) =>
            {
                text.parse::<f64>().ok().map(lit)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Gives values that are compared with a decimal that is written with many digits 256 bits, where they have no room in one type of 128; says whether there are such.
pub(in crate::query) fn with_room_for_long(parts: &mut [&mut Expr], schema: &DFSchema) -> bool {
    if !parts.iter().any(|part| long_as_float(part).is_some()) {
        return false;
    }
    let kinds = parts.iter().map(|part| match kind_of(part, schema)? {
        whole if whole.is_integer() => Some(DataType::Decimal128(DIGITS_OF_64_BITS, 0)),
        kind => is_decimal(&kind).then_some(kind),
    });
    let Some(kinds) = kinds.collect::<Option<Vec<_>>>() else {
        return false;
    };
    if have_room(kinds.iter().cloned()) {
        return false;
    }
    let scales = kinds.iter().filter_map(|kind| match kind {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    });
    let wide = DataType::Decimal256(DECIMAL256_MAX_PRECISION, scales.max().unwrap_or(0));
    for part in parts {
        **part = cast(std::mem::take(*part), wide.clone());
    }
    true
}

/// Whether decimals of several types have room in one, with as many digits behind the point as any has.
fn have_room(kinds: impl Iterator<Item = DataType>) -> bool {
    let (mut before, mut behind) = (0, 0);
    for kind in kinds {
        let (digits, scale, most) = match kind {
            DataType::Decimal32(digits, scale)
            | DataType::Decimal64(digits, scale)
            | DataType::Decimal128(digits, scale) => (digits, scale, MAX_DIGITS),
            DataType::Decimal256(digits, scale) => (digits, scale, MAX_DIGITS_OF_LONG),
            _ => continue,
        };
        let Ok(scale) = u8::try_from(scale) else {
            // Whole tens and hundreds, which the engine compares with nothing else.
            return false;
        };
        let own = digits.saturating_sub(scale);
        (before, behind) = (own.max(before), scale.max(behind));
        if usize::from(before) + usize::from(behind) > most {
            return false;
        }
    }
    true
}

/// Keys of joins, and of what is joined for INTERSECT and EXCEPT: decimals beside floats are floats.
pub(super) fn keys_of_one_kind(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = plan else {
        return Ok(Transformed::no(plan));
    };
    let schema = merge_schema(&[&join.left, &join.right]);
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        is_changed |= of_one_kind(&mut [left, right], &schema);
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        is_changed,
    ))
}

/// A value and the column of a query that it is looked for in: decimals beside floats are floats.
pub(super) fn found_by_kind(found: &mut InSubquery, schema: &DFSchema) -> Result<bool> {
    let plan = &found.subquery.subquery;
    let columns = plan.schema().columns();
    let ([column], Ok(value)) = (columns.as_slice(), found.expr.get_type(schema)) else {
        return Ok(false);
    };
    let kind = plan.schema().field(0).data_type();
    let wanted = |kind: &DataType, beside: &DataType| match kind {
        decimal if is_decimal(decimal) && beside.is_floating() => Some(DataType::Float64),
        narrow if beside.is_integer() => with_room(narrow),
        _ => None,
    };
    if let Some(wanted) = wanted(&value, kind) {
        let value = std::mem::take(found.expr.as_mut());
        *found.expr = cast(value, wanted);
        return Ok(true);
    }
    let Some(wanted) = wanted(kind, &value) else {
        return Ok(false);
    };
    let (relation, name) = (column.relation.clone(), column.name.clone());
    let made = cast(Expr::Column(column.clone()), wanted);
    let plan = LogicalPlanBuilder::from(LogicalPlan::clone(plan))
        .project([made.alias_qualified(relation, name)])?
        .build()?;
    found.subquery.subquery = Arc::new(plan);
    Ok(true)
}

pub(in crate::query) fn is_decimal(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
    )
}

/// The decimal that a number was written as, or that sums and products of such are, if there is room for it: `0.06 + 0.01`.
fn as_written(value: &Expr) -> Option<Expr> {
    let Written { unscaled, scale } = Written::of(value)?;
    let digits = unscaled
        .unsigned_abs()
        .checked_ilog10()
        .map_or(1, |log| log + 1);
    let digits = usize::try_from(digits).ok()?.max(scale).max(1);
    if digits > MAX_DIGITS {
        return None;
    }
    let (digits, scale) = (u8::try_from(digits).ok()?, i8::try_from(scale).ok()?);
    Some(lit(ScalarValue::Decimal128(Some(unscaled), digits, scale)))
}

/// A number with some digits behind the point.
struct Written {
    unscaled: i128,
    scale: usize,
}

impl Written {
    fn of(value: &Expr) -> Option<Self> {
        match value {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) => Self::of_float(*number),
            Expr::Literal(ScalarValue::Int64(Some(number)), _) => Some(Self {
                unscaled: i128::from(*number),
                scale: 0,
            }),
            Expr::Negative(value) => {
                let Self { unscaled, scale } = Self::of(value)?;
                let unscaled = unscaled.checked_neg()?;
                Some(Self { unscaled, scale })
            }
            Expr::BinaryExpr(pair) => {
                let (left, right) = (Self::of(&pair.left)?, Self::of(&pair.right)?);
                let scale = left.scale.max(right.scale);
                match pair.op {
                    Operator::Plus | Operator::Minus => {
                        let (left, right) = (left.scaled(scale)?, right.scaled(scale)?);
                        let unscaled = match pair.op {
                            Operator::Plus => left.checked_add(right)?,
                            _ => left.checked_sub(right)?,
                        };
                        Some(Self { unscaled, scale })
                    }
                    Operator::Multiply => Some(Self {
                        unscaled: left.unscaled.checked_mul(right.unscaled)?,
                        scale: left.scale + right.scale,
                    }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The shortest digits that are this number.
    fn of_float(number: f64) -> Option<Self> {
        if !number.is_finite() {
            return None;
        }
        let text = number.to_string();
        let digits: String = text.chars().filter(|letter| *letter != '.').collect();
        let scale = text.split_once('.').map_or(0, |(_, rest)| rest.len());
        let unscaled = digits.parse().ok()?;
        Some(Self { unscaled, scale })
    }

    fn scaled(&self, scale: usize) -> Option<i128> {
        let more = u32::try_from(scale - self.scale).ok()?;
        self.unscaled.checked_mul(10_i128.checked_pow(more)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_decimals_that_they_are_written_as() {
        let of = |number: f64| match as_written(&lit(number)) {
            Some(Expr::Literal(ScalarValue::Decimal128(Some(value), digits, scale), _)) => {
                Some((value, digits, scale))
            }
            _ => None,
        };
        assert_eq!(of(0.05), Some((5, 2, 2)));
        assert_eq!(of(-12.5), Some((-125, 3, 1)));
        assert_eq!(of(0.0), Some((0, 1, 0)));
        assert_eq!(of(-0.0), Some((0, 1, 0)));
        assert_eq!(of(1e20), Some((100_000_000_000_000_000_000, 21, 0)));
        assert_eq!(of(1e-30), Some((1, 30, 30)));
        let sum = lit(0.06) + lit(0.01) * lit(2_i64);
        let decimal = lit(ScalarValue::Decimal128(Some(8), 2, 2));
        assert_eq!(as_written(&sum), Some(decimal));
        assert_eq!(as_written(&(lit(0.5) / lit(2.0))), None);
        for number in [1e38, 1e-39, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(of(number), None, "{number}");
        }
    }
}
