//! Groups of several sets of keys, each made of the groups of more keys.
//!
//! Comes in: the groups of all keys of one partition. Goes out: those of each set, the sets with the most keys first. A ROLLUP by year, month and day makes its months of days and its years of months. Never here: rows of other partitions, which the last
//! step puts together with these.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::{ExpandExec, Set};
use crate::grid::slice_bytes;

/// Groups by some of the keys.
#[derive(Clone)]
struct Level {
    keys: Arc<[usize]>,
    batches: Vec<RecordBatch>,
    num_rows: usize,
}

impl Level {
    fn new(keys: Arc<[usize]>, batches: Vec<RecordBatch>) -> Self {
        Self {
            keys,
            num_rows: batches.iter().map(RecordBatch::num_rows).sum(),
            batches,
        }
    }

    fn has(&self, keys: &[usize]) -> bool {
        keys.iter().all(|key| self.keys.contains(key))
    }

    fn bytes(&self) -> usize {
        self.batches.iter().map(bytes_of).sum()
    }
}

/// The groups of one partition.
pub(super) struct Levels {
    node: ExpandExec,
    context: Arc<TaskContext>,
    /// Those that the sets to come are made of.
    levels: Vec<Level>,
    held: MemoryReservation,
    /// The sets to come, by their places.
    to_come: VecDeque<usize>,
    /// What is not given on yet: the set, and groups by some keys.
    ready: Option<(usize, Arc<[usize]>, VecDeque<RecordBatch>)>,
}

impl Levels {
    /// `all` are the groups of all keys, whose bytes are counted in `held`.
    pub(super) fn new(
        node: ExpandExec,
        all: Vec<RecordBatch>,
        held: MemoryReservation,
        context: Arc<TaskContext>,
    ) -> Self {
        let mut to_come: Vec<usize> = (0..node.sets.len()).collect();
        to_come.sort_by_key(|place| Reverse(node.sets.get(*place).map(num_kept)));
        let keys: Arc<[usize]> = (0..node.num_keys()).collect();
        Self {
            levels: vec![Level::new(keys, all)],
            node,
            context,
            held,
            to_come: to_come.into(),
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
            if let Some((place, keys, batches)) = &mut self.ready
                && let Some(batch) = batches.pop_front()
                && let Some(set) = self.node.sets.get(*place)
            {
                return self.node.of_set(&batch, keys, set).map(Some);
            }
            let Some(place) = self.to_come.pop_front() else {
                return Ok(None);
            };
            let level = self.level(place).await?;
            self.ready = Some((place, Arc::clone(&level.keys), level.batches.into()));
        }
    }

    /// The groups of a set, or such of more keys where there is no room for them.
    async fn level(&mut self, place: usize) -> Result<Level> {
        let keys = self.keys_of(place);
        let Some(from) = self.least(&keys).cloned() else {
            return datafusion::common::internal_err!("no groups have the keys {keys:?}");
        };
        // The one group of no key is made by the last step.
        if from.keys.len() == keys.len() || keys.is_empty() {
            return Ok(from);
        }
        let mut groups = self
            .reduced(&from, &keys)?
            .execute(0, Arc::clone(&self.context))?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = groups.try_next().await? {
            if self.held.try_grow(bytes_of(&batch)).is_err() {
                self.held.shrink(bytes);
                return Ok(from);
            }
            bytes += bytes_of(&batch);
            batches.push(batch);
        }
        let level = Level::new(keys, batches);
        self.levels.push(level.clone());
        self.let_go();
        Ok(level)
    }

    /// Lets go of what no set to come is made of.
    fn let_go(&mut self) {
        let wanted: Vec<Arc<[usize]>> = self
            .to_come
            .iter()
            .map(|place| self.keys_of(*place))
            .collect();
        let wanted: Vec<Arc<[usize]>> = wanted
            .iter()
            .filter_map(|keys| Some(Arc::clone(&self.least(keys)?.keys)))
            .collect();
        let held = &self.held;
        self.levels.retain(|level| {
            let stays = wanted.contains(&level.keys);
            if !stays {
                held.shrink(level.bytes());
            }
            stays
        });
    }

    fn keys_of(&self, place: usize) -> Arc<[usize]> {
        let left_out = self.node.sets.get(place).map(|set| set.left_out.as_slice());
        let keys = left_out.unwrap_or_default().iter().enumerate();
        keys.filter(|(_, is_out)| !**is_out)
            .map(|(key, _)| key)
            .collect()
    }

    /// The fewest groups that have all of these keys.
    fn least(&self, keys: &[usize]) -> Option<&Level> {
        let having = self.levels.iter().filter(|level| level.has(keys));
        having.min_by_key(|level| level.num_rows)
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

fn num_kept(set: &Set) -> usize {
    set.left_out.iter().filter(|is_out| !**is_out).count()
}

/// What its rows take, not all of the buffers that they lie in.
pub(super) fn bytes_of(batch: &RecordBatch) -> usize {
    usize::try_from(slice_bytes(batch)).unwrap_or(usize::MAX)
}
