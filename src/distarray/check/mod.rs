//! Everything that is wrong with the sections of others.
//!
//! Comes in: untyped values, one section or all of an array. Goes out: all [`Finding`]s, each with its rule, or, for importers, typed sections (`read.rs`). Read on in `rule.rs`, `section.rs` (one
//! section), `fields.rs` and `dimension.rs` (one dictionary), `across.rs` (all ranks). Takes time in proportion to what is there (times its logarithm for indices), whatever numbers are in it.
//! Never here: a failure or a panic because of what came; data.

mod across;
mod along;
mod dimension;
mod fields;
mod read;
mod rule;
mod section;

use std::fmt;

pub use read::{SectionInfo, read_all, read_local};
pub use rule::Rule;

use crate::distarray::value::Value;

/// Whether a finding makes a section invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The rule is broken.
    Error,
    /// Worth a look; the section is valid, or was read leniently.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// How much a consumer bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// The letter of the protocol.
    #[default]
    Strict,
    /// What real producers write, where there is no doubt about what they mean: lists for padding, integers of other types, lists for indices in 0.9. They are warnings.
    Lenient,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule that is broken.
    pub rule: Rule,
    /// Whether that makes the section invalid.
    pub severity: Severity,
    /// The number of the section, where there are several.
    pub rank: Option<usize>,
    /// The dimension.
    pub dimension: Option<usize>,
    /// The key of the dictionary.
    pub key: Option<&'static str>,
    /// What is wrong, what was expected, what came; without a final period.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {}: {}",
            self.severity.name(),
            self.rule,
            self.message
        )?;
        let numbers = [("rank", self.rank), ("dimension", self.dimension)];
        let numbers = numbers
            .into_iter()
            .filter_map(|(name, number)| Some(format!("{name}: {}", number?)));
        let places: Vec<String> = numbers
            .chain(self.key.map(|key| format!("key: {key}")))
            .collect();
        match places.is_empty() {
            true => Ok(()),
            false => write!(formatter, " ({})", places.join(", ")),
        }
    }
}

/// Everything that is wrong with one section: the `T` and `D` rules.
#[must_use]
pub fn validate_local(section: &Value, mode: Mode) -> Vec<Finding> {
    let mut log = Log::new(mode);
    section::check(section, &mut log);
    log.findings
}

/// Everything that is wrong with the sections of an array, rank 0 first: the rules of each section, and the `X` rules of all together.
#[must_use]
pub fn validate_all(sections: &[Value], mode: Mode) -> Vec<Finding> {
    let mut log = Log::new(mode);
    let seen = see_all(sections, &mut log);
    across::check(&seen, &mut log);
    log.findings
}

fn see_all(sections: &[Value], log: &mut Log) -> Vec<section::Seen> {
    let seen = sections.iter().enumerate().map(|(rank, value)| {
        log.rank = Some(rank);
        section::check(value, log)
    });
    let seen = seen.collect();
    (log.rank, log.dimension) = (None, None);
    seen
}

/// What was found so far, and where the look is.
struct Log {
    findings: Vec<Finding>,
    mode: Mode,
    rank: Option<usize>,
    dimension: Option<usize>,
}

impl Log {
    fn new(mode: Mode) -> Self {
        Self {
            findings: Vec::new(),
            mode,
            rank: None,
            dimension: None,
        }
    }

    fn error(&mut self, rule: Rule, key: Option<&'static str>, message: impl Into<String>) {
        self.add(rule, Severity::Error, key, message.into());
    }

    fn warning(&mut self, rule: Rule, key: Option<&'static str>, message: impl Into<String>) {
        self.add(rule, Severity::Warning, key, message.into());
    }

    /// What a lenient reader bears.
    fn bearable(&mut self, rule: Rule, key: Option<&'static str>, message: impl Into<String>) {
        let severity = match self.mode {
            Mode::Strict => Severity::Error,
            Mode::Lenient => Severity::Warning,
        };
        self.add(rule, severity, key, message.into());
    }

    fn add(&mut self, rule: Rule, severity: Severity, key: Option<&'static str>, message: String) {
        self.findings.push(Finding {
            rule,
            severity,
            rank: self.rank,
            dimension: self.dimension,
            key,
            message,
        });
    }

    /// An error at a section and a dimension.
    fn error_at(
        &mut self,
        (rank, dimension): (usize, usize),
        rule: Rule,
        key: &'static str,
        message: String,
    ) {
        (self.rank, self.dimension) = (Some(rank), Some(dimension));
        self.error(rule, Some(key), message);
        (self.rank, self.dimension) = (None, None);
    }
}
