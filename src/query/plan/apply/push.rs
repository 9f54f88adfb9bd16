//! Works a subquery out for all rows outside at once.
//!
//! Comes in: the plan of a subquery, and the table of what it sees of the rows outside. Goes out: a plan that names nothing from outside, whose rows are those that the subquery has for each row of that table, with its
//! columns beside them. Never here: what the rows outside do with it.
//!
//! After T. Neumann and A. Kemper, "Unnesting Arbitrary Queries" (BTW 2015): the join with the table is pushed down through each operator, until nothing below it looks outside.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, ExprFunctionExt, FetchType, Filter, Limit,
    LogicalPlan, LogicalPlanBuilder, Projection, SkipType, Sort, SortExpr, Subquery, SubqueryAlias,
    Union, Unnest, Values, Window, lit, when,
};

use super::domain::{Domain, Keyed};
use super::reach::{has_subquery, inside, outside};
use crate::error::Error;
use crate::query::functions::ranks::row_number;

/// How deep a subquery may be.
const DEEPEST: usize = 200;

/// The subquery for each row of the table: its own columns under the names that they have, and the keys of the table.
///
/// # Errors
/// `Unsupported` for an operator of which it is not known how.
pub(super) fn pushed(domain: &Domain<'_>, plan: &LogicalPlan) -> Result<Keyed> {
    Push { domain, depth: 0 }.push(plan)
}

/// An aggregate of all rows for each row of the table that has some.
///
/// # Errors
/// As [`pushed`].
pub(super) fn pushed_groups(domain: &Domain<'_>, node: &Aggregate) -> Result<Keyed> {
    Push { domain, depth: 0 }.groups(&LogicalPlan::Aggregate(node.clone()), node)
}

/// A subquery on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Push<'a> {
    pub(super) domain: &'a Domain<'a>,
    depth: usize,
}

impl Push<'_> {
    pub(super) fn push(self, plan: &LogicalPlan) -> Result<Keyed> {
        let deeper = Self {
            depth: self.depth + 1,
            ..self
        };
        if !self.reaches(plan)? {
            return self.beside(plan);
        }
        if self.depth > DEEPEST {
            return Err(refused("of so many steps"));
        }
        match plan {
            LogicalPlan::Projection(node) => deeper.projection(plan, node),
            LogicalPlan::Filter(node) => deeper.filter(plan, node),
            LogicalPlan::Aggregate(node) => deeper.aggregate(plan, node),
            LogicalPlan::Join(node) => deeper.join(plan, node),
            LogicalPlan::SubqueryAlias(node) => deeper.alias(node),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => deeper.push(subquery),
            LogicalPlan::Sort(node) if node.fetch.is_none() => deeper.sort(plan, node),
            LogicalPlan::Limit(node) => deeper.limit(node),
            LogicalPlan::Distinct(Distinct::All(input)) => deeper.distinct(input),
            LogicalPlan::Window(node) => deeper.window(plan, node),
            LogicalPlan::Union(node) => deeper.union(node),
            LogicalPlan::Unnest(node) => deeper.unnest(node),
            LogicalPlan::Values(node) => deeper.push(&rows_apart(node)?),
            _ => Err(refused("of this form")),
        }
    }

    /// Whether a plan looks at the rows outside.
    pub(super) fn reaches(self, plan: &LogicalPlan) -> Result<bool> {
        let found = outside(plan)?;
        Ok(self
            .domain
            .columns
            .iter()
            .any(|column| found.contains_key(column)))
    }

    /// A plan that does not look outside: all its rows for each row of the table.
    fn beside(self, plan: &LogicalPlan) -> Result<Keyed> {
        let copy = self.domain.copy()?;
        if is_one_row(plan) {
            return Ok(copy);
        }
        let joined = LogicalPlanBuilder::from(copy.plan).cross_join(plan.clone())?;
        Ok(Keyed {
            plan: joined.build()?,
            keys: copy.keys,
        })
    }

    /// Expressions of a node over the input that has the keys now, under the names that they had.
    fn inside(
        self,
        node: &LogicalPlan,
        expressions: &[Expr],
        keys: &[Column],
    ) -> Result<Vec<Expr>> {
        let replaced = self.domain.replaced(keys);
        let own = merge_schema(&node.inputs());
        let names = NamePreserver::new(node);
        let expressions = expressions.iter().map(|expression| {
            let name = names.save(expression);
            Ok(name.restore(inside(expression.clone(), &replaced, &own)?))
        });
        expressions.collect()
    }

    fn projection(self, plan: &LogicalPlan, node: &Projection) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let mut columns = self.inside(plan, &node.expr, &below.keys)?;
        columns.extend(below.keys.iter().cloned().map(Expr::Column));
        let done = Projection::try_new(columns, Arc::new(below.plan))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(done),
            keys: below.keys,
        })
    }

    fn filter(self, plan: &LogicalPlan, node: &Filter) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let predicate = std::slice::from_ref(&node.predicate);
        let predicate = self.inside(plan, predicate, &below.keys)?;
        let predicate = predicate.into_iter().fold(lit(true), Expr::and);
        let done = Filter::try_new(predicate, Arc::new(below.plan))?;
        Ok(Keyed {
            plan: LogicalPlan::Filter(done),
            keys: below.keys,
        })
    }

    fn aggregate(self, plan: &LogicalPlan, node: &Aggregate) -> Result<Keyed> {
        let grouped = self.groups(plan, node)?;
        match node.group_expr.is_empty() {
            true => self.with_empty(node, grouped),
            false => Ok(grouped),
        }
    }

    fn groups(self, plan: &LogicalPlan, node: &Aggregate) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let mut groups = self.inside(plan, &node.group_expr, &below.keys)?;
        let values = self.inside(plan, &node.aggr_expr, &below.keys)?;
        let is_sets = |group: &Expr| group.exists(|part| Ok(matches!(part, Expr::GroupingSet(_))));
        if groups.iter().any(|group| is_sets(group).unwrap_or(true)) {
            return Err(refused("with GROUPING SETS, ROLLUP or CUBE"));
        }
        groups.extend(below.keys.iter().cloned().map(Expr::Column));
        let grouped = Aggregate::try_new(Arc::new(below.plan), groups, values)?;
        Ok(Keyed {
            plan: LogicalPlan::Aggregate(grouped),
            keys: below.keys,
        })
    }

    /// An aggregate of all rows has a row where there are none: with what its functions give for nothing.
    fn with_empty(self, node: &Aggregate, grouped: Keyed) -> Result<Keyed> {
        let seen = Column::from_name(format!("__seen_{}", self.domain.names.next()));
        let mut columns: Vec<Expr> = grouped
            .plan
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        columns.push(lit(true).alias(&seen.name));
        let grouped_plan = LogicalPlanBuilder::from(grouped.plan)
            .project(columns)?
            .build()?;
        let all = self.domain.copy()?;
        let same = self.domain.same(&all.keys, &grouped.keys);
        let joined = same.join(all.plan, grouped_plan, JoinType::Left)?;
        let fields = node.schema.iter().zip(&node.aggr_expr);
        let mut columns = Vec::new();
        for ((qualifier, field), function) in fields {
            let column = Column::new(qualifier.cloned(), field.name());
            let nothing = of_nothing(function, field.data_type())?;
            let value = Expr::Column(column.clone());
            let value = match nothing.is_null() {
                true => value,
                false => when(Expr::Column(seen.clone()).is_null(), lit(nothing))
                    .otherwise(value)?
                    .alias_qualified(column.relation, column.name),
            };
            columns.push(value);
        }
        columns.extend(all.keys.iter().cloned().map(Expr::Column));
        let done = Projection::try_new(columns, Arc::new(joined))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(done),
            keys: all.keys,
        })
    }

    fn alias(self, node: &SubqueryAlias) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let columns = node.schema.iter().zip(node.input.schema().columns());
        let columns = columns.map(|((qualifier, field), column)| {
            Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
        });
        let keys = below.keys.iter().cloned().map(Expr::Column);
        let done = Projection::try_new(columns.chain(keys).collect(), Arc::new(below.plan))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(done),
            keys: below.keys,
        })
    }

    fn sort(self, plan: &LogicalPlan, node: &Sort) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let expr = self.order(plan, &node.expr, &below.keys)?;
        let done = Sort {
            expr,
            input: Arc::new(below.plan),
            fetch: None,
        };
        Ok(Keyed {
            plan: LogicalPlan::Sort(done),
            keys: below.keys,
        })
    }

    fn order(
        self,
        node: &LogicalPlan,
        sorts: &[SortExpr],
        keys: &[Column],
    ) -> Result<Vec<SortExpr>> {
        let replaced = self.domain.replaced(keys);
        let own = merge_schema(&node.inputs());
        let sorts = sorts.iter().map(|sort| {
            let expr = inside(sort.expr.clone(), &replaced, &own)?;
            Ok(SortExpr {
                expr,
                ..sort.clone()
            })
        });
        sorts.collect()
    }

    /// The first rows for each row of the table, by their number in its order.
    fn limit(self, node: &Limit) -> Result<Keyed> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (node.get_skip_type()?, node.get_fetch_type()?)
        else {
            return Err(refused("whose LIMIT is no number"));
        };
        if skip == 0 && fetch.is_none() {
            return self.push(&node.input);
        }
        // What is made of each row alone is made of the rows that are left.
        if let LogicalPlan::Projection(over) = node.input.as_ref() {
            let limit = Limit {
                input: Arc::clone(&over.input),
                ..node.clone()
            };
            let limit = Arc::new(LogicalPlan::Limit(limit));
            let over = Projection::try_new(over.expr.clone(), limit)?;
            return self.push(&LogicalPlan::Projection(over));
        }
        let (input, order) = match node.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (&sort.input, sort.expr.as_slice()),
            _ => (&node.input, [].as_slice()),
        };
        let below = self.push(input)?;
        let mut order = self.order(&node.input, order, &below.keys)?;
        // What only the rows outside say is the same for all rows of one of them.
        order.retain(|by| !is_of_keys(&by.expr, &below));
        let keys = below.keys.iter().cloned().map(Expr::Column).collect();
        let (columns, answer) = made_later(node.input.schema(), &below, &order);
        let name = format!("__place_{}", self.domain.names.next());
        let mut place = row_number().partition_by(keys);
        if !order.is_empty() {
            place = place.order_by(order);
        }
        let place = place.build()?.alias(&name);
        let number = |rows: usize| lit(i64::try_from(rows).unwrap_or(i64::MAX));
        let found = || Expr::Column(Column::from_name(&name));
        let mut kept = found().gt(number(skip));
        if let Some(fetch) = fetch {
            kept = kept.and(found().lt_eq(number(skip.saturating_add(fetch))));
        }
        let plan = LogicalPlanBuilder::from(below.plan)
            .project(columns)?
            .window([place])?
            .filter(kept)?
            .project(answer)?
            .build()?;
        Ok(Keyed {
            plan,
            keys: below.keys,
        })
    }

    fn distinct(self, input: &LogicalPlan) -> Result<Keyed> {
        let below = self.push(input)?;
        let columns = own_and_keys(input.schema(), &below.keys);
        let plan = LogicalPlanBuilder::from(below.plan)
            .project(columns)?
            .distinct()?
            .build()?;
        Ok(Keyed {
            plan,
            keys: below.keys,
        })
    }

    fn window(self, plan: &LogicalPlan, node: &Window) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let keys: Vec<Expr> = below.keys.iter().cloned().map(Expr::Column).collect();
        let names = NamePreserver::new(plan);
        let functions = self.inside(plan, &node.window_expr, &below.keys)?;
        let functions = functions.into_iter().map(|function| {
            let name = names.save(&function);
            let done = function.transform_down(|part| match part {
                Expr::WindowFunction(mut function) => {
                    function.params.partition_by.extend(keys.iter().cloned());
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                part => Ok(Transformed::no(part)),
            })?;
            Ok(name.restore(done.data))
        });
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let done = Window::try_new(functions, Arc::new(below.plan))?;
        Ok(Keyed {
            plan: LogicalPlan::Window(done),
            keys: below.keys,
        })
    }

    /// Each part by itself, under the names of the whole.
    fn union(self, node: &Union) -> Result<Keyed> {
        let keys = self.domain.fresh_keys();
        let mut parts = Vec::new();
        for input in &node.inputs {
            let part = self.push(input)?;
            let own = input.schema().columns().into_iter();
            let own = own.zip(node.schema.fields());
            let own = own.map(|(column, field)| Expr::Column(column).alias(field.name()));
            let named = part.keys.iter().zip(&keys);
            let named = named.map(|(own, key)| Expr::Column(own.clone()).alias(&key.name));
            let columns = own.chain(named).collect();
            let part = Projection::try_new(columns, Arc::new(part.plan))?;
            parts.push(Arc::new(LogicalPlan::Projection(part)));
        }
        let whole = LogicalPlan::Union(Union::try_new(parts)?);
        let found = whole.schema().columns();
        let own = found.iter().zip(node.schema.iter());
        let own = own.map(|(column, (qualifier, field))| {
            Expr::Column(column.clone()).alias_qualified(qualifier.cloned(), field.name())
        });
        let rest = found.iter().skip(node.schema.fields().len()).cloned();
        let columns = own.chain(rest.map(Expr::Column)).collect();
        let done = Projection::try_new(columns, Arc::new(whole))?;
        Ok(Keyed {
            plan: LogicalPlan::Projection(done),
            keys,
        })
    }

    fn unnest(self, node: &Unnest) -> Result<Keyed> {
        let below = self.push(&node.input)?;
        let columns = own_and_keys(node.input.schema(), &below.keys);
        let input = LogicalPlanBuilder::from(below.plan).project(columns)?;
        let (columns, options) = (node.exec_columns.clone(), node.options.clone());
        let done = Unnest::try_new(Arc::new(input.build()?), columns, options)?;
        Ok(Keyed {
            plan: LogicalPlan::Unnest(done),
            keys: below.keys,
        })
    }
}

/// The columns of a plan and the keys, and nothing else.
fn own_and_keys(own: &DFSchema, keys: &[Column]) -> Vec<Expr> {
    let own = own.columns().into_iter();
    own.chain(keys.iter().cloned()).map(Expr::Column).collect()
}

/// The columns of a plan and its keys in two steps: first without those that only the keys say, then all of them. Beside a key, a column of the same values would be
/// taken for it where rows of one key are looked for. Those by which rows are ordered are made at once.
fn made_later(own: &DFSchema, below: &Keyed, order: &[SortExpr]) -> (Vec<Expr>, Vec<Expr>) {
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for column in own.columns() {
        let is_asked = order
            .iter()
            .any(|by| by.expr.column_refs().contains(&column));
        match made_of_keys(&column, below) {
            Some(made_of) if !is_asked => {
                let (made_of, relation) = (made_of.clone().unalias(), column.relation);
                all.push(made_of.alias_qualified(relation, column.name));
            }
            _ => {
                first.push(Expr::Column(column.clone()));
                all.push(Expr::Column(column));
            }
        }
    }
    for steps in [&mut first, &mut all] {
        steps.extend(below.keys.iter().cloned().map(Expr::Column));
    }
    (first, all)
}

/// Whether an expression over a plan says nothing but what its keys say.
fn is_of_keys(expression: &Expr, below: &Keyed) -> bool {
    let mut columns = expression.column_refs().into_iter();
    is_of_columns(expression)
        && columns
            .all(|column| below.keys.contains(column) || made_of_keys(column, below).is_some())
}

/// Whether columns that are named in an expression are all that it is worked out of.
fn is_of_columns(expression: &Expr) -> bool {
    !has_subquery(expression) && !expression.is_volatile()
}

/// What a column of a plan is made of, where that is nothing but its keys.
fn made_of_keys<'a>(column: &Column, below: &'a Keyed) -> Option<&'a Expr> {
    let LogicalPlan::Projection(over) = &below.plan else {
        return None;
    };
    let place = over.schema.maybe_index_of_column(column)?;
    let made_of = over.expr.get(place)?;
    let mut columns = made_of.column_refs().into_iter();
    let is_made_of_keys =
        is_of_columns(made_of) && columns.all(|column| below.keys.contains(column));
    is_made_of_keys.then_some(made_of)
}

/// Whether it is one row without columns.
pub(super) fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => {
            empty.produce_one_row && empty.schema.fields().is_empty()
        }
        _ => false,
    }
}

/// What an aggregate gives for no rows.
pub(super) fn of_nothing(
    function: &Expr,
    data_type: &arrow::datatypes::DataType,
) -> Result<ScalarValue> {
    match function {
        Expr::Alias(alias) => of_nothing(&alias.expr, data_type),
        Expr::AggregateFunction(function) => function.func.default_value(data_type),
        _ => Err(refused("with an aggregate of this form")),
    }
}

/// Rows of VALUES as queries of a row each.
pub(super) fn rows_apart(values: &Values) -> Result<LogicalPlan> {
    let columns = values.schema.columns();
    let rows = values.values.iter().map(|row| {
        let row = row.iter().zip(&columns);
        let row = row.map(|(value, column)| value.clone().alias(&column.name));
        let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: true,
            schema: Arc::new(DFSchema::empty()),
        });
        let row = Projection::try_new(row.collect(), Arc::new(nothing))?;
        Ok(Arc::new(LogicalPlan::Projection(row)))
    });
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    match (rows.pop(), rows.is_empty()) {
        (Some(only), true) => Ok(Arc::unwrap_or_clone(only)),
        (Some(last), false) => {
            rows.push(last);
            Ok(LogicalPlan::Union(Union::try_new(rows)?))
        }
        (None, _) => Err(refused("of no VALUES")),
    }
}

pub(super) fn refused(what: &str) -> datafusion::error::DataFusionError {
    let text = format!("a subquery {what} may not name columns from outside");
    Error::unsupported(text)
        .with_hint("write it as a join")
        .into()
}
