//! A grid as a table of DataFusion.
//!
//! Comes in: a grid. Goes out: plans that scan only the tiles and columns that a query needs. Never here: reading, which is `exec/scan.rs`.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::exec::scan::GridScanExec;
use super::plan::prune::prune;
use crate::grid::PartitionGrid;

/// A grid under the eyes of DataFusion; register it with any `SessionContext`.
#[derive(Debug)]
pub struct GridTable {
    grid: Arc<PartitionGrid>,
}

impl GridTable {
    /// The table of a grid. Nothing is copied or read.
    #[must_use]
    pub fn new(grid: Arc<PartitionGrid>) -> Self {
        Self { grid }
    }

    /// The grid.
    #[must_use]
    pub fn grid(&self) -> &Arc<PartitionGrid> {
        &self.grid
    }
}

#[async_trait]
impl TableProvider for GridTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.grid.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kept = prune(&self.grid, state, filters)?;
        let every = || (0..self.grid.num_columns()).collect();
        let columns = projection.cloned().unwrap_or_else(every);
        let scan = GridScanExec::try_new(Arc::clone(&self.grid), columns, kept)?
            .with_limit(limit)
            .try_spread(
                state.config().target_partitions(),
                state.config().batch_size(),
            )?;
        Ok(Arc::new(scan))
    }

    /// Filters decide which tiles are read; the rows of those are filtered above the scan.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
