//! Plans of texts that are asked again.
//!
//! Comes in: what was asked, and the plan that came of it. Goes out: that plan, for the same question. A cache belongs to one picture of the names, so that any change of a name forgets
//! all plans and what they hold. CachedPlan in an atomic pointer, so that a fork at any moment is harmless. Never here: planning, running.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use super::exec::scan::GridScanExec;
use super::exec::spool::SpoolExec;
use super::options::Statements;
use crate::query::rewrite::pivot::Told;

/// How many plans are kept; the one that was not asked for longest goes.
const MAX_PLANS: usize = 64;

/// The longest text whose plan is kept, so that all texts together are small.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// What a plan depends on, besides the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) text: Arc<str>,
    /// What the rows said that the statement asked first.
    pub(super) told: Arc<[Told]>,
    /// Whether what the statement asks next is meant, not the statement.
    pub(super) asks: bool,
    pub(super) threads: usize,
    pub(super) memory_limit: usize,
    /// What the statement may do; a plan is only kept of one that may do what it does.
    pub(super) may: Statements,
    /// The processes that it would be spread over: one that is alone plans for itself what all could read, and what it reads of others alone is theirs of that moment.
    pub(super) moment: u64,
    /// A child never runs plans of its parent.
    pub(super) pid: u32,
}

/// A plan, and the settings that it runs with.
#[derive(Debug, Clone)]
pub(super) struct CachedPlan {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) config: SessionConfig,
    /// The text that errors of its runs show, if all of it is the user's.
    pub(super) shown: Option<Arc<str>>,
}

struct Entry {
    question: Question,
    cached: CachedPlan,
    /// When it was asked for last, in questions.
    asked: AtomicU64,
}

/// The plans of one picture of the names.
#[derive(Default)]
pub(super) struct PlanCache {
    entries: ArcSwap<Vec<Arc<Entry>>>,
    questions: AtomicU64,
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PlanCache")
            .field("plans", &self.entries.load().len())
            .finish()
    }
}

impl PlanCache {
    /// The plan of a question.
    pub(super) fn get(&self, question: &Question) -> Option<CachedPlan> {
        let entries = self.entries.load();
        let entry = entries.iter().find(|entry| entry.question == *question)?;
        entry.asked.store(self.moment(), Ordering::Relaxed);
        Some(entry.cached.clone())
    }

    /// Keeps a plan.
    pub(super) fn insert(&self, question: Question, cached: CachedPlan) {
        if question.text.len() > MAX_TEXT_BYTES {
            return;
        }
        let entry = Arc::new(Entry {
            question,
            cached,
            asked: AtomicU64::new(self.moment()),
        });
        self.entries.rcu(|entries| {
            let mut entries = Vec::clone(entries);
            entries.retain(|known| known.question != entry.question);
            if entries.len() >= MAX_PLANS {
                entries.sort_by_key(|known| known.asked.load(Ordering::Relaxed));
                entries.remove(0);
            }
            entries.push(Arc::clone(&entry));
            entries
        });
    }

    fn moment(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed)
    }
}

/// Whether a statement means the same whenever it is planned: what `now()` and its like give is put into the plan.
pub(super) fn means_the_same_later(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut same = true;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            let moves = expression.exists(|part| {
                Ok(matches!(part, Expr::ScalarFunction(call)
                    if call.func.signature().volatility != Volatility::Immutable))
            })?;
            same &= !moves;
            Ok(continue_while(same))
        })?;
        Ok(continue_while(same))
    })?;
    Ok(same)
}

fn continue_while(wanted: bool) -> TreeNodeRecursion {
    match wanted {
        true => TreeNodeRecursion::Continue,
        false => TreeNodeRecursion::Stop,
    }
}

/// Whether a plan reads grids and nothing else. Others may hold the names themselves, which would then hold one another for ever, or rows of any number.
pub(super) fn reads_grids_only(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    if children.is_empty() {
        return plan.is::<GridScanExec>() || plan.is::<SpoolExec>();
    }
    children.into_iter().all(reads_grids_only)
}
