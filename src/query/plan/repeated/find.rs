//! Parts of a plan that are the same.
//!
//! Comes in: a logical plan. Goes out: those that group rows and stand in it more than once. Never here: whether that pays.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, JoinType, NullEquality, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, SubqueryAlias};

/// A part of a plan, and what tells it from others that look the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    plan: LogicalPlan,
    /// Addresses of the tables that it reads, which the engine compares by name alone; nothing else gets them as long as the plan is there.
    tables: Vec<usize>,
    /// The name of a query of `WITH` that gives other rows each time: it is the same where its name stands, not where its text does.
    query: Option<String>,
}

impl Key {
    /// The key of a part that is worth being made once, and means the same wherever it stands.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        let named = match plan {
            LogicalPlan::SubqueryAlias(SubqueryAlias {
                alias: TableReference::Bare { table },
                ..
            }) => Some(table.to_string()),
            _ => None,
        };
        if named.is_none() && !groups(plan) || has_set_numbers(plan) {
            return Ok(None);
        }
        let (mut tables, mut is_own, mut is_volatile) = (Vec::new(), true, false);
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                match source_as_provider(&scan.source) {
                    Ok(table) => tables.push(Arc::as_ptr(&table).addr()),
                    Err(_) => is_own = false,
                }
            }
            node.apply_expressions(|expression| {
                is_volatile |= expression.is_volatile();
                is_own &= !expression.exists(is_of_others)?;
                Ok(continue_while(is_own || named.is_some()))
            })?;
            is_own &= !matches!(node, LogicalPlan::Subquery(_) | LogicalPlan::Statement(_));
            // Those that give other rows each time may have subqueries.
            Ok(continue_while(is_own || named.is_some()))
        })?;
        let is_own = is_own || named.is_some() && is_volatile && is_closed(plan, &mut Vec::new())?;
        let query = match (named, is_volatile) {
            (Some(name), true) => Some(name),
            (None, true) => return Ok(None),
            (_, false) if !groups(plan) => return Ok(None),
            (_, false) => None,
        };
        Ok(is_own.then(|| Self {
            plan: plan.clone(),
            tables,
            query,
        }))
    }

    /// The name of a query of `WITH` that gives other rows each time.
    pub(super) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// How many nodes the part has.
    pub(super) fn size(&self) -> usize {
        let mut nodes = 0_usize;
        let counted = self.plan.apply_with_subqueries(|_| {
            nodes += 1;
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(counted.is_ok(), "counting does not fail");
        nodes
    }
}

/// Whether a column says which set of keys a row is of. The analyzer puts `grouping()` in its place, so that nobody can ask the part for it.
fn has_set_numbers(plan: &LogicalPlan) -> bool {
    let mut fields = plan.schema().fields().iter();
    fields.any(|field| field.name() == Aggregate::INTERNAL_GROUPING_ID)
}

/// Whether an expression has a value that comes from around the part, which is another one elsewhere.
fn is_of_others(expression: &Expr) -> Result<bool> {
    Ok(matches!(
        expression,
        Expr::OuterReferenceColumn(..) | Expr::Placeholder(_)
    ))
}

/// Whether a plan needs nothing from around it but what the schemas around have.
fn is_closed(plan: &LogicalPlan, around: &mut Vec<DFSchemaRef>) -> Result<bool> {
    let mut is_closed_here = true;
    plan.apply(|node| {
        is_closed_here &= !matches!(node, LogicalPlan::Subquery(_) | LogicalPlan::Statement(_));
        let inputs = node.inputs();
        let schemas = inputs.iter().map(|input| Arc::clone(input.schema()));
        let (before, schemas) = (around.len(), schemas.collect::<Vec<_>>());
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                let subquery = match part {
                    Expr::OuterReferenceColumn(_, column) => {
                        is_closed_here &= around.iter().any(|schema| schema.has_column(column));
                        None
                    }
                    Expr::Placeholder(_) => {
                        is_closed_here = false;
                        None
                    }
                    Expr::ScalarSubquery(subquery) => Some(subquery),
                    Expr::InSubquery(within) => Some(&within.subquery),
                    Expr::Exists(within) => Some(&within.subquery),
                    Expr::SetComparison(within) => Some(&within.subquery),
                    _ => None,
                };
                if let Some(subquery) = subquery {
                    around.extend(schemas.iter().map(Arc::clone));
                    is_closed_here &= is_closed(&subquery.subquery, around)?;
                    around.truncate(before);
                }
                Ok(continue_while(is_closed_here))
            })
        })?;
        Ok(continue_while(is_closed_here))
    })?;
    Ok(is_closed_here)
}

fn continue_while(wanted: bool) -> TreeNodeRecursion {
    match wanted {
        true => TreeNodeRecursion::Continue,
        false => TreeNodeRecursion::Stop,
    }
}

/// Whether the rows of a part are groups, distinct, those of EXCEPT or INTERSECT, of windows or the first ones, so that they are fewer than what they are made of or cost more to make than to keep; and of the first ones another time might
/// give others.
fn groups(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::RecursiveQuery(_) => true,
        LogicalPlan::Projection(projection) => groups(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => groups(&alias.input),
        LogicalPlan::Filter(filter) => groups(&filter.input),
        LogicalPlan::Sort(sort) => groups(&sort.input),
        LogicalPlan::Union(union) => union.inputs.iter().any(|input| groups(input)),
        LogicalPlan::Join(_) => of_set_operation(plan).is_some(),
        _ => false,
    }
}

/// Whether nothing within is looked at: what is repeated runs anew each time.
pub(super) fn is_opaque(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::RecursiveQuery(_))
}

/// The parts that stand in the plan more than once, but for those that are left out. What stands in a part that is made once counts once.
pub(super) fn counted(plan: &LogicalPlan, left_out: &[Key]) -> Result<Vec<Key>> {
    let mut counts = HashMap::new();
    count(plan, left_out, &mut counts)?;
    let found = counts.into_iter().filter(|(_, count)| *count > 1);
    Ok(found.map(|(key, _)| key).collect())
}

fn count(
    plan: &LogicalPlan,
    left_out: &[Key],
    counts: &mut HashMap<Key, usize>,
) -> Result<TreeNodeRecursion> {
    plan.apply_with_subqueries(|node| {
        if is_opaque(node) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(key) = Key::of(node)?.filter(|key| !left_out.contains(key)) {
            let count = counts.entry(key).or_default();
            *count += 1;
            if *count > 1 {
                return Ok(TreeNodeRecursion::Jump);
            }
        }
        if let Some((left, right)) = of_set_operation(node) {
            left.apply_children(|child| count(child, left_out, counts))?;
            count(right, left_out, counts)?;
            return Ok(TreeNodeRecursion::Jump);
        }
        Ok(TreeNodeRecursion::Continue)
    })
}

/// The sides of EXCEPT and INTERSECT of distinct rows: that its left side is distinct is how the operation is known from that of all rows.
pub(super) fn of_set_operation(plan: &LogicalPlan) -> Option<(&LogicalPlan, &LogicalPlan)> {
    let LogicalPlan::Join(join) = plan else {
        return None;
    };
    let is_one = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.left.as_ref(), LogicalPlan::Distinct(_));
    is_one.then_some((join.left.as_ref(), join.right.as_ref()))
}
