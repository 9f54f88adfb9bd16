//! One line as it is edited.
//!
//! Comes in: keys. Goes out: the line, shown as it changes; longer ones scroll sideways. Never here: what lines mean.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

use super::complete::{Completer, common_start};
use super::history::History;
use super::terminal::{Key, Terminal, columns};
use crate::grid::picture::{steers, visible};

/// How editing ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// What is edited.
struct Line<'a> {
    prompt: &'a str,
    letters: Vec<char>,
    cursor: usize,
}

/// Reads a line. Up and down go through the history.
///
/// # Errors
/// When the terminal cannot be written to.
pub(super) fn read_line(
    terminal: &mut Terminal,
    screen: &mut dyn Write,
    prompt: &str,
    history: &History,
    completer: &Completer<'_>,
) -> io::Result<Read> {
    let mut line = Line {
        prompt,
        letters: Vec::new(),
        cursor: 0,
    };
    // What was written before the history was looked at.
    let (mut place, mut draft) = (history.entries().len(), String::new());
    loop {
        line.show(screen)?;
        let key = terminal.key();
        match key {
            Key::Enter => {
                line.end(screen)?;
                return Ok(Read::Line(line.text()));
            }
            Key::Interrupt => {
                line.end(screen)?;
                return Ok(Read::Interrupted);
            }
            Key::EndOfInput if line.letters.is_empty() => {
                line.end(screen)?;
                return Ok(Read::End);
            }
            Key::Tab => line.complete(screen, completer)?,
            Key::ClearScreen => write!(screen, "\x1b[H\x1b[2J")?,
            Key::Up | Key::Down => {
                if place == history.entries().len() {
                    draft = line.text();
                }
                let entries = history.entries();
                place = match key {
                    Key::Up => place.saturating_sub(1),
                    _ => (place + 1).min(entries.len()),
                };
                line.set(entries.get(place).unwrap_or(&draft));
            }
            key => line.edit(key),
        }
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        self.letters.iter().collect()
    }

    fn set(&mut self, text: &str) {
        self.letters = text.chars().collect();
        self.cursor = self.letters.len();
    }

    fn edit(&mut self, key: Key) {
        let (cursor, end) = (self.cursor, self.letters.len());
        match key {
            Key::Letter(letter) => {
                self.letters.insert(cursor, letter);
                self.cursor += 1;
            }
            Key::Backspace if cursor > 0 => {
                self.letters.remove(cursor - 1);
                self.cursor -= 1;
            }
            Key::Delete | Key::EndOfInput if cursor < end => {
                self.letters.remove(cursor);
            }
            Key::Left => self.cursor = cursor.saturating_sub(1),
            Key::Right => self.cursor = (cursor + 1).min(end),
            Key::WordLeft => self.cursor = self.word_start(),
            Key::WordRight => self.cursor = self.word_end(),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = end,
            Key::CutToEnd => self.letters.truncate(cursor),
            Key::CutToStart => self.cut_from(0),
            Key::CutWord => self.cut_from(self.word_start()),
            _ => {}
        }
    }

    fn cut_from(&mut self, start: usize) {
        self.letters.drain(start..self.cursor);
        self.cursor = start;
    }

    /// Where the word before the cursor begins.
    fn word_start(&self) -> usize {
        let before = self.letters.get(..self.cursor).unwrap_or_default();
        let word = before.iter().rposition(|letter| letter.is_alphanumeric());
        let before = before
            .get(..word.map_or(0, |last| last))
            .unwrap_or_default();
        before
            .iter()
            .rposition(|letter| !letter.is_alphanumeric())
            .map_or(0, |gap| gap + 1)
    }

    fn word_end(&self) -> usize {
        let after = self.letters.get(self.cursor..).unwrap_or_default();
        let start = after
            .iter()
            .position(|letter| letter.is_alphanumeric())
            .unwrap_or(after.len());
        let rest = after.get(start..).unwrap_or_default();
        let length = rest.iter().position(|letter| !letter.is_alphanumeric());
        self.cursor + start + length.unwrap_or(rest.len())
    }

    /// Writes what can be the end of the word before the cursor, or lists it.
    fn complete(&mut self, screen: &mut dyn Write, completer: &Completer<'_>) -> io::Result<()> {
        let before: String = self
            .letters
            .get(..self.cursor)
            .unwrap_or_default()
            .iter()
            .collect();
        let (start, found) = completer.complete(&before);
        let word = before.get(start..).unwrap_or_default();
        let written = match found.as_slice() {
            [] => return Ok(()),
            [only] => format!("{only} "),
            several => common_start(several),
        };
        if written.trim_end().chars().count() > word.chars().count() || found.len() == 1 {
            self.cut_from(before.get(..start).unwrap_or_default().chars().count());
            for letter in written.chars() {
                self.edit(Key::Letter(letter));
            }
            return Ok(());
        }
        write!(screen, "\r\n{}\r\n", in_columns(&found))
    }

    /// Writes the line anew, the part around the cursor if it is longer than the screen is wide.
    fn show(&self, screen: &mut dyn Write) -> io::Result<()> {
        let room = columns()
            .unwrap_or(80)
            .saturating_sub(width(self.prompt.chars()) + 1)
            .max(1);
        let mut start = 0;
        let before = |start: usize| self.letters.get(start..self.cursor).unwrap_or_default();
        while width(before(start).iter().copied()) >= room {
            start += 1;
        }
        let mut shown = String::new();
        let mut used = 0;
        for letter in self.letters.get(start..).unwrap_or_default() {
            used += width([*letter]);
            if used > room {
                break;
            }
            shown.push(if steers(*letter) { ' ' } else { *letter });
        }
        let at = width(self.prompt.chars()) + width(before(start).iter().copied());
        write!(screen, "\r\x1b[K{}{shown}\r", self.prompt)?;
        if at > 0 {
            write!(screen, "\x1b[{at}C")?;
        }
        screen.flush()
    }

    fn end(&mut self, screen: &mut dyn Write) -> io::Result<()> {
        self.cursor = self.letters.len();
        self.show(screen)?;
        screen.write_all(b"\r\n")?;
        screen.flush()
    }
}

fn width(letters: impl IntoIterator<Item = char>) -> usize {
    letters
        .into_iter()
        .map(|letter| match steers(letter) {
            // A blank is shown for it.
            true => 1,
            false => letter.width().unwrap_or(1),
        })
        .sum()
}

/// Texts side by side, as many as the screen has room for.
fn in_columns(texts: &[String]) -> String {
    const MOST: usize = 60;
    let left_out = texts.len().saturating_sub(MOST);
    let texts: Vec<String> = texts.iter().take(MOST).map(|text| visible(text)).collect();
    let longest = texts
        .iter()
        .map(|text| width(text.chars()))
        .max()
        .unwrap_or(0)
        + 2;
    let each = (columns().unwrap_or(80) / longest).max(1);
    let mut lines: Vec<String> = texts
        .chunks(each)
        .map(|row| {
            row.iter()
                .map(|text| format!("{text:<longest$}"))
                .collect::<String>()
        })
        .collect();
    if left_out > 0 {
        lines.push(format!("… {left_out} more"));
    }
    lines.join("\r\n")
}
