//! In which order rows are.
//!
//! Comes in: the keys of all rows, in batches. Goes out: the numbers of the rows in order; rows with equal keys stay as they came. The first keys, as far as they have numbers in their order, or ranks, are packed into one word with the number of the row, in as few bits as the values that there are take (`packed.rs`); words are sorted without looking anything up (`runs.rs`), of long ones first the first bits. Where that leaves rows equal, the other keys become bytes (arrow's row format), of which the first that differ are looked at first. Never here: the other columns.

use std::ops::Range;
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

/// If more than this part of all rows are equal in the first bits of their words, whole words are sorted.
const EQUAL_PART: usize = 4;

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
pub(super) async fn order(mut keys: Vec<Key>, num_rows: u32) -> Result<Vec<u32>> {
    let Some(packing) = Packing::of(&keys, num_rows).await? else {
        let order = by_bytes(in_bytes(&keys).await?, |_, begin| begin).await?;
        return match u32::try_from(order.len()) == Ok(num_rows) {
            true => Ok(order),
            false => internal_err!("rows without keys"),
        };
    };
    let others = keys.split_off(packing.num_keys());
    let ordered = match packing.bits() {
        ..=64 => by_words(keys, &packing, !others.is_empty()).await?,
        _ => by_long_words(keys, &packing, !others.is_empty()).await?,
    };
    told_apart(ordered, &others).await
}

/// Rows in the order of their first keys.
struct Ordered {
    rows: Vec<u32>,
    /// Where rows with equal first keys are, if that is asked for.
    equal: Vec<Range<usize>>,
}

impl Ordered {
    fn of<W: Word>(words: &[W], packing: &Packing, with_equal: bool) -> Self {
        let is_same = |one: &W, next: &W| packing.key(*one) == packing.key(*next);
        Self {
            rows: words.iter().map(|word| packing.row(*word)).collect(),
            equal: match with_equal {
                true => runs_of(words, is_same),
                false => Vec::new(),
            },
        }
    }
}

async fn by_words(keys: Vec<Key>, packing: &Packing, with_equal: bool) -> Result<Ordered> {
    let words = packing.packed::<u64>(&keys).await?;
    drop(keys);
    let words = sorted(words, u64::cmp).await?;
    Ok(Ordered::of(&words, packing, with_equal))
}

/// By the first bits of words of 128 bits, which are sorted faster, and by the others where these are equal, unless that are many.
async fn by_long_words(keys: Vec<Key>, packing: &Packing, with_equal: bool) -> Result<Ordered> {
    let words = packing.packed::<u128>(&keys).await?;
    drop(keys);
    let begins = packing.begins(&words);
    let begins = sorted(begins, u64::cmp).await?;
    let first = Ordered::of(&begins, packing, true);
    drop(begins);
    let num_equal: usize = first.equal.iter().map(ExactSizeIterator::len).sum();
    if num_equal > words.len() / EQUAL_PART {
        drop(first);
        let words = sorted(words, u128::cmp).await?;
        return Ok(Ordered::of(&words, packing, with_equal));
    }
    let mut rows = first.rows;
    let word = |row: &u32| words.get(*row as usize).copied().unwrap_or_default();
    for places in first.equal {
        let rows = rows.get_mut(places).unwrap_or_default();
        rows.sort_unstable_by_key(word);
    }
    let is_same = |one: &u32, next: &u32| packing.key(word(one)) == packing.key(word(next));
    let equal = match with_equal {
        true => runs_of(&rows, is_same),
        false => Vec::new(),
    };
    Ok(Ordered { rows, equal })
}

/// Where several values that are the same follow each other.
fn runs_of<T>(values: &[T], is_same: impl Fn(&T, &T) -> bool) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    for run in values.chunk_by(is_same) {
        let end = begin + run.len();
        if run.len() > 1 {
            runs.push(begin..end);
        }
        begin = end;
    }
    runs
}

/// The rows, of which those with equal first keys are in the order of the bytes of the others.
async fn told_apart(ordered: Ordered, others: &[Key]) -> Result<Vec<u32>> {
    let Ordered { mut rows, equal } = ordered;
    if equal.is_empty() || others.is_empty() {
        return Ok(rows);
    }
    let (mut among, mut runs) = (Vec::new(), Vec::new());
    for (run, places) in (0_u32..).zip(&equal) {
        runs.extend(std::iter::repeat_n(run, places.len()));
        among.extend_from_slice(rows.get(places.clone()).unwrap_or_default());
    }
    let begin = |row: usize, begin| (runs.get(row).copied().unwrap_or_default(), begin);
    let order = by_bytes(in_bytes(&of_rows(others, &among)?).await?, begin).await?;
    for (place, row) in equal.into_iter().flatten().zip(order) {
        if let (Some(to), Some(row)) = (rows.get_mut(place), among.get(row as usize)) {
            *to = *row;
        }
    }
    Ok(rows)
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
        let wide = any(count, 1 << 30).into_iter().zip(any(count, 3));
        let wide = wide.map(|(value, sign)| (value << 32) * (sign - 1));
        let wide: ArrayRef = Arc::new(Int64Array::from_iter_values(wide));
        // Equal in their first bits, mostly.
        let near = any(count, 1_000).into_iter().map(|value| match value {
            0 => i64::MIN,
            1 => i64::MAX,
            value => value,
        });
        let near: ArrayRef = Arc::new(Int64Array::from_iter_values(near));
        for columns in [
            vec![&values],
            vec![&texts],
            vec![&words.unwrap(), &long],
            vec![&texts, &values],
            vec![&few, &long, &texts],
            vec![&long, &few],
            vec![&wide, &values],
            vec![&near, &few],
            vec![&wide, &near, &texts],
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
