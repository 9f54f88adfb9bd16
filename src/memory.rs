//! How much memory loads and queries may use.
//!
//! Comes in: what the machine and its control group say. Goes out: the default limit, 80 % of the less. Never here: counting what is used.

use std::fs;

/// The share of the machine's (or control group's) memory that loads and queries may use by default, in percent.
const DEFAULT_SHARE_PERCENT: u64 = 80;

/// The default memory limit in bytes: 80 % of the machine's memory or of the control group's limit, whichever is less.
#[must_use]
pub fn default_memory_limit_bytes() -> usize {
    let information = rustix::system::sysinfo();
    let machine_bytes = u64::from(information.mem_unit).saturating_mul(information.totalram);
    let limit = control_group_limit_bytes().map_or(machine_bytes, |group| group.min(machine_bytes));
    usize::try_from(limit / 100 * DEFAULT_SHARE_PERCENT).unwrap_or(usize::MAX)
}

/// The limit of this process's control group (version 2, then version 1); `None` without one.
fn control_group_limit_bytes() -> Option<u64> {
    let paths = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let text = paths
        .into_iter()
        .find_map(|path| fs::read_to_string(path).ok())?;
    text.trim().parse().ok()
}
