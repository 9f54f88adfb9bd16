//! Aggregates without keys that are sent to all.
//!
//! Comes in: a stage of one task that makes one row of what all members have aggregated, to be sent to all. Goes out: the same row, made by each member of what all members have aggregated, which is sent to all at once: a
//! round of messages less. Only of aggregates for which the order in which parts come does not matter, so that all make the same row. Never here: groups, of which each member would make all.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion_distributed::{
    BroadcastExec, NetworkBoundary, NetworkBoundaryExt, NetworkBroadcastExec, NetworkCoalesceExec,
    Stage,
};

use super::whole::is_volatile;

/// Aggregates of exact numbers, and those that give one of the values.
const EXACT: [&str; 3] = ["count", "sum", "avg"];
const CHOSEN: [&str; 4] = ["min", "max", "bool_and", "bool_or"];

/// What makes that row in each of so many tasks, of what a stage of one task sends to all; `None` for any other stage.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn made_by_all(
    sent: &Arc<dyn ExecutionPlan>,
    num_tasks: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = sent.downcast_ref::<ProjectionExec>() {
        if projection.expr().iter().any(|made| is_volatile(&made.expr)) {
            return Ok(None);
        }
    } else if let Some(aggregate) = sent.downcast_ref::<AggregateExec>() {
        return match is_exact(aggregate) {
            true => over_all(sent, num_tasks),
            false => Ok(None),
        };
    } else if !sent.is::<CooperativeExec>() {
        return Ok(None);
    }
    let children = sent.children();
    let [input] = children.as_slice() else {
        return Ok(None);
    };
    let made = made_by_all(input, num_tasks)?;
    made.map(|input| replace_children_if_necessary(Arc::clone(sent), vec![input]))
        .transpose()
}

/// Whether an aggregate makes one row, the same one in whatever order its input comes.
fn is_exact(aggregate: &AggregateExec) -> bool {
    let is_final = *aggregate.mode() == AggregateMode::Final;
    let groups = aggregate.group_expr();
    is_final
        && groups.is_true_no_grouping()
        && aggregate.aggr_expr().iter().all(|made| is_steady(made))
}

fn is_steady(made: &AggregateFunctionExpr) -> bool {
    let name = made.fun().name();
    let Ok(state) = made.state_fields() else {
        return false;
    };
    let has_floats = state.iter().any(|field| field.data_type().is_floating());
    let is_plain = !made.is_distinct() && made.order_bys().is_empty();
    is_plain && (CHOSEN.contains(&name) || EXACT.contains(&name) && !has_floats)
}

/// The last aggregate over what all tasks of the stage below send to each.
fn over_all(
    last: &Arc<dyn ExecutionPlan>,
    num_tasks: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let children = last.children();
    let [gathered] = children.as_slice() else {
        return Ok(None);
    };
    let coalesced = gathered.downcast_ref::<CoalescePartitionsExec>();
    let Some(coalesced) = coalesced.filter(|coalesced| coalesced.fetch().is_none()) else {
        return Ok(None);
    };
    let from = coalesced.input();
    let boundary = from.downcast_ref::<NetworkCoalesceExec>();
    let boundary = boundary.and_then(|_| from.as_network_boundary());
    let Some(Stage::Local(stage)) = boundary.map(NetworkBoundary::input_stage) else {
        return Ok(None);
    };
    let mut stage = stage.clone();
    // Each task reads as many partitions as one is sent, of all that the stage has for them.
    let to_one = Arc::new(BroadcastExec::new(Arc::clone(&stage.plan), 1));
    let sending = NetworkBroadcastExec::try_new(to_one, stage.tasks)?;
    stage.plan = Arc::new(BroadcastExec::new(stage.plan, num_tasks));
    let sending = sending.with_input_stage(Stage::Local(stage))?;
    let gathered = CoalescePartitionsExec::new(sending as Arc<dyn ExecutionPlan>);
    replace_children_if_necessary(Arc::clone(last), vec![Arc::new(gathered)]).map(Some)
}
