//! What each caller may use, and uses at this moment.
//!
//! Comes in: limits of tokens, and those for tokens that say none. Goes out: for a caller what all its queries and uploads share, the same for all its connections, and also after the tokens were read again.
//! Never here: who calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toml::Value;

use crate::error::{Error, Result};
use crate::memory::parse_size;
use crate::query::Allowance;
use crate::serve::door::auth::Caller;

/// What one caller may use; what is not said is bounded by the limits of the server alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerLimits {
    /// How many queries it has at once, those that wait and those that are read slowly included.
    pub queries: Option<usize>,
    /// The bytes that its queries use together, with rows that it is sending.
    pub memory_bytes: Option<usize>,
    /// The most bytes of one answer, as they lie in memory.
    pub answer_bytes: Option<u64>,
}

/// The size that a value of TOML says.
fn size(key: &str, value: Option<&Value>) -> std::result::Result<Option<usize>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    let bytes = match value {
        Value::String(text) => parse_size(text).ok(),
        other => other.as_integer().and_then(|bytes| bytes.try_into().ok()),
    };
    let wrong = || format!("has as {key} a size such as \"512MB\", from 1, got {value}");
    bytes.filter(|bytes| *bytes > 0).map(Some).ok_or_else(wrong)
}

impl CallerLimits {
    /// Those of an entry of the file of tokens, or what is wrong with them.
    pub(super) fn read(
        queries: Option<&Value>,
        memory: Option<&Value>,
        answer: Option<&Value>,
    ) -> std::result::Result<Self, String> {
        let queries = queries.map(|value| {
            let number = value.as_integer().filter(|number| *number > 0);
            let number = number.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("has as queries a whole number from 1, got {value}"))
        });
        Ok(Self {
            queries: queries.transpose()?,
            memory_bytes: size("memory", memory)?,
            answer_bytes: size("answer", answer)?.map(|bytes| bytes as u64),
        })
    }

    /// As lines of the entry of a token.
    #[must_use]
    pub fn lines(&self) -> String {
        let all = [
            ("queries", self.queries.map(|number| number as u64)),
            ("memory", self.memory_bytes.map(|bytes| bytes as u64)),
            ("answer", self.answer_bytes),
        ];
        let mut lines = String::new();
        for (key, value) in all {
            if let Some(value) = value {
                lines.push_str(&format!("{key} = {value}\n"));
            }
        }
        lines
    }

    /// These, with others where they say nothing.
    fn or(self, other: Self) -> Self {
        Self {
            queries: self.queries.or(other.queries),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            answer_bytes: self.answer_bytes.or(other.answer_bytes),
        }
    }

    /// # Errors
    /// `InvalidArgument` for a limit of 0.
    pub(super) fn check(&self) -> Result<()> {
        let all = [
            ("queries", self.queries == Some(0)),
            ("memory_bytes", self.memory_bytes == Some(0)),
            ("answer_bytes", self.answer_bytes == Some(0)),
        ];
        match all.iter().find(|(_, is_none)| *is_none) {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_argument(format!(
                "{name} of a caller must be at least 1, got 0"
            ))),
        }
    }
}

/// What a caller may use and uses.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) limits: CallerLimits,
    /// What its queries share.
    pub(super) allowance: Allowance,
}

impl Account {
    fn new(name: &Arc<str>, limits: CallerLimits) -> Self {
        let mut allowance = Allowance::new(Arc::clone(name));
        if let Some(queries) = limits.queries {
            allowance = allowance.with_queries(queries);
        }
        if let Some(bytes) = limits.memory_bytes {
            allowance = allowance.with_memory_bytes(bytes);
        }
        Self { limits, allowance }
    }
}

/// Those of all callers, by name.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// For tokens that do not say it themselves.
    usual: CallerLimits,
    known: Mutex<HashMap<Arc<str>, Account>>,
}

impl Accounts {
    pub(super) fn new(usual: CallerLimits) -> Self {
        Self {
            usual,
            known: Mutex::default(),
        }
    }

    /// That of a caller.
    pub(super) fn of(&self, caller: &Caller) -> Account {
        let limits = caller.limits().or(self.usual);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(caller.name());
        if let Some(account) = before.filter(|account| account.limits == limits) {
            return account.clone();
        }
        let mut account = Account::new(caller.name(), limits);
        if let Some(before) = before {
            // What runs since before counts on; its memory is counted with the limit of then.
            account.allowance = account.allowance.following(&before.allowance);
        }
        known.insert(Arc::clone(caller.name()), account.clone());
        account
    }
}
