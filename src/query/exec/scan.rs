//! The scan of a grid.
//!
//! Comes in: a grid, columns, the row bands that pruning kept. Goes out: one stream of batches for each share of the rows; slices of the tiles, not copies (sliced
//! nested columns excepted, see `grid::compact`). Never here: how tiles are opened; that is `TileData`.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::morsel::{Morsel, spread};
use super::stitch::Stitch;
use crate::grid::{PartitionGrid, compact};
use crate::query::plan::facts::of_bands;
use crate::query::plan::prune::Kept;

/// Reads the kept tiles of a grid.
#[derive(Debug, Clone)]
pub(in crate::query) struct GridScanExec {
    grid: Arc<PartitionGrid>,
    columns: Vec<usize>,
    kept: Kept,
    /// The most rows that anybody above will read; each share stops there.
    limit: Option<usize>,
    stitch: Arc<Stitch>,
    /// One for each output partition.
    shares: Arc<[Vec<Morsel>]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GridScanExec {
    /// A scan in one share.
    pub(in crate::query) fn try_new(
        grid: Arc<PartitionGrid>,
        columns: Vec<usize>,
        kept: Kept,
    ) -> Result<Self> {
        let schema = Arc::new(grid.schema().project(&columns)?);
        let stitch = Stitch::try_new(&grid, &columns, Arc::clone(&schema))?;
        Self {
            properties: Arc::new(properties(schema, 1)),
            stitch: Arc::new(stitch),
            shares: Arc::new([]),
            metrics: ExecutionPlanMetricsSet::new(),
            limit: None,
            grid,
            columns,
            kept,
        }
        .try_spread(1, usize::MAX)
    }

    /// The scan with a row limit.
    #[must_use]
    pub(in crate::query) fn with_limit(self, limit: Option<usize>) -> Self {
        Self { limit, ..self }
    }

    /// The scan in at most `num_shares` shares of batches of `batch_rows` rows.
    pub(in crate::query) fn try_spread(self, num_shares: usize, batch_rows: usize) -> Result<Self> {
        let shares = spread(&self.bands(), num_shares, batch_rows);
        let schema = Arc::new(self.grid.schema().project(&self.columns)?);
        Ok(Self {
            properties: Arc::new(properties(schema, shares.len())),
            shares: shares.into(),
            ..self
        })
    }

    fn bands(&self) -> Vec<(usize, u64)> {
        let rows = |band: &usize| self.grid.rows().interval(*band);
        let kept = self.kept.row_bands.iter();
        kept.filter_map(|band| rows(band).map(|rows| (*band, rows.end - rows.start)))
            .collect()
    }

    /// How many tiles are read, and how many the grid has.
    fn num_tiles(&self) -> (usize, usize) {
        let width = self.grid.columns().num_intervals();
        let locate = |column: &usize| self.grid.columns().locate(*column as u64);
        let mut touched: Vec<usize> = self
            .columns
            .iter()
            .filter_map(|column| Some(locate(column)?.0))
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let all = self.grid.rows().num_intervals() * width;
        (self.kept.row_bands.len() * touched.len(), all)
    }
}

fn properties(schema: SchemaRef, num_partitions: usize) -> PlanProperties {
    PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(num_partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
    .with_scheduling_type(SchedulingType::Cooperative)
}

impl DisplayAs for GridScanExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, all) = self.num_tiles();
        let schema = self.properties.equivalence_properties().schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let names = names.join(", ");
        let (shares, rows) = (
            self.shares.len(),
            self.bands().iter().map(|(_, rows)| rows).sum::<u64>(),
        );
        write!(
            formatter,
            "GridScanExec: tiles={read}/{all}, rows={rows}, shares={shares}, columns=[{names}]"
        )?;
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        if let Some(condition) = &self.kept.condition {
            write!(formatter, ", kept_where={condition}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for GridScanExec {
    fn name(&self) -> &'static str {
        "GridScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// Each run counts for itself.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            metrics: ExecutionPlanMetricsSet::new(),
            ..Self::clone(&self)
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let share = self.shares.get(partition).cloned().ok_or_else(|| {
            DataFusionError::Internal(format!(
                "a scan of {} shares has no {partition}",
                self.shares.len()
            ))
        })?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = read(self.clone(), share, context.session_config().batch_size());
        let limited = limit_rows(batches, self.limit);
        let counted = limited.inspect_ok(move |batch| {
            metrics.record_output(batch.num_rows());
        });
        let schema = self.schema();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            schema,
            counted.boxed(),
        ))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if arguments.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        let statistics = of_bands(&self.grid, &self.kept.row_bands, &self.columns)?;
        Ok(Arc::new(match self.limit {
            None => statistics,
            Some(_) => statistics.with_fetch(self.limit, 0, 1)?,
        }))
    }
}

/// The batches of one share: each row band is fetched when its turn comes and dealt out in slices.
fn read(
    scan: GridScanExec,
    share: Vec<Morsel>,
    batch_rows: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let scan = Arc::new(scan);
    stream::iter(share)
        .then(move |morsel| {
            let scan = Arc::clone(&scan);
            async move {
                let batch = scan.stitch.fetch(&scan.grid, morsel.row_band).await?;
                Ok::<_, DataFusionError>(slices(batch, morsel, batch_rows))
            }
        })
        .try_flatten()
}

fn slices(
    batch: RecordBatch,
    morsel: Morsel,
    batch_rows: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let bound = |row: u64| {
        usize::try_from(row)
            .unwrap_or(usize::MAX)
            .min(batch.num_rows())
    };
    let (start, stop) = (bound(morsel.rows.start), bound(morsel.rows.end));
    let starts = (start..stop).step_by(batch_rows.max(1));
    stream::iter(starts.map(move |first| {
        let length = batch_rows.min(stop - first);
        Ok(compact(&batch.slice(first, length))?)
    }))
}

fn limit_rows(
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    limit: Option<usize>,
) -> stream::BoxStream<'static, Result<RecordBatch>> {
    let Some(limit) = limit else {
        return batches.boxed();
    };
    let cut = batches.scan(limit, |left, batch| {
        let next = match batch {
            Ok(_) if *left == 0 => None,
            Ok(batch) => {
                let rows = batch.num_rows().min(*left);
                *left -= rows;
                Some(Ok(batch.slice(0, rows)))
            }
            Err(error) => Some(Err(error)),
        };
        futures::future::ready(next)
    });
    cut.boxed()
}
