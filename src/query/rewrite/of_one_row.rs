//! Functions of the values of one row that are called as those of several: `upper(s) FILTER (WHERE …)`, `length(DISTINCT s)`, `upper(s) OVER ()`. The engine leaves out what they say.
//!
//! Comes in: a call. Goes out: nothing, or an error. Never here: aggregates and windows.

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{DuplicateTreatment, Function, FunctionArguments};

use super::using::folded;
use crate::error::{Error, ErrorKind, Result};

/// Refuses such a call.
///
/// # Errors
/// `Query` for a function of one row with something that is about several.
pub(super) fn check(call: &Function, state: &SessionState) -> Result<()> {
    let said = if call.over.is_some() {
        "OVER"
    } else if call.filter.is_some() {
        "FILTER"
    } else if is_distinct(call) {
        "DISTINCT"
    } else if !call.within_group.is_empty() {
        "WITHIN GROUP"
    } else {
        return Ok(());
    };
    let name = call.name.0.last().and_then(|name| name.as_ident());
    let Some(name) = name.map(folded) else {
        return Ok(());
    };
    let is_of_several = state.aggregate_functions().contains_key(&name)
        || state.window_functions().contains_key(&name);
    if is_of_several || !state.scalar_functions().contains_key(&name) {
        return Ok(());
    }
    let text = format!("{name} is a function of the values of one row, it takes no {said}");
    Err(Error::new(ErrorKind::Query, text)
        .with_hint("leave it out; aggregates, such as sum, max and array_agg, are of several rows"))
}

fn is_distinct(call: &Function) -> bool {
    match &call.args {
        FunctionArguments::List(list) => {
            list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        }
        _ => false,
    }
}
