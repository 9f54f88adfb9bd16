//! Columns that are constant below an operator and not above it: those of rows that an outer join may lack, and those of the parts of a UNION ALL. The engine takes them for constant above, too, and leaves a sort by
//! them out. And columns that are equal below a window whose keys are made of them (`PARTITION BY u.b % 3, v.b + 1`): the engine sorts by the one, and then looks for the other. And those that a filter takes for constant by statistics, which rows from other processes have not.
//!
//! Comes in: a physical plan before its sorts are settled. Goes out: the same, in which nobody sees of such a column that it is constant, or equal to others. Constants of inner joins stay where nothing is amiss (`required.rs`), and so do those that all parts of a union have. Never here: sorts.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::math::random;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::equivalence::AcrossPartitions;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column, IsNullExpr};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{ConstExpr, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};

use crate::query::exec::asof::AsofJoinExec;

/// Hides constants where they are none above.
#[derive(Debug)]
pub(in crate::query) struct Constants;

impl PhysicalOptimizerRule for Constants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewritten(plan, false, (Joins::Outer, options))
    }

    fn name(&self) -> &'static str {
        "constants"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The joins whose constants are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joins {
    /// Those of rows that may be missing.
    Outer,
    /// And those of the right side of inner joins, which the engine knows of at one time, and at another does not.
    All,
}

/// The plan in which nobody sees constants of the right side of an inner join either, where somebody asks for an order.
///
/// # Errors
/// As the engine says.
pub(super) fn without_those_of_joins(
    plan: Arc<dyn ExecutionPlan>,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    rewritten(plan, false, (Joins::All, options))
}

/// `asks`: somebody above asks for an order of rows.
fn rewritten(
    node: Arc<dyn ExecutionPlan>,
    asks: bool,
    how: (Joins, &ConfigOptions),
) -> Result<Arc<dyn ExecutionPlan>> {
    let asks = asks || asks_for_order(&node);
    let children = node.children().into_iter();
    let children = children.map(|child| rewritten(Arc::clone(child), asks, how));
    let children = children.collect::<Result<Vec<_>>>()?;
    let node = replace_children_if_necessary(node, children)?;
    match asks {
        true => hidden(node, how),
        false => Ok(node),
    }
}

/// Whether an operator needs its rows in some order, or makes use of one.
fn asks_for_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(groups) = node.downcast_ref::<AggregateExec>() {
        let mut values = groups.aggr_expr().iter();
        return !groups.group_expr().is_empty()
            || values.any(|value| !value.order_bys().is_empty());
    }
    node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<AsofJoinExec>()
}

/// The operator over inputs whose constants nobody above sees.
fn hidden(
    node: Arc<dyn ExecutionPlan>,
    (joins, options): (Joins, &ConfigOptions),
) -> Result<Arc<dyn ExecutionPlan>> {
    let children: Vec<Arc<dyn ExecutionPlan>> =
        node.children().into_iter().map(Arc::clone).collect();
    let mut hidden: Vec<BTreeSet<usize>> = match lacking(&node, joins) {
        Some(lacks) => {
            let sides = children.iter().zip(lacks);
            let sides = sides.map(|(child, lacks)| match lacks {
                true => constants(child)
                    .into_iter()
                    .map(|(place, _)| place)
                    .collect(),
                false => BTreeSet::new(),
            });
            sides.collect()
        }
        None if node.is::<UnionExec>() => of_parts(&children),
        None => match (windows_of(&node), children.as_slice()) {
            (Some(windows), [input]) => vec![equal_in_keys(windows, input)],
            _ => vec![BTreeSet::new(); children.len()],
        },
    };
    for (child, hidden) in children.iter().zip(&mut hidden) {
        hidden.extend(by_statistics(child)?);
    }
    if hidden.iter().all(BTreeSet::is_empty) {
        return Ok(node);
    }
    let changed = children.into_iter().zip(hidden);
    let changed = changed.map(|(child, places)| match places.is_empty() {
        true => Ok(child),
        false => without(child, &places, options),
    });
    let changed = changed.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(node, changed)
}

/// Which sides of a join may lack rows, or have constants that are not sure.
fn lacking(node: &Arc<dyn ExecutionPlan>, joins: Joins) -> Option<[bool; 2]> {
    let hash = node.downcast_ref::<HashJoinExec>();
    let kind = hash.map(|join| *join.join_type());
    let kind = kind.or_else(|| Some(*node.downcast_ref::<NestedLoopJoinExec>()?.join_type()));
    let kind = kind.or_else(|| Some(node.downcast_ref::<SortMergeJoinExec>()?.join_type()));
    match kind? {
        JoinType::Left => Some([false, true]),
        JoinType::Right => Some([true, false]),
        JoinType::Full => Some([true, true]),
        JoinType::Inner if joins == Joins::All => Some([false, true]),
        _ => None,
    }
}

/// The constant columns of a plan, with what they are where that is known.
fn constants(plan: &Arc<dyn ExecutionPlan>) -> Vec<(usize, Option<ScalarValue>)> {
    let properties = plan.equivalence_properties();
    let found = properties.constants().into_iter().filter_map(|constant| {
        let column = constant.expr.downcast_ref::<Column>()?;
        let value = match constant.across_partitions {
            AcrossPartitions::Uniform(value) => value,
            AcrossPartitions::Heterogeneous => None,
        };
        Some((column.index(), value))
    });
    found.collect()
}

/// The columns that a filter takes for constant since its input has but one value there. Of rows of other processes it does not know that, and is made anew above them.
fn by_statistics(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeSet<usize>> {
    let Some(filter) = plan.downcast_ref::<FilterExec>() else {
        return Ok(BTreeSet::new());
    };
    let found = constants(plan);
    if found.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (below, condition) = (filter.input().equivalence_properties(), filter.predicate());
    let mut known = below.clone();
    for part in split_conjunction(condition) {
        if let Some(pair) = part.downcast_ref::<BinaryExpr>()
            && *pair.op() == Operator::Eq
        {
            known.add_equal_conditions(Arc::clone(pair.left()), Arc::clone(pair.right()))?;
        }
    }
    known.add_constants(ConstExpr::collect_predicate_constants(below, condition))?;
    let schema = filter.input().schema();
    let is_sure = |place: usize| {
        let places = filter.projection().as_deref();
        let below = places.map_or(Some(place), |places| places.get(place).copied());
        below.is_some_and(|place| {
            let column: Arc<dyn PhysicalExpr> =
                Arc::new(Column::new(schema.field(place).name(), place));
            known.is_expr_constant(&column).is_some()
        })
    };
    let found = found.into_iter().map(|(place, _)| place);
    Ok(found.filter(|place| !is_sure(*place)).collect())
}

/// The constant columns of each part that are not the same in all parts.
fn of_parts(parts: &[Arc<dyn ExecutionPlan>]) -> Vec<BTreeSet<usize>> {
    let known: Vec<Vec<(usize, Option<ScalarValue>)>> = parts.iter().map(constants).collect();
    let is_same = |place: usize, value: &Option<ScalarValue>| {
        value.is_some()
            && known.iter().all(|part| {
                part.iter()
                    .any(|(other, found)| *other == place && found == value)
            })
    };
    let differ = known.iter().map(|part| {
        let differ = part.iter().filter(|(place, value)| !is_same(*place, value));
        differ.map(|(place, _)| *place).collect()
    });
    differ.collect()
}

/// The windows of an operator of windows.
pub(crate) fn windows_of(node: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    let all = node.downcast_ref::<WindowAggExec>();
    let bounded = node.downcast_ref::<BoundedWindowAggExec>();
    let all = all.map(WindowAggExec::window_expr);
    all.or_else(|| bounded.map(BoundedWindowAggExec::window_expr))
}

/// The columns of which keys of windows are made, and which are equal to others.
fn equal_in_keys(
    windows: &[Arc<dyn WindowExpr>],
    input: &Arc<dyn ExecutionPlan>,
) -> BTreeSet<usize> {
    let keys = windows.first().into_iter();
    let keys = keys.flat_map(|window| window.partition_by());
    let made = keys.filter(|key| !key.is::<Column>());
    let columns = made.flat_map(collect_columns);
    let known = input.equivalence_properties().eq_group();
    let is_equal = |column: &Column| {
        let column = Arc::new(column.clone()) as Arc<dyn PhysicalExpr>;
        known.get_equivalence_class(&column).is_some()
    };
    let columns = columns.filter(is_equal);
    columns.map(|column| column.index()).collect()
}

/// The plan with the same columns, of which these are not seen to be constant or equal to others.
fn without(
    plan: Arc<dyn ExecutionPlan>,
    places: &BTreeSet<usize>,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    let of_place = |place: usize| -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(schema.field(place).name(), place))
    };
    // What is no constant itself.
    let other = (0..schema.fields().len()).find(|place| !places.contains(place));
    let other: Arc<dyn PhysicalExpr> = match other {
        Some(place) => of_place(place),
        None => Arc::new(ScalarFunctionExpr::try_new(
            random(),
            Vec::new(),
            &schema,
            Arc::new(options.clone()),
        )?),
    };
    let columns = schema.fields().iter().enumerate().map(|(place, field)| {
        let column = of_place(place);
        let expr: Arc<dyn PhysicalExpr> = match places.contains(&place) {
            false => column,
            true => {
                let is_null: Arc<dyn PhysicalExpr> = Arc::new(IsNullExpr::new(Arc::clone(&other)));
                // Of columns that are the same one below, each is written in another way: later they are made of that one.
                let num_before = places.range(..place).count();
                let when = vec![(is_null, Arc::clone(&column)); num_before + 1];
                Arc::new(CaseExpr::try_new(None, when, Some(column))?)
            }
        };
        let alias = field.name().clone();
        Ok(ProjectionExpr { expr, alias })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
}
