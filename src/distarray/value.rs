//! Values of any kind, as a foreign producer may hand them out.
//!
//! Comes in: what a binding or a JSON document found. Goes out: a [`Value`], and words for it in messages. Never here: judgement; Python; the elements of a buffer, except the integers of
//! one that stands for "indices". Whoever makes values of foreign objects stops a few levels down: nothing deeper than an item of "padding" has a meaning.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A value of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `None`.
    Null,
    /// `True` or `False`, which never count as integers.
    Bool(bool),
    /// A plain integer; larger ones than fit come as the nearest that does.
    Int(i128),
    /// Something of another type that says that it is an integer, such as a numpy scalar.
    Integral {
        /// Its value.
        value: i128,
        /// The name of its type.
        type_name: String,
    },
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary in its order.
    Dict(Vec<(Value, Value)>),
    /// Something with the buffer interface.
    Buffer(BufferFacts),
    /// Anything else: the name of its type.
    Other(String),
}

/// What is known of a buffer without reading it.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferFacts {
    /// The format of one element (PEP 3118), such as `d`.
    pub format: String,
    /// The bytes of one element.
    pub item_bytes: usize,
    /// The number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The name of the type of the object.
    pub type_name: String,
    /// The elements, where they are integers and somebody read them.
    pub integers: Integers,
}

/// The elements of a buffer of integers, in the order of the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integers {
    /// Nobody read them.
    Unread,
    /// All of them.
    Read(Arc<[i64]>),
    /// One of them is too large for 64 bits with a sign, this one.
    TooLarge(u64),
}

impl Value {
    /// The value under a key of a dictionary; `None` for other values too.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Self::Dict(entries) = self else {
            return None;
        };
        let mut named = entries
            .iter()
            .filter(|(known, _)| matches!(known, Value::Text(text) if text == key));
        named.next().map(|(_, value)| value)
    }

    /// The name of the type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Integral { type_name, .. } | Self::Other(type_name) => type_name,
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Buffer(facts) => &facts.type_name,
        }
    }
}

impl BufferFacts {
    /// Whether the elements are integers of any width, sign and byte order.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        matches!(self.element().kind, 'i' | 'u')
    }

    /// Keeps the elements, read from their bytes in C order: those of a buffer of integers that says how many it has. Others stay unread.
    #[must_use]
    pub fn with_integers(mut self, bytes: &[u8]) -> Self {
        let element = self.element();
        let (signed, big_endian, width) =
            (element.kind == 'i', element.big_endian, self.item_bytes);
        if !self.is_integer() || !matches!(width, 1 | 2 | 4 | 8) {
            return self;
        }
        let read = |chunk: &[u8]| {
            let mut digits = [0_u8; 8];
            let (places, ordered): (_, Vec<u8>) = match big_endian {
                true => (width, chunk.iter().rev().copied().collect()),
                false => (width, chunk.to_vec()),
            };
            let negative = signed && ordered.last().is_some_and(|last| *last >= 0x80);
            if negative {
                digits = [0xff; 8];
            }
            for (digit, byte) in digits.iter_mut().zip(ordered).take(places) {
                *digit = byte;
            }
            match signed {
                true => Ok(i64::from_le_bytes(digits)),
                false => i64::try_from(u64::from_le_bytes(digits))
                    .map_err(|_| u64::from_le_bytes(digits)),
            }
        };
        let elements: Result<Vec<i64>, u64> = bytes.chunks_exact(width).map(read).collect();
        self.integers = match elements {
            Ok(elements) => Integers::Read(elements.into()),
            Err(large) => Integers::TooLarge(large),
        };
        self
    }

    /// The format apart from how it is written: two buffers with the same have the same elements.
    pub(super) fn element(&self) -> Element<'_> {
        let format = self.format.as_str();
        let (big_endian, code) = match format.strip_prefix(['>', '!']) {
            Some(code) => (true, code),
            None => (false, format.trim_start_matches(['@', '=', '<'])),
        };
        let kind = match code {
            "b" | "h" | "i" | "l" | "q" | "n" => 'i',
            "B" | "H" | "I" | "L" | "Q" | "N" => 'u',
            "e" | "f" | "d" | "g" => 'f',
            _ => 'o',
        };
        Element {
            kind,
            item_bytes: self.item_bytes,
            big_endian: big_endian && self.item_bytes > 1,
            code: match (kind, code) {
                ('o', "c" | "s" | "1s") => Cow::Borrowed("c"),
                // numpy writes the alignment of the memory, not of the type, into records.
                ('o', code) if code.contains(['@', '=', '<', '^']) => {
                    Cow::Owned(code.replace(['@', '=', '<', '^'], ""))
                }
                ('o', code) => Cow::Borrowed(code),
                _ => Cow::Borrowed(""),
            },
        }
    }
}

/// What elements are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element<'a> {
    kind: char,
    item_bytes: usize,
    big_endian: bool,
    code: Cow<'a, str>,
}

/// As Python writes it, cut short where it is long.
impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("None"),
            Self::Bool(true) => formatter.write_str("True"),
            Self::Bool(false) => formatter.write_str("False"),
            Self::Int(value) => write!(formatter, "{value}"),
            Self::Integral { value, type_name } => {
                write!(formatter, "{}({value})", shortened(type_name))
            }
            Self::Float(value) => write!(formatter, "{value:?}"),
            Self::Text(text) => write!(formatter, "{}", quoted(text)),
            Self::List(items) | Self::Tuple(items) if items.len() > 4 => {
                write!(formatter, "a {} of {}", self.type_name(), items.len())
            }
            Self::List(items) => write!(formatter, "[{}]", Joined(items)),
            Self::Tuple(items) if items.len() == 1 => write!(formatter, "({},)", Joined(items)),
            Self::Tuple(items) => write!(formatter, "({})", Joined(items)),
            Self::Dict(entries) => write!(formatter, "a dict of {}", entries.len()),
            Self::Buffer(facts) => write!(
                formatter,
                "a {} of shape {} and format {}",
                shortened(&facts.type_name),
                shape_text(&facts.shape),
                quoted(&facts.format)
            ),
            Self::Other(type_name) => write!(formatter, "a {}", shortened(type_name)),
        }
    }
}

/// A text in quotes, cut short.
pub(super) fn quoted(text: &str) -> String {
    let short = shortened(text);
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{more}")
}

/// The first 40 characters.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(40).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Items within a sequence: what is nested once more is only named.
struct Joined<'a>(&'a [Value]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, item) in self.0.iter().enumerate() {
            if place > 0 {
                formatter.write_str(", ")?;
            }
            match item {
                Value::List(_) | Value::Tuple(_) => write!(formatter, "a {}", item.type_name())?,
                plain => write!(formatter, "{plain}")?,
            }
        }
        Ok(())
    }
}

/// A shape as Python writes it.
pub(super) fn shape_text(shape: &[u64]) -> String {
    match shape {
        [single] => format!("({single},)"),
        many => {
            let mut parts: Vec<String> = many.iter().take(8).map(ToString::to_string).collect();
            if many.len() > parts.len() {
                parts.push("…".to_owned());
            }
            format!("({})", parts.join(", "))
        }
    }
}
