//! Nearest joins: beside each row of the left table the nearest row of the right one.
//!
//! Comes in: a logical plan with joins whose condition is the argument of a function that nobody else calls (`asof.rs` of the parent). Goes out: nodes of ours in their place, whose conditions are pairs of equal keys and one
//! inequality of a value of each side, and then operators (`exec/asof.rs`). Conditions of the right table alone are asked before the nearest row is looked for. What is above a node never goes below it, but for conditions of the left table (`asof_left.rs`): the nearest row is another one if some
//! are left out. Never here: SQL text, running.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column as LogicalColumn, DFSchema, DFSchemaRef, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::logical_plan::builder::build_join_schema;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Extension, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDFImpl, Signature, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, binary, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::error::{Error, ErrorKind};
use crate::query::exec::asof::{AsofJoinExec, Nearest};
use crate::query::slips::ASOF;

/// The function whose argument is the condition of a nearest join.
pub(in crate::query) const CONDITION: &str = "__asof_condition";

/// That function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Condition {
    signature: Signature,
}

impl Condition {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Condition {
    fn name(&self) -> &'static str {
        CONDITION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = "it is for conditions of ASOF JOIN, which write it themselves";
        Err(Error::new(ErrorKind::Query, format!("{CONDITION}(): {text}")).into())
    }
}

/// Puts nodes of ours in place of joins with such a condition.
#[derive(Debug)]
pub(in crate::query) struct AsofJoins;

impl AnalyzerRule for AsofJoins {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => match condition_of(&join) {
                Some(condition) => nearest(join, condition).map(Transformed::yes),
                None => Ok(Transformed::no(LogicalPlan::Join(join))),
            },
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "asof_joins"
    }
}

/// What the function is called with, if that is the condition of a join.
fn condition_of(join: &Join) -> Option<Expr> {
    match join.filter.as_ref()? {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == CONDITION => {
            args.first().cloned()
        }
        _ => None,
    }
}

/// The sides that an expression has columns of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
    Neither,
    Both,
}

pub(super) fn side(expression: &Expr, left: &DFSchema) -> Side {
    let columns = expression.column_refs();
    let on_left = columns
        .iter()
        .filter(|column| left.is_column_from_schema(column))
        .count();
    match (on_left, columns.len() - on_left) {
        (0, 0) => Side::Neither,
        (_, 0) => Side::Left,
        (0, _) => Side::Right,
        _ => Side::Both,
    }
}

/// A comparison of a value of the left side with one of the right, in this order.
fn of_both(expression: &Expr, left: &DFSchema) -> Option<BinaryExpr> {
    let Expr::BinaryExpr(comparison) = expression else {
        return None;
    };
    let sides = (side(&comparison.left, left), side(&comparison.right, left));
    match sides {
        (Side::Left, Side::Right) => Some(comparison.clone()),
        (Side::Right, Side::Left) => Some(BinaryExpr {
            left: comparison.right.clone(),
            op: comparison.op.swap()?,
            right: comparison.left.clone(),
        }),
        _ => None,
    }
}

fn wrong(text: impl Into<String>) -> datafusion::error::DataFusionError {
    Error::new(ErrorKind::Query, text.into())
        .with_hint(ASOF)
        .into()
}

/// The node of a join with such a condition.
fn nearest(join: Join, condition: Expr) -> Result<LogicalPlan> {
    let schema = Arc::clone(join.left.schema());
    let (mut equal, mut nearest) = (Vec::new(), Vec::new());
    let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
    for part in split_conjunction_owned(condition) {
        let comparison = of_both(&part, &schema);
        let comparison = comparison.map(|comparison| (comparison.op, comparison));
        match (comparison, side(&part, &schema)) {
            (Some((Operator::Eq, pair)), _) => equal.push(Expr::BinaryExpr(pair)),
            (Some((Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq, pair)), _) => {
                nearest.push(Expr::BinaryExpr(pair));
            }
            (None, Side::Right) => of_right.push(part),
            (None, Side::Left | Side::Neither) if join.join_type == JoinType::Inner => {
                of_left.push(part);
            }
            (None, Side::Left | Side::Neither) => {
                return Err(wrong(format!(
                    "the condition of an ASOF LEFT JOIN cannot choose rows of the left table, got {part}"
                )));
            }
            _ => {
                return Err(wrong(format!(
                    "ASOF JOIN compares a value of each table, by = and once by >=, >, <= or <, got {part}"
                )));
            }
        }
    }
    let count = nearest.len();
    let (Some(nearest), 1) = (nearest.pop(), count) else {
        let text = "the condition of an ASOF JOIN must have one comparison by >=, >, <= or < of a value of each table";
        return Err(wrong(format!("{text}, got {count}")));
    };
    let node = AsofJoin::try_new(
        chosen(Arc::unwrap_or_clone(join.left), of_left)?,
        chosen(Arc::unwrap_or_clone(join.right), of_right)?,
        equal,
        nearest,
        join.join_type,
    )?;
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// A nearest join.
#[derive(Debug)]
pub(in crate::query) struct AsofJoin {
    left: LogicalPlan,
    right: LogicalPlan,
    /// Pairs of values that are equal, that of the left side first.
    equal: Vec<Expr>,
    /// The inequality, with the value of the left side first.
    nearest: Expr,
    /// Inner or left.
    kind: JoinType,
    schema: DFSchemaRef,
}

impl AsofJoin {
    fn try_new(
        left: LogicalPlan,
        right: LogicalPlan,
        equal: Vec<Expr>,
        nearest: Expr,
        kind: JoinType,
    ) -> Result<Self> {
        let schema = build_join_schema(left.schema(), right.schema(), &kind)?;
        Ok(Self {
            left,
            right,
            equal,
            nearest,
            kind,
            schema: Arc::new(schema),
        })
    }
}

impl AsofJoin {
    pub(super) fn left(&self) -> &LogicalPlan {
        &self.left
    }

    /// The columns that are equal as they are, that of the left side first.
    pub(super) fn equal_columns(&self) -> impl Iterator<Item = (&LogicalColumn, &LogicalColumn)> {
        self.equal.iter().filter_map(|pair| {
            let Expr::BinaryExpr(pair) = pair else {
                return None;
            };
            let (one, other) = (pair.left.try_as_col()?, pair.right.try_as_col()?);
            match self.left.schema().is_column_from_schema(one) {
                true => Some((one, other)),
                false => Some((other, one)),
            }
        })
    }

    /// The same, of rows of each side that fulfil conditions.
    pub(super) fn of_chosen(&self, of_left: Vec<Expr>, of_right: Vec<Expr>) -> Result<Self> {
        Self::try_new(
            chosen(self.left.clone(), of_left)?,
            chosen(self.right.clone(), of_right)?,
            self.equal.clone(),
            self.nearest.clone(),
            self.kind,
        )
    }
}

/// The rows of a plan that fulfil conditions.
fn chosen(plan: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    match conjunction(conditions) {
        Some(condition) => LogicalPlanBuilder::from(plan).filter(condition)?.build(),
        None => Ok(plan),
    }
}

impl PartialEq for AsofJoin {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.kind, it.equal.clone(), it.nearest.clone());
        parts(self) == parts(other)
            && self.left == other.left
            && self.right == other.right
            && self.schema == other.schema
    }
}

impl Eq for AsofJoin {}

impl PartialOrd for AsofJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let found = self.left.partial_cmp(&other.left);
        found.filter(|found| *found != Ordering::Equal || self == other)
    }
}

impl Hash for AsofJoin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.left.hash(state);
        self.right.hash(state);
        self.equal.hash(state);
        self.nearest.hash(state);
        self.kind.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for AsofJoin {
    fn name(&self) -> &'static str {
        "AsofJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let equal = self.equal.iter().cloned();
        equal.chain([self.nearest.clone()]).collect()
    }

    fn fmt_for_explain(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AsofJoin: {}", self.kind)?;
        for part in self.equal.iter().chain([&self.nearest]) {
            write!(formatter, " {part}")?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(
        &self,
        mut expressions: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        match (inputs.pop(), inputs.pop(), expressions.pop()) {
            (Some(right), Some(left), Some(nearest)) => {
                // Rules of the engine name what they change.
                let plain = |expression: Expr| expression.unalias_nested().data;
                let equal = expressions.into_iter().map(plain).collect();
                Self::try_new(left, right, equal, plain(nearest), self.kind)
            }
            _ => datafusion::common::internal_err!("a nearest join has two inputs"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let num_left = self.left.schema().fields().len();
        let (of_left, of_right) = output_columns.iter().partition(|place| **place < num_left);
        let of_right: Vec<usize> = of_right;
        let of_right = of_right.into_iter().map(|place| place - num_left);
        Some(vec![of_left, of_right.collect()])
    }
}

/// Plans nearest joins.
#[derive(Debug)]
pub(super) struct WithAsofJoins;

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
        let mut planned = |pair: &Expr| {
            let Some(pair) = of_both(pair, node.left.schema()) else {
                let text = format!("a nearest join compares {pair}");
                return datafusion::common::internal_err!("{text}");
            };
            let one = |value: &Expr, schema: &DFSchema| {
                planner.create_physical_expr(value, schema, session, context)
            };
            let places = (
                of_left.place(one(&pair.left, node.left.schema())?)?,
                of_right.place(one(&pair.right, node.right.schema())?)?,
            );
            Ok((pair.op, places))
        };
        let equal = node.equal.iter().map(|pair| Ok(planned(pair)?.1));
        let equal = equal.collect::<Result<_>>()?;
        let (op, compared) = planned(&node.nearest)?;
        let nearest = Nearest::of(op, equal, compared, node.kind == JoinType::Left)?;
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
