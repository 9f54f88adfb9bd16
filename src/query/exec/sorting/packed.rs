//! Keys of a row in one word.
//!
//! Comes in: keys. Goes out: words in the order of the first of them, as many as have numbers in the order of their values (`ordered.rs`, `ranks.rs`) and fit, with the number of the row in their last bits. Each key takes the bits that the values between its least and its greatest one take, and one value more for nulls. Never here: sorting them.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;

use super::order::Key;
use super::ranks::ranks;
use super::runs::Pace;
use crate::query::exec::ordered::{put, put_decimals, through};

/// A number that keys are packed into.
pub(super) trait Word: Copy + Ord + Send + Sync + 'static {
    const ZERO: Self;

    fn of(number: u64) -> Self;

    /// With a number of so many bits behind it.
    fn with(self, bits: u32, number: Self) -> Self;

    fn and(self, one: bool) -> Self;

    /// Its last 32 bits.
    fn low(self) -> u32;

    /// Without so many of its last bits.
    fn without(self, bits: u32) -> Self;
}

macro_rules! word {
    ($word:ty) => {
        impl Word for $word {
            const ZERO: Self = 0;

            fn of(number: u64) -> Self {
                Self::from(number)
            }

            fn with(self, bits: u32, number: Self) -> Self {
                self.checked_shl(bits).unwrap_or(0) | number
            }

            fn and(self, one: bool) -> Self {
                self + Self::from(one)
            }

            #[expect(clippy::cast_possible_truncation, reason = "these bits are asked for")]
            fn low(self) -> u32 {
                self as u32
            }

            fn without(self, bits: u32) -> Self {
                self.checked_shr(bits).unwrap_or(0)
            }
        }
    };
}

word!(u64);
word!(u128);

/// The most bits of a word.
const MOST_BITS: u32 = u128::BITS;

/// How the keys lie in a word.
pub(super) struct Packing {
    spans: Vec<Span>,
    row_bits: u32,
}

/// The values of one key.
struct Span {
    numbers: Numbers,
    least: u64,
    most: u64,
    has_nulls: bool,
}

/// How values become numbers.
enum Numbers {
    Through(DataType),
    OfDecimals,
    /// One of each row.
    Ranks(Vec<u32>),
}

/// Whether values of a type may have numbers.
pub(super) fn has_numbers(kind: &DataType) -> bool {
    Numbers::of_type(kind).is_some()
}

impl Numbers {
    fn of_type(kind: &DataType) -> Option<Self> {
        match kind {
            DataType::Decimal128(..) => Some(Self::OfDecimals),
            _ => through(kind).map(Self::Through),
        }
    }

    async fn of(key: &Key, pace: &mut Pace) -> Result<Option<Self>> {
        match Self::of_type(&key.kind) {
            Some(numbers) => Ok(Some(numbers)),
            None => Ok(ranks(key, pace).await?.map(Self::Ranks)),
        }
    }

    /// Puts those of a batch behind others, of which the first row has this number; whether all values have some.
    fn put(&self, values: &ArrayRef, first: usize, to: &mut Vec<u64>) -> Result<bool> {
        match self {
            Self::Through(kind) => put(values, kind, to).map(|()| true),
            Self::OfDecimals => put_decimals(values, to),
            Self::Ranks(ranks) => {
                let Some(ranks) = ranks.get(first..first + values.len()) else {
                    return internal_err!("rows without ranks");
                };
                to.extend(ranks.iter().map(|rank| u64::from(*rank)));
                Ok(true)
            }
        }
    }
}

/// Which values are null, if any are.
fn nulls_of(values: &ArrayRef) -> Option<NullBuffer> {
    let nulls = values.logical_nulls();
    nulls.filter(|nulls| nulls.null_count() > 0)
}

impl Span {
    /// `None` for keys that have no numbers.
    async fn of(key: &Key, pace: &mut Pace) -> Result<Option<Self>> {
        let Some(numbers) = Numbers::of(key, pace).await? else {
            return Ok(None);
        };
        let (mut least, mut most, mut has_nulls) = (u64::MAX, 0, false);
        let (mut found, mut first) = (Vec::new(), 0);
        for values in &key.values {
            found.clear();
            if !numbers.put(values, first, &mut found)? {
                return Ok(None);
            }
            first += values.len();
            let nulls = nulls_of(values);
            has_nulls |= nulls.is_some();
            let mut widen = |number: u64| {
                least = least.min(number);
                most = most.max(number);
            };
            match nulls {
                None => found.iter().for_each(|number| widen(*number)),
                Some(nulls) => {
                    let valid = found.iter().zip(nulls.iter());
                    let valid = valid.filter(|(_, is_valid)| *is_valid);
                    valid.for_each(|(number, _)| widen(*number));
                }
            }
            pace.after(values.len()).await;
        }
        Ok(Some(Self {
            numbers,
            // Of nulls alone.
            least: least.min(most),
            most,
            has_nulls,
        }))
    }

    fn bits(&self) -> u32 {
        // One more than the last place.
        let places = u128::from(self.most - self.least) + u128::from(self.has_nulls);
        u128::BITS - places.leading_zeros()
    }
}

impl Packing {
    /// That of the first keys; `None` if not even one of them has numbers.
    pub(super) async fn of(keys: &[Key], num_rows: u32) -> Result<Option<Self>> {
        let row_bits = u32::BITS - num_rows.saturating_sub(1).leading_zeros();
        let mut spans = Vec::with_capacity(keys.len());
        let mut bits = row_bits;
        let mut pace = Pace::default();
        for key in keys {
            let Some(span) = Span::of(key, &mut pace).await? else {
                break;
            };
            bits += span.bits();
            if bits > MOST_BITS {
                break;
            }
            spans.push(span);
        }
        Ok((!spans.is_empty()).then_some(Self { spans, row_bits }))
    }

    /// How many keys are in the words.
    pub(super) fn num_keys(&self) -> usize {
        self.spans.len()
    }

    /// How many bits of a word are taken.
    pub(super) fn bits(&self) -> u32 {
        self.row_bits + self.spans.iter().map(Span::bits).sum::<u32>()
    }

    /// The words of all rows.
    pub(super) async fn packed<W: Word>(&self, keys: &[Key]) -> Result<Vec<W>> {
        let num_rows = keys.first().map_or(0, |key| {
            key.values.iter().map(|values| values.len()).sum::<usize>()
        });
        let mut words = vec![W::ZERO; num_rows];
        let (mut found, mut pace) = (Vec::new(), Pace::default());
        for (key, span) in keys.iter().zip(&self.spans) {
            let mut rest = words.as_mut_slice();
            let mut first = 0;
            for values in &key.values {
                found.clear();
                span.numbers.put(values, first, &mut found)?;
                first += values.len();
                let Some((of_batch, others)) = rest.split_at_mut_checked(values.len()) else {
                    return internal_err!("keys of other numbers of rows");
                };
                rest = others;
                put_behind(of_batch, values, &found, span, key.options);
                pace.after(values.len()).await;
            }
        }
        let rows = words.iter_mut().zip(0_u64..);
        rows.for_each(|(word, row)| *word = word.with(self.row_bits, W::of(row)));
        Ok(words)
    }

    /// The first bits of the keys of words that are longer, so many that 64 remain with the number of the row.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no more bits than these are left"
    )]
    pub(super) fn begins(&self, words: &[u128]) -> Vec<u64> {
        let others = self.row_bits + self.bits().saturating_sub(u64::BITS);
        let begins = words.iter().map(|word| {
            let begin = word.without(others) as u64;
            begin.with(self.row_bits, u64::from(self.row(*word)))
        });
        begins.collect()
    }

    /// What of a word is of the keys.
    pub(super) fn key<W: Word>(&self, word: W) -> W {
        word.without(self.row_bits)
    }

    /// The row of a word.
    pub(super) fn row<W: Word>(&self, word: W) -> u32 {
        word.low()
            & 1_u32
                .checked_shl(self.row_bits)
                .map_or(u32::MAX, |end| end - 1)
    }
}

/// Puts the places of the values of a key behind words.
fn put_behind<W: Word>(
    words: &mut [W],
    values: &ArrayRef,
    numbers: &[u64],
    span: &Span,
    options: SortOptions,
) {
    let bits = span.bits();
    let shifts = span.has_nulls && options.nulls_first;
    let place = |number: u64| {
        let place = match options.descending {
            false => number.wrapping_sub(span.least),
            true => span.most.wrapping_sub(number),
        };
        W::of(place).and(shifts)
    };
    let rows = words.iter_mut().zip(numbers);
    match nulls_of(values) {
        None => rows.for_each(|(word, number)| *word = word.with(bits, place(*number))),
        Some(nulls) => {
            let of_nulls = match options.nulls_first {
                true => W::ZERO,
                false => W::of(span.most - span.least).and(true),
            };
            for ((word, number), is_valid) in rows.zip(nulls.iter()) {
                let place = if is_valid { place(*number) } else { of_nulls };
                *word = word.with(bits, place);
            }
        }
    }
}
