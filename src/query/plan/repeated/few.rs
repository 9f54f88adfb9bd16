//! Parts that are made once for several processes.
//!
//! Comes in: a logical plan over grids whose tiles several processes have. Goes out: the plan in which repeated parts are tables, where all that is read beside the making of these is so little that one process may have it: it
//! keeps the rows of the parts, and does what is above them. Never here: who makes them.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};

use super::made_once;
use super::table::RepeatedTable;
use crate::query::plan::statistics::cardinality::rows_of;

/// The most rows of each part, and of each scan beside them, as far as is known.
const MOST_ROWS: f64 = 100_000.0;

/// The optimised plan; `None` for one that says nothing twice, or that one process should not have to do.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn made_once_of_few(
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Option<LogicalPlan>> {
    match made_once(state, logical)? {
        Some(plan) if all_scans(&plan, is_of_few)? => Ok(Some(plan)),
        _ => Ok(None),
    }
}

/// Whether all scans of a plan are like that.
fn all_scans(plan: &LogicalPlan, is_so: fn(&TableScan) -> bool) -> Result<bool> {
    let mut are_so = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            are_so &= is_so(scan);
        }
        Ok(match are_so {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(are_so)
}

/// Whether a scan gives few rows; those of a part are made of grids alone.
fn is_of_few(scan: &TableScan) -> bool {
    let of_scan = LogicalPlan::TableScan(scan.clone());
    let is_few = rows_of(&of_scan).is_some_and(|rows| rows <= MOST_ROWS);
    let Ok(provider) = source_as_provider(&scan.source) else {
        return false;
    };
    let is_whole = provider
        .downcast_ref::<RepeatedTable>()
        .is_none_or(|table| all_scans(&table.plan(), is_no_part).is_ok_and(|is_so| is_so));
    is_few && is_whole
}

fn is_no_part(scan: &TableScan) -> bool {
    let provider = source_as_provider(&scan.source);
    provider.is_ok_and(|provider| !provider.is::<RepeatedTable>())
}
