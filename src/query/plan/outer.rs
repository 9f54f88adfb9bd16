//! Outer joins whose missing rows a join above drops.
//!
//! Comes in: an optimised logical plan. Goes out: the same plan, in which a join that keeps rows without a match, of which an inner join above drops all (its key is a column of the match, and null equals
//! nothing), keeps none itself: then it can be put in any order, and what matches tells the scans below. The engine does this where a condition drops them. Never here: order of joins.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Makes such joins inner ones, or ones that keep fewer rows.
#[derive(Debug)]
pub(in crate::query) struct OuterJoins;

impl OptimizerRule for OuterJoins {
    fn name(&self) -> &'static str {
        "outer_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        below(plan, &HashSet::new())
    }
}

/// The plan, of which nobody wants rows where one of these columns is null.
fn below(plan: LogicalPlan, wanted: &HashSet<Column>) -> Result<Transformed<LogicalPlan>> {
    let plan = plan.map_subqueries(|subquery| below(subquery, &HashSet::new()))?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Join(join) => of_join(join, wanted),
        plan => {
            let wanted = through(&plan, wanted);
            plan.map_children(|child| below(child, &wanted))
        }
    })
}

/// The columns of the input of an operator that gives no rows but those of its input, or a group of them.
fn through(plan: &LogicalPlan, wanted: &HashSet<Column>) -> HashSet<Column> {
    let columns = wanted.iter();
    match plan {
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) if !has_fetch(plan) => wanted.clone(),
        LogicalPlan::SubqueryAlias(alias) => {
            let place = |column: &Column| alias.schema.maybe_index_of_column(column);
            let input = alias.input.schema();
            let inner = columns
                .filter_map(place)
                .map(|place| input.qualified_field(place));
            inner.map(Column::from).collect()
        }
        LogicalPlan::Projection(projection) => {
            let place = |column: &Column| projection.schema.maybe_index_of_column(column);
            let inner = columns.filter_map(place);
            let inner = inner.filter_map(|place| column_of(projection.expr.get(place)?));
            inner.collect()
        }
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.group_expr.iter();
            // Of several sets of keys, some leave a key out.
            let keys = keys.filter_map(|key| match key {
                Expr::Column(column) => Some(column),
                _ => None,
            });
            let keys = keys.filter(|key| wanted.contains(key));
            match aggregate.group_expr.as_slice() {
                [Expr::GroupingSet(_)] => HashSet::new(),
                _ => keys.cloned().collect(),
            }
        }
        _ => HashSet::new(),
    }
}

fn has_fetch(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Sort(sort) if sort.fetch.is_some())
}

/// The column that an expression is null with, if it is that simple.
fn column_of(expression: &Expr) -> Option<Column> {
    match expression {
        Expr::Column(column) => Some(column.clone()),
        Expr::Alias(alias) => column_of(&alias.expr),
        Expr::Cast(cast) => column_of(&cast.expr),
        _ => None,
    }
}

fn of_join(join: Join, wanted: &HashSet<Column>) -> Result<Transformed<LogicalPlan>> {
    let has = |schema: &DFSchema| wanted.iter().any(|column| schema.has_column(column));
    let (of_left, of_right) = (has(join.left.schema()), has(join.right.schema()));
    let join_type = match (join.join_type, of_left, of_right) {
        (JoinType::Left, _, true) | (JoinType::Right, true, _) => JoinType::Inner,
        (JoinType::Full, true, true) => JoinType::Inner,
        (JoinType::Full, true, false) => JoinType::Left,
        (JoinType::Full, false, true) => JoinType::Right,
        (as_it_is, ..) => as_it_is,
    };
    let is_new = join_type != join.join_type;
    let keys = match join.null_equality {
        NullEquality::NullEqualsNothing if !join.null_aware => join.on.as_slice(),
        _ => &[],
    };
    let left_keys = keys.iter().filter_map(|(left, _)| column_of(left));
    let right_keys = keys.iter().filter_map(|(_, right)| column_of(right));
    // Of the side whose rows are kept, rows without a key are kept as well; of the other side nobody wants them.
    let (keeps_left, keeps_right) = kept(join_type);
    let mut left: HashSet<Column> = wanted.clone();
    let mut right: HashSet<Column> = wanted.clone();
    left.retain(|column| gives_left(join_type) && join.left.schema().has_column(column));
    right.retain(|column| gives_right(join_type) && join.right.schema().has_column(column));
    if !keeps_left {
        left.extend(left_keys);
    }
    if !keeps_right {
        right.extend(right_keys);
    }
    let left_side = below(Arc::unwrap_or_clone(join.left), &left)?;
    let right_side = below(Arc::unwrap_or_clone(join.right), &right)?;
    let is_changed = is_new || left_side.transformed || right_side.transformed;
    let join = LogicalPlan::Join(Join {
        left: Arc::new(left_side.data),
        right: Arc::new(right_side.data),
        join_type,
        ..join
    });
    Ok(match is_changed {
        true => Transformed::yes(join),
        false => Transformed::no(join),
    })
}

/// Whether a join keeps rows of its left and of its right side that have no match.
fn kept(join_type: JoinType) -> (bool, bool) {
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => (false, false),
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => (true, false),
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => (false, true),
        JoinType::Full => (true, true),
    }
}

fn gives_left(join_type: JoinType) -> bool {
    !matches!(
        join_type,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    )
}

fn gives_right(join_type: JoinType) -> bool {
    !matches!(
        join_type,
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
    )
}
