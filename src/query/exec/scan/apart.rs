//! Scans whose rows are read by several processes.
//!
//! Comes in: a scan. Goes out: the same scan in a number of shares that is the same in every process, of all row bands or of those that one process reads. Nothing is said of which rows are in which
//! share, nor of their order: it would hold in one process only. Never here: which process reads what.

use std::sync::Arc;

#[cfg(feature = "distributed")]
use arrow::compute::SortOptions;
#[cfg(feature = "distributed")]
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
#[cfg(feature = "distributed")]
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, expressions::Column};
#[cfg(feature = "distributed")]
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::{GridScanExec, properties};
#[cfg(feature = "distributed")]
use super::{MAX_ORDERINGS, Stitch};
#[cfg(feature = "distributed")]
use crate::error::Error;
#[cfg(feature = "distributed")]
use crate::grid::PartitionGrid;
#[cfg(feature = "distributed")]
use crate::query::plan::sorted::known_order;
#[cfg(feature = "distributed")]
use crate::query::plan::statistics::facts::{Extent, Facts};
#[cfg(feature = "distributed")]
use crate::query::travel::traveling;

impl GridScanExec {
    /// The scan in exactly so many shares, the last of which may be empty.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn try_apart(self, num_shares: usize, batch_rows: usize) -> Result<Self> {
        let scan = self.try_spread(num_shares, batch_rows)?;
        let mut shares = scan.shares.to_vec();
        shares.resize(num_shares.max(shares.len()), Vec::new());
        // Where rows come from several processes by their hash, the engine takes them as they arrive, and still counts on their order: groups would come out in pieces.
        let facts = EquivalenceProperties::new(scan.schema());
        let partitioning = Partitioning::UnknownPartitioning(shares.len());
        Ok(Self {
            properties: Arc::new(properties(facts, partitioning)),
            shares: shares.into(),
            ..scan
        })
    }
}

#[cfg(feature = "distributed")]
impl GridScanExec {
    /// About how many values a column has that comes out; `None` when nobody can tell.
    pub(crate) fn num_values(&self, column: usize) -> Option<f64> {
        let columns = self.columns.iter().take(self.num_columns);
        self.facts.distinct(*columns.into_iter().nth(column)?)
    }

    /// A scan of the given columns of a grid, of the rows that pass all filters, which are over its columns.
    ///
    /// # Errors
    /// As [`GridScanExec::try_new`].
    #[cfg(test)]
    pub(crate) fn over(
        grid: Arc<PartitionGrid>,
        columns: Vec<usize>,
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Self> {
        Self::try_new(Arc::new(Facts::new(grid)), columns, filters)
    }

    /// The same of a part of a grid, whose keys of dictionaries are wider in SQL than in the grid, or not.
    ///
    /// # Errors
    /// As [`GridScanExec::try_new`].
    pub(crate) fn over_part(
        (grid, has_wide_keys): (Arc<PartitionGrid>, bool),
        columns: Vec<usize>,
        filters: &[Arc<dyn PhysicalExpr>],
    ) -> Result<Self> {
        let facts = Facts::of_part(grid, has_wide_keys);
        Self::try_new(Arc::new(facts), columns, filters)
    }

    /// The same scan of another grid with the same rows in the same tiles, which are elsewhere.
    ///
    /// # Errors
    /// `Internal` for a grid of other columns or cuts.
    pub(crate) fn over_same(&self, grid: Arc<PartitionGrid>) -> Result<Self> {
        let own = self.facts.grid();
        let is_same = own.schema().fields() == grid.schema().fields()
            && own.rows() == grid.rows()
            && own.columns() == grid.columns();
        if !is_same {
            let text = "a grid with other columns or cuts cannot stand for that of a scan";
            return Err(Error::internal(text).into());
        }
        let mut scan = self.clone();
        let stitch = Stitch::try_new(&grid, &self.columns)?;
        scan.stitch = Arc::new(stitch.with_numbers(self.stitch.numbers().clone()));
        let facts = Facts::of_part(grid, self.facts.has_wide_keys());
        scan.facts = Arc::new(facts);
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.tally = Arc::default();
        Ok(scan)
    }

    /// The scan over the grid of some row bands and some column bands of another one, by their numbers there: errors name tiles by their positions there.
    #[must_use]
    pub(crate) fn with_numbers(self, row_bands: Vec<usize>, column_bands: Vec<usize>) -> Self {
        let stitch = self.stitch.as_ref().clone();
        let stitch = Arc::new(stitch.with_numbers([row_bands, column_bands]));
        Self { stitch, ..self }
    }

    /// The position of one of its tiles as errors name it.
    pub(crate) fn named(&self, row_band: usize, column_band: usize) -> [usize; 2] {
        self.stitch.named((row_band, column_band))
    }

    /// The grid.
    pub(crate) fn grid(&self) -> &Arc<PartitionGrid> {
        self.facts.grid()
    }

    /// The columns that come out, by their numbers in the grid.
    pub(crate) fn columns_out(&self) -> &[usize] {
        self.columns.get(..self.num_columns).unwrap_or_default()
    }

    /// All columns that it reads, by their numbers in the grid.
    pub(crate) fn columns_read(&self) -> &[usize] {
        &self.columns
    }

    /// Its conditions, over the columns that it reads.
    pub(crate) fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.conditions
    }

    /// The most rows that anybody above will read of a share.
    pub(crate) fn row_limit(&self) -> Option<usize> {
        self.limit
    }

    /// The row bands that are kept, ascending.
    pub(crate) fn kept_row_bands(&self) -> &[usize] {
        &self.kept.row_bands
    }

    /// How many rows the row bands that are kept have.
    pub(crate) fn kept_rows(&self) -> u64 {
        self.bands().map(|(_, rows)| rows).sum()
    }

    /// The same scan in exactly so many shares, the last of which may be empty.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn in_shares(&self, num_shares: usize, batch_rows: usize) -> Result<Self> {
        let orders = self.orders();
        let mut scan = self.clone();
        // What it counts is its own.
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.tally = Arc::default();
        Ok(scan.try_apart(num_shares, batch_rows)?.in_orders(&orders))
    }

    /// The same scan in so many shares, whose rows come in the order of the grid, and which says which columns are sorted by it; `None` if none is known to be.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn in_order(&self, num_shares: usize, batch_rows: usize) -> Result<Option<Self>> {
        let ascending = SortOptions::new(false, false);
        let sorted = (0..self.num_columns).filter(|place| self.is_ascending(*place));
        let sorted = sorted
            .take(MAX_ORDERINGS)
            .map(|place| vec![(place, ascending)]);
        let known = known_order(&self.facts, self.columns_out());
        let orders: Vec<_> = sorted.chain((!known.is_empty()).then_some(known)).collect();
        if orders.is_empty() {
            return Ok(None);
        }
        let mut scan = self.clone();
        scan.in_order = true;
        // What it counts is its own.
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.tally = Arc::default();
        let scan = scan.try_apart(num_shares, batch_rows)?;
        Ok(Some(scan.in_orders(&orders)))
    }

    /// The orders that its rows are said to have: places of columns that come out.
    pub(crate) fn orders(&self) -> Vec<Vec<(usize, SortOptions)>> {
        let classes = self.properties.equivalence_properties().oeq_class();
        let orders = classes.iter().map(|order| {
            let keys = order.iter().map(|key| {
                let column = key.expr.downcast_ref::<Column>()?;
                Some((column.index(), key.options))
            });
            keys.collect::<Option<Vec<_>>>()
        });
        orders.flatten().collect()
    }

    /// What values a column that comes out has in the row bands that are kept, whatever its conditions leave of them; `None` when that is not known.
    pub(crate) fn extent(&self, place: usize) -> Option<Extent> {
        let column = self.columns_out().get(place)?;
        self.facts.extent(&self.kept.row_bands, *column)
    }

    /// The part of it that reads these of its row bands (numbers in the grid, ascending), of their rows those that pass further conditions over the columns that it reads.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn part_where(
        &self,
        row_bands: Vec<usize>,
        conditions: Vec<Arc<dyn PhysicalExpr>>,
        num_shares: usize,
        batch_rows: usize,
    ) -> Result<Self> {
        let orders = self.orders();
        let mut scan = self.clone();
        scan.kept.row_bands = row_bands;
        scan.conditions.extend(conditions);
        scan.passing = Arc::default();
        // What it counts is its own.
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.tally = Arc::default();
        Ok(scan.try_apart(num_shares, batch_rows)?.in_orders(&orders))
    }

    /// A scan of each of these lists of its row bands (numbers in the grid, ascending), in exactly so many shares. Orders that hold for all row bands hold for some.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn try_of_each(
        &self,
        dealt: Vec<Vec<usize>>,
        num_shares: usize,
        batch_rows: usize,
    ) -> Result<Vec<Self>> {
        let orders = self.orders();
        // The lists of all row bands are not copied for each part.
        let mut light = self.clone();
        light.kept.row_bands = Vec::new();
        light.shares = Arc::new([]);
        light.in_order = !orders.is_empty();
        light.is_part = true;
        let parts = dealt.into_iter().map(|row_bands| {
            let mut scan = light.clone();
            scan.kept.row_bands = row_bands;
            // What it counts is its own.
            scan.metrics = ExecutionPlanMetricsSet::new();
            scan.tally = Arc::default();
            Ok(scan.try_apart(num_shares, batch_rows)?.in_orders(&orders))
        });
        parts.collect()
    }

    /// The scan as part of a plan of another process: it reads its row bands in the order of the grid if it is said to have orders.
    ///
    /// # Errors
    /// As [`GridScanExec::try_spread`].
    pub(crate) fn into_part(
        mut self,
        orders: &[Vec<(usize, SortOptions)>],
        num_shares: usize,
        batch_rows: usize,
    ) -> Result<Self> {
        self.in_order = !orders.is_empty();
        self.is_part = true;
        Ok(self.try_apart(num_shares, batch_rows)?.in_orders(orders))
    }

    /// Says errors so that they keep their kind on the way to another process.
    pub(super) fn told(&self) -> impl Fn(DataFusionError) -> DataFusionError + Send + use<> {
        let is_part = self.is_part;
        move |error| match is_part {
            true => traveling(error),
            false => error,
        }
    }

    fn in_orders(self, orders: &[Vec<(usize, SortOptions)>]) -> Self {
        let schema = self.schema();
        let mut facts = self.properties.equivalence_properties().clone();
        for order in orders {
            let keys = order.iter().filter_map(|(place, options)| {
                let field = schema.fields().get(*place)?;
                let column = Column::new(field.name(), *place);
                Some(PhysicalSortExpr::new(Arc::new(column), *options))
            });
            facts.add_ordering(keys);
        }
        let partitioning = self.properties.partitioning.clone();
        Self {
            properties: Arc::new(properties(facts, partitioning)),
            ..self
        }
    }
}
