//! What the queries of a client may use.
//!
//! Comes in: bounds. Goes out: the headers that say them with each call, once the server has said that it takes them. Never here: queries.

use arrow_flight::Action;
use prost::Message;
use tonic::metadata::MetadataMap;

use super::connection::Client;
use super::options::QueryBounds;
use super::upload::first;
use crate::error::{Error, Result};
use crate::flight::options::{
    OptionValue, SessionOptionValue, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use crate::flight::{MEMORY_LIMIT, TIMEOUT};

impl QueryBounds {
    /// Puts them on a call.
    pub(super) fn put_on(&self, headers: &mut MetadataMap) {
        let timeout = self
            .timeout
            .map(|timeout| timeout.as_secs_f64().to_string());
        let bytes = self.memory_limit_bytes.map(|bytes| bytes.to_string());
        for (name, value) in [(TIMEOUT, timeout), (MEMORY_LIMIT, bytes)] {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                headers.insert(name, value);
            }
        }
    }

    fn said(&self) -> SetSessionOptionsRequest {
        let timeout = self
            .timeout
            .map(|timeout| OptionValue::Number(timeout.as_secs_f64()));
        let bytes = self.memory_limit_bytes.map(|bytes| {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            OptionValue::Whole(bytes)
        });
        let said = [("timeout", timeout), ("memory_limit", bytes)];
        let each = said.into_iter().filter_map(|(name, value)| {
            let value = Some(value?);
            Some((name.to_owned(), SessionOptionValue { value }))
        });
        SetSessionOptionsRequest {
            session_options: each.collect(),
        }
    }
}

/// Asks the server whether it takes the bounds, as options of a session.
///
/// # Errors
/// `InvalidArgument` for those that it does not take; whatever else it says.
pub(super) async fn check(client: &Client, bounds: &QueryBounds) -> Result<()> {
    if *bounds == QueryBounds::default() {
        return Ok(());
    }
    let action = Action::new("SetSessionOptions", bounds.said().encode_to_vec());
    let answer: SetSessionOptionsResult = first(&client.act_as(action).await?)?;
    match answer.errors.keys().min() {
        None => Ok(()),
        Some(name) => {
            let text = format!("the server does not take this {name} for queries");
            Err(Error::invalid_argument(text))
        }
    }
}
