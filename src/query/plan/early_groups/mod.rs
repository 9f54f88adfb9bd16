//! Groups of keys before joins that only name them: of `sum(f.x) GROUP BY d.name`, with d joined by f.id, the sums of each id come first, and the few rows that are left are joined with d and put together by name.
//!
//! Comes in: a physical plan. Goes out: the same plan, in which the first step of GROUP BY stands below inner joins with tables that bring keys and no values, wherever far fewer rows then take part in them. What
//! aggregates keep of a group passes the joins as columns; a row that meets several counts as often, as it would have before. Never here: the order of joins (`join_order.rs`), and what it costs (`saving.rs`).

mod joined;
mod ranges;
mod safe;
mod saving;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use self::joined::{Joined, replaced};
use self::safe::{has_room_for_sums, never_fails};
use self::saving::{Known, Saving};
use super::roll_up::first_step;

/// The aggregates whose states may be put together in any order and grouping.
const MERGED: [&str; 7] = ["avg", "bool_and", "bool_or", "count", "max", "min", "sum"];

/// Columns of the tables that are taken off have numbers from this on, of each table from the next multiple of it; those of what is left have lesser ones.
const TABLE: usize = 1 << 24;

type Expr = Arc<dyn PhysicalExpr>;

/// Puts the first step of groups below joins.
#[derive(Debug)]
pub(in crate::query) struct EarlyGroups;

impl PhysicalOptimizerRule for EarlyGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let early = match node.downcast_ref::<AggregateExec>() {
                Some(aggregate) if goes(aggregate) => early(aggregate)?,
                _ => None,
            };
            Ok(early.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "early_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether it is a first step, or the only one, whose groups may be made in parts.
fn goes(aggregate: &AggregateExec) -> bool {
    let keys = aggregate.group_expr();
    matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single
    ) && keys.is_single()
        && !keys.expr().is_empty()
        && !aggregate.aggr_expr().is_empty()
        && aggregate.limit_options().is_none()
        && aggregate
            .aggr_expr()
            .iter()
            .all(|function| is_merged(function))
}

/// Whether what it keeps of parts of a group may be put together in several steps.
pub(in crate::query) fn is_merged(function: &AggregateFunctionExpr) -> bool {
    MERGED.contains(&function.fun().name())
        && !function.is_distinct()
        && function.order_bys().is_empty()
}

/// A table that is joined after the groups were made.
#[derive(Clone)]
struct Named {
    table: Arc<dyn ExecutionPlan>,
    is_left: bool,
    /// A value of the table, and the one that it equals, each.
    on: Vec<(Expr, Expr)>,
    nulls: NullEquality,
}

/// An aggregate, whose joins are taken off one by one.
#[derive(Clone)]
struct Taking {
    /// What is left.
    base: Arc<dyn ExecutionPlan>,
    /// Of the last table first joined again.
    tables: Vec<Named>,
    keys: Vec<Expr>,
    arguments: Vec<Vec<Expr>>,
    filters: Vec<Option<Expr>>,
}

/// Whether the rows are those of a join, in other columns.
fn is_joined(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => is_joined(projection.input()),
        None => plan.is::<HashJoinExec>(),
    }
}

/// Takes joins off, and groups before those of them with which most is saved.
fn early(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let known = Known::new();
    let input = aggregate.input();
    if !is_joined(input) || !known.has_many_rows(input) {
        return Ok(None);
    }
    let keys = aggregate.group_expr().expr().iter();
    let functions = aggregate.aggr_expr().iter();
    let mut taking = Taking {
        base: Arc::clone(input),
        tables: Vec::new(),
        keys: keys.map(|(key, _)| Arc::clone(key)).collect(),
        arguments: functions.map(|function| function.expressions()).collect(),
        filters: aggregate.filter_expr().to_vec(),
    };
    let mut best: Option<(Saving, Taking)> = None;
    loop {
        while taking.pass_projection()? {}
        if let Some(saving) = taking.saving(&known)
            && best
                .as_ref()
                .is_none_or(|(best, _)| best.gain < saving.gain)
        {
            best = Some((saving, taking.clone()));
        }
        if !taking.take_join(&known)? {
            break;
        }
    }
    match best {
        Some((saving, taking)) => taking.joined_again(aggregate, saving.puts_together),
        None => Ok(None),
    }
}

impl Taking {
    /// What is saved by groups at this place; nothing, where they would mean something else.
    fn saving(&self, known: &Known) -> Option<Saving> {
        let varies = || self.outer().chain(self.own_sides()).any(is_volatile);
        if self.tables.is_empty() || varies() {
            return None;
        }
        let (early_keys, schema) = (self.early_keys(), self.base.schema());
        let rows = known.most_rows(&self.base)?;
        let columns = |column| ranges::of_column(&self.base, column);
        let never_fails = |value: &Expr| never_fails(value, &schema, &columns);
        let never_fail = early_keys
            .iter()
            .all(|key| never_fails(key) && is_key(key, &schema))
            && self
                .values()
                .all(|value| never_fails(value) && has_room_for_sums(value, &schema, rows));
        let tables: Vec<_> = self.tables.iter().map(|named| &named.table).collect();
        let joined = self.tables.iter().flat_map(|named| &named.on);
        let joined: Vec<Expr> = joined.map(|(_, value)| Arc::clone(value)).collect();
        let keys = [&early_keys, &joined, &self.keys].map(Vec::as_slice);
        never_fail
            .then(|| Saving::of(known, &self.base, &tables, keys))
            .flatten()
    }

    /// What aggregates are made of.
    fn values(&self) -> impl Iterator<Item = &Expr> {
        self.arguments
            .iter()
            .flatten()
            .chain(self.filters.iter().flatten())
    }

    /// The keys, and the values that tables taken off are joined by.
    fn outer(&self) -> impl Iterator<Item = &Expr> {
        let joined = self.tables.iter().flat_map(|named| &named.on);
        self.keys.iter().chain(joined.map(|(_, value)| value))
    }

    /// What is compared with those, of the tables.
    fn own_sides(&self) -> impl Iterator<Item = &Expr> {
        let joined = self.tables.iter().flat_map(|named| &named.on);
        joined.map(|(own, _)| own)
    }

    /// Puts another expression in place of each column of what is left.
    fn replace(&mut self, new: &dyn Fn(&Column) -> Option<Expr>) -> Result<()> {
        let values = self.arguments.iter_mut().flatten();
        let values = values.chain(self.filters.iter_mut().flatten());
        let joined = self.tables.iter_mut().flat_map(|named| &mut named.on);
        let outer = self.keys.iter_mut().chain(joined.map(|(_, value)| value));
        let of_base = |column: &Column| (column.index() < TABLE).then(|| new(column))?;
        for expression in values.chain(outer) {
            *expression = replaced(expression, &of_base)?;
        }
        Ok(())
    }

    fn pass_projection(&mut self) -> Result<bool> {
        let base = Arc::clone(&self.base);
        let Some(projection) = base.downcast_ref::<ProjectionExec>() else {
            return Ok(false);
        };
        let items = projection.expr();
        if items.iter().any(|item| is_volatile(&item.expr)) {
            return Ok(false);
        }
        self.replace(&|column| Some(Arc::clone(&items.get(column.index())?.expr)))?;
        self.base = Arc::clone(projection.input());
        Ok(true)
    }

    /// Takes the join off that is uppermost, if one of its sides brings no values, and nearly all rows of the other one find something in it.
    fn take_join(&mut self, known: &Known) -> Result<bool> {
        let base = Arc::clone(&self.base);
        let Some(join) = base.downcast_ref::<HashJoinExec>() else {
            return Ok(false);
        };
        let is_plain = *join.join_type() == JoinType::Inner
            && join.filter().is_none()
            && join.fetch().is_none()
            && !join.null_aware;
        let width = join.left().schema().fields().len();
        let Some(is_left) = self.side(join, width, known).filter(|_| is_plain) else {
            return Ok(false);
        };
        let (table, rest) = match is_left {
            true => (join.left(), join.right()),
            false => (join.right(), join.left()),
        };
        if !known.leaves_rows(&base, rest) {
            return Ok(false);
        }
        let first = (self.tables.len() + 1) * TABLE;
        let new = |column: &Column| -> Option<Expr> {
            let place = place_in(join, column.index())?;
            let within = if place < width { place } else { place - width };
            let is_of_table = (place < width) == is_left;
            let number = if is_of_table { first + within } else { within };
            Some(Arc::new(Column::new(column.name(), number)))
        };
        self.replace(&new)?;
        let on = join.on().iter().map(|(left, right)| match is_left {
            true => (Arc::clone(left), Arc::clone(right)),
            false => (Arc::clone(right), Arc::clone(left)),
        });
        self.tables.push(Named {
            table: Arc::clone(table),
            is_left,
            on: on.collect(),
            nulls: join.null_equality(),
        });
        self.base = Arc::clone(rest);
        Ok(true)
    }

    /// Whether the left side is the one that brings no values, or the right one; the smaller one, if neither does. No expression may be over both.
    fn side(&self, join: &HashJoinExec, width: usize, known: &Known) -> Option<bool> {
        let sides = |expression: &Expr| -> Option<[bool; 2]> {
            let mut sides = [false, false];
            for column in collect_columns(expression) {
                // Of a table that was taken off before.
                if column.index() >= TABLE {
                    continue;
                }
                match place_in(join, column.index())? < width {
                    true => sides[0] = true,
                    false => sides[1] = true,
                }
            }
            Some(sides)
        };
        let mut of_values = [false, false];
        for value in self.values() {
            let [left, right] = sides(value)?;
            of_values = [of_values[0] || left, of_values[1] || right];
        }
        for key in self.outer() {
            if sides(key)? == [true, true] {
                return None;
            }
        }
        match of_values {
            [true, true] => None,
            [true, false] => Some(false),
            [false, true] => Some(true),
            [false, false] => Some(known.rows_of(join.left())? < known.rows_of(join.right())?),
        }
    }

    /// What the rows of the base are grouped by: their own keys, and what tables are joined by.
    fn early_keys(&self) -> Vec<Expr> {
        let mut keys: Vec<Expr> = Vec::new();
        for key in self.outer() {
            let is_own = collect_columns(key)
                .iter()
                .all(|column| column.index() < TABLE);
            if is_own && !keys.iter().any(|known| known.eq(key)) {
                keys.push(Arc::clone(key));
            }
        }
        keys
    }

    /// The plan: groups by the early keys, joined with all tables, in the columns of the aggregate that it stands in place of.
    fn joined_again(
        &self,
        aggregate: &AggregateExec,
        puts_together: bool,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let early_keys = self.early_keys();
        let Some(groups) = self.groups(aggregate, &early_keys)? else {
            return Ok(None);
        };
        let num_states = groups.schema().fields().len() - early_keys.len();
        let mut joined = Joined::new(Arc::new(groups), early_keys);
        for (number, named) in self.tables.iter().enumerate().rev() {
            joined.join(number + 1, named)?;
        }
        let first = first_step(aggregate)?;
        let schema = first.schema();
        let states = joined.groups_at + joined.early_keys.len();
        let states = (states..states + num_states).map(|place| Ok(joined.column(place)));
        let keys = self.keys.iter().map(|key| joined.over(key));
        let columns = keys.chain(states).zip(schema.fields());
        let columns = columns.map(|(expr, field)| {
            Ok(ProjectionExpr {
                expr: expr?,
                alias: field.name().clone(),
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let plan: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(columns, joined.plan)?);
        let is_only = *aggregate.mode() == AggregateMode::Single;
        let plan = match is_only || puts_together {
            true => Arc::new(AggregateExec::try_new(
                match is_only {
                    true => AggregateMode::Final,
                    false => AggregateMode::PartialReduce,
                },
                aggregate.group_expr().as_final(),
                aggregate.aggr_expr().to_vec(),
                vec![None; aggregate.aggr_expr().len()],
                plan,
                aggregate.input_schema(),
            )?),
            false => plan,
        };
        let types = |schema: SchemaRef| -> Vec<_> {
            let fields = schema.fields().iter();
            fields.map(|field| field.data_type().clone()).collect()
        };
        Ok((types(plan.schema()) == types(aggregate.schema())).then_some(plan))
    }

    /// The first step over the base; none, if an aggregate would keep something else there.
    fn groups(
        &self,
        aggregate: &AggregateExec,
        early_keys: &[Expr],
    ) -> Result<Option<AggregateExec>> {
        let schema = self.base.schema();
        let mut functions = Vec::new();
        for (function, arguments) in aggregate.aggr_expr().iter().zip(&self.arguments) {
            let early =
                AggregateExprBuilder::new(Arc::new(function.fun().clone()), arguments.clone())
                    .schema(Arc::clone(&schema))
                    .alias(function.name())
                    .with_ignore_nulls(function.ignore_nulls())
                    .build()?;
            let types = |function: &AggregateFunctionExpr| -> Result<Vec<_>> {
                let fields = function.state_fields()?;
                Ok(fields
                    .iter()
                    .map(|field| field.data_type().clone())
                    .collect())
            };
            if types(&early)? != types(function)? {
                return Ok(None);
            }
            functions.push(Arc::new(early));
        }
        let mut names = HashSet::new();
        let keys = early_keys.iter().map(|key| {
            let column = key.downcast_ref::<Column>().map(Column::name);
            let name = match column.filter(|name| names.insert((*name).to_owned())) {
                Some(name) => name.to_owned(),
                // Of no column: by their names conditions find those that they are about.
                None => name_of_none(&schema, &mut names),
            };
            (Arc::clone(key), name)
        });
        let groups = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(keys.collect()),
            functions,
            self.filters.clone(),
            Arc::clone(&self.base),
            schema,
        )?;
        Ok(Some(groups))
    }
}

/// Whether groups and joins take the same values for one: not of floats, which have two zeros.
fn is_key(key: &Expr, schema: &Schema) -> bool {
    let kind = key.data_type(schema);
    kind.is_ok_and(|kind| !kind.is_floating() && !kind.is_nested())
}

/// A name that no column has, and no other key.
fn name_of_none(schema: &Schema, names: &mut HashSet<String>) -> String {
    let mut numbers = names.len()..;
    loop {
        let name = format!("key {}", numbers.next().unwrap_or_default());
        if schema.index_of(&name).is_err() && names.insert(name.clone()) {
            return name;
        }
    }
}

/// The place among the columns of both sides of a join.
fn place_in(join: &HashJoinExec, column: usize) -> Option<usize> {
    match &join.projection {
        Some(projection) => projection.get(column).copied(),
        None => Some(column),
    }
}
