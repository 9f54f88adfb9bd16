//! How many shares the parts of a plan have where members share the cores of a host.
//!
//! Comes in: a plan in stages, in which each part has as many shares as a member has threads. Goes out: the same plan, whose parts have as few as keep the cores of their hosts busy. Three members of two threads on two
//! cores would make six hash tables for each table and send each other twice as many messages, and no core would do more for it. Never here: the part of the member that was asked, of which there is one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::AcrossPartitions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{
    BroadcastExec, DistributedLeafExec, NetworkBoundary, NetworkBoundaryExt, NetworkBroadcastExec,
    NetworkCoalesceExec, NetworkShuffleExec, Stage,
};

use super::allowed::{Cores, together};
use crate::cluster::members::{Member, Members};
use crate::query::GridScanExec;

/// The part of a core that may be idle since rows are dealt out unevenly, before one more share is worth its cost: one in so many.
const IDLE: u128 = 4;

/// The plan whose parts have as many shares as the cores of their hosts are worth.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn on_their_cores(
    plan: Arc<dyn ExecutionPlan>,
    members: &Members,
    batch_rows: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let hosts: Vec<IpAddr> = members
        .iter()
        .map(|member| member.location().host())
        .collect();
    if !are_shared(&hosts) {
        return Ok(plan);
    }
    let mut rows = vec![0; hosts.len()];
    plan.apply(|node| {
        if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
            for (rows, scan) in rows.iter_mut().zip(leaf.variants()) {
                let scan = scan.downcast_ref::<GridScanExec>();
                *rows += scan.map_or(0, GridScanExec::kept_rows);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let reading = rows.into_iter().zip(members.iter().map(Member::cores));
    let most = most_shares(&hosts, &reading.collect::<Vec<_>>());
    let plan = Shares { most, batch_rows }.node(&plan, 1)?;
    // What one share has grouped is not grouped again if it was sent nowhere in between.
    CombinePartialFinalAggregate::new().optimize(plan, &ConfigOptions::default())
}

/// Whether two members are on one host.
fn are_shared(hosts: &[IpAddr]) -> bool {
    let mut sorted = hosts.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair.first() == pair.last())
}

/// How many shares of a part keep the cores of each host busy, of members that read so many rows and may use these cores: the one that reads most is not to be the last at work while cores are idle.
fn most_shares(hosts: &[IpAddr], reading: &[(u64, Cores)]) -> usize {
    let mut on_host: HashMap<IpAddr, Vec<(u128, Cores)>> = HashMap::new();
    // Members that read nothing do what is sent to them.
    let is_any = reading.iter().any(|(rows, _)| *rows > 0);
    for (host, (rows, cores)) in hosts.iter().zip(reading) {
        let rows = if is_any { u128::from(*rows) } else { 1 };
        on_host.entry(*host).or_default().push((rows, *cores));
    }
    let shares = on_host.into_values().map(|of_host| {
        if of_host.len() < 2 {
            return usize::MAX;
        }
        let rows = || of_host.iter().map(|(rows, _)| *rows);
        let (all, most) = (rows().sum::<u128>(), rows().max().unwrap_or_default());
        let cores = together(of_host.iter().map(|(_, cores)| *cores));
        let beyond = (IDLE * most * cores as u128).saturating_sub(all);
        let shares = beyond.div_ceil((IDLE * all).max(1));
        usize::try_from(shares).unwrap_or(usize::MAX)
    });
    shares.max().unwrap_or_default().max(1)
}

struct Shares {
    /// The most shares of a part.
    most: usize,
    batch_rows: usize,
}

impl Shares {
    /// The plan below and at a node, which so many tasks run.
    fn node(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(boundary) = plan.as_network_boundary()
            && let Stage::Local(_) = boundary.input_stage()
        {
            return self.boundary(plan, boundary, num_tasks);
        }
        // Of one task there is no other that would keep a core busy.
        let is_apart = num_tasks > 1;
        if is_apart && let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
            return self.leaf(plan, leaf);
        }
        let children = plan.children().into_iter();
        let children = children.map(|child| self.node(child, num_tasks));
        let children: Vec<_> = children.collect::<Result<_>>()?;
        // Inputs of one share are dealt out no longer, as this operator asks of its inputs.
        if is_apart && plan.is::<InterleaveExec>() && children.iter().all(is_of_one_share) {
            let all = UnionExec::try_new(children)?;
            return Ok(Arc::new(CoalescePartitionsExec::new(all)));
        }
        match plan.downcast_ref::<RepartitionExec>().zip(children.first()) {
            Some((exchange, input)) if is_apart => self.exchange(exchange, Arc::clone(input)),
            _ => replace_children_if_necessary(Arc::clone(plan), children),
        }
    }

    fn leaf(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        leaf: &DistributedLeafExec,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let num_shares = plan.output_partitioning().partition_count();
        if num_shares <= self.most {
            return Ok(Arc::clone(plan));
        }
        let fewer = |scan: &Arc<dyn ExecutionPlan>| {
            let scan = scan.downcast_ref::<GridScanExec>()?;
            let scan = scan.in_shares(self.most, self.batch_rows);
            Some(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>))
        };
        let variants: Option<Result<Vec<_>>> = leaf.variants().iter().map(fewer).collect();
        match variants {
            None => Ok(Arc::clone(plan)),
            Some(variants) => {
                let original = Arc::clone(leaf.original());
                Ok(Arc::new(DistributedLeafExec::try_new(original, variants?)?))
            }
        }
    }

    /// An exchange between the shares of one task.
    fn exchange(
        &self,
        exchange: &RepartitionExec,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitioning = self.fewer(exchange.partitioning());
        let of = partitioning.partition_count();
        if of == 1 && is_of_one_share(&input) {
            return Ok(input);
        }
        scattered(exchange, input, partitioning)
    }

    /// As many partitions as a task has shares.
    fn fewer(&self, partitioning: &Partitioning) -> Partitioning {
        match partitioning {
            Partitioning::Hash(keys, of) => Partitioning::Hash(keys.clone(), self.most.min(*of)),
            Partitioning::RoundRobinBatch(of) => Partitioning::RoundRobinBatch(self.most.min(*of)),
            other => other.clone(),
        }
    }

    /// What a stage sends to so many tasks, each of which reads as many partitions as it has shares.
    fn boundary(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        boundary: &dyn NetworkBoundary,
        num_tasks: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Stage::Local(stage) = boundary.input_stage() else {
            return Ok(Arc::clone(plan));
        };
        let mut stage = stage.clone();
        let sending: Arc<dyn NetworkBoundary> = if plan.is::<NetworkShuffleExec>()
            && let Some(head) = Arc::clone(&stage.plan).downcast_ref::<RepartitionExec>()
        {
            let of = plan.output_partitioning().clone();
            let of = if num_tasks > 1 { self.fewer(&of) } else { of };
            // What is known of the rows is what was known of several shares: of one share an exchange keeps the order, which is lost where several tasks send.
            let to_one = scattered(head, Arc::clone(head.input()), of.clone())?;
            let input = self.node(head.input(), stage.tasks)?;
            let num_partitions = of.partition_count() * num_tasks;
            let to_all = match of {
                Partitioning::Hash(keys, _) => Partitioning::Hash(keys, num_partitions),
                other => other,
            };
            stage.plan = scattered(head, input, to_all)?;
            Arc::new(NetworkShuffleExec::try_new(to_one, stage.tasks)?)
        } else if plan.is::<NetworkBroadcastExec>()
            && let Some(head) = Arc::clone(&stage.plan).downcast_ref::<BroadcastExec>()
        {
            let input = self.node(head.input(), stage.tasks)?;
            if knows_of_one_share(&input) {
                return Ok(Arc::clone(plan));
            }
            let to_one = Arc::new(BroadcastExec::new(Arc::clone(&input), 1));
            stage.plan = Arc::new(BroadcastExec::new(input, head.consumer_task_count()));
            Arc::new(NetworkBroadcastExec::try_new(to_one, stage.tasks)?)
        } else if plan.is::<NetworkCoalesceExec>() {
            stage.plan = self.node(&stage.plan, stage.tasks)?;
            let sent = Arc::clone(&stage.plan);
            Arc::new(NetworkCoalesceExec::try_new(sent, stage.tasks, num_tasks)?)
        } else {
            return Ok(Arc::clone(plan));
        };
        Ok(sending.with_input_stage(Stage::Local(stage))? as Arc<dyn ExecutionPlan>)
    }
}

fn is_of_one_share(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.output_partitioning().partition_count() == 1
}

/// Whether something is known of the rows of a share that does not hold for those of several tasks together, though gathering one share would go on saying so: their order, values that are the same in each of them.
fn knows_of_one_share(sent: &Arc<dyn ExecutionPlan>) -> bool {
    let constants = sent.equivalence_properties().constants();
    let mut constants = constants.iter();
    sent.output_ordering().is_some()
        || constants.any(|known| known.across_partitions == AcrossPartitions::Heterogeneous)
}

/// An exchange of other rows in other partitions.
fn scattered(
    head: &RepartitionExec,
    input: Arc<dyn ExecutionPlan>,
    partitioning: Partitioning,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scattered = RepartitionExec::try_new(input, partitioning)?;
    Ok(Arc::new(match head.preserve_order() {
        true => scattered.with_preserve_order(),
        false => scattered,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts by their numbers.
    fn hosts(numbers: &[u8]) -> Vec<IpAddr> {
        let host = |number: &u8| IpAddr::from([192, 0, 2, *number]);
        numbers.iter().map(host).collect()
    }

    /// Members that read so many rows, and share so many cores.
    fn reading(rows: &[u64], cores: u32) -> Vec<(u64, Cores)> {
        let cores = Cores::new(cores, 1);
        rows.iter().map(|rows| (*rows, cores)).collect()
    }

    #[test]
    fn shares_are_as_few_as_keep_the_cores_of_a_host_busy() {
        let shares = |rows: &[u64], cores| most_shares(&hosts(&[1, 1, 1]), &reading(rows, cores));
        assert_eq!(shares(&[10, 10, 10], 2), 1);
        assert_eq!(shares(&[10, 10, 10], 12), 4);
        // A little more with one of them is no reason for another share; all of it is.
        assert_eq!(shares(&[11, 10, 10], 3), 1);
        assert_eq!(shares(&[30, 0, 0], 2), 2);
        assert_eq!(shares(&[0, 0, 0], 2), 1);
        assert_eq!(shares(&[0, 0, 0], 12), 4);
    }

    #[test]
    fn cores_that_members_have_for_themselves_count_together() {
        let apart: Vec<_> = (1..4).map(|group| (10, Cores::new(4, group))).collect();
        assert_eq!(most_shares(&hosts(&[1, 1, 1]), &apart), 4);
        assert_eq!(most_shares(&hosts(&[1, 1, 1]), &reading(&[10; 3], 4)), 2);
    }

    #[test]
    fn a_member_that_is_alone_on_its_host_has_as_many_shares_as_threads() {
        let some = reading(&[10, 10, 1], 8);
        assert_eq!(most_shares(&hosts(&[1, 1, 2]), &some), usize::MAX);
        assert!(!are_shared(&hosts(&[1, 2, 3])));
        assert!(are_shared(&hosts(&[1, 2, 1])));
    }
}
