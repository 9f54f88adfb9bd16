//! Small tables that every member reads whole.
//!
//! Comes in: what a stage makes of tables, to be sent to all. Goes out: whether it is made of small tables only, and the same in each task, from all their tiles: those of others are fetched once and kept
//! (`small.rs`), so that nothing is sent with every statement. Never here: fetching; how stages are made.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::DistributedLeafExec;

use crate::cluster::placement::leaf::{OfQuery, touched_bands};
use crate::cluster::tile::owner::{elsewhere, of_member};
use crate::cluster::tile::small::SMALL_BYTES;
use crate::grid::Tile;
use crate::query::{GridScanExec, LookupExec};

/// The most tiles of a scan that is read whole: each is fetched by itself.
const MOST_TILES: usize = 64;

/// What small tables are read whole.
pub(in crate::cluster) struct Whole<'a> {
    pub(in crate::cluster) query: &'a OfQuery,
    pub(in crate::cluster) batch_rows: usize,
}

impl Whole<'_> {
    /// Whether any member makes the same rows of it, from tables that are small together.
    pub(in crate::cluster) fn is_small(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        let mut bytes = 0_u64;
        let is_other = plan.exists(|node| {
            if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
                let found = leaf.original().downcast_ref::<GridScanExec>();
                let found = found.and_then(|scan| self.bytes(scan));
                bytes = bytes.saturating_add(found.unwrap_or(u64::MAX));
                return Ok(bytes > SMALL_BYTES);
            }
            Ok(!is_same_everywhere(node))
        });
        matches!(is_other, Ok(false))
    }

    /// How many bytes the tiles of a scan have; `None` for one that not every member can read, or not alike.
    fn bytes(&self, scan: &GridScanExec) -> Option<u64> {
        if scan.row_limit().is_some() || scan.filters().iter().any(is_volatile) {
            return None;
        }
        let touched = touched_bands(scan);
        let num_tiles = scan.kept_row_bands().len().saturating_mul(touched.len());
        if num_tiles > MOST_TILES {
            return None;
        }
        let mut looker = self.query.anywhere.looker();
        // Of a grid of all, others know the tiles of this process as well.
        let mut tiles = scan.grid().tiles().iter();
        let mut is_of_members = tiles.any(|tile| of_member(tile).is_some());
        let mut bytes = 0_u64;
        for row_band in scan.kept_row_bands() {
            let tiles = scan.grid().row_band(*row_band);
            for tile in touched.iter().filter_map(|band| tiles.get(*band)) {
                let is_anywhere = looker.has(tile);
                if !is_anywhere && !self.is_reached(tile) {
                    return None;
                }
                is_of_members |= is_anywhere;
                bytes = bytes.saturating_add(tile.data().memory_bytes());
            }
        }
        // A table that only this process has may be unknown elsewhere.
        (is_of_members || bytes == 0).then_some(bytes)
    }

    /// Whether a member of the query has it.
    fn is_reached(&self, tile: &Tile) -> bool {
        match of_member(tile) {
            Some(handle) => self.query.members.number_of(handle.incarnation).is_some(),
            None => elsewhere(tile).is_none(),
        }
    }

    /// The plan whose scans read all tiles in each task.
    ///
    /// # Errors
    /// As the engine says.
    pub(in crate::cluster) fn read(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let read = plan.transform_up(|node| {
            let leaf = node.downcast_ref::<DistributedLeafExec>();
            let original = leaf.map(DistributedLeafExec::original);
            let Some((original, scan)) =
                original.and_then(|plan| Some((plan, plan.downcast_ref::<GridScanExec>()?)))
            else {
                return Ok(Transformed::no(node));
            };
            let num_shares = original.output_partitioning().partition_count();
            let dealt = vec![scan.kept_row_bands().to_vec(); num_tasks];
            let scans = scan.try_of_each(dealt, num_shares, self.batch_rows)?;
            let scans = scans.into_iter().map(|scan| Arc::new(scan) as _);
            let leaf = DistributedLeafExec::try_new(Arc::clone(original), scans)?;
            Ok(Transformed::yes(Arc::new(leaf) as _))
        });
        read.data()
    }
}

/// Whether an operator makes the same rows of the same rows, wherever it runs and in whatever order they come.
fn is_same_everywhere(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return !projection.expr().iter().any(|made| is_volatile(&made.expr));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return !is_volatile(filter.predicate()) && filter.fetch().is_none();
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let is_plain = join.partition_mode() == &PartitionMode::CollectLeft && !join.null_aware;
        let condition = join.filter().map(|filter| filter.expression());
        return is_plain && join.fetch().is_none() && !condition.is_some_and(is_volatile);
    }
    let is_kept = node.is::<CooperativeExec>() || node.is::<LookupExec>();
    is_kept || node.is::<CoalescePartitionsExec>() && node.fetch().is_none()
}

pub(in crate::cluster) fn is_volatile(expression: &Arc<dyn PhysicalExpr>) -> bool {
    datafusion::physical_expr_common::physical_expr::is_volatile(expression)
}
