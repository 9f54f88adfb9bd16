//! Texts of others -> texts for people.
//!
//! Comes in: names, values, errors, whoever wrote them. Goes out: the same with escapes in place of what steers a terminal or turns the order of letters around. Everything that people read goes through here; what programs read
//! (CSV, JSON, Arrow) never does.

/// A text of others on one line: what steers a terminal, line breaks and tabs are escaped.
#[must_use]
pub fn visible(text: &str) -> String {
    escaped(text, |_| false)
}

/// As [`visible`], on several lines: line breaks and tabs stay.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// A cell of a table has so many letters at most. Tables count columns of the screen in 16 bits, and take the square of its length for a cell that has more.
const MAX_LETTERS: usize = 30_000;

/// The beginning of a text that is too long for a cell of a table, and how much is left out; others as they are.
#[must_use]
pub fn bounded(text: String) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_LETTERS) else {
        return text;
    };
    let (shown, rest) = text.split_at(end);
    format!("{shown}… and {} more letters", rest.chars().count())
}

/// Whether a letter does something to a terminal besides being written: controls (C0, DEL, C1), line separators, marks and overrides of direction.
pub(crate) fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut result = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if stays(letter) || !steers(letter) => result.push(letter),
            '\n' | '\r' | '\t' => result.extend(letter.escape_default()),
            '\0'..='\u{ff}' => result.push_str(&format!("\\x{:02x}", u32::from(letter))),
            _ => result.extend(letter.escape_unicode()),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_of_a_long_text_is_said() {
        let text = "é".repeat(MAX_LETTERS);
        assert_eq!(bounded(text.clone()), text);
        assert_eq!(bounded(text.clone() + "ab"), text + "… and 2 more letters");
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_nothing_else() {
        let text = "a\x1b[2J\r\n\tb\u{9b}1m\u{7f}\u{202e}é✓👩\u{200d}🚀";
        assert_eq!(
            visible(text),
            "a\\x1b[2J\\r\\n\\tb\\x9b1m\\x7f\\u{202e}é✓👩\u{200d}🚀"
        );
        assert_eq!(visible_lines("a\n\tb\r\x07"), "a\n\tb\\r\\x07");
    }
}
