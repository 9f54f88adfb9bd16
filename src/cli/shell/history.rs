//! Statements of earlier sessions.
//!
//! Comes in: statements, and a file. Goes out: the statements, oldest first. A history that cannot be read or written is no error: the shell works without. Never here: keys.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// The environment variable that names the file.
const VARIABLE: &str = "PARTGRID_HISTORY";

/// How many statements are kept.
const MOST: usize = 1_000;

/// Statements, each on one line.
#[derive(Debug, Default)]
pub(super) struct History {
    entries: Vec<String>,
    file: Option<PathBuf>,
}

impl History {
    /// The history of `PARTGRID_HISTORY`, or of the user; an empty variable stands for none.
    pub(super) fn open() -> Self {
        let file = match std::env::var_os(VARIABLE) {
            Some(path) if path.is_empty() => None,
            Some(path) => Some(PathBuf::from(path)),
            None => users(),
        };
        let text = file
            .as_ref()
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        let all: Vec<String> = text.lines().map(str::to_owned).collect();
        let entries = all
            .get(all.len().saturating_sub(MOST)..)
            .unwrap_or_default()
            .to_vec();
        if let (Some(file), true) = (&file, all.len() > 2 * MOST) {
            drop(fs::write(file, entries.join("\n") + "\n"));
        }
        Self { entries, file }
    }

    pub(super) fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Adds a statement, unless it is the one before.
    pub(super) fn add(&mut self, statement: &str) {
        // A comment ends with its line, so that a statement with one cannot be put on one line.
        let lines: Vec<String> = if statement.contains("--") {
            statement.lines().map(str::to_owned).collect()
        } else {
            vec![statement.split_whitespace().collect::<Vec<_>>().join(" ")]
        };
        for line in lines.into_iter().filter(|line| !line.trim().is_empty()) {
            if self.entries.last() == Some(&line) {
                continue;
            }
            self.append(&line);
            self.entries.push(line);
        }
    }

    fn append(&self, line: &str) {
        let Some(file) = &self.file else { return };
        if let Some(folder) = file.parent() {
            drop(fs::create_dir_all(folder));
        }
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        // Statements may hold what is nobody else's business.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        if let Ok(mut opened) = options.open(file) {
            drop(writeln!(opened, "{line}"));
        }
    }
}

/// `$XDG_STATE_HOME/partgrid/history`, or the same below `~/.local/state`.
fn users() -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("partgrid").join("history"))
}
