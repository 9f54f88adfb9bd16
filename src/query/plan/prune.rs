//! Filters -> row bands that cannot hold a matching row.
//!
//! Comes in: a grid and the filters of a query. Goes out: the row bands that must be read, and the condition that was tested, for EXPLAIN. A row band is left
//! out only when its statistics prove that no row passes. Never here: reading of tiles.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use datafusion::catalog::Session;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::facts::{End, bounds_by_band, null_counts_by_band, row_counts};
use crate::grid::PartitionGrid;

/// The row bands that a scan must read.
#[derive(Debug, Clone)]
pub(in crate::query) struct Kept {
    /// In order.
    pub(in crate::query) row_bands: Vec<usize>,
    /// What was tested on the statistics, as text; `None` when nothing could be tested.
    pub(in crate::query) condition: Option<String>,
}

/// Tests the filters on the statistics of every row band. Row bands without rows are left out as well.
pub(in crate::query) fn prune(
    grid: &PartitionGrid,
    state: &dyn Session,
    filters: &[Expr],
) -> Result<Kept> {
    let with_rows = |band: &usize| {
        grid.rows()
            .interval(*band)
            .is_some_and(|rows| !rows.is_empty())
    };
    let all: Vec<usize> = (0..grid.rows().num_intervals()).filter(with_rows).collect();
    let everything = Kept {
        row_bands: all.clone(),
        condition: None,
    };
    let Some(filter) = conjunction(filters.iter().cloned()) else {
        return Ok(everything);
    };
    let schema = DFSchema::try_from(Arc::clone(grid.schema()))?;
    let filter = state.create_physical_expr(filter, &schema)?;
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(grid.schema()))
        .try_build(filter)?;
    if predicate.always_true() {
        return Ok(everything);
    }
    let may_match = predicate.prune(&GridFacts { grid })?;
    let kept = all
        .into_iter()
        .filter(|band| may_match.get(*band).copied().unwrap_or(true));
    Ok(Kept {
        row_bands: kept.collect(),
        condition: Some(predicate.predicate_expr().to_string()),
    })
}

/// The statistics of a grid as DataFusion asks for them: one container for each row band.
struct GridFacts<'a> {
    grid: &'a PartitionGrid,
}

impl PruningStatistics for GridFacts<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        let number = self.grid.schema().index_of(&column.name).ok()?;
        bounds_by_band(self.grid, number, End::Least)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        let number = self.grid.schema().index_of(&column.name).ok()?;
        bounds_by_band(self.grid, number, End::Greatest)
    }

    fn num_containers(&self) -> usize {
        self.grid.rows().num_intervals()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let number = self.grid.schema().index_of(&column.name).ok()?;
        Some(null_counts_by_band(self.grid, number))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(row_counts(self.grid))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
