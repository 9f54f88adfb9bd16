//! The cores that a process may use.
//!
//! Comes in: what the kernel says of this process: to which cores it is bound, and of how many a container or service may use the time. Goes out: how many these are, and a number that is the same for processes that
//! share them, as members tell each other. Never here: threads, who is a member.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::thread::available_parallelism;

use twox_hash::XxHash64;

use crate::error::{Error, Result};

/// The cores that a process may use; none, if nobody knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::cluster) struct Cores {
    number: u32,
    /// The same for all processes of a host that may use the same cores, and no others together.
    group: u64,
}

impl Cores {
    /// So many, which the processes of this group share.
    #[cfg(test)]
    pub(in crate::cluster) fn new(number: u32, group: u64) -> Self {
        Self { number, group }
    }

    /// Those of this process.
    pub(in crate::cluster) fn here() -> Self {
        // It knows the limits of control groups (`cpu.max`, `cpu.cfs_quota_us`) and to which cores the process is bound.
        let number = available_parallelism().map_or(1, NonZeroUsize::get);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let bound = bound_to(&status);
        let is_limited = listed(bound).is_some_and(|cores| number < cores);
        // Who is bound to the same cores shares them; a part of their time is shared within a container or service.
        let control = match is_limited {
            true => control_group(),
            false => String::new(),
        };
        Self {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            group: XxHash64::oneshot(0, format!("{bound} {control}").as_bytes()),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{:x}", self.number, self.group)
    }
}

impl FromStr for Cores {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid_data(format!("this says of no cores: {text:?}"));
        let (number, group) = text.split_once('/').ok_or_else(wrong)?;
        Ok(Self {
            number: number.parse().map_err(|_| wrong())?,
            group: u64::from_str_radix(group, 16).map_err(|_| wrong())?,
        })
    }
}

/// How many cores processes of one host may use together. Each that says nothing counts as one that may use those of this process.
pub(in crate::cluster) fn together(all: impl Iterator<Item = Cores>) -> usize {
    let mut groups: HashMap<u64, u32> = HashMap::new();
    for cores in all {
        let cores = match cores.number {
            0 => Cores::here(),
            _ => cores,
        };
        let most = groups.entry(cores.group).or_default();
        *most = cores.number.max(*most);
    }
    let numbers = groups.into_values();
    numbers.fold(0, |sum, number| {
        sum.saturating_add(usize::try_from(number).unwrap_or(usize::MAX))
    })
}

/// The list of cores in what the kernel says of a thread.
fn bound_to(status: &str) -> &str {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    found.map(str::trim).unwrap_or_default()
}

/// How many numbers a list of numbers and runs of them has, as the kernel writes it (`0-3,8`).
fn listed(list: &str) -> Option<usize> {
    let runs = list.trim().split(',').map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    runs.sum()
}

/// A name of the control group of this process: of two containers that have one path each within themselves, their roots differ.
fn control_group() -> String {
    let path = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = std::fs::metadata("/sys/fs/cgroup").map_or(0, |root| root.ino());
    format!("{path} {root}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_as_the_kernel_lists_them() {
        assert_eq!(listed("0-3,8\n"), Some(5));
        assert_eq!(listed("0\n"), Some(1));
        assert_eq!(listed("3-0"), None);
        assert_eq!(listed(""), None);
        let status = "Name:\tx\nCpus_allowed:\t3f\nCpus_allowed_list:\t0-5\nMems_allowed:\t1\n";
        assert_eq!(bound_to(status), "0-5");
        assert_eq!(bound_to("Name:\tx\n"), "");
    }

    #[test]
    fn what_is_told_is_what_is_heard() {
        let here = Cores::here();
        assert!(here.number >= 1);
        assert_eq!(here.to_string().parse::<Cores>().unwrap(), here);
        for wrong in ["", "1", "a/1", "1/x", "-1/1"] {
            assert!(wrong.parse::<Cores>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores_that_processes_share_count_once() {
        let together = |all: &[(u32, u64)]| {
            let all = all
                .iter()
                .map(|(number, group)| Cores::new(*number, *group));
            together(all)
        };
        // Three of one host, or of one container.
        assert_eq!(together(&[(8, 1), (8, 1), (8, 1)]), 8);
        // Each in a container of its own, or bound to cores of its own.
        assert_eq!(together(&[(2, 1), (2, 2), (3, 3)]), 7);
        assert_eq!(together(&[]), 0);
        let here = super::together([Cores::default(), Cores::here()].into_iter());
        assert_eq!(here, Cores::here().number as usize);
    }
}
