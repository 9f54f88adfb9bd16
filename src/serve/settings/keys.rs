//! Which settings there are, and what their values are.
//!
//! Comes in: a value as it was written. Goes out: the value as its key keeps it, or nothing. Never here: where it was written.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;

use crate::memory::parse_size;

/// What values of a key are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A flag: true or false.
    Flag,
    /// A whole number from 1.
    Count,
    /// A whole number from 0.
    CountOrNone,
    /// Seconds, also fractions.
    Seconds,
    /// A size such as 512MB.
    Size,
    /// The same, or 0.
    #[cfg(feature = "distributed")]
    SizeOrNone,
    /// Where the addresses of members are written.
    #[cfg(feature = "distributed")]
    Members,
    /// `ip:port`, or `localhost:port`.
    Address,
    /// The same, or `off`.
    AddressOrOff,
    /// How a log is written.
    LogFormat,
    /// The URL of a collector.
    Collector,
}

/// Every key: its name, what its values are, what it is for.
pub(super) const KEYS: &[(&str, Kind, &str)] = &[
    (
        "server.address",
        Kind::Address,
        "where Flight SQL listens; port 0 takes a free one",
    ),
    (
        "server.http",
        Kind::AddressOrOff,
        "where the status page and the metrics are, or off",
    ),
    (
        "server.advertised",
        Kind::Text,
        "the URI that clients are told, if it is another",
    ),
    (
        "server.insecure",
        Kind::Flag,
        "allows addresses other than loopback without TLS and tokens",
    ),
    (
        "server.catalog",
        Kind::Text,
        "folder or URL where grids of clients are kept",
    ),
    (
        "server.skip_damaged",
        Kind::Flag,
        "leaves tables of the catalog out that are damaged, in place of not starting",
    ),
    (
        "server.threads",
        Kind::Count,
        "on how many threads queries run",
    ),
    (
        "server.spill_to",
        Kind::Text,
        "the folder of temporary files",
    ),
    (
        "server.stop_within",
        Kind::Seconds,
        "how long what runs may finish when the server stops, in seconds",
    ),
    (
        "load.from",
        Kind::Text,
        "folders and URLs that clients may have loaded from, with commas",
    ),
    (
        "tls.certificate",
        Kind::Text,
        "file of the certificate, in PEM",
    ),
    ("tls.key", Kind::Text, "file of its private key, in PEM"),
    (
        "tls.client_ca",
        Kind::Text,
        "file of those who vouch for clients (mutual TLS)",
    ),
    (
        "auth.tokens",
        Kind::Text,
        "file of the tokens, see `partgrid token`",
    ),
    (
        "auth.queries",
        Kind::Count,
        "how many queries one token has at once, where its entry does not say; any number without it",
    ),
    (
        "auth.memory",
        Kind::Size,
        "what all queries of one token use together, where its entry does not say",
    ),
    (
        "auth.answer",
        Kind::Size,
        "the largest answer for one token, where its entry does not say",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.join",
        Kind::Members,
        "makes the server a member of a cluster: HOST:PORT of all members with commas, file:PATH, dns:NAME:PORT, or alone",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.part",
        Kind::Text,
        "which part of the grids of all members this server loads at its start, such as 0/3; without it they are its own",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.token",
        Kind::Text,
        "file of the token that members show each other",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.ca",
        Kind::Text,
        "file of those who vouch for members, in PEM; without it those that the system trusts",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.shared",
        Kind::Text,
        "folders and URLs, with commas, whose files all members read alike: each reads the tiles that placement gives it",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.replicas",
        Kind::Count,
        "how many members have each part that cluster.part contributes, and each tile that cluster.eager reads (1)",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.eager",
        Kind::Flag,
        "whether members read their tiles of a catalog that they share, and of lazy grids and parts of files below cluster.shared, at once, and not on first use",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.fetch",
        Kind::Flag,
        "whether a member may fetch tiles of others where a plan wants them",
    ),
    #[cfg(feature = "distributed")]
    (
        "cluster.near",
        Kind::SizeOrNone,
        "what a statement may read of members on one host to be run by the member that was asked alone, over their memory; 0 spreads all",
    ),
    (
        "limits.message",
        Kind::Size,
        "the largest message of rows that comes in",
    ),
    (
        "limits.query_time",
        Kind::Seconds,
        "how long a query may take, in seconds, waiting included",
    ),
    (
        "limits.query_memory",
        Kind::Size,
        "what one query may use of memory",
    ),
    (
        "limits.memory",
        Kind::Size,
        "what all queries together may use, and what clients are sending",
    ),
    (
        "limits.spill",
        Kind::Size,
        "what the files that queries spill to may have together",
    ),
    (
        "limits.grids",
        Kind::Size,
        "what grids may have in memory when a client makes one",
    ),
    (
        "limits.queries",
        Kind::Count,
        "how many queries run at once",
    ),
    (
        "limits.waiting",
        Kind::CountOrNone,
        "how many wait for their turn",
    ),
    ("limits.answer", Kind::Size, "the largest answer"),
    (
        "limits.answer_rows",
        Kind::Count,
        "the most rows of an answer; any number without it",
    ),
    ("limits.upload", Kind::Size, "the largest upload"),
    (
        "limits.connections",
        Kind::Count,
        "how many connections there may be",
    ),
    (
        "limits.silence",
        Kind::Seconds,
        "how long a client may say nothing, not even that it is there when it is asked, and how long a request may take to come in",
    ),
    (
        "log.filter",
        Kind::Text,
        "what is logged on standard error, such as warn, info, off or partgrid::serve=debug; PARTGRID_LOG holds where it is not said",
    ),
    (
        "log.format",
        Kind::LogFormat,
        "how: text, or json for one object in a line",
    ),
    (
        "log.traces",
        Kind::Collector,
        "where traces go: a collector of OpenTelemetry (OTLP over gRPC), by TLS with https://",
    ),
];

impl Kind {
    pub(super) fn wants(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::Count => "a whole number from 1",
            Self::CountOrNone => "a whole number from 0",
            Self::Seconds => "a number of seconds, more than 0",
            Self::Size => "a size of at least one byte, such as 512MB or 4GiB",
            #[cfg(feature = "distributed")]
            Self::SizeOrNone => "a size such as 32MiB, or 0",
            #[cfg(feature = "distributed")]
            Self::Members => {
                "HOST:PORT of all members with commas, file:PATH, dns:NAME:PORT or alone (`--join`), such as db1:8815,db2:8815"
            }
            Self::Address => "an IP address or localhost, and a port, such as 127.0.0.1:8815",
            Self::AddressOrOff => {
                "an IP address or localhost, and a port, such as 127.0.0.1:8816, or off"
            }
            Self::LogFormat => "text or json",
            Self::Collector => {
                "a URL such as http://127.0.0.1:4317, or https://collector:4317 for TLS"
            }
        }
    }

    /// The value as the key keeps it: counts and sizes as whole numbers, seconds as a number.
    pub(super) fn read(self, value: &Value) -> Option<Value> {
        let text = value.as_str();
        let whole = value.as_integer().or_else(|| text?.trim().parse().ok());
        match self {
            Self::Text => text.filter(|text| !text.is_empty()).map(Value::from),
            Self::Flag => value
                .as_bool()
                .or_else(|| text?.trim().parse().ok())
                .map(Value::Boolean),
            Self::Count => whole.filter(|number| *number >= 1).map(Value::Integer),
            Self::CountOrNone => whole.filter(|number| *number >= 0).map(Value::Integer),
            Self::Seconds => {
                let given = value.as_float().or_else(|| text?.trim().parse().ok());
                let seconds = given.or_else(|| whole.map(|number| number as f64));
                let positive =
                    |seconds: &f64| *seconds > 0.0 && Duration::try_from_secs_f64(*seconds).is_ok();
                seconds.filter(positive).map(Value::Float)
            }
            Self::Size => {
                let size = match text {
                    Some(text) => parse_size(text).ok()?,
                    None => usize::try_from(whole?).ok().filter(|bytes| *bytes > 0)?,
                };
                Some(Value::Integer(i64::try_from(size).ok()?))
            }
            #[cfg(feature = "distributed")]
            Self::SizeOrNone => match whole {
                Some(0) => Some(Value::Integer(0)),
                _ => Self::Size.read(value),
            },
            #[cfg(feature = "distributed")]
            Self::Members => text.filter(|text| !text.trim().is_empty()).map(Value::from),
            Self::Address => {
                let text = text?.trim();
                let here = text.strip_prefix("localhost:");
                let text = here.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
                let address: SocketAddr = text.parse().ok()?;
                Some(Value::from(address.to_string()))
            }
            Self::AddressOrOff if text?.trim() == "off" => Some(Value::from("off")),
            Self::AddressOrOff => Self::Address.read(value),
            Self::LogFormat => text
                .filter(|text| ["text", "json"].contains(text))
                .map(Value::from),
            Self::Collector => {
                let url = url::Url::parse(text?).ok()?;
                ["http", "https"]
                    .contains(&url.scheme())
                    .then(|| Value::from(url.as_str()))
            }
        }
    }
}
