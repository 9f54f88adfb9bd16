//! A statement that begins anew.
//!
//! Comes in: a statement that failed before its first row, the members that it ran at. Goes out: those that are still there, if one was lost and the others can read all tiles that it needs: those of the
//! catalog and of files that all members reach then belong to others. Never here: running it; more than one time.

use std::collections::HashSet;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;

use super::join::alive;
use super::members::{Member, Members};
use super::owner::of_member;
use super::spread::Statement;
use crate::error::ErrorKind;
use crate::query::{GridScanExec, kind_within};
use crate::share::Incarnation;

/// The members that are left to run a statement once more; `None` where nobody was lost, or tiles with a member.
pub(super) async fn without_lost(
    statement: &Statement,
    members: &Members,
    error: &DataFusionError,
) -> Option<Members> {
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
    let lives: HashSet<Incarnation> = there.iter().map(Member::incarnation).collect();
    let (left, lost): (Vec<&Member>, Vec<&Member>) = members
        .iter()
        .skip(1)
        .partition(|member| lives.contains(&member.incarnation()));
    let lost: HashSet<Incarnation> = lost.into_iter().map(Member::incarnation).collect();
    let needs_lost = plan.exists(|node| {
        let Some(scan) = node.downcast_ref::<GridScanExec>() else {
            return Ok(false);
        };
        let bands = scan.kept_row_bands().iter();
        let mut tiles = bands.flat_map(|band| scan.grid().row_band(*band));
        Ok(tiles
            .any(|tile| of_member(tile).is_some_and(|handle| lost.contains(&handle.incarnation))))
    });
    if lost.is_empty() || needs_lost.unwrap_or(true) {
        return None;
    }
    let uris: Vec<&str> = left.iter().map(|member| member.uri()).collect();
    tracing::warn!(%error, members = ?uris, "a member was lost before the first row of a statement, which begins anew without it");
    Some(Members::of(
        members.own().clone(),
        left.into_iter().cloned(),
    ))
}
