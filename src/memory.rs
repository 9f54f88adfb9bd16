//! How much memory loads and queries may use.
//!
//! Comes in: what the machine and its control group say, or a size as people write it. Goes out: a limit in bytes; by default 80 % of the less. Never here: counting what
//! is used.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};

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

/// From this size on the limit of the machine is looked at.
const CHECKED_FROM_BYTES: usize = 64 << 20;

/// Refuses what the machine can never hold: a system that lends more memory than it has would end the process later, at any write.
///
/// # Errors
/// `ResourcesExhausted` for more than [`default_memory_limit_bytes`].
pub(crate) fn check_may_have(num_bytes: usize, what: &str) -> Result<()> {
    // Read once: the files of the control group are slower than an allocation. A fork at any moment leaves nothing half done.
    static LIMIT: AtomicUsize = AtomicUsize::new(0);
    if num_bytes < CHECKED_FROM_BYTES {
        return Ok(());
    }
    let limit = match LIMIT.load(Ordering::Relaxed) {
        0 => {
            let limit = default_memory_limit_bytes();
            LIMIT.store(limit, Ordering::Relaxed);
            limit
        }
        limit => limit,
    };
    if num_bytes <= limit {
        return Ok(());
    }
    let text = format!(
        "{what} needs {num_bytes} bytes, more than the {limit} bytes of memory that may be used"
    );
    Err(Error::new(ErrorKind::ResourcesExhausted, text))
}

/// The limit of this process's control group, or of one that it lies in, such as that of a service or a job; `None` without one.
fn control_group_limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least_limit(&groups, &|path| fs::read_to_string(path).ok())
}

/// The least limit of the groups that `/proc/self/cgroup` names (version 2 or 1), and of all above them.
fn least_limit(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let places = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        Some((root, file, path.trim_start_matches('/')))
    });
    // In a container the path may be one of the host, of which only the root is there.
    let files = places.flat_map(|(root, file, path)| {
        let groups = Path::new(path).ancestors();
        groups.map(move |group| Path::new(root).join(group).join(file))
    });
    let limits = files.filter_map(|file| read(&file)?.trim().parse().ok());
    limits.min()
}

/// The memory of this process that is in use at this moment, in bytes; `None` where the system does not say.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: u64 = lines
        .next()?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some(kibibytes.saturating_mul(1024))
}

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads a size of at least one byte as people write it, `512MB`, `1.5 GiB` or `1000000`; fractions of a byte are dropped.
///
/// # Errors
/// `InvalidArgument` for what is no size, for zero, and for more than a machine can address.
pub fn parse_size(text: &str) -> Result<usize> {
    parse(text).map_err(Error::invalid_argument)
}

fn parse(text: &str) -> Result<usize, String> {
    let wrong = || format!("a size must read like 512MB, 1.5GiB or 1000000, got {text:?}");
    let number_ends = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, unit) = text.split_at(number_ends.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_lowercase();
    let (_, size) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || (number.contains('.') && (!digits(fraction) || fraction.len() > 15)) {
        return Err(wrong());
    }
    let part = format!("0{fraction}")
        .parse::<u128>()
        .map_err(|_| wrong())?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let too_big = || format!("a size must fit the memory of a machine, got {text:?}");
    let whole = whole.parse::<u128>().map_err(|_| too_big())?;
    let bytes = whole.checked_mul(u128::from(*size)).ok_or_else(too_big)?;
    let bytes = bytes.saturating_add(part * u128::from(*size) / scale);
    match usize::try_from(bytes) {
        Ok(0) => Err(format!("a size must be at least one byte, got {text:?}")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(too_big()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_holds() {
        let read = |path: &Path| {
            let text = match path.to_str()? {
                "/sys/fs/cgroup/memory.max" => "max",
                "/sys/fs/cgroup/system.slice/memory.max" => "3000",
                "/sys/fs/cgroup/system.slice/partgrid.service/memory.max" => "max",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "9223372036854771712",
                "/sys/fs/cgroup/memory/job/memory.limit_in_bytes" => "2000",
                _ => return None,
            };
            Some(format!("{text}\n"))
        };
        let limit = |groups: &str| least_limit(groups, &read);
        assert_eq!(limit("0::/system.slice/partgrid.service\n"), Some(3000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("3:cpu:/x\n4:hugetlb,memory:/job/step\n"), Some(2000));
        assert_eq!(
            limit("0::/of/the/host\n4:memory:/gone\n"),
            Some(9_223_372_036_854_771_712)
        );
        assert_eq!(limit(""), None);
    }

    #[test]
    fn sizes_read_with_and_without_unit() {
        let cases = [
            ("1000000", 1_000_000),
            ("17b", 17),
            ("512MB", 512_000_000),
            ("1.5 GiB", 1_610_612_736),
            ("0.5kB", 500),
            ("2tib", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_text() {
        let huge = format!("{}TB", "9".repeat(30));
        for text in [
            "", "MB", "-1", "1.MB", ".5MB", "1.2.3", "1 MX", "0", "0.1", "1e9", &huge,
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(&format!("{text:?}")), "{message}");
        }
    }
}
