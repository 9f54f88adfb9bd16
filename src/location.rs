//! Where bytes live: host, process, device.
//!
//! Comes in: an address, a process id, a device. Goes out: a [`Location`], the `(IP, PID[, device])` of the `__partitioned__` draft (section
//! "location"), and the answers to "is that here?" and "how near is it?" ([`Locality`]). Never here: opening what lives there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::str::FromStr;
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The environment variable that sets the address under which other machines reach this one.
pub const HOST_VARIABLE: &str = "PARTGRID_HOST";

/// Every device type that DLPack 1.3 names, with the number that DLPack and the Arrow C Device interface share.
const DEVICE_TYPES: [(&str, i32); 16] = [
    ("kDLCPU", 1),
    ("kDLCUDA", 2),
    ("kDLCUDAHost", 3),
    ("kDLOpenCL", 4),
    ("kDLVulkan", 7),
    ("kDLMetal", 8),
    ("kDLVPI", 9),
    ("kDLROCM", 10),
    ("kDLROCMHost", 11),
    ("kDLExtDev", 12),
    ("kDLCUDAManaged", 13),
    ("kDLOneAPI", 14),
    ("kDLWebGPU", 15),
    ("kDLHexagon", 16),
    ("kDLMAIA", 17),
    ("kDLTrn", 18),
];

/// A kind of memory and the number of the device that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    device_type: i32,
    ordinal: Option<u32>,
}

impl Device {
    /// The memory of the host: `kDLCPU`.
    pub const CPU: Self = Self {
        device_type: 1,
        ordinal: None,
    };

    /// The device of the given DLPack number (the Arrow C Device interface uses the same numbers) and ordinal.
    ///
    /// # Errors
    /// `InvalidArgument` when DLPack has no device of that number.
    pub fn try_new(device_type: i32, ordinal: Option<u32>) -> Result<Self> {
        if DEVICE_TYPES
            .iter()
            .any(|(_, number)| *number == device_type)
        {
            return Ok(Self {
                device_type,
                ordinal,
            });
        }
        Err(Error::invalid_argument(format!(
            "device type must be a number that DLPack defines (1 to 4 or 7 to 18), got {device_type}"
        )))
    }

    /// The number that DLPack and the Arrow C Device interface use.
    #[must_use]
    pub fn device_type(self) -> i32 {
        self.device_type
    }

    /// Whether this process reads the memory like its own: that of the host, such as CUDA and ROCm have pinned, and such as CUDA moves to whoever reads it.
    #[must_use]
    pub fn is_host_readable(self) -> bool {
        matches!(self.device_type, 1 | 3 | 11 | 13)
    }

    /// The device whose driver knows the events of such memory: for what a driver has pinned or moves, its GPU of the same number. `None` for that of the host.
    #[must_use]
    pub fn of_events(self) -> Option<Self> {
        let device_type = match self.device_type {
            1 => return None,
            3 | 13 => 2,
            11 => 10,
            other => other,
        };
        Some(Self {
            device_type,
            ..self
        })
    }

    /// Whether CUDA reads the memory: that of its GPUs, what it has pinned, and what it moves to whoever reads it.
    #[must_use]
    pub fn is_cuda_readable(self) -> bool {
        matches!(self.device_type, 2 | 3 | 13)
    }

    /// Whether a handle of its memory is an address, so that a number may be added to it; else it is an object of the driver, or nobody says.
    #[must_use]
    pub fn has_addresses(self) -> bool {
        matches!(self.device_type, 1 | 2 | 3 | 10 | 11 | 13 | 14)
    }

    /// The number of the device among those of its type, where one was given.
    #[must_use]
    pub fn ordinal(self) -> Option<u32> {
        self.ordinal
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = DEVICE_TYPES
            .iter()
            .find(|(_, number)| *number == self.device_type);
        formatter.write_str(entry.map_or("kDLCPU", |(name, _)| *name))?;
        match self.ordinal {
            Some(ordinal) => write!(formatter, ":{ordinal}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `kDLCPU` or `kDLCUDA:0`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, ordinal) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<u32>().ok())),
            None => (text, None),
        };
        let known = DEVICE_TYPES.iter().find(|(known, _)| *known == name);
        match (known, ordinal) {
            (Some((_, device_type)), None) => Self::try_new(*device_type, None),
            (Some((_, device_type)), Some(Some(ordinal))) => {
                Self::try_new(*device_type, Some(ordinal))
            }
            _ => Err(Error::invalid_argument(format!(
                "a device must read like 'kDLCPU' or 'kDLCUDA:0', got {text:?}"
            ))),
        }
    }
}

/// Host, process and device: where bytes live.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    host: IpAddr,
    process: u64,
    device: Device,
}

impl Location {
    /// The memory `device` of process `process` on `host`.
    #[must_use]
    pub fn new(host: IpAddr, process: u64, device: Device) -> Self {
        Self {
            host,
            process,
            device,
        }
    }

    /// Host memory of this process. The process id is asked for at each call, so that it is right after a fork.
    #[must_use]
    pub fn here() -> Self {
        Self::new(host_address(), std::process::id().into(), Device::CPU)
    }

    /// The address under which other machines reach the host.
    #[must_use]
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// The process id that the operating system of the host gave.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// The kind of memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether this process can read the bytes directly: same host, same process, host memory.
    #[must_use]
    pub fn is_here(&self) -> bool {
        *self == Self::here()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} pid {}", self.host, self.process)?;
        if self.device != Device::CPU {
            write!(formatter, " {}", self.device)?;
        }
        Ok(())
    }
}

/// What must happen before this process can read a tile. Ordered: the nearest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Locality {
    /// Nothing: it lies in the memory of this process.
    Memory,
    /// It lies in memory that this process shares with another, and is mapped.
    Shared,
    /// It lies on a device of this process, and is copied from there.
    Device,
    /// It lies in another process, and is sent.
    Process,
    /// It lies in a file or a store, and is read.
    File,
}

impl Locality {
    /// All, nearest first.
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Shared,
        Self::Device,
        Self::Process,
        Self::File,
    ];

    /// What stands in place of [`Locality::name`] for a tile that nobody has any more.
    pub const LOST: &str = "lost";

    /// The nearest of the locations of one tile, which is in no file.
    #[must_use]
    pub fn of(locations: &[Location]) -> Self {
        let here = Location::here();
        let of_one = |location: &Location| {
            if *location == here {
                Self::Memory
            } else if (location.host, location.process) == (here.host, here.process) {
                Self::Device
            } else {
                Self::Process
            }
        };
        locations.iter().map(of_one).min().unwrap_or(Self::Process)
    }

    /// One word, as `EXPLAIN` and metrics show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Shared => "shared",
            Self::Device => "device",
            Self::Process => "process",
            Self::File => "file",
        }
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The address under which other machines reach this one: `PARTGRID_HOST` when it holds an address, else that of the interface which the default route
/// uses, else the loopback address of a machine without network. The variable is read at each call, the route once.
#[must_use]
pub fn host_address() -> IpAddr {
    static ROUTED: OnceLock<IpAddr> = OnceLock::new();
    match host_setting() {
        Ok(Some(address)) => address,
        _ => *ROUTED.get_or_init(|| routed_address().unwrap_or(Ipv4Addr::LOCALHOST.into())),
    }
}

/// The address set in `PARTGRID_HOST`, if it is set. Whoever builds a grid asks here first, so that a wrong setting is an error and not ignored.
///
/// # Errors
/// `InvalidArgument` when the variable holds anything but an IP address.
pub fn host_setting() -> Result<Option<IpAddr>> {
    let Ok(text) = std::env::var(HOST_VARIABLE) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(Error::invalid_argument(format!(
            "{HOST_VARIABLE} must hold an IP address, got {text:?}"
        ))
        .with_hint("unset it to use the address of the default route")),
    }
}

/// Asks the routing table which local address would be used towards a documentation address (RFC 5737, RFC 3849). Connecting a datagram socket sends nothing.
fn routed_address() -> Option<IpAddr> {
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")]
        .into_iter()
        .find_map(|(local, remote)| {
            let socket = UdpSocket::bind(local).ok()?;
            socket.connect(remote).ok()?;
            let address = socket.local_addr().ok()?.ip();
            (!address.is_unspecified() && !address.is_loopback()).then_some(address)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_name_reads_back() {
        for (name, number) in DEVICE_TYPES {
            let device: Device = name.parse().unwrap();
            assert_eq!(
                (device.device_type(), device.to_string().as_str()),
                (number, name)
            );
            let numbered: Device = format!("{name}:3").parse().unwrap();
            assert_eq!(
                (numbered.ordinal(), numbered.to_string()),
                (Some(3), format!("{name}:3"))
            );
        }
    }

    #[test]
    fn events_are_those_of_the_driver_that_has_the_memory() {
        for (memory, gpu) in [
            ("kDLCUDAHost:1", Some("kDLCUDA:1")),
            ("kDLCUDAManaged", Some("kDLCUDA")),
            ("kDLROCMHost:0", Some("kDLROCM:0")),
            ("kDLOpenCL:2", Some("kDLOpenCL:2")),
            ("kDLCPU", None),
        ] {
            let device: Device = memory.parse().unwrap();
            let gpu = gpu.map(|name| name.parse().unwrap());
            assert_eq!(device.of_events(), gpu, "{memory}");
        }
    }

    #[test]
    fn a_wrong_device_text_is_refused_with_the_text() {
        for text in ["cuda:0", "kDLCUDA:", "kDLCUDA:x", "", "kDL"] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn the_nearest_of_several_locations_counts() {
        let here = Location::here();
        let device = "kDLCUDA:0".parse().unwrap();
        let on_device = Location::new(here.host(), here.process(), device);
        let elsewhere = Location::new(here.host(), here.process() + 1, Device::CPU);
        let of = |locations: &[&Location]| {
            let locations: Vec<Location> = locations.iter().copied().cloned().collect();
            Locality::of(&locations)
        };
        assert_eq!(of(&[&elsewhere]), Locality::Process);
        assert_eq!(of(&[]), Locality::Process);
        assert_eq!(of(&[&elsewhere, &on_device]), Locality::Device);
        assert_eq!(of(&[&elsewhere, &on_device, &here]), Locality::Memory);
        assert!(Locality::ALL.is_sorted());
    }

    #[test]
    fn here_is_here_and_another_process_is_not() {
        let here = Location::here();
        assert!(here.is_here());
        assert!(!Location::new(here.host(), here.process() + 1, Device::CPU).is_here());
    }
}
