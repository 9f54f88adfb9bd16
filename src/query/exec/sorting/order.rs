//! In which order rows are.
//!
//! Comes in: the keys of all rows, in batches. Goes out: the numbers of the rows in order; rows with equal keys stay as they came. The first keys, as far as they have numbers in their order, or ranks, are packed into one word with the number of the row, in as few bits as the values that there are take (`packed.rs`); words are sorted without looking anything up (`runs.rs`). Where that leaves rows equal, the other keys become bytes (arrow's row format), of which the first that differ are looked at first. Never here: the other columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::packed::{Packing, Word};
use super::rows::Places;
use super::runs::{Pace, sorted};

/// So many rows are put together of the keys of several batches.
const PART_ROWS: usize = 1 << 16;

/// One key: its values in batches, their type, and which way it goes.
pub(super) struct Key {
    pub(super) kind: DataType,
    pub(super) values: Vec<ArrayRef>,
    pub(super) options: SortOptions,
}

/// The numbers of the rows in the order of their keys.
///
/// # Errors
/// `Internal` for keys that have other numbers of rows, and for types that have no order.
pub(super) async fn order(keys: Vec<Key>, num_rows: u32) -> Result<Vec<u32>> {
    let Some(packing) = Packing::of(&keys, num_rows).await? else {
        let order = by_bytes(in_bytes(&keys).await?, |_, begin| begin).await?;
        return match u32::try_from(order.len()) == Ok(num_rows) {
            true => Ok(order),
            false => internal_err!("rows without keys"),
        };
    };
    match packing.bits() {
        ..=64 => by_words::<u64>(keys, &packing).await,
        _ => by_words::<u128>(keys, &packing).await,
    }
}

/// By the keys that are in words, and where these are equal, by the bytes of the others.
async fn by_words<W: Word>(mut keys: Vec<Key>, packing: &Packing) -> Result<Vec<u32>> {
    let words = packing.packed::<W>(&keys).await?;
    let others = keys.split_off(packing.num_keys());
    drop(keys);
    let words = sorted(words, W::cmp).await?;
    let mut order: Vec<u32> = words.iter().map(|word| packing.row(*word)).collect();
    if others.is_empty() {
        return Ok(order);
    }
    let (places, runs) = equal(&words, packing);
    drop(words);
    let rows = places.iter().filter_map(|place| order.get(*place)).copied();
    let rows: Vec<u32> = rows.collect();
    let begin = |row: usize, begin| (runs.get(row).copied().unwrap_or_default(), begin);
    let among = by_bytes(in_bytes(&of_rows(&others, &rows)?).await?, begin).await?;
    for (place, row) in places.iter().zip(among) {
        if let (Some(to), Some(row)) = (order.get_mut(*place), rows.get(row as usize)) {
            *to = *row;
        }
    }
    Ok(order)
}

/// The places of words whose keys others have as well, and a number for each such key.
fn equal<W: Word>(words: &[W], packing: &Packing) -> (Vec<usize>, Vec<u32>) {
    let (mut places, mut runs) = (Vec::new(), Vec::new());
    let (mut begin, mut run) = (0, 0);
    for words in words.chunk_by(|one, next| packing.key(*one) == packing.key(*next)) {
        if words.len() > 1 {
            places.extend(begin..begin + words.len());
            runs.extend(std::iter::repeat_n(run, words.len()));
            run += 1;
        }
        begin += words.len();
    }
    (places, runs)
}

/// The keys of some rows.
fn of_rows(keys: &[Key], rows: &[u32]) -> Result<Vec<Key>> {
    let rows = UInt32Array::from(rows.to_vec());
    let keys = keys.iter().map(|key| {
        let mut firsts = Vec::with_capacity(key.values.len());
        let mut first = 0;
        for values in &key.values {
            firsts.push(first);
            first += values.len();
        }
        // In parts, since one array may have no room for all.
        let parts = (0..rows.len()).step_by(PART_ROWS);
        let values = parts.map(|start| {
            let rows = rows.slice(start, PART_ROWS.min(rows.len() - start));
            let places = Places::of(&rows, &firsts);
            Ok(places.of_batches(&key.values)?)
        });
        Ok(Key {
            kind: key.kind.clone(),
            values: values.collect::<Result<_>>()?,
            options: key.options,
        })
    });
    keys.collect()
}

/// The numbers of rows in the order of what `begin` makes of their numbers and of their first bytes that differ, then of all bytes.
async fn by_bytes<B: Ord + Copy + Send + Sync + 'static>(
    rows: Rows,
    begin: impl Fn(usize, u64) -> B,
) -> Result<Vec<u32>> {
    let rows = Arc::new(rows);
    let common = common_bytes(&rows);
    let begins = rows.iter().enumerate().map(|(number, row)| {
        let mut bytes = [0; 8];
        let first = bytes.iter_mut().zip(row.data().iter().skip(common));
        first.for_each(|(to, byte)| *to = *byte);
        begin(number, u64::from_be_bytes(bytes))
    });
    let begins: Vec<(B, u32)> = begins.zip(0..).collect();
    let compare = move |(one, row): &(B, u32), (next, other): &(B, u32)| {
        let whole = || {
            let (row, other) = (*row as usize, *other as usize);
            rows.row(row).cmp(&rows.row(other))
        };
        one.cmp(next).then_with(whole).then(row.cmp(other))
    };
    let begins = sorted(begins, compare).await?;
    Ok(begins.into_iter().map(|(_, row)| row).collect())
}

async fn in_bytes(keys: &[Key]) -> Result<Rows> {
    let fields = keys
        .iter()
        .map(|key| SortField::new_with_options(key.kind.clone(), key.options));
    let converter = RowConverter::new(fields.collect())?;
    let mut rows = converter.empty_rows(0, 0);
    let mut pace = Pace::default();
    let num_batches = keys.first().map_or(0, |key| key.values.len());
    for batch in 0..num_batches {
        let columns = keys.iter().filter_map(|key| key.values.get(batch).cloned());
        let columns: Vec<ArrayRef> = columns.collect();
        converter.append(&mut rows, &columns)?;
        pace.after(columns.first().map_or(0, |column| column.len()))
            .await;
    }
    Ok(rows)
}

/// How many bytes all rows begin with in common.
fn common_bytes(rows: &Rows) -> usize {
    let mut all = rows.iter();
    let Some(first) = all.next() else {
        return 0;
    };
    let mut common = first.data();
    for row in all {
        let both = common.iter().zip(row.data());
        let same = both.take_while(|(one, other)| one == other).count();
        common = common.get(..same).unwrap_or_default();
        if common.is_empty() {
            break;
        }
    }
    common.len()
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Decimal128Array, Float64Array, Int64Array, StringArray, UInt64Array,
    };
    use arrow::compute::{SortColumn, cast, concat, lexsort_to_indices};

    use super::super::runs::RUN_ROWS;
    use super::*;

    fn ordered(keys: Vec<Key>, num_rows: usize) -> Vec<u32> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let num_rows = u32::try_from(num_rows).unwrap();
        runtime.block_on(order(keys, num_rows)).unwrap()
    }

    /// As arrow sorts, with the number of the row behind all keys.
    fn expected(keys: &[Key], num_rows: usize) -> Vec<u32> {
        let mut columns: Vec<SortColumn> = keys
            .iter()
            .map(|key| {
                let parts: Vec<&dyn Array> = key.values.iter().map(AsRef::as_ref).collect();
                SortColumn {
                    values: concat(&parts).unwrap(),
                    options: Some(key.options),
                }
            })
            .collect();
        let last = u64::try_from(num_rows).unwrap();
        columns.push(SortColumn {
            values: Arc::new(UInt64Array::from_iter_values(0..last)),
            options: None,
        });
        lexsort_to_indices(&columns, None)
            .unwrap()
            .values()
            .to_vec()
    }

    /// Numbers that look like any, the same each time.
    fn any(count: usize, modulus: i64) -> Vec<i64> {
        let mut state = 1_u64;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).cast_signed() % modulus
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    fn some(value: i64) -> Option<i64> {
        (value % 7 != 0).then_some(value)
    }

    /// Columns of so many rows: few values, many, all 64 bits, floats, decimals of 128 bits, texts with a common begin, of which some are null.
    fn columns(count: usize) -> Vec<ArrayRef> {
        let values = any(count, 1_000);
        let wide = any(count, 3).into_iter().map(|value| match value {
            0 => Some(i64::MIN),
            1 => Some(i64::MAX),
            _ => None,
        });
        let decimals = values.iter().map(|value| some(*value).map(i128::from));
        let long = values
            .iter()
            .map(|value| i128::MAX / 1_000 * i128::from(*value));
        let texts = values
            .iter()
            .map(|value| some(*value).map(|value| format!("a common begin, {value}")));
        vec![
            Arc::new(Int64Array::from_iter(values.iter().map(|v| some(v % 5)))),
            Arc::new(Int64Array::from(values.clone())),
            Arc::new(wide.collect::<Int64Array>()),
            Arc::new(Float64Array::from_iter(values.iter().map(|value| {
                some(*value).map(|value| if value % 3 == 0 { -0.0 } else { value as f64 })
            }))),
            Arc::new(BooleanArray::from_iter(
                values.iter().map(|v| some(*v).map(|v| v % 2 == 0)),
            )),
            Arc::new(decimals.collect::<Decimal128Array>()),
            Arc::new(long.map(Some).collect::<Decimal128Array>()),
            Arc::new(StringArray::from_iter(texts)),
        ]
    }

    fn in_batches(column: &ArrayRef, rows: usize) -> Vec<ArrayRef> {
        let starts = (0..column.len()).step_by(rows);
        starts
            .map(|start| column.slice(start, rows.min(column.len() - start)))
            .collect()
    }

    #[test]
    fn rows_are_as_arrow_sorts_them_whatever_the_keys() {
        let count = 500;
        let columns = columns(count);
        for (one, other) in
            (0..columns.len()).flat_map(|one| (0..columns.len()).map(move |other| (one, other)))
        {
            for way in 0..4 {
                let key = |column: usize, descending, nulls_first| Key {
                    kind: columns[column].data_type().clone(),
                    values: in_batches(&columns[column], 64),
                    options: SortOptions::new(descending, nulls_first),
                };
                let keys = || {
                    vec![
                        key(one, way % 2 == 0, way / 2 == 0),
                        key(other, way / 2 == 0, way % 2 == 1),
                    ]
                };
                assert_eq!(
                    ordered(keys(), count),
                    expected(&keys(), count),
                    "columns {one} and {other}, way {way}"
                );
            }
        }
    }

    #[test]
    fn runs_are_merged() {
        let count = 3 * RUN_ROWS + 17;
        let values: ArrayRef = Arc::new(Int64Array::from(any(count, 10_000)));
        let texts = any(count, 50).into_iter().map(|value| value.to_string());
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let few = any(count, 9).into_iter().map(|value| some(value + 1));
        let few: ArrayRef = Arc::new(Int64Array::from_iter(few));
        let long = any(count, 100_000)
            .into_iter()
            .map(|value| format!("a long text {value}"));
        let long: ArrayRef = Arc::new(StringArray::from_iter_values(long));
        let words = cast(
            &texts,
            &DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
        );
        for columns in [
            vec![&values],
            vec![&texts],
            vec![&words.unwrap(), &long],
            vec![&texts, &values],
            vec![&few, &long, &texts],
            vec![&long, &few],
        ] {
            let keys = || {
                let keys = columns.iter().zip([false, true, false]);
                let keys = keys.map(|(column, descending)| Key {
                    kind: column.data_type().clone(),
                    values: in_batches(column, 8_192),
                    options: SortOptions::new(descending, descending),
                });
                keys.collect()
            };
            assert!(ordered(keys(), count) == expected(&keys(), count));
        }
    }

    #[test]
    fn no_rows_and_one_row_are_in_order() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN]));
        let key = |values| Key {
            kind: DataType::Int64,
            values,
            options: SortOptions::default(),
        };
        assert_eq!(ordered(vec![key(vec![values])], 1), [0]);
        assert_eq!(ordered(vec![key(Vec::new())], 0), [0; 0]);
    }
}
