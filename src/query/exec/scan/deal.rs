//! Whole row bands for each share, where rows that belong together are in one row band.
//!
//! Comes in: a scan, the columns by which rows belong together. Goes out: the same scan whose shares have no value of these columns in common. Never here: shares of equal length
//! (`morsel.rs`).

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::morsel::Morsel;
use super::{GridScanExec, properties};

impl GridScanExec {
    /// The scan in at most so many shares of whole row bands, if the grid is partitioned by some of the columns at the places `keys` of the output, and the shares come out about equal.
    pub(in crate::query) fn in_whole_bands(
        &self,
        keys: &[usize],
        num_shares: usize,
    ) -> Option<Self> {
        let grid = self.facts.grid();
        let partitioned_by = &grid.order().partitioned_by;
        let is_key = |name: &String| {
            let place = |key: &usize| self.columns.get(*key).copied();
            let column = grid.schema().index_of(name).ok();
            column.is_some() && keys.iter().any(|key| place(key) == column)
        };
        let promises_order = self.properties.output_ordering().is_some();
        if partitioned_by.is_empty()
            || !partitioned_by.iter().all(is_key)
            || promises_order
            || self.limit.is_some()
            || num_shares < 2
        {
            return None;
        }
        let shares = dealt(self.bands().collect(), num_shares)?;
        let facts = EquivalenceProperties::new(self.schema());
        let partitioning = Partitioning::UnknownPartitioning(shares.len());
        Some(Self {
            properties: Arc::new(properties(facts, partitioning)),
            shares: shares.into(),
            ..self.clone()
        })
    }
}

/// Row bands (number and rows), each whole, in shares that are about equal: the longest go first, each to the share that has fewest rows. Nothing where one share would have much more
/// than the others.
fn dealt(mut bands: Vec<(usize, u64)>, num_shares: usize) -> Option<Vec<Vec<Morsel>>> {
    let total: u64 = bands.iter().map(|(_, rows)| rows).sum();
    bands.sort_by_key(|(band, rows)| (Reverse(*rows), *band));
    let mut shares: Vec<(u64, Vec<Morsel>)> = vec![(0, Vec::new()); num_shares];
    for (row_band, rows) in bands {
        let (taken, share) = shares.iter_mut().min_by_key(|(taken, _)| *taken)?;
        *taken += rows;
        share.push(Morsel {
            row_band,
            rows: 0..rows,
        });
    }
    let longest = shares.iter().map(|(taken, _)| *taken).max()?;
    let is_even = u128::from(longest) * num_shares as u128 * 2 <= u128::from(total) * 3;
    let shares = shares.into_iter().map(|(_, mut share)| {
        share.sort_by_key(|morsel| morsel.row_band);
        share
    });
    is_even.then(|| shares.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_stay_whole_and_shares_even() {
        let shares = dealt(vec![(0, 5), (2, 9), (3, 4), (7, 6)], 2).unwrap();
        let bands = shares.iter().map(|share| {
            let bands = share
                .iter()
                .map(|morsel| (morsel.row_band, morsel.rows.end));
            bands.collect::<Vec<_>>()
        });
        assert_eq!(
            bands.collect::<Vec<_>>(),
            [vec![(2, 9), (3, 4)], vec![(0, 5), (7, 6)]]
        );
        assert!(dealt(vec![(0, 10), (1, 2)], 2).is_none());
        assert!(dealt(vec![(0, 10)], 3).is_none());
        assert!(dealt(Vec::new(), 2).is_some());
    }
}
