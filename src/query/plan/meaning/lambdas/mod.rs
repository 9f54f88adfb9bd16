//! Functions of lists with a lambda: `list_transform(l, x -> x + k)`.
//!
//! Comes in: a plan. Goes out: the same with functions of ours (`function.rs`) in place of the engine's, whose arguments are the list and what the lambda names beside its parameters (`body.rs`), and those of windows in projections (`apart.rs`). The engine finds parameters by places behind the columns of a batch, and does not follow them when it merges
//! projections and moves conditions. Goes out, for other processes, which are sent no functions of ours but by name: the engine's again, with places beyond all columns (`sent.rs`). Never here: what is done with what a lambda makes, which is the engine's; names (`rewrite/lambdas.rs`).

mod apart;
mod body;
mod function;
#[cfg(feature = "distributed")]
mod sent;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::error::Error;
use crate::query::plan::walk::walk;
use apart::{in_projections, is_ours};
use body::{Settings, ours};

#[cfg(feature = "distributed")]
pub(crate) use sent::{has_lambda, with_lambdas};

/// Puts functions of ours in place of those with lambdas. Comes before types are settled: those of lambdas are settled with those of their arguments.
#[derive(Debug)]
pub(in crate::query) struct Lambdas {
    /// The bytes that the session may use.
    pub(in crate::query) limit: usize,
}

impl AnalyzerRule for Lambdas {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_lambdas(&plan)? {
            return Ok(plan);
        }
        let settings = Arc::new(Settings {
            config: Arc::new(config.clone()),
            limit: self.limit,
        });
        let settings = &settings;
        let plan = walk(plan, |_| {
            move |expression: Expr, _: &DFSchema| {
                expression.transform_up(|part| match part {
                    Expr::HigherOrderFunction(call) => Ok(Transformed::yes(ours(call, settings)?)),
                    part => Ok(Transformed::no(part)),
                })
            }
        })?;
        check_parameters(&plan)?;
        let settled = plan
            .transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)));
        settled.data()
    }

    fn name(&self) -> &'static str {
        "lambdas"
    }
}

/// Puts those of windows into projections, once all is settled.
#[derive(Debug)]
pub(in crate::query) struct LambdasApart;

impl AnalyzerRule for LambdasApart {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        match found(&plan, |part| is_ours(part).then_some(()))? {
            Some(()) => in_projections(plan),
            None => Ok(plan),
        }
    }

    fn name(&self) -> &'static str {
        "lambdas_apart"
    }
}

fn has_lambdas(plan: &LogicalPlan) -> Result<bool> {
    let is_call = |part: &Expr| matches!(part, Expr::HigherOrderFunction(_));
    Ok(found(plan, |part| is_call(part).then_some(()))?.is_some())
}

/// The first part of all expressions of a plan of which something is wanted.
fn found<T>(plan: &LogicalPlan, wanted: impl Fn(&Expr) -> Option<T>) -> Result<Option<T>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                found = wanted(part);
                Ok(match found {
                    Some(_) => TreeNodeRecursion::Stop,
                    None => TreeNodeRecursion::Continue,
                })
            })
        })
    })?;
    Ok(found)
}

/// Refuses parameters outside of their lambdas: what is made before these are asked is not made of them.
fn check_parameters(plan: &LogicalPlan) -> Result<()> {
    let parameter = |part: &Expr| match part {
        Expr::LambdaVariable(variable) => Some(variable.name.clone()),
        _ => None,
    };
    match found(plan, parameter)? {
        None => Ok(()),
        Some(name) => {
            let text = format!(
                "the parameter `{name}` of a lambda is not known in aggregates, windows and queries within it"
            );
            let hint =
                "write ARRAY(SELECT … FROM unnest(t.list) AS u(x)), which may have all of them";
            Err(Error::unsupported(text).with_hint(hint).into())
        }
    }
}
