//! Statements over little data that lies in several processes of this host.
//!
//! Comes in: a statement, whoever spreads plans. Goes out: what it mentions and what it reads of grids; and if that is little and at hand, as whoever spreads says, its plan for this process alone, which is that of any statement over
//! grids of one process. Else whether it is to be spread from now on, or for now. Never here: which process has what, how much is little, how tiles come to be at hand.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::exec::scan::GridScanExec;
use super::spread::Spread;
use super::table::GridTable;
use crate::grid::{GridId, PartitionGrid};
use crate::query::running::physical::Physical;

/// What a statement reads of a grid, in all its places together.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    pub(crate) grid: Arc<PartitionGrid>,
    /// Numbers of columns.
    pub(crate) columns: BTreeSet<usize>,
    /// Ascending.
    pub(crate) row_bands: Vec<usize>,
}

/// Whether a process runs a statement alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// All that it reads is little, and at hand from now on.
    Yes,
    /// Not as long as names and the [moment](Spread::moment) are the same.
    No,
    /// Something is not at hand that may be later.
    NotNow,
}

/// How a statement is planned.
pub(super) enum Near {
    /// For this process alone.
    Alone(Physical),
    /// To be spread, each time that it is asked or only this time.
    Spread { lasting: bool },
}

/// The plan of a statement for this process alone, if that runs it. A statement that cannot be planned so is to be spread: whoever plans it for that says why.
pub(super) async fn planned_near(
    spread: &Arc<dyn Spread>,
    state: &SessionState,
    logical: &LogicalPlan,
) -> Near {
    match alone(spread, state, logical).await {
        Ok(near) => near,
        Err(_) => Near::Spread { lasting: true },
    }
}

async fn alone(
    spread: &Arc<dyn Spread>,
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Near> {
    // A statement that reads much is not planned twice.
    if !spread.may_be_near() || !spread.might_be_near(&mentioned(logical)?) {
        return Ok(Near::Spread { lasting: true });
    }
    let explained = match logical {
        LogicalPlan::Explain(explain) => Some(explain.plan.as_ref()),
        _ => None,
    };
    let mut physical = Physical::here(state, explained.unwrap_or(logical)).await?;
    match spread.is_near(&scanned(&physical.plan)?) {
        Alone::Yes => {}
        Alone::No => return Ok(Near::Spread { lasting: true }),
        Alone::NotNow => return Ok(Near::Spread { lasting: false }),
    }
    if explained.is_some() {
        physical = Physical::here(state, logical).await?;
    }
    Ok(Near::Alone(physical))
}

/// The grids of a statement that nothing was done to, whole, in the columns whose names stand anywhere in it: no less than it reads.
fn mentioned(logical: &LogicalPlan) -> Result<Vec<Reads>> {
    let (mut names, mut grids) = (HashSet::new(), HashMap::new());
    logical.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(grid) = grid_of(scan)
        {
            grids.insert(grid.id(), grid);
        }
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part {
                    names.insert(column.name.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let reads = grids.into_values().map(|grid| {
        let fields = grid.schema().fields().iter().enumerate();
        let named = fields.filter(|(_, field)| names.contains(field.name()));
        Reads {
            columns: named.map(|(number, _)| number).collect(),
            row_bands: (0..grid.rows().num_intervals()).collect(),
            grid,
        }
    });
    Ok(reads.collect())
}

fn grid_of(scan: &TableScan) -> Option<Arc<PartitionGrid>> {
    let table = source_as_provider(&scan.source).ok()?;
    let table = (table.table_type() == TableType::Base).then_some(table)?;
    let table = table.downcast_ref::<GridTable>()?;
    Some(Arc::clone(table.grid()))
}

/// What the scans of a plan read.
fn scanned(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Reads>> {
    let mut reads: HashMap<GridId, Reads> = HashMap::new();
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<GridScanExec>() {
            let read = match reads.entry(scan.grid().id()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(Reads {
                    grid: Arc::clone(scan.grid()),
                    columns: BTreeSet::new(),
                    row_bands: Vec::new(),
                }),
            };
            read.columns.extend(scan.columns_read());
            read.row_bands.extend(scan.kept_row_bands());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let reads = reads.into_values().map(|mut read| {
        read.row_bands.sort_unstable();
        read.row_bands.dedup();
        read
    });
    Ok(reads.collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;
    use crate::query::{Session, SessionOptions};

    fn session() -> Session {
        let column = |first: i64| Arc::new(Int64Array::from_iter_values(first..first + 10));
        let batch = |first: i64| {
            let columns = ["a", "b", "c"].map(|name| (name, column(first) as ArrayRef));
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let batches = [batch(0), batch(10), batch(20)];
        let grid = PartitionGrid::try_from_batches(batches[0].schema(), &batches).unwrap();
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        session.register("rows", Arc::new(grid)).unwrap();
        session
    }

    /// The columns and row bands of the one grid that a statement mentions, and that its plan reads.
    async fn told(text: &str) -> [(Vec<usize>, usize); 2] {
        let session = session();
        let state = session.state(&crate::query::QueryOptions::default());
        let logical = state.create_logical_plan(text).await.unwrap();
        let plan = state.create_physical_plan(&logical).await.unwrap();
        [mentioned(&logical).unwrap(), scanned(&plan).unwrap()].map(|reads| {
            let [read] = reads.try_into().unwrap();
            let columns = read.columns.iter().copied().collect();
            (columns, read.row_bands.len())
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_plan_reads_is_mentioned_in_its_statement() {
        let text = "SELECT sum(a) AS s FROM rows WHERE c >= 20";
        assert_eq!(told(text).await, [(vec![0, 2], 3), (vec![0, 2], 1)]);
        // All places of a grid count once, also within subqueries.
        let text = "SELECT sum(a) AS s FROM rows WHERE a IN (SELECT b FROM rows WHERE c < 10)";
        assert_eq!(told(text).await[0], (vec![0, 1, 2], 3));
        let [_, (columns, row_bands)] = told(text).await;
        assert_eq!((columns, row_bands), (vec![0, 1, 2], 3));
    }
}
