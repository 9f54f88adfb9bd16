//! What is known of rows that come from other processes.
//!
//! Comes in: a plan in stages. Goes out: the same plan with a node above each exchange of which is known that some columns, or fields of structs, are equal or constant, in stages that rely on the order of rows. The engine makes the operators
//! of a part anew where it runs, and asks what is known there: an exchange that came with the part knows nothing. A window whose rows are sorted by a column that is equal to its key would not run, and groups that
//! come in order would no longer.
//! Never here: what is known within a stage, which the operators say themselves.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr,
};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, replace_children_if_necessary,
};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
    PlanProperties, ReplaceChildrenOptions,
};
use datafusion_distributed::NetworkBoundaryExt;

use crate::cluster::codec::tiles::broken;
use crate::query::over_one_input;

/// The plan whose parts know of rows from elsewhere what is known here.
///
/// # Errors
/// As the engine says.
pub(in crate::cluster) fn knowing(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let relies = relies_on_order(&plan);
    below(&plan, relies)
}

/// What is below and at a node of a stage, which relies on the order of rows or does not.
fn below(plan: &Arc<dyn ExecutionPlan>, relies: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_boundary = plan.is_network_boundary();
    let children = plan.children().into_iter().map(|child| {
        let relies = match is_boundary {
            true => relies_on_order(child),
            false => relies,
        };
        below(child, relies)
    });
    let children = children.collect::<Result<_>>()?;
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    if !is_boundary || !relies {
        return Ok(plan);
    }
    let classes = classes_of(plan.equivalence_properties());
    match classes.is_empty() {
        true => Ok(plan),
        false => Ok(Arc::new(KnownExec::try_new(plan, classes)?)),
    }
}

/// Whether a stage has operators that run as they do since rows come in some order.
fn relies_on_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let groups = plan.downcast_ref::<AggregateExec>();
    plan.is::<BoundedWindowAggExec>()
        || plan.is::<WindowAggExec>()
        || groups.is_some_and(|groups| *groups.input_order_mode() != InputOrderMode::Linear)
        || !plan.is_network_boundary() && plan.children().into_iter().any(relies_on_order)
}

/// What is equal in each row: columns, and fields of columns that are structs; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) struct Class {
    pub(in crate::cluster) parts: Vec<Arc<dyn PhysicalExpr>>,
    pub(in crate::cluster) constant: Constant,
}

/// Which rows have the same values in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Constant {
    No,
    InEachPartition,
    Everywhere,
}

/// The classes that say something.
fn classes_of(known: &EquivalenceProperties) -> Vec<Class> {
    let classes = known.eq_group().iter().map(|class| {
        let parts = class.iter().filter(|part| is_told(part));
        let constant = class.canonical_expr();
        let constant = constant.and_then(|part| known.eq_group().is_expr_constant(part));
        let constant = match constant {
            None => Constant::No,
            Some(AcrossPartitions::Heterogeneous) => Constant::InEachPartition,
            Some(AcrossPartitions::Uniform(_)) => Constant::Everywhere,
        };
        let parts = parts.map(Arc::clone).collect();
        Class { parts, constant }
    });
    let least = |class: &Class| if class.constant == Constant::No { 2 } else { 1 };
    classes
        .filter(|class| class.parts.len() >= least(class))
        .collect()
}

/// Whether it is a column, or a field of one: what is said in keys and orders of windows, and is known to be equal to another.
fn is_told(part: &Arc<dyn PhysicalExpr>) -> bool {
    let field = part.downcast_ref::<ScalarFunctionExpr>();
    let field = field.filter(|call| call.name() == "get_field");
    part.is::<Column>()
        || field.is_some_and(|field| match field.args() {
            [of, names @ ..] => of.is::<Column>() && names.iter().all(|name| name.is::<Literal>()),
            [] => false,
        })
}

/// The rows of its input, of which more is known.
#[derive(Debug)]
pub(in crate::cluster) struct KnownExec {
    input: Arc<dyn ExecutionPlan>,
    classes: Vec<Class>,
    properties: Arc<PlanProperties>,
}

impl KnownExec {
    /// # Errors
    /// When a part is over a column that there is not.
    pub(in crate::cluster) fn try_new(
        input: Arc<dyn ExecutionPlan>,
        classes: Vec<Class>,
    ) -> Result<Self> {
        let num_columns = input.schema().fields().len();
        let mut known = input.equivalence_properties().clone();
        for class in &classes {
            let columns = class.parts.iter().flat_map(collect_columns);
            if columns
                .into_iter()
                .any(|column| column.index() >= num_columns)
            {
                return Err(broken("the number of a column").into());
            }
            let Some((first, others)) = class.parts.split_first() else {
                continue;
            };
            for other in others {
                known.add_equal_conditions(Arc::clone(first), Arc::clone(other))?;
            }
            let constant = match class.constant {
                Constant::No => continue,
                Constant::InEachPartition => AcrossPartitions::Heterogeneous,
                Constant::Everywhere => AcrossPartitions::Uniform(None),
            };
            known.add_constants([ConstExpr::new(Arc::clone(first), constant)])?;
        }
        let properties = PlanProperties::new(
            known,
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Self {
            input,
            classes,
            properties: Arc::new(properties),
        })
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Self::try_new(input, self.classes.clone())
    }

    /// What is known.
    pub(in crate::cluster) fn classes(&self) -> &[Class] {
        &self.classes
    }
}

impl DisplayAs for KnownExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KnownExec:")?;
        for class in &self.classes {
            let parts = class
                .parts
                .iter()
                .map(|part| match part.downcast_ref::<Column>() {
                    Some(column) => column.name().to_owned(),
                    None => part.to_string(),
                });
            write!(formatter, " {}", parts.collect::<Vec<_>>().join(" = "))?;
            if class.constant != Constant::No {
                formatter.write_str(" = constant")?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for KnownExec {
    fn name(&self) -> &'static str {
        "KnownExec"
    }

    over_one_input!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
