//! Who calls, and what they may do.
//!
//! Comes in: the tokens that the administrator lists, and what a request brings. Goes out: a [`Caller`], or nothing. Tokens have 256 random bits; only their SHA-256 is kept, and each comparison
//! takes the same time whatever it finds. Never here: what a method needs, where the header comes from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use glob::Pattern;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::call::hex;
use crate::error::{Error, ErrorKind, Result};
use crate::serve::accounts::CallerLimits;

/// With what the text of a token begins, so that scanners of secrets find one that was left lying about.
const PREFIX: &str = "pgt_";

/// How many bytes of a token nobody can guess, which stand in it as base64.
const RANDOM_BYTES: usize = 32;

/// The longest text that is looked at as a token.
const MAX_TOKEN_BYTES: usize = 512;

/// Whether a text looks like a token that [`new_token`] made.
#[cfg(feature = "distributed")]
pub(in crate::serve) fn is_token(text: &str) -> bool {
    let letters = text.strip_prefix(PREFIX);
    letters.is_some_and(|letters| letters.len() == (RANDOM_BYTES * 4).div_ceil(3))
}

/// How an entry of a file of tokens begins, for those whose file has none.
const ENTRY: &str = "an entry begins with the lines\n[[token]]\nname = \"analyst\"\nand `partgrid token NAME --add-to FILE` writes it as a whole";

/// What a caller may do; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at grids and query them.
    Read,
    /// Also make, replace and drop grids.
    Write,
    /// Also load files that the server can reach, see and cancel what others do, read what errors say in full.
    Admin,
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        })
    }
}

/// Somebody who may call. Equal are those who may do the same under the same name, whatever they may use.
#[derive(Debug, Clone)]
pub struct Caller {
    name: Arc<str>,
    scope: Scope,
    /// The grids that they may see; `None` for all.
    grids: Option<Arc<[Pattern]>>,
    limits: CallerLimits,
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.scope == other.scope && self.grids == other.grids
    }
}

impl Eq for Caller {}

impl Caller {
    /// Whoever calls a server that asks for no token.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: Arc::from("anonymous"),
            scope: Scope::Admin,
            grids: None,
            limits: CallerLimits::default(),
        }
    }

    /// What they may use, as far as their token says.
    #[must_use]
    pub fn limits(&self) -> CallerLimits {
        self.limits
    }

    /// The name under which the administrator knows them.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What they may do.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The patterns of the names that they may see; `None` for all.
    pub(in crate::serve) fn patterns(&self) -> Option<Arc<[Pattern]>> {
        self.grids.clone()
    }

    /// Whether they may see grids of this name.
    #[must_use]
    pub fn may_see(&self, grid: &str) -> bool {
        let Some(patterns) = &self.grids else {
            return true;
        };
        patterns.iter().any(|pattern| pattern.matches(grid))
    }

    /// Nothing when they have the scope.
    ///
    /// # Errors
    /// `PermissionDenied` when they have less.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.scope >= scope {
            return Ok(());
        }
        let text = format!(
            "this needs a token with the scope `{scope}`, the token `{}` has `{}`",
            self.name, self.scope
        );
        let hint = format!(
            "ask the administrator for such a token: `partgrid token NAME --scope {scope}` makes one"
        );
        Err(Error::new(ErrorKind::PermissionDenied, text).with_hint(hint))
    }
}

/// One token, as its administrator keeps it.
#[derive(Debug, Clone)]
struct Token {
    hash: [u8; 32],
    expires: Option<SystemTime>,
    caller: Caller,
}

/// The tokens that open a server.
#[derive(Clone, Default)]
pub struct Tokens(Arc<[Token]>);

/// Says how many there are, and nothing of them.
impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tokens({})", self.0.len())
    }
}

/// What a request's token turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presented {
    /// Somebody's, and good.
    Good(Caller),
    /// Somebody's, and no longer good.
    Expired,
    /// Nobody's.
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    /// Read later, so that an error can say whose it is, and what came.
    scope: toml::Value,
    grids: Option<Vec<String>>,
    expires: Option<String>,
    queries: Option<toml::Value>,
    memory: Option<toml::Value>,
    answer: Option<toml::Value>,
}

impl Tokens {
    /// The tokens of a file: TOML with `[[token]]` tables of `name`, `sha256` (of the token, in hexadecimal), `scope` (`read`, `write`, `admin`), and, if wanted, `grids` (patterns of names),
    /// `expires` (RFC 3339, in quotes), and what the bearer may use: `queries` at once, `memory` of all of them, `answer` (bytes of one).
    ///
    /// # Errors
    /// `NotFound` or `Storage` when it cannot be read, `InvalidData` when it is not of this form; the text names no hash.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                _ => ErrorKind::Storage { retryable: false },
            };
            let text = format!("the file of tokens cannot be read: {error}");
            let error = Error::new(kind, text).with_file(&name);
            match kind {
                ErrorKind::NotFound => {
                    let hint = format!("`partgrid token NAME --add-to {name}` makes it");
                    error.with_hint(hint).with_start_of(&name)
                }
                _ => error,
            }
        })?;
        Self::parse(&text).map_err(|error| error.with_file(&name))
    }

    /// As [`Tokens::read`], of a text.
    ///
    /// # Errors
    /// `InvalidData` when it is not of the form.
    pub fn parse(text: &str) -> Result<Self> {
        let file: TokenFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let at = line.map_or_else(String::new, |line| format!(" in line {line}"));
            // The message may quote the text, and with it a hash.
            Error::invalid_data(format!("the tokens are not of the form that is wanted{at}: the file is TOML, in which a [[token]] has name, sha256, scope (read, write or admin), grids, expires, queries, memory and answer")).with_hint(ENTRY)
        })?;
        let mut tokens: Vec<Token> = Vec::with_capacity(file.token.len());
        for entry in file.token {
            let token = entry.token()?;
            let name = &token.caller.name;
            if tokens.iter().any(|known| known.caller.name == *name) {
                let text = format!("two tokens have the name `{name}`");
                return Err(Error::invalid_data(text));
            }
            tokens.push(token);
        }
        Ok(Self(tokens.into()))
    }

    /// Whether one has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|token| &*token.caller.name == name)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whose token this is at this time. All are compared, each in the same time.
    #[must_use]
    pub fn look_up(&self, presented: &str, now: SystemTime) -> Presented {
        if presented.len() > MAX_TOKEN_BYTES {
            return Presented::Unknown;
        }
        let hash = Sha256::digest(presented.as_bytes());
        let mut found = u64::MAX;
        for (number, token) in self.0.iter().enumerate() {
            let same: Choice = token.hash.as_slice().ct_eq(hash.as_slice());
            found = u64::conditional_select(&found, &(number as u64), same);
        }
        let token = usize::try_from(found).ok().and_then(|at| self.0.get(at));
        match token {
            None => Presented::Unknown,
            Some(token) if token.expires.is_some_and(|expires| expires <= now) => {
                Presented::Expired
            }
            Some(token) => Presented::Good(token.caller.clone()),
        }
    }
}

impl Entry {
    fn token(self) -> Result<Token> {
        let wrong = |text: String| Error::invalid_data(format!("the token `{}` {text}", self.name));
        if self.name.is_empty() || self.name.len() > 100 {
            return Err(Error::invalid_data(
                "the name of a token must have 1 to 100 bytes",
            ));
        }
        let hash = hash_of(&self.sha256).ok_or_else(|| {
            wrong("must have a sha256 of 64 hexadecimal digits, got something else".to_owned())
        })?;
        let scope: Scope = self.scope.clone().try_into().map_err(|_| {
            let got = &self.scope;
            wrong(format!(
                "must have the scope read, write or admin, got {got}"
            ))
        })?;
        let expires = match &self.expires {
            None => None,
            Some(text) => {
                let parsed = humantime::parse_rfc3339_weak(text);
                Some(parsed.map_err(|_| {
                    wrong(format!(
                        "expires at a time like \"2027-01-31T00:00:00Z\", got {text:?}"
                    ))
                })?)
            }
        };
        let grids = match &self.grids {
            None => None,
            Some(patterns) => {
                let parsed: Result<Vec<Pattern>> = patterns
                    .iter()
                    .map(|text| {
                        Pattern::new(text).map_err(|error| {
                            wrong(format!("has a pattern {text:?} that is none: {error}"))
                        })
                    })
                    .collect();
                Some(Arc::from(parsed?))
            }
        };
        let limits = CallerLimits::read(
            self.queries.as_ref(),
            self.memory.as_ref(),
            self.answer.as_ref(),
        );
        let limits = limits.map_err(wrong)?;
        let caller = Caller {
            name: Arc::from(self.name.as_str()),
            scope,
            grids,
            limits,
        };
        Ok(Token {
            hash,
            expires,
            caller,
        })
    }
}

/// A new token, and its entry for the file: the token itself is shown once and kept nowhere.
///
/// # Errors
/// `Internal` when the operating system gives no random bytes; `InvalidArgument` for a name of no or more than 100 bytes.
pub fn new_token(
    name: &str,
    scope: Scope,
    grids: &[String],
    valid_for: Option<Duration>,
) -> Result<(String, String)> {
    if name.is_empty() || name.len() > 100 {
        let text = format!("the name of a token must have 1 to 100 bytes, got {name:?}");
        return Err(Error::invalid_argument(text));
    }
    if grids.iter().any(String::is_empty) {
        let text = "a pattern of names must have at least one character, got an empty one";
        return Err(Error::invalid_argument(text)
            .with_hint("leave it out for all grids, or give for instance 'flights*'"));
    }
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Error::internal("the operating system gave no random bytes").with_source(error)
    })?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let mut entry = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| drop(entry.insert(key.to_owned(), value));
    put("name", name.into());
    put("sha256", hex(&Sha256::digest(token.as_bytes())).into());
    put("scope", scope.to_string().into());
    if !grids.is_empty() {
        put("grids", grids.to_vec().into());
    }
    if let Some(valid_for) = valid_for {
        let expires = SystemTime::now() + valid_for;
        let text = humantime::format_rfc3339_seconds(expires).to_string();
        put("expires", text.into());
    }
    Ok((token, format!("[[token]]\n{entry}")))
}

fn hash_of(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        let pair = text.get(place * 2..place * 2 + 2)?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// The token of an `authorization` header: `Bearer TOKEN`, or `Basic` with the token as password (whatever the user).
#[must_use]
pub(in crate::serve) fn token_of(header: &str) -> Option<String> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return (!rest.is_empty()).then(|| rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") || rest.len() > 4 * MAX_TOKEN_BYTES {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(rest)
        .ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned())
}
