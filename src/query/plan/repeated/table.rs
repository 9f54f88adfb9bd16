//! A part of a plan as a table.
//!
//! Comes in: the part. Goes out: its schema, how many rows it has about, and the node that reads it. Never here: which part.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, internal_datafusion_err};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

use crate::query::exec::spool::SpoolExec;
use crate::query::plan::statistics::cardinality::{distinct_of, rows_of};

/// The table, whose columns are named by their numbers.
#[derive(Debug)]
pub(in crate::query::plan) struct RepeatedTable {
    number: usize,
    schema: SchemaRef,
    /// Only the thread that plans takes the lock.
    part: Mutex<Part>,
    /// What makes the rows, for all who read them.
    maker: OnceCell<Arc<dyn ExecutionPlan>>,
}

/// What the table stands for, as far as it is known.
#[derive(Debug, Clone, Default)]
struct Part {
    plan: LogicalPlan,
    rows: Option<f64>,
    /// The columns that are read, if not all are.
    columns: Option<Vec<usize>>,
}

impl RepeatedTable {
    /// A table of such columns, whose number tells it from others of the statement.
    pub(super) fn new(number: usize, schema: &Schema) -> Self {
        let fields = schema.fields().iter().enumerate();
        let fields = fields.map(|(number, field)| {
            let field = Field::clone(field);
            field.with_name(number.to_string())
        });
        let fields: Vec<Field> = fields.collect();
        Self {
            number,
            schema: Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
            part: Mutex::default(),
            maker: OnceCell::new(),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// What it is called in plans.
    pub(super) fn name(&self) -> String {
        format!("rows {}", self.number)
    }

    /// Says what it stands for.
    pub(super) fn stands_for(&self, plan: LogicalPlan) {
        self.part().plan = plan;
    }

    /// What it stands for.
    pub(super) fn plan(&self) -> LogicalPlan {
        self.part().plan.clone()
    }

    fn part(&self) -> MutexGuard<'_, Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Optimises what it stands for.
    pub(super) fn optimise(&self, state: &SessionState) -> Result<()> {
        let plan = state.optimize(&self.plan())?;
        let rows = rows_of(&plan);
        let mut part = self.part();
        (part.plan, part.rows) = (plan, rows);
        Ok(())
    }

    /// Whether the part has the types that it had before they were settled.
    pub(super) fn has_its_schema(&self) -> bool {
        let part = self.part();
        let fields = part.plan.schema().fields().iter().zip(self.schema.fields());
        let mut fields = fields.map(|(found, said)| {
            found.data_type() == said.data_type()
                && (said.is_nullable() || !found.is_nullable())
                && found.metadata() == said.metadata()
        });
        fields.all(|is_same| is_same)
    }

    /// Leaves out columns that nobody reads.
    pub(super) fn narrow(&self, state: &SessionState, columns: &[usize]) -> Result<()> {
        let plan = self.plan();
        if columns.len() == self.schema.fields().len() {
            return Ok(());
        }
        let all = plan.schema().columns();
        let kept = columns.iter().filter_map(|column| all.get(*column));
        let kept: Vec<Expr> = kept.cloned().map(Expr::Column).collect();
        let plan = LogicalPlanBuilder::from(plan).project(kept)?.build()?;
        let plan = state.optimizer().optimize(plan, state, |_, _| {})?;
        let mut part = self.part();
        (part.plan, part.columns) = (plan, Some(columns.to_vec()));
        Ok(())
    }

    /// About how many rows it has.
    pub(in crate::query::plan) fn rows(&self) -> Option<f64> {
        self.part().rows
    }

    /// About how many values a column has.
    pub(in crate::query::plan) fn distinct(&self, name: &str) -> Option<f64> {
        let plan = self.plan();
        distinct_of(&plan, &Column::new_unqualified(name))
    }
}

impl RepeatedTable {
    fn scanned<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let Part { plan, columns, .. } = self.part().clone();
            let making = || async {
                let planner = state.query_planner();
                planner.create_physical_plan(&plan, state).await
            };
            let maker = self.maker.get_or_try_init(making).await?;
            let every = || (0..self.schema.fields().len()).collect();
            let read = projection.cloned().unwrap_or_else(every);
            let places = read.iter().map(|column| match &columns {
                None => Some(*column),
                Some(kept) => kept.iter().position(|kept| kept == column),
            });
            let places: Option<Vec<usize>> = places.collect();
            let places = places
                .ok_or_else(|| internal_datafusion_err!("a column is read that was left out"))?;
            let maker = Arc::clone(maker);
            let read: Arc<dyn ExecutionPlan> =
                Arc::new(SpoolExec::try_new(self.number, maker, &places)?);
            Ok(read)
        })
    }
}

// Written out, and not by the attribute, for the reason that src/serve/methods.rs has.
impl TableProvider for RepeatedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn scan<'a, 'b, 'c, 'd, 'w>(
        &'a self,
        state: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'w, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'w,
        'b: 'w,
        'c: 'w,
        'd: 'w,
    {
        self.scanned(state, projection)
    }
}
