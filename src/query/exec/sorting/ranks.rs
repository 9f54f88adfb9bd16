//! Ranks of texts of which there are few.
//!
//! Comes in: a key whose values are texts or bytes. Goes out: for each row the rank of its value among the different ones; nothing if there are many of these: ranking them would cost as much as sorting the rows. Never here: values of other types.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{cast, sort_to_indices, take};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;

use super::order::Key;
use super::runs::Pace;
use crate::query::exec::groups::Groups;

/// So many values are few.
const MOST: usize = 65_536;

/// Rows that have a value on average, so that there are few.
const ROWS_OF_VALUE: usize = 16;

/// After so many rows it shows whether there are.
const ROWS_LOOKED_AT: usize = 4_096;

/// The rank of the value of each row; any, of nulls.
///
/// # Errors
/// As the engine says of groups.
pub(super) async fn ranks(key: &Key, pace: &mut Pace) -> Result<Option<Vec<u32>>> {
    let num_rows: usize = key.values.iter().map(|values| values.len()).sum();
    let Some(kind) = grouped_as(&key.kind).filter(|_| num_rows > ROWS_LOOKED_AT) else {
        return Ok(None);
    };
    let field = Field::new("value", kind.clone(), true);
    let mut groups = Groups::try_new(Schema::new(vec![field]))?;
    let mut group_of_row: Vec<u32> = Vec::with_capacity(num_rows);
    for values in &key.values {
        // Of one large batch, the first rows may say it.
        for start in (0..values.len()).step_by(ROWS_LOOKED_AT) {
            let values = values.slice(start, ROWS_LOOKED_AT.min(values.len() - start));
            let numbers = groups.numbers(&[cast(&values, &kind)?])?.iter();
            let numbers = numbers.map(|number| u32::try_from(*number).unwrap_or(u32::MAX));
            group_of_row.extend(numbers);
            let are_seen = group_of_row.len() >= ROWS_LOOKED_AT;
            let most = (group_of_row.len() / ROWS_OF_VALUE).min(MOST);
            if are_seen && groups.len() > most {
                return Ok(None);
            }
            pace.after(values.len()).await;
        }
    }
    let values = groups.into_keys()?.pop();
    let values = values.ok_or_else(|| internal_datafusion_err!("groups without keys"))?;
    let ranks = ranks_of(&values)?;
    let groups = UInt32Array::from(group_of_row);
    let ranks = take(&ranks, &groups, None)?;
    let ranks = ranks.as_any().downcast_ref::<UInt32Array>();
    Ok(ranks.map(|ranks| ranks.values().to_vec()))
}

/// The type by which values are told apart, if they are texts or bytes: one array of all may be longer than those of short ones.
fn grouped_as(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::LargeUtf8),
        DataType::Binary | DataType::LargeBinary => Some(DataType::LargeBinary),
        DataType::Utf8View | DataType::BinaryView => Some(kind.clone()),
        DataType::Dictionary(_, values) => grouped_as(values),
        _ => None,
    }
}

/// What place each of different values has in their order.
fn ranks_of(values: &ArrayRef) -> Result<ArrayRef> {
    let order = sort_to_indices(values, None, None)?;
    let mut ranks = vec![0; order.len()];
    for (rank, value) in (0..).zip(order.values()) {
        if let Some(place) = ranks.get_mut(*value as usize) {
            *place = rank;
        }
    }
    Ok(Arc::new(UInt32Array::from(ranks)))
}
