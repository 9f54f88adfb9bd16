//! The engine's planner, which also knows nodes of ours.
//!
//! Comes in: a logical plan. Goes out: the physical one. Never here: what the nodes are (`steps.rs`, `asof/`).

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::future::BoxFuture;

use super::asof::WithAsofJoins;
use super::steps::WithSteps;

/// The planner.
#[derive(Debug)]
pub(in crate::query) struct OwnNodes;

fn planned<'a>(
    plan: &'a LogicalPlan,
    session: &'a dyn Session,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    Box::pin(async move {
        let ours: Vec<Arc<dyn ExtensionPlanner + Send + Sync>> =
            vec![Arc::new(WithSteps), Arc::new(WithAsofJoins)];
        let planner = DefaultPhysicalPlanner::with_extension_planners(ours);
        planner.create_physical_plan(plan, session).await
    })
}

// Written out, and not by the attribute, for the reason that src/serve/methods.rs has.
impl QueryPlanner for OwnNodes {
    fn create_physical_plan<'a, 'b, 'c, 'w>(
        &'a self,
        plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'w, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'w,
        'b: 'w,
        'c: 'w,
    {
        planned(plan, session)
    }
}
