//! Types of the columns of a union, where those that the engine gives them are not meant.
//!
//! Comes in: a union whose types are not settled yet. Goes out: the same; dates beside instants are instants, where the engine makes both what clocks show, decimals beside floats are floats, narrow decimals beside whole numbers have more bits, several dictionaries have keys that count their values together, and lists of which some have elements with metadata lose it.
//! Never here: names of parts (`plan/unions.rs`).

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union, cast};

use super::bare::bare;
use super::decimals::{is_decimal, with_room};
use crate::query::plan::meaning::clocks::is_instant;
use crate::query::wide_keys::sql_type;

/// Casts columns of the parts of a union.
pub(super) fn united(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Union(union) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let places = 0..union.schema.fields().len();
    let targets: Vec<Option<DataType>> = places.map(|place| target(union, place)).collect();
    let places = 0..union.schema.fields().len();
    let are_bare: Vec<bool> = places.map(|place| are_bare(union, place)).collect();
    if targets.iter().all(Option::is_none) && !are_bare.contains(&true) {
        return Ok(Transformed::no(plan));
    }
    let inputs = union.inputs.iter().map(|part| {
        let columns = part.schema().iter().zip(targets.iter().zip(&are_bare));
        let columns = columns.map(|((table, field), (target, is_bare))| {
            let column = Expr::from(Column::from((table, field)));
            let target = match target {
                Some(target) => is_cast(field.data_type(), target).then(|| target.clone()),
                None => bare(field.data_type()).filter(|_| *is_bare),
            };
            match target {
                Some(target) => cast(column, target).alias_qualified(table.cloned(), field.name()),
                None => column,
            }
        });
        let projection = Projection::try_new(columns.collect(), Arc::clone(part))?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    });
    let union = Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?)?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}

/// The types of the column at a place.
fn types_at(union: &Union, place: usize) -> Vec<DataType> {
    let of = |part: &Arc<LogicalPlan>| {
        let column = part.schema().fields().get(place)?;
        Some(column.data_type().clone())
    };
    union.inputs.iter().filter_map(of).collect()
}

/// Whether the lists at a place lose the metadata of their elements: where all have the same they keep it.
fn are_bare(union: &Union, place: usize) -> bool {
    let types = types_at(union, place);
    let first = types.first();
    types.iter().any(|kind| bare(kind).is_some()) && types.iter().any(|kind| Some(kind) != first)
}

/// What the column at a place should be, where the engine makes something else of it.
fn target(union: &Union, place: usize) -> Option<DataType> {
    let types = types_at(union, place);
    // NULL as well: what it is beside is asked by the union around this one.
    if types.iter().any(is_date) && types.iter().any(is_instant) {
        return types.into_iter().find(is_instant);
    }
    if types.iter().any(is_decimal) && types.iter().any(DataType::is_floating) {
        return Some(DataType::Float64);
    }
    // The engine makes whole numbers of the decimals, and infinite ones beside floats of 16 bits.
    if types.iter().any(DataType::is_integer)
        && let Some(target) = types.iter().filter_map(with_room).reduce(both)
    {
        return Some(target);
    }
    let mut narrow = types.iter().filter(|kind| is_narrow(kind));
    let wide = narrow.next().and_then(sql_type);
    narrow.next().and(wide)
}

/// The type that has room for what two have room for: none has more than 18 digits.
fn both(one: DataType, other: DataType) -> DataType {
    match (one, other) {
        (DataType::Decimal128(digits, scale), DataType::Decimal128(others, other)) => {
            let behind = scale.max(other);
            let before = |digits: u8, scale: i8| i16::from(digits) - i16::from(scale);
            let digits = before(digits, scale).max(before(others, other)) + i16::from(behind);
            DataType::Decimal128(
                u8::try_from(digits).unwrap_or(DECIMAL128_MAX_PRECISION),
                behind,
            )
        }
        (one, _) => one,
    }
}

/// Whether columns of a type become those of another.
fn is_cast(kind: &DataType, target: &DataType) -> bool {
    match target {
        DataType::Float64 => is_decimal(kind),
        DataType::Float32 | DataType::Decimal128(..) => with_room(kind).is_some(),
        _ => is_date(kind) || is_narrow(kind),
    }
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64 | DataType::Null)
}

fn is_narrow(kind: &DataType) -> bool {
    sql_type(kind).is_some()
}
