//! Statements over grids whose tiles several processes have.
//!
//! Comes in: whoever spreads plans, a statement. Goes out: whether it is spread, the settings by which it is planned then, and the plan that runs. On the other side: a part of a plan that came
//! from elsewhere, made ready to run here. Never here: which process has what, how plans travel.

use std::fmt;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::display::{PlanType, StringifiedPlan};
use datafusion::common::tree_node::TreeNodeRecursion;
#[cfg(feature = "distributed")]
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, TableType};
#[cfg(feature = "distributed")]
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
#[cfg(feature = "distributed")]
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;
use futures::future::BoxFuture;

use super::cache::reads_grids_only;
#[cfg(feature = "distributed")]
use super::exec::{
    between::Place,
    connect::{connected, divided},
    own::owning,
    reported::reported,
    running::running,
    scan::GridScanExec,
    sorting::sorting_in_place,
    spool::SpoolExec,
    stop::{Stop, obeying, stoppable},
    wait::waiting,
    whole::whole_in_place,
};
#[cfg(feature = "distributed")]
use super::near::{Alone, Reads};
use super::plan::early_groups::EarlyGroups;
#[cfg(feature = "distributed")]
use super::plan::join_order::JoinOrder;
use super::plan::narrow::Arithmetic;
use super::plan::one_step::OneStep;
#[cfg(feature = "distributed")]
use super::plan::repeated::made_once_of_few;
use super::plan::roll_up::RollUp;
use super::table::GridTable;
use crate::error::Error;
use crate::grid::PartitionGrid;
#[cfg(feature = "distributed")]
use crate::query::plan::semi_early::SemiEarly;
#[cfg(feature = "distributed")]
use crate::query::plan::spread::not_in::NotIn;
#[cfg(feature = "distributed")]
use crate::query::plan::spread::semi_reduce::SemiReduce;
#[cfg(feature = "distributed")]
use crate::query::plan::spread::single::SingleValues;
#[cfg(feature = "distributed")]
use crate::query::plan::spread::values_below::ValuesBelow;
#[cfg(feature = "distributed")]
use crate::query::plan::statistics::facts::Facts;
#[cfg(feature = "distributed")]
use crate::query::running::begun::bounded;

/// Spreads the plans of a session over processes.
pub(crate) trait Spread: fmt::Debug + Send + Sync {
    /// Whether other processes have tiles of the grid, so that a plan over it is spread.
    fn concerns(&self, grid: &PartitionGrid) -> bool;

    /// Takes note that a name is about to be taken away here. Gives what whoever asks for it is told from then on, if it is that of a grid of which other processes have parts.
    fn dropping(&self, name: &str) -> Option<Error>;

    /// Looks at once what other processes have, which else is done every second; names stand for it afterwards.
    fn look(&self) -> BoxFuture<'_, ()>;

    /// How many processes a plan is spread over.
    #[cfg(feature = "distributed")]
    fn num_processes(&self) -> usize;

    /// A number that is another one once there are other processes: plans of one moment may be kept for that moment only.
    fn moment(&self) -> u64;

    /// Whether this process runs any statement alone that it could spread.
    #[cfg(feature = "distributed")]
    fn may_be_near(&self) -> bool;

    /// Whether a statement that mentions these columns of grids, and no others, might be run by this process alone ([`Spread::is_near`]), so that it is worth a look what it reads of them.
    #[cfg(feature = "distributed")]
    fn might_be_near(&self, reads: &[Reads]) -> bool;

    /// Whether this process runs a statement alone that reads this: little, and in memory of this host, where all of it is at hand from now on.
    #[cfg(feature = "distributed")]
    fn is_near(&self, reads: &[Reads]) -> Alone;

    /// Whether no process has a value of one of these columns (a grid and a number each) that another has as well, so that a join by them runs where the rows are.
    #[cfg(feature = "distributed")]
    fn are_together(&self, one: (&Facts, usize), other: (&Facts, usize)) -> bool;

    /// The plan that runs in several processes, made of one that was planned with these settings, which are those of [`apart`]. It is kept for the next time, and keeps nobody: not whoever spreads, nor names.
    ///
    /// # Errors
    /// Whatever stands in the way.
    fn spread(
        self: Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
        config: &SessionConfig,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

/// Whoever spreads the plans of a session, as long as it is there.
#[derive(Clone, Default)]
pub(super) struct Spreader(Arc<ArcSwapOption<Weak<dyn Spread>>>);

impl fmt::Debug for Spreader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Spreader")
            .field(&self.now())
            .finish()
    }
}

impl Spreader {
    #[cfg(feature = "distributed")]
    pub(super) fn set(&self, spread: Weak<dyn Spread>) {
        self.0.store(Some(Arc::new(spread)));
    }

    pub(super) fn now(&self) -> Option<Arc<dyn Spread>> {
        self.0.load().as_deref()?.upgrade()
    }

    /// Says to the planner who spreads.
    pub(super) fn tell(&self, config: &mut SessionConfig) {
        if let Some(spread) = self.now() {
            config.set_extension(Arc::new(Told(Arc::downgrade(&spread))));
        }
    }

    /// A number that is another one once plans would be spread over other processes.
    pub(super) fn moment(&self) -> u64 {
        self.now().map_or(0, |spread| spread.moment())
    }
}

/// Who spreads the plan that is made. Plans are kept with their settings, and must not keep whoever keeps them.
struct Told(Weak<dyn Spread>);

/// A setting of plans that are spread: their scans say nothing about which rows are in which partition, since it would hold in one process only.
#[derive(Debug)]
struct Apart;

/// Whether scans are planned for several processes.
pub(super) fn is_apart(config: &SessionConfig) -> bool {
    config.get_extension::<Apart>().is_some()
}

/// A setting of runs: nobody asks what other processes counted.
#[derive(Debug)]
pub(super) struct Uncounted;

/// Whether somebody asks, of a run with these settings, what other processes counted.
#[cfg(feature = "distributed")]
pub(crate) fn asks_for_counts(config: &SessionConfig) -> bool {
    config.get_extension::<Uncounted>().is_none()
}

/// Who spreads the statement; nobody, if no other process has anything of it.
pub(super) fn spreads(state: &SessionState, logical: &LogicalPlan) -> Option<Arc<dyn Spread>> {
    let told = state.config().get_extension::<Told>()?.0.upgrade()?;
    let mut concerned = false;
    let looked = logical.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(table) = source_as_provider(&scan.source)
            && table.table_type() == TableType::Base
            && let Some(table) = table.downcast_ref::<GridTable>()
        {
            concerned |= told.concerns(table.grid());
        }
        Ok(match concerned {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    (looked.is_ok() && concerned).then_some(told)
}

/// The state that plans for several processes: without what counts on all rows being here, and without what cannot travel and is done where the plan arrives.
pub(super) fn apart(state: &SessionState, spread: &Arc<dyn Spread>) -> SessionState {
    let rules = state.physical_optimizers().iter();
    let left_out = [
        OneStep.name(),
        RollUp.name(),
        EarlyGroups.name(),
        Arithmetic.name(),
    ];
    let rules: Vec<_> = rules
        .filter(|rule| !left_out.contains(&rule.name()))
        .map(Arc::clone)
        .collect();
    let mut config = state.config().clone();
    config.set_extension(Arc::new(Apart));
    // For a process of one thread the engine would plan as if all rows met in one place, and nothing would be sent anywhere.
    let execution = &mut config.options_mut().execution;
    execution.target_partitions = execution.target_partitions.max(2);
    // Subqueries that a plan runs beside itself would stay behind.
    config
        .options_mut()
        .optimizer
        .enable_physical_uncorrelated_scalar_subquery = false;
    // What joins and sorts tell scans is for each part to connect, where it runs: here the engine would test it above what it sends, and not as scans do (-0.0).
    config
        .options_mut()
        .optimizer
        .enable_dynamic_filter_pushdown = false;
    config
        .options_mut()
        .optimizer
        .enable_join_dynamic_filter_pushdown = false;
    config
        .options_mut()
        .optimizer
        .enable_topk_dynamic_filter_pushdown = false;
    let builder = SessionStateBuilder::new_from_existing(state.clone())
        .with_config(config)
        .with_physical_optimizer_rules(rules);
    #[cfg(not(feature = "distributed"))]
    let _ = spread;
    #[cfg(feature = "distributed")]
    let builder = {
        let mut logical: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
            vec![Arc::new(ValuesBelow), Arc::new(SingleValues)];
        for rule in state.optimizers() {
            if rule.name() == SemiEarly::OnSmall.name() {
                continue;
            }
            if rule.name() == JoinOrder::default().name() {
                logical.push(Arc::new(NotIn));
                logical.push(Arc::new(SemiEarly::Anywhere));
                let copies = spread.num_processes();
                logical.push(Arc::new(JoinOrder { copies }));
                let spread = Arc::clone(spread);
                logical.push(Arc::new(SemiReduce { copies, spread }));
            } else {
                logical.push(Arc::clone(rule));
            }
        }
        builder.with_optimizer_rules(logical)
    };
    builder.build()
}

/// The plan of a statement that runs in several processes, and whether it reads grids and nothing else; EXPLAIN is answered here, and shows that plan.
///
/// # Errors
/// As the engine says, and whoever spreads.
pub(super) async fn spread_out(
    spread: Arc<dyn Spread>,
    state: SessionState,
    logical: &LogicalPlan,
) -> Result<(Arc<dyn ExecutionPlan>, bool)> {
    let LogicalPlan::Explain(explain) = logical else {
        let plan = planned(&state, logical).await?;
        let is_of_grids = reads_grids_only(&plan);
        return Ok((spread.spread(plan, state.config())?, is_of_grids));
    };
    let plan = state.create_physical_plan(logical).await?;
    let Some(said) = plan.downcast_ref::<ExplainExec>() else {
        return Ok((plan, false));
    };
    let explained = planned(&state, &explain.plan).await?;
    let explained = spread.spread(explained, state.config())?;
    let text = displayable(explained.as_ref())
        .indent(said.verbose())
        .to_string();
    let texts = said
        .stringified_plans()
        .iter()
        .map(|known| match known.plan_type {
            PlanType::FinalPhysicalPlan => {
                StringifiedPlan::new(PlanType::FinalPhysicalPlan, text.clone())
            }
            _ => known.clone(),
        });
    let explained = ExplainExec::new(plan.schema(), texts.collect(), said.verbose());
    Ok((Arc::new(explained), false))
}

/// The plan for one process. What is read in several places is made once if all that this process does then is little.
async fn planned(state: &SessionState, logical: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    #[cfg(feature = "distributed")]
    if let Some(optimised) = made_once_of_few(state, logical)? {
        let planner = state.query_planner();
        let plan = planner.create_physical_plan(&optimised, state).await?;
        if is_of_pieces(&plan)? {
            return Ok(plan);
        }
    }
    state.create_physical_plan(logical).await
}

/// Whether all that reads grids can be spread piece by piece, and give its rows to what is above.
#[cfg(feature = "distributed")]
fn is_of_pieces(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if let Some(spool) = node.downcast_ref::<SpoolExec>() {
        return spool.is_made_anywhere();
    }
    if node.is::<GridScanExec>() && node.output_ordering().is_some() {
        return Ok(false);
    }
    for child in node.children() {
        if !is_of_pieces(child)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(feature = "distributed")]
/// A part of a plan that came from another process, made ready to run here until `stop` is set. Its operators stay where they are, since what they count is told by their places.
///
/// # Errors
/// As the engine says.
pub(crate) fn part(
    plan: Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
    stop: &Stop,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = config.options();
    let plan = unlearnt(Arithmetic.optimize(plan, options)?)?;
    let plan = connected(running(whole_in_place(plan)?)?, options)?;
    // Rows are their own below sorts before these are ours: who looks for sorts knows those of the engine.
    let plan = owning(waiting(divided(plan)?)?, Place::Instead)?;
    let plan = bounded(sorting_in_place(plan)?, Place::Instead)?;
    reported(stoppable(plan, stop)?)
}

#[cfg(feature = "distributed")]
/// What of a plan runs where it was planned, and ends when `stop` is set; what `is_sent` to other processes, with all below it, stays as it is, since it has to travel.
///
/// # Errors
/// As the engine says.
pub(crate) fn last_part(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Stop,
    is_sent: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_down(|node| match is_sent(&node) {
        true => Ok(Transformed::new(node, false, TreeNodeRecursion::Jump)),
        false => obeying(node, stop),
    })
    .data()
}

#[cfg(feature = "distributed")]
/// The plan whose operators learn anew what they tell scans. What came with it has numbers of another process, which others here may have too: a scan would wait for the one instead of the other.
fn unlearnt(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(
        |node| match node.dynamic_expressions_produced().is_empty() {
            true => Ok(Transformed::no(node)),
            false => Ok(Transformed::yes(node.reset_state()?)),
        },
    )
    .data()
}
