//! 3. SQL over grids.
//!
//! Comes in: grids and functions under names (`names.rs`), and SQL text with values for its parameters. Goes out: streams of batches. A [`Session`] checks the text (`guard.rs`, `shape.rs`, `permission.rs`), puts it in words of the
//! engine (`rewrite`), lets DataFusion plan it on threads with large stacks (`planner.rs`) over [`GridTable`]s, with our rules (`plan`) and functions (`functions`), and runs it (`running`) with operators of ours (`exec`)
//! within its bounds. What is said of wrong statements is in `messages`. Never here: how tiles come into being (`load`), and statements that change files, grids or settings.

mod cache;
mod depth;
mod described;
mod engine;
mod error;
mod exec;
mod function;
mod functions;
mod guard;
mod listed;
mod messages;
mod names;
mod naming;
#[cfg(feature = "distributed")]
mod near;
#[cfg(feature = "serve")]
mod offered;
mod options;
mod parameters;
mod permission;
mod plan;
mod planner;
mod prepared;
mod rewrite;
mod running;
mod session;
mod shape;
mod spread;
mod statement;
mod table;
mod tiles;
mod told;
#[cfg(feature = "distributed")]
mod travel;
mod wide_keys;

pub use function::{Aggregate, AggregateBody, Function, FunctionSignature, ScalarBody};
pub use guard::{MAX_EXPRESSION_DEPTH, MAX_SQL_BYTES};
pub use messages::limits::LimitNames;
pub use names::{CATALOG, SCHEMA};
pub use naming::Keeper;
#[cfg(feature = "serve")]
pub(crate) use offered::{KEYWORDS, Subject};
pub use options::{
    MAX_THREADS_VARIABLE, QueryOptions, SessionOptions, Statements, Watched, max_threads,
};
pub use parameters::Parameters;
pub use prepared::Prepared;
pub use running::allowance::{Allowance, Taken};
pub use running::answer::Query;
pub use running::metrics::{LocalityMetrics, OperatorMetrics, ProcessMetrics, QueryMetrics};
pub use running::progress::QueryProgress;
pub use running::run::{BatchStream, Counted};
#[cfg(feature = "serve")]
pub(crate) use running::spill::RAISE_SPILL_LIMIT;
pub use session::Session;
pub use table::GridTable;
#[cfg(feature = "distributed")]
pub(crate) use {
    error::{error_within, kind_within},
    exec::asof::{AsofJoinExec, Nearest},
    exec::dense::{LookupExec, dense_apart, is_worth_its_places, most_places},
    exec::expressions::with_expressions,
    exec::over::over_one_input,
    exec::{
        first_seen::FirstSeenExec, relabel::RelabelExec, scan::GridScanExec, spool::SpoolExec,
        stop::Stop,
    },
    messages::faults::of_column,
    near::{Alone, Reads},
    plan::constants::windows_of,
    plan::meaning::lambdas::{has_lambda, with_lambdas},
    plan::statistics::beyond::Numbers,
    plan::statistics::estimate::{sample, sample_of_parts},
    plan::statistics::facts::{Extent, Facts},
    running::metrics::PROCESS,
    spread::{Spread, asks_for_counts, last_part, part},
    travel::{of_plans, traveling},
    wide_keys::with_wide_keys,
};
