//! Functions and errors of ours that travel.
//!
//! Comes in: nothing. Goes out: the functions that plans call, which the engine sends by their names, with their types beside them. Comes in: an error of a part of a plan. Goes out: one whose text says its kind,
//! since the engine sends no more than the text. Never here: plans.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ScalarUDF;

use super::plan::only::Only;
use super::plan::subqueries::MaybeNull;
use super::plan::types::spans::Scaled;
use crate::error::{Error, ErrorKind};
use crate::query::functions::nested_text::NestedText;
use crate::query::plan::meaning::checked::Checked;
use crate::query::plan::meaning::concatenate::Concatenate;
use crate::query::plan::meaning::days::Moved;
use crate::query::plan::meaning::fields::{FieldOf, StructOf};
use crate::query::plan::meaning::floats::Settled;
use crate::query::plan::meaning::lengths::{Length, PartOf};
use crate::query::plan::meaning::moments::Moments;
use crate::query::plan::meaning::nested::NestedKey;

/// What the text of an error that travels begins with.
const MARK: &str = "partgrid error ";

/// What stands behind the kind where the error is about a file or a folder.
const OF_PATH: &str = " of a path";

/// The kinds by which callers tell errors apart; others arrive as faults of the other process.
const KINDS: [ErrorKind; 14] = [
    ErrorKind::InvalidArgument,
    ErrorKind::InvalidData,
    ErrorKind::Protocol,
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::NotLocal,
    ErrorKind::PartitionLost,
    ErrorKind::WorkerLost,
    ErrorKind::Unsupported,
    ErrorKind::ResourcesExhausted,
    ErrorKind::Query,
    ErrorKind::Cancelled,
    ErrorKind::Storage { retryable: true },
    ErrorKind::Storage { retryable: false },
];

/// An error whose text says its kind.
#[derive(Debug)]
struct Traveling(Error);

impl fmt::Display for Traveling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.0.is_about_path() { OF_PATH } else { "" };
        write!(formatter, "{MARK}{:?}{about}: {}", self.0.kind(), self.0)
    }
}

impl std::error::Error for Traveling {}

/// The error as the engine sends it with its kind.
pub(crate) fn traveling(error: impl Into<Error>) -> DataFusionError {
    DataFusionError::External(Box::new(Traveling(error.into())))
}

/// The error that came from another process, if a text is that of one.
pub(super) fn arrived(text: &str) -> Option<Error> {
    let (_, said) = text.split_once(MARK)?;
    let known = KINDS.into_iter().find_map(|kind| {
        let rest = said.strip_prefix(&format!("{kind:?}"))?;
        let of_path = rest.strip_prefix(OF_PATH);
        let text = of_path.unwrap_or(rest).strip_prefix(": ")?;
        Some((Some(kind), of_path.is_some(), text))
    });
    let (kind, is_about_path, text) =
        known.or_else(|| Some((None, false, said.split_once(": ")?.1)))?;
    let (text, hint) = match text.split_once("\nhint: ") {
        Some((text, hint)) => (text, Some(hint)),
        None => (text, None),
    };
    let error = Error::new(kind.unwrap_or(ErrorKind::Internal), text);
    let error = match is_about_path {
        true => error.with_path_untold(),
        false => error,
    };
    Some(match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}

/// The functions that only plans call, for parts of plans, which name them: SQL does not know them, or has others under their names. Values that they make have no more than `limit` bytes.
pub(crate) fn of_plans(limit: usize) -> Vec<Arc<ScalarUDF>> {
    let all = Checked::of_any_type().map(ScalarUDF::from);
    let floats = Settled::of_any_type().map(ScalarUDF::from);
    let spans = Scaled::all().map(ScalarUDF::from);
    let others = [
        ScalarUDF::from(Concatenate::new(DataType::Null, limit)),
        ScalarUDF::from(FieldOf::of_the_engine()),
        ScalarUDF::from(StructOf::of_the_engine()),
        ScalarUDF::from(MaybeNull::new()),
        ScalarUDF::from(Only::new()),
        ScalarUDF::from(NestedKey::new()),
        ScalarUDF::from(Length::new()),
        ScalarUDF::from(NestedText::new()),
        ScalarUDF::from(PartOf::new()),
        ScalarUDF::from(Moments::new(true)),
        ScalarUDF::from(Moments::new(false)),
    ];
    let days = Moved::both().map(ScalarUDF::from);
    let all = all.into_iter().chain(floats).chain(spans).chain(days);
    let all = all.chain(others);
    all.map(Arc::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_arrives_with_its_kind_and_hint() {
        for kind in KINDS {
            let error = Error::new(kind, "what: is wrong").with_hint("do that");
            let arrived =
                arrived(&format!("External error: {}", traveling(error.clone()))).unwrap();
            assert_eq!(arrived.kind(), kind);
            assert_eq!(arrived.to_string(), error.to_string());
            assert!(!arrived.is_about_path());
        }
        let missing = Error::not_found("gone").with_file("a.parquet");
        let there = arrived(&traveling(missing.clone()).to_string()).unwrap();
        assert!(there.is_about_path());
        assert_eq!(
            (there.kind(), there.to_string()),
            (missing.kind(), missing.to_string())
        );
        assert_eq!(
            arrived("partgrid error Unheard: of").unwrap().kind(),
            ErrorKind::Internal
        );
        assert!(arrived("another error").is_none());
    }
}
