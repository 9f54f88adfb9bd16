//! Values as a format writes them.
//!
//! Comes in: a value, and how it is written. Goes out: its text. Never here: formats as they are written.

use super::read::{Align, How, Wrong};

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Written<'a> {
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

/// The digits of floats without a precision.
const USUAL_PRECISION: usize = 6;

impl Written<'_> {
    /// Puts the text of a value behind others.
    pub(super) fn put(self, how: &How, to: &mut String) -> Result<(), Wrong> {
        let (sign, digits) = match self {
            Self::Text(text) => return put_text(text, how, to),
            Self::Whole(number) => match how.kind {
                None | Some('d' | 'i' | 'u') => {
                    whole(number, how, format!("{}", number.unsigned_abs()))
                }
                Some('x') => whole(number, how, format!("{:x}", number.unsigned_abs())),
                Some('X') => whole(number, how, format!("{:X}", number.unsigned_abs())),
                Some('o') => whole(number, how, format!("{:o}", number.unsigned_abs())),
                Some('b') => whole(number, how, format!("{:b}", number.unsigned_abs())),
                Some('s') => return put_text(&number.to_string(), how, to),
                Some('c') => {
                    let letter = u32::try_from(number).ok().and_then(char::from_u32);
                    let letter = letter.ok_or_else(|| format!("{number} is no letter, for `c`"))?;
                    return put_text(letter.encode_utf8(&mut [0; 4]), how, to);
                }
                Some(_) => float(as_float(number), how)?,
            },
            Self::Float(number) => match how.kind {
                Some('s') => return put_text(&shortest(number.abs(), number), how, to),
                _ => float(number, how)?,
            },
        };
        let digits = match how.between {
            Some(between) => grouped(&digits, between),
            None => digits,
        };
        let width = how.width.saturating_sub(sign.chars().count());
        if how.zeros && how.align.is_none_or(|align| align == Align::Right) && how.fill.is_none() {
            to.push_str(&sign);
            to.extend(std::iter::repeat_n('0', missing(&digits, width)));
            to.push_str(&digits);
            return Ok(());
        }
        padded(&format!("{sign}{digits}"), how, Align::Right, to);
        Ok(())
    }
}

fn put_text(text: &str, how: &How, to: &mut String) -> Result<(), Wrong> {
    if let Some(kind) = how.kind.filter(|kind| !matches!(kind, 's' | 'c')) {
        return Err(format!("`{kind}` writes numbers, got the text '{text}'"));
    }
    let cut = how.precision.map(|letters| {
        let end = text.char_indices().nth(letters);
        end.map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
    });
    padded(cut.unwrap_or(text), how, Align::Left, to);
    Ok(())
}

fn missing(text: &str, width: usize) -> usize {
    width.saturating_sub(text.chars().count())
}

fn padded(text: &str, how: &How, usual: Align, to: &mut String) {
    let missing = missing(text, how.width);
    let before = match how.align.unwrap_or(usual) {
        Align::Left => 0,
        Align::Middle => missing / 2,
        Align::Right => missing,
    };
    let fill = how.fill.unwrap_or(' ');
    to.extend(std::iter::repeat_n(fill, before));
    to.push_str(text);
    to.extend(std::iter::repeat_n(fill, missing - before));
}

fn sign(is_negative: bool, how: &How) -> String {
    match is_negative {
        true => "-".to_owned(),
        false => how.plus.map(String::from).unwrap_or_default(),
    }
}

fn whole(number: i128, how: &How, digits: String) -> (String, String) {
    let base = match how.kind.filter(|_| how.says_base) {
        Some('x') => "0x",
        Some('X') => "0X",
        Some('b') => "0b",
        Some('o') => "0",
        _ => "",
    };
    (sign(number < 0, how) + base, digits)
}

#[expect(clippy::cast_precision_loss, reason = "asked for as a float")]
fn as_float(number: i128) -> f64 {
    number as f64
}

fn float(number: f64, how: &How) -> Result<(String, String), Wrong> {
    let sign = sign(number.is_sign_negative() && !number.is_nan(), how);
    let size = number.abs();
    if !size.is_finite() {
        let name = if size.is_nan() { "nan" } else { "inf" };
        return Ok((sign, name.to_owned()));
    }
    let precision = how.precision.unwrap_or(USUAL_PRECISION);
    let digits = match how.kind {
        None => match how.precision {
            None => shortest(size, size),
            Some(precision) => general(size, precision),
        },
        Some('f' | 'F') => format!("{size:.precision$}"),
        Some('e') => exponent(&format!("{size:.precision$e}"), 'e'),
        Some('E') => exponent(&format!("{size:.precision$e}"), 'E'),
        Some('g') => general(size, precision),
        Some('G') => general(size, precision).to_uppercase(),
        Some(kind) => {
            return Err(format!("`{kind}` writes whole numbers, got {number:?}"));
        }
    };
    Ok((sign, digits))
}

/// The fewest digits that say which float it is.
fn shortest(size: f64, number: f64) -> String {
    let digits = format!("{size:?}");
    let digits = match digits.contains('e') {
        true => exponent(&digits, 'e'),
        false => digits,
    };
    match number.is_sign_negative() && !number.is_nan() {
        true => format!("-{digits}"),
        false => digits,
    }
}

/// `1.5e3` as `1.5e+03`.
fn exponent(digits: &str, letter: char) -> String {
    let (digits, exponent) = digits.split_once('e').unwrap_or((digits, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}{letter}{sign}{exponent:0>2}")
}

/// So many digits, as a number or with an exponent, whichever is shorter, without zeros at the end.
fn general(size: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let written = format!("{size:.*e}", precision - 1);
    let (_, power) = written.split_once('e').unwrap_or_default();
    let power: i32 = power.parse().unwrap_or_default();
    let without_zeros = |digits: &str| match digits.contains('.') {
        true => digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => digits.to_owned(),
    };
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    if power < -4 || power >= most {
        let (digits, power) = written.split_once('e').unwrap_or_default();
        return exponent(&format!("{}e{power}", without_zeros(digits)), 'e');
    }
    let behind = usize::try_from(most - 1 - power).unwrap_or_default();
    without_zeros(&format!("{size:.behind$}"))
}

/// Digits before the point in groups of three.
fn grouped(digits: &str, between: char) -> String {
    let end = digits.find(|letter: char| !letter.is_ascii_digit());
    let (whole, rest) = digits.split_at(end.unwrap_or(digits.len()));
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(between);
        }
        text.push(digit);
    }
    text + rest
}
