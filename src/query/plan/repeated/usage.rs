//! Who reads the parts that are made once.
//!
//! Comes in: optimised plans. Goes out: for each part, how many places read it, which of its columns, and how many have a condition around them that could go into the part, below its groups, if it were planned
//! for that place alone. Never here: what follows from it.

use std::collections::{BTreeMap, HashSet};

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::JoinType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, TableScan};

use super::table::RepeatedTable;

/// All parts, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Usage(BTreeMap<usize, Of>);

/// Who reads one.
#[derive(Debug, Default, Clone)]
pub(super) struct Of {
    pub(super) readers: usize,
    pub(super) filtered: usize,
    /// Sorted.
    pub(super) columns: Vec<usize>,
}

/// The columns of conditions above a node, by their places in it.
type Conditions = Vec<HashSet<usize>>;

impl Usage {
    pub(super) fn of(&self, number: usize) -> Of {
        self.0.get(&number).cloned().unwrap_or_default()
    }

    /// Takes a plan into account.
    pub(super) fn look(&mut self, plan: &LogicalPlan) -> Result<()> {
        self.below(plan, &Vec::new())
    }

    fn below(&mut self, plan: &LogicalPlan, above: &Conditions) -> Result<()> {
        plan.apply_subqueries(|subquery| {
            self.below(subquery, &Vec::new())?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let here = match plan {
            LogicalPlan::TableScan(scan) => return self.read(scan, above),
            LogicalPlan::Filter(filter) => {
                let schema = filter.input.schema();
                let terms = split_conjunction(&filter.predicate).into_iter();
                let own = terms.map(|term| {
                    let columns = term.column_refs().into_iter();
                    columns
                        .filter_map(|column| schema.maybe_index_of_column(column))
                        .collect()
                });
                above.iter().cloned().chain(own).collect()
            }
            LogicalPlan::Projection(projection) => through(above, |place| {
                let expression = projection.expr.get(place)?;
                let Expr::Column(column) = expression.clone().unalias_nested().data else {
                    return None;
                };
                projection.input.schema().maybe_index_of_column(&column)
            }),
            LogicalPlan::SubqueryAlias(_) => above.clone(),
            LogicalPlan::Aggregate(aggregate) => through(above, |place| {
                let Expr::Column(column) = aggregate.group_expr.get(place)? else {
                    return None;
                };
                aggregate.input.schema().maybe_index_of_column(column)
            }),
            LogicalPlan::Join(join) => return self.of_join(join, above),
            _ => Vec::new(),
        };
        plan.apply_children(|child| {
            self.below(child, &here)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// What a join learns of one side goes to the other like a condition on its keys, if that side is cut down itself.
    fn of_join(&mut self, join: &Join, above: &Conditions) -> Result<()> {
        let is_inner = matches!(
            join.join_type,
            JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi
        );
        let (left, right) = (join.left.as_ref(), join.right.as_ref());
        let width = left.schema().fields().len();
        let side = |keys: Vec<&Expr>, own: &LogicalPlan, other: &LogicalPlan, first: usize| {
            let last = first + own.schema().fields().len();
            let is_own = |place: &usize| (first..last).contains(place);
            let mut conditions: Conditions = match is_inner {
                true => {
                    let own = above.iter().filter(|places| places.iter().all(is_own));
                    own.map(|places| places.iter().map(|place| place - first).collect())
                        .collect()
                }
                false => Vec::new(),
            };
            if is_inner && is_cut_down(other) {
                let places = keys.into_iter().filter_map(|key| match key {
                    Expr::Column(column) => own.schema().maybe_index_of_column(column),
                    _ => None,
                });
                conditions.extend(places.map(|place| HashSet::from([place])));
            }
            conditions
        };
        let (left_keys, right_keys): (Vec<_>, Vec<_>) =
            join.on.iter().map(|(left, right)| (left, right)).unzip();
        let shown = match join.join_type {
            JoinType::RightSemi => 0,
            _ => width,
        };
        let of_left = side(left_keys, left, right, 0);
        let of_right = side(right_keys, right, left, shown);
        self.below(left, &of_left)?;
        self.below(right, &of_right)
    }

    fn read(&mut self, scan: &TableScan, above: &Conditions) -> Result<()> {
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<RepeatedTable>() else {
            return Ok(());
        };
        let every = || (0..scan.source.schema().fields().len()).collect();
        let columns: Vec<usize> = scan.projection.clone().unwrap_or_else(every);
        let free = free_columns(&table.plan());
        let of = self.0.entry(table.number()).or_default();
        of.readers += 1;
        let goes_below = |condition: &HashSet<usize>| {
            let mut places = condition.iter().map(|place| columns.get(*place));
            places.all(|column| column.is_some_and(|column| free.contains(column)))
        };
        of.filtered += usize::from(above.iter().any(goes_below));
        of.columns.extend(columns.iter().copied());
        of.columns.sort_unstable();
        of.columns.dedup();
        Ok(())
    }
}

/// Whether a plan has a condition on a table, or takes the first rows alone.
fn is_cut_down(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(_) | LogicalPlan::Limit(_) => true,
        LogicalPlan::TableScan(scan) => !scan.filters.is_empty() || scan.fetch.is_some(),
        _ => plan.inputs().into_iter().any(is_cut_down),
    }
}

/// The conditions in the places of an input, without those on what is only made here.
fn through(above: &Conditions, place_below: impl Fn(usize) -> Option<usize>) -> Conditions {
    let below = above.iter().filter_map(|condition| {
        let places = condition.iter().map(|place| place_below(*place));
        places.collect::<Option<HashSet<usize>>>()
    });
    below.collect()
}

/// The columns on which a condition may go below the groups of a plan.
fn free_columns(plan: &LogicalPlan) -> HashSet<usize> {
    let all = || (0..plan.schema().fields().len()).collect();
    match plan {
        LogicalPlan::Projection(projection) => {
            let below = free_columns(&projection.input);
            let schema = projection.input.schema();
            let is_free = |expression: &Expr| match &expression.clone().unalias_nested().data {
                Expr::Column(column) => schema
                    .maybe_index_of_column(column)
                    .is_some_and(|place| below.contains(&place)),
                _ => false,
            };
            let places = projection.expr.iter().enumerate();
            places
                .filter(|(_, expression)| is_free(expression))
                .map(|(place, _)| place)
                .collect()
        }
        LogicalPlan::SubqueryAlias(alias) => free_columns(&alias.input),
        LogicalPlan::Filter(filter) => free_columns(&filter.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => free_columns(&sort.input),
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [Expr::GroupingSet(_)] => HashSet::new(),
            keys => (0..keys.len()).collect(),
        },
        LogicalPlan::Window(window) => {
            let schema = window.input.schema();
            let is_key = |place: &usize| {
                let column = Expr::Column(schema.columns().swap_remove(*place));
                window.window_expr.iter().all(|each| {
                    let mut each = each.clone().unalias_nested().data;
                    match &mut each {
                        Expr::WindowFunction(function) => {
                            function.params.partition_by.contains(&column)
                        }
                        _ => false,
                    }
                })
            };
            (0..schema.fields().len()).filter(is_key).collect()
        }
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| free_columns(input));
            let common = |one: HashSet<usize>, other| one.intersection(&other).copied().collect();
            inputs.reduce(common).unwrap_or_default()
        }
        LogicalPlan::Distinct(_) | LogicalPlan::TableScan(_) | LogicalPlan::Join(_) => all(),
        _ => HashSet::new(),
    }
}
