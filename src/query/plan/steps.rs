//! Steps of `WITH RECURSIVE` whose rows say something else about themselves than those that they go on from.
//!
//! Comes in: a logical plan whose types are settled. Goes out: the same plan, in which a step gives its columns with the metadata of the first rows, as the answer has them; the engine refuses a step over a table
//! with metadata, as pandas writes it. A step that asks for what it goes on from in a query for one value is refused: the engine works that out before there are rows. Never here: names, types, nulls.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, RecursiveQuery, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::error::Error;
use crate::query::exec::relabel::RelabelExec;

/// Gives steps the metadata of the first rows.
#[derive(Debug)]
pub(in crate::query) struct Steps;

impl AnalyzerRule for Steps {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::RecursiveQuery(query) => relabelled(query),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "steps"
    }
}

fn relabelled(query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    check_values(&query)?;
    let (first, step) = (query.static_term.schema(), query.recursive_term.schema());
    let mut fields = first.fields().iter().zip(step.fields());
    let is_same = first.metadata() == step.metadata()
        && fields.all(|(one, other)| one.metadata() == other.metadata());
    // What is below the step may come up when it is planned.
    if is_same && !has_metadata_below(&query.recursive_term)? {
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    }
    let like = Arc::clone(first);
    let step = Step::try_new(Arc::unwrap_or_clone(query.recursive_term), like)?;
    let node = Arc::new(step);
    let query = RecursiveQuery::try_new(
        query.name,
        query.static_term,
        Arc::new(LogicalPlan::Extension(Extension { node })),
        query.is_distinct,
    )?;
    Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
}

/// # Errors
/// `Unsupported` for a query for one value that reads the rows of the step before.
fn check_values(query: &RecursiveQuery) -> Result<()> {
    query.recursive_term.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| match part {
                Expr::ScalarSubquery(value)
                    if value.outer_ref_columns.is_empty()
                        && reads_step(&value.subquery, &query.name)? =>
                {
                    let text = format!("`{}` is read in a query for one value within its own step", query.name);
                    Err(Error::unsupported(text)
                        .with_hint("name it once, in FROM of the step; max(…) OVER () has a value of all its rows")
                        .into())
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}

fn reads_step(plan: &LogicalPlan, name: &str) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = source_as_provider(&scan.source)?.downcast_ref::<CteWorkTable>()
        {
            found |= table.name() == name;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn has_metadata_below(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let schema = node.schema();
        let mut fields = schema.fields().iter();
        found |= !schema.metadata().is_empty();
        found |= fields.any(|field| !field.metadata().is_empty());
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// A step with the metadata of others.
#[derive(Debug)]
struct Step {
    input: LogicalPlan,
    /// Has the metadata.
    like: DFSchemaRef,
    schema: DFSchemaRef,
}

impl Step {
    fn try_new(input: LogicalPlan, like: DFSchemaRef) -> Result<Self> {
        let fields = input.schema().iter().zip(like.fields());
        let fields = fields.map(|((qualifier, field), like)| {
            let field = field.as_ref().clone();
            let field = field.with_metadata(like.metadata().clone());
            (qualifier.cloned(), Arc::new(field))
        });
        let schema = DFSchema::new_with_metadata(fields.collect(), like.metadata().clone())?;
        Ok(Self {
            input,
            like,
            schema: Arc::new(schema),
        })
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input && self.schema == other.schema
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let found = self.input.partial_cmp(&other.input);
        found.filter(|found| *found != Ordering::Equal || self == other)
    }
}

impl Hash for Step {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.schema.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Step {
    fn name(&self) -> &'static str {
        "Step"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Step")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Self::try_new(input, Arc::clone(&self.like)),
            _ => datafusion::common::internal_err!("a step has one input"),
        }
    }
}

/// Plans steps.
#[derive(Debug)]
pub(super) struct WithSteps;

#[async_trait]
impl ExtensionPlanner for WithSteps {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(step), [input]) = (node.as_any().downcast_ref::<Step>(), inputs) else {
            return Ok(None);
        };
        let relabelled = RelabelExec::new(Arc::clone(input), step.like.inner());
        Ok(Some(Arc::new(relabelled)))
    }
}
