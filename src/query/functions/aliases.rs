//! Functions under the names that PostgreSQL and DuckDB give them.
//!
//! Comes in: a context of the engine. Goes out: the same with more names. Never here: functions that the engine does not have.

use datafusion::execution::FunctionRegistry;
use datafusion::functions::math::signum;
use datafusion::prelude::SessionContext;

/// Gives functions more names.
pub(super) fn add_to(context: &SessionContext) {
    let sign = signum().as_ref().clone().with_aliases(["sign"]);
    // It may be ours already (`coerced.rs`).
    if let Ok(length) = context.udf("character_length") {
        context.register_udf(length.as_ref().clone().with_aliases(["len"]));
    }
    context.register_udf(sign);
}
