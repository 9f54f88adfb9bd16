//! Keys of a terminal, as they are pressed.
//!
//! Comes in: bytes of standard input in raw mode. Goes out: keys, and whether Ctrl-C was pressed while something else runs. The terminal is given back as it was. Never here: lines.

use std::collections::VecDeque;
use std::io;

use rustix::stdio::stdin;
use rustix::termios::{
    OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// What Ctrl-C sends in raw mode.
const INTERRUPT: u8 = 3;
/// So many columns where a terminal does not say how wide it is.
const USUAL_COLUMNS: usize = 80;

/// A key, or several that mean one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Up,
    Down,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    EndOfInput,
    /// Ctrl-K: up to the end of the line.
    CutToEnd,
    /// Ctrl-U: from the start of the line.
    CutToStart,
    /// Ctrl-W: the word before the cursor.
    CutWord,
    /// Ctrl-L.
    ClearScreen,
    Other,
}

/// A terminal in raw mode; dropping it gives it back as it was.
pub(super) struct Terminal {
    before: Termios,
    raw: Termios,
    /// What was typed while a statement ran.
    ahead: VecDeque<u8>,
}

impl Terminal {
    pub(super) fn try_new() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        // Line feeds still go to the start of the next line.
        raw.output_modes |= OutputModes::OPOST;
        let mut terminal = Self {
            before,
            raw,
            ahead: VecDeque::new(),
        };
        terminal.wait_for_keys(true)?;
        Ok(terminal)
    }

    fn wait_for_keys(&mut self, wait: bool) -> io::Result<()> {
        self.raw.special_codes[SpecialCodeIndex::VMIN] = u8::from(wait);
        self.raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        Ok(tcsetattr(stdin(), OptionalActions::Now, &self.raw)?)
    }

    /// Whether Ctrl-C was pressed since. Other keys are kept for the next line.
    pub(super) fn interrupted(&mut self) -> bool {
        let mut bytes = [0; 256];
        let read = self
            .wait_for_keys(false)
            .and_then(|()| Ok(rustix::io::read(stdin(), &mut bytes)?));
        let restored = self.wait_for_keys(true);
        let typed = bytes.get(..read.unwrap_or(0)).unwrap_or_default();
        let interrupted = typed.contains(&INTERRUPT);
        if interrupted {
            self.ahead.clear();
        } else {
            self.ahead.extend(typed);
        }
        interrupted || restored.is_err()
    }

    fn byte(&mut self) -> Option<u8> {
        if let Some(byte) = self.ahead.pop_front() {
            return Some(byte);
        }
        let mut bytes = [0; 256];
        loop {
            match rustix::io::read(stdin(), &mut bytes) {
                Ok(0) => return None,
                Ok(count) => {
                    self.ahead.extend(bytes.get(..count).unwrap_or_default());
                    return self.ahead.pop_front();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// The next key. Waits for it.
    pub(super) fn key(&mut self) -> Key {
        let Some(byte) = self.byte() else {
            return Key::EndOfInput;
        };
        match byte {
            1 => Key::Home,
            2 => Key::Left,
            INTERRUPT => Key::Interrupt,
            4 => Key::EndOfInput,
            5 => Key::End,
            6 => Key::Right,
            8 | 127 => Key::Backspace,
            9 => Key::Tab,
            10 | 13 => Key::Enter,
            11 => Key::CutToEnd,
            12 => Key::ClearScreen,
            14 => Key::Down,
            16 => Key::Up,
            21 => Key::CutToStart,
            23 => Key::CutWord,
            27 => self.escape(),
            0..32 => Key::Other,
            first => self.letter(first),
        }
    }

    /// A letter of up to four bytes.
    fn letter(&mut self, first: u8) -> Key {
        let more = match first {
            0xc0..0xe0 => 1,
            0xe0..0xf0 => 2,
            0xf0..=0xff => 3,
            _ => 0,
        };
        let mut bytes = vec![first];
        bytes.extend((0..more).map_while(|_| self.byte()));
        let letter = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.chars().next());
        letter.map_or(Key::Other, Key::Letter)
    }

    fn escape(&mut self) -> Key {
        match self.byte() {
            Some(b'b') => Key::WordLeft,
            Some(b'f') => Key::WordRight,
            Some(127) => Key::CutWord,
            Some(b'[') | Some(b'O') => {
                let mut numbers = String::new();
                loop {
                    match self.byte() {
                        Some(byte @ (b'0'..=b'9' | b';')) => numbers.push(char::from(byte)),
                        Some(last) => return sequence(&numbers, last),
                        None => return Key::EndOfInput,
                    }
                }
            }
            _ => Key::Other,
        }
    }
}

fn sequence(numbers: &str, last: u8) -> Key {
    // With Ctrl (5) or Alt (3), cursor keys go by words.
    let by_words = numbers.ends_with(";5") || numbers.ends_with(";3");
    match (last, numbers) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) if by_words => Key::WordRight,
        (b'D', _) if by_words => Key::WordLeft,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', "1" | "7") => Key::Home,
        (b'F', _) | (b'~', "4" | "8") => Key::End,
        (b'~', "3") => Key::Delete,
        _ => Key::Other,
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _restored = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// How many columns the terminal of standard output has, if it is one.
pub(in crate::cli) fn columns() -> Option<usize> {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(match usize::from(size.ws_col) {
        0 => USUAL_COLUMNS,
        columns => columns,
    })
}
