//! Which members run stages of fewer tasks than there are members.
//!
//! Comes in: the scans of a statement, or of a stage of one task; the members. Goes out: the numbers of those that have most bytes of what is read. Of several tasks the order is the same for all stages and scans of the statement, since
//! scans in one stage must agree on it, and those who deal row bands out see one scan at a time; a stage of one task, which reads all row bands, goes by what it reads itself. Of members with equally much the first counts, and that
//! is the one that was asked. Never here: which tiles each of them reads.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};

use super::leaf::{OfQuery, touched_bands};
use crate::cluster::tile::owner::{elsewhere, of_member};
use crate::query::GridScanExec;

/// What is known of a statement, for whoever asks first.
#[derive(Default)]
pub(in crate::cluster) struct Readers {
    /// What it reads.
    plan: Option<Arc<dyn ExecutionPlan>>,
    /// The members by what they have of it.
    order: OnceLock<Vec<usize>>,
}

impl Readers {
    /// Those of a statement with this plan for one process.
    pub(in crate::cluster) fn of(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan: Some(plan),
            order: OnceLock::new(),
        }
    }
}

impl OfQuery {
    /// The numbers of the members that run the tasks of a stage: all, or as many as there are tasks, those with most bytes of what the statement reads.
    pub(in crate::cluster) fn readers(&self, num_tasks: usize) -> Vec<usize> {
        let num_members = self.members.len();
        if num_tasks >= num_members {
            return (0..num_members).collect();
        }
        let order = self.readers.order.get_or_init(|| {
            let plan = self.readers.plan.as_ref();
            plan.map_or_else(|| (0..num_members).collect(), |plan| self.by_bytes(plan))
        });
        order.iter().copied().take(num_tasks).collect()
    }

    /// The number of the member that runs the only task of a stage: the one with most bytes of what it reads.
    pub(in crate::cluster) fn reader_of(&self, stage: &Arc<dyn ExecutionPlan>) -> usize {
        self.by_bytes(stage).first().copied().unwrap_or_default()
    }

    /// The members by how many bytes they have of what a plan reads, up to where rows come from other stages. Where it reads what this process alone can, this process is the first.
    fn by_bytes(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
        let mut bytes = vec![0; self.members.len()];
        let mut can_go = true;
        let looked = plan.apply(|node| {
            if node.is_network_boundary() {
                return Ok(TreeNodeRecursion::Jump);
            }
            let leaf = node.downcast_ref::<DistributedLeafExec>();
            let node = leaf.map_or(node, DistributedLeafExec::original);
            if let Some(scan) = node.downcast_ref::<GridScanExec>() {
                can_go &= self.add_bytes(scan, &mut bytes);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let mut order: Vec<usize> = (0..bytes.len()).collect();
        order.sort_by_key(|number| Reverse(bytes.get(*number).copied()));
        if !can_go || looked.is_err() {
            order.retain(|number| *number > 0);
            order.insert(0, 0);
        }
        order
    }

    /// Adds the bytes that each member has of what a scan reads; says whether others than this process can read all of it.
    fn add_bytes(&self, scan: &GridScanExec, bytes: &mut [u64]) -> bool {
        let grid = scan.grid();
        let touched = touched_bands(scan);
        // A grid that only this process has may be unknown elsewhere.
        let mut tiles = grid.tiles().iter();
        let is_of_members = tiles.any(|tile| of_member(tile).is_some());
        let mut looker = self.anywhere.looker();
        let mut can_go = true;
        for row_band in scan.kept_row_bands() {
            let tiles = grid.row_band(*row_band);
            for tile in touched.iter().filter_map(|band| tiles.get(*band)) {
                if looker.has(tile) {
                    continue;
                }
                let owner = match of_member(tile) {
                    Some(handle) => self.members.number_of(handle.incarnation),
                    None => {
                        can_go &= is_of_members && elsewhere(tile).is_none();
                        Some(0)
                    }
                };
                if let Some(bytes) = owner.and_then(|owner| bytes.get_mut(owner)) {
                    *bytes += tile.data().memory_bytes();
                }
            }
        }
        can_go
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::execution::TaskContext;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::union::UnionExec;
    use datafusion::prelude::SessionConfig;
    use datafusion_distributed::RouteTasksEvent;
    use tokio::runtime::Handle;
    use url::Url;

    use super::super::leaf::{dealt, route};
    use super::*;
    use crate::client::ClientOptions;
    use crate::cluster::members::channel::Reach;
    use crate::cluster::members::{Member, Members};
    use crate::cluster::scale;
    use crate::cluster::tile::anywhere::Anywhere;
    use crate::grid::PartitionGrid;

    /// Three members, of which two are but names.
    fn members() -> Arc<Members> {
        let own = Member::here("grpc://127.0.0.1:9").unwrap();
        Arc::new(scale::members(&own, 3))
    }

    /// A scan of a grid whose row bands these members have.
    fn scan(members: &Members, owners: &[usize]) -> GridScanExec {
        let reach = Arc::new(Reach::new(ClientOptions::default(), Handle::current()));
        scan_of(scale::grid_at(&reach, members, owners))
    }

    fn scan_of(grid: Arc<PartitionGrid>) -> GridScanExec {
        GridScanExec::over(grid, vec![0, 1], &[]).unwrap()
    }

    fn together(scans: &[&GridScanExec]) -> Arc<dyn ExecutionPlan> {
        let scans = scans.iter().map(|scan| {
            let scan = scan_of(Arc::clone(scan.grid()));
            Arc::new(scan) as Arc<dyn ExecutionPlan>
        });
        UnionExec::try_new(scans.collect()).unwrap()
    }

    fn query(members: &Arc<Members>, plan: Arc<dyn ExecutionPlan>) -> OfQuery {
        OfQuery {
            members: Arc::clone(members),
            anywhere: Arc::new(Anywhere::new(None, Vec::new())),
            forbids_fetching: false,
            readers: Readers::of(plan),
        }
    }

    /// The numbers of the members to which the tasks of a stage go.
    fn routed(query: OfQuery, stage: &Arc<dyn ExecutionPlan>, task_count: usize) -> Vec<usize> {
        let members = Arc::clone(&query.members);
        let config = SessionConfig::new().with_extension(Arc::new(query));
        let context = TaskContext::default().with_session_config(config);
        let event = RouteTasksEvent {
            task_ctx: Arc::new(context),
            plan: stage,
            task_count,
        };
        let urls = route(event).unwrap().unwrap().urls;
        let number = |url: &Url| members.iter().position(|member| member.url() == url);
        urls.iter().map(|url| number(url).unwrap()).collect()
    }

    #[tokio::test]
    async fn two_tasks_of_three_members_are_with_the_two_that_have_most() {
        let members = members();
        let facts = scan(&members, &[0, 1, 1, 2, 2, 2]);
        let plan = together(&[&facts]);
        let query = query(&members, Arc::clone(&plan));
        assert_eq!(query.readers(2), [2, 1]);
        let mut dealt = dealt(&facts, &query, 2);
        // What the third has somebody reads, once.
        let places: Vec<usize> = (0..2).filter(|task| dealt[*task].contains(&0)).collect();
        assert_eq!(places.len(), 1);
        dealt[places[0]].retain(|band| *band != 0);
        assert_eq!(dealt, [vec![3, 4, 5], vec![1, 2]]);
        assert_eq!(routed(query, &plan, 2), [2, 1]);
    }

    #[tokio::test]
    async fn scans_of_one_stage_agree_on_the_members_of_its_tasks() {
        let members = members();
        let facts = scan(&members, &[0, 0, 0, 1]);
        let names = scan(&members, &[2, 2, 2, 2, 2, 1]);
        let query = query(&members, together(&[&facts, &names]));
        assert_eq!(query.readers(2), [2, 0]);
        let of_facts = dealt(&facts, &query, 2);
        assert!(of_facts[1].starts_with(&[0, 1, 2]), "{of_facts:?}");
        let of_names = dealt(&names, &query, 2);
        assert!(of_names[0].starts_with(&[0, 1, 2, 3, 4]), "{of_names:?}");
        for (dealt, num_bands) in [(of_facts, 4), (of_names, 6)] {
            let mut all = dealt.concat();
            all.sort_unstable();
            assert_eq!(all, (0..num_bands).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn one_task_is_where_most_bytes_of_its_own_stage_are() {
        let members = members();
        let facts = scan(&members, &[1, 1, 1, 1]);
        let few = scan(&members, &[0, 2, 2]);
        let plan = together(&[&facts, &few]);
        // By what the stage reads, not by what the statement does; as the engine has cut it, too.
        let leaf: Arc<dyn ExecutionPlan> = Arc::new(scan_of(Arc::clone(few.grid())));
        let cut = DistributedLeafExec::try_new(Arc::clone(&leaf), [Arc::clone(&leaf)]).unwrap();
        for leaf in [leaf, Arc::new(cut)] {
            let stage: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(leaf));
            assert_eq!(routed(query(&members, Arc::clone(&plan)), &stage, 1), [2]);
        }
        assert_eq!(routed(query(&members, Arc::clone(&plan)), &plan, 1), [1]);
        assert_eq!(dealt(&few, &query(&members, plan), 1), [[0, 1, 2]]);
    }

    #[tokio::test]
    async fn of_equals_the_member_that_was_asked_comes_first() {
        let members = members();
        let even = together(&[&scan(&members, &[2, 1, 0])]);
        assert_eq!(query(&members, Arc::clone(&even)).readers(2), [0, 1]);
        assert_eq!(routed(query(&members, Arc::clone(&even)), &even, 1), [0]);
        // As many tasks as members are in their order, whoever has what.
        let other = together(&[&scan(&members, &[2, 2, 1])]);
        assert_eq!(
            routed(query(&members, Arc::clone(&other)), &other, 3),
            [0, 1, 2]
        );
        assert_eq!(
            dealt(&scan(&members, &[2, 2, 1]), &query(&members, other), 3)[2],
            [0, 1]
        );
    }

    #[tokio::test]
    async fn what_this_process_alone_can_read_stays_with_it() {
        let members = members();
        let columns = ["g", "x"].map(|name| {
            let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
            (name, values)
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let own = PartitionGrid::try_from_batches(batch.schema(), &[batch]).unwrap();
        let own = scan_of(Arc::new(own));
        let plan = together(&[&own, &scan(&members, &[2, 2, 2, 2])]);
        assert_eq!(routed(query(&members, Arc::clone(&plan)), &plan, 1), [0]);
        assert_eq!(query(&members, plan).readers(2), [0, 2]);
    }
}
