//! Formats as they are written: `{:>8,.2f}`, `%08.2f`.
//!
//! Comes in: a format of one of both kinds. Goes out: its parts: texts, and places of values with how these are written. Never here: values.

use std::iter::Peekable;
use std::str::Chars;

use super::Style;

/// No width and no precision is larger, so that what comes out stays small.
const MOST: usize = 1_000;

/// A part of a format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Value { place: usize, how: How },
}

/// On which side of the width a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Middle,
    Right,
}

/// How a value is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct How {
    pub(super) fill: Option<char>,
    pub(super) align: Option<Align>,
    /// What stands before numbers that are not negative.
    pub(super) plus: Option<char>,
    /// Whether numbers say their base.
    pub(super) says_base: bool,
    /// Whether zeros fill the width of numbers.
    pub(super) zeros: bool,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
    /// What stands between groups of three digits.
    pub(super) between: Option<char>,
    pub(super) kind: Option<char>,
}

/// What is wrong with a format.
pub(super) type Wrong = String;

/// The parts of a format.
pub(super) fn read(text: &str, style: Style) -> Result<Vec<Part>, Wrong> {
    let mut reading = Reading {
        letters: text.chars().peekable(),
        parts: Vec::new(),
        text: String::new(),
        next: 0,
    };
    match style {
        Style::Braces => reading.braces()?,
        Style::Percents => reading.percents()?,
    }
    reading.end_text();
    Ok(reading.parts)
}

struct Reading<'a> {
    letters: Peekable<Chars<'a>>,
    parts: Vec<Part>,
    text: String,
    /// The place of the next value that does not say its own.
    next: usize,
}

impl Reading<'_> {
    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.text)));
        }
    }

    fn value(&mut self, place: Option<usize>, how: How) {
        self.end_text();
        let place = place.unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.parts.push(Part::Value { place, how });
    }

    fn take(&mut self, wanted: char) -> bool {
        self.letters.next_if_eq(&wanted).is_some()
    }

    /// A number, if one stands there.
    fn number(&mut self) -> Result<Option<usize>, Wrong> {
        let mut number = None;
        while let Some(digit) = self.letters.peek().and_then(|letter| letter.to_digit(10)) {
            self.letters.next();
            let so_far: usize = number.unwrap_or_default();
            let more = so_far * 10 + digit as usize;
            if more > MOST {
                return Err(format!("a number beyond {MOST}"));
            }
            number = Some(more);
        }
        Ok(number)
    }

    fn braces(&mut self) -> Result<(), Wrong> {
        while let Some(letter) = self.letters.next() {
            match letter {
                '{' if self.take('{') => self.text.push('{'),
                '{' => {
                    let place = self.number()?;
                    let how = match self.take(':') {
                        true => self.how_in_braces()?,
                        false => How::default(),
                    };
                    if !self.take('}') {
                        let found = self.letters.next().map(String::from);
                        let found = found.unwrap_or_else(|| "its end".to_owned());
                        return Err(format!("`}}` must follow, found {found}"));
                    }
                    self.value(place, how);
                }
                '}' if self.take('}') => self.text.push('}'),
                '}' => return Err("a `}` without `{`; write }}".to_owned()),
                letter => self.text.push(letter),
            }
        }
        Ok(())
    }

    /// `[[fill]align][sign][#][0][width][,][.precision][type]`
    fn how_in_braces(&mut self) -> Result<How, Wrong> {
        let mut how = How::default();
        let mut ahead = self.letters.clone();
        let (first, second) = (ahead.next(), ahead.next());
        if let (Some(fill), Some(align)) = (first, second.and_then(aligned))
            && fill != '}'
        {
            (how.fill, how.align) = (Some(fill), Some(align));
            self.letters = ahead;
        } else if let Some(align) = first.and_then(aligned) {
            how.align = Some(align);
            self.letters.next();
        }
        how.plus = self
            .letters
            .next_if(|letter| matches!(letter, '+' | ' ' | '-'))
            .filter(|sign| *sign != '-');
        how.says_base = self.take('#');
        how.zeros = self.take('0');
        how.width = self.number()?.unwrap_or_default();
        how.between = self.letters.next_if(|letter| matches!(letter, ',' | '_'));
        self.precision_and_kind(&mut how)?;
        Ok(how)
    }

    fn precision_and_kind(&mut self, how: &mut How) -> Result<(), Wrong> {
        if self.take('.') {
            how.precision = Some(self.number()?.unwrap_or_default());
        }
        how.kind = self.letters.next_if(char::is_ascii_alphabetic);
        match how.kind {
            Some(kind) if !KINDS.contains(kind) => Err(format!("no type `{kind}` of values")),
            _ => Ok(()),
        }
    }

    fn percents(&mut self) -> Result<(), Wrong> {
        while let Some(letter) = self.letters.next() {
            if letter != '%' {
                self.text.push(letter);
                continue;
            }
            if self.take('%') {
                self.text.push('%');
                continue;
            }
            // Texts stand on the right here, too.
            let mut how = How {
                align: Some(Align::Right),
                ..How::default()
            };
            while let Some(flag) = self.letters.next_if(|letter| "-+ 0#,".contains(*letter)) {
                match flag {
                    '-' => how.align = Some(Align::Left),
                    '0' => how.zeros = true,
                    '#' => how.says_base = true,
                    ',' => how.between = Some(','),
                    sign => how.plus = Some(sign),
                }
            }
            how.width = self.number()?.unwrap_or_default();
            self.precision_and_kind(&mut how)?;
            if how.kind.is_none() {
                return Err("`%` without a type of values; write %%".to_owned());
            }
            self.value(None, how);
        }
        Ok(())
    }
}

/// The types of values.
const KINDS: &str = "bcdeEfFgGiosuxX";

fn aligned(letter: char) -> Option<Align> {
    match letter {
        '<' => Some(Align::Left),
        '^' => Some(Align::Middle),
        '>' => Some(Align::Right),
        _ => None,
    }
}
