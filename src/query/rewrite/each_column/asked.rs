//! What the planner is asked: which columns FROM has, and which of them a table.
//!
//! Comes in: a query of all columns of FROM. Goes out: plans, of which the columns are those. Never here: which columns are meant.

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    WildcardAdditionalOptions,
};

use super::call;
use super::chosen::{OfTable, table_of};
use crate::error::Result;
use crate::query::rewrite::around::{planned_alone, statement_of};
use crate::query::rewrite::using::as_using;

/// The plan of a query that stands alone.
pub(in crate::query::rewrite) async fn planned(
    query: Query,
    state: &SessionState,
) -> Result<LogicalPlan> {
    let mut statement = statement_of(query);
    as_using(&mut statement, state).await?;
    planned_alone(statement, state).await
}

/// The columns of the tables that some calls name (`t.*`): those of a join by names are of both of its tables.
pub(super) async fn tables_of(
    calls: &[Expr],
    query: &Query,
    state: &SessionState,
) -> Result<Vec<OfTable>> {
    let mut found = Vec::new();
    for wanted in calls {
        let Some(table) = call(wanted).and_then(|(function, _)| table_of(function)) else {
            continue;
        };
        let mut query = query.clone();
        if let Some(select) = select_of(&mut query) {
            let options = WildcardAdditionalOptions::default();
            let all = SelectItemQualifiedWildcardKind::ObjectName(table.clone());
            select.projection = vec![SelectItem::QualifiedWildcard(all, options)];
        }
        let plan = planned(query, state).await?;
        found.push(OfTable::of(table, plan.schema())?);
    }
    Ok(found)
}

fn select_of(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => select_of(inner),
        _ => None,
    }
}
