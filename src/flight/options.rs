//! The messages of Flight about a session and its options.
//!
//! Comes in: names and values of options. Goes out: the bodies of actions and of their results. Never here: which options there are, our own messages (`messages.rs`).

use std::collections::HashMap;

use prost::Message;

/// The value of an option of a Flight session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub(crate) value: Option<OptionValue>,
}

/// What a value can be.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(sfixed64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Number(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

/// Several texts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub(crate) values: Vec<String>,
}

/// `SetSessionOptions` of Flight.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetSessionOptionsRequest {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) session_options: HashMap<String, SessionOptionValue>,
}

/// Why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum OptionError {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

/// The error of one option.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionOptionError {
    #[prost(enumeration = "OptionError", tag = "1")]
    pub(crate) value: i32,
}

/// The answer to it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) errors: HashMap<String, SessionOptionError>,
}

/// The answer to `GetSessionOptions` of Flight.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) session_options: HashMap<String, SessionOptionValue>,
}

/// The answer to `CloseSession` of Flight; 1 says that it is closed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseSessionResult {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}
