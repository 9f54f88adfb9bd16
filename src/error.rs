//! The one error type of the crate.
//!
//! Comes in: what went wrong, at the place where it is noticed. Goes out: an [`Error`] with a kind (what a program should do about it), a message (what
//! is wrong, what was expected, what came), the context that names the file, column or position, and a hint with the remedy where one is known.
//! Never here: knowledge of any other module.

use std::error::Error as StdError;
use std::fmt;
#[cfg(feature = "parquet")]
use std::path::Path;
use std::sync::Arc;

/// With what a hint says where the process is: not for everybody.
#[cfg(feature = "parquet")]
pub(crate) const PATHS_START: &str = "relative paths start at";

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a program can do about an [`Error`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller passed a value that is not allowed.
    InvalidArgument,
    /// A file or a foreign object holds something that is broken or contradicts itself.
    InvalidData,
    /// An object that claims to speak a protocol does not keep to it.
    Protocol,
    /// A file, column, table or position does not exist.
    NotFound,
    /// The operating system or the object store refused access.
    PermissionDenied,
    /// The data exists, and lives where this process cannot reach it.
    NotLocal,
    /// A tile that existed is gone: its owner ended, or the grid was dropped.
    PartitionLost,
    /// A member of a cluster does not answer.
    WorkerLost,
    /// A legal wish that this version cannot fulfil.
    Unsupported,
    /// A limit of memory, disk or time was reached.
    ResourcesExhausted,
    /// The file system or object store failed.
    Storage {
        /// Whether the same call may succeed when it is made again.
        retryable: bool,
    },
    /// The user's SQL is wrong.
    Query,
    /// The caller asked to stop.
    Cancelled,
    /// A fault of partgrid itself.
    Internal,
}

/// What is wrong, where, and what to do about it.
///
/// The text reads `message (file: …, column: …, position: …)`, then, on lines of their own, the place in a text that it is about, and `hint: …` where a remedy is known.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    place: Option<String>,
    hint: Option<String>,
    /// Whether it is about a file or a folder that no pair of the context names.
    is_about_path: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` says what is wrong, what was expected and what came, without a final period.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            place: None,
            hint: None,
            is_about_path: false,
            source: None,
        }))
    }

    /// An error of kind [`ErrorKind::InvalidArgument`].
    #[must_use]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An error of kind [`ErrorKind::InvalidData`].
    #[must_use]
    pub fn invalid_data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidData, message)
    }

    /// An error of kind [`ErrorKind::NotFound`].
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// An error of kind [`ErrorKind::Unsupported`].
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// An error of kind [`ErrorKind::Internal`].
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds a pair of context, such as `("file", "a.parquet")`; pairs show in the order in which they were added.
    #[must_use]
    pub fn with_context(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let pair = (name, value.into());
        // Known already to whoever found it, and said once.
        if !self.0.context.contains(&pair) {
            self.0.context.push(pair);
        }
        self
    }

    /// The same without the pairs of context of a name.
    #[must_use]
    pub fn without_context(mut self, name: &str) -> Self {
        self.0.context.retain(|(known, _)| *known != name);
        self
    }

    /// Names the file (path or URL).
    #[must_use]
    pub fn with_file(self, path: impl Into<String>) -> Self {
        self.with_context("file", path)
    }

    /// Says that it is about a file or a folder that is not named beside the message: the text has it already, or it is not for everybody.
    #[must_use]
    pub fn with_path_untold(mut self) -> Self {
        self.0.is_about_path = true;
        self
    }

    /// Names the column.
    #[must_use]
    pub fn with_column(self, name: impl Into<String>) -> Self {
        self.with_context("column", name)
    }

    /// Names the position in the grid. The one that is named last holds: whoever asked knows that grid, and not one of which its tiles are a part elsewhere.
    #[must_use]
    pub fn with_position(mut self, position: &[usize]) -> Self {
        let position = format_position(position);
        let mut known = self.0.context.iter_mut();
        match known.find(|(name, _)| *name == "position") {
            Some((_, known)) => *known = position,
            None => self.0.context.push(("position", position)),
        }
        self
    }

    /// Says what is wrong in other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Shows the place in a text that it is about: lines of their own between context and hint.
    #[must_use]
    pub fn with_place(mut self, place: impl Into<String>) -> Self {
        self.0.place = Some(place.into());
        self
    }

    /// Says what the caller can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same without a remedy, for those whom it would tell too much.
    #[must_use]
    pub fn without_hint(mut self) -> Self {
        self.0.hint = None;
        self
    }

    /// Says, of what was not found, where relative paths start if this path is one: after the remedy, if there is one.
    #[cfg(feature = "parquet")]
    #[must_use]
    pub(crate) fn with_start_of(self, path: &str) -> Self {
        let is_relative =
            Path::new(path).is_relative() && !path.contains("://") && !path.starts_with('~');
        let here = match std::env::current_dir() {
            Ok(here) if is_relative && self.0.kind == ErrorKind::NotFound => here,
            _ => return self,
        };
        let start = format!("{PATHS_START} {}", here.display());
        let hint = match self.hint() {
            Some(hint) => format!("{hint}; {start}"),
            None => start,
        };
        self.with_hint(hint)
    }

    /// Keeps the error of another library that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What a program can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message alone, without context and hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The first context value under `name`, for instance `"file"`.
    #[must_use]
    pub fn context(&self, name: &str) -> Option<&str> {
        let pair = self.0.context.iter().find(|(key, _)| *key == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Whether it is about a file or a folder.
    #[must_use]
    pub fn is_about_path(&self) -> bool {
        self.0.is_about_path || self.context("file").is_some()
    }

    /// The place in a text that it is about, as lines to show, where it is known.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// The remedy, where one is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

/// An error and those behind it, the nearest first.
#[cfg(feature = "parquet")]
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What an error and those behind it say.
#[cfg(feature = "serve")]
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

/// A position as Python writes it: `(1, 0)`, `(3,)`.
#[must_use]
pub fn format_position(position: &[usize]) -> String {
    match position {
        [single] => format!("({single},)"),
        many => {
            let parts: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("({})", parts.join(", "))
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.message)?;
        for (place, (name, value)) in self.0.context.iter().enumerate() {
            let opening = if place == 0 { " (" } else { ", " };
            write!(formatter, "{opening}{name}: {value}")?;
        }
        if !self.0.context.is_empty() {
            formatter.write_str(")")?;
        }
        if let Some(place) = &self.0.place {
            write!(formatter, "\n{place}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(formatter, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {self}", self.0.kind)?;
        match &self.0.source {
            Some(source) => write!(formatter, "\ncaused by: {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError;
        if let ArrowError::ExternalError(inner) = &error
            && let Some(ours) = inner.downcast_ref::<Error>()
        {
            return ours.clone();
        }
        let kind = match &error {
            ArrowError::MemoryError(_) => ErrorKind::ResourcesExhausted,
            ArrowError::NotYetImplemented(_) => ErrorKind::Unsupported,
            ArrowError::InvalidArgumentError(_) => ErrorKind::InvalidArgument,
            _ => ErrorKind::InvalidData,
        };
        Error::new(kind, error.to_string()).with_source(error)
    }
}

impl From<Error> for arrow::error::ArrowError {
    fn from(error: Error) -> Self {
        arrow::error::ArrowError::ExternalError(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_context_in_order_and_ends_with_the_hint() {
        let error = Error::not_found("no such column")
            .with_file("a.parquet")
            .with_column("dep_dely")
            .with_position(&[3])
            .with_hint("did you mean `dep_delay`?");
        assert_eq!(
            error.to_string(),
            "no such column (file: a.parquet, column: dep_dely, position: (3,))\nhint: did you mean `dep_delay`?"
        );
    }

    #[test]
    fn what_is_about_a_file_is_so_also_where_it_is_not_named() {
        let named = Error::not_found("gone").with_file("a.parquet");
        let untold = Error::not_found("gone").with_path_untold();
        assert!(named.is_about_path() && untold.is_about_path());
        assert_eq!(untold.to_string(), "gone");
        assert!(!Error::not_found("gone").with_column("x").is_about_path());
    }

    #[test]
    fn of_two_positions_the_last_one_holds_in_place_of_the_first() {
        let error = Error::not_found("gone")
            .with_position(&[0, 0])
            .with_column("x")
            .with_position(&[2, 0]);
        assert_eq!(error.to_string(), "gone (position: (2, 0), column: x)");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn where_relative_paths_start_is_said_of_what_was_not_found() {
        let of = |path: &str| Error::not_found("gone").with_start_of(path);
        assert!(of("a/b").hint().unwrap().starts_with(PATHS_START));
        for path in ["/a/b", "s3://a/b", "~/a"] {
            assert_eq!(of(path).hint(), None, "{path}");
        }
        let known = Error::not_found("gone").with_hint("make it");
        let both = known.with_start_of("a").hint().map(str::to_owned);
        assert!(
            both.unwrap()
                .starts_with("make it; relative paths start at /")
        );
        let other = Error::invalid_data("torn").with_start_of("a");
        assert_eq!(other.hint(), None);
    }

    #[test]
    fn ours_survives_a_trip_through_arrow() {
        let through: arrow::error::ArrowError = Error::not_found("gone").into();
        assert_eq!(Error::from(through).kind(), ErrorKind::NotFound);
    }
}
