//! What is said of wrong statements, and of limits.
//!
//! Comes in: texts of the engine, statements that it refused. Goes out: what is wrong, what came, what was expected and the remedy: `words` of what is common, `slips` in the form of statements, `calls` of functions,
//! `values` as SQL writes them, `group_keys`, `limits`; and where in the text, before a run (`place`) and of one (`faults`). Never here: kinds of errors, and the way between those of the engine and ours (`error.rs` of the parent).

mod calls;
pub(super) mod faults;
pub(super) mod group_keys;
pub(super) mod limits;
pub(super) mod place;
pub(super) mod slips;
pub(super) mod values;
pub(super) mod words;
