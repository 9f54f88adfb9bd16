//! Subqueries that the engine cannot make joins of: those that name columns from outside in other places than one WHERE, and those that stand in place of a value.
//!
//! Comes in: a logical plan whose types are settled. Goes out: the same plan with joins in their place; the subqueries that the engine can do, it still does. Never here: how many rows that takes, and in which order.

mod domain;
mod each;
mod grouped;
mod join;
mod push;
pub(super) mod reach;
mod site;
mod steady;
mod suited;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, JoinType, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, FetchType, Filter, Join, LogicalPlan, Projection, SkipType, Sort, Window,
};
use datafusion::optimizer::AnalyzerRule;

use self::domain::Names;
use self::each::of_each;
use self::push::rows_apart;
use self::reach::{Outside, around, has_subquery, is_lateral, outside, subquery_of, unwrapped};
use self::site::{Site, is_ordered};
use self::suited::{is_suited, is_suited_beside};
use crate::error::Error;

/// Makes joins of subqueries.
#[derive(Debug)]
pub(in crate::query) struct Apply;

impl AnalyzerRule for Apply {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_subqueries(&plan)? {
            return Ok(plan);
        }
        check_aggregates(&plan)?;
        let names = Names::default();
        let done = plan.transform_down_with_subqueries(|node| node_without(node, &names))?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "apply"
    }
}

/// Whether there are subqueries in a plan, as expressions or as the rows of a join.
pub(super) fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let mut found = matches!(node, LogicalPlan::Subquery(_));
        node.apply_expressions(|expression| {
            found |= has_subquery(expression);
            Ok(match found {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        Ok(found)
    })
}

/// Refuses aggregates over columns from outside alone: they are aggregates of the rows outside, and not of those of the subquery, where they stand.
fn check_aggregates(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            for value in &aggregate.aggr_expr {
                value.apply(check_aggregate)?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_aggregate(part: &Expr) -> Result<TreeNodeRecursion> {
    let Expr::AggregateFunction(function) = part else {
        return Ok(TreeNodeRecursion::Continue);
    };
    let mut arguments = function.params.args.iter();
    let is_of_outside = function.params.args.iter().any(Expr::contains_outer)
        && arguments.all(|argument| argument.column_refs().is_empty());
    if !is_of_outside {
        return Ok(TreeNodeRecursion::Continue);
    }
    let text = format!(
        "`{}` of columns from outside alone, in a subquery, belongs to the query outside, which is not supported",
        function.func.name()
    );
    let hint = "work it out in a query of its own and join with it; over columns of the subquery it is one of its rows";
    Err(Error::unsupported(text).with_hint(hint).into())
}

/// A node without the subqueries that the engine cannot do.
fn node_without(node: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node
        && is_lateral(join)?
    {
        if outside(&join.right)?.is_empty() {
            let mut plain = join.clone();
            plain.right = Arc::new(unwrapped(LogicalPlan::clone(&plain.right)));
            return Ok(Transformed::yes(LogicalPlan::Join(plain)));
        }
        if let Some(rows) = of_each(join, names)? {
            return Ok(Transformed::yes(rows));
        }
        let may_be_such = matches!(join.join_type, JoinType::Inner | JoinType::Left);
        return match may_be_such && !is_suited_beside(&join.right)? {
            true => Ok(Transformed::yes(Site::beside(join, names)?)),
            false => Ok(Transformed::no(node)),
        };
    }
    let mut has = false;
    node.apply_expressions(|expression| {
        has |= has_subquery(expression);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has {
        return Ok(Transformed::no(node));
    }
    let node = plainly(node, names)?;
    if !has_others(&node)? {
        return Ok(Transformed::yes(node));
    }
    let done = match node {
        LogicalPlan::Filter(filter) => of_filter(filter, names)?,
        LogicalPlan::Projection(projection) => of_projection(projection, names)?,
        LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate, names)?,
        LogicalPlan::Sort(sort) => of_sort(sort, names)?,
        LogicalPlan::Window(window) => of_window(window, names)?,
        LogicalPlan::Join(join) => of_join(join, names)?,
        LogicalPlan::Values(values) => rows_under_names(rows_apart(&values)?, &values.schema)?,
        other => other,
    };
    Ok(Transformed::yes(done))
}

/// Subqueries without what makes no difference to them: the columns of EXISTS, and its LIMIT; VALUES as a query of their columns; a name that a column beside them has, too.
fn plainly(node: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let beside = bare_names(&node);
    let kept = NamePreserver::new(&node);
    let done = node.map_expressions(|expression| {
        let name = kept.save(&expression);
        let done = expression.transform_down(|part| match &part {
            Expr::Exists(_) => Ok(Transformed::yes(around(part, |plan| Ok(any_of(plan)))?)),
            _ if subquery_of(&part).is_some() => Ok(Transformed::yes(around(part, |plan| {
                with_own_name(with_columns(plan)?, &beside, names)
            })?)),
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(done.update_data(|expression| name.restore(expression)))
    })?;
    Ok(done.data)
}

/// A plan that has rows whenever the other has.
fn any_of(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Limit(limit)
            if matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
                && matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(1..)))) =>
        {
            any_of(Arc::unwrap_or_clone(limit.input))
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => any_of(Arc::unwrap_or_clone(sort.input)),
        other => other,
    }
}

fn with_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Values(_) => {
            let columns = plan.schema().columns().into_iter().map(Expr::Column);
            let columns = columns.collect();
            let projection = Projection::try_new(columns, Arc::new(plan))?;
            Ok(LogicalPlan::Projection(projection))
        }
        other => Ok(other),
    }
}

/// The names without a table of the columns that a node reads: those of aggregates, windows and other expressions.
fn bare_names(node: &LogicalPlan) -> BTreeSet<String> {
    let inputs = node.inputs().into_iter();
    let columns = inputs.flat_map(|input| input.schema().columns());
    let bare = columns.filter(|column| column.relation.is_none());
    bare.map(|column| column.name).collect()
}

/// A plan whose one column is not called as one beside it: where both become columns of one join, the engine could not tell them apart.
fn with_own_name(
    plan: LogicalPlan,
    beside: &BTreeSet<String>,
    names: &Names,
) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let [column] = columns.as_slice() else {
        return Ok(plan);
    };
    if !beside.contains(&column.name) {
        return Ok(plan);
    }
    let renamed = Expr::Column(column.clone()).alias(format!("__own_{}", names.next()));
    projected(plan, vec![renamed])
}

/// Whether an expression of a node has a subquery that the engine cannot do.
fn has_others(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            found |= subquery_of(part).is_some() && is_ours(node, expression, part)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

fn is_ours(node: &LogicalPlan, expression: &Expr, part: &Expr) -> Result<bool> {
    match (node, part) {
        (LogicalPlan::Filter(_), Expr::SetComparison(compared)) => Ok(is_ordered(compared)),
        _ => Ok(!is_suited(node, expression, part)?),
    }
}

/// The expression of a node with other values in place of the subqueries in it.
fn replaced(
    node: &LogicalPlan,
    expression: Expr,
    site: &mut Site<'_>,
    wanted: bool,
) -> Result<Expr> {
    let whole = expression.clone();
    // A condition that stands alone keeps no row for which it is unknown.
    if wanted && subquery_of(&whole).is_some() {
        let inner = replaced_children(node, &whole, expression, site)?;
        return match is_ours(node, &whole, &whole)? {
            true => site.value(inner, true),
            false => Ok(inner),
        };
    }
    let done = expression.transform_up(|part| {
        match subquery_of(&part).is_some() && is_ours(node, &whole, &part)? {
            true => Ok(Transformed::yes(site.value(part, false)?)),
            false => Ok(Transformed::no(part)),
        }
    })?;
    Ok(done.data)
}

fn replaced_children(
    node: &LogicalPlan,
    whole: &Expr,
    expression: Expr,
    site: &mut Site<'_>,
) -> Result<Expr> {
    let done = expression.map_children(|child| {
        child.transform_up(|part| {
            match subquery_of(&part).is_some() && is_ours(node, whole, &part)? {
                true => Ok(Transformed::yes(site.value(part, false)?)),
                false => Ok(Transformed::no(part)),
            }
        })
    })?;
    Ok(done.data)
}

/// The expressions of a node over more columns, and the rows that have them.
fn all_replaced(
    node: &LogicalPlan,
    expressions: Vec<Expr>,
    site: &mut Site<'_>,
) -> Result<Vec<Expr>> {
    let names = NamePreserver::new_for_projection();
    let expressions = expressions.into_iter().map(|expression| {
        let name = names.save(&expression);
        Ok(name.restore(replaced(node, expression, site, false)?))
    });
    expressions.collect()
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}

fn of_filter(filter: Filter, names: &Names) -> Result<LogicalPlan> {
    let columns = columns_of(&filter.input);
    let node = LogicalPlan::Filter(filter.clone());
    let rows = Arc::unwrap_or_clone(filter.input);
    let mut site = Site { rows, names };
    let parts = split_conjunction_owned(filter.predicate).into_iter();
    let (others, plain): (Vec<Expr>, Vec<Expr>) = parts.partition(has_subquery);
    // What needs no subquery leaves fewer rows to work them out for.
    if let Some(plain) = conjunction(plain) {
        site.rows = LogicalPlan::Filter(Filter::try_new(plain, Arc::new(site.rows))?);
    }
    let mut conditions = Vec::new();
    for part in others {
        conditions.push(replaced(&node, part, &mut site, true)?);
    }
    let mut done = site.rows;
    if let Some(condition) = conjunction(conditions) {
        done = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(done))?);
    }
    projected(done, columns)
}

fn of_projection(projection: Projection, names: &Names) -> Result<LogicalPlan> {
    let node = LogicalPlan::Projection(projection.clone());
    let rows = Arc::unwrap_or_clone(projection.input);
    let mut site = Site { rows, names };
    let expressions = all_replaced(&node, projection.expr, &mut site)?;
    projected(site.rows, expressions)
}

fn of_aggregate(aggregate: Aggregate, names: &Names) -> Result<LogicalPlan> {
    let node = LogicalPlan::Aggregate(aggregate.clone());
    let rows = Arc::unwrap_or_clone(aggregate.input);
    let mut site = Site { rows, names };
    let groups = all_replaced(&node, aggregate.group_expr, &mut site)?;
    let values = all_replaced(&node, aggregate.aggr_expr, &mut site)?;
    let done = Aggregate::try_new(Arc::new(site.rows), groups, values)?;
    rows_under_names(LogicalPlan::Aggregate(done), &aggregate.schema)
}

/// The columns of a plan under other names.
fn rows_under_names(
    plan: LogicalPlan,
    schema: &datafusion::common::DFSchema,
) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().zip(schema.iter());
    let columns = columns.map(|(column, (qualifier, field))| {
        let is_same = column.relation.as_ref() == qualifier && column.name == *field.name();
        let column = Expr::Column(column);
        match is_same {
            true => column,
            false => column.alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    projected(plan, columns.collect())
}

fn of_sort(sort: Sort, names: &Names) -> Result<LogicalPlan> {
    let columns = columns_of(&sort.input);
    let node = LogicalPlan::Sort(sort.clone());
    let mut named = Outside::new();
    for by in &sort.expr {
        by.expr.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                named.extend(outside(&subquery.subquery)?);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let rows = with_more(Arc::unwrap_or_clone(sort.input), named.into_keys())?;
    let mut site = Site { rows, names };
    let mut expr = Vec::new();
    for by in sort.expr {
        let value = replaced(&node, by.expr.clone(), &mut site, false)?;
        expr.push(datafusion::logical_expr::SortExpr { expr: value, ..by });
    }
    let done = LogicalPlan::Sort(Sort {
        expr,
        input: Arc::new(site.rows),
        fetch: sort.fetch,
    });
    projected(done, columns)
}

/// What a projection leaves out and ORDER BY names all the same.
fn with_more(rows: LogicalPlan, named: impl Iterator<Item = Column>) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(mut projection) = rows else {
        return Ok(rows);
    };
    let (own, below) = (&projection.schema, projection.input.schema());
    let named = named.filter(|column| !own.has_column(column) && below.has_column(column));
    let more: Vec<Expr> = named.map(Expr::Column).collect();
    projection.expr.extend(more);
    let done = Projection::try_new(projection.expr, projection.input)?;
    Ok(LogicalPlan::Projection(done))
}

fn of_window(window: Window, names: &Names) -> Result<LogicalPlan> {
    let mut columns: Vec<Column> = window.input.schema().columns();
    let node = LogicalPlan::Window(window.clone());
    let rows = Arc::unwrap_or_clone(window.input);
    let mut site = Site { rows, names };
    let functions = all_replaced(&node, window.window_expr, &mut site)?;
    let added = functions.len();
    let done = LogicalPlan::Window(Window::try_new(functions, Arc::new(site.rows))?);
    let found = done.schema().columns();
    columns.extend(found.into_iter().rev().take(added).rev());
    let columns = columns.into_iter().map(Expr::Column).collect();
    rows_under_names(projected(done, columns)?, &window.schema)
}

/// Subqueries in the conditions of a join are worked out beside the side whose columns they name. What is left of them in an inner join stands above it; in one that keeps rows without a partner nothing may be left.
fn of_join(join: Join, names: &Names) -> Result<LogicalPlan> {
    let columns = columns_of(&LogicalPlan::Join(join.clone()));
    let node = LogicalPlan::Join(join.clone());
    let side = |rows: &Arc<LogicalPlan>| Site {
        rows: LogicalPlan::clone(rows),
        names,
    };
    let (mut left, mut right) = (side(&join.left), side(&join.right));
    let is_inner = join.join_type == JoinType::Inner;
    let change = |whole: Expr| {
        let named = whole.clone();
        whole.transform_up(|part| {
            if subquery_of(&part).is_none() || !is_ours(&node, &named, &part)? {
                return Ok(Transformed::no(part));
            }
            let mut needed: BTreeSet<Column> = part.column_refs().into_iter().cloned().collect();
            if let Some(subquery) = subquery_of(&part) {
                needed.extend(outside(&subquery.subquery)?.into_keys());
            }
            for site in [&mut left, &mut right] {
                let schema = site.rows.schema();
                if needed.iter().all(|column| schema.has_column(column)) {
                    let value = site.value(part, false)?;
                    return Ok(Transformed::yes(match is_inner {
                        true => value,
                        false => site.in_columns(value)?,
                    }));
                }
            }
            match is_inner {
                true => Ok(Transformed::no(part)),
                false => Err(of_both_sides(join.join_type)),
            }
        })
    };
    let filter = join.filter.map(change).transpose()?;
    let done = Join::try_new(
        Arc::new(left.rows),
        Arc::new(right.rows),
        join.on,
        filter.map(|done| done.data),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    match join.join_type {
        JoinType::Inner => above(done, columns),
        _ => projected(LogicalPlan::Join(done), columns),
    }
}

fn of_both_sides(join_type: JoinType) -> DataFusionError {
    let text = format!(
        "a subquery in ON of a {} JOIN that names columns of both sides is not supported",
        join_type.to_string().to_uppercase()
    );
    let hint = "work out what it needs of one side beside that side: JOIN (SELECT …, (SELECT …) AS value FROM …) ON …";
    Error::unsupported(text).with_hint(hint).into()
}

/// What is left of them in an inner join stands above it.
fn above(join: Join, columns: Vec<Expr>) -> Result<LogicalPlan> {
    let parts = join.filter.clone().map(split_conjunction_owned);
    let parts = parts.unwrap_or_default().into_iter();
    let (above, within): (Vec<Expr>, Vec<Expr>) = parts.partition(has_subquery);
    let mut done = join;
    done.filter = conjunction(within);
    let mut done = LogicalPlan::Join(done);
    if let Some(above) = conjunction(above) {
        done = LogicalPlan::Filter(Filter::try_new(above, Arc::new(done))?);
    }
    projected(done, columns)
}

fn projected(plan: LogicalPlan, columns: Vec<Expr>) -> Result<LogicalPlan> {
    let done = Projection::try_new(columns, Arc::new(plan))?;
    Ok(LogicalPlan::Projection(done))
}
