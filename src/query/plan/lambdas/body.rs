//! What a lambda does, as an expression over columns of its own.
//!
//! Comes in: a call of a function of the engine. Goes out: a call of one of ours, which has the lambda within. Never here: how it runs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::{HigherOrderFunction, Lambda};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, Signature, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::create_physical_expr;

use super::function::WithLambda;
use crate::error::Error;

/// The function of ours that is a call of the engine's.
pub(super) fn ours(
    call: HigherOrderFunction,
    schema: &DFSchema,
    properties: &ExecutionProps,
) -> Result<Expr> {
    let params = call.lambda_parameters(schema)?;
    let HigherOrderFunction { func, mut args } = call;
    let is_lambda = |argument: &Expr| matches!(argument, Expr::Lambda(_));
    let place = args.iter().position(is_lambda);
    let (Some(place), Some(params)) = (place, params.into_iter().next()) else {
        return internal_err!("{} without a lambda", func.name());
    };
    let Expr::Lambda(lambda) = args.remove(place) else {
        return internal_err!("{} without its lambda", func.name());
    };
    if args.iter().any(is_lambda) {
        let text = format!("{} with several lambdas is not supported", func.name());
        return Err(Error::unsupported(text).into());
    }
    let text = format!("{}[{}]", func.name(), Expr::Lambda(lambda.clone()));
    let mut body = Body::default();
    let expr = body.open(lambda, &params, schema)?;
    let volatility = match expr.is_volatile() {
        true => Volatility::Volatile,
        false => Volatility::Immutable,
    };
    let fields = body.schema().fields;
    let fields = fields.iter().map(|field| (None, Arc::clone(field)));
    let fields = fields.collect();
    let within = Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?);
    // Some functions are others, which only the simplifier puts in their place.
    let simplified = SimplifyContext::builder().with_schema(Arc::clone(&within));
    let simplified = match &properties.config_options {
        Some(config) => simplified.with_config_options(Arc::clone(config)),
        None => simplified,
    };
    let expr = ExprSimplifier::new(simplified.build()).simplify(expr)?;
    let context = PhysicalPlanningContext::default();
    let function = WithLambda {
        name: text,
        function: func,
        place,
        params,
        used: body.used,
        named: body.fields,
        body: create_physical_expr(&expr, &within, properties, &context)?,
        signature: Signature::variadic_any(volatility),
    };
    args.extend(body.named);
    Ok(ScalarUDF::from(function).call(args))
}

/// What a lambda does, over columns of its own.
#[derive(Default)]
struct Body {
    /// What it names beside its parameters.
    named: Vec<Expr>,
    /// The same as columns.
    fields: Vec<FieldRef>,
    /// The numbers of the parameters that it names, ascending.
    used: Vec<usize>,
    /// The same as columns.
    used_fields: Vec<FieldRef>,
}

impl Body {
    /// The expression of a lambda over what it names and its parameters.
    fn open(&mut self, lambda: Lambda, params: &[FieldRef], schema: &DFSchema) -> Result<Expr> {
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
        let field = |number: &usize| match params.get(*number) {
            Some(field) => Ok(Arc::new(
                field.as_ref().clone().with_name(param_name(*number)),
            )),
            None => internal_err!("a lambda with {number} parameters and more"),
        };
        self.used_fields = self.used.iter().map(field).collect::<Result<_>>()?;
        let opened = body.transform_down(|part| {
            if let Some(number) = param(&part) {
                return Ok(Transformed::new(
                    Expr::Column(Column::from_name(param_name(number))),
                    true,
                    TreeNodeRecursion::Jump,
                ));
            }
            match stands_outside(&part)? {
                true => {
                    let column = Expr::Column(self.column(part, schema)?);
                    Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
                }
                false => Ok(Transformed::no(part)),
            }
        })?;
        Ok(opened.data)
    }

    /// The column for something that is named.
    fn column(&mut self, named: Expr, schema: &DFSchema) -> Result<Column> {
        let number = match self.named.iter().position(|known| *known == named) {
            Some(number) => number,
            None => {
                let (_, field) = named.to_field(schema)?;
                let name = named_name(self.named.len());
                self.fields
                    .push(Arc::new(field.as_ref().clone().with_name(name)));
                self.named.push(named);
                self.named.len() - 1
            }
        };
        Ok(Column::from_name(named_name(number)))
    }

    fn schema(&self) -> Schema {
        Schema::new(
            self.fields
                .iter()
                .chain(&self.used_fields)
                .cloned()
                .collect::<Vec<_>>(),
        )
    }
}

fn named_name(number: usize) -> String {
    format!("named {number}")
}

fn param_name(number: usize) -> String {
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
