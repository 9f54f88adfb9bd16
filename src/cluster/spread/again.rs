//! A statement that begins anew.
//!
//! Comes in: a statement that failed before its first row, the members that it ran at. Goes out: the members that are still there, and the same statement over what they have: tiles of the catalog and of files that
//! all members reach then belong to others, copies stand for the tiles of one that was lost, and grids that were dealt out anew for those of before, whose tiles are there for a while only. Nothing where a tile is
//! nowhere else. It begins anew once: who is lost after that is an error. Never here: how it runs.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;
use futures::{StreamExt, future, stream};

use super::Statement;
use crate::cluster::Cluster;
use crate::cluster::members::join::alive;
use crate::cluster::members::{Member, Members};
use crate::cluster::tile::owner::of_member;
use crate::error::ErrorKind;
use crate::query::{GridScanExec, error_within};
use crate::share::Incarnation;

/// What a statement gives.
type Rows<B> = BoxStream<'static, Result<B>>;

/// A statement, and the members that it runs at.
pub(in crate::cluster) type At = (Statement, Arc<Members>);

/// The rows of what was asked. If it fails before the first one, those of what `anew` makes of it and of the error, which it gives back where that is nothing. What fails then has failed: there is no third time.
///
/// # Errors
/// Of the last run, if it does not begin.
pub(in crate::cluster) async fn once_more<T, B, R, A>(
    asked: T,
    run: impl Fn(T) -> R,
    anew: impl FnOnce(T, DataFusionError) -> A,
) -> Result<Rows<B>>
where
    T: Clone,
    B: Send + 'static,
    R: Future<Output = Result<Rows<B>>>,
    A: Future<Output = Result<T>>,
{
    let (first, rows) = match run(asked.clone()).await {
        Ok(mut rows) => (rows.next().await, rows),
        Err(error) => (Some(Err(error)), stream::empty().boxed()),
    };
    let Some(Err(error)) = first else {
        return Ok(stream::iter(first).chain(rows).boxed());
    };
    match anew(asked, error).await {
        Err(error) => Ok(stream::once(future::ready(Err(error))).chain(rows).boxed()),
        Ok(anew) => {
            drop(rows);
            run(anew).await
        }
    }
}

/// What is to run after an error, if that is anything.
///
/// # Errors
/// The same one.
pub(in crate::cluster) async fn after(asked: Arc<At>, error: DataFusionError) -> Result<Arc<At>> {
    let (statement, members) = asked.as_ref();
    match without_lost(statement, members, &error).await {
        Some((anew, left)) => Ok(Arc::new((anew, Arc::new(left)))),
        None => Err(error),
    }
}

/// The statement and the members that are left to run it once more; `None` where nobody was lost and no grid was dealt out anew, or tiles were lost with a member.
async fn without_lost(
    statement: &Statement,
    members: &Members,
    error: &DataFusionError,
) -> Option<(Statement, Members)> {
    // As callers would be told: the engine wraps what members sent.
    let error = error_within(error);
    let kind = error.kind();
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::error::Error;
    use crate::query::kind_within;

    fn lost(who: &str) -> DataFusionError {
        Error::new(ErrorKind::WorkerLost, format!("{who} is lost")).into()
    }

    /// Two rows.
    fn rows() -> Rows<i32> {
        stream::iter([Ok(1), Ok(2)]).boxed()
    }

    /// A run that does not begin, or whose first row is an error.
    fn failed(who: &str, begins: bool) -> Result<Rows<i32>> {
        match begins {
            true => Ok(stream::iter([Err(lost(who)), Ok(9)]).boxed()),
            false => Err(lost(who)),
        }
    }

    /// The numbers of the runs, and what the statement gives.
    async fn given(runs: impl Fn(usize) -> Result<Rows<i32>>) -> (Vec<usize>, Vec<Result<i32>>) {
        let ran = Mutex::new(Vec::new());
        let run = |number: usize| {
            ran.lock().unwrap().push(number);
            future::ready(runs(number))
        };
        let anew = |number: usize, _: DataFusionError| future::ready(Ok(number + 1));
        let given = match once_more(0, run, anew).await {
            Ok(rows) => rows.collect().await,
            Err(error) => vec![Err(error)],
        };
        (ran.into_inner().unwrap(), given)
    }

    #[tokio::test]
    async fn who_is_lost_in_the_second_run_is_an_error_and_there_is_no_third() {
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let (ran, given) = given(|number| match number {
                0 => failed("the first", first),
                1 => failed("the second", second),
                _ => Ok(rows()),
            })
            .await;
            assert_eq!(ran, [0, 1]);
            let error = given.into_iter().next().unwrap().unwrap_err();
            assert_eq!(kind_within(&error), ErrorKind::WorkerLost);
            assert!(error.to_string().contains("the second is lost"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_statement_begins_anew_only_before_its_first_row() {
        let (ran, twice) = given(|number| match number {
            0 => failed("the first", true),
            _ => Ok(rows()),
        })
        .await;
        assert_eq!(ran, [0, 1]);
        let twice: Vec<i32> = twice.into_iter().map(Result::unwrap).collect();
        assert_eq!(twice, [1, 2]);
        let (ran, late) = given(|_| Ok(stream::iter([Ok(1), Err(lost("one"))]).boxed())).await;
        assert_eq!((ran, late.len()), (vec![0], 2));
        assert!(late.last().unwrap().is_err());
    }

    #[tokio::test]
    async fn where_nothing_can_begin_anew_the_first_error_stays() {
        let run = |()| future::ready(failed("the first", false));
        let given = once_more((), run, |(), error| future::ready(Err(error))).await;
        let error = given.unwrap().next().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("the first is lost"), "{error}");
    }
}
