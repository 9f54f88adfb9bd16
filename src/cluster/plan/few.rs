//! Groups that are few.
//!
//! Comes in: a plan in stages in which the members deal groups out among each other, each finishes some of them, and the process that was asked gathers these. Goes out: where groups are few, as far as is known, the same
//! plan in which that process finishes all of them, of what the members have grouped: a round of messages less, which takes longer than finishing few groups does. Never here: groups in the middle of a plan, which
//! others go on with.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    BroadcastExec, DistributedExec, DistributedLeafExec, NetworkBoundary, NetworkBoundaryExt,
    NetworkCoalesceExec, NetworkShuffleExec, Stage,
};

use super::border::BorderExec;
use super::together::sources;
use super::whole::is_volatile;
use crate::query::GridScanExec;

/// The most rows that all members together may send to the one that finishes their groups.
const MOST_ROWS: f64 = 65_536.0;

/// The plan whose few groups are finished by the process that was asked; stages have numbers with gaps then.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn finished_once(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if plan.is::<NetworkCoalesceExec>() {
        let boundary = plan.as_network_boundary();
        return match boundary.map(NetworkBoundary::input_stage) {
            Some(Stage::Local(stage)) => finished(&stage.plan),
            _ => Ok(None),
        };
    }
    let children = plan.children();
    let [input] = children.as_slice() else {
        return Ok(None);
    };
    let is_head = plan.is::<DistributedExec>()
        || plan.is::<AnalyzeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || is_of_each_row(plan);
    if !is_head || plan.is_network_boundary() {
        return Ok(None);
    }
    let below = finished_once(input)?;
    below
        .map(|input| replace_children_if_necessary(Arc::clone(plan), vec![input]))
        .transpose()
}

/// What a stage of several tasks makes of groups that it finishes, made by one task.
fn finished(stage: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let children = stage.children();
    let [input] = children.as_slice() else {
        return Ok(None);
    };
    if let Some(groups) = stage.downcast_ref::<AggregateExec>()
        && *groups.mode() == AggregateMode::FinalPartitioned
    {
        let gathered = gathered(input)?;
        return gathered
            .map(|input| replace_children_if_necessary(Arc::clone(stage), vec![input]))
            .transpose();
    }
    if !is_of_each_row(stage) {
        return Ok(None);
    }
    let below = finished(input)?;
    below
        .map(|input| replace_children_if_necessary(Arc::clone(stage), vec![input]))
        .transpose()
}

/// Whether an operator does in one task what it does in several, to the rows that are there; of a limit the operators above it make one for all.
fn is_of_each_row(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<ProjectionExec>()
        || node.is::<FilterExec>()
        || node.is::<SortExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<CooperativeExec>()
}

/// What an exchange by hash deals out, in one place, if it is few rows.
fn gathered(exchange: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !exchange.is::<NetworkShuffleExec>() || exchange.output_ordering().is_some() {
        return Ok(None);
    }
    let boundary = exchange.as_network_boundary();
    let Some(Stage::Local(stage)) = boundary.map(NetworkBoundary::input_stage) else {
        return Ok(None);
    };
    let heads = stage.plan.children();
    let [dealt] = heads.as_slice() else {
        return Ok(None);
    };
    let groups = dealt.downcast_ref::<AggregateExec>().and_then(num_groups);
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let num_tasks = stage.tasks as f64;
    if groups.is_none_or(|groups| groups * num_tasks > MOST_ROWS) {
        return Ok(None);
    }
    let sent = Arc::clone(dealt);
    let gathering = NetworkCoalesceExec::try_new(Arc::clone(&sent), stage.tasks, 1)?;
    let mut stage = stage.clone();
    stage.plan = sent;
    let gathering = gathering.with_input_stage(Stage::Local(stage))?;
    let gathered = CoalescePartitionsExec::new(gathering as Arc<dyn ExecutionPlan>);
    Ok(Some(Arc::new(gathered)))
}

/// About how many groups there are; `None` when nobody can tell.
fn num_groups(aggregate: &AggregateExec) -> Option<f64> {
    let groups = aggregate.group_expr();
    if !groups.is_single() || groups.is_true_no_grouping() {
        return None;
    }
    let keys = groups.expr().iter();
    let values = keys.map(|(key, _)| num_values(key, aggregate.input()));
    values.product()
}

/// About how many values an expression over the rows of a plan has.
fn num_values(made: &Arc<dyn PhysicalExpr>, input: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    if let Some(column) = made.downcast_ref::<Column>() {
        return num_values_of(input, column.index());
    }
    if made.is::<Literal>() {
        return Some(1.0);
    }
    if is_volatile(made) {
        return None;
    }
    let of_parts = made.children().into_iter();
    let of_parts: Option<f64> = of_parts.map(|part| num_values(part, input)).product();
    let of_call = made.downcast_ref::<ScalarFunctionExpr>();
    match of_call.and_then(most_values) {
        Some(Most::Values(most)) => Some(of_parts.map_or(most, |values| values.min(most))),
        Some(Most::OneOf(days)) => Some(of_parts? / days + 1.0),
        None => of_parts,
    }
}

/// What is known of the values of a function, whatever its arguments are.
enum Most {
    Values(f64),
    /// One of about so many that these have, which are days.
    OneOf(f64),
}

fn most_values(call: &ScalarFunctionExpr) -> Option<Most> {
    let literal = |place: usize| call.args().get(place)?.downcast_ref::<Literal>();
    match call.name() {
        "date_part" => {
            let part = literal(0)?.value().try_as_str()??.to_lowercase();
            Some(match part.as_str() {
                "year" | "isoyear" => Most::OneOf(365.25),
                "quarter" => Most::Values(4.0),
                "dow" | "isodow" => Most::Values(7.0),
                "month" => Most::Values(12.0),
                "hour" => Most::Values(24.0),
                "day" => Most::Values(31.0),
                "week" => Most::Values(53.0),
                "minute" => Most::Values(60.0),
                "doy" => Most::Values(366.0),
                _ => return None,
            })
        }
        // As many as so many letters and digits make.
        "substr" => match literal(2)?.value() {
            ScalarValue::Int64(Some(length)) => {
                let length = i32::try_from(*length).ok()?;
                Some(Most::Values(36_f64.powi(length)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// About how many values a column of the rows of a plan has.
fn num_values_of(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
        return num_values_of(leaf.original(), column);
    }
    if let Some(scan) = plan.downcast_ref::<GridScanExec>() {
        return scan.num_values(column);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return num_values(&projection.expr().get(column)?.expr, projection.input());
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        let (key, _) = groups.expr().get(column).filter(|_| groups.is_single())?;
        return num_values(key, aggregate.input());
    }
    let hands_on = plan.is_network_boundary()
        || plan.is::<BroadcastExec>()
        || plan.is::<BorderExec>()
        || plan.is::<SortPreservingMergeExec>();
    if hands_on {
        return num_values_of(plan.children().first()?, column);
    }
    // Of a key of a join, either side tells.
    let of_inputs = sources(plan, column).into_iter();
    let of_inputs = of_inputs.filter_map(|(input, below)| num_values_of(&input, below));
    of_inputs.reduce(f64::min)
}
