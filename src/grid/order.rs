//! What is known of the order of a grid's rows.
//!
//! Comes in: the facts, from whoever arranged the rows. Goes out: the same facts, or as many as still hold for a part of the grid. Never here: sorting, checking of values.

use std::ops::Range;

/// A column by which rows are sorted. Values are ordered as Arrow orders them, except that -0.0 equals 0.0 and all NaN are equal and greater than all numbers; nulls come behind all values in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortColumn {
    /// Its name.
    pub name: String,
    /// Greatest value first.
    pub descending: bool,
}

impl SortColumn {
    /// The names of the directions, as users write them.
    pub const DIRECTIONS: &str = "\"asc\", \"ascending\", \"desc\" or \"descending\"";

    /// Whether the name of a direction means the greatest value first; `None` for what is no such name.
    #[must_use]
    pub fn is_descending(direction: &str) -> Option<bool> {
        match direction {
            "asc" | "ascending" => Some(false),
            "desc" | "descending" => Some(true),
            _ => None,
        }
    }
}

/// Facts about the order of rows; without any, nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowOrder {
    /// Rows are sorted by these columns: from the first row of the grid to the last, or, if `partitioned_by` is not empty, within every row band.
    pub sorted_by: Vec<SortColumn>,
    /// Rows with equal values in these columns are in one row band: of n row bands that with number `h % n`, where `h`
    /// is the XXH64 (seed 0) of the values in Arrow's row format (-0.0 as 0.0, every NaN as one). So two grids with equal n that are partitioned by columns of equal types agree.
    pub partitioned_by: Vec<String>,
}

impl RowOrder {
    /// What holds for some columns (all that `is_kept` says) and rows of the grid: sorting by the columns before the first that is gone, partitioning only with all rows.
    #[must_use]
    pub(super) fn of_part(
        &self,
        is_kept: impl Fn(&str) -> bool,
        rows: &Range<u64>,
        num_rows: u64,
    ) -> Self {
        let all_rows = *rows == (0..num_rows);
        let is_partitioned = !self.partitioned_by.is_empty();
        let sorted = self.sorted_by.iter();
        let sorted: Vec<SortColumn> = sorted
            .take_while(|column| is_kept(&column.name))
            .cloned()
            .collect();
        let partitioned = self.partitioned_by.iter().all(|name| is_kept(name)) && all_rows;
        if is_partitioned && !partitioned {
            // Sorted within row bands only, which nothing says any more.
            return Self::default();
        }
        Self {
            sorted_by: sorted,
            partitioned_by: self.partitioned_by.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sorted: &[&str], partitioned: &[&str]) -> RowOrder {
        let sort = |name: &&str| SortColumn {
            name: (*name).to_owned(),
            descending: false,
        };
        RowOrder {
            sorted_by: sorted.iter().map(sort).collect(),
            partitioned_by: partitioned.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_part_keeps_the_facts_that_hold_for_it() {
        let sorted = order(&["a", "b"], &[]);
        assert_eq!(sorted.of_part(|_| true, &(5..7), 10), sorted);
        let first = sorted.of_part(|name| name == "a", &(0..10), 10);
        assert_eq!(first, order(&["a"], &[]));
        assert_eq!(
            sorted.of_part(|name| name == "b", &(0..10), 10),
            order(&[], &[])
        );
        let both = order(&["a"], &["b"]);
        assert_eq!(both.of_part(|_| true, &(0..10), 10), both);
        assert_eq!(both.of_part(|_| true, &(0..9), 10), order(&[], &[]));
        assert_eq!(
            both.of_part(|name| name == "a", &(0..10), 10),
            order(&[], &[])
        );
        assert_eq!(
            both.of_part(|name| name == "b", &(0..10), 10),
            order(&[], &["b"])
        );
    }
}
