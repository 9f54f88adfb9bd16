//! Limits that queries reach, and who can raise them.
//!
//! Comes in: a limit, and what it is called where somebody else than the caller sets it. Goes out: what is said once it is reached, with the remedy of whoever set it. Never here: keeping to limits
//! (`running/run.rs`, `planner.rs`, `running/bounds.rs`).

use std::time::Duration;

use datafusion::error::DataFusionError;

use crate::error::{Error, ErrorKind};
use crate::query::running::bounds::size;

/// How the text of an error of a pool begins.
const EXHAUSTED: &str = "the memory limit of the ";

/// With what such a text names the setting of a server.
const BY_SETTING: &str = " by the setting ";

/// What one caller has is called so in such a text.
const CALLER: &str = "caller";

/// What helps whoever set the limit.
const ASK_FOR_LESS: &str = "ask for fewer rows or columns";

/// What the limits of a session are called where others than its callers set them: the settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitNames {
    /// How long a query may take.
    pub timeout: &'static str,
    /// What one query may use of memory.
    pub query_memory: &'static str,
    /// What all queries together may use.
    pub memory: &'static str,
}

/// How long a query may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct TimeLimit {
    pub(in crate::query) time: Duration,
    /// The setting of a server that says it; `None` where the caller does.
    pub(in crate::query) setting: Option<&'static str>,
}

impl TimeLimit {
    /// A run took longer.
    pub(in crate::query) fn run_over(&self) -> Error {
        let seconds = self.time.as_secs_f64();
        match self.setting {
            None => over(format!(
                "the query took longer than its timeout of {seconds} seconds"
            ))
            .with_hint("raise timeout"),
            Some(setting) => over(format!(
                "the query took longer than the server's timeout of {seconds} seconds"
            ))
            .with_context("setting", setting)
            .with_hint(ask_to_raise(setting)),
        }
    }

    /// Planning took longer.
    pub(in crate::query) fn planning_over(&self) -> Error {
        let seconds = self.time.as_secs_f64();
        match self.setting {
            None => over(format!(
                "planning took longer than the timeout of {seconds} seconds"
            ))
            .with_hint("raise timeout, or simplify the text"),
            Some(setting) => over(format!(
                "planning took longer than the server's timeout of {seconds} seconds"
            ))
            .with_context("setting", setting)
            .with_hint(format!("simplify the text, or {}", ask_to_raise(setting))),
        }
    }
}

fn over(text: String) -> Error {
    Error::new(ErrorKind::ResourcesExhausted, text)
}

fn ask_to_raise(setting: &str) -> String {
    format!("ask the administrator to raise {setting}")
}

/// What something may use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct MemoryBound {
    pub(in crate::query) bytes: usize,
    pub(in crate::query) of: Whose,
}

/// Whose limit of memory it is, with the setting of a server that says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Whose {
    /// That of all queries.
    Session(Option<&'static str>),
    /// That of one query.
    Query(Option<&'static str>),
    /// That of the queries of one caller of a server.
    Caller,
}

impl MemoryBound {
    /// There is no room for more. Operators spill only at this very error.
    pub(in crate::query) fn exhausted(&self, operator: &str, additional: usize) -> DataFusionError {
        let (of, setting) = match self.of {
            Whose::Session(None) => ("session", None),
            Whose::Session(setting) => ("server", setting),
            Whose::Query(setting) => ("query", setting),
            Whose::Caller => (CALLER, None),
        };
        let said = setting.map_or_else(String::new, |setting| format!("{BY_SETTING}{setting}"));
        let (limit, additional) = (size(self.bytes), size(additional));
        DataFusionError::ResourcesExhausted(format!(
            "{EXHAUSTED}{of}, {limit}{said}, has no room for {additional} more ({operator})"
        ))
    }
}

/// The remedy for a text of [`MemoryBound::exhausted`], which comes back from operators as a text alone; `None` for another one.
pub(super) fn remedy(text: &str) -> Option<String> {
    let of = text.strip_prefix(EXHAUSTED)?;
    let by = of.split_once(BY_SETTING);
    let setting = by.and_then(|(_, rest)| Some(rest.split_once(',')?.0));
    Some(match setting {
        Some(setting) => format!("{ASK_FOR_LESS}, or {}", ask_to_raise(setting)),
        None if of.starts_with(CALLER) => format!(
            "{ASK_FOR_LESS}, try again when what runs has ended, or ask the administrator for more"
        ),
        None => format!("raise memory_limit, or {ASK_FOR_LESS}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Option<&str> = Some("limits.some");

    #[test]
    fn a_time_that_is_over_names_what_raises_it() {
        let time = Duration::from_millis(300);
        let own = TimeLimit {
            time,
            setting: None,
        };
        assert_eq!(own.run_over().hint(), Some("raise timeout"));
        let set = TimeLimit {
            time,
            setting: SETTING,
        };
        assert_eq!(
            set.run_over().to_string(),
            "the query took longer than the server's timeout of 0.3 seconds (setting: limits.some)\nhint: ask the administrator to raise limits.some"
        );
        for (limit, hint) in [
            (own, "raise timeout, or simplify the text"),
            (
                set,
                "simplify the text, or ask the administrator to raise limits.some",
            ),
        ] {
            let error = limit.planning_over();
            assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
            assert_eq!(error.hint(), Some(hint));
        }
    }

    #[test]
    fn memory_that_is_used_up_names_what_raises_it() {
        let raise = "raise memory_limit, or ask for fewer rows or columns";
        let ask = "ask for fewer rows or columns, or ask the administrator to raise limits.some";
        let by = ", 2.0 kB by the setting limits.some, has no room for 1 byte more (sort)";
        let own = ", 2.0 kB, has no room for 1 byte more (sort)";
        let wait = "ask for fewer rows or columns, try again when what runs has ended, or ask the administrator for more";
        for (of, begins, ends, hint) in [
            (Whose::Session(None), "session", own, raise),
            (Whose::Query(None), "query", own, raise),
            (Whose::Session(SETTING), "server", by, ask),
            (Whose::Query(SETTING), "query", by, ask),
            (Whose::Caller, "caller", own, wait),
        ] {
            let error = MemoryBound { bytes: 2000, of }.exhausted("sort", 1);
            let DataFusionError::ResourcesExhausted(text) = error else {
                panic!("operators would not spill");
            };
            assert_eq!(text, format!("the memory limit of the {begins}{ends}"));
            assert_eq!(remedy(&text).as_deref(), Some(hint));
        }
        assert_eq!(remedy("divide by zero"), None);
    }
}
