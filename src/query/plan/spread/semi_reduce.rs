//! Semi joins below aggregations, and below inputs that are sent whole, in clusters.
//!
//! Comes in: a logical plan for several processes. Goes out: the same plan, in which an input of a join has lost rows that the join drops anyway before it is grouped or sent: those whose keys are not among the
//! few that the other input can have (a semijoin reduction; for correlated subqueries, magic sets). In one process the join tells the scans below which rows it wants; between processes nobody does. Never here:
//! keys of which no process has a value of another, so that the join runs where its rows are; inputs of inner joins with nothing but inner joins between them and their scans (`plan/semi_early.rs`, `plan/join_order.rs`); one process.

use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder, TableScan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::query::plan::statistics::cardinality::{distinct_of, rows_of};
use crate::query::plan::statistics::facts::Facts;
use crate::query::spread::Spread;
use crate::query::table::GridTable;

/// With what the names of the inputs begin that say which keys are wanted; a plan that has one is not looked at again.
const REDUCER: &str = "__reducer";

/// An input of fewer rows is sooner sent than reduced.
const FEWEST_ROWS: f64 = 65_536.0;

/// What it costs to group or send a row, where reading it costs 1.
const SENDING: f64 = 4.0;

/// A reduction must save so many times what it costs.
const GAIN: f64 = 2.0;

/// Of so many rows with the same key, where no more than the key is wanted, one is sooner sent than all.
const MANY_ROWS: f64 = 8.0;

/// Drops rows that a join drops before they are grouped or sent.
#[derive(Debug)]
pub(in crate::query) struct SemiReduce {
    /// How many processes there are, each of which hears all keys that are wanted.
    pub(in crate::query) copies: usize,
    /// Who knows what they have.
    pub(in crate::query) spread: Arc<dyn Spread>,
}

impl OptimizerRule for SemiReduce {
    fn name(&self) -> &'static str {
        "semi_reduce"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let is_plain = join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware;
        for is_left in [true, false] {
            let crossing = crossing(join.join_type, is_left);
            let Some(crossing) = crossing.filter(|_| is_plain) else {
                continue;
            };
            if let Some(wanted) = self.best(join, is_left, crossing) {
                let alias = config.alias_generator().next(REDUCER);
                return Ok(Transformed::yes(reduced(join, is_left, &wanted, &alias)?));
            }
        }
        Ok(Transformed::no(plan))
    }
}

/// When an input of a join may be reduced to the keys of the other one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crossing {
    /// Always.
    Any,
    /// If an aggregation is on the way to its rows; else the join itself tells its scans.
    Aggregation,
}

fn crossing(join_type: JoinType, is_left: bool) -> Option<Crossing> {
    match (join_type, is_left) {
        (JoinType::Inner, _) => Some(Crossing::Aggregation),
        (JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti, false)
        | (JoinType::Right | JoinType::RightSemi | JoinType::RightAnti, true) => {
            Some(Crossing::Any)
        }
        _ => None,
    }
}

/// A key of an input, and what has all values of it that are wanted.
struct Wanted {
    key: Column,
    source: LogicalPlan,
    of_source: Column,
    gain: f64,
    /// How many rows of the input have the same key, on average.
    rows_of_a_value: f64,
}

impl SemiReduce {
    /// What saves most, if it saves enough.
    fn best(&self, join: &Join, is_left: bool, crossing: Crossing) -> Option<Wanted> {
        let (input, other) = match is_left {
            true => (&join.left, &join.right),
            false => (&join.right, &join.left),
        };
        let mut best: Option<Wanted> = None;
        for (left, right) in &join.on {
            let (key, of_other) = if is_left {
                (left, right)
            } else {
                (right, left)
            };
            let (Expr::Column(key), Expr::Column(of_other)) = (key, of_other) else {
                continue;
            };
            let Some(place) = Place::of(input, key, false) else {
                continue;
            };
            if crossing == Crossing::Aggregation && !place.is_below_aggregation {
                continue;
            }
            if self.are_together((place.input, &place.key), (other, of_other)) {
                continue;
            }
            let mut sources = Vec::new();
            find_sources(other, of_other, &mut sources);
            for (source, of_source) in sources {
                let gain = self.gain(&place, source, &of_source).unwrap_or_default();
                if gain > best.as_ref().map_or(0.0, |best| best.gain) {
                    best = Some(Wanted {
                        key: key.clone(),
                        source: source.clone(),
                        of_source,
                        gain,
                        rows_of_a_value: rows_of_a_value(&place).unwrap_or_default(),
                    });
                }
            }
        }
        best
    }

    /// Whether a join by these keys runs where its rows are.
    fn are_together(&self, one: (&LogicalPlan, &Column), other: (&LogicalPlan, &Column)) -> bool {
        let (one, other) = (origin(one.0, one.1), origin(other.0, other.1));
        let Some(((one, one_key), (other, other_key))) = one.zip(other) else {
            return false;
        };
        with_table(one, |one| {
            with_table(other, |other| {
                let columns = column_of(one, &one_key).zip(column_of(other, &other_key));
                columns.is_some_and(|(one, other)| self.spread.are_together(one, other))
            })
        })
    }

    /// What it saves to read only rows with keys of a source; `None` when that is not enough, or nobody can tell.
    fn gain(&self, place: &Place<'_>, source: &LogicalPlan, key: &Column) -> Option<f64> {
        let rows = rows_of(place.input)?;
        let values = distinct_of(place.input, &place.key)?.max(1.0);
        let wanted = rows_of(source)?;
        let wanted = distinct_of(source, key).map_or(wanted, |distinct| distinct.min(wanted));
        if rows < FEWEST_ROWS || !is_steady(source) {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let copies = self.copies as f64;
        let saved = rows * (1.0 - wanted / values) * SENDING;
        let cost = rows_read(source)? + wanted * copies * SENDING;
        (saved > cost * GAIN).then_some(saved - cost)
    }
}

fn rows_of_a_value(place: &Place<'_>) -> Option<f64> {
    let values = distinct_of(place.input, &place.key)?;
    Some(rows_of(place.input)? / values.max(1.0))
}

/// Where the rows of an input come from, by one of its columns.
struct Place<'a> {
    input: &'a LogicalPlan,
    key: Column,
    is_below_aggregation: bool,
}

impl<'a> Place<'a> {
    /// As far down as a row with a key is there because of rows with that key, and no others.
    fn of(plan: &'a LogicalPlan, key: &Column, is_below_aggregation: bool) -> Option<Self> {
        let is_done = match plan {
            LogicalPlan::Join(join) => is_reducer(&join.right),
            _ => is_reducer(plan),
        };
        if is_done || is_float(plan, key) {
            return None;
        }
        let is_aggregation = matches!(plan, LogicalPlan::Aggregate(_));
        match below(plan, key) {
            Some((number, key)) => {
                let input = plan.inputs().into_iter().nth(number)?;
                Self::of(input, &key, is_below_aggregation || is_aggregation)
            }
            None => Some(Self {
                input: plan,
                key: key.clone(),
                is_below_aggregation,
            }),
        }
    }
}

/// The table that a column of a plan comes from, with its name there.
fn origin<'a>(plan: &'a LogicalPlan, key: &Column) -> Option<(&'a TableScan, Column)> {
    if let LogicalPlan::TableScan(scan) = plan {
        return Some((scan, key.clone()));
    }
    let (number, key) = below(plan, key)?;
    origin(plan.inputs().into_iter().nth(number)?, &key)
}

fn column_of<'a>(table: &'a GridTable, key: &Column) -> Option<(&'a Facts, usize)> {
    let facts = table.facts();
    Some((facts, facts.grid().schema().index_of(&key.name).ok()?))
}

fn with_table(scan: &TableScan, is_so: impl FnOnce(&GridTable) -> bool) -> bool {
    let provider = source_as_provider(&scan.source);
    let provider = provider.as_ref().ok();
    let table = provider.and_then(|provider| provider.downcast_ref::<GridTable>());
    table.is_some_and(is_so)
}

/// Whether a plan says which keys are wanted.
fn is_reducer(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(REDUCER),
        _ => false,
    }
}

/// Of several values of a float that are equal, a group has one.
fn is_float(plan: &LogicalPlan, key: &Column) -> bool {
    let field = plan.schema().field_from_column(key);
    field.is_ok_and(|field| field.data_type().is_floating())
}

/// The number of the input, and the column of it, by which rows may be left out in place of rows of the plan with this key.
fn below(plan: &LogicalPlan, key: &Column) -> Option<(usize, Column)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let place = projection.schema.maybe_index_of_column(key)?;
            Some((0, plain(projection.expr.get(place)?)?))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let place = alias.schema.maybe_index_of_column(key)?;
            let (table, field) = alias.input.schema().qualified_field(place);
            Some((0, Column::new(table.cloned(), field.name())))
        }
        LogicalPlan::Filter(filter) => {
            let is_steady = !filter.predicate.is_volatile();
            is_steady.then(|| (0, key.clone()))
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => Some((0, key.clone())),
        LogicalPlan::Aggregate(aggregate) => {
            let place = aggregate.schema.maybe_index_of_column(key)?;
            let is_set = aggregate
                .group_expr
                .iter()
                .any(|group| matches!(group, Expr::GroupingSet(_)));
            let group = aggregate.group_expr.get(place).filter(|_| !is_set)?;
            Some((0, plain(group)?))
        }
        LogicalPlan::Join(join) => {
            let keeps_left = matches!(
                join.join_type,
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
            );
            let keeps_right = matches!(
                join.join_type,
                JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti
            );
            let is_steady = !join.filter.as_ref().is_some_and(Expr::is_volatile);
            match (
                join.left.schema().has_column(key),
                join.right.schema().has_column(key),
            ) {
                (true, false) if keeps_left && is_steady => Some((0, key.clone())),
                (false, true) if keeps_right && is_steady => Some((1, key.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The column that an expression is, whatever it is called.
fn plain(expression: &Expr) -> Option<Column> {
    match expression {
        Expr::Column(column) => Some(column.clone()),
        Expr::Alias(alias) => plain(&alias.expr),
        _ => None,
    }
}

/// All parts of a plan of which a column has every value that the column of the plan has, with its name there.
fn find_sources<'a>(
    plan: &'a LogicalPlan,
    key: &Column,
    sources: &mut Vec<(&'a LogicalPlan, Column)>,
) {
    if matches!(
        plan,
        LogicalPlan::TableScan(_) | LogicalPlan::Filter(_) | LogicalPlan::Join(_)
    ) {
        sources.push((plan, key.clone()));
    }
    if let LogicalPlan::Join(join) = plan
        && join.null_equality == NullEquality::NullEqualsNothing
    {
        // Of rows that a join gives, both keys are equal.
        for (left, right) in &join.on {
            let (Some(left), Some(right)) = (plain(left), plain(right)) else {
                continue;
            };
            let gives_equal = matches!(
                join.join_type,
                JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi
            );
            if gives_equal && left == *key {
                find_sources(&join.right, &right, sources);
            } else if gives_equal && right == *key {
                find_sources(&join.left, &left, sources);
            }
        }
    }
    if let Some((number, key)) =
        below(plan, key).filter(|_| !matches!(plan, LogicalPlan::Aggregate(_)))
        && let Some(input) = plan.inputs().into_iter().nth(number)
    {
        find_sources(input, &key, sources);
    }
}

/// Whether it gives the same rows each time, of which it is asked for all.
fn is_steady(plan: &LogicalPlan) -> bool {
    let mut is_steady = true;
    let seen = plan.apply(|node| {
        let is_known = match node {
            LogicalPlan::TableScan(scan) => {
                scan.fetch.is_none() && !scan.filters.iter().any(Expr::is_volatile)
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Join(_) => !node.expressions().iter().any(Expr::is_volatile),
            _ => false,
        };
        is_steady &= is_known;
        Ok(match is_known {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    seen.is_ok() && is_steady
}

/// How many rows are read for a plan.
fn rows_read(plan: &LogicalPlan) -> Option<f64> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let mut whole = scan.clone();
            whole.filters.clear();
            rows_of(&LogicalPlan::TableScan(whole))
        }
        _ => plan.inputs().into_iter().map(rows_read).sum(),
    }
}

/// The join with one input reduced.
fn reduced(join: &Join, is_left: bool, wanted: &Wanted, alias: &str) -> Result<LogicalPlan> {
    let source = LogicalPlanBuilder::from(wanted.source.clone())
        .project([Expr::Column(wanted.of_source.clone())])?
        .alias(alias)?
        .build()?;
    let input = if is_left { &join.left } else { &join.right };
    let mut input = put(input, &wanted.key, &Arc::new(source))?;
    if wanted.rows_of_a_value >= MANY_ROWS
        && let Some(keys) = keys_alone(join, is_left)
    {
        let none: [Expr; 0] = [];
        input = LogicalPlanBuilder::from(input)
            .aggregate(keys, none)?
            .build()?;
    }
    let input = Arc::new(input);
    let mut join = join.clone();
    match is_left {
        true => join.left = input,
        false => join.right = input,
    }
    Ok(LogicalPlan::Join(join))
}

/// The keys of an input of which a join wants to know nothing but whether there is a row with them: one of each is enough to be sent.
fn keys_alone(join: &Join, is_left: bool) -> Option<Vec<Expr>> {
    let is_fit = match is_left {
        true => matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti),
        false => matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti),
    };
    let keys = join.on.iter();
    let keys = keys.map(|(left, right)| if is_left { left } else { right });
    let input = if is_left { &join.left } else { &join.right };
    let is_exact = |key: &Expr| matches!(key, Expr::Column(key) if !is_float(input, key));
    let are_columns = keys.clone().all(is_exact);
    (is_fit && join.filter.is_none() && are_columns).then(|| {
        let mut all: Vec<Expr> = Vec::new();
        for key in keys {
            if !all.contains(key) {
                all.push(key.clone());
            }
        }
        all
    })
}

/// The plan with a semi join against the source where [`Place::of`] ends.
fn put(plan: &LogicalPlan, key: &Column, source: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    if let Some((number, inner)) = below(plan, key) {
        let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
        if let Some(input) = inputs.get_mut(number) {
            *input = put(input, &inner, source)?;
        }
        return plan.with_new_exprs(plan.expressions(), inputs);
    }
    let of_source = source.schema().columns().into_iter();
    let on = of_source.map(|wanted| (Expr::Column(key.clone()), Expr::Column(wanted)));
    let join = Join::try_new(
        Arc::new(plan.clone()),
        Arc::clone(source),
        on.collect(),
        None,
        JoinType::LeftSemi,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}
