//! Gives conditions their meaning for nulls where the engine's own rules lose it.
//!
//! Comes in: an expression or a plan whose types are settled, or the engine's list of rules. Goes out: the same expression with `IN` lists and fields of structs that keep nulls apart, rules that keep `=`
//! and `IS NOT DISTINCT FROM` apart, and an error for a form that cannot be kept. Never here: what makes plans faster.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, JoinType, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, lit,
};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::error::Error;

/// Rewrites one `IN` list that holds null, or one field of a struct.
pub(super) fn exact(expression: Expr) -> Transformed<Expr> {
    match expression {
        Expr::InList(list) => without_nulls(list),
        Expr::ScalarFunction(call) if call.func.name() == GET_FIELD && !FieldOf::is(&call.func) => {
            let field = ScalarUDF::from(FieldOf::new(call.func));
            let call = ScalarFunction::new_udf(Arc::new(field), call.args);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// `x IN (1, NULL)` is `x IN (1) OR NULL`, and with NOT `x NOT IN (1) AND NULL`. The simplifier merges lists of two conditions as if null were a value.
fn without_nulls(list: InList) -> Transformed<Expr> {
    if !list.list.iter().any(is_null_literal) || list.list.iter().all(is_null_literal) {
        return Transformed::no(Expr::InList(list));
    }
    let values = list
        .list
        .into_iter()
        .filter(|value| !is_null_literal(value))
        .collect();
    let negated = list.negated;
    let rest = Expr::InList(InList::new(list.expr, values, negated));
    let unknown = lit(ScalarValue::Boolean(None));
    Transformed::yes(match negated {
        true => rest.and(unknown),
        false => rest.or(unknown),
    })
}

fn is_null_literal(value: &Expr) -> bool {
    match value {
        Expr::Literal(value, _) => value.is_null(),
        // What gives the list one type puts casts around its values.
        Expr::Cast(cast) => is_null_literal(&cast.expr),
        _ => false,
    }
}

const GET_FIELD: &str = "get_field";

/// A field of a struct, null where the struct is: the engine's own gives what the child array holds there.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct FieldOf {
    inner: Arc<ScalarUDF>,
}

impl FieldOf {
    /// That of the engine's function.
    pub(in crate::query) fn new(inner: Arc<ScalarUDF>) -> Self {
        Self { inner }
    }

    fn is(function: &ScalarUDF) -> bool {
        function.inner().downcast_ref::<Self>().is_some()
    }
}

impl ScalarUDFImpl for FieldOf {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = arguments
            .arg_fields
            .first()
            .is_none_or(|field| field.is_nullable());
        let field = self.inner.inner().return_field_from_args(arguments)?;
        let nullable = nullable || field.is_nullable();
        Ok(Arc::new(Field::clone(&field).with_nullable(nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut values = arguments.args.iter();
        let mut fields = arguments.arg_fields.iter();
        let (Some(value), Some(field)) = (values.next(), fields.next()) else {
            return self.inner.invoke_with_args(arguments);
        };
        let (mut value, mut field) = (value.clone(), Arc::clone(field));
        // A path goes down one struct at a time, since each may be null.
        for (name, name_field) in values.zip(fields) {
            let step = [Arc::clone(&field), Arc::clone(name_field)];
            let literal = match name {
                ColumnarValue::Scalar(name) => Some(name),
                ColumnarValue::Array(_) => None,
            };
            let found = self.inner.inner().return_field_from_args(ReturnFieldArgs {
                arg_fields: &step,
                scalar_arguments: &[None, literal],
            })?;
            let child = self.inner.invoke_with_args(ScalarFunctionArgs {
                args: vec![value.clone(), name.clone()],
                arg_fields: step.to_vec(),
                number_rows: arguments.number_rows,
                return_field: Arc::clone(&found),
                config_options: Arc::clone(&arguments.config_options),
            })?;
            value = within(&value, child)?;
            field = found;
        }
        Ok(value)
    }
}

/// The children, null where their parents are.
fn within(parent: &ColumnarValue, child: ColumnarValue) -> Result<ColumnarValue> {
    let parents: &ArrayRef = match parent {
        ColumnarValue::Array(parents) => parents,
        ColumnarValue::Scalar(parent) if parent.is_null() => {
            let nothing = ScalarValue::try_new_null(&child.data_type())?;
            return Ok(ColumnarValue::Scalar(nothing));
        }
        ColumnarValue::Scalar(_) => return Ok(child),
    };
    let is_struct = parents.as_struct_opt().is_some();
    if !is_struct || parents.null_count() == 0 {
        return Ok(child);
    }
    let children = child.into_array(parents.len())?;
    Ok(ColumnarValue::Array(nullif(&children, &is_null(parents)?)?))
}

/// The engine's rules, with one that does not mix `=` and `IS NOT DISTINCT FROM`.
pub(in crate::query) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let careful = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "eliminate_cross_join" => Arc::new(CrossJoins(EliminateCrossJoin::new())) as _,
        _ => rule,
    };
    Optimizer::new().rules.into_iter().map(careful).collect()
}

/// Takes inner joins apart and puts them together again, unless one of them takes null for a value: the engine's rule would then have all do so, or none.
#[derive(Debug)]
struct CrossJoins(EliminateCrossJoin);

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &'static str {
        "eliminate_cross_join"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mixed = plan.exists(|node| {
            Ok(matches!(node, LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNull))
        })?;
        match mixed {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Refuses `NOT IN (SELECT …)` and its like where the engine would take "unknown, because of a null" for true.
///
/// # Errors
/// `Unsupported`, with the form that says what is meant.
pub(in crate::query) fn check_subqueries(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                check_names(part)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                let alone = match condition {
                    Expr::Not(inner) => inner.as_ref(),
                    other => other,
                };
                // By itself it becomes a join that knows nulls.
                if !matches!(alone, Expr::InSubquery(_)) {
                    check_condition(condition, true, filter.input.as_ref())?;
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Refuses a subquery whose conditions on columns from outside name two columns of one name: the engine takes them for one.
fn check_names(expression: &Expr) -> Result<()> {
    let (subquery, members) = match expression {
        Expr::Exists(exists) => (&exists.subquery, Vec::new()),
        Expr::InSubquery(found) => (&found.subquery, found.subquery.subquery.expressions()),
        Expr::ScalarSubquery(subquery) => (subquery, Vec::new()),
        _ => return Ok(()),
    };
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    let mut columns: BTreeSet<Column> = BTreeSet::new();
    for member in &members {
        columns.extend(member.column_refs().into_iter().cloned());
    }
    subquery.subquery.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                if condition.contains_outer() {
                    columns.extend(condition.column_refs().into_iter().cloned());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut names = BTreeSet::new();
    let twice = columns
        .iter()
        .find(|column| !names.insert(column.name.as_str()));
    let Some(Column { name, .. }) = twice else {
        return Ok(());
    };
    let text = format!(
        "a subquery that compares columns from outside with two columns `{name}` of its own is not supported"
    );
    let hint = format!(
        "give one of them another name: FROM a, (SELECT {name} AS {name}_of_b FROM b) AS b"
    );
    Err(Error::unsupported(text).with_hint(hint).into())
}

/// `wanted` says that the rows are kept for which the condition is true, so that false and unknown are the same.
fn check_condition(condition: &Expr, wanted: bool, input: &LogicalPlan) -> Result<()> {
    match condition {
        Expr::BinaryExpr(pair) if pair.op.is_logic_operator() => {
            check_condition(&pair.left, wanted, input)?;
            check_condition(&pair.right, wanted, input)
        }
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(found) => check_membership(found, !found.negated, input),
            _ => check_condition(inner, false, input),
        },
        Expr::InSubquery(found) => check_membership(found, found.negated || !wanted, input),
        Expr::Alias(alias) => check_condition(&alias.expr, wanted, input),
        other => {
            other.apply_children(|part| {
                check_condition(part, false, input)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(())
        }
    }
}

fn check_membership(found: &InSubquery, unknown_matters: bool, input: &LogicalPlan) -> Result<()> {
    let members = found.subquery.subquery.schema();
    let maybe_null = found.expr.nullable(input.schema().as_ref()).unwrap_or(true)
        || members.fields().iter().any(|field| field.is_nullable());
    if !unknown_matters || !maybe_null {
        return Ok(());
    }
    let text = "IN (SELECT …) under NOT beside OR, or within another condition, is not supported where values may be null";
    Err(Error::unsupported(text)
        .with_hint("write NOT EXISTS (SELECT 1 FROM … WHERE …), or take the condition out of OR: it is supported by itself and with AND")
        .into())
}
