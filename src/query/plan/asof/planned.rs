//! Operators of nearest joins.
//!
//! Comes in: a node, and the plans of its inputs. Goes out: the operator over these, which have what it compares as columns; those that were worked out for it alone do not come out of it. Never here: order and partitions of the inputs, which the engine gives the operator as it asks.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, UserDefinedLogicalNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, binary, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::{AsofJoin, Pairs};
use crate::query::exec::asof::{AsofJoinExec, Nearest, Pair};

/// Plans nearest joins.
#[derive(Debug)]
pub(in crate::query) struct WithAsofJoins;

#[async_trait]
impl ExtensionPlanner for WithAsofJoins {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(node), [left, right]) = (node.as_any().downcast_ref::<AsofJoin>(), inputs) else {
            return Ok(None);
        };
        let mut of_left = Values::of(left);
        let mut of_right = Values::of(right);
        let Pairs::Apart(values) = &node.pairs else {
            return datafusion::common::internal_err!("a nearest join with comparisons");
        };
        let pairs = values.chunks_exact(2).map(|pair| {
            let [one, other] = pair else {
                return datafusion::common::internal_err!("a nearest join compares pairs");
            };
            let planned = |value: &Expr, schema: &DFSchema| {
                planner.create_physical_expr(value, schema, session, context)
            };
            Ok((
                of_left.place(planned(one, node.left.schema())?)?,
                of_right.place(planned(other, node.right.schema())?)?,
            ))
        });
        let mut equal: Vec<Pair> = pairs.collect::<Result<_>>()?;
        let Some(compared) = equal.pop() else {
            return datafusion::common::internal_err!("a nearest join compares nothing");
        };
        let mut known = HashSet::new();
        equal.retain(|pair| known.insert(*pair));
        let nearest = Nearest::of(node.op, equal, compared, node.kind == JoinType::Left)?;
        let (num_left, num_right) = (num_columns(left), num_columns(right));
        let (left, right) = (of_left.plan()?, of_right.plan()?);
        let all_left = num_columns(&left);
        let all = all_left + num_columns(&right);
        let join = Arc::new(AsofJoinExec::try_new(left, right, nearest)?);
        if all == num_left + num_right {
            return Ok(Some(join));
        }
        // Values that were worked out for it are nobody else's.
        let asked = (0..num_left).chain(all_left..all_left + num_right);
        let schema = join.schema();
        let columns = asked.map(|place| column_of(&schema, place));
        let columns: Vec<_> = columns.collect();
        Ok(Some(Arc::new(ProjectionExec::try_new(columns, join)?)))
    }
}

fn num_columns(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.schema().fields().len()
}

fn column_of(schema: &Schema, place: usize) -> ProjectionExpr {
    let name = schema.fields().get(place).map_or("", |field| field.name());
    let expr = Arc::new(Column::new(name, place));
    ProjectionExpr::new(expr, name)
}

/// An input, and values that a join compares beside its columns.
struct Values {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<ProjectionExpr>,
}

impl Values {
    fn of(input: &Arc<dyn ExecutionPlan>) -> Self {
        let schema = input.schema();
        let columns = (0..schema.fields().len()).map(|place| column_of(&schema, place));
        Self {
            input: Arc::clone(input),
            columns: columns.collect(),
        }
    }

    /// The column that has a value, which may be one more.
    fn place(&mut self, value: Arc<dyn PhysicalExpr>) -> Result<usize> {
        let schema = self.input.schema();
        let kind = value.data_type(&schema)?;
        // To keys 0.0 and -0.0 are two.
        let value = match kind.is_floating() {
            true => binary(
                value,
                Operator::Plus,
                lit(ScalarValue::new_zero(&kind)?),
                &schema,
            )?,
            false => value,
        };
        let place = match value.downcast_ref::<Column>() {
            Some(column) => return Ok(column.index()),
            None => self.columns.len(),
        };
        let name = format!("__asof_{place}");
        self.columns.push(ProjectionExpr::new(value, name));
        Ok(place)
    }

    fn plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        match self.columns.len() == num_columns(&self.input) {
            true => Ok(self.input),
            false => Ok(Arc::new(ProjectionExec::try_new(self.columns, self.input)?)),
        }
    }
}
