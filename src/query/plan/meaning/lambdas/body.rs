//! What a lambda does, as an expression over columns of its own.
//!
//! Comes in: a call of a function of the engine. Goes out: a call of one of ours, which has the lambda within. Comes in: what a lambda does, and the types of its columns. Goes out: what is run. Never here: how it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::{HigherOrderFunction, Lambda};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Signature, Volatility,
};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use super::function::WithLambda;
use crate::error::Error;
use crate::query::plan::meaning::Meaning;
use crate::query::plan::types::Types;

/// What lambdas of one statement are settled by.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) config: Arc<ConfigOptions>,
    /// The bytes that the session may use.
    pub(super) limit: usize,
}

/// The function of ours that is a call of the engine's.
pub(super) fn ours(call: HigherOrderFunction, settings: &Arc<Settings>) -> Result<Expr> {
    let HigherOrderFunction { func, mut args } = call;
    let is_lambda = |argument: &Expr| matches!(argument, Expr::Lambda(_));
    let Some(place) = args.iter().position(is_lambda) else {
        return internal_err!("{} without a lambda", func.name());
    };
    let Expr::Lambda(lambda) = args.remove(place) else {
        return internal_err!("{} without its lambda", func.name());
    };
    if args.iter().any(is_lambda) {
        let text = format!("{} with several lambdas is not supported", func.name());
        return Err(Error::unsupported(text).into());
    }
    let name = format!("{}[{}]", func.name(), Expr::Lambda(lambda.clone()));
    let mut opening = Opening::default();
    let body = opening.open(lambda)?;
    let volatility = match body.is_volatile() {
        true => Volatility::Volatile,
        false => Volatility::Immutable,
    };
    let function = WithLambda {
        name,
        function: func,
        place,
        used: opening.used,
        num_named: opening.named.len(),
        body,
        settings: Arc::clone(settings),
        signature: Signature::user_defined(volatility),
        settled: Mutex::new(None),
    };
    args.extend(opening.named);
    Ok(ScalarUDF::from(function).call(args))
}

/// What a lambda does, over columns of these types, as it is run: settled as any expression of a statement.
pub(super) fn compiled(
    body: &Expr,
    columns: &Schema,
    settings: &Settings,
) -> Result<Arc<dyn PhysicalExpr>> {
    let fields = columns.fields().iter();
    let fields = fields.map(|field| (None, Arc::clone(field))).collect();
    let schema = Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?);
    let one_row = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: true,
        schema: Arc::clone(&schema),
    });
    let plan = LogicalPlanBuilder::from(one_row).project([body.clone().alias("made")])?;
    let limit = settings.limit;
    let analyzer = Analyzer::with_rules(vec![
        Arc::new(Types),
        Arc::new(TypeCoercion::new()),
        Arc::new(Meaning { limit }),
    ]);
    let plan = analyzer.execute_and_check(plan.build()?, &settings.config, |_, _| {})?;
    let Some(settled) = plan.expressions().into_iter().next() else {
        return internal_err!("a lambda that does nothing");
    };
    // Some functions are others, which only the simplifier puts in their place.
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(&schema))
        .with_config_options(Arc::clone(&settings.config))
        .build();
    let settled = ExprSimplifier::new(context).simplify(settled.unalias())?;
    let properties = ExecutionProps {
        config_options: Some(Arc::clone(&settings.config)),
        ..ExecutionProps::new()
    };
    let context = PhysicalPlanningContext::default();
    create_physical_expr(&settled, &schema, &properties, &context)
}

/// A lambda that is opened.
#[derive(Default)]
struct Opening {
    /// What it names beside its parameters.
    named: Vec<Expr>,
    /// The numbers of the parameters that it names, ascending.
    used: Vec<usize>,
}

impl Opening {
    /// The expression of a lambda over what it names and its parameters.
    fn open(&mut self, lambda: Lambda) -> Result<Expr> {
        let Lambda {
            params: names,
            body,
        } = lambda;
        let param = |part: &Expr| match part {
            Expr::LambdaVariable(variable) => names.iter().position(|name| *name == variable.name),
            _ => None,
        };
        body.apply(|part| {
            self.used.extend(param(part));
            Ok(TreeNodeRecursion::Continue)
        })?;
        self.used.sort_unstable();
        self.used.dedup();
        let opened = body.transform_down(|part| {
            let name = match param(&part) {
                Some(number) => param_name(number),
                None if stands_outside(&part)? => named_name(self.number(part)),
                None => return Ok(Transformed::no(part)),
            };
            let column = Expr::Column(Column::from_name(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(opened.data)
    }

    fn number(&mut self, named: Expr) -> usize {
        let known = self.named.iter().position(|known| *known == named);
        known.unwrap_or_else(|| {
            self.named.push(named);
            self.named.len() - 1
        })
    }
}

pub(super) fn named_name(number: usize) -> String {
    format!("named {number}")
}

pub(super) fn param_name(number: usize) -> String {
    format!("parameter {number}")
}

/// Whether a part of a lambda has one value for all elements of a list, which comes from outside.
///
/// # Errors
/// `Unsupported` for queries that look at parameters.
fn stands_outside(part: &Expr) -> Result<bool> {
    Ok(match part {
        // Parameters of lambdas around this one, too.
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::LambdaVariable(_)
        | Expr::Placeholder(_)
        | Expr::ScalarSubquery(_) => true,
        // The moment of the statement.
        Expr::ScalarFunction(call) => {
            call.args.is_empty() && call.func.signature().volatility == Volatility::Stable
        }
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
            let text = "EXISTS and IN of a query are not supported in a lambda";
            let hint = "write ARRAY(SELECT … FROM unnest(t.list) AS u(x) WHERE …)";
            return Err(Error::unsupported(text).with_hint(hint).into());
        }
        _ => false,
    })
}
