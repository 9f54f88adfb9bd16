//! A statement that begins anew.
//!
//! Comes in: a statement that failed before its first row, the members that it ran at. Goes out: the members that are still there, if one was lost, and the same statement over what they have: tiles of the
//! catalog and of files that all members reach then belong to others, and copies stand for the tiles of the one that was lost. Nothing where a tile is nowhere else. Never here: running it; more than one time.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
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

/// The statement and the members that are left to run it once more; `None` where nobody was lost, or tiles with a member.
pub(super) async fn without_lost(
    statement: &Statement,
    members: &Members,
    error: &DataFusionError,
) -> Option<(Statement, Members)> {
    if !matches!(
        kind_within(error),
        ErrorKind::WorkerLost | ErrorKind::PartitionLost
    ) {
        return None;
    }
    let (plan, cluster) = statement.parts();
    let others: Vec<String> = members
        .iter()
        .skip(1)
        .map(|member| member.uri().to_owned())
        .collect();
    let (there, _) = alive(&cluster.reach, &others).await;
    let mut lives: HashSet<Incarnation> = there.iter().map(Member::incarnation).collect();
    lives.insert(members.own().incarnation());
    let left: Vec<Member> = members
        .iter()
        .filter(|member| lives.contains(&member.incarnation()))
        .cloned()
        .collect();
    let is_one_lost = left.len() < members.len();
    let left = Members::of(members.own().clone(), left);
    let over = match needs_others(plan, &lives).ok()? {
        // Nobody was lost, or nobody knows who.
        false if !is_one_lost => return None,
        false => Arc::clone(plan),
        true => over_copies(plan, cluster, (&left, &lives)).await?,
    };
    let uris: Vec<&str> = left.iter().map(Member::uri).collect();
    tracing::warn!(%error, members = ?uris, "a member was lost before the first row of a statement, which begins anew without it");
    Some((statement.over(over), left))
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

/// The plan over copies of what the lives do not have; `None` where there are not all.
async fn over_copies(
    plan: &Arc<dyn ExecutionPlan>,
    cluster: &Cluster,
    (left, lives): (&Members, &HashSet<Incarnation>),
) -> Option<Arc<dyn ExecutionPlan>> {
    if let Err(error) = cluster.look_at(left).await {
        // Of other grids, perhaps.
        tracing::debug!(%error, "a look after a member was lost did not see all");
    }
    let over = Arc::clone(plan).transform_down(|node| {
        let scan = node.downcast_ref::<GridScanExec>();
        let Some(scan) = scan.filter(|scan| is_needy(scan, lives)) else {
            return Ok(Transformed::no(node));
        };
        match cluster.successor(scan.grid().id()) {
            None => Ok(Transformed::no(node)),
            Some(grid) => {
                let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.over_same(grid)?);
                Ok(Transformed::yes(scan))
            }
        }
    });
    let over = over.data().ok()?;
    let is_whole = !needs_others(&over, lives).ok()?;
    is_whole.then_some(over)
}
