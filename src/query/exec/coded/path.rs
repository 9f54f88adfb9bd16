//! Where keys of groups come from.
//!
//! Comes in: the input of an aggregate, and which of its columns are keys. Goes out: the same input, in which the keys that come of a small table below a join are coded before the join, and which columns have the codes. Only of columns that nothing looks at on the way: conditions, other keys, what joins compare. Never here: the aggregate.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, ReplaceChildrenOptions};

use super::dictionary::Dictionary;
use super::encode::KeyEncodeExec;

/// A table has at most this part of the rows that are grouped.
const PART: usize = 4;

/// And no more than these: keys of all of them are kept, and looked up one thread after the other.
const MOST_ROWS: usize = 1 << 20;

/// The part of the memory limit that keys of one table may take, and about how many bytes one of them does.
const PART_OF_MEMORY: usize = 16;
const BYTES_OF_A_KEY: usize = 64;

/// A key of groups that is a column of an operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) column: usize,
    /// Its number among the keys of the groups.
    pub(super) number: usize,
}

/// Keys of one table.
#[derive(Debug)]
pub(super) struct Coded {
    /// Where their codes are.
    pub(super) column: usize,
    /// Their numbers among the keys of the groups.
    pub(super) keys: Vec<usize>,
    pub(super) dictionary: Arc<Dictionary>,
}

/// Looks for tables.
pub(super) struct Tables {
    known: StatisticsContext,
    /// The most rows of one.
    most_rows: usize,
    /// The most keys of all its rows.
    most_keys: usize,
}

impl Tables {
    /// For the input of an aggregate, within a memory limit in bytes; `None` where too few rows come of it, or nobody can tell.
    pub(super) fn below(
        input: &Arc<dyn ExecutionPlan>,
        least_rows: usize,
        limit: usize,
    ) -> Option<Self> {
        let mut tables = Self {
            known: StatisticsContext::new(),
            most_rows: 0,
            most_keys: limit / PART_OF_MEMORY / BYTES_OF_A_KEY,
        };
        let rows = tables
            .rows_below(input)
            .filter(|rows| *rows >= least_rows)?;
        tables.most_rows = MOST_ROWS.min(rows / PART);
        Some(tables)
    }

    /// About how many rows come out of an operator that is no aggregate; of a semi join, of which nothing is known, half of those that it looks up.
    fn rows_below(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let kept = match join.join_type() {
                JoinType::LeftSemi | JoinType::LeftAnti => Some(join.left()),
                JoinType::RightSemi | JoinType::RightAnti => Some(join.right()),
                _ => None,
            };
            if let Some(kept) = kept {
                return Some(self.rows_below(kept)? / 2);
            }
        }
        let is_same = plan.is::<ProjectionExec>()
            || plan.is::<RepartitionExec>()
            || plan.is::<CooperativeExec>()
            || plan.is::<CoalescePartitionsExec>();
        match plan.children().first() {
            Some(input) if is_same => self.rows_below(input),
            _ => self.rows_of(plan),
        }
    }

    /// About how many rows an operator gives.
    fn rows_of(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
        let known = self.known.compute(plan.as_ref(), &StatisticsArgs::new());
        known.ok()?.num_rows.get_value().copied()
    }

    /// The operator over coded keys.
    ///
    /// # Errors
    /// As the engine says.
    pub(super) fn coded(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        keys: &[Key],
        found: &mut Vec<Coded>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if keys.is_empty() {
            return Ok(Arc::clone(plan));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            return self.below_projection(plan, projection, keys, found);
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return self.below_join(plan, join, keys, found);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let shown = filter.projection().as_deref();
            let mut read = columns_of(filter.predicate());
            read.extend(repeated(shown.into_iter().flatten().copied()));
            let places = |column: usize| match shown {
                Some(shown) => shown.get(column).copied(),
                None => Some(column),
            };
            return self.below_one(plan, filter.input(), keys, (&places, &read), found);
        }
        if let Some(exchange) = plan.downcast_ref::<RepartitionExec>() {
            let read = match exchange.partitioning() {
                _ if exchange.preserve_order() => return Ok(Arc::clone(plan)),
                Partitioning::RoundRobinBatch(_) => Vec::new(),
                Partitioning::Hash(by, _) => by.iter().flat_map(columns_of).collect(),
                _ => return Ok(Arc::clone(plan)),
            };
            return self.below_one(plan, exchange.input(), keys, (&Some, &read), found);
        }
        let all = plan.downcast_ref::<CoalescePartitionsExec>();
        let pauses = plan.downcast_ref::<CooperativeExec>();
        let same = all.map(CoalescePartitionsExec::input);
        match same.or_else(|| pauses.map(CooperativeExec::input)) {
            Some(input) => self.below_one(plan, input, keys, (&Some, &[]), found),
            None => Ok(Arc::clone(plan)),
        }
    }

    /// The same of an operator that hands columns of its one input on, and reads some of them.
    fn below_one(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        keys: &[Key],
        (place, read): (&dyn Fn(usize) -> Option<usize>, &[usize]),
        found: &mut Vec<Coded>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut inner = Vec::with_capacity(keys.len());
        let mut outer = HashMap::new();
        for key in keys {
            let column = place(key.column).filter(|column| !read.contains(column));
            if let Some(column) = column {
                outer.insert(column, key.column);
                let number = key.number;
                inner.push(Key { column, number });
            }
        }
        let first = found.len();
        let coded = self.coded(input, &inner, found)?;
        over(plan, vec![(input, coded)], (&outer, first), found)
    }

    fn below_projection(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        projection: &ProjectionExec,
        keys: &[Key],
        found: &mut Vec<Coded>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let items = projection.expr();
        let place = |column: usize| {
            let item = items.get(column)?;
            Some(item.expr.downcast_ref::<Column>()?.index())
        };
        let others = items.iter().enumerate().filter(|(item, _)| {
            place(*item).is_none() || keys.iter().all(|key| key.column != *item)
        });
        let others = others.flat_map(|(_, item)| columns_of(&item.expr));
        let all = (0..items.len()).filter_map(place);
        let read: Vec<usize> = others.chain(repeated(all)).collect();
        self.below_one(plan, projection.input(), keys, (&place, &read), found)
    }

    fn below_join(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
        keys: &[Key],
        found: &mut Vec<Coded>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Rows of a side that are not there have no code.
        let gives = match join.join_type() {
            JoinType::Inner => [true, true],
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => [true, false],
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => [false, true],
            _ => return Ok(Arc::clone(plan)),
        };
        let of_left = match join.join_type() {
            JoinType::RightSemi | JoinType::RightAnti => 0,
            _ => join.left().schema().fields().len(),
        };
        let shown = join.projection.as_deref();
        let repeated = repeated(shown.into_iter().flatten().copied());
        let read = read_by(join);
        let mut sides = [Vec::new(), Vec::new()];
        let mut outer = [HashMap::new(), HashMap::new()];
        for key in keys {
            let place = shown.map_or(Some(key.column), |shown| shown.get(key.column).copied());
            let Some(place) = place.filter(|place| !repeated.contains(place)) else {
                continue;
            };
            let (side, column) = match place.checked_sub(of_left) {
                None => (0, place),
                Some(column) => (1, column),
            };
            let number = key.number;
            let is_free = gives.get(side) == Some(&true)
                && read.get(side).is_some_and(|read| !read.contains(&column));
            if let (true, Some(keys), Some(outer)) =
                (is_free, sides.get_mut(side), outer.get_mut(side))
            {
                outer.insert(column, key.column);
                keys.push(Key { column, number });
            }
        }
        let [left_keys, right_keys] = sides;
        let [of_left, of_right] = outer;
        let first = found.len();
        let left = self.read_first(join.left(), &left_keys, found)?;
        renumbered(found, first, &of_left);
        let second = found.len();
        let right = self.coded(join.right(), &right_keys, found)?;
        let sides = vec![(join.left(), left), (join.right(), right)];
        over(plan, sides, (&of_right, second), found)
    }

    /// The side of a join that it reads first, with its keys coded here if it is small enough: all of them are known before rows come out of the join.
    fn read_first(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        keys: &[Key],
        found: &mut Vec<Coded>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !is_worth_it(input, keys) {
            return Ok(Arc::clone(input));
        }
        let is_small = |rows: usize| {
            rows <= self.most_rows && rows.saturating_mul(keys.len()) <= self.most_keys
        };
        if !self.rows_of(input).is_some_and(is_small) {
            return self.coded(input, keys, found);
        }
        let columns: Vec<usize> = keys.iter().map(|key| key.column).collect();
        let Some(column) = columns.first().copied() else {
            return Ok(Arc::clone(input));
        };
        let encode = KeyEncodeExec::try_new(Arc::clone(input), columns)?;
        found.push(Coded {
            column,
            keys: keys.iter().map(|key| key.number).collect(),
            dictionary: Arc::clone(encode.dictionary()),
        });
        Ok(Arc::new(encode))
    }
}

/// Whether codes are cheaper than the keys: than a text, or than several keys.
fn is_worth_it(input: &Arc<dyn ExecutionPlan>, keys: &[Key]) -> bool {
    let schema = input.schema();
    let is_text = |key: &Key| {
        let field = schema.fields().get(key.column);
        field.is_some_and(|field| is_text(field.data_type()))
    };
    match keys {
        [] => false,
        [key] => is_text(key),
        _ => true,
    }
}

/// Whether keys of a type may be coded: of floats two zeros are equal, nested ones stay as they are.
pub(super) fn may_be_coded(kind: &DataType) -> bool {
    let is_number = kind.is_primitive() && !kind.is_floating();
    is_text(kind) || is_number || *kind == DataType::Boolean
}

/// Whether each value has to be hashed and compared byte by byte.
pub(super) fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

pub(super) fn columns_of(value: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let columns = collect_columns(value);
    columns.iter().map(Column::index).collect()
}

/// Those that are there more than once.
pub(super) fn repeated(columns: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = HashSet::new();
    columns.filter(|column| !seen.insert(*column)).collect()
}

/// The columns of both sides that a join looks at.
fn read_by(join: &HashJoinExec) -> [Vec<usize>; 2] {
    let (left, right): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
    let mut read = [left, right].map(|values| values.iter().flat_map(columns_of).collect());
    let [left, right] = &mut read;
    let filter = join.filter().into_iter();
    for column in filter.flat_map(|filter| filter.column_indices()) {
        match column.side {
            JoinSide::Left => Vec::push(left, column.index),
            JoinSide::Right => Vec::push(right, column.index),
            JoinSide::None => {}
        }
    }
    read
}

/// The operator over other inputs. What was found from a place on is in the columns of the last one.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: Vec<(&Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>)>,
    (outer, first): (&HashMap<usize, usize>, usize),
    found: &mut [Coded],
) -> Result<Arc<dyn ExecutionPlan>> {
    renumbered(found, first, outer);
    if inputs.iter().all(|(before, now)| Arc::ptr_eq(before, now)) {
        return Ok(Arc::clone(plan));
    }
    let mut inputs: Vec<_> = inputs.into_iter().map(|(_, now)| now).collect();
    // Over other inputs it would have the types that its columns had.
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
        && let Some(input) = inputs.pop()
    {
        let items = projection.expr().to_vec();
        return Ok(Arc::new(ProjectionExec::try_new(items, input)?));
    }
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(inputs, recompute)
}

/// Says where codes are as the operator above shows them.
fn renumbered(found: &mut [Coded], first: usize, outer: &HashMap<usize, usize>) {
    for coded in found.iter_mut().skip(first) {
        if let Some(column) = outer.get(&coded.column) {
            coded.column = *column;
        }
    }
}
