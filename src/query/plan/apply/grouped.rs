//! Aggregates of all rows in place of a value.
//!
//! Comes in: a subquery that is an aggregate without groups, or what is made of one row of it. Goes out: the aggregates of each combination of the columns that it names, joined with the rows outside, and the value over them: a row
//! for which there are none to aggregate finds nothing, and has what the aggregates give for nothing. So the rows outside are read once less than where such rows are added before the join.
//! Never here: subqueries of other forms.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit, when,
};

use super::domain::Domain;
use super::push::{of_nothing, pushed_groups};
use super::reach::{has_subquery, inside, outside};
use super::site::{Site, first_column};

impl Site<'_> {
    /// The value of an aggregate of all rows; nothing for a subquery of another form, or whose rows have nothing to do with those outside.
    pub(super) fn of_groups(&mut self, plan: &LogicalPlan) -> Result<Option<Expr>> {
        let Some((aggregate, value)) = over_aggregate(plan)? else {
            return Ok(None);
        };
        let node = LogicalPlan::Aggregate(aggregate.clone());
        if outside(&node)?.is_empty() {
            return Ok(None);
        }
        let columns: Vec<Column> = outside(plan)?.into_keys().collect();
        let domain = Domain::try_new(&self.rows, columns, self.names)?;
        let grouped = pushed_groups(&domain, aggregate)?;
        let own = domain.replaced(&domain.columns);
        let columns = domain.columns.clone();
        let seen = self.fresh("seen");
        let mut beside: Vec<Expr> = grouped.keys.iter().cloned().map(Expr::Column).collect();
        let mut values = Vec::new();
        let fields = node.schema().iter().zip(&aggregate.aggr_expr);
        for ((relation, field), function) in fields {
            let column = Column::new(relation.cloned(), field.name());
            let found = self.fresh("value");
            beside.push(Expr::Column(column.clone()).alias(&found.name));
            let nothing = of_nothing(function, field.data_type())?;
            let found = Expr::Column(found);
            let found = match nothing.is_null() {
                true => found,
                false => {
                    when(Expr::Column(seen.clone()).is_null(), lit(nothing)).otherwise(found)?
                }
            };
            values.push((column, found));
        }
        beside.push(lit(true).alias(&seen.name));
        let plan = LogicalPlanBuilder::from(grouped.plan)
            .project(beside)?
            .build()?;
        self.put_beside(plan, &columns, &grouped.keys)?;
        let value = value.transform_up(|part| {
            let found = match &part {
                Expr::Column(column) => values.iter().find(|(known, _)| known == column),
                _ => None,
            };
            Ok(match found {
                Some((_, value)) => Transformed::yes(value.clone()),
                None => Transformed::no(part),
            })
        })?;
        // Columns from outside only now: one of them may have the name of an aggregate.
        Ok(Some(inside(value.data, &own, node.schema())?))
    }
}

/// The aggregate of all rows that a subquery is made of, and its value over the columns of that.
fn over_aggregate(plan: &LogicalPlan) -> Result<Option<(&Aggregate, Expr)>> {
    let mut value = Expr::Column(first_column(plan)?);
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) => {
                value = in_place(value, &node.schema, &node.expr)?;
                &node.input
            }
            LogicalPlan::SubqueryAlias(node) => {
                let columns = node.input.schema().columns().into_iter();
                let columns: Vec<Expr> = columns.map(Expr::Column).collect();
                value = in_place(value, &node.schema, &columns)?;
                &node.input
            }
            LogicalPlan::Subquery(Subquery { subquery, .. }) => subquery,
            LogicalPlan::Aggregate(node) if node.group_expr.is_empty() => {
                // What differs each time, or asks again, is worked out once for each row where it stands.
                let is_plain = !has_subquery(&value) && !value.is_volatile();
                return Ok(is_plain.then_some((node, value)));
            }
            _ => return Ok(None),
        };
    }
}

/// An expression over what the columns of a node are made of.
fn in_place(value: Expr, schema: &DFSchema, made_of: &[Expr]) -> Result<Expr> {
    let done = value.transform_up(|part| {
        let place = match &part {
            Expr::Column(column) => schema.maybe_index_of_column(column),
            _ => None,
        };
        Ok(match place.and_then(|place| made_of.get(place)) {
            Some(made_of) => Transformed::yes(made_of.clone().unalias_nested().data),
            None => Transformed::no(part),
        })
    })?;
    Ok(done.data)
}
