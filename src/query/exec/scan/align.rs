//! Shares of a sorted scan, cut where the value of the sort column changes.
//!
//! Comes in: shares of equal length. Goes out: the same rows in as many shares, so that equal values are in one share, and the values at which they are cut.
//! Never here: whether the column is sorted.

use datafusion::common::ScalarValue;

use super::morsel::Morsel;

/// Where the value at a row begins: the value, and the first row of the same row band that has it; `None` when it may begin in an earlier row band.
pub(super) type StartOfValue<'a> = dyn Fn((usize, u64)) -> Option<(ScalarValue, u64)> + 'a;

/// The aligned shares and the first value of every share but the first; `None` when some share has no cut of its own.
pub(super) fn align(
    shares: &[Vec<Morsel>],
    start_of_value: &StartOfValue<'_>,
) -> Option<(Vec<Vec<Morsel>>, Vec<ScalarValue>)> {
    let mut aligned: Vec<Vec<Morsel>> = Vec::with_capacity(shares.len());
    let mut cuts: Vec<ScalarValue> = Vec::new();
    for share in shares {
        let mut share = share.clone();
        if let Some(before) = aligned.last_mut() {
            let first = share.first_mut()?;
            let (value, start) = start_of_value((first.row_band, first.rows.start))?;
            if start < first.rows.start {
                let last = before
                    .last_mut()
                    .filter(|last| last.row_band == first.row_band)?;
                if start <= last.rows.start {
                    return None;
                }
                last.rows.end = start;
                first.rows.start = start;
            }
            if cuts.last().is_some_and(|cut| *cut >= value) {
                return None;
            }
            cuts.push(value);
        }
        aligned.push(share);
    }
    Some((aligned, cuts))
}

#[cfg(test)]
mod tests {
    use super::super::morsel::spread;
    use super::*;

    /// Values of one row band, ascending.
    fn starts(values: &'static [i64]) -> impl Fn((usize, u64)) -> Option<(ScalarValue, u64)> {
        move |(_, row)| {
            let value = values[usize::try_from(row).unwrap()];
            let start = values.iter().position(|other| *other == value).unwrap();
            Some((ScalarValue::from(value), start as u64))
        }
    }

    #[test]
    fn no_value_is_in_two_shares() {
        let shares = spread(&[(0, 9)], 3, 1);
        let starts = starts(&[1, 1, 2, 2, 3, 3, 3, 4, 5]);
        let (aligned, cuts) = align(&shares, &starts).unwrap();
        let rows: Vec<_> = aligned
            .iter()
            .flatten()
            .map(|morsel| morsel.rows.clone())
            .collect();
        assert_eq!(rows, [0..2, 2..4, 4..9]);
        assert_eq!(cuts, [ScalarValue::from(2_i64), ScalarValue::from(3_i64)]);
    }

    #[test]
    fn a_value_longer_than_a_share_leaves_no_cut() {
        let shares = spread(&[(0, 9)], 3, 1);
        let starts = starts(&[1, 1, 3, 3, 3, 3, 3, 4, 5]);
        assert!(align(&shares, &starts).is_none());
    }
}
