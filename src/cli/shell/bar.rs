//! A line that says how far a statement is, while it runs.
//!
//! Comes in: how far a query is. Goes out: one line on standard error, written anew ten times a second, and wiped before anything else is written. Statements that end soon show nothing. Never here:
//! counting.

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use super::terminal::columns;
use crate::grid::picture::thousands;
use crate::query::QueryProgress;

/// A statement that ends sooner shows nothing.
const QUIET: Duration = Duration::from_millis(500);

/// How often the line is written.
const INTERVAL: Duration = Duration::from_millis(100);

/// The width of a line where nobody knows that of the terminal.
const USUAL_COLUMNS: usize = 80;

/// The line.
#[derive(Debug, Default)]
pub(super) struct Bar {
    begun: Option<Instant>,
    written: Option<Instant>,
    is_shown: bool,
}

impl Bar {
    /// A statement begins to run.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Says how far a query is, unless that was said a moment ago.
    pub(super) fn show(&mut self, progress: impl FnOnce() -> Option<QueryProgress>) {
        let Some(elapsed) = self.begun.map(|begun| begun.elapsed()) else {
            return;
        };
        let is_fresh = self.written.is_some_and(|when| when.elapsed() < INTERVAL);
        if elapsed < QUIET || is_fresh {
            return;
        }
        let Some(progress) = progress() else { return };
        let room = columns().unwrap_or(USUAL_COLUMNS).saturating_sub(1);
        let text: String = line(&progress, elapsed).chars().take(room).collect();
        write(&format!("\r{text}\x1b[K"));
        (self.written, self.is_shown) = (Some(Instant::now()), true);
    }

    /// Wipes the line, if there is one.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write("\r\x1b[K");
        }
    }
}

/// Percent of the rows that scans read, tiles and rows, time passed.
fn line(progress: &QueryProgress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let QueryProgress {
        num_rows,
        total_rows,
        num_tiles,
        total_tiles,
        ..
    } = *progress;
    let Some(percent) = (u128::from(num_rows) * 100).checked_div(u128::from(total_rows)) else {
        return format!("running [{seconds} s]");
    };
    let (num_rows, total_rows) = (thousands(num_rows), thousands(total_rows));
    let (num_tiles, total_tiles) = (thousands(num_tiles), thousands(total_tiles));
    format!(
        "{percent:>3} %  {num_tiles}/{total_tiles} tiles, {num_rows}/{total_rows} rows [{seconds} s]"
    )
}

/// A terminal that is gone shows nothing.
fn write(text: &str) {
    let mut stderr = stderr().lock();
    drop(
        stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_tiles_and_rows_of_all() {
        let progress = QueryProgress {
            num_rows: 1_500,
            total_rows: 6_000,
            num_tiles: 1,
            total_tiles: 4,
            num_scans: 1,
        };
        let text = line(&progress, Duration::from_secs(3));
        assert_eq!(text, " 25 %  1/4 tiles, 1,500/6,000 rows [3 s]");
        let nothing = line(&QueryProgress::default(), Duration::from_secs(3));
        assert_eq!(nothing, "running [3 s]");
    }
}
