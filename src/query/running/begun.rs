//! What a run begins with.
//!
//! Comes in: a query, and the memory of a run. Goes out: the plan that it runs, from the start and with its counters at 0, whose operators keep within the memory limit, stop and wait. Never here: running it.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;

use super::answer::Query;
use super::bounds::RunPool;
use crate::error::Result;
use crate::query::exec::asof::spread;
use crate::query::exec::between::Place;
use crate::query::exec::coded::coded;
use crate::query::exec::connect::connected;
use crate::query::exec::dense::dense;
use crate::query::exec::enough::enough;
use crate::query::exec::own::owning;
use crate::query::exec::pace::paced;
use crate::query::exec::portion::portioned;
use crate::query::exec::reported::reported;
use crate::query::exec::running::running;
use crate::query::exec::sorting::sorting;
use crate::query::exec::spool::joined;
use crate::query::exec::stable::stable;
use crate::query::exec::stop::{Stop, stoppable};
use crate::query::exec::wait::waiting;
use crate::query::exec::whole::whole;

/// The memory of a run, what stops it, and whether it asks what other processes counted.
pub(super) type With<'a> = (&'a Arc<RunPool>, &'a Stop, bool);

/// What a run begins with.
pub(super) struct Begun {
    pub(super) query: Query,
    /// As it was planned.
    plan: Arc<dyn ExecutionPlan>,
    pub(super) context: Arc<TaskContext>,
    /// Whether the run may run this plan, and need not have one of its own.
    pub(super) is_own: bool,
}

impl Begun {
    /// With the plan that is there.
    pub(super) fn first(query: Query, with: With<'_>) -> Result<Self> {
        let is_own = query.takes_plan();
        Self::of(query, with, is_own)
    }

    fn of(query: Query, (memory, stop, counts): With<'_>, is_own: bool) -> Result<Self> {
        let (plan, context) = query.to_run(memory, stop, counts)?;
        Ok(Self {
            query,
            plan,
            context,
            is_own,
        })
    }

    /// With a plan that no other run has; `None` where all may have one.
    pub(super) async fn with_own_plan(&self, with: With<'_>) -> Result<Option<Self>> {
        let query = self.query.with_own_plan().await?;
        query.map(|query| Self::of(query, with, true)).transpose()
    }

    /// The plan as it is run. One that is not its own stays as it was planned: a run of it goes on.
    pub(super) fn ready_or_planned(&self, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
        match self.is_own {
            true => self.ready(stop),
            false => Ok(Arc::clone(&self.plan)),
        }
    }

    /// The plan as it is run.
    pub(super) fn ready(&self, stop: &Stop) -> Result<Arc<dyn ExecutionPlan>> {
        // A run learns its dynamic filters itself: those of the plan belong to nobody.
        let options = self.context.session_config().options();
        let plan = spread(reset_plan_states(Arc::clone(&self.plan))?, &self.context)?;
        let plan = connected(running(stable(whole(plan)?)?)?, options)?;
        let plan = bounded(
            dense(coded(waiting(plan)?, &self.context)?, &self.context)?,
            Place::Above,
        )?;
        Ok(joined(reported(sorting(stoppable(plan, stop)?)?)?)?)
    }
}

/// The plan whose operators keep within the memory limit what they do not ask for.
pub(in crate::query) fn bounded(
    plan: Arc<dyn ExecutionPlan>,
    place: Place,
) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
    paced(portioned(owning(enough(plan)?, place)?, place)?, place)
}
