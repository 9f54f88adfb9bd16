//! The physical plan of a statement that this process runs alone.
//!
//! Comes in: a logical plan that is checked. Goes out: its physical plan, and what makes another one of it. A plan with subqueries in place of values has one place for each of them, that all of its runs would share: each
//! run has a plan of its own then. Never here: statements of several processes, in which such subqueries are joins.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;

use crate::query::cache::reads_grids_only;
use crate::query::plan::repeated::{is_volatile, made_once};
use crate::query::rewrite::same_names::{Wanted, restored};

/// A physical plan.
#[derive(Debug)]
pub(in crate::query) struct Physical {
    pub(in crate::query) plan: Arc<dyn ExecutionPlan>,
    /// Whether all of its runs may be of this one plan, which reads grids and nothing else.
    pub(in crate::query) is_lasting: bool,
    /// What makes plans like it, where no two runs may be of one.
    pub(in crate::query) own_plans: Option<Box<OwnPlans>>,
}

impl From<Arc<dyn ExecutionPlan>> for Physical {
    /// One that is not kept.
    fn from(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan,
            is_lasting: false,
            own_plans: None,
        }
    }
}

impl Physical {
    /// That of a statement that this process runs alone.
    ///
    /// # Errors
    /// As the engine says.
    pub(in crate::query) async fn here(
        state: &SessionState,
        logical: &LogicalPlan,
    ) -> Result<Self> {
        let plan = planned(state, logical).await?;
        let shares_values = shares_values(&plan);
        let own_plans = shares_values.then(|| {
            Box::new(OwnPlans {
                state: state.clone(),
                logical: logical.clone(),
                wanted: Wanted::new(),
                is_first_taken: AtomicBool::new(false),
            })
        });
        Ok(Self {
            is_lasting: !shares_values && reads_grids_only(&plan),
            plan,
            own_plans,
        })
    }

    /// The same, with the names of its columns that the planner did not take.
    ///
    /// # Errors
    /// As the engine says.
    pub(in crate::query) fn restored(self, wanted: Wanted) -> Result<Self> {
        Ok(Self {
            plan: restored(self.plan, &wanted)?,
            is_lasting: self.is_lasting,
            own_plans: self.own_plans.map(|mut own_plans| {
                own_plans.wanted = wanted;
                own_plans
            }),
        })
    }
}

/// Makes a plan for each run, of the same rows.
pub(in crate::query) struct OwnPlans {
    state: SessionState,
    logical: LogicalPlan,
    wanted: Wanted,
    is_first_taken: AtomicBool,
}

impl fmt::Debug for OwnPlans {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OwnPlans")
            .field("is_first_taken", &self.is_first_taken)
            .finish_non_exhaustive()
    }
}

impl OwnPlans {
    /// Whether whoever asks, and nobody else, has the plan that is there already.
    pub(super) fn take_first(&self) -> bool {
        !self.is_first_taken.swap(true, Ordering::AcqRel)
    }

    /// Another plan.
    ///
    /// # Errors
    /// As the engine says.
    pub(super) async fn another(&self) -> Result<Arc<dyn ExecutionPlan>> {
        restored(planned(&self.state, &self.logical).await?, &self.wanted)
    }
}

async fn planned(state: &SessionState, logical: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    match with_tables(state, logical).await {
        Ok(Some(plan)) => Ok(plan),
        // What the statement says twice may always be made twice, unless it would be something else each time.
        Err(error) if is_volatile(logical)? => Err(error),
        Ok(None) | Err(_) => state.create_physical_plan(logical).await,
    }
}

/// The plan in which what the statement says several times is made once.
async fn with_tables(
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(optimised) = made_once(state, logical)? else {
        return Ok(None);
    };
    let planner = state.query_planner();
    let plan = planner.create_physical_plan(&optimised, state).await?;
    Ok(Some(plan))
}

/// Whether a plan has values of subqueries: a run that begins takes those away that another one looks at.
fn shares_values(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ScalarSubqueryExec>() || plan.children().into_iter().any(shares_values)
}
