//! A statement that begins anew.
//!
//! Comes in: a statement that failed before its first row, the members that it ran at. Goes out: the members that are still there, and the same statement over what they have: tiles of the catalog and of files that
//! all members reach then belong to others, copies stand for the tiles of one that was lost, and grids that were dealt out anew for those of before, whose tiles are there for a while only. Nothing where a tile is
//! nowhere else. Never here: running it; more than one time.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;

use super::Cluster;
use super::join::alive;
use super::members::{Member, Members};
use super::owner::of_member;
use super::spread::Statement;
use crate::error::ErrorKind;
use crate::query::{GridScanExec, kind_within};
use crate::share::Incarnation;

/// The statement and the members that are left to run it once more; `None` where nobody was lost and no grid was dealt out anew, or tiles were lost with a member.
pub(super) async fn without_lost(
    statement: &Statement,
    members: &Members,
    error: &DataFusionError,
) -> Option<(Statement, Members)> {
    let kind = kind_within(error);
    if !matches!(kind, ErrorKind::WorkerLost | ErrorKind::PartitionLost) {
        return None;
    }
    let (plan, cluster) = statement.parts();
    let others = members.iter().skip(1);
    let others: Vec<String> = others.map(|member| member.uri().to_owned()).collect();
    let (there, _) = alive(&cluster.reach, &others).await;
    let mut lives: HashSet<Incarnation> = there.iter().map(Member::incarnation).collect();
    lives.insert(members.own().incarnation());
    let left = members.iter();
    let left: Vec<Member> = left
        .filter(|member| lives.contains(&member.incarnation()))
        .cloned()
        .collect();
    let is_one_lost = left.len() < members.len();
    let left = Members::of(members.own().clone(), left);
    let mut over = over_successors(plan, cluster).ok()?;
    let are_there = !needs_others(&over.data, &lives).ok()?;
    // Members may have dealt out anew what this one has not seen yet.
    let is_old = !is_one_lost && !over.transformed && kind == ErrorKind::PartitionLost;
    if !are_there || is_old {
        if let Err(error) = cluster.look_at(&left).await {
            // Of other grids, perhaps.
            tracing::debug!(%error, "a look before a statement begins anew did not see all");
        }
        over = over_successors(plan, cluster).ok()?;
    }
    let is_other = is_one_lost || over.transformed;
    if !is_other || needs_others(&over.data, &lives).ok()? {
        return None;
    }
    let uris: Vec<&str> = left.iter().map(Member::uri).collect();
    tracing::warn!(%error, members = ?uris, "a statement begins anew before its first row: a member was lost, or a grid that it reads was dealt out anew");
    Some((statement.over(over.data), left))
}

/// Whether a scan reads a tile that none of these lives has.
fn is_needy(scan: &GridScanExec, lives: &HashSet<Incarnation>) -> bool {
    let bands = scan.kept_row_bands().iter();
    let mut tiles = bands.flat_map(|band| scan.grid().row_band(*band));
    tiles.any(|tile| of_member(tile).is_some_and(|handle| !lives.contains(&handle.incarnation)))
}

fn needs_others(plan: &Arc<dyn ExecutionPlan>, lives: &HashSet<Incarnation>) -> Result<bool> {
    plan.exists(|node| {
        let scan = node.downcast_ref::<GridScanExec>();
        Ok(scan.is_some_and(|scan| is_needy(scan, lives)))
    })
}

/// The plan over the grids that have taken the place of those that it reads, where there are such.
fn over_successors(
    plan: &Arc<dyn ExecutionPlan>,
    cluster: &Cluster,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    Arc::clone(plan).transform_down(|node| {
        let scan = node.downcast_ref::<GridScanExec>();
        let over = scan.and_then(|scan| {
            let grid = cluster.successor(scan.grid().id())?;
            Some(scan.over_same(grid))
        });
        match over {
            None => Ok(Transformed::no(node)),
            Some(scan) => {
                let scan: Arc<dyn ExecutionPlan> = Arc::new(scan?);
                Ok(Transformed::yes(scan))
            }
        }
    })
}
