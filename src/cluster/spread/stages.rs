//! The plan in stages of a statement, while it runs and afterwards.
//!
//! Comes in: a plan that begins, its end. Goes out: how it looks, what its scans counted. Once it is over, or nobody reads its rows any more, nothing else of it is kept: its operators hold rows of joins and rows under way, with the
//! tasks that bring them, as long as they are there, and whoever has an answer may keep it. Never here: the numbers (`counted.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion_distributed::display_plan_ascii;

use super::counted::counted;

/// The plan in stages that runs, or what is left of the one that ran last.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct Last(Arc<Mutex<Option<Stages>>>);

#[derive(Debug)]
enum Stages {
    Run(Arc<dyn ExecutionPlan>),
    Ran(Ran),
}

#[derive(Debug)]
struct Ran {
    /// How it looked, if somebody asks what its operators counted.
    text: Option<String>,
    counted: MetricsSet,
}

impl Ran {
    fn of(plan: &Arc<dyn ExecutionPlan>, is_shown: bool) -> Self {
        Self {
            text: is_shown.then(|| display_plan_ascii(plan.as_ref(), true)),
            counted: counted(plan),
        }
    }
}

impl Last {
    fn lock(&self) -> MutexGuard<'_, Option<Stages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a plan that begins. It is over when what this gives is dropped.
    pub(in crate::cluster) fn begin(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        is_shown: bool,
    ) -> Running {
        let before = self.lock().replace(Stages::Run(Arc::clone(plan)));
        drop(before);
        Running {
            last: self.clone(),
            plan: Arc::clone(plan),
            is_shown,
        }
    }

    /// The plan with what its operators counted, so far or until it was over; `None` before the first run, and where nobody asked for it.
    pub(in crate::cluster) fn text(&self) -> Option<String> {
        match self.lock().as_ref()? {
            Stages::Run(plan) => Some(display_plan_ascii(plan.as_ref(), true)),
            Stages::Ran(ran) => ran.text.clone(),
        }
    }

    /// What its scans counted, so far or until it was over.
    pub(in crate::cluster) fn counted(&self) -> MetricsSet {
        match self.lock().as_ref() {
            None => MetricsSet::new(),
            Some(Stages::Run(plan)) => counted(plan),
            Some(Stages::Ran(ran)) => ran.counted.clone(),
        }
    }
}

/// A plan that runs as long as this is there.
#[derive(Debug)]
pub(in crate::cluster) struct Running {
    last: Last,
    plan: Arc<dyn ExecutionPlan>,
    is_shown: bool,
}

impl Running {
    /// The plan is over, and this is the same one with what all members counted.
    pub(in crate::cluster) fn end_as(self, counted: &Arc<dyn ExecutionPlan>) {
        self.is_over(counted);
    }

    fn is_over(&self, plan: &Arc<dyn ExecutionPlan>) {
        if !self.is_last() {
            return;
        }
        let ran = Stages::Ran(Ran::of(plan, self.is_shown));
        let before = self.last.lock().replace(ran);
        // Without the lock: it may be long.
        drop(before);
    }

    /// Whether no other one has begun since, and it was not over before.
    fn is_last(&self) -> bool {
        let last = self.last.lock();
        matches!(last.as_ref(), Some(Stages::Run(plan)) if Arc::ptr_eq(plan, &self.plan))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over(&self.plan);
    }
}
