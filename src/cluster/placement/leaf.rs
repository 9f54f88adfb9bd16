//! Which member reads which tiles.
//!
//! Comes in: a scan in a plan that is cut into stages, the members of the query. Goes out: one scan for each task, of the row bands that the member of that task has; the same order of members for every
//! scan and every stage, so that scans in one stage agree. Where there are fewer tasks than members, `readers.rs` says who they are. Never here: what a scan does.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedLeafExec, RouteTasksEvent,
    RouteTasksEventResponse, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};

use super::readers::Readers;
use super::{Seat, owner};
use crate::cluster::Cluster;
use crate::cluster::members::{Member, Members};
use crate::cluster::tile::MemberTile;
use crate::cluster::tile::anywhere::Anywhere;
use crate::cluster::tile::owner::{member_tile, of_member};
use crate::grid::{PartitionGrid, Tile};
use crate::query::GridScanExec;

/// The members of a query, and what all of them reach, for whoever plans it.
pub(in crate::cluster) struct OfQuery {
    pub(in crate::cluster) members: Arc<Members>,
    pub(in crate::cluster) anywhere: Arc<Anywhere>,
    /// Whether a tile is read by the member that has it, and by no other.
    pub(in crate::cluster) forbids_fetching: bool,
    /// Who reads where there are fewer tasks than members.
    pub(in crate::cluster) readers: Readers,
}

impl Cluster {
    /// What there is for a query that these members run.
    pub(in crate::cluster) fn of_query(&self, members: Arc<Members>) -> OfQuery {
        OfQuery {
            members,
            anywhere: Arc::clone(&self.anywhere),
            forbids_fetching: self.forbids_fetching,
            readers: Readers::default(),
        }
    }

    /// The same for a statement with this plan for one process.
    pub(in crate::cluster) fn of_statement(
        &self,
        members: Arc<Members>,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> OfQuery {
        OfQuery {
            readers: Readers::of(Arc::clone(plan)),
            ..self.of_query(members)
        }
    }
}

/// A scan wants to be in all members: with fewer tasks it might be left to the one that plans.
pub(in crate::cluster) fn desired(
    event: DesiredTaskCountEvent<'_>,
) -> Option<Result<DesiredTaskCountEventResponse>> {
    event.plan.downcast_ref::<GridScanExec>()?;
    Some(Ok(DesiredTaskCountEventResponse::desired(usize::MAX)))
}

/// One scan for each task.
pub(in crate::cluster) fn scale_up(
    event: ScaleUpLeafNodeEvent<'_>,
) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<GridScanExec>()?;
    let query = event.session_config.get_extension::<OfQuery>()?;
    if let Err(error) = check_members(scan, &query) {
        return Some(Err(error));
    }
    let num_shares = event.plan.output_partitioning().partition_count();
    let batch_rows = event.session_config.batch_size();
    let dealt = dealt(scan, &query, event.task_count);
    let scans = scan.try_of_each(dealt, num_shares, batch_rows);
    let scans = scans.map(|scans| {
        let scans = scans.into_iter();
        let scans = scans.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>);
        scans.collect::<Vec<_>>()
    });
    let leaf = scans.and_then(|scans| DistributedLeafExec::try_new(Arc::clone(event.plan), scans));
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// That the tiles of a scan which only their owners may read have owners among the members.
///
/// # Errors
/// `PartitionLost` for one whose owner is no member any more.
fn check_members(scan: &GridScanExec, query: &OfQuery) -> Result<()> {
    if !query.forbids_fetching {
        return Ok(());
    }
    let touched = touched_bands(scan);
    let mut looker = query.anywhere.looker();
    for row_band in scan.kept_row_bands() {
        let tiles = scan.grid().row_band(*row_band);
        for (band, tile) in touched
            .iter()
            .filter_map(|band| Some((*band, tiles.get(*band)?)))
        {
            let of_member = member_tile(tile).filter(|_| !looker.has(tile));
            let lives =
                |of: &MemberTile| query.members.number_of(of.handle().incarnation).is_some();
            if let Some(lost) = of_member.filter(|of| !lives(of)) {
                return Err(lost.gone().with_position(&[*row_band, band]).into());
            }
        }
    }
    Ok(())
}

/// Task i is with member i, whatever its stage does, if there are as many tasks as members; else the tasks are with those that have most of what is read.
pub(in crate::cluster) fn route(
    event: RouteTasksEvent<'_>,
) -> Option<Result<RouteTasksEventResponse>> {
    let query = event.task_ctx.session_config().get_extension::<OfQuery>()?;
    let all: Vec<_> = query.members.iter().map(Member::url).collect();
    let numbers = match event.task_count {
        1 => vec![query.reader_of(event.plan)],
        count => query.readers(count),
    };
    let numbers = numbers.into_iter().cycle().take(event.task_count);
    let urls = numbers.filter_map(|number| all.get(number).copied().cloned());
    Some(Ok(RouteTasksEventResponse::new(urls.collect())))
}

/// The row bands of each task, ascending: each with the member that has most bytes of the columns that are read. What everybody can read, what nobody has, and what members without a task have, is
/// where placement puts it.
pub(in crate::cluster) fn dealt(
    scan: &GridScanExec,
    query: &OfQuery,
    num_tasks: usize,
) -> Vec<Vec<usize>> {
    let bands = scan.kept_row_bands().iter().copied();
    dealt_bands(scan.grid(), bands, &touched_bands(scan), query, num_tasks)
}

/// The same of any row bands of a grid, of which some column bands are read.
pub(in crate::cluster) fn dealt_bands(
    grid: &PartitionGrid,
    row_bands: impl Iterator<Item = usize>,
    touched: &[usize],
    query: &OfQuery,
    num_tasks: usize,
) -> Vec<Vec<usize>> {
    if num_tasks == 1 {
        return vec![row_bands.collect()];
    }
    let mut dealt = vec![Vec::new(); num_tasks];
    let number = grid.id().bits();
    let members = query.members.as_ref();
    let readers = query.readers(num_tasks);
    let mut tasks = vec![None; members.len()];
    for (task, reader) in readers.iter().enumerate() {
        if let Some(of_member) = tasks.get_mut(*reader) {
            *of_member = Some(task);
        }
    }
    let all = seats(members, members.len());
    // Of fewer than all it depends on the statement who they are.
    let (seats, placed) = match readers.len() == members.len() {
        true => {
            let placed = query.anywhere.placed.of(grid, &query.members, num_tasks);
            (all, placed)
        }
        false => {
            let seats = readers.iter().filter_map(|reader| all.get(*reader));
            (seats.copied().collect(), None)
        }
    };
    let place = |row_band: usize| {
        let find = || owner(number, row_band as u64, &seats);
        match &placed {
            Some(placed) => placed.place(row_band, find),
            None => find(),
        }
    };
    let mut looker = query.anywhere.looker();
    for row_band in row_bands {
        let tiles = grid.row_band(row_band);
        let tiles = touched.iter().filter_map(|band| tiles.get(*band));
        let tiles = tiles.filter(|tile| !looker.has(tile));
        let task = nearest(tiles, members, &tasks)
            .or_else(|| place(row_band))
            .unwrap_or_default();
        if let Some(bands) = dealt.get_mut(task) {
            bands.push(row_band);
        }
    }
    dealt
}

/// The first members, as placement counts them: by their memory, if all of them said how much they have.
pub(in crate::cluster) fn seats(members: &Members, most: usize) -> Vec<Seat<'_>> {
    let weights = members.weights();
    let seats = members.names().zip(weights).take(most);
    seats
        .map(|(name, weight)| Seat::new(name, weight))
        .collect()
}

/// All members, as those are counted who have something only as long as they live.
pub(in crate::cluster) fn seats_of_lives(members: &Members) -> Vec<Seat<'_>> {
    let seats = members.lives().zip(members.weights());
    seats
        .map(|(life, weight)| Seat::new(life, weight))
        .collect()
}

/// The column bands that a scan reads.
pub(in crate::cluster) fn touched_bands(scan: &GridScanExec) -> Vec<usize> {
    let columns = scan.columns_read().iter();
    let bands = columns.filter_map(|column| scan.grid().columns().locate(*column as u64));
    let mut bands: Vec<usize> = bands.map(|(band, _)| band).collect();
    bands.sort_unstable();
    bands.dedup();
    if bands.is_empty() && scan.grid().columns().num_intervals() > 0 {
        // Of a scan without columns somebody must still count rows.
        bands.push(0);
    }
    bands
}

/// The number of the task whose member has most bytes of the tiles, of the tasks that each member has.
fn nearest<'a>(
    tiles: impl Iterator<Item = &'a Tile>,
    members: &Members,
    tasks: &[Option<usize>],
) -> Option<usize> {
    let mut bytes: HashMap<usize, u64> = HashMap::new();
    for tile in tiles {
        // All others are read where the plan is made: nobody else knows how to reach them.
        let owner = match of_member(tile) {
            Some(handle) => members.number_of(handle.incarnation),
            None => Some(0),
        };
        if let Some(task) = owner.and_then(|owner| tasks.get(owner).copied().flatten()) {
            *bytes.entry(task).or_default() += tile.data().memory_bytes();
        }
    }
    let most = bytes.into_iter();
    most.max_by_key(|(task, bytes)| (*bytes, std::cmp::Reverse(*task)))
        .map(|(task, _)| task)
}
