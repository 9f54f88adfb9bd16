//! Errors between this crate and DataFusion, keeping the kind both ways.
//!
//! Comes in: a `DataFusionError`. Goes out: our [`Error`], with the near name for a column that does not exist. Ours travel through DataFusion as `External`;
//! coming back, the first of ours among the sources wins. Never here: planning or running.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;

use crate::error::{Error, ErrorKind};
use crate::grid::unknown_column;

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

/// The first error of this crate among the causes.
fn ours_within(error: &DataFusionError) -> Option<Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(ours) = current.downcast_ref::<Error>() {
            return Some(ours.clone());
        }
        cause = match current.downcast_ref::<ArrowError>() {
            Some(ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
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
        _ => Error::new(kind_of(error), plain_text(error)),
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
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::MemoryError(_) => ErrorKind::ResourcesExhausted,
            ArrowError::IoError(..) | ArrowError::IpcError(_) => {
                ErrorKind::Storage { retryable: false }
            }
            _ => ErrorKind::Query,
        },
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::ResourcesExhausted(_) => ErrorKind::ResourcesExhausted,
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => {
            ErrorKind::Storage { retryable: false }
        }
        _ => ErrorKind::Internal,
    }
}

/// The text without the class name that DataFusion puts before it.
fn plain_text(error: &DataFusionError) -> String {
    if let DataFusionError::SQL(parser, _) = error {
        return match parser.as_ref() {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => {
                "parentheses, subqueries or signs are nested more than 50 deep".to_owned()
            }
        };
    }
    let text = error.strip_backtrace();
    let prefixes = [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Invalid or Unsupported Configuration: ",
        "This feature is not implemented: ",
    ];
    let stripped = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    stripped.unwrap_or(&text).to_owned()
}

fn translate_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let known = valid_fields.iter().map(|column| column.name.as_str());
            let found = unknown_column(&field.name, known);
            let error = Error::new(ErrorKind::Query, found.message()).with_column(&field.name);
            match found.hint() {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => Error::new(
            ErrorKind::Query,
            format!("column `{}` exists in more than one table", field.name),
        )
        .with_column(&field.name)
        .with_hint("write the table's name before it: table.column"),
        other => Error::new(ErrorKind::Query, other.to_string()),
    }
}
