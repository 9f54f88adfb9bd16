//! Rows of the kept row bands -> equal shares for the threads of a query.
//!
//! Comes in: row counts and how many shares are wanted. Goes out: for each share the row ranges that it reads, in the order of the grid. Pure. One large tile is
//! shared out as well as many small ones. Never here: data.

use std::ops::Range;

/// Rows `rows` of row band `row_band`, counted within the band.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::query) struct Morsel {
    pub(in crate::query) row_band: usize,
    pub(in crate::query) rows: Range<u64>,
}

/// Deals the rows of the given bands (number and row count) into at most `num_shares` runs of equal length, cut at multiples of `batch_rows` so that no share
/// starts with a short batch. Always at least one share, which may be empty.
pub(in crate::query) fn spread(
    bands: &[(usize, u64)],
    num_shares: usize,
    batch_rows: usize,
) -> Vec<Vec<Morsel>> {
    let total: u64 = bands.iter().map(|(_, rows)| rows).sum();
    let batch_rows = (batch_rows as u64).max(1);
    let share_rows = total.div_ceil((num_shares as u64).max(1)).max(1);
    let share_rows = share_rows.div_ceil(batch_rows).saturating_mul(batch_rows);
    let mut shares: Vec<Vec<Morsel>> = vec![Vec::new()];
    let mut room = share_rows;
    for (row_band, num_rows) in bands {
        let mut start = 0;
        while start < *num_rows {
            if room == 0 {
                shares.push(Vec::new());
                room = share_rows;
            }
            let stop = (*num_rows).min(start.saturating_add(room));
            room -= stop - start;
            if let Some(share) = shares.last_mut() {
                share.push(Morsel {
                    row_band: *row_band,
                    rows: start..stop,
                });
            }
            start = stop;
        }
    }
    shares
}

/// As [`spread`], for groups of bands: every share reads its part of a group before its part of the next one.
pub(in crate::query) fn spread_groups(
    groups: &[Vec<(usize, u64)>],
    num_shares: usize,
    batch_rows: usize,
) -> Vec<Vec<Morsel>> {
    let mut shares: Vec<Vec<Morsel>> = vec![Vec::new()];
    for group in groups {
        for (number, part) in spread(group, num_shares, batch_rows)
            .into_iter()
            .enumerate()
        {
            match shares.get_mut(number) {
                Some(share) => share.extend(part),
                None => shares.push(part),
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_is_in_one_share_in_order(
            rows in prop::collection::vec(0_u64..50_000, 0..12),
            num_shares in 1_usize..9,
            batch_rows in 1_usize..9_000,
        ) {
            let bands: Vec<(usize, u64)> = rows.iter().copied().enumerate().collect();
            let shares = spread(&bands, num_shares, batch_rows);
            prop_assert!(!shares.is_empty() && shares.len() <= num_shares);
            let mut next: Vec<u64> = vec![0; rows.len()];
            for morsel in shares.iter().flatten() {
                prop_assert_eq!(next[morsel.row_band], morsel.rows.start);
                prop_assert!(!morsel.rows.is_empty());
                next[morsel.row_band] = morsel.rows.end;
            }
            prop_assert_eq!(next, rows);
        }
    }

    #[test]
    fn every_share_begins_with_its_part_of_the_first_group() {
        let groups = [vec![(1, 4), (3, 4)], vec![(0, 6), (2, 2)]];
        let shares = spread_groups(&groups, 2, 1);
        let bands: Vec<Vec<usize>> = shares
            .iter()
            .map(|share| share.iter().map(|morsel| morsel.row_band).collect())
            .collect();
        assert_eq!(bands, [vec![1, 0], vec![3, 0, 2]]);
        let rows = shares.iter().flatten();
        let rows: u64 = rows.map(|morsel| morsel.rows.end - morsel.rows.start).sum();
        assert_eq!(rows, 16);
        assert_eq!(spread_groups(&[], 2, 1), [Vec::new()]);
    }

    #[test]
    fn one_large_tile_is_shared_by_all() {
        let shares = spread(&[(0, 1_000_000)], 4, 8192);
        let rows: Vec<u64> = shares
            .iter()
            .map(|share| {
                share
                    .iter()
                    .map(|morsel| morsel.rows.end - morsel.rows.start)
                    .sum()
            })
            .collect();
        assert_eq!(rows, [253_952, 253_952, 253_952, 238_144]);
    }
}
