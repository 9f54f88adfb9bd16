//! Where the values of a column are.
//!
//! Comes in: what the tasks of a stage make, a column. Goes out: for each task the least and the greatest value that its rows may have there, as the statistics of the tiles say which it reads, if that is known.
//! Values that lie apart are with one member each: rows of one value need not be sent to meet. Never here: what becomes of exchanges (`fewer.rs`).

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion_distributed::DistributedLeafExec;

use super::border::{BorderExec, value};
use super::cuts::{Bands, Part, cut};
use crate::cluster::placement::leaf::{OfQuery, dealt_bands};
use crate::query::{Extent, Facts, GridScanExec, LookupExec};

/// The values of a column in each task. A row that a task makes has one of the values of that task, or null.
pub(in crate::cluster) struct Held(Vec<Extent>);

impl Held {
    /// How many whole numbers there are from the least to the greatest value of each task; `None` for values of other types.
    pub(in crate::cluster) fn numbers(&self) -> Option<Vec<usize>> {
        let numbers = self.0.iter().map(|extent| match &extent.bounds {
            Some((least, greatest)) => greatest.distance(least)?.checked_add(1),
            None => Some(0),
        });
        numbers.collect()
    }
}

/// What the tasks of a stage make, and a column of it.
pub(in crate::cluster) type Made = (Arc<dyn ExecutionPlan>, usize);

/// Whether the values of two columns of grids lie apart, or do after few rows were handed over, as long as all row bands are read.
pub(in crate::cluster) fn are_together(
    query: &OfQuery,
    one: (&Facts, usize),
    other: (&Facts, usize),
) -> bool {
    let num_tasks = query.members.len();
    let dealt = |(facts, column): (&Facts, usize)| {
        let grid = facts.grid();
        let (band, _) = grid.columns().locate(column as u64)?;
        let bands = 0..grid.rows().num_intervals();
        Some(dealt_bands(grid, bands, &[band], query, num_tasks))
    };
    let Some((dealt_one, dealt_other)) = dealt(one).zip(dealt(other)) else {
        return false;
    };
    let held = |(facts, column): (&Facts, usize), dealt: &[Vec<usize>]| {
        let extents = dealt.iter().map(|bands| facts.extent(bands, column));
        let is_fit = is_ordered(facts.grid().schema().fields().get(column)?.data_type());
        let extents = is_fit.then(|| extents.collect::<Option<_>>()).flatten();
        extents.map(Held)
    };
    let both = held(one, &dealt_one).zip(held(other, &dealt_other));
    if both.is_some_and(|(one, other)| are_apart(&[one, other], false)) {
        return true;
    }
    let part = |(facts, column): (&Facts, usize), dealt: &[Vec<usize>]| {
        let bands = dealt.iter().map(|bands| Bands::of(facts, bands, column));
        Part::of(bands.collect::<Option<_>>()?, false)
    };
    let both = part(one, &dealt_one).zip(part(other, &dealt_other));
    both.is_some_and(|(one, other)| cut(&[&one, &other], num_tasks).is_some())
}

/// The values of a column of what each of so many tasks makes; `None` if they are not known, or have no order that all agree on.
pub(in crate::cluster) fn held(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    num_tasks: usize,
) -> Option<Held> {
    if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
        return of_leaf(leaf, column, num_tasks);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return of_join(join, column, num_tasks);
    }
    if let Some(border) = plan.downcast_ref::<BorderExec>() {
        return of_border(border, column, num_tasks);
    }
    let (input, below) = sources(plan, column).into_iter().next()?;
    held(&input, below, num_tasks)
}

/// What a column of an operator with one input is made of.
enum Source {
    /// The column of this number of the input.
    Column(usize),
    /// That of the same number.
    Same,
}

impl Source {
    fn of(node: &dyn ExecutionPlan, column: usize) -> Option<Self> {
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            return plain(&projection.expr().get(column)?.expr);
        }
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            return match filter.projection().as_ref() {
                Some(columns) => Some(Self::Column(*columns.get(column)?)),
                None => Some(Self::Same),
            };
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            let groups = aggregate.group_expr();
            return match groups.is_single() {
                true => plain(&groups.expr().get(column)?.0),
                false => None,
            };
        }
        let windows = node
            .downcast_ref::<WindowAggExec>()
            .map(|node| node.input());
        let bounded = node.downcast_ref::<BoundedWindowAggExec>();
        if let Some(input) = windows.or_else(|| bounded.map(|node| node.input())) {
            return (column < input.schema().fields().len()).then_some(Self::Same);
        }
        let hands_on = node.is::<CooperativeExec>()
            || node.is::<LookupExec>()
            || node.is::<RepartitionExec>()
            || node.is::<CoalescePartitionsExec>()
            || node.is::<SortExec>();
        hands_on.then_some(Self::Same)
    }
}

fn plain(expression: &Arc<dyn PhysicalExpr>) -> Option<Source> {
    let column = expression.downcast_ref::<Column>()?;
    Some(Source::Column(column.index()))
}

/// The inputs of an operator of the same task whose rows its column comes of, in the order in which they are asked: one, or those of a join. Of exchanges there is none.
pub(in crate::cluster) fn sources(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Vec<Made> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return sides(join, column);
    }
    let below = match Source::of(plan.as_ref(), column) {
        None => return Vec::new(),
        Some(Source::Column(below)) => below,
        Some(Source::Same) => column,
    };
    let input = plan.children().into_iter().next();
    let input = input.map(|input| (Arc::clone(input), below));
    input.into_iter().collect()
}

/// Rows of a join come from the rows of both sides that its task has; whatever side has no values that lie apart, equal keys have those of the other.
fn of_join(join: &HashJoinExec, column: usize, num_tasks: usize) -> Option<Held> {
    let sides = sides(join, column).into_iter();
    let mut of_sides = sides.filter_map(|(side, place)| held(&side, place, num_tasks));
    of_sides.find(|held| are_apart(std::slice::from_ref(held), true))
}

/// The side of a join that a column comes from, and those whose keys are equal to it.
fn sides(join: &HashJoinExec, column: usize) -> Vec<Made> {
    let column = match join.projection.as_ref().map(|columns| columns.get(column)) {
        Some(None) => return Vec::new(),
        Some(Some(column)) => *column,
        None => column,
    };
    let (left, right) = (join.left(), join.right());
    let left_columns = left.schema().fields().len();
    let (is_left, place) = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, column),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (false, column),
        _ if column < left_columns => (true, column),
        _ => (false, column - left_columns),
    };
    let side = |is_left: bool, place: usize| {
        let (side, has_nulls) = match is_left {
            true => (
                left,
                matches!(join.join_type(), JoinType::Right | JoinType::Full),
            ),
            false => (
                right,
                matches!(join.join_type(), JoinType::Left | JoinType::Full),
            ),
        };
        let is_its_own = place < side.schema().fields().len() && !has_nulls;
        is_its_own.then(|| (Arc::clone(side), place))
    };
    let joins = matches!(
        join.join_type(),
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi
    );
    let keys = joins.then(|| join.on().iter()).into_iter().flatten();
    let keys = keys.filter_map(|(left, right)| {
        let left = left.downcast_ref::<Column>()?.index();
        let right = right.downcast_ref::<Column>()?.index();
        match is_left {
            true => (left == place).then_some(right),
            false => (right == place).then_some(left),
        }
    });
    let others = keys.filter_map(|other| side(!is_left, other));
    side(is_left, place).into_iter().chain(others).collect()
}

fn of_leaf(leaf: &DistributedLeafExec, column: usize, num_tasks: usize) -> Option<Held> {
    let schema = leaf.original().schema();
    let kind = schema.fields().get(column)?.data_type();
    if leaf.variants().len() != num_tasks || !is_ordered(kind) {
        return None;
    }
    let scans = leaf.variants().iter();
    let extents = scans.map(|scan| scan.downcast_ref::<GridScanExec>()?.extent(column));
    Some(Held(extents.collect::<Option<_>>()?))
}

fn of_border(border: &BorderExec, column: usize, num_tasks: usize) -> Option<Held> {
    let known = border.border();
    if known.column != column || known.spans.len() != num_tasks {
        return None;
    }
    let schema = border.schema();
    let kind = schema.fields().get(column)?.data_type();
    let extents = known.spans.iter().map(|span| {
        let bounds = match span {
            Some((first, last)) => Some((value(*first, kind).ok()?, value(*last, kind).ok()?)),
            None => None,
        };
        let has_nulls = false;
        Some(Extent { bounds, has_nulls })
    });
    Some(Held(extents.collect::<Option<_>>()?))
}

/// Whether all operators compare values of a type alike: of floats some take -0.0 for 0.0.
fn is_ordered(kind: &DataType) -> bool {
    kind.is_integer()
        || kind.is_decimal()
        || kind.is_string()
        || matches!(
            kind,
            DataType::Boolean
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
        )
}

/// Whether no value is in two tasks, of all these columns together. Nulls are values as well for whoever groups by them.
pub(in crate::cluster) fn are_apart(all: &[Held], counts_nulls: bool) -> bool {
    let num_tasks = all.first().map_or(0, |held| held.0.len());
    let of_task = |task: usize| all.iter().filter_map(move |held| held.0.get(task));
    let tasks_of_nulls =
        (0..num_tasks).filter(|task| of_task(*task).any(|extent| extent.has_nulls));
    if counts_nulls && tasks_of_nulls.count() > 1 {
        return false;
    }
    let mut spans: Vec<(&ScalarValue, &ScalarValue)> = Vec::new();
    for task in 0..num_tasks {
        let bounds = of_task(task).filter_map(|extent| extent.bounds.as_ref());
        let mut span: Option<(&ScalarValue, &ScalarValue)> = None;
        for (least, greatest) in bounds {
            let (from, to) = span.get_or_insert((least, greatest));
            match (least.partial_cmp(from), greatest.partial_cmp(to)) {
                (None, _) | (_, None) => return false,
                (less, more) => {
                    if less == Some(Ordering::Less) {
                        *from = least;
                    }
                    if more == Some(Ordering::Greater) {
                        *to = greatest;
                    }
                }
            }
        }
        spans.extend(span);
    }
    // Values of two types have no order, and lie apart from nothing.
    spans.sort_by(|one, other| one.0.partial_cmp(other.0).unwrap_or(Ordering::Equal));
    let mut pairs = spans.windows(2);
    pairs.all(
        |pair| matches!(pair, [one, next] if one.1.partial_cmp(next.0) == Some(Ordering::Less)),
    )
}
