//! 3. SQL over grids.
//!
//! Comes in: grids and functions under names (`names.rs`), and SQL text with values for its parameters. Goes out: streams of batches. A [`Session`] checks the text (`guard.rs`), lets
//! DataFusion plan it on threads with large stacks (`planner.rs`) over [`GridTable`]s, and runs it within its bounds (`answer.rs`, `run.rs`, `bounds.rs`; of callers: `allowance.rs`; what is said of them: `limits.rs`). Never here: how tiles come
//! into being (`load`), and statements that change files, grids or settings.

mod ages;
mod aliased;
mod aliases;
mod allowance;
mod anew;
mod answer;
mod around;
mod array_of;
mod asof;
mod begun;
mod bounds;
mod buckets;
mod by_lambda;
mod cache;
mod called;
mod calls;
mod chosen;
mod coerced;
mod comprehensions;
mod contained;
mod derived;
mod described;
mod dialect;
mod digits;
mod distinct_from;
mod each_column;
mod engine;
mod error;
mod exec;
mod extremes;
mod faults;
mod fields;
mod formats;
mod from_first;
mod function;
mod gathered;
mod group_keys;
mod growing;
mod guard;
mod inner_with;
mod json;
mod kept;
mod lambdas;
mod laterals;
mod letter_case;
mod letters;
mod limits;
mod listed;
mod long_numbers;
mod matches;
mod metrics;
mod moments;
mod names;
mod naming;
#[cfg(feature = "distributed")]
mod near;
mod neighbours;
mod of_one_row;
#[cfg(feature = "serve")]
mod offered;
mod one_value;
mod operators;
mod options;
mod order;
mod own_functions;
mod parameters;
mod passed_on;
mod pattern;
mod percentiles;
mod permission;
mod physical;
mod pivot;
mod place;
mod placed;
mod plan;
mod planner;
mod positions;
mod prepared;
mod progress;
mod ranks;
mod renamed;
mod row_in;
mod run;
mod same_names;
mod session;
mod shape;
mod shifts;
mod simple;
mod sliding;
mod slips;
mod sorted_lists;
mod spill;
mod spread;
mod standard;
mod statement;
mod sums;
mod synonyms;
mod table;
mod tiles;
mod timezone;
#[cfg(feature = "distributed")]
mod travel;
mod trimmed;
mod type_names;
mod type_words;
mod using;
mod value_names;
mod values;
mod vectors;
mod wide;
mod wide_keys;
mod words;
mod written;
mod years;

pub use allowance::{Allowance, Taken};
pub use answer::Query;
pub use function::{Aggregate, AggregateBody, Function, FunctionSignature, ScalarBody};
pub use guard::{MAX_EXPRESSION_DEPTH, MAX_SQL_BYTES};
pub use limits::LimitNames;
pub use metrics::{LocalityMetrics, OperatorMetrics, ProcessMetrics, QueryMetrics};
pub use names::{CATALOG, SCHEMA};
pub use naming::Keeper;
#[cfg(feature = "serve")]
pub(crate) use offered::{KEYWORDS, Subject};
pub use options::{
    MAX_THREADS_VARIABLE, QueryOptions, SessionOptions, Statements, Watched, max_threads,
};
pub use parameters::Parameters;
pub use prepared::Prepared;
pub use progress::QueryProgress;
pub use run::{BatchStream, Counted};
pub use session::Session;
#[cfg(feature = "serve")]
pub(crate) use spill::RAISE_SPILL_LIMIT;
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
    faults::of_column,
    metrics::PROCESS,
    near::{Alone, Reads},
    plan::beyond::Numbers,
    plan::constants::windows_of,
    plan::estimate::{sample, sample_of_parts},
    plan::facts::{Extent, Facts},
    plan::lambdas::{has_lambda, with_lambdas},
    spread::{Spread, asks_for_counts, last_part, part},
    travel::{of_plans, traveling},
    wide_keys::with_wide_keys,
};
