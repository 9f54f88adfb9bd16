//! Rows of `WITH RECURSIVE … UNION` that were not there before. The engine takes those for new whose group has a number above all others before it, and numbers groups in another order than that of the rows, where hashes
//! of several columns meet (nulls do not change them): it loses rows.
//!
//! Comes in: the first rows, or those of a step. Goes out: those that none before is equal to; null is equal to null, 0.0 to -0.0. Never here: what a step reads.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::over::over_one_input;
use crate::query::plan::meaning::nested::settled_within;

/// Has each step of such a query, and its first rows, pass through a node of this kind.
#[derive(Debug)]
pub(in crate::query) struct FirstSeen;

impl PhysicalOptimizerRule for FirstSeen {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let query = node.downcast_ref::<RecursiveQueryExec>();
            let query = query.filter(|query| query.is_distinct() && takes(&query.schema()));
            let Some(query) = query else {
                return Ok(Transformed::no(node));
            };
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let seen = |input: &Arc<dyn ExecutionPlan>, begins: bool| {
                Arc::new(FirstSeenExec::new(Arc::clone(input), number, begins)) as _
            };
            let query = RecursiveQueryExec::try_new(
                query.name().to_owned(),
                query.schema(),
                seen(query.static_term(), true),
                seen(query.recursive_term(), false),
                false,
            )?;
            Ok(Transformed::yes(Arc::new(query) as _))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "first_seen"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The numbers of queries whose rows are looked at.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

fn fields_of(schema: &Schema) -> Vec<SortField> {
    let fields = schema.fields().iter();
    fields
        .map(|field| SortField::new(field.data_type().clone()))
        .collect()
}

/// Whether rows of such columns are compared here. Of one that is not nested the engine numbers the values in the order of the rows.
fn takes(schema: &Schema) -> bool {
    let is_simple = match schema.fields().iter().as_slice() {
        [field] => !field.data_type().is_nested(),
        _ => false,
    };
    !is_simple && RowConverter::supports_fields(&fields_of(schema))
}

/// What queries have seen in one run: an extension of its settings, since a step is made anew each time that it is taken.
#[derive(Debug, Default)]
pub(in crate::query) struct SeenInRun {
    of_queries: Mutex<HashMap<u64, Arc<Mutex<Option<Seen>>>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rows that were there.
#[derive(Debug)]
struct Seen {
    converter: RowConverter,
    rows: HashSet<Box<[u8]>>,
    bytes: usize,
    memory: MemoryReservation,
}

impl Seen {
    fn try_new(schema: &Schema, context: &TaskContext) -> Result<Self> {
        let consumer = MemoryConsumer::new("FirstSeenExec");
        Ok(Self {
            converter: RowConverter::new(fields_of(schema))?,
            rows: HashSet::new(),
            bytes: 0,
            memory: consumer.register(context.memory_pool()),
        })
    }

    /// The rows that were not there yet, each once.
    fn new_among(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().iter().map(settled_within);
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let rows = self.converter.convert_columns(&columns)?;
        let is_new = rows.iter().map(|row| {
            let bytes = row.as_ref();
            let is_new = !self.rows.contains(bytes);
            if is_new {
                self.rows.insert(Box::from(bytes));
                self.bytes += bytes.len();
            }
            Some(is_new)
        });
        let is_new: BooleanArray = is_new.collect();
        let places = self.rows.capacity() * (size_of::<Box<[u8]>>() + 1);
        self.memory.try_resize(self.bytes + places)?;
        Ok(filter_record_batch(batch, &is_new)?)
    }
}

/// The node.
#[derive(Debug)]
pub(crate) struct FirstSeenExec {
    input: Arc<dyn ExecutionPlan>,
    /// Of the query.
    number: u64,
    /// Whether these are the first rows of the query, before which there is none.
    begins: bool,
    properties: Arc<PlanProperties>,
}

impl FirstSeenExec {
    fn new(input: Arc<dyn ExecutionPlan>, number: u64, begins: bool) -> Self {
        Self {
            properties: Arc::clone(input.properties()),
            input,
            number,
            begins,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::new(input, self.number, self.begins))
    }
}

impl DisplayAs for FirstSeenExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FirstSeenExec")
    }
}

impl ExecutionPlan for FirstSeenExec {
    fn name(&self) -> &'static str {
        "FirstSeenExec"
    }

    over_one_input!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(run) = context.session_config().get_extension::<SeenInRun>() else {
            return datafusion::common::internal_err!("a run that remembers no rows");
        };
        let seen = Arc::clone(locked(&run.of_queries).entry(self.number).or_default());
        let schema = self.schema();
        if self.begins {
            *locked(&seen) = Some(Seen::try_new(&schema, &context)?);
        }
        let batches = self.input.execute(partition, context)?;
        let batches = batches.map(move |batch| match locked(&seen).as_mut() {
            Some(seen) => seen.new_among(&batch?),
            None => datafusion::common::internal_err!("a step before the first rows"),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
