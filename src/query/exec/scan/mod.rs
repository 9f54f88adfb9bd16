//! The scan of a grid.
//!
//! Comes in: a grid, columns, conditions on its rows, the row bands that pruning kept. Goes out: one stream of batches for each share of the rows, of exactly the rows
//! that pass; without conditions slices of the tiles, not copies (sliced nested columns excepted, see `grid::compact`). Never here: how tiles are opened, which is
//! `TileData`; how rows are tested, which is `sieve`.
//!
//! - Who reads what: `morsel` and `align` (shares), `deal` (whole row bands for shares), `apart` (in several processes).
//! - Reading: `read` (one share), `stitch` (column bands side by side), `ahead` (what is told before tiles from elsewhere are brought), `sieve` with `condition` (which rows pass), `learnt` (what operators above have learned).
//! - What it did, and how it looks: `tally`, `count`, `show`.

mod ahead;
mod align;
mod apart;
mod condition;
mod count;
mod deal;
mod learnt;
mod morsel;
mod read;
mod show;
mod sieve;
mod stitch;
mod tally;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr, RangePartitioning,
    SplitPoint,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions, apply_expression_roots,
};
use futures::{StreamExt, TryStreamExt, stream};

use self::align::align;
use self::morsel::{Morsel, spread_groups};
use self::read::{limit_rows, read};
use self::stitch::Stitch;
use self::tally::Tally;
use super::stop::Stop;
use crate::location::Locality;
use crate::query::plan::sorted::{known_order, may_be_cut, start_of_value};
use crate::query::plan::statistics::facts::Facts;
use crate::query::plan::statistics::prune::{Kept, prune};

/// So many columns are said to be sorted: the engine compares all orderings with all, more than once.
const MAX_ORDERINGS: usize = 8;

/// Shares are multiples of so many rows; fewer are not worth a thread.
const SHARE_UNIT: usize = 1024;

/// Reads the rows of the kept tiles of a grid that pass its conditions.
#[derive(Debug, Clone)]
pub(crate) struct GridScanExec {
    facts: Arc<Facts>,
    /// The columns that come out, then those that only conditions read.
    columns: Vec<usize>,
    /// How many of them come out.
    num_columns: usize,
    wide_schema: SchemaRef,
    kept: Kept,
    /// Over `columns`; every row that comes out passes all of them.
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// The share of rows that they let through, as far as one can tell beforehand.
    passing: Arc<OnceLock<Option<f64>>>,
    /// What operators above learn while the query runs. A row that does not pass may be left out.
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    /// Those of the dynamic filters for which reading waits, since a join makes them once and reads nothing of this scan before.
    awaited: Vec<Arc<dyn PhysicalExpr>>,
    /// What the dynamic filters had learnt, of a scan whose run is over.
    learnt: Option<String>,
    /// The most rows that anybody above will read; each share stops there.
    limit: Option<usize>,
    /// Whether rows come out in the order of the grid, whatever is known of it.
    in_order: bool,
    /// Whether it belongs to a plan of another process, which gets the text of its errors.
    #[cfg(feature = "distributed")]
    is_part: bool,
    stitch: Arc<Stitch>,
    /// Looked at between windows, once the plan runs.
    stop: Option<Stop>,
    /// One for each output partition.
    shares: Arc<[Vec<Morsel>]>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// What the run that goes on, or the last one, has done.
    tally: Arc<Tally>,
}

impl GridScanExec {
    /// About how many bytes the longest value has of the columns that come out.
    pub(super) fn longest(&self) -> u64 {
        let columns = self.columns.iter().take(self.num_columns);
        columns
            .map(|column| self.facts.longest(*column))
            .max()
            .unwrap_or(0)
    }

    /// Bytes of all tiles of the grid.
    pub(super) fn tile_bytes(&self) -> u64 {
        self.facts.grid().memory_bytes()
    }

    /// A scan of the given columns, in one share, of the rows that pass all `filters`, which are over the columns of the grid.
    pub(crate) fn try_new(
        facts: Arc<Facts>,
        mut columns: Vec<usize>,
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Self> {
        let grid = facts.grid();
        let kept = prune(&facts, filters)?;
        let num_columns = columns.len();
        for filter in filters {
            let read = collect_columns(filter);
            let mut read: Vec<usize> = read.iter().map(|column| column.index()).collect();
            read.sort_unstable();
            columns.extend(
                read.iter()
                    .filter(|column| !columns.contains(column))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        let schema = Arc::new(
            facts
                .schema()
                .project(columns.get(..num_columns).unwrap_or_default())?,
        );
        let wide_schema = Arc::new(facts.schema().project(&columns)?);
        let conditions: Result<Vec<_>> = filters
            .iter()
            .map(|filter| reassign_expr_columns(Arc::clone(filter), &wide_schema))
            .collect();
        let conditions = conditions?;
        let stitch = Stitch::try_new(grid, &columns)?;
        Self {
            passing: Arc::default(),
            properties: Arc::new(properties(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(1),
            )),
            stitch: Arc::new(stitch),
            stop: None,
            shares: Arc::new([]),
            metrics: ExecutionPlanMetricsSet::new(),
            tally: Arc::default(),
            limit: None,
            in_order: false,
            #[cfg(feature = "distributed")]
            is_part: false,
            dynamic: Vec::new(),
            awaited: Vec::new(),
            learnt: None,
            facts,
            columns,
            num_columns,
            wide_schema,
            conditions,
            kept,
        }
        .try_spread(1, usize::MAX)
    }

    /// The scan with a row limit.
    #[must_use]
    pub(crate) fn with_limit(self, limit: Option<usize>) -> Self {
        Self { limit, ..self }
    }

    /// The scan in at most `num_shares` shares of batches of `batch_rows` rows. Where a column is sorted, equal values are in one share. Otherwise, and without a row limit, each
    /// share reads its nearest tiles first.
    pub(in crate::query) fn try_spread(self, num_shares: usize, batch_rows: usize) -> Result<Self> {
        let sorted: Vec<usize> = (0..self.num_columns)
            .filter(|place| self.is_ascending(*place))
            .take(MAX_ORDERINGS)
            .collect();
        let out = self.columns.get(..self.num_columns).unwrap_or_default();
        let known = known_order(&self.facts, out);
        let groups = self.groups(!sorted.is_empty() || !known.is_empty());
        let shares = spread_groups(&groups, num_shares, batch_rows.min(SHARE_UNIT));
        let schema = self.narrow_schema();
        let mut facts = EquivalenceProperties::new(Arc::clone(&schema));
        let order = |place: usize, options: SortOptions| {
            let column = Column::new(schema.field(place).name(), place);
            PhysicalSortExpr::new(Arc::new(column), options)
        };
        let ascending = SortOptions::new(false, false);
        for place in &sorted {
            facts.add_ordering([order(*place, ascending)]);
        }
        if !known.is_empty() {
            let known = known.iter();
            facts.add_ordering(known.map(|(place, options)| order(*place, *options)));
        }
        let cut = sorted.first().copied().or_else(|| self.cut_of(&known));
        if let Some(place) = cut.filter(|_| shares.len() > 1)
            && let Some((aligned, cuts)) = self.aligned(place, &shares)
            && let Some(key) = LexOrdering::new([order(place, ascending)])
        {
            let cuts = cuts.into_iter().map(|cut| SplitPoint::new(vec![cut]));
            let range = RangePartitioning::try_new(key, cuts.collect())?;
            return Ok(Self {
                properties: Arc::new(properties(facts, Partitioning::Range(range))),
                shares: aligned.into(),
                ..self
            });
        }
        let partitioning = Partitioning::UnknownPartitioning(shares.len());
        Ok(Self {
            properties: Arc::new(properties(facts, partitioning)),
            shares: shares.into(),
            ..self
        })
    }

    /// The place of the column by which the grid is known to be sorted, if shares may be cut between its values.
    fn cut_of(&self, known: &[(usize, SortOptions)]) -> Option<usize> {
        let (place, options) = *known.first()?;
        let column = *self.columns.get(place)?;
        may_be_cut(&self.facts, column, options).then_some(place)
    }

    /// The shares, cut where the value of the sorted column at a place of the output changes.
    fn aligned(
        &self,
        place: usize,
        shares: &[Vec<Morsel>],
    ) -> Option<(Vec<Vec<Morsel>>, Vec<ScalarValue>)> {
        let column = *self.columns.get(place)?;
        align(shares, &|at| start_of_value(&self.facts, column, at))
    }

    /// Whether the rows come in ascending order of the column at a place among those that it reads.
    pub(super) fn is_ascending(&self, place: usize) -> bool {
        let column = self.columns.get(place);
        column.is_some_and(|column| self.facts.is_ascending(*column))
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The columns that come out, then those that only conditions read.
    pub(super) fn wide_schema(&self) -> &SchemaRef {
        &self.wide_schema
    }

    /// The columns that come out.
    pub(super) fn narrow_schema(&self) -> SchemaRef {
        Arc::clone(self.properties.equivalence_properties().schema())
    }

    pub(super) fn num_columns(&self) -> usize {
        self.num_columns
    }

    pub(super) fn conditions(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.conditions
    }

    /// The scan, which ends with an error once `stop` is set.
    pub(super) fn with_stop(self, stop: Stop) -> Self {
        let stop = Some(stop);
        Self { stop, ..self }
    }

    pub(super) fn check_stop(&self) -> Result<()> {
        self.stop.as_ref().map_or(Ok(()), Stop::check)
    }

    pub(super) fn dynamic(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.dynamic
    }

    pub(super) fn stitch(&self) -> &Stitch {
        &self.stitch
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The place of a row band among those that are kept.
    pub(super) fn place_of(&self, row_band: usize) -> usize {
        let found = self.kept.row_bands.binary_search(&row_band);
        found.unwrap_or(usize::MAX)
    }

    /// The row bands that are kept, with their rows.
    fn bands(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let rows = |band: &usize| self.facts.grid().rows().interval(*band);
        let kept = self.kept.row_bands.iter();
        kept.filter_map(move |band| rows(band).map(|rows| (*band, rows.end - rows.start)))
    }

    /// The row bands that are kept, nearest first, or in the order of the grid where that is promised: for a sorted scan, and for one that gives the first so many rows.
    fn groups(&self, is_sorted: bool) -> Vec<Vec<(usize, u64)>> {
        if is_sorted || self.in_order || self.limit.is_some() {
            return vec![self.bands().collect()];
        }
        let mut groups: BTreeMap<Locality, Vec<(usize, u64)>> = BTreeMap::new();
        for (band, rows) in self.bands() {
            let group = groups.entry(self.stitch.furthest(&self.facts, band));
            group.or_default().push((band, rows));
        }
        groups.into_values().collect()
    }

    /// The statistics of the rows that pass: estimates, where there are conditions.
    fn statistics(&self) -> Result<Statistics> {
        let columns = self.columns.get(..self.num_columns).unwrap_or_default();
        let statistics = self.facts.of_bands(&self.kept.row_bands, columns)?;
        if self.conditions.is_empty() {
            return Ok(statistics);
        }
        let mut statistics = statistics.to_inexact();
        let passing = || self.facts.passing(&self.columns, &self.conditions);
        if let Some(rows) = statistics.num_rows.get_value()
            && let Some(passing) = *self.passing.get_or_init(passing)
        {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate"
            )]
            let left = (*rows as f64 * passing).ceil() as usize;
            statistics.num_rows = Precision::Inexact(left);
        }
        Ok(statistics)
    }
}

fn properties(facts: EquivalenceProperties, partitioning: Partitioning) -> PlanProperties {
    PlanProperties::new(
        facts,
        partitioning,
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
    .with_scheduling_type(SchedulingType::Cooperative)
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
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(
            self.conditions.iter().chain(&self.dynamic).map(Arc::clone),
            visit,
        )
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

    /// A new run learns its dynamic filters anew.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut scan = Arc::unwrap_or_clone(self);
        scan.dynamic.clear();
        scan.awaited.clear();
        scan.learnt = None;
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.tally = Arc::default();
        Ok(Arc::new(scan))
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
        self.tally.begin(self.kept.row_bands.len());
        let batches = read(self.clone(), share, context.session_config().batch_size())?;
        let mut limited = limit_rows(batches, self.limit);
        let elapsed = metrics.elapsed_compute().clone();
        let timed = stream::poll_fn(move |context| {
            let _timer = elapsed.timer();
            limited.poll_next_unpin(context)
        });
        let counted = timed.inspect_ok(move |batch| {
            metrics.record_output(batch.num_rows());
        });
        #[cfg(feature = "distributed")]
        let counted = counted.map_err(self.told());
        let schema = self.schema();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(
            schema,
            counted.boxed(),
        ))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.counted(self.plain_metrics()))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if arguments.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        let statistics = self.statistics()?;
        Ok(Arc::new(match self.limit {
            None => statistics,
            Some(_) => statistics.with_fetch(self.limit, 0, 1)?,
        }))
    }

    /// Takes dynamic filters only; the others came when the scan was planned. None is promised to be kept, so that whoever made one tests its rows again.
    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let answers = vec![PushedDown::No; result.parent_filters.len()];
        let filters = result
            .parent_filters
            .into_iter()
            .map(|parent| parent.filter);
        let dynamic: Vec<Arc<dyn PhysicalExpr>> = filters
            .filter(|filter| DynamicFilterTracking::classify(filter).contains_dynamic_filter())
            .collect();
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        // A row limit is one of rows that nobody above throws away.
        if dynamic.is_empty() || self.limit.is_some() {
            return Ok(propagation);
        }
        let mut scan = self.clone();
        scan.dynamic.extend(dynamic);
        Ok(propagation.with_updated_node(Arc::new(scan)))
    }
}
