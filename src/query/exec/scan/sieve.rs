//! Conditions of a scan -> the rows that pass, for as little work as it takes.
//!
//! Comes in: the conditions that a scan has promised to keep, those that operators above have learned while the query runs (dynamic filters), windows of rows.
//! Goes out: which rows of a window pass all of them. Cheap and sharp conditions run first, later ones see only the rows that are left, and a dynamic filter that
//! costs more than it saves sleeps for a while: whoever made it tests its rows again. Never here: opening of tiles, copying of the other columns.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::expressions::{DynamicFilterTracking, InListExpr, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;

use super::ahead::{Wanted, wanted_values};
use super::condition::{Condition, Outcome};

/// After so many windows the conditions are put in order anew.
const WINDOWS_BETWEEN_SORTS: usize = 32;

/// The rows of a window that pass.
#[derive(Debug)]
pub(super) enum Passed {
    All,
    /// Nearly all: a bit for each row of the window.
    Mask(BooleanBuffer),
    /// Numbers of rows of the batch, ascending.
    Rows(UInt32Array),
}

/// All conditions of one share of a scan.
#[derive(Debug)]
pub(super) struct Sieve {
    schema: SchemaRef,
    required: Vec<Arc<dyn PhysicalExpr>>,
    /// In the order in which they run.
    conditions: Vec<Condition>,
    /// What [`Sieve::wanted`] says, until the dynamic filters say something else.
    wanted: Option<Arc<[Wanted]>>,
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns by which the rows ascend, of those that conditions read.
    ascending: Vec<usize>,
    tracking: Vec<DynamicFilterTracking>,
    windows: usize,
    /// Whether the dynamic filters have been looked at.
    is_started: bool,
    /// Rows that dynamic filters took away, until somebody asks.
    filtered: u64,
}

impl Sieve {
    /// `schema` is that of the batches that will come; the conditions name its columns by number. `ascends` says of which the rows of each batch are in ascending order, without nulls.
    pub(super) fn try_new(
        schema: &SchemaRef,
        required: &[Arc<dyn PhysicalExpr>],
        dynamic: &[Arc<dyn PhysicalExpr>],
        ascends: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        let read = required.iter().chain(dynamic).flat_map(collect_columns);
        let read: BTreeSet<usize> = read.map(|column| column.index()).collect();
        let ascending: Vec<usize> = read.into_iter().filter(|column| ascends(*column)).collect();
        let parts = required.iter().flat_map(split_conjunction);
        let conditions: Result<Vec<_>> = parts
            .map(|part| Condition::try_new(part, schema, &ascending, false))
            .collect();
        let mut sieve = Self {
            schema: Arc::clone(schema),
            required: required.to_vec(),
            conditions: conditions?,
            wanted: None,
            dynamic: dynamic.to_vec(),
            ascending,
            tracking: dynamic
                .iter()
                .map(DynamicFilterTracking::classify)
                .collect(),
            windows: 0,
            is_started: false,
            filtered: 0,
        };
        sieve.sort();
        Ok(sieve)
    }

    /// Whether nothing is ever tested.
    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.dynamic.is_empty()
    }

    /// Takes over what the dynamic filters say now; `true` when it is not what they said before.
    pub(super) fn refresh(&mut self) -> Result<bool> {
        // Each tracker must be asked, since asking takes note of the change.
        let mut is_changed = !self.is_started;
        for tracking in &mut self.tracking {
            is_changed |= tracking.watcher().is_some_and(|watcher| watcher.changed());
        }
        if !is_changed {
            return Ok(false);
        }
        self.is_started = true;
        self.wanted = None;
        self.conditions.retain(|condition| !condition.is_optional());
        for part in self.known()?.iter().flat_map(split_conjunction) {
            let condition = Condition::try_new(part, &self.schema, &self.ascending, true)?;
            self.conditions.push(condition);
        }
        self.sort();
        Ok(true)
    }

    /// The dynamic filters as they are now.
    pub(super) fn known(&self) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let filters = self.dynamic.iter();
        filters
            .map(|filter| {
                let now = snapshot_physical_expr(Arc::clone(filter))?;
                without_lists_of_floats(now, &self.schema)
            })
            .collect()
    }

    /// The numbers of the columns that conditions read now, in order.
    pub(super) fn columns(&self) -> Vec<usize> {
        let columns = self.conditions.iter().flat_map(Condition::columns);
        let mut columns: Vec<usize> = columns.copied().collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Columns of which every row that passes has one of some values.
    pub(super) fn wanted(&mut self) -> Result<Arc<[Wanted]>> {
        if let Some(wanted) = &self.wanted {
            return Ok(Arc::clone(wanted));
        }
        let mut all = self.known()?;
        all.extend(self.required.iter().map(Arc::clone));
        let wanted: Arc<[Wanted]> = wanted_values(&all, &self.schema).into();
        self.wanted = Some(Arc::clone(&wanted));
        Ok(wanted)
    }

    /// The rows `rows` of the batch that pass.
    pub(super) fn sift(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<Passed> {
        self.windows += 1;
        if self.windows.is_multiple_of(WINDOWS_BETWEEN_SORTS) {
            self.sort();
        }
        let mut chosen = Chosen::All;
        let mut failed = Vec::new();
        for (place, condition) in self.conditions.iter_mut().enumerate() {
            if condition.is_asleep() {
                continue;
            }
            let before = chosen.count(rows.len());
            match chosen.and(condition, batch, &rows) {
                Ok(left) => chosen = left,
                // Whoever made it tests its rows again.
                Err(_) if condition.is_optional() => {}
                Err(_) => failed.push(place),
            }
            if condition.is_optional() {
                self.filtered += before.saturating_sub(chosen.count(rows.len())) as u64;
            }
            if chosen.is_empty() {
                break;
            }
        }
        self.again(failed, chosen, batch, &rows)?.passed(&rows)
    }

    /// The rows that are left once those conditions have been tested again which failed before others had taken away what they fail for.
    ///
    /// # Errors
    /// That of one which fails for rows that all others leave.
    fn again(
        &mut self,
        mut failed: Vec<usize>,
        mut chosen: Chosen,
        batch: &RecordBatch,
        rows: &Range<usize>,
    ) -> Result<Chosen> {
        while !failed.is_empty() && !chosen.is_empty() {
            let (count, mut still, mut first) = (failed.len(), Vec::new(), None);
            for place in failed {
                let Some(condition) = self.conditions.get_mut(place) else {
                    continue;
                };
                match chosen.and(condition, batch, rows) {
                    Ok(left) => chosen = left,
                    Err(error) => {
                        still.push(place);
                        first.get_or_insert(error);
                    }
                }
            }
            if let Some(error) = first.filter(|_| still.len() == count) {
                return Err(error);
            }
            failed = still;
        }
        Ok(chosen)
    }

    /// How many rows dynamic filters took away since this was asked last.
    pub(super) fn take_filtered(&mut self) -> u64 {
        std::mem::take(&mut self.filtered)
    }

    /// Sharp and cheap ones first. Those that can fail stay behind the others, in the order in which they were written.
    fn sort(&mut self) {
        self.conditions
            .sort_by(|one, other| one.rank().total_cmp(&other.rank()));
    }
}

/// What a join has learnt, without the lists of its keys that hold floats: they are compared bit by bit, while the join takes -0.0 for 0.0. The least and the greatest key stay.
fn without_lists_of_floats(
    learnt: Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
) -> Result<Arc<dyn PhysicalExpr>> {
    learnt
        .transform_up(|node| {
            let key = node.downcast_ref::<InListExpr>().map(InListExpr::expr);
            let is_of_floats = match key {
                Some(key) => holds_floats(&key.data_type(schema)?),
                None => false,
            };
            Ok(match is_of_floats {
                true => Transformed::yes(lit(true)),
                false => Transformed::no(node),
            })
        })
        .data()
}

fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| holds_floats(field.data_type())),
        DataType::Dictionary(_, values) => holds_floats(values),
        _ => data_type.is_floating(),
    }
}

/// What is left of a window.
enum Chosen {
    All,
    /// A bit for each row, and how many are set.
    Mask(BooleanBuffer, usize),
    /// Numbers of rows of the batch.
    Rows(UInt32Array),
}

impl Chosen {
    /// How many rows of a window of so many.
    fn count(&self, window: usize) -> usize {
        match self {
            Self::All => window,
            Self::Mask(_, count) => *count,
            Self::Rows(rows) => rows.len(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Mask(_, count) => *count == 0,
            Self::Rows(rows) => rows.is_empty(),
        }
    }

    fn and(
        &self,
        condition: &mut Condition,
        batch: &RecordBatch,
        window: &Range<usize>,
    ) -> Result<Self> {
        match self {
            Self::All => Ok(match condition.test_window(batch, window)? {
                Outcome::All => Self::All,
                Outcome::None => Self::Rows(UInt32Array::from(Vec::<u32>::new())),
                Outcome::Mask(mask) => {
                    let count = mask.count_set_bits();
                    Self::Mask(mask, count)
                }
            }),
            Self::Mask(mask, count) if condition.prefers_windows(*count, window.len()) => {
                Ok(match condition.test_window(batch, window)? {
                    Outcome::All => Self::Mask(mask.clone(), *count),
                    Outcome::None => Self::Rows(UInt32Array::from(Vec::<u32>::new())),
                    Outcome::Mask(other) => {
                        let both = mask & &other;
                        let count = both.count_set_bits();
                        Self::Mask(both, count)
                    }
                })
            }
            Self::Mask(mask, _) => {
                Self::Rows(numbers(mask, window.start)?).and(condition, batch, window)
            }
            Self::Rows(rows) => Ok(match condition.test_rows(batch, rows)? {
                Outcome::All => Self::Rows(rows.clone()),
                Outcome::None => Self::Rows(UInt32Array::from(Vec::<u32>::new())),
                Outcome::Mask(mask) => {
                    let left = filter(rows, &mask.into())?;
                    Self::Rows(UInt32Array::from(left.to_data()))
                }
            }),
        }
    }

    fn passed(self, window: &Range<usize>) -> Result<Passed> {
        Ok(match self {
            Self::All => Passed::All,
            Self::Mask(_, count) if count == window.len() => Passed::All,
            Self::Mask(mask, count) if count > window.len() / 5 * 4 => Passed::Mask(mask),
            Self::Mask(mask, _) => Passed::Rows(numbers(&mask, window.start)?),
            Self::Rows(rows) if rows.len() == window.len() => Passed::All,
            Self::Rows(rows) => Passed::Rows(rows),
        })
    }
}

/// The places of the set bits, counted from `start`.
fn numbers(mask: &BooleanBuffer, start: usize) -> Result<UInt32Array> {
    let start = u32::try_from(start).ok().filter(|start| {
        u32::try_from(mask.len()).is_ok_and(|rows| start.checked_add(rows).is_some())
    });
    let start = start.ok_or_else(|| {
        DataFusionError::Internal("a window of a scan ends behind row 4,294,967,295".to_owned())
    })?;
    let rows: Vec<u32> = mask.set_indices_u32().map(|row| start + row).collect();
    Ok(UInt32Array::from(rows))
}
