//! `partgrid distarray check`: everything that is wrong with sections of the Distributed Array Protocol.
//!
//! Comes in: a JSON file (the form is in `distarray/json.rs`). Goes out: the findings, an exit code. Never here: rules.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use comfy_table::Table;
use serde_json::json;

use super::table::plain;
use super::{EXIT_DONE, EXIT_FAILED, Pipe};
use crate::distarray::check::{Finding, Mode, Severity, validate_all, validate_local};
use crate::distarray::{Value, from_json};
use crate::error::{Error, Result};
use crate::grid::picture::visible;

/// Look at sections of the Distributed Array Protocol
#[derive(Debug, Args)]
pub(super) struct Distarray {
    #[command(subcommand)]
    verb: DistarrayVerb,
}

#[derive(Debug, Subcommand)]
enum DistarrayVerb {
    Check(Check),
}

/// Tell everything that is wrong with a section, or with all sections of an array
#[derive(Debug, Args)]
#[command(after_help = "\
THE FILE
  One object is one section; an array of objects is all sections of an array, rank 0 first.
  An array stands for a tuple. Objects stand for what JSON has no word for:
    {\"list\": [1, 2]}                                       a list
    {\"shape\": [2], \"format\": \"d\", \"values\": [0.5, 1.5]}  a buffer; values may be left out
    {\"integral\": 3, \"type\": \"numpy.int64\"}               an integer of another type
    {\"other\": \"module\"}                                  anything else

EXIT CODES
  0  valid, warnings or not
  1  findings that are errors
  2  the file could not be read, or wrong usage

EXAMPLES
  partgrid distarray check sections.json
  partgrid distarray check sections.json --lenient --json")]
struct Check {
    /// A JSON file of one section or of a list of sections
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Bear what real producers write: lists for padding, integers of numpy, lists for indices in 0.9
    #[arg(long)]
    lenient: bool,
    /// One JSON object a line for each finding
    #[arg(long)]
    json: bool,
}

impl Distarray {
    /// Goes out: the exit code.
    ///
    /// # Errors
    /// When the file cannot be read, or the findings cannot be written.
    pub(super) fn run(&self, stdout: &mut Pipe<'_>) -> Result<u8> {
        let DistarrayVerb::Check(check) = &self.verb;
        check.run(stdout)
    }
}

impl Check {
    fn run(&self, stdout: &mut Pipe<'_>) -> Result<u8> {
        let value = self.read()?;
        let mode = match self.lenient {
            true => Mode::Lenient,
            false => Mode::Strict,
        };
        let (findings, count) = match &value {
            Value::Tuple(sections) | Value::List(sections) => {
                (validate_all(sections, mode), sections.len())
            }
            section => (validate_local(section, mode), 1),
        };
        let text = match self.json {
            true => findings.iter().map(json_line).collect(),
            false => format!("{}{}\n", table(&findings), summary(&findings, count)),
        };
        stdout.print(&text)?;
        let is_valid = num_errors(&findings) == 0;
        Ok(if is_valid { EXIT_DONE } else { EXIT_FAILED })
    }

    fn read(&self) -> Result<Value> {
        let path = self.file.display().to_string();
        let bytes = fs::read(&self.file).map_err(|error| {
            Error::invalid_argument(format!("the file could not be read: {error}"))
                .with_file(&path)
                .with_source(error)
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            Error::invalid_data("the file must be UTF-8")
                .with_file(&path)
                .with_source(error)
        })?;
        from_json(&text).map_err(|error| error.with_file(&path))
    }
}

fn num_errors(findings: &[Finding]) -> usize {
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error);
    errors.count()
}

fn json_line(finding: &Finding) -> String {
    let line = json!({
        "rule": finding.rule.name(),
        "severity": finding.severity.name(),
        "rank": finding.rank,
        "dimension": finding.dimension,
        "key": finding.key,
        "message": finding.message,
    });
    format!("{line}\n")
}

/// `2 errors, 1 warning in 4 sections`.
fn summary(findings: &[Finding], num_sections: usize) -> String {
    let errors = num_errors(findings);
    let sections = counted(num_sections, "section");
    match (errors, findings.len() - errors) {
        (0, 0) => format!("valid: {sections}"),
        (0, warnings) => format!("valid: {sections}, {}", counted(warnings, "warning")),
        (errors, 0) => format!("{} in {sections}", counted(errors, "error")),
        (errors, warnings) => format!(
            "{}, {} in {sections}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    }
}

fn counted(count: usize, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

/// One line for each finding, with an empty line behind; nothing without findings.
fn table(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.set_header(["", "rule", "rank", "dimension", "key", "what is wrong"]);
    let number =
        |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
    for finding in findings {
        table.add_row([
            finding.severity.name().to_owned(),
            finding.rule.name().to_owned(),
            number(finding.rank),
            number(finding.dimension),
            finding.key.unwrap_or_default().to_owned(),
            visible(&finding.message),
        ]);
    }
    format!("{}\n\n", plain(table))
}
