//! What a subquery names of the rows around it.
//!
//! Comes in: the plan of a subquery, or an expression of one. Goes out: the columns from outside that it names, itself or through subqueries of its own, and the same with others in their place. Never here: how
//! subqueries become joins.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Subquery};

/// Columns from outside, with what is known of their values.
pub(super) type Outside = BTreeMap<Column, FieldRef>;

/// What stands for columns from outside: a column each.
pub(super) type Replaced = BTreeMap<Column, Column>;

/// The subquery that an expression is made of.
pub(in crate::query::plan) fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(found) => Some(&found.subquery),
        Expr::SetComparison(compared) => Some(&compared.subquery),
        Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// Whether there is a subquery in an expression.
pub(super) fn has_subquery(expression: &Expr) -> bool {
    let found = expression.exists(|part| Ok(subquery_of(part).is_some()));
    found.unwrap_or(true)
}

/// The same expression around another plan.
pub(in crate::query::plan) fn around(
    mut expression: Expr,
    change: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Expr> {
    let subquery = match &mut expression {
        Expr::Exists(exists) => &mut exists.subquery,
        Expr::InSubquery(found) => &mut found.subquery,
        Expr::SetComparison(compared) => &mut compared.subquery,
        Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(expression),
    };
    let plan = change(LogicalPlan::clone(&subquery.subquery))?;
    subquery.outer_ref_columns = plan.all_out_ref_exprs();
    subquery.subquery = Arc::new(plan);
    Ok(expression)
}

/// Whether the right of a join names columns of its left.
pub(in crate::query::plan) fn is_lateral(join: &Join) -> Result<bool> {
    if is_subquery(&join.right) {
        return Ok(true);
    }
    // The planner does not say so where only a subquery within names them.
    let left = join.left.schema();
    Ok(join.right.all_out_ref_exprs().is_empty()
        && outside(&join.right)?
            .keys()
            .any(|column| left.has_column(column)))
}

/// The rows of a subquery that names nothing from outside.
pub(super) fn unwrapped(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Subquery(subquery) => Arc::unwrap_or_clone(subquery.subquery),
        LogicalPlan::SubqueryAlias(mut alias) => {
            alias.input = Arc::new(unwrapped(Arc::unwrap_or_clone(alias.input)));
            LogicalPlan::SubqueryAlias(alias)
        }
        LogicalPlan::Projection(mut projection) => {
            projection.input = Arc::new(unwrapped(Arc::unwrap_or_clone(projection.input)));
            LogicalPlan::Projection(projection)
        }
        other => other,
    }
}

/// Whether rows are those of a subquery, whatever the names of its columns.
fn is_subquery(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_subquery(&alias.input),
        LogicalPlan::Projection(projection) => is_subquery(&projection.input),
        _ => false,
    }
}

/// The columns that a subquery names and does not have.
pub(super) fn outside(plan: &LogicalPlan) -> Result<Outside> {
    let mut found = Outside::new();
    plan.apply(|node| {
        let own = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::OuterReferenceColumn(field, column) = part {
                    found.insert(column.clone(), Arc::clone(field));
                }
                if let Some(subquery) = subquery_of(part) {
                    found.extend(outside_of(&subquery.subquery, &own)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        let LogicalPlan::Join(join) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if !is_lateral(join)? {
            return Ok(TreeNodeRecursion::Continue);
        }
        found.extend(outside(&join.left)?);
        found.extend(outside_of(&join.right, join.left.schema())?);
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(found)
}

/// The columns that a subquery names, and that neither it nor what is right around it has.
fn outside_of(plan: &LogicalPlan, around: &DFSchema) -> Result<Outside> {
    let mut found = outside(plan)?;
    found.retain(|column, _| !around.has_column(column));
    Ok(found)
}

/// An expression of a plan whose rows have the columns from outside now. `own` is what it has besides: names that a subquery in it may mean instead.
pub(super) fn inside(expression: Expr, replaced: &Replaced, own: &DFSchema) -> Result<Expr> {
    let inner = without(replaced, own);
    let done = expression.transform_up(|part| match part {
        Expr::OuterReferenceColumn(field, column) => Ok(match replaced.get(&column) {
            Some(key) => Transformed::yes(Expr::Column(key.clone())),
            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        }),
        part if subquery_of(&part).is_some() => Ok(Transformed::yes(around(part, |plan| {
            renamed(plan, &inner)
        })?)),
        part => Ok(Transformed::no(part)),
    })?;
    Ok(done.data)
}

/// A subquery within such a plan, which still names them from outside.
pub(super) fn renamed(plan: LogicalPlan, replaced: &Replaced) -> Result<LogicalPlan> {
    if replaced.is_empty() {
        return Ok(plan);
    }
    let done = plan.transform_down(|node| {
        let own = merge_schema(&node.inputs());
        let inner = without(replaced, &own);
        let names = NamePreserver::new(&node);
        let mut done = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = renamed_in(expression, replaced, &inner)?;
            Ok(changed.update_data(|changed| name.restore(changed)))
        })?;
        if let LogicalPlan::Join(join) = &mut done.data
            && is_lateral(join)?
        {
            let left = LogicalPlan::clone(&join.left);
            let inner = without(replaced, left.schema());
            join.left = Arc::new(renamed(left, replaced)?);
            join.right = Arc::new(renamed(LogicalPlan::clone(&join.right), &inner)?);
            done.transformed = true;
            done.tnr = TreeNodeRecursion::Jump;
        }
        if let LogicalPlan::Subquery(subquery) = &mut done.data {
            subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        }
        Ok(done)
    })?;
    Ok(done.data)
}

fn renamed_in(
    expression: Expr,
    replaced: &Replaced,
    inner: &Replaced,
) -> Result<Transformed<Expr>> {
    expression.transform_up(|part| match part {
        Expr::OuterReferenceColumn(field, column) => Ok(match replaced.get(&column) {
            Some(key) => Transformed::yes(Expr::OuterReferenceColumn(field, key.clone())),
            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        }),
        part if subquery_of(&part).is_some() => {
            Ok(Transformed::yes(around(part, |plan| renamed(plan, inner))?))
        }
        part => Ok(Transformed::no(part)),
    })
}

/// What is replaced where these columns are nearer.
fn without(replaced: &Replaced, own: &DFSchema) -> Replaced {
    let mut left = replaced.clone();
    left.retain(|column, _| !own.has_column(column));
    left
}
