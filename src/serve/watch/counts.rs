//! What is counted and timed for those who watch.
//!
//! Comes in: what happened, and how long it took. Goes out: counters and histograms that live as long as the server (`watch/http/metrics.rs` shows them). Labels have few values, all of them ours. Never here: names of callers and grids.

use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// The upper ends of the intervals, in seconds, in which times are counted: from what is in memory to what runs for minutes.
const SECONDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
];

/// One label and its value.
pub(super) type Label = [(&'static str, &'static str); 1];

/// Counters that one label tells apart.
#[derive(Debug, Clone)]
pub(in crate::serve) struct By {
    label: &'static str,
    pub(super) family: Family<Label, Counter>,
}

impl By {
    /// Those of a label; the values that are known are there from the start, as 0.
    pub(in crate::serve) fn of(label: &'static str, known: &[&'static str]) -> Self {
        let by = Self {
            label,
            family: Family::default(),
        };
        for value in known {
            drop(by.family.get_or_create(&[(label, *value)]));
        }
        by
    }

    pub(in crate::serve) fn count(&self, value: &'static str) {
        self.family.get_or_create(&[(self.label, value)]).inc();
    }
}

/// Times of what happens again and again.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Times(pub(super) Histogram);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new(SECONDS))
    }
}

impl Times {
    /// Measures until the guard is dropped.
    pub(in crate::serve) fn begin(&self) -> Timer {
        Timer {
            begun: Instant::now(),
            times: self.clone(),
        }
    }
}

/// Times that one label tells apart.
#[derive(Debug, Clone)]
pub(in crate::serve) struct TimesBy {
    label: &'static str,
    pub(super) family: Family<Label, Histogram, fn() -> Histogram>,
}

impl TimesBy {
    /// Those of a label; the values that are known are there from the start.
    pub(in crate::serve) fn of(label: &'static str, known: &[&'static str]) -> Self {
        let made: fn() -> Histogram = || Histogram::new(SECONDS);
        let by = Self {
            label,
            family: Family::new_with_constructor(made),
        };
        for value in known {
            drop(by.family.get_or_create(&[(label, *value)]));
        }
        by
    }

    pub(in crate::serve) fn count(&self, value: &'static str, took: Duration) {
        let times = self.family.get_or_create(&[(self.label, value)]);
        times.observe(took.as_secs_f64());
    }
}

/// Something that goes on.
#[derive(Debug)]
pub(in crate::serve) struct Timer {
    begun: Instant,
    times: Times,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.times.0.observe(self.begun.elapsed().as_secs_f64());
    }
}
