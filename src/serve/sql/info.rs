//! What the server can do, as `GetSqlInfo` of Flight SQL asks for it.
//!
//! Comes in: numbers of questions. Goes out: their answers; the numbers are those of `SqlInfo` in `FlightSql.proto`, and each of them has one. Of maxima 0 means that there is none of its own. Never here: anything that is not so.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UnionArray};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, UInt32Type, UnionFields, UnionMode};
use arrow_flight::sql::metadata::SqlInfoDataBuilder;
use arrow_flight::sql::{
    SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedGroupBy, SqlSupportedResultSetConcurrency, SqlSupportedResultSetType,
    SqlSupportedSubqueries, SqlSupportedTransaction, SqlSupportedUnions,
    SqlTransactionIsolationLevel,
};

use super::super::service::Service;
use super::converts::converts;
use crate::error::{Error, Result};
use crate::flight::of_flight;
use crate::query::{KEYWORDS, MAX_SQL_BYTES, Subject};
use crate::serve::door::auth::Scope;
use crate::serve::door::call::Call;
use crate::serve::queries::answers::{MOST, PREPARED_FOR};
use crate::serve::receive::ingest::MAX_NAME_BYTES;

/// What is another text in another server, or for another caller.
struct Facts {
    is_read_only: bool,
    max_connections: usize,
    numeric: Vec<String>,
    string: Vec<String>,
    datetime: Vec<String>,
    system: Vec<String>,
}

/// The answers that are null where the server takes no plans of Substrait.
const OF_SUBSTRAIT: [SqlInfo; 2] = [
    SqlInfo::FlightSqlServerSubstraitMinVersion,
    SqlInfo::FlightSqlServerSubstraitMaxVersion,
];

/// The rows of the wanted numbers; all without any.
///
/// # Errors
/// `Internal` when Arrow refuses an answer.
pub(super) fn batch(service: &Service, call: &Call, wanted: &[u32]) -> Result<RecordBatch> {
    let about = |subject| service.session.functions_about(subject);
    let known = known(Facts {
        is_read_only: call.caller.scope() == Scope::Read,
        max_connections: service.limits.connections,
        numeric: about(Subject::Numbers),
        string: about(Subject::Texts),
        datetime: about(Subject::Times),
        system: about(Subject::System),
    })?;
    if wanted.is_empty() {
        return Ok(known);
    }
    let numbers = known.column(0).as_primitive::<UInt32Type>().values();
    let is_wanted = numbers.iter().map(|number| wanted.contains(number));
    let is_wanted: Vec<bool> = is_wanted.collect();
    Ok(filter_record_batch(&known, &BooleanArray::from(is_wanted))?)
}

/// All answers, in the order of their numbers.
fn known(facts: Facts) -> Result<RecordBatch> {
    let mut info = SqlInfoDataBuilder::new();
    server(&mut info, &facts);
    names(&mut info, &facts);
    maxima(&mut info, &facts);
    words(&mut info, facts);
    clauses(&mut info);
    queries(&mut info);
    transactions(&mut info);
    rows(&mut info);
    let known = info.build().map_err(of_flight)?;
    let all = known.record_batch([]).map_err(of_flight)?;
    with_nulls(&all)
}

fn server(info: &mut SqlInfoDataBuilder, facts: &Facts) {
    info.append(SqlInfo::FlightSqlServerName, "partgrid");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, facts.is_read_only);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    for version in OF_SUBSTRAIT {
        info.append(version, "");
    }
    let none = SqlSupportedTransaction::None as i32;
    info.append(SqlInfo::FlightSqlServerTransaction, none);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, !facts.is_read_only);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    let kept = i32::try_from(PREPARED_FOR.as_millis()).unwrap_or(i32::MAX);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, kept);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
}

/// What has names, and how they are written.
fn names(info: &mut SqlInfoDataBuilder, facts: &Facts) {
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, !facts.is_read_only);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    // Besides these, letters of all languages.
    info.append(SqlInfo::SqlExtraNameCharacters, "@$#");
    let lower = SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32;
    info.append(SqlInfo::SqlIdentifierCase, lower);
    let insensitive = SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32;
    info.append(SqlInfo::SqlQuotedIdentifierCase, insensitive);
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    // There are none.
    info.append(SqlInfo::SqlProcedureTerm, "");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    // The elements that are meant are those of calls of procedures, of indices and of privileges.
    info.append(SqlInfo::SqlSchemasSupportedActions, 0i32);
    info.append(SqlInfo::SqlCatalogsSupportedActions, 0i32);
}

fn words(info: &mut SqlInfoDataBuilder, facts: Facts) {
    let keywords: Vec<String> = KEYWORDS.split(' ').map(str::to_owned).collect();
    info.append(SqlInfo::SqlKeywords, keywords);
    info.append(SqlInfo::SqlNumericFunctions, facts.numeric);
    info.append(SqlInfo::SqlStringFunctions, facts.string);
    info.append(SqlInfo::SqlDatetimeFunctions, facts.datetime);
    info.append(SqlInfo::SqlSystemFunctions, facts.system);
    info.append(SqlInfo::SqlSupportsConvert, converts());
}

/// What clauses of a query may say.
fn clauses(info: &mut SqlInfoDataBuilder) {
    let high = SqlNullOrdering::SqlNullsSortedHigh as i32;
    info.append(SqlInfo::SqlNullOrdering, high);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    // They need not be different from the names of the tables.
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    let groups = bits(&[
        SqlSupportedGroupBy::SqlGroupByUnrelated as i32,
        SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32,
    ]);
    info.append(SqlInfo::SqlSupportedGroupBy, groups);
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    // Each level, the lowest too, has INSERT, UPDATE and DELETE: the server has none.
    info.append(SqlInfo::SqlSupportedGrammar, 0i32);
    info.append(SqlInfo::SqlAnsi92SupportedLevel, 0i32);
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, false);
}

/// Of which queries a query may be made.
fn queries(info: &mut SqlInfoDataBuilder) {
    let full = SqlOuterJoinsSupportLevel::SqlFullOuterJoins as i32;
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, full);
    let subqueries = bits(&[
        SqlSupportedSubqueries::SqlSubqueriesInComparisons as i32,
        SqlSupportedSubqueries::SqlSubqueriesInExists as i32,
        SqlSupportedSubqueries::SqlSubqueriesInIns as i32,
        SqlSupportedSubqueries::SqlSubqueriesInQuantifieds as i32,
    ]);
    info.append(SqlInfo::SqlSupportedSubqueries, subqueries);
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    let unions = bits(&[
        SqlSupportedUnions::SqlUnion as i32,
        SqlSupportedUnions::SqlUnionAll as i32,
    ]);
    info.append(SqlInfo::SqlSupportedUnions, unions);
    info.append(SqlInfo::SqlSelectForUpdateSupported, false);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    info.append(SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false);
    info.append(SqlInfo::SqlNamedParametersSupported, true);
}

/// What has no bound of its own is bounded by the text of a statement, or by memory.
fn maxima(info: &mut SqlInfoDataBuilder, facts: &Facts) {
    for unbounded in [
        SqlInfo::SqlMaxBinaryLiteralLength,
        SqlInfo::SqlMaxCharLiteralLength,
        SqlInfo::SqlMaxColumnNameLength,
        SqlInfo::SqlMaxColumnsInGroupBy,
        SqlInfo::SqlMaxColumnsInIndex,
        SqlInfo::SqlMaxColumnsInOrderBy,
        SqlInfo::SqlMaxColumnsInSelect,
        SqlInfo::SqlMaxColumnsInTable,
        SqlInfo::SqlMaxCursorNameLength,
        SqlInfo::SqlMaxIndexLength,
        SqlInfo::SqlDbSchemaNameLength,
        SqlInfo::SqlMaxProcedureNameLength,
        SqlInfo::SqlMaxCatalogNameLength,
        SqlInfo::SqlMaxRowSize,
        SqlInfo::SqlMaxTablesInSelect,
        SqlInfo::SqlMaxUsernameLength,
    ] {
        info.append(unbounded, 0i64);
    }
    for (number, most) in [
        (SqlInfo::SqlMaxStatementLength, MAX_SQL_BYTES as u64),
        (SqlInfo::SqlMaxStatements, MOST),
        (SqlInfo::SqlMaxTableNameLength, MAX_NAME_BYTES as u64),
        (SqlInfo::SqlMaxConnections, facts.max_connections as u64),
    ] {
        info.append(number, i64::try_from(most).unwrap_or(i64::MAX));
    }
    // What there is no bound for includes them.
    info.append(SqlInfo::SqlMaxRowSizeIncludesBlobs, true);
}

/// There are none, and nothing else changes in the middle.
fn transactions(info: &mut SqlInfoDataBuilder) {
    let none = SqlTransactionIsolationLevel::SqlTransactionNone as i32;
    info.append(SqlInfo::SqlDefaultTransactionIsolation, none);
    let levels = bits(&[none]);
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, levels);
    for number in [
        SqlInfo::SqlTransactionsSupported,
        SqlInfo::SqlSavepointsSupported,
        SqlInfo::SqlDataDefinitionCausesTransactionCommit,
        SqlInfo::SqlDataDefinitionsInTransactionsIgnored,
        SqlInfo::SqlBatchUpdatesSupported,
    ] {
        info.append(number, false);
    }
}

/// The rows of an answer come once, in order, and are the client's own: nothing is done through them.
fn rows(info: &mut SqlInfoDataBuilder) {
    let forward = bits(&[SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32]);
    info.append(SqlInfo::SqlSupportedResultSetTypes, forward);
    let read = bits(&[SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32]);
    for (number, ways) in [
        (
            SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly,
            read,
        ),
        (
            SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified,
            0i32,
        ),
        (
            SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive,
            0i32,
        ),
        (
            SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive,
            0i32,
        ),
        (SqlInfo::SqlSupportedPositionedCommands, 0i32),
    ] {
        info.append(number, ways);
    }
    info.append(SqlInfo::SqlLocatorsUpdateCopy, true);
}

/// A number with the bit of each place.
fn bits(places: &[i32]) -> i32 {
    places.iter().fold(0, |all, place| all | 1 << place)
}

/// The answers with null in place of those that are to be null, for which the builder has no word.
fn with_nulls(all: &RecordBatch) -> Result<RecordBatch> {
    let wrong = || Error::internal("the answers of GetSqlInfo are not of their form");
    let numbers = all.column(0).as_primitive::<UInt32Type>().values();
    let values = all.column(1).as_any().downcast_ref::<UnionArray>();
    let (fields, kinds, offsets, mut children) = values.ok_or_else(wrong)?.clone().into_parts();
    let offsets = offsets.ok_or_else(wrong)?;
    let texts = children.first_mut().ok_or_else(wrong)?;
    let old = texts.as_string::<i32>();
    let is_null = |number: u32| {
        let mut null = OF_SUBSTRAIT.iter();
        null.any(|null| u32::try_from(*null as i32) == Ok(number))
    };
    let mut is_valid = vec![true; old.len()];
    for (number, offset) in numbers.iter().zip(offsets.iter()) {
        let place = usize::try_from(*offset).ok();
        if is_null(*number)
            && let Some(place) = place.and_then(|place| is_valid.get_mut(place))
        {
            *place = false;
        }
    }
    let (ends, bytes) = (old.offsets().clone(), old.values().clone());
    let new = StringArray::try_new(ends, bytes, Some(NullBuffer::from(is_valid)))?;
    *texts = Arc::new(new) as ArrayRef;
    let fields = fields.iter().map(|(kind, field)| {
        let is_text = field.data_type() == &DataType::Utf8;
        let field = Field::clone(field).with_nullable(is_text || field.is_nullable());
        (kind, Arc::new(field))
    });
    let fields: UnionFields = fields.collect();
    let values = UnionArray::try_new(fields.clone(), kinds, Some(offsets), children)?;
    let schema = Schema::new(vec![
        all.schema().field(0).clone(),
        Field::new("value", DataType::Union(fields, UnionMode::Dense), false),
    ]);
    let columns = vec![Arc::clone(all.column(0)), Arc::new(values) as ArrayRef];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> RecordBatch {
        let some = || vec!["one".to_owned(), "other".to_owned()];
        known(Facts {
            is_read_only: false,
            max_connections: 7,
            numeric: some(),
            string: some(),
            datetime: some(),
            system: Vec::new(),
        })
        .unwrap()
    }

    /// Which of the types of values that `FlightSql.proto` lists an answer has.
    fn kind(number: i32) -> i8 {
        match number {
            0..=2 | 6 | 7 | 504 | 513 | 514 | 529..=531 => 0,
            541..=555 | 557..=561 => 2,
            8
            | 100
            | 101
            | 503
            | 505
            | 507
            | 522
            | 525
            | 526
            | 528
            | 533..=535
            | 538
            | 540
            | 562
            | 564
            | 567..=571 => 3,
            508..=512 => 4,
            517 => 5,
            _ => 1,
        }
    }

    #[test]
    fn each_number_of_the_specification_has_an_answer_of_its_type() {
        let all = all();
        let found = all.column(0).as_primitive::<UInt32Type>().values();
        let numbers: Vec<i32> = (0..10_000)
            .filter(|number| SqlInfo::try_from(*number).is_ok())
            .collect();
        let answered: Vec<i32> = found.iter().map(|number| *number as i32).collect();
        assert_eq!(answered, numbers);
        let values = all.column(1).as_any().downcast_ref::<UnionArray>().unwrap();
        for (row, number) in numbers.iter().enumerate() {
            assert_eq!(values.type_id(row), kind(*number), "{number}");
        }
    }

    #[test]
    fn versions_of_substrait_are_null_and_nothing_else_is() {
        let all = all();
        let found = all.column(0).as_primitive::<UInt32Type>().values();
        let values = all.column(1).as_any().downcast_ref::<UnionArray>().unwrap();
        for (row, number) in found.iter().enumerate() {
            let is_null = values.value(row).is_null(0);
            assert_eq!(is_null, [6, 7].contains(number), "{number}");
        }
    }
}
