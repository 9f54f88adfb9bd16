//! How alike two values are: texts by their letters, lists of numbers as vectors.
//!
//! Comes in: a context of the engine. Goes out: the same with functions of these, called as in DuckDB. Never here: `levenshtein` and `array_distance`, which the engine has.

mod lists;
mod texts;

use datafusion::prelude::SessionContext;

/// Adds the functions.
pub(super) fn add_to(context: &SessionContext) {
    texts::add_to(context);
    lists::add_to(context);
}
