//! Filters -> row bands that cannot hold a matching row.
//!
//! Comes in: a grid and the filters of a query. Goes out: the row bands that must be read, and the condition that was tested, for EXPLAIN. A row band is left
//! out only when its statistics prove that no row passes. Never here: reading of tiles.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use super::facts::{ColumnFacts, Facts};

/// The row bands that a scan must read.
#[derive(Debug, Clone)]
pub(in crate::query) struct Kept {
    /// In order.
    pub(in crate::query) row_bands: Vec<usize>,
    /// What was tested on the statistics, as text; `None` when nothing could be tested.
    pub(in crate::query) condition: Option<String>,
}

/// Tests the filters, over the columns of the grid, on the statistics of every row band. Row bands without rows are left out as well.
pub(in crate::query) fn prune(facts: &Facts, filters: &[Arc<dyn PhysicalExpr>]) -> Result<Kept> {
    let rows = facts.grid().rows();
    let with_rows = |band: &usize| rows.interval(*band).is_some_and(|rows| !rows.is_empty());
    let all = (0..rows.num_intervals()).filter(with_rows);
    let Some(predicate) = predicate(facts.schema(), filters)? else {
        return Ok(Kept {
            row_bands: all.collect(),
            condition: None,
        });
    };
    let may_match = predicate.prune(&GridFacts { facts })?;
    let kept = all.filter(|band| may_match.get(*band).copied().unwrap_or(true));
    Ok(Kept {
        row_bands: kept.collect(),
        condition: Some(predicate.predicate_expr().to_string()),
    })
}

/// For each row band whether the filters, over columns of `schema`, may leave a row of it; `None` when they cannot be tested, or there is nothing to choose from.
pub(in crate::query) fn bands_that_may_match(
    facts: &Facts,
    schema: &SchemaRef,
    filters: &[Arc<dyn PhysicalExpr>],
) -> Result<Option<Vec<bool>>> {
    if facts.grid().rows().num_intervals() < 2 {
        return Ok(None);
    }
    let Some(predicate) = predicate(schema, filters)? else {
        return Ok(None);
    };
    Ok(Some(predicate.prune(&GridFacts { facts })?))
}

fn predicate(
    schema: &SchemaRef,
    filters: &[Arc<dyn PhysicalExpr>],
) -> Result<Option<PruningPredicate>> {
    if filters.is_empty() {
        return Ok(None);
    }
    let filter = conjunction(filters.iter().cloned());
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(schema))
        .try_build(filter)?;
    Ok((!predicate.always_true()).then_some(predicate))
}

/// The statistics of a grid as DataFusion asks for them: one container for each row band.
struct GridFacts<'a> {
    facts: &'a Facts,
}

impl GridFacts<'_> {
    fn of(&self, column: &Column) -> Option<Arc<ColumnFacts>> {
        let number = self.facts.grid().schema().index_of(&column.name).ok()?;
        self.facts.column(number)
    }
}

impl PruningStatistics for GridFacts<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of(column)?.least.clone()
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of(column)?.greatest.clone()
    }

    fn num_containers(&self) -> usize {
        self.facts.grid().rows().num_intervals()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.of(column)?.null_counts.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(self.facts.row_counts())
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
