//! Nearest joins: beside each row of the left table the nearest row of the right one.
//!
//! Comes in: a logical plan with joins whose condition is the argument of a function (`rewrite/asof.rs`). Goes out: nodes of ours in their place, whose conditions are pairs of equal keys and one
//! inequality of a value of each side, of which `planned.rs` makes operators (`exec/asof/`). Conditions of the right table alone are asked before the nearest row is looked for. What is above a node never goes below it, but for conditions of the left table (`left.rs`): the nearest row is another one if some
//! are left out. Never here: SQL text, running.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as LogicalColumn, DFSchema, DFSchemaRef, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::logical_plan::builder::build_join_schema;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Extension, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDFImpl, Signature, UserDefinedLogicalNodeCore, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

pub(in crate::query) use self::left::AsofLeft;
pub(super) use self::planned::WithAsofJoins;
use crate::error::{Error, ErrorKind};
use crate::query::messages::slips::ASOF;

mod left;
mod planned;

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

/// Takes the comparisons of nearest joins apart, once their values have one type.
#[derive(Debug)]
pub(in crate::query) struct AsofPairs;

impl AnalyzerRule for AsofPairs {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Extension(extension) = &node else {
                return Ok(Transformed::no(node));
            };
            let join = extension.node.as_any().downcast_ref::<AsofJoin>();
            let apart = join.map(AsofJoin::apart).transpose()?.flatten();
            Ok(match apart {
                Some(join) => {
                    let node = Arc::new(join);
                    Transformed::yes(LogicalPlan::Extension(Extension { node }))
                }
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "asof_pairs"
    }
}

/// What the function is called with, if that is the condition of a join.
fn condition_of(join: &Join) -> Option<Expr> {
    match join.filter.as_ref()? {
        Expr::ScalarFunction(ScalarFunction { func, args })
            if func.name() == CONDITION
                && matches!(join.join_type, JoinType::Inner | JoinType::Left) =>
        {
            args.first().cloned()
        }
        _ => None,
    }
}

/// The sides that an expression has columns of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Neither,
    Both,
}

fn side(expression: &Expr, left: &DFSchema) -> Side {
    let mut columns: Vec<LogicalColumn> = expression.column_refs().into_iter().cloned().collect();
    // Those that subqueries look at.
    let looked = expression.apply(|part| {
        let outside = match part {
            Expr::Exists(found) => &found.subquery.outer_ref_columns,
            Expr::InSubquery(found) => &found.subquery.outer_ref_columns,
            Expr::ScalarSubquery(found) => &found.outer_ref_columns,
            Expr::SetComparison(found) => &found.subquery.outer_ref_columns,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        columns.extend(outside.iter().filter_map(|column| match column {
            Expr::OuterReferenceColumn(_, column) => Some(column.clone()),
            _ => None,
        }));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(looked.is_ok());
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
    let (mut pairs, mut nearest) = (Vec::new(), Vec::new());
    let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
    for part in split_conjunction_owned(condition) {
        let comparison = of_both(&part, &schema);
        let comparison = comparison.map(|comparison| (comparison.op, comparison));
        match (comparison, side(&part, &schema)) {
            (Some((Operator::Eq, pair)), _) => pairs.push(Expr::BinaryExpr(pair)),
            (Some((Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq, pair)), _) => {
                nearest.push(pair);
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
    let kinds = (nearest.op, join.join_type);
    pairs.push(Expr::BinaryExpr(nearest));
    let node = AsofJoin::try_new(
        chosen(Arc::unwrap_or_clone(join.left), of_left)?,
        chosen(Arc::unwrap_or_clone(join.right), of_right)?,
        Pairs::Compared(pairs),
        kinds,
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
    /// Those of which the values are equal, and last the one of which they are compared.
    pairs: Pairs,
    /// How they are compared.
    op: Operator,
    /// Inner or left.
    kind: JoinType,
    schema: DFSchemaRef,
}

/// What is compared, that of the left side first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Pairs {
    /// Comparisons, whose values get one type.
    Compared(Vec<Expr>),
    /// Their values, two by two, of which the optimizer makes what it likes.
    Apart(Vec<Expr>),
}

impl Pairs {
    fn all(&self) -> &[Expr] {
        match self {
            Self::Compared(all) | Self::Apart(all) => all,
        }
    }
}

impl AsofJoin {
    fn try_new(
        left: LogicalPlan,
        right: LogicalPlan,
        pairs: Pairs,
        (op, kind): (Operator, JoinType),
    ) -> Result<Self> {
        let schema = build_join_schema(left.schema(), right.schema(), &kind)?;
        Ok(Self {
            left,
            right,
            pairs,
            op,
            kind,
            schema: Arc::new(schema),
        })
    }

    fn left(&self) -> &LogicalPlan {
        &self.left
    }

    /// The columns that are equal as they are, that of the left side first.
    fn equal_columns(&self) -> impl Iterator<Item = (&LogicalColumn, &LogicalColumn)> {
        let pairs = match &self.pairs {
            Pairs::Compared(_) => &[][..],
            Pairs::Apart(values) => values
                .split_last_chunk::<2>()
                .map_or(&[][..], |(equal, _)| equal),
        };
        pairs.chunks_exact(2).filter_map(|pair| match pair {
            [one, other] => Some((one.try_as_col()?, other.try_as_col()?)),
            _ => None,
        })
    }

    /// The same, of rows of each side that fulfil conditions.
    fn of_chosen(&self, of_left: Vec<Expr>, of_right: Vec<Expr>) -> Result<Self> {
        Self::try_new(
            chosen(self.left.clone(), of_left)?,
            chosen(self.right.clone(), of_right)?,
            self.pairs.clone(),
            (self.op, self.kind),
        )
    }

    /// The same with the values of comparisons apart: the optimizer would turn these around, and work out those that are constant.
    fn apart(&self) -> Result<Option<Self>> {
        let Pairs::Compared(comparisons) = &self.pairs else {
            return Ok(None);
        };
        let mut values = Vec::with_capacity(2 * comparisons.len());
        for comparison in comparisons {
            let Expr::BinaryExpr(pair) = comparison else {
                let text = format!("a nearest join compares {comparison}");
                return datafusion::common::internal_err!("{text}");
            };
            values.extend([pair.left.as_ref().clone(), pair.right.as_ref().clone()]);
        }
        let (left, right) = (self.left.clone(), self.right.clone());
        Self::try_new(left, right, Pairs::Apart(values), (self.op, self.kind)).map(Some)
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
        (self.kind, self.op) == (other.kind, other.op)
            && self.pairs == other.pairs
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
        self.pairs.hash(state);
        self.op.hash(state);
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
        self.pairs.all().to_vec()
    }

    fn fmt_for_explain(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AsofJoin: {}", self.kind)?;
        match &self.pairs {
            Pairs::Compared(comparisons) => {
                for comparison in comparisons {
                    write!(formatter, ", {comparison}")?;
                }
            }
            Pairs::Apart(values) => {
                let last = (values.len() / 2).saturating_sub(1);
                for (place, pair) in values.chunks_exact(2).enumerate() {
                    let op = if place == last { self.op } else { Operator::Eq };
                    if let [one, other] = pair {
                        write!(formatter, ", {one} {op} {other}")?;
                    }
                }
            }
        }
        Ok(())
    }

    fn with_exprs_and_inputs(
        &self,
        expressions: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let (Some(right), Some(left)) = (inputs.pop(), inputs.pop()) else {
            return datafusion::common::internal_err!("a nearest join has two inputs");
        };
        // Rules of the engine name what they change.
        let all = expressions.into_iter();
        let all = all
            .map(|expression| expression.unalias_nested().data)
            .collect();
        let pairs = match &self.pairs {
            Pairs::Compared(_) => Pairs::Compared(all),
            Pairs::Apart(_) => Pairs::Apart(all),
        };
        Self::try_new(left, right, pairs, (self.op, self.kind))
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let num_left = self.left.schema().fields().len();
        let (of_left, of_right) = output_columns.iter().partition(|place| **place < num_left);
        let of_right: Vec<usize> = of_right;
        let of_right = of_right.into_iter().map(|place| place - num_left);
        Some(vec![of_left, of_right.collect()])
    }
}
