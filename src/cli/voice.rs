//! What a server says of itself on standard error.
//!
//! Comes in: lines for whoever started it, and errors. Goes out: these lines; where the log is JSON, records like those of the log, so that whoever reads standard error finds an object in each line. They are said whatever
//! the filter of the log leaves out. Never here: the log itself.

use std::io::Write;

use serde_json::{Value, json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::say;
use crate::error::Error;

/// What the records are of, in the words of the log.
const TARGET: &str = "partgrid::serve";

/// Speaks on standard error.
pub(super) struct Voice<'a> {
    stderr: &'a mut dyn Write,
    /// Whether each line is an object of JSON.
    pub(super) is_json: bool,
}

impl<'a> Voice<'a> {
    /// One that speaks in plain lines.
    pub(super) fn new(stderr: &'a mut dyn Write) -> Self {
        Self {
            stderr,
            is_json: false,
        }
    }

    /// Says what goes on.
    pub(super) fn inform(&mut self, text: &str) {
        match self.is_json {
            true => self.record(json!({"level": "INFO", "message": text})),
            false => say(self.stderr, &format!("{text}\n")),
        }
    }

    /// Says what somebody should look after.
    pub(super) fn warn(&mut self, text: &str) {
        match self.is_json {
            true => self.record(json!({"level": "WARN", "message": text})),
            false => say(self.stderr, &format!("warning: {text}\n")),
        }
    }

    /// Says what became of something that could not be done, and why.
    pub(super) fn warn_of(&mut self, text: &str, error: &Error) {
        match self.is_json {
            true => {
                self.record(json!({"level": "WARN", "message": text, "error": error.to_string()}))
            }
            false => say(self.stderr, &format!("{text}: {error}\n")),
        }
    }

    /// Says why there is no server, or none any more.
    pub(super) fn fail(&mut self, error: &Error) {
        match self.is_json {
            true => self.record(json!({"level": "ERROR", "message": error.to_string()})),
            false => say(self.stderr, &format!("error: {error}\n")),
        }
    }

    /// A record as the log has them. Where nobody can hear it, there is nobody to tell.
    fn record(&mut self, mut record: Value) {
        if let Some(fields) = record.as_object_mut() {
            let mut now = String::new();
            if SystemTime.format_time(&mut Writer::new(&mut now)).is_ok() {
                fields.insert("timestamp".to_owned(), now.into());
            }
            fields.insert("target".to_owned(), TARGET.into());
        }
        drop(self.stderr.write_all(format!("{record}\n").as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said, in lines.
    fn said(is_json: bool) -> Vec<String> {
        let mut stderr = Vec::new();
        let mut voice = Voice::new(&mut stderr);
        voice.is_json = is_json;
        let error = Error::not_found("gone").with_hint("look\u{7} again");
        voice.inform("serving");
        voice.warn("look after this");
        voice.warn_of("it stays", &error);
        voice.fail(&error);
        let text = String::from_utf8(stderr).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_for_people_are_plain() {
        assert_eq!(
            said(false),
            [
                "serving",
                "warning: look after this",
                "it stays: gone",
                "hint: look\\x07 again",
                "error: gone",
                "hint: look\\x07 again",
            ]
        );
    }

    #[test]
    fn each_line_is_an_object_where_the_log_has_objects() {
        let records = said(true).into_iter().map(|line| {
            let record: Value = serde_json::from_str(&line).unwrap();
            let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
            assert!(text("timestamp").unwrap().ends_with('Z'), "{line}");
            (
                text("level").unwrap(),
                text("message").unwrap(),
                text("error"),
            )
        });
        let records: Vec<_> = records.collect();
        let error = "gone\nhint: look\u{7} again";
        let wanted = [
            ("INFO", "serving", None),
            ("WARN", "look after this", None),
            ("WARN", "it stays", Some(error)),
            ("ERROR", error, None),
        ];
        let wanted = wanted.map(|(level, message, error)| {
            (
                level.to_owned(),
                message.to_owned(),
                error.map(str::to_owned),
            )
        });
        assert_eq!(records, wanted);
    }
}
