//! Glob patterns: `*`, `?`, `[…]` within a name, `**` over folders.
//!
//! Comes in: the pattern below the last folder without wildcards. Goes out: whether a file is taken, whether a folder can hold such a file. Pure. Never here: where
//! the names come from.

use glob::MatchOptions;

use super::{is_data, is_hidden};
use crate::error::{Error, Result};

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Whether a text is a pattern at all.
pub(super) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// A pattern over names below a folder.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    whole: glob::Pattern,
    /// The pattern of each name; `**` stands for any number of folders.
    parts: Vec<glob::Pattern>,
}

impl Pattern {
    /// The pattern of which these are the parts between slashes; no part matches every file.
    pub(super) fn try_new(parts: &[&str]) -> Result<Self> {
        let compile = |text: &str| {
            glob::Pattern::new(text).map_err(|error| {
                Error::invalid_argument(format!("not a glob pattern: {error}")).with_source(error)
            })
        };
        Ok(Self {
            whole: compile(&parts.join("/"))?,
            parts: parts
                .iter()
                .map(|part| compile(part))
                .collect::<Result<_>>()?,
        })
    }

    /// Whether a file, given by the names below the folder, is taken: it matches, or a folder above it matches and it is a data file. Hidden names only where the
    /// pattern spells them out.
    pub(super) fn takes(&self, below: &[String]) -> bool {
        if below.iter().any(|name| self.hides(name)) {
            return false;
        }
        let names_files = self
            .parts
            .last()
            .is_some_and(|last| !is_recursive(last.as_str()));
        if names_files && self.whole.matches_with(&below.join("/"), OPTIONS) {
            return true;
        }
        let data = below.last().is_some_and(|name| is_data(name));
        let folder = |depth| {
            let above = below.get(..depth).unwrap_or_default().join("/");
            self.whole.matches_with(&above, OPTIONS)
        };
        data && (self.parts.is_empty() || !names_files || (1..below.len()).any(folder))
    }

    /// Whether a folder, given by the names below the first folder, can hold a file that is taken.
    pub(super) fn may_hold(&self, below: &[String]) -> bool {
        if below.iter().any(|name| self.hides(name)) {
            return false;
        }
        let fixed = self
            .parts
            .iter()
            .take_while(|part| !is_recursive(part.as_str()));
        fixed
            .zip(below)
            .all(|(part, name)| part.matches_with(name, OPTIONS))
    }

    fn hides(&self, name: &str) -> bool {
        let spelled = |part: &glob::Pattern| {
            part.as_str().starts_with(['_', '.']) && part.matches_with(name, OPTIONS)
        };
        is_hidden(name) && !self.parts.iter().any(spelled)
    }
}

fn is_recursive(part: &str) -> bool {
    part == "**"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    fn pattern(text: &str) -> Pattern {
        Pattern::try_new(&text.split('/').collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_pattern_takes_files_that_match_and_data_below_folders_that_match() {
        for (text, path, taken) in [
            ("*", "a.bin", true),
            ("*", "x/a.parquet", true),
            ("*", "x/a.bin", false),
            ("*", "_SUCCESS", false),
            ("_*", "_SUCCESS", true),
            ("*", "_k=1/a.parquet", true),
            ("*/a.parquet", "x/a.parquet", true),
            ("*/a.parquet", "x/y/a.parquet", false),
            ("**/a.*", "x/y/a.bin", true),
            ("**/a.*", "x/.y/a.bin", false),
            ("**", "x/y/a.parquet", true),
            ("**", "x/y/a.bin", false),
            ("x[12]", "x1/deep/a.pq", true),
            ("x[12]", "x3/deep/a.pq", false),
        ] {
            assert_eq!(pattern(text).takes(&names(path)), taken, "{text} {path}");
        }
    }

    #[test]
    fn folders_are_entered_only_where_files_can_match() {
        for (text, folder, entered) in [
            ("x*/a.parquet", "x1", true),
            ("x*/a.parquet", "y", false),
            ("x*", "x1/y", true),
            ("x*/**/a", "x1/y/z", true),
            ("x*/**/a", "y/x1", false),
            ("**", ".git", false),
        ] {
            let may_hold = pattern(text).may_hold(&names(folder));
            assert_eq!(may_hold, entered, "{text} {folder}");
        }
    }
}
