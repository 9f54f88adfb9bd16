//! What a statement says in several places, made once.
//!
//! Comes in: a logical plan that nothing was done to. Goes out: the same plan, optimised, in which groups, windows, distinct rows and those of EXCEPT and INTERSECT that stand in it more than once (a query of `WITH`, a view, or text
//! that was written twice) are a table, which all of them read. Where conditions around every one of these places would take rows away before they are grouped, each is planned for itself, as before.
//! Never here: keeping rows (`exec/spool/`).

#[cfg(feature = "distributed")]
mod few;
mod find;
mod table;
mod usage;

use std::cmp::Reverse;
use std::sync::Arc;

use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

#[cfg(feature = "distributed")]
pub(in crate::query) use few::made_once_of_few;
use find::{Key, counted};
pub(super) use table::RepeatedTable;
use usage::Usage;

/// How often a statement is planned anew without what does not pay.
const MAX_ROUNDS: usize = 4;

/// The optimised plan; `None` for one that says nothing twice that is worth making once.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn made_once(
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Option<LogicalPlan>> {
    let mut left_out: Vec<Key> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut found = counted(logical, &left_out)?;
        // A view is looked up anew in each place.
        found.retain(|key| !key.query().is_some_and(|name| is_table(state, name)));
        if found.is_empty() {
            return Ok(None);
        }
        let mut tables = Tables {
            found,
            made: Vec::new(),
        };
        let plan = tables.replaced(logical.clone())?;
        // Those that read others are larger than these.
        tables.made.sort_by_key(|(key, _)| Reverse(key.size()));
        tables.optimise(state)?;
        let plan = state.optimize(&plan)?;
        let wrong = tables.that_do_not_pay(&plan)?;
        if wrong.is_empty() {
            tables.narrow(state, &plan)?;
            return Ok(Some(plan));
        }
        left_out.extend(wrong);
    }
    Ok(None)
}

/// Whether a plan gives other rows each time, so that what stands in it twice has to be made once.
///
/// # Errors
/// None of the user's.
pub(in crate::query) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut is_volatile = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            is_volatile |= expression.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match is_volatile {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(is_volatile)
}

/// Whether there is a table or a view of that name.
fn is_table(state: &SessionState, name: &str) -> bool {
    let schema = state.schema_for_ref(TableReference::bare(name));
    schema.is_ok_and(|schema| schema.table_exist(name))
}

/// The tables that are made of a plan.
struct Tables {
    found: Vec<Key>,
    /// What each stands for; once all are there, those that others read come after these.
    made: Vec<(Key, Arc<RepeatedTable>)>,
}

impl Tables {
    /// The plan that reads tables.
    fn replaced(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let replaced = plan.transform_down_with_subqueries(|node| {
            if find::is_opaque(&node) {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            let changed = match Key::of(&node)?.filter(|key| self.found.contains(key)) {
                Some(key) => self.read(key, node)?,
                None if find::of_set_operation(&node).is_some() => self.below(node)?.data,
                None => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::new(changed, true, TreeNodeRecursion::Jump))
        });
        Ok(replaced?.data)
    }

    /// The node over plans that read tables. The distinct side of a set operation stays, by which it is known.
    fn below(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        // Of a set operation that is the first child.
        let mut is_distinct_side = find::of_set_operation(&node).is_some();
        let node = node.map_children(|child| match std::mem::take(&mut is_distinct_side) {
            true => self.below(child),
            false => Ok(Transformed::yes(self.replaced(child)?)),
        })?;
        let node = node.data;
        node.map_subqueries(|child| Ok(Transformed::yes(self.replaced(child)?)))
    }

    /// What reads the table of this part of the plan, with the same columns.
    fn read(&mut self, key: Key, part: LogicalPlan) -> Result<LogicalPlan> {
        let schema = Arc::clone(part.schema());
        let known = self.made.iter().find(|(known, _)| *known == key);
        let table = match known {
            Some((_, table)) => Arc::clone(table),
            None => {
                let place = self.made.len();
                let table = Arc::new(RepeatedTable::new(place + 1, schema.as_arrow()));
                self.made.push((key, Arc::clone(&table)));
                // It may say things several times itself.
                table.stands_for(numbered(self.below(part)?.data)?);
                table
            }
        };
        let name = TableReference::bare(table.name());
        let source = provider_as_source(table);
        let scan = LogicalPlanBuilder::scan(name, source, None)?.build()?;
        let columns: Vec<Expr> = schema
            .iter()
            .enumerate()
            .map(|(number, (qualifier, field))| {
                let column = Expr::Column(Column::from(scan.schema().qualified_field(number)));
                column.alias_qualified(qualifier.cloned(), field.name())
            })
            .collect();
        LogicalPlanBuilder::from(scan).project(columns)?.build()
    }

    /// Optimises what tables stand for, those first that others read, which then know how many rows there are.
    fn optimise(&self, state: &SessionState) -> Result<()> {
        let mut made = self.made.iter().rev();
        made.try_for_each(|(_, table)| table.optimise(state))
    }

    /// What is read in one place only, or in no place without a condition that takes rows away before they are grouped, or has other types than it seemed to have.
    fn that_do_not_pay(&self, plan: &LogicalPlan) -> Result<Vec<Key>> {
        let usage = self.usage(plan)?;
        let wrong = self.made.iter().filter(|(key, table)| {
            let usage = usage.of(table.number());
            let is_less_for_all = usage.filtered == usage.readers && key.query().is_none();
            usage.readers < 2 || is_less_for_all || !table.has_its_schema()
        });
        Ok(wrong.map(|(key, _)| key.clone()).collect())
    }

    fn usage(&self, plan: &LogicalPlan) -> Result<Usage> {
        let mut usage = Usage::default();
        usage.look(plan)?;
        for (_, table) in &self.made {
            usage.look(&table.plan())?;
        }
        Ok(usage)
    }

    /// Takes columns away that nobody reads.
    fn narrow(&self, state: &SessionState, plan: &LogicalPlan) -> Result<()> {
        let mut usage = Usage::default();
        usage.look(plan)?;
        // Each before those that it reads.
        for (_, table) in &self.made {
            table.narrow(state, &usage.of(table.number()).columns)?;
            usage.look(&table.plan())?;
        }
        Ok(())
    }
}

/// The rows of a plan in columns that are named by their numbers: names of a table are unique.
fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().enumerate();
    let columns = columns.map(|(number, column)| Expr::Column(column).alias(number.to_string()));
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
