//! 3. SQL over grids.
//!
//! Comes in: grids under names, and SQL text. Goes out: streams of batches. A [`Session`] checks the text (`guard.rs`), lets DataFusion plan it on threads with
//! large stacks (`planner.rs`) over [`GridTable`]s, and runs it (`run.rs`). Never here: how tiles come into being (`load`), and statements that change anything.

mod error;
mod exec;
mod guard;
mod plan;
mod planner;
mod run;
mod session;
mod table;

pub use guard::{MAX_EXPRESSION_DEPTH, MAX_SQL_BYTES};
pub use run::BatchStream;
pub use session::{Query, Session, SessionOptions};
pub use table::GridTable;
