//! The operator of nearest joins: beside each row of the left input the nearest row of the right one.
//!
//! Comes in: two inputs in any order, with rows of equal keys in the same partition, or one that is read for all partitions of the other. Goes out: the rows of the left input with those of the right; one that has none goes out with nulls or not at all. The right input is kept, with an index, and the left one goes by (`index.rs`); where there is no
//! room for that, both are sorted, which may spill, and are read side by side (`merge.rs`). Nulls are near to nothing. Never here: expressions, which are columns of the inputs; which of both ways is taken (`run.rs`), and over which partitions (`spread.rs`).

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, internal_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::equivalence::{ProjectionMapping, join_equivalence_properties};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, EmissionType};
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{TryStreamExt, stream};

use self::builder::Builder;
use self::joined::Joined;
use self::run::Run;
pub(in crate::query) use self::spread::spread;
use crate::query::plan::types::bare::values_of;

mod builder;
mod chunks;
mod columns;
mod compared;
mod index;
mod joined;
mod known;
mod merge;
mod narrow;
mod part;
mod run;
mod shared;
mod sorted;
mod spread;
mod unsorted;

/// More keys than statements have: those of one that came from elsewhere are not believed.
const MOST_KEYS: usize = 1024;

/// A column of the left input, and one of the right.
pub(crate) type Pair = (usize, usize);

/// Which columns say what the nearest row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nearest {
    /// Are equal.
    pub(crate) equal: Vec<Pair>,
    /// Are compared.
    pub(crate) compared: Pair,
    /// Whether the value on the right is the next one, and not the one before.
    pub(crate) is_next: bool,
    /// Whether it is never the same.
    pub(crate) is_other: bool,
    /// Whether rows of the left input without one stay.
    pub(crate) keeps_left: bool,
}

impl Nearest {
    /// What an operator between the left and the right value says.
    ///
    /// # Errors
    /// `Internal` for one that is no inequality.
    pub(crate) fn of(
        op: Operator,
        equal: Vec<Pair>,
        compared: Pair,
        keeps_left: bool,
    ) -> Result<Self> {
        let (is_next, is_other) = match op {
            Operator::GtEq => (false, false),
            Operator::Gt => (false, true),
            Operator::LtEq => (true, false),
            Operator::Lt => (true, true),
            other => return internal_err!("nothing is near by {other}"),
        };
        Ok(Self {
            equal,
            compared,
            is_next,
            is_other,
            keeps_left,
        })
    }

    fn op(&self) -> &'static str {
        match (self.is_next, self.is_other) {
            (false, false) => ">=",
            (false, true) => ">",
            (true, false) => "<=",
            (true, true) => "<",
        }
    }

    fn kind(&self) -> JoinType {
        match self.keeps_left {
            true => JoinType::Left,
            false => JoinType::Inner,
        }
    }

    /// The columns of one side, keys first, with how they are sorted.
    fn columns(&self, side: fn(&Pair) -> usize) -> Vec<(usize, SortOptions)> {
        let ascending = SortOptions::new(false, false);
        let keys = self.equal.iter().map(|pair| (side(pair), ascending));
        let compared = (side(&self.compared), SortOptions::new(self.is_next, false));
        keys.chain([compared]).collect()
    }
}

fn left(pair: &Pair) -> usize {
    pair.0
}

fn right(pair: &Pair) -> usize {
    pair.1
}

/// The operator.
#[derive(Debug)]
pub(crate) struct AsofJoinExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    nearest: Nearest,
    /// Where the partitions of the left input have all of the right one.
    once: Option<shared::Once>,
    /// The columns that go out, of both inputs, one after the other; they ascend. `None` are all.
    columns: Option<Vec<usize>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl AsofJoinExec {
    /// The same, over all partitions of both inputs.
    fn spread(&self, left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self {
            once: Some(shared::Once::default()),
            ..self.over(left, right)?
        })
    }

    /// The same over other inputs.
    fn over(&self, left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let join = Self::try_new(left, right, self.nearest.clone())?;
        match &self.columns {
            None => Ok(join),
            Some(columns) => join.with_columns(columns.clone()),
        }
    }

    /// Of all columns only these go out.
    fn with_columns(mut self, columns: Vec<usize>) -> Result<Self> {
        let known = self.properties.equivalence_properties();
        let all = self.schema();
        let mapping = ProjectionMapping::from_indices(&columns, &all)?;
        let schema = Arc::new(all.project(&columns)?);
        let properties = PlanProperties::new(
            known.project(&mapping, schema),
            self.properties.partitioning.project(&mapping, known),
            EmissionType::Incremental,
            self.left.boundedness(),
        );
        self.properties = Arc::new(properties);
        self.columns = Some(columns);
        Ok(self)
    }

    /// # Errors
    /// `Internal` for columns that there are not, or of two types.
    pub(crate) fn try_new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        nearest: Nearest,
    ) -> Result<Self> {
        let (of_left, of_right) = (left.schema(), right.schema());
        if nearest.equal.len() > MOST_KEYS {
            return internal_err!("a nearest join of {} keys", nearest.equal.len());
        }
        for pair in nearest.equal.iter().chain([&nearest.compared]) {
            let kind = |schema: &Schema, place: usize| {
                let field = schema.fields().get(place);
                field.map(|field| values_of(field.data_type()).clone())
            };
            let kinds = (kind(&of_left, pair.0), kind(&of_right, pair.1));
            if kinds.0.is_none() || kinds.0 != kinds.1 {
                return internal_err!("a nearest join compares {:?} and {:?}", kinds.0, kinds.1);
            }
        }
        let (schema, _) = build_join_schema(&of_left, &of_right, &nearest.kind());
        let equal = nearest.equal.iter();
        let equal = equal.map(|pair| (column(&of_left, pair.0), column(&of_right, pair.1)));
        let equal: Vec<_> = equal.collect();
        let known = join_equivalence_properties(
            left.equivalence_properties().clone(),
            // What is known of all rows of the right input is not of rows without one.
            EquivalenceProperties::new(Arc::clone(&of_right)),
            &nearest.kind(),
            Arc::new(schema),
            &[false, false],
            None,
            &equal,
        )?;
        let properties = PlanProperties::new(
            known,
            left.output_partitioning().clone(),
            EmissionType::Incremental,
            left.boundedness(),
        );
        Ok(Self {
            left,
            right,
            nearest,
            once: None,
            columns: None,
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        })
    }

    #[cfg(feature = "distributed")]
    pub(crate) fn nearest(&self) -> &Nearest {
        &self.nearest
    }
}

impl AsofJoinExec {
    /// What goes out.
    fn joined(&self) -> Joined {
        let (left, right) = (self.left.schema(), self.right.schema());
        let all: Vec<usize>;
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                all = (0..left.fields().len() + right.fields().len()).collect();
                &all
            }
        };
        let keeps_left = self.nearest.keeps_left;
        Joined::of((&left, &right), columns, self.schema(), keeps_left)
    }

    /// One partition of both inputs.
    fn run_of(&self, partition: Partition, joined: Arc<Joined>) -> Result<Run> {
        let count = |plan: &Arc<dyn ExecutionPlan>| plan.output_partitioning().partition_count();
        if count(&self.left) != count(&self.right) {
            return internal_err!(
                "a nearest join of {} and {} partitions",
                count(&self.left),
                count(&self.right)
            );
        }
        let (number, context) = (partition.number, &partition.context);
        Ok(Run::new(
            self.left.execute(number, Arc::clone(context))?,
            self.right.execute(number, Arc::clone(context))?,
            self.nearest.clone(),
            joined,
            partition,
        ))
    }
}

fn column(schema: &Schema, place: usize) -> Arc<dyn PhysicalExpr> {
    let name = schema.fields().get(place).map_or("", |field| field.name());
    Arc::new(Column::new(name, place))
}

impl DisplayAs for AsofJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.once {
            Some(_) => "mode=CollectRight, ",
            None => "",
        };
        write!(
            formatter,
            "AsofJoinExec: {mode}join_type={}",
            self.nearest.kind()
        )?;
        let (of_left, of_right) = (self.left.schema(), self.right.schema());
        let mut written = |pair: &Pair, op: &str| {
            let (one, other) = (column(&of_left, pair.0), column(&of_right, pair.1));
            write!(formatter, ", {one} {op} {other}")
        };
        for pair in &self.nearest.equal {
            written(pair, "=")?;
        }
        written(&self.nearest.compared, self.nearest.op())?;
        let Some(columns) = &self.columns else {
            return Ok(());
        };
        let schema = self.schema();
        let columns = schema.fields().iter().zip(columns);
        let columns = columns.map(|(field, column)| format!("{}@{column}", field.name()));
        let columns: Vec<String> = columns.collect();
        write!(formatter, ", projection=[{}]", columns.join(", "))
    }
}

impl ExecutionPlan for AsofJoinExec {
    fn name(&self) -> &'static str {
        "AsofJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        if self.once.is_some() {
            return InputDistributionRequirements::new(vec![
                Distribution::UnspecifiedDistribution;
                2
            ]);
        }
        if self.nearest.equal.is_empty() {
            let single = vec![Distribution::SinglePartition; 2];
            return InputDistributionRequirements::new(single);
        }
        let keys = |schema: &Schema, side: fn(&Pair) -> usize| {
            let keys = self.nearest.equal.iter();
            Distribution::KeyPartitioned(keys.map(|pair| column(schema, side(pair))).collect())
        };
        InputDistributionRequirements::co_partitioned(vec![
            keys(&self.left.schema(), left),
            keys(&self.right.schema(), right),
        ])
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let right = children.pop().unwrap_or_else(|| Arc::clone(&self.right));
        let left = children.pop().unwrap_or_else(|| Arc::clone(&self.left));
        Ok(Arc::new(match self.once {
            Some(_) => self.spread(left, right)?,
            None => self.over(left, right)?,
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, recompute)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let partition = Partition {
            number: partition,
            context,
            metrics: self.metrics.clone(),
        };
        let joined = Arc::new(self.joined());
        let run = match &self.once {
            Some(once) => Run::spread(
                Arc::clone(&self.left),
                once.right(self, partition.clone())?,
                self.nearest.clone(),
                joined,
                partition,
            ),
            None => self.run_of(partition, joined)?,
        };
        let batches = stream::try_unfold(run, |mut run| async move {
            let batch = run.next_batch().await?;
            Ok(batch.map(|batch| (batch, run)))
        });
        let batches = batches.inspect_ok(move |batch| metrics.record_output(batch.num_rows()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// The partition that is run.
#[derive(Clone)]
struct Partition {
    number: usize,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
}

impl Partition {
    /// For the right input.
    fn builder(&self, nearest: &Nearest, schema: SchemaRef) -> Result<Builder> {
        let consumer = MemoryConsumer::new(format!("AsofJoin[{}]", self.number));
        let reservation = consumer.with_can_spill(true);
        let reservation = reservation.register(self.context.memory_pool());
        Builder::try_new(schema, nearest, reservation)
    }

    /// Counts what an index is made of.
    fn count(&self, num_rows: usize, num_bytes: usize) {
        let counter = MetricBuilder::new(&self.metrics).counter("build_input_rows", self.number);
        counter.add(num_rows);
        let used = MetricBuilder::new(&self.metrics).gauge("build_mem_used", self.number);
        used.add(num_bytes);
    }
}
