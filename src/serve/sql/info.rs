//! What the server can do, as `GetSqlInfo` of Flight SQL asks for it.
//!
//! Comes in: numbers of questions. Goes out: their answers; the numbers are those of `SqlInfo` in `FlightSql.proto`. Never here: anything that is not so.

use arrow::array::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedGroupBy,
    SqlSupportedTransaction, SqlSupportedUnions, SupportedSqlGrammar,
};

use super::super::auth::Scope;
use super::super::call::Call;
use super::super::service::Service;
use crate::error::Result;
use crate::flight::of_flight;
use crate::query::MAX_SQL_BYTES;

/// The rows of the wanted numbers; all without any.
///
/// # Errors
/// `Internal` when Arrow refuses an answer.
pub(super) fn batch(service: &Service, call: &Call, wanted: &[u32]) -> Result<RecordBatch> {
    let known = known(service, call)?;
    known
        .record_batch(wanted.iter().copied())
        .map_err(of_flight)
}

fn known(service: &Service, call: &Call) -> Result<SqlInfoData> {
    let mut info = SqlInfoDataBuilder::new();
    let is_read_only = call.caller.scope() == Scope::Read;
    info.append(SqlInfo::FlightSqlServerName, "partgrid");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, is_read_only);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    let none = SqlSupportedTransaction::None as i32;
    info.append(SqlInfo::FlightSqlServerTransaction, none);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, !is_read_only);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, millis(service));
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, !is_read_only);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    let lower = SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32;
    info.append(SqlInfo::SqlIdentifierCase, lower);
    let sensitive = SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32;
    info.append(SqlInfo::SqlQuotedIdentifierCase, sensitive);
    let high = SqlNullOrdering::SqlNullsSortedHigh as i32;
    info.append(SqlInfo::SqlNullOrdering, high);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    let grammar = 1i32 << SupportedSqlGrammar::SqlCoreGrammar as i32;
    info.append(SqlInfo::SqlSupportedGrammar, grammar);
    let groups = (1i32 << SqlSupportedGroupBy::SqlGroupByUnrelated as i32)
        | (1i32 << SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32);
    info.append(SqlInfo::SqlSupportedGroupBy, groups);
    let unions = (1i32 << SqlSupportedUnions::SqlUnion as i32)
        | (1i32 << SqlSupportedUnions::SqlUnionAll as i32);
    info.append(SqlInfo::SqlSupportedUnions, unions);
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    let longest = i64::try_from(MAX_SQL_BYTES).unwrap_or(i64::MAX);
    info.append(SqlInfo::SqlMaxStatementLength, longest);
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.append(SqlInfo::SqlSavepointsSupported, false);
    info.append(SqlInfo::SqlBatchUpdatesSupported, false);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    info.build().map_err(of_flight)
}

fn millis(service: &Service) -> i32 {
    i32::try_from(service.limits.query_time.as_millis()).unwrap_or(i32::MAX)
}
