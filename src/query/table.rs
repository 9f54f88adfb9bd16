//! A grid as a table of DataFusion.
//!
//! Comes in: a grid. Goes out: plans that scan only the tiles, columns and rows that a query needs. Never here: reading, which is `exec/scan/`.

use std::sync::Arc;

#[cfg(feature = "distributed")]
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, ready};

use super::exec::scan::GridScanExec;
use super::spread::is_apart;
use crate::grid::PartitionGrid;
use crate::query::plan::meaning::checked::all_checked_late;
use crate::query::plan::statistics::facts::Facts;

/// Of a scan of one share the engine makes plans that are not cut into parts, and would run where they are planned.
const LEAST_APART: usize = 2;

/// Of so many rows at most that are wanted, whichever they are, one share reads all.
const FIRST_ROWS: usize = 16 * 1024;

/// A grid under the eyes of DataFusion; register it with any `SessionContext`.
#[derive(Debug)]
pub struct GridTable {
    facts: Arc<Facts>,
}

impl GridTable {
    /// The table of a grid. Nothing is copied or read.
    #[must_use]
    pub fn new(grid: Arc<PartitionGrid>) -> Self {
        Self {
            facts: Arc::new(Facts::new(grid)),
        }
    }

    /// The table of a grid whose tiles are elsewhere, with some of its rows to plan by, in columns that are named by their numbers.
    #[cfg(feature = "distributed")]
    pub(super) fn with_sample(grid: Arc<PartitionGrid>, sample: Option<RecordBatch>) -> Self {
        Self {
            facts: Arc::new(Facts::with_sample(grid, sample)),
        }
    }

    fn scanned(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let every = || (0..self.grid().num_columns()).collect();
        let columns = projection.cloned().unwrap_or_else(every);
        let schema = DFSchema::try_from(self.schema())?;
        let filters: Result<Vec<Arc<dyn PhysicalExpr>>> = filters
            .iter()
            .map(|filter| {
                let filter = state.create_physical_expr(filter.clone(), &schema)?;
                all_checked_late(filter, schema.as_arrow())
            })
            .collect();
        let (shares, rows) = (
            state.config().target_partitions(),
            state.config().batch_size(),
        );
        let filters = filters?;
        let scan = GridScanExec::try_new(Arc::clone(&self.facts), columns, &filters)?;
        let scan = scan.with_limit(limit);
        // One share has all that is wanted at once, and in the order of the grid; where rows are looked for, all help.
        let is_first_rows = filters.is_empty() && limit.is_some_and(|rows| rows <= FIRST_ROWS);
        Ok(Arc::new(match is_apart(state.config()) {
            true => scan.try_apart(shares.max(LEAST_APART), rows)?,
            false if is_first_rows => scan.try_spread(1, rows)?,
            false => scan.try_spread(shares, rows)?,
        }))
    }

    /// What is known of the grid.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The grid.
    #[must_use]
    pub fn grid(&self) -> &Arc<PartitionGrid> {
        self.facts.grid()
    }
}

/// What needs no waiting.
fn at_once(
    plan: Result<Arc<dyn ExecutionPlan>>,
) -> BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>> {
    Box::pin(ready(plan))
}

// Written out, and not by the attribute, for the reason that src/serve/methods.rs has.
impl TableProvider for GridTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.facts.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn scan<'a, 'b, 'c, 'd, 'w>(
        &'a self,
        state: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'w, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'w,
        'b: 'w,
        'c: 'w,
        'd: 'w,
    {
        at_once(self.scanned(state, projection, filters, limit))
    }

    /// The scan gives exactly the rows that pass, of every filter that looks at one row at a time and says the same each time.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if is_of_one_row(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }
}

fn is_of_one_row(filter: &Expr) -> bool {
    let is_foreign = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::ScalarSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::Unnest(_)
        ))
    };
    !filter.is_volatile() && !filter.exists(is_foreign).unwrap_or(true)
}
