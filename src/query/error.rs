//! Errors between this crate and DataFusion, keeping the kind both ways.
//!
//! Comes in: a `DataFusionError`. Goes out: our [`Error`] in our words, with the near name for one that does not exist, and the place in the SQL text. Ours travel through DataFusion
//! as `External`; coming back, the first of ours among the sources wins. Never here: planning or running.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::parser::ParserError;

use super::names::Known;
use crate::error::{Error, ErrorKind};
use crate::grid::unknown_column;
use crate::query::messages::values::plain;
use crate::query::messages::words::{Worded, in_our_words};
use crate::query::rewrite::synonyms::SYNONYMS;

pub(super) use crate::query::messages::place::{placed, placed_in};
use crate::query::rewrite::letter_case::FOLDED;

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        if let Some(ours) = ours_within(&error) {
            return ours;
        }
        let translated = translate(&error);
        translated.with_source(error)
    }
}

/// An error of the engine as one of ours, which does not keep it.
pub(crate) fn error_within(error: &DataFusionError) -> Error {
    ours_within(error).unwrap_or_else(|| translate(error))
}

/// The kind that an error of the engine has as one of ours.
#[cfg(feature = "distributed")]
pub(crate) fn kind_within(error: &DataFusionError) -> ErrorKind {
    error_within(error).kind()
}

/// The first error of this crate among the causes.
fn ours_within(error: &DataFusionError) -> Option<Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(ours) = current.downcast_ref::<Error>() {
            return Some(ours.clone());
        }
        let inner = current.downcast_ref::<std::io::Error>();
        if let Some(inner) = inner.and_then(std::io::Error::get_ref) {
            cause = Some(inner);
            continue;
        }
        cause = match current.downcast_ref::<ArrowError>() {
            Some(ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
            Some(ArrowError::IoError(_, inner)) => Some(inner),
            _ => current.source(),
        };
    }
    None
}

fn translate(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::SchemaError(schema_error, _) => translate_schema(schema_error),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            translate(inner)
        }
        DataFusionError::Shared(inner) => translate(inner),
        DataFusionError::Collection(errors) => errors.first().map_or_else(
            || Error::internal("an empty collection of errors"),
            translate,
        ),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => translate(inner),
                None => in_words(ErrorKind::Internal, &inner.to_string()),
            },
            _ => worded(error),
        },
        DataFusionError::External(inner) => match inner.downcast_ref::<ArrowError>() {
            Some(inner) => in_words(kind_of_arrow(inner), &inner.to_string()),
            #[cfg(feature = "distributed")]
            None if let Some(arrived) = super::travel::arrived(&inner.to_string()) => arrived,
            None => worded(error),
        },
        _ => worded(error),
    }
}

fn worded(error: &DataFusionError) -> Error {
    in_words(kind_of(error), &plain_text(error))
}

fn in_words(kind: ErrorKind, text: &str) -> Error {
    let text = without_class(text);
    let Some(Worded {
        kind: better,
        message,
        hint,
    }) = in_our_words(text)
    else {
        return Error::new(kind, plain(text));
    };
    let error = Error::new(better.unwrap_or(kind), plain(&message));
    match hint {
        Some(hint) => error.with_hint(plain(&hint)),
        None => error,
    }
}

fn kind_of(error: &DataFusionError) -> ErrorKind {
    match error {
        DataFusionError::SQL(parser, _) => match parser.as_ref() {
            ParserError::RecursionLimitExceeded => ErrorKind::ResourcesExhausted,
            _ => ErrorKind::Query,
        },
        DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Execution(_)
        | DataFusionError::Configuration(_) => ErrorKind::Query,
        DataFusionError::ArrowError(inner, _) => kind_of_arrow(inner),
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::ResourcesExhausted(_) => ErrorKind::ResourcesExhausted,
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => {
            ErrorKind::Storage { retryable: false }
        }
        _ => ErrorKind::Internal,
    }
}

fn kind_of_arrow(error: &ArrowError) -> ErrorKind {
    match error {
        ArrowError::MemoryError(_) => ErrorKind::ResourcesExhausted,
        ArrowError::IoError(..) | ArrowError::IpcError(_) => {
            ErrorKind::Storage { retryable: false }
        }
        _ => ErrorKind::Query,
    }
}

/// The text as the library that failed has it.
fn plain_text(error: &DataFusionError) -> String {
    if let DataFusionError::SQL(parser, _) = error {
        return match parser.as_ref() {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => {
                "parentheses, subqueries or signs are nested more than 50 deep".to_owned()
            }
        };
    }
    error.strip_backtrace()
}

/// The text without the class names before it: one library puts its own before that of another.
fn without_class(text: &str) -> &str {
    let prefixes = [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Compute error: ",
        "Invalid or Unsupported Configuration: ",
        "This feature is not implemented: ",
        "Resources exhausted: ",
    ];
    let stripped = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    stripped.map_or(text, without_class)
}

fn translate_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let elsewhere = valid_fields.iter().find(|valid| valid.name == field.name);
            if let (Some(_), Some(elsewhere)) = (&field.relation, elsewhere) {
                let text = format!("no column `{}`", field.flat_name());
                return Error::new(ErrorKind::Query, text)
                    .with_column(&field.name)
                    .with_hint(format!("did you mean `{}`?", elsewhere.flat_name()));
            }
            // Sides of a join may have columns of one name.
            let mut names: Vec<&str> = Vec::new();
            for column in valid_fields {
                if !names.contains(&column.name.as_str()) {
                    names.push(&column.name);
                }
            }
            // Columns whose names nobody wrote: the engine calls them as it prints the values in them.
            if names.iter().any(|name| plain(name) == **name) {
                names.retain(|name| plain(name) == **name);
            }
            let known = names.iter().copied();
            let found = unknown_column(&field.name, known.clone());
            let error = Error::new(ErrorKind::Query, found.message()).with_column(&field.name);
            // SQL folds a name without quotes, so that the near name is only found in quotes.
            let folded = known.clone().find(|known| {
                *known != field.name && known.to_lowercase() == field.name.to_lowercase()
            });
            match (folded, found.hint()) {
                (None, _) if field.relation.is_none() && field.name == "all" => error.with_hint(
                    "ORDER BY ALL stands for the items of SELECT, and not for `*`: write the columns",
                ),
                (Some(name), _) => error.with_hint(format!("{FOLDED}\"{name}\"")),
                (None, _) if valid_fields.is_empty() => {
                    error.with_hint("there are no columns here: is a FROM missing?")
                }
                (None, Some(hint)) => error.with_hint(hint),
                (None, None) => error,
            }
        }
        SchemaError::AmbiguousReference { field } => Error::new(
            ErrorKind::Query,
            format!("column `{}` exists in more than one table", field.name),
        )
        .with_column(&field.name)
        .with_hint("write the table's name before it: table.column"),
        SchemaError::DuplicateQualifiedField { qualifier, .. } => Error::new(
            ErrorKind::Query,
            format!("the table {qualifier} is there twice under one name"),
        )
        .with_hint("give one of them another name: FROM t AS a JOIN t AS b"),
        SchemaError::DuplicateUnqualifiedField { name } => Error::new(
            ErrorKind::Query,
            format!("two columns of the answer have the name `{name}`"),
        )
        .with_column(name)
        .with_hint("give one of them another name with AS"),
    }
}

/// The known name that is near a wrong one; also one that differs in case only.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = name.to_lowercase();
    let distance =
        |candidate: &&'a str| strsim::damerau_levenshtein(&wrong, &candidate.to_lowercase());
    let (distance, candidate) = known
        .map(|candidate| (distance(&candidate), candidate))
        .min()?;
    let letters = name.chars().count();
    // Two letters with one wrong are near as well.
    (distance <= (letters / 3).max(usize::from(letters > 1))).then_some(candidate)
}

/// A view where a grid is wanted.
pub(super) fn is_a_view(name: &str) -> Error {
    Error::new(ErrorKind::Query, format!("`{name}` is a view"))
        .with_context("table", name)
        .with_hint("CREATE TABLE … AS SELECT * FROM it makes a grid")
}

/// An error about a table that does not exist, with the near one or all that there are; or about one that is damaged, or of which parts are missing.
pub(super) fn no_table(name: &str, known: &Known) -> Error {
    if let Some(name) = known.left_out(name) {
        let text = format!("the table `{name}` is damaged, and left out");
        return Error::invalid_data(text)
            .with_context("table", name)
            .with_hint("the log of the server says what is wrong with it, and what can be done");
    }
    if let Some((name, why)) = known.lacking(name) {
        let error = Error::new(ErrorKind::Query, why.message()).with_context("table", name);
        return match why.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
    }
    let error =
        Error::new(ErrorKind::Query, format!("no table `{name}`")).with_context("table", name);
    let tables = || known.tables.keys().map(String::as_str);
    error.with_hint(match near(name, tables()) {
        Some(table) => format!("did you mean `{table}`?"),
        None if is_file(name) => NO_FILES.to_owned(),
        None if known.tables.is_empty() => {
            "no grid is registered: pg.sql(text, NAME=frame) and session.register(NAME, grid) name one"
                .to_owned()
        },
        None => format!("the tables are {}", tables().collect::<Vec<_>>().join(", ")),
    })
}

/// The same about a grid that was asked for by its name, not in a statement: it is not there, and nobody's SQL is wrong.
pub(super) fn no_grid(name: &str, known: &Known) -> Error {
    let told = no_table(name, known);
    if told.kind() != ErrorKind::Query {
        return told;
    }
    let error = Error::not_found(told.message()).with_context("table", name);
    match told.hint() {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// An error about a function that does not exist, with the near one.
pub(super) fn no_function(name: &str, state: &SessionState) -> Error {
    let scalar = state.scalar_functions().keys();
    let known = scalar
        .chain(state.aggregate_functions().keys())
        .chain(state.window_functions().keys());
    let known = known
        .chain(state.table_functions().keys())
        .chain(state.higher_order_functions().keys())
        .map(String::as_str)
        .chain(SYNONYMS.iter().map(|synonym| synonym.name));
    let error = Error::new(ErrorKind::Query, format!("no function `{name}`"));
    if let Some(hint) = called_otherwise(name) {
        return error.with_hint(hint);
    }
    if matches!(name, "columns" | "__columns") {
        return error.with_hint("COLUMNS(…) stands in SELECT, conditions and keys of a query with FROM; not in ON, WINDOW and REPLACE");
    }
    match near(name, known) {
        Some(function) if function == name => error.with_hint(format!(
            "`{name}` looks at rows around each row: write {name}(…) OVER (ORDER BY …)"
        )),
        Some(function) => error.with_hint(format!("did you mean `{function}`?")),
        None => error.with_hint("SHOW FUNCTIONS lists them"),
    }
}

/// What is said to whoever names a file in a statement.
const NO_FILES: &str = "statements read no files: give a file a name before, on the command line with --grid NAME=PATH, in Python pg.sql(text, NAME=pg.read_parquet(PATH))";

/// Whether a name of a table is that of a file.
fn is_file(name: &str) -> bool {
    let name = name.to_lowercase();
    let ends = [".parquet", ".csv", ".json", ".ndjson", ".arrow", ".feather"];
    name.contains(['/', '*']) || ends.iter().any(|end| name.ends_with(end))
}

/// How that is written here what other engines have as a function.
fn called_otherwise(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().as_str() {
        "timediff" => "write x - y",
        "dateadd" => "write x + INTERVAL '1 day'",
        "getdate" | "sysdate" => "write now()",
        "format_datetime" => "write to_char(x, '%Y-%m-%d')",
        "sum_if" | "sumif" => "write sum(x) FILTER (WHERE condition)",
        "read_parquet" | "parquet_scan" | "read_csv" | "read_csv_auto" | "csv_scan"
        | "read_json" | "read_json_auto" | "read_ndjson" => NO_FILES,
        "iif" => "write CASE WHEN condition THEN x ELSE y END",
        _ => return None,
    })
}
