//! The engine of a session: DataFusion with our rules and settings.
//!
//! Comes in: options. Goes out: a state without tables. Never here: names, running.

use std::sync::Arc;

use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::SessionConfig;

use super::exec::first_seen::FirstSeen;
use super::exec::spool::ShowMakers;
use super::exec::twins::{FiltersWhole, TwinsApart};
use super::names::{CATALOG, SCHEMA};
use super::options::SessionOptions;
use super::plan::apply::Apply;
use super::plan::asof::{AsofJoins, AsofPairs};
use super::plan::casts::InOrder;
use super::plan::constants::Constants;
use super::plan::copies::CountCopies;
use super::plan::early_groups::EarlyGroups;
use super::plan::join_order::JoinOrder;
use super::plan::kept_limits::KeptLimits;
use super::plan::long_limit::LongLimits;
use super::plan::meaning::Meaning;
use super::plan::narrow::Arithmetic;
use super::plan::offsets::{AllRows, Offsets};
use super::plan::one_step::OneStep;
use super::plan::outer::OuterJoins;
use super::plan::own_nodes::OwnNodes;
use super::plan::pause::PauseOften;
use super::plan::required::Required;
use super::plan::roll_up::RollUp;
use super::plan::semi_early::SemiEarly;
use super::plan::set_keys::SetKeys;
use super::plan::settings::for_tiles;
use super::plan::steps::Steps;
use super::plan::types::{Operations, Types, with_operations};
use super::plan::unordered::Unordered;
use crate::error::Result;
use crate::query::functions::letters::Subscripts;
use crate::query::functions::years::Extracts;
use crate::query::plan::meaning::exact;
use crate::query::plan::meaning::floats::BothZeros;
use crate::query::plan::meaning::lambdas::{Lambdas, LambdasApart};
use crate::query::plan::meaning::nested::KeysOfJoins;
use crate::query::plan::meaning::nested_order::NestedOrders;
use crate::query::running::bounds::SessionMemory;
use crate::query::running::spill::SpillFolder;

/// The places of a table of a join, of four bytes each, that cost next to nothing.
const SMALL_TABLE_PLACES: usize = 256 * 1024;

/// The bytes of the memory limit for each of them.
const PLACES_OF_LIMIT: usize = 1024;

/// The rule of the engine that gives operators the orders and partitions that they ask for.
const SETTLES: &str = "EnsureRequirements";

/// What statements are planned with, for queries within a limit of memory, and all within one of what they spill.
///
/// # Errors
/// `Storage` when no file can be made in the folder to spill to.
pub(super) fn state(
    options: &SessionOptions,
    limit: usize,
    spilled: &Arc<SessionMemory>,
) -> Result<SessionState> {
    let mut config = for_tiles(SessionConfig::new())
        .with_information_schema(true)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_target_partitions(options.threads_now());
    let settings = config.options_mut();
    // Without a zone, TIMESTAMP WITH TIME ZONE loses its offset, and a comparison reads it in the zone of the column: hours off, silently.
    settings.execution.time_zone = Some("UTC".to_owned());
    settings.sql_parser.collect_spans = true;
    // DataFusion's optimizer simplifies expressions after it has noted whether they can be null (`x IS NOT TRUE`), and then holds that against them.
    settings.execution.skip_physical_aggregate_schema_check = true;
    // Keys are looked up by number where so many places hold them all: cheaper than hashing, however few keys there are.
    let execution = &mut settings.execution;
    execution.perfect_hash_join_small_build_threshold = SMALL_TABLE_PLACES
        .min(limit / PLACES_OF_LIMIT)
        .max(execution.perfect_hash_join_small_build_threshold);
    // A reader of rows that several threads have spilled waits for the end of one file while those that could write it wait for the reader, whose rows are in another one: each file has one batch, and its end.
    execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1)?;
    let spill = SpillFolder::try_new(options.spill_to.as_deref(), spilled)?;
    let disk = DiskManagerBuilder::default().with_temp_file_factory(Arc::new(spill));
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_memory_limit(limit, 1.0)
        .build_arc()?;
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(AsofJoins),
        Arc::new(Lambdas { limit }),
        Arc::new(CountCopies),
        Arc::new(Types),
    ];
    rules.extend(Analyzer::new().rules);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        // Before those of the engine, which take what is in brackets for the place in a list.
        .with_expr_planners(vec![Arc::new(Subscripts), Arc::new(Extracts)])
        .with_default_features()
        .with_analyzer_rules(rules)
        .with_analyzer_rule(Arc::new(Apply))
        .with_analyzer_rule(Arc::new(Meaning { limit }))
        .with_analyzer_rule(Arc::new(LambdasApart))
        .with_analyzer_rule(Arc::new(Steps))
        .with_analyzer_rule(Arc::new(AsofPairs))
        .with_query_planner(Arc::new(OwnNodes))
        .with_optimizer_rules(exact::rules())
        .with_optimizer_rule(Arc::new(OuterJoins))
        .with_optimizer_rule(Arc::new(SemiEarly::OnSmall))
        .with_optimizer_rule(Arc::new(JoinOrder::default()))
        .with_optimizer_rule(Arc::new(BothZeros))
        .with_optimizer_rule(Arc::new(KeysOfJoins))
        .with_optimizer_rule(Arc::new(NestedOrders))
        .with_optimizer_rule(Arc::new(Unordered))
        .with_physical_optimizer_rule(Arc::new(FirstSeen))
        .with_physical_optimizer_rule(Arc::new(AllRows))
        .with_physical_optimizer_rule(Arc::new(LongLimits))
        .with_physical_optimizer_rule(Arc::new(OneStep))
        .with_physical_optimizer_rule(Arc::new(Arithmetic))
        .with_physical_optimizer_rule(Arc::new(PauseOften))
        .with_physical_optimizer_rule(Arc::new(ShowMakers))
        .build();
    let state = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(without_mistakes(&state))
        .build();
    with_operations(state, Operations::default())
}

/// The rules of a state, of which those that move conditions and columns take none for another of the same name. Groups of fewer keys come first: of the engine's own, later rules take an order for granted that they do
/// not have, and sort them for it. What operators ask for is looked at once more before scans are told what sorts and joins need of them.
fn without_mistakes(state: &SessionState) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = state.physical_optimizers();
    let settles = rules.iter().find(|rule| rule.name() == SETTLES);
    let rules = rules.iter().flat_map(|rule| match rule.name() {
        name if name.starts_with("FilterPushdown") => {
            vec![Arc::new(TwinsApart(Arc::clone(rule))) as _]
        }
        "aggregate_statistics" => vec![Arc::new(InOrder(Arc::clone(rule))) as _],
        "ProjectionPushdown" => vec![Arc::new(FiltersWhole(Arc::clone(rule))) as _],
        // It leaves out the sorts that it takes for done.
        SETTLES => vec![
            Arc::new(Offsets) as _,
            Arc::new(SetKeys) as _,
            Arc::new(Constants) as _,
            Arc::new(KeptLimits(Arc::clone(rule))) as _,
        ],
        "PushdownSort" => {
            let again = settles.map(|settles| {
                let settles = Arc::new(KeptLimits(Arc::clone(settles)));
                Arc::new(Required(settles)) as _
            });
            again.into_iter().chain([Arc::clone(rule)]).collect()
        }
        _ => vec![Arc::clone(rule)],
    });
    let first: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 2] =
        [Arc::new(RollUp), Arc::new(EarlyGroups)];
    first.into_iter().chain(rules).collect()
}
