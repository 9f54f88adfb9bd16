//! Groups of several sets of keys, each made of the groups of more keys.
//!
//! Comes in: the groups of all keys of one partition. Goes out: those of each set, the sets with the most keys first. A ROLLUP by year, month and day makes its months of days and its years of months. Where groups of fewer keys find no room, or
//! are not worth a step, those that they would be made of stand for them. Never here: rows of other partitions, which the last step puts together with these.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryReservation};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::{ExpandExec, Set};
use crate::error::ErrorKind;
use crate::grid::slice_bytes;
use crate::query::error::error_within;

/// All partitions of a node hold at most this part of the memory limit: the steps around it spill what they have no room for, and this does not.
const PART: usize = 4;

/// Of fewer rows the last step makes groups as soon as another one before it.
const FEW_ROWS: usize = 1024;

/// How the groups of a set are made.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The set.
    place: usize,
    keys: Arc<[usize]>,
    /// The step whose groups these are made of: the one with the fewest keys among which are all of these. The first one is its own.
    from: usize,
    /// How many others are made of these.
    num_made: usize,
}

/// The steps for some sets, one of which has all keys.
pub(super) fn steps_for(sets: &[Set]) -> Vec<Step> {
    let keys_of = |set: &Set| -> Arc<[usize]> {
        let keys = set.left_out.iter().enumerate();
        let keys = keys.filter(|(_, is_out)| !**is_out);
        keys.map(|(key, _)| key).collect()
    };
    // A bit for each key; the engine has no more of them.
    let bits = |keys: &[usize]| keys.iter().fold(0_u64, |bits, key| bits | 1 << key);
    let sets = sets.iter().map(keys_of).enumerate();
    let mut sets: Vec<(usize, Arc<[usize]>)> = sets.collect();
    sets.sort_by_key(|(_, keys)| Reverse(keys.len()));
    let mut seen: Vec<u64> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    for (place, keys) in sets {
        let own = bits(&keys);
        let from = seen.iter().rposition(|bits| bits & own == own);
        let from = from.unwrap_or_default();
        if let Some(from) = steps.get_mut(from) {
            from.num_made += 1;
        }
        seen.push(own);
        steps.push(Step {
            place,
            keys,
            from,
            num_made: 0,
        });
    }
    steps
}

/// The bytes that the groups of one partition may take.
pub(super) fn room(context: &TaskContext, num_partitions: usize) -> usize {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(limit) => limit / PART / num_partitions.max(1),
        _ => usize::MAX,
    }
}

/// Groups by some of the keys.
struct Level {
    keys: Arc<[usize]>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// How many steps to come are made of them, and whether they are given on.
    num_uses: usize,
}

/// The groups of one partition.
pub(super) struct Levels {
    node: ExpandExec,
    context: Arc<TaskContext>,
    levels: Vec<Option<Level>>,
    /// The level of each step that is done.
    done: Vec<usize>,
    held: MemoryReservation,
    room: usize,
    /// The level that is given on, the set that it is for, and its batches that are left.
    ready: Option<(usize, usize, VecDeque<RecordBatch>)>,
}

impl Levels {
    /// `all` are the groups of all keys, whose bytes are counted in `held`, which may be that many.
    pub(super) fn new(
        node: ExpandExec,
        all: Vec<RecordBatch>,
        (held, room): (MemoryReservation, usize),
        context: Arc<TaskContext>,
    ) -> Self {
        let first = node.steps.first();
        let level = Level {
            keys: (0..node.num_keys()).collect(),
            batches: all,
            bytes: held.size(),
            num_uses: first.map_or(0, |step| step.num_made) + 1,
        };
        Self {
            levels: vec![Some(level)],
            done: Vec::new(),
            node,
            context,
            held,
            room,
            ready: None,
        }
    }

    /// The groups of all sets.
    pub(super) fn made(self) -> BoxStream<'static, Result<RecordBatch>> {
        let batches = stream::try_unfold(self, |mut levels| async move {
            let found = levels.next().await?;
            Ok::<_, DataFusionError>(found.map(|batch| (batch, levels)))
        });
        batches.boxed()
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some((level, place, batches)) = &mut self.ready {
                let (level, place) = (*level, *place);
                if let Some(batch) = batches.pop_front() {
                    return self.of_set(&batch, level, place).map(Some);
                }
                self.ready = None;
                self.used(level);
            }
            let number = self.done.len();
            let Some(step) = self.node.steps.get(number).cloned() else {
                return Ok(None);
            };
            let level = self.level(number, &step).await?;
            self.done.push(level);
            let batches = self.levels.get(level).and_then(Option::as_ref);
            let batches = batches.map(|level| level.batches.clone().into());
            self.ready = Some((level, step.place, batches.unwrap_or_default()));
        }
    }

    fn of_set(&self, batch: &RecordBatch, level: usize, place: usize) -> Result<RecordBatch> {
        let level = self.levels.get(level).and_then(Option::as_ref);
        match level.zip(self.node.sets.get(place)) {
            Some((level, set)) => self.node.of_set(batch, &level.keys, set),
            None => datafusion::common::internal_err!("groups were let go of too early"),
        }
    }

    /// The level of a step.
    async fn level(&mut self, number: usize, step: &Step) -> Result<usize> {
        // It is given on itself, and others are made of it.
        let num_uses = step.num_made + 1;
        if number == 0 {
            return Ok(0);
        }
        let from = self.done.get(step.from).copied().unwrap_or_default();
        let made = self.made_of(from, step).await?;
        let level = match made {
            Some(batches) => {
                let bytes = batches.iter().map(bytes_of).sum();
                self.levels.push(Some(Level {
                    keys: Arc::clone(&step.keys),
                    batches,
                    bytes,
                    num_uses,
                }));
                self.levels.len() - 1
            }
            None => {
                if let Some(Some(from)) = self.levels.get_mut(from) {
                    from.num_uses += num_uses;
                }
                from
            }
        };
        self.used(from);
        Ok(level)
    }

    /// Groups of fewer keys; none, where those that they are made of are few, or there is no room.
    async fn made_of(&self, from: usize, step: &Step) -> Result<Option<Vec<RecordBatch>>> {
        let Some(from) = self.levels.get(from).and_then(Option::as_ref) else {
            return datafusion::common::internal_err!("groups were let go of too early");
        };
        let num_rows: usize = from.batches.iter().map(RecordBatch::num_rows).sum();
        // The one group of no key is made by the last step.
        if from.keys.len() == step.keys.len() || step.keys.is_empty() || num_rows < FEW_ROWS {
            return Ok(None);
        }
        let mut bytes = 0;
        let made = async {
            let groups = self.reduced(from, &step.keys)?;
            let mut groups = groups.execute(0, Arc::clone(&self.context))?;
            let mut batches = Vec::new();
            while let Some(batch) = groups.try_next().await? {
                let own = bytes_of(&batch);
                if self.held.size().saturating_add(own) > self.room {
                    return Ok(None);
                }
                self.held.try_grow(own)?;
                bytes += own;
                batches.push(batch);
            }
            Ok(Some(batches))
        };
        let made = made.await;
        if !matches!(made, Ok(Some(_))) {
            self.held.shrink(bytes);
        }
        match made {
            Err(error) if error_within(&error).kind() == ErrorKind::ResourcesExhausted => Ok(None),
            made => made,
        }
    }

    /// One use of a level less.
    fn used(&mut self, level: usize) {
        let Some(place) = self.levels.get_mut(level) else {
            return;
        };
        if let Some(level) = place {
            level.num_uses = level.num_uses.saturating_sub(1);
            if level.num_uses == 0 {
                self.held.shrink(level.bytes);
                *place = None;
            }
        }
    }

    /// What makes groups of fewer keys.
    fn reduced(&self, from: &Level, keys: &[usize]) -> Result<AggregateExec> {
        // What aggregates keep is looked for behind the keys of the groups.
        let kept = keys.iter();
        let kept = kept.filter_map(|key| from.keys.iter().position(|known| known == key));
        let kept: Vec<usize> = kept.collect();
        let batches = from.batches.iter().map(|batch| {
            let states = from.keys.len()..batch.num_columns();
            batch.project(&kept.iter().copied().chain(states).collect::<Vec<_>>())
        });
        let batches: Vec<RecordBatch> = batches.collect::<std::result::Result<_, _>>()?;
        let Some(first) = batches.first() else {
            return datafusion::common::internal_err!("there are no groups");
        };
        let schema = first.schema();
        let groups = schema.fields().iter().take(keys.len()).enumerate();
        let groups = groups.map(|(place, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), place));
            (column, field.name().clone())
        });
        let groups = PhysicalGroupBy::new_single(groups.collect());
        let source = MemorySourceConfig::try_new_exec(&[batches], schema, None)?;
        let whole = &self.node.without_rows;
        AggregateExec::try_new(
            AggregateMode::PartialReduce,
            groups,
            whole.aggr_expr().to_vec(),
            vec![None; whole.aggr_expr().len()],
            source,
            whole.input_schema(),
        )
    }
}

/// What its rows take, not all of the buffers that they lie in.
pub(super) fn bytes_of(batch: &RecordBatch) -> usize {
    usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    fn steps(sets: &[&str]) -> Vec<(usize, String, usize, usize)> {
        let set = |text: &&str| Set {
            left_out: ["a", "b", "c"]
                .iter()
                .map(|key| !text.contains(key))
                .collect(),
            number: ScalarValue::Null,
        };
        let sets: Vec<Set> = sets.iter().map(set).collect();
        let shown = steps_for(&sets).into_iter().map(|step| {
            let keys = step.keys.iter().map(|key| ["a", "b", "c"][*key]);
            (step.place, keys.collect(), step.from, step.num_made)
        });
        shown.collect()
    }

    #[test]
    fn each_set_is_made_of_the_one_with_the_fewest_keys_that_has_all_of_its_own() {
        let own = |text: &str| text.to_owned();
        assert_eq!(
            steps(&["abc", "ab", "a", ""]),
            [
                (0, own("abc"), 0, 1),
                (1, own("ab"), 0, 1),
                (2, own("a"), 1, 1),
                (3, own(""), 2, 0)
            ]
        );
        assert_eq!(
            steps(&["b", "abc", "ac", "abc", "c"]),
            [
                (1, own("abc"), 0, 1),
                (3, own("abc"), 0, 2),
                (2, own("ac"), 1, 1),
                (0, own("b"), 1, 0),
                (4, own("c"), 2, 0)
            ]
        );
    }
}
