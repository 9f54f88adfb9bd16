//! Flight sessions: options that a client sets for its queries.
//!
//! Comes in: options by name, the cookie of a client. Goes out: what holds for its queries. A session is the client's as long as it sends the cookie, belongs to one caller, and is gone when it rests.
//! Never here: what the options do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::error::Result;
use crate::flight::Compression;
use crate::flight::options::{OptionError, OptionValue, SessionOptionError, SessionOptionValue};
use crate::memory::parse_size;
use crate::query::{CATALOG, SCHEMA};
use crate::serve::door::auth::Caller;
use crate::serve::door::call::{Call, Endpoints, hex, random_name};

/// The name of the cookie, as Flight has it.
const COOKIE: &str = "arrow_flight_session_id";

const RESTS_FOR: Duration = Duration::from_secs(1800);
const MOST: u64 = 10_000;

/// What a client chose.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Chosen {
    pub(super) timeout: Option<Duration>,
    pub(super) memory_limit_bytes: Option<usize>,
    pub(super) compression: Compression,
    pub(super) endpoints: Endpoints,
    /// As it was said, for those who ask.
    said: BTreeMap<String, OptionValue>,
}

/// The sessions of all clients.
pub(super) struct ClientSessions(Cache<Arc<str>, (Arc<str>, Arc<Chosen>)>);

impl ClientSessions {
    pub(super) fn new() -> Self {
        let known = Cache::builder().max_capacity(MOST).time_to_idle(RESTS_FOR);
        Self(known.eviction_policy(EvictionPolicy::lru()).build())
    }

    /// The session that a cookie names.
    pub(super) fn named(&self, cookies: Option<&str>) -> Option<Arc<str>> {
        let each = cookies?
            .split(';')
            .filter_map(|pair| pair.trim().split_once('='));
        let mut ours = each.filter(|(name, _)| *name == COOKIE);
        let (_, id) = ours.next()?;
        self.0.contains_key(id).then(|| Arc::from(id))
    }

    /// What holds for a call.
    pub(super) fn options(&self, call: &Call) -> Arc<Chosen> {
        let known = call.session.as_ref().and_then(|id| self.0.get(id));
        let own = known.filter(|(owner, _)| owner == call.caller.name());
        own.map(|(_, chosen)| chosen).unwrap_or_default()
    }

    /// Sets options; makes a session if there is none. Gives the cookie to send, and what was wrong with which option.
    ///
    /// # Errors
    /// As [`random_name`].
    pub(super) fn set(
        &self,
        call: &Call,
        wanted: HashMap<String, SessionOptionValue>,
    ) -> Result<(String, HashMap<String, SessionOptionError>)> {
        let mut chosen = Chosen::clone(&self.options(call));
        let mut errors = HashMap::new();
        for (name, value) in wanted {
            if let Err(error) = chosen.set(&name, value.value) {
                let value = error as i32;
                errors.insert(name, SessionOptionError { value });
            }
        }
        let owned = |id: &Arc<str>| {
            let known = self.0.get(id);
            known.is_some_and(|(owner, _)| owner == *call.caller.name())
        };
        let id = match call.session.clone().filter(owned) {
            Some(id) => id,
            None => Arc::from(hex(&random_name()?)),
        };
        let owner = Arc::clone(call.caller.name());
        self.0.insert(Arc::clone(&id), (owner, Arc::new(chosen)));
        Ok((format!("{COOKIE}={id}"), errors))
    }

    /// The options of a call, as they were said; catalog and schema are always those that there are.
    pub(super) fn said(&self, call: &Call) -> HashMap<String, SessionOptionValue> {
        let chosen = self.options(call);
        let always = [("catalog", CATALOG), ("schema", SCHEMA)];
        let always =
            always.map(|(name, value)| (name.to_owned(), OptionValue::Text(value.to_owned())));
        let said = chosen.said.clone().into_iter();
        said.chain(always)
            .map(|(name, value)| (name, SessionOptionValue { value: Some(value) }))
            .collect()
    }

    /// Ends the session of a call.
    pub(super) fn close(&self, call: &Call) {
        if let Some(id) = &call.session
            && self.is_of(id, &call.caller)
        {
            self.0.invalidate(id);
        }
    }

    fn is_of(&self, id: &Arc<str>, caller: &Caller) -> bool {
        self.0
            .get(id)
            .is_some_and(|(owner, _)| owner == *caller.name())
    }
}

impl Chosen {
    /// Sets one option; without a value it is as if it had never been set.
    fn set(&mut self, name: &str, value: Option<OptionValue>) -> Result<(), OptionError> {
        let known = [
            "catalog",
            "schema",
            "timeout",
            "memory_limit",
            "compression",
            "endpoints",
        ];
        if !known.contains(&name) {
            return Err(OptionError::InvalidName);
        }
        let is_empty = matches!(&value, Some(OptionValue::Text(text)) if text.is_empty());
        let Some(value) = value.filter(|_| !is_empty) else {
            self.unset(name);
            return Ok(());
        };
        match (name, &value) {
            ("catalog", OptionValue::Text(text)) if text == CATALOG => {}
            ("schema", OptionValue::Text(text)) if text == SCHEMA => {}
            ("timeout", value) => self.timeout = Some(seconds(value)?),
            ("memory_limit", value) => self.memory_limit_bytes = Some(bytes(value)?),
            ("compression", OptionValue::Text(text)) => {
                let named = Compression::named(text);
                self.compression = named.map_err(|_| OptionError::InvalidValue)?;
            }
            ("endpoints", OptionValue::Text(text)) => {
                self.endpoints = Endpoints::named(text).ok_or(OptionError::InvalidValue)?;
            }
            _ => return Err(OptionError::InvalidValue),
        }
        self.said.insert(name.to_owned(), value);
        Ok(())
    }

    fn unset(&mut self, name: &str) {
        match name {
            "timeout" => self.timeout = None,
            "memory_limit" => self.memory_limit_bytes = None,
            "compression" => self.compression = Compression::None,
            "endpoints" => self.endpoints = Endpoints::One,
            _ => {}
        }
        self.said.remove(name);
    }
}

fn seconds(value: &OptionValue) -> Result<Duration, OptionError> {
    let seconds = match value {
        OptionValue::Number(number) => Some(*number),
        OptionValue::Whole(number) => u32::try_from(*number).ok().map(f64::from),
        OptionValue::Text(text) => text.parse().ok(),
        _ => None,
    };
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = duration.filter(|duration| !duration.is_zero());
    duration.ok_or(OptionError::InvalidValue)
}

fn bytes(value: &OptionValue) -> Result<usize, OptionError> {
    let bytes = match value {
        OptionValue::Whole(number) => usize::try_from(*number).ok(),
        OptionValue::Text(text) => parse_size(text).ok(),
        _ => None,
    };
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or(OptionError::InvalidValue)
}
