//! What the emulated GPU is like: how many, how large, how fast, and what is broken on purpose. The only reader of the
//! environment in this crate.

use core::ffi::c_int;
use std::time::Duration;

use crate::fault::{self, Rule};
use crate::function::Function;
use crate::sys;

/// One environment variable of the emulation.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

/// Every environment variable, in the order of the documentation. A value that cannot be understood is reported on
/// stderr, and every call then answers `hipErrorNotInitialized`: a mistyped fault must not pass for a passing test.
pub const VARIABLES: &[Variable] = &[
    Variable { name: "HIP_EMU_DEVICES", default: "1", meaning: "number of GPUs, 0 to 32" },
    Variable {
        name: "HIP_EMU_MEMORY",
        default: "4G",
        meaning: "memory of each GPU in bytes, or with K, M, G (powers of 1024); address space only until it is allocated",
    },
    Variable {
        name: "HIP_EMU_QUEUES",
        default: "4",
        meaning: "hardware queues of each GPU that its streams share, 1 to 64",
    },
    Variable {
        name: "HIP_EMU_QUEUE_LIMIT",
        default: "256",
        meaning: "commands that a hardware queue holds, 1 to 1000000; while it is full, who submits to it waits",
    },
    Variable {
        name: "HIP_EMU_VERSION",
        default: "7.14.60850",
        meaning: "version that the runtime reports: major.minor or major.minor.patch",
    },
    Variable {
        name: "HIP_EMU_HIDE",
        default: "",
        meaning: "functions this runtime does not have, separated by commas: absent from the table and for hipGetProcAddress",
    },
    Variable {
        name: "HIP_EMU_FAULT",
        default: "",
        meaning: "faults, separated by commas: FUNCTION:WHEN:WHAT (see below)",
    },
    Variable {
        name: "HIP_EMU_LINK",
        default: "",
        meaning: "timed link, GB/s[,latency in us]: copies between pinned and device memory take that long and move no bytes",
    },
    Variable {
        name: "HIP_EMU_KNOWN_FS",
        default: "",
        meaning: "all: hipAmdFileRead and hipAmdFileWrite take files of every file system, not only ext4 and xfs",
    },
    Variable {
        name: "HIP_EMU_INTEGRATED",
        default: "",
        meaning: "all: the GPUs share the processor's memory, which reaches what they allocate",
    },
    Variable {
        name: "HIP_EMU_STREAM_CREATE",
        default: "",
        meaning: "wait: creating a stream waits for held streams too, as allocating does",
    },
];

const MOST_DEVICES: usize = 32;
const MOST_QUEUES: usize = 64;
const MOST_COMMANDS: usize = 1_000_000;
/// Bytes a device may have: address space is plentiful, but not without end.
const MEMORY: core::ops::RangeInclusive<usize> = 1 << 20..=1 << 40;

/// The emulated machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of devices, 0 to 32.
    pub devices: usize,
    /// Bytes of memory of each device, 1 MiB to 1 TiB.
    pub memory: usize,
    /// Hardware queues of each device, 1 to 64.
    pub queues: usize,
    /// Commands that a hardware queue holds, 1 to 1,000,000. While it is full, who submits to it waits.
    pub queue_limit: usize,
    /// What `hipRuntimeGetVersion` reports: major * 10,000,000 + minor * 100,000 + patch.
    pub version: c_int,
    /// Functions that this runtime lacks.
    pub hide: Vec<String>,
    /// Faults in force from the start.
    pub faults: Vec<Rule>,
    /// The timed link, if copies are to be timed instead of made.
    pub link: Option<Link>,
    /// Whether file transfers take any file system.
    pub any_file_system: bool,
    /// Whether the GPUs share the processor's memory.
    pub integrated: bool,
    /// Whether creating a stream waits for the device's queued work.
    pub stream_create_waits: bool,
}

/// How fast the timed link is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second in each direction, above 0.
    pub bytes_per_second: f64,
    /// What every copy takes besides.
    pub latency: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            devices: 1,
            memory: 4 << 30,
            queues: 4,
            queue_limit: 256,
            version: 71_460_850,
            hide: Vec::new(),
            faults: Vec::new(),
            link: None,
            any_file_system: false,
            integrated: false,
            stream_create_waits: false,
        }
    }
}

impl Options {
    /// The options that the environment asks for.
    ///
    /// # Errors
    /// Which variable cannot be understood, its value, and what was expected.
    pub fn from_env() -> Result<Options, String> {
        #[allow(
            clippy::disallowed_methods,
            reason = "this file is the emulation's one reader of the environment"
        )]
        // A program with more rights than its caller does not listen to the caller.
        Self::from_lookup(|name| std::env::var(name).ok().filter(|_| !sys::is_set_user_id()))
    }

    /// As [`Options::from_env`], from any source of variables.
    ///
    /// # Errors
    /// As [`Options::from_env`].
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Options, String> {
        let mut options = Options::default();
        for variable in VARIABLES {
            let Some(value) = lookup(variable.name) else { continue };
            let value = value.trim();
            if !value.is_empty() {
                options.set(variable.name, value).map_err(|expected| {
                    format!("{}={value}: {expected} ({})", variable.name, variable.meaning)
                })?;
            }
        }
        Ok(options)
    }

    /// Whether the machine can be built.
    ///
    /// # Errors
    /// What is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Options { devices, memory, queues, queue_limit, .. } = self;
        if *devices > MOST_DEVICES
            || !(1..=MOST_QUEUES).contains(queues)
            || !(1..=MOST_COMMANDS).contains(queue_limit)
            || !MEMORY.contains(memory)
        {
            return Err(format!(
                "a machine of {devices} devices with {memory} bytes and {queues} queues of {queue_limit} commands each \
                 is out of range"
            ));
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "HIP_EMU_DEVICES" => self.devices = within(value, 0, MOST_DEVICES)?,
            "HIP_EMU_MEMORY" => self.memory = bytes(value)?,
            "HIP_EMU_QUEUES" => self.queues = within(value, 1, MOST_QUEUES)?,
            "HIP_EMU_QUEUE_LIMIT" => self.queue_limit = within(value, 1, MOST_COMMANDS)?,
            "HIP_EMU_VERSION" => self.version = version(value)?,
            "HIP_EMU_HIDE" => {
                self.hide = value.split(',').map(|name| known(name.trim())).collect::<Result<_, _>>()?;
            }
            "HIP_EMU_FAULT" => {
                self.faults =
                    value.split(',').map(|rule| fault::parse(rule.trim())).collect::<Result<_, _>>()?;
            }
            "HIP_EMU_LINK" => self.link = Some(link(value)?),
            "HIP_EMU_KNOWN_FS" if value == "all" => self.any_file_system = true,
            "HIP_EMU_INTEGRATED" if value == "all" => self.integrated = true,
            "HIP_EMU_STREAM_CREATE" if value == "wait" => self.stream_create_waits = true,
            _ => return Err("no such value".to_owned()),
        }
        Ok(())
    }
}

fn known(name: &str) -> Result<String, String> {
    let function = Function::by_name(name).ok_or_else(|| format!("no function is named {name}"))?;
    Ok(function.name().to_owned())
}

fn within(value: &str, least: usize, most: usize) -> Result<usize, String> {
    let number: usize = value.parse().map_err(|_| "not a number".to_owned())?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("not within {least} to {most}")) }
}

fn bytes(value: &str) -> Result<usize, String> {
    let (digits, unit) = match value.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&value[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&value[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&value[..at], 1 << 30),
        _ => (value, 1),
    };
    let number: usize = digits.parse().map_err(|_| "not a size".to_owned())?;
    match number.checked_mul(unit) {
        Some(size) if MEMORY.contains(&size) => Ok(size),
        _ => Err("not within 1M to 1024G".to_owned()),
    }
}

fn version(value: &str) -> Result<c_int, String> {
    const EXPECTED: &str = "not major.minor or major.minor.patch";
    let mut parts = [0; 3];
    let mut count = 0;
    for (at, part) in value.split('.').enumerate() {
        *parts.get_mut(at).ok_or(EXPECTED)? = part.parse::<c_int>().map_err(|_| EXPECTED)?;
        count += 1;
    }
    let [major, minor, patch] = parts;
    if count < 2 || !(0..200).contains(&major) || !(0..100).contains(&minor) || !(0..100_000).contains(&patch)
    {
        return Err(EXPECTED.to_owned());
    }
    Ok(major * 10_000_000 + minor * 100_000 + patch)
}

fn link(value: &str) -> Result<Link, String> {
    let (rate, latency) = value.split_once(',').unwrap_or((value, "0"));
    let rate: f64 = rate.trim().parse().map_err(|_| "the rate is not a number".to_owned())?;
    let latency: f64 = latency.trim().parse().map_err(|_| "the latency is not a number".to_owned())?;
    if !(rate > 0.0 && rate.is_finite() && (0.0..=1e9).contains(&latency)) {
        return Err("the rate must be above 0 and the latency within 0 to 1e9".to_owned());
    }
    Ok(Link { bytes_per_second: rate * 1e9, latency: Duration::from_secs_f64(latency * 1e-6) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, When};
    use gpu_sys::hip::HipError;

    fn with(name: &'static str, value: &'static str) -> Result<Options, String> {
        Options::from_lookup(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn every_variable_is_understood() {
        assert_eq!(with("HIP_EMU_DEVICES", "3").unwrap().devices, 3);
        assert_eq!(with("HIP_EMU_MEMORY", "64M").unwrap().memory, 64 << 20);
        assert_eq!(with("HIP_EMU_MEMORY", "2097152").unwrap().memory, 2 << 20);
        assert_eq!(with("HIP_EMU_QUEUES", "1").unwrap().queues, 1);
        assert_eq!(with("HIP_EMU_QUEUE_LIMIT", "16").unwrap().queue_limit, 16);
        assert_eq!(with("HIP_EMU_VERSION", "6.2").unwrap().version, 60_200_000);
        assert_eq!(with("HIP_EMU_VERSION", "5.2.21153").unwrap().version, 50_221_153);
        assert_eq!(with("HIP_EMU_HIDE", "hipGetProcAddress, hipMallocManaged").unwrap().hide.len(), 2);
        assert_eq!(
            with("HIP_EMU_LINK", "25,10").unwrap().link,
            Some(Link { bytes_per_second: 25e9, latency: Duration::from_micros(10) })
        );
        assert!(with("HIP_EMU_KNOWN_FS", "all").unwrap().any_file_system);
        assert!(with("HIP_EMU_INTEGRATED", "all").unwrap().integrated);
        assert!(with("HIP_EMU_STREAM_CREATE", "wait").unwrap().stream_create_waits);
        let faults = with("HIP_EMU_FAULT", "hipMemcpy:3:hipErrorUnknown,hipMalloc:*:2").unwrap().faults;
        assert_eq!(faults.len(), 2);
        assert_eq!(
            faults[0],
            Rule {
                function: Function::hipMemcpy,
                when: When::Nth(3),
                fault: Fault::Error(HipError::UNKNOWN)
            }
        );
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_by_name() {
        for (name, value) in [
            ("HIP_EMU_DEVICES", "33"),
            ("HIP_EMU_DEVICES", "one"),
            ("HIP_EMU_MEMORY", "0"),
            ("HIP_EMU_MEMORY", "99999999999999999999G"),
            ("HIP_EMU_QUEUES", "0"),
            ("HIP_EMU_QUEUE_LIMIT", "0"),
            ("HIP_EMU_VERSION", "7"),
            ("HIP_EMU_VERSION", "7.x"),
            ("HIP_EMU_HIDE", "hipMalloc,hipNothing"),
            ("HIP_EMU_FAULT", "hipMemcopy:1:1"),
            ("HIP_EMU_LINK", "0"),
            ("HIP_EMU_KNOWN_FS", "some"),
            ("HIP_EMU_INTEGRATED", "yes"),
            ("HIP_EMU_STREAM_CREATE", "never"),
        ] {
            let error = with(name, value).expect_err(name);
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_machine_that_cannot_be_built_is_refused() {
        assert!(Options::default().check().is_ok());
        assert!(Options { queues: 0, ..Options::default() }.check().is_err());
        assert!(Options { devices: 33, ..Options::default() }.check().is_err());
        assert!(Options { memory: 1, ..Options::default() }.check().is_err());
    }

    #[test]
    fn nothing_set_or_set_to_nothing_is_the_default() {
        let options = Options::from_lookup(|_| Some(String::new())).unwrap();
        assert_eq!((options.devices, options.queues, options.version), (1, 4, 71_460_850));
    }
}
