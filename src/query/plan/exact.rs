//! Gives conditions their meaning for nulls where the engine's own rules lose it.
//!
//! Comes in: an expression or a plan whose types are settled, or the engine's list of rules. Goes out: the same expression with `IN` lists and fields of structs that keep nulls apart, rules that keep `=`
//! and `IS NOT DISTINCT FROM` apart. Never here: what makes plans faster.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, JoinType, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, lit,
};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::dependencies::{Dependencies, Distincts};
use super::stay::Staying;
use super::unions::{NamesOfParts, WithoutRows};

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

/// The rules that look at what determines what, or come right before others that do.
const LOOK_AT_DEPENDENCIES: [&str; 3] = [
    "eliminate_join",
    "eliminate_duplicated_expr",
    "optimize_projections",
];

/// The engine's rules, of which none mixes `=` and `IS NOT DISTINCT FROM`, or moves a condition to where it means something else.
pub(in crate::query) fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let careful = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "eliminate_cross_join" => Arc::new(CrossJoins(EliminateCrossJoin::new())) as _,
        "replace_distinct_aggregate" => {
            Arc::new(Distincts(ReplaceDistinctWithAggregate::new())) as _
        }
        "single_distinct_aggregation_to_group_by" => {
            Arc::new(SameTypes(SingleDistinctToGroupBy::new())) as _
        }
        "propagate_empty_relation" => Arc::new(WithoutRows::default()) as _,
        "push_down_filter" => Arc::new(Staying(PushDownFilter::new())) as _,
        "extract_equijoin_predicate" => Arc::new(Keys(ExtractEquijoinPredicate::new())) as _,
        _ => rule,
    };
    let mut rules = Vec::new();
    for rule in Optimizer::new().rules {
        if LOOK_AT_DEPENDENCIES.contains(&rule.name()) {
            rules.push(Arc::new(Dependencies) as _);
        }
        if rule.name() == "optimize_unions" {
            rules.push(Arc::new(NamesOfParts) as _);
        }
        rules.push(careful(rule));
    }
    rules
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

/// Makes keys of the conditions of joins. In a join that takes null for a value, a condition `=` becomes a key and another condition: that it is not null.
#[derive(Debug)]
struct Keys(ExtractEquijoinPredicate);

impl OptimizerRule for Keys {
    fn name(&self) -> &'static str {
        "extract_equijoin_predicate"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let known = match &plan {
            LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull => {
                join.on.len()
            }
            _ => return self.0.rewrite(plan, config),
        };
        let mut done = self.0.rewrite(plan, config)?;
        if let LogicalPlan::Join(join) = &mut done.data {
            let found = join.on.iter().skip(known);
            let is_known = found.map(|(key, _)| key.clone().is_not_null());
            join.filter = conjunction(join.filter.take().into_iter().chain(is_known));
        }
        Ok(done)
    }
}

/// Makes groups of what aggregates take the distinct values of, unless that gives others of them another type: a sum of sums of decimals has more digits than a sum, and what it is compared with has its type already.
#[derive(Debug)]
struct SameTypes(SingleDistinctToGroupBy);

impl OptimizerRule for SameTypes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(plan));
        }
        let done = self.0.rewrite(plan.clone(), config)?;
        let fields = plan.schema().fields().iter();
        let mut fields = fields.zip(done.data.schema().fields());
        match fields.all(|(before, after)| before.data_type() == after.data_type()) {
            true => Ok(done),
            false => Ok(Transformed::no(plan)),
        }
    }
}
