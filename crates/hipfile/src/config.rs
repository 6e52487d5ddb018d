//! What can be set, from defaults and the environment. The only reader of environment variables; it decides nothing
//! by itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::notice;

/// Which GPU runtime to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// Any real runtime that loads and finds a GPU.
    #[default]
    Auto,
    /// HIP only.
    Hip,
    /// CUDA only.
    Cuda,
    /// The emulated GPU.
    Emulated,
}

/// What to do when a transfer cannot go straight between storage and GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fallback {
    /// Stage it through host memory, silently.
    #[default]
    Allow,
    /// Stage it, and say so once per reason on standard error.
    Warn,
    /// Refuse it before anything moves.
    Forbid,
}

/// On which files direct access is measured against staging, so that the faster of the two is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Adaptive {
    /// On none: what can go direct does.
    #[default]
    Off,
    /// On those of network file systems.
    Network,
    /// On all.
    All,
}

/// What synchronous copies wait for before they touch the GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// Work already on the legacy default stream, as blocking copies of the runtime do.
    #[default]
    Stream,
    /// All work already on the device.
    Device,
}

/// How staged transfers treat the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PageCache {
    /// By what is so: resident data is read from the cache, large cold reads and large writes go around it, small
    /// ones and file systems that are better with it use it.
    #[default]
    Auto,
    /// Around the cache wherever the file has O_DIRECT.
    Direct,
    /// Through the cache.
    Buffered,
    /// Around the cache where the file has O_DIRECT; otherwise through it, leaving nothing behind.
    NoCache,
}

/// When written data is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WriteSync {
    /// When the caller syncs the descriptor.
    #[default]
    None,
    /// Before each write call returns (one fdatasync per call).
    Data,
}

/// Settings of a [`Driver`](crate::Driver), frozen when it opens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which GPU runtime to use.
    pub device: DeviceChoice,
    /// The HIP runtime to load, instead of the usual names.
    pub hip_library: Option<PathBuf>,
    /// Where ROCm is installed, looked into after the usual names.
    pub rocm_path: Option<PathBuf>,
    /// What to do without a direct path.
    pub fallback: Fallback,
    /// Leaves the direct engines out (AMD's name for this is forced compatibility mode).
    pub force_compat: bool,
    /// Lets the direct engines try files of any file system, also of those they are not known to serve.
    pub unsupported_file_systems: bool,
    /// Where direct access is measured against staging, by file and direction, and the faster is taken.
    pub adaptive: Adaptive,
    /// The engines that may serve, by name; `None` means all but `null`.
    pub engines: Option<Vec<String>>,
    /// What synchronous copies wait for.
    pub order: Order,
    /// When written data is made durable.
    pub write_sync: WriteSync,
    /// Whether host memory may be read into and written from.
    pub allow_system_memory: bool,
    /// How staged transfers treat the page cache; a file can have a setting of its own.
    pub page_cache: PageCache,
    /// Bytes from which a staged transfer goes around the page cache (with [`PageCache::Auto`]).
    pub direct_min: usize,
    /// Bytes from which a staged transfer that goes around the page cache uses io_uring.
    pub uring_min: usize,
    /// Bytes from which copies out of the page cache use several threads.
    pub parallel_min: usize,
    /// Requests of one transfer in flight at the storage; 1 to 64.
    pub queue_depth: usize,
    /// Threads that copy for one transfer, the caller's among them; 1 to 64.
    pub io_threads: usize,
    /// Bytes of one staging Block; a multiple of 4096, 64 KiB to 64 MiB.
    pub block_len: usize,
    /// Most bytes of staging memory; at least one Block.
    pub pool_len: usize,
    /// How long staging memory is kept without need; `None` for ever.
    pub pool_idle: Option<Duration>,
    /// Bytes of staging memory for streams alone; at least one Block. A stream with work queued has one Block of it.
    pub stream_len: usize,
    /// After how long without progress a call that waits for a batch says on standard error what it waits for; `None` for
    /// never.
    pub wait_notice: Option<Duration>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            device: DeviceChoice::Auto,
            hip_library: None,
            rocm_path: None,
            fallback: Fallback::Allow,
            force_compat: false,
            unsupported_file_systems: false,
            adaptive: Adaptive::Off,
            engines: None,
            order: Order::Stream,
            write_sync: WriteSync::None,
            allow_system_memory: false,
            page_cache: PageCache::Auto,
            // Kernel read-ahead wins below 256 KiB, going around the cache from 1 MiB on (docs/benchmarks.md).
            direct_min: 512 << 10,
            // Up to here one plain read is as good as a ring.
            uring_min: 2 << 20,
            // A thread is woken in about the time in which 1 MiB is copied.
            parallel_min: 4 << 20,
            // 1 MiB times 4 is at or near the best of every combination measured.
            queue_depth: 4,
            // Eight copying threads reach a PCIe 5 link; more only cost processor time.
            io_threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(8)),
            // The knee of chunk times depth lies at 1 to 2 MiB, and copies of 1 MiB still fit the second-level cache.
            block_len: 1 << 20,
            pool_len: 64 << 20,
            pool_idle: Some(Duration::from_secs(10)),
            stream_len: 32 << 20,
            wait_notice: Some(Duration::from_secs(10)),
        }
    }
}

/// One setting: its environment variable and how it is read.
#[derive(Debug)]
pub struct Setting {
    /// The environment variable.
    pub variable: &'static str,
    /// Values it takes.
    pub values: &'static str,
    /// Its default.
    pub default: &'static str,
    /// What it does.
    pub text: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Every setting, in the order in which they are applied.
pub const SETTINGS: &[Setting] = &[
    Setting {
        variable: "HIPFILE_DEVICE",
        values: "auto, hip, cuda, emulated",
        default: "auto",
        text: "GPU runtime. `emulated` is served by the built-in emulated GPU when no libamdhip64 is there.",
        set: |c, v| {
            c.device = pick(
                v,
                &[
                    ("auto", DeviceChoice::Auto),
                    ("hip", DeviceChoice::Hip),
                    ("cuda", DeviceChoice::Cuda),
                    ("emulated", DeviceChoice::Emulated),
                ],
            )?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_HIP_LIBRARY",
        values: "a path",
        default: "unset",
        text: "The HIP runtime to load instead of the one in the process or libamdhip64.so.7, .6, .so.",
        set: |c, v| {
            c.hip_library = Some(PathBuf::from(v));
            Ok(())
        },
    },
    Setting {
        variable: "ROCM_PATH",
        values: "a path",
        default: "unset",
        text: "Where ROCm is installed; its lib folder is looked into after the usual names.",
        set: |c, v| {
            c.rocm_path = (!v.is_empty()).then(|| PathBuf::from(v));
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_FORCE_COMPAT_MODE",
        values: "a boolean",
        default: "false",
        text: "True leaves the direct engines out, so that every transfer is staged through host memory.",
        set: |c, v| {
            c.force_compat = boolean(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_ALLOW_COMPAT_MODE",
        values: "a boolean",
        default: "true",
        text: "False is the same as HIPFILE_FALLBACK=forbid.",
        set: |c, v| {
            c.fallback = if boolean(v)? { Fallback::Allow } else { Fallback::Forbid };
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_UNSUPPORTED_FILE_SYSTEMS",
        values: "a boolean",
        default: "false",
        text: "True lets the direct engines try any file system; each process that sets it says so.",
        set: |c, v| {
            c.unsupported_file_systems = boolean(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_FALLBACK",
        values: "allow, warn, forbid",
        default: "allow",
        text: "What to do without a direct path: stage through host memory, say so once per reason, or refuse.",
        set: |c, v| {
            c.fallback = pick(
                v,
                &[("allow", Fallback::Allow), ("warn", Fallback::Warn), ("forbid", Fallback::Forbid)],
            )?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_ADAPTIVE",
        values: "off, network, all",
        default: "off",
        text: "Files whose large transfers are measured both ways, direct and staged, and take the faster: none, those of network file systems, all.",
        set: |c, v| {
            c.adaptive =
                pick(v, &[("off", Adaptive::Off), ("network", Adaptive::Network), ("all", Adaptive::All)])?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_ENGINES",
        values: "names, separated by commas",
        default: "all but null",
        text: "The engines that may serve.",
        set: |c, v| {
            let names: Vec<String> = v.split(',').map(|n| n.trim().to_ascii_lowercase()).collect();
            for name in &names {
                if !crate::config::ENGINE_NAMES.contains(&name.as_str()) {
                    return Err(format!("no engine is called {name:?}"));
                }
            }
            c.engines = Some(names);
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_ORDER",
        values: "stream, device",
        default: "stream",
        text: "What synchronous calls wait for: work on the legacy default stream, or all work of the device.",
        set: |c, v| {
            c.order = pick(v, &[("stream", Order::Stream), ("device", Order::Device)])?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_WRITE_SYNC",
        values: "none, data",
        default: "none",
        text: "`data` makes each write durable before the call returns.",
        set: |c, v| {
            c.write_sync = pick(v, &[("none", WriteSync::None), ("data", WriteSync::Data)])?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_ALLOW_SYSTEM_MEMORY",
        values: "a boolean",
        default: "false",
        text: "Whether host memory, pinned or plain, may be given as a buffer.",
        set: |c, v| {
            c.allow_system_memory = boolean(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_PAGE_CACHE",
        values: "auto, direct, buffered, no-cache",
        default: "auto",
        text: "How staged transfers treat the page cache.",
        set: |c, v| {
            c.page_cache = pick(
                v,
                &[
                    ("auto", PageCache::Auto),
                    ("direct", PageCache::Direct),
                    ("buffered", PageCache::Buffered),
                    ("no-cache", PageCache::NoCache),
                ],
            )?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_DIRECT_MIN",
        values: "bytes, K, M or G",
        default: "512K",
        text: "Size from which a staged transfer goes around the page cache (page cache setting `auto`).",
        set: |c, v| {
            c.direct_min = size(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_URING_MIN",
        values: "bytes, K, M or G",
        default: "2M",
        text: "Size from which a staged transfer that goes around the page cache uses io_uring.",
        set: |c, v| {
            c.uring_min = size(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_PARALLEL_MIN",
        values: "bytes, K, M or G",
        default: "4M",
        text: "Size from which copies out of the page cache use several threads.",
        set: |c, v| {
            c.parallel_min = size(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_QUEUE_DEPTH",
        values: "1 to 64",
        default: "4",
        text: "Requests of one transfer in flight at the storage.",
        set: |c, v| {
            c.queue_depth = count(v, 64)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_IO_THREADS",
        values: "1 to 64",
        default: "the processors, at most 8",
        text: "Threads that copy for one transfer, the caller's among them.",
        set: |c, v| {
            c.io_threads = count(v, 64)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_BLOCK_SIZE",
        values: "bytes, K, M or G; 64K to 64M, a multiple of 4K",
        default: "1M",
        text: "Size of one staging Block.",
        set: |c, v| {
            let len = size(v)?;
            if !(64 << 10..=64 << 20).contains(&len) || !len.is_multiple_of(4096) {
                return Err("it must be a multiple of 4K from 64K to 64M".into());
            }
            c.block_len = len;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_POOL_SIZE",
        values: "bytes, K, M or G; at least one Block",
        default: "64M",
        text: "Most bytes of staging memory. Transfers wait in turn when it is used up; they never fail for it.",
        set: |c, v| {
            c.pool_len = size(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_POOL_IDLE",
        values: "seconds; 0 for never",
        default: "10",
        text: "After this long without need staging memory is given back, all but the first 4 MiB.",
        set: |c, v| {
            c.pool_idle = seconds(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_STREAM_MEMORY",
        values: "bytes, K, M or G; at least one Block",
        default: "32M",
        text: "Staging memory for streams alone: one Block for each stream with work queued. A stream that finds none is refused.",
        set: |c, v| {
            c.stream_len = size(v)?;
            Ok(())
        },
    },
    Setting {
        variable: "HIPFILE_WAIT_NOTICE",
        values: "seconds; 0 for never",
        default: "10",
        text: "After this long without progress a call that waits for a batch says on stderr which file and engine it waits for.",
        set: |c, v| {
            c.wait_notice = seconds(v)?;
            Ok(())
        },
    },
];

/// Names HIPFILE_ENGINES takes; a test holds them equal to the engines' own.
pub const ENGINE_NAMES: &[&str] = &["p2p", "uring", "bounce", "null"];

impl Config {
    /// Defaults, then the environment. A value that cannot be understood gives one line on standard error naming
    /// the variable and is otherwise ignored. In a set-user-ID program the environment is not honoured.
    pub fn from_env() -> Config {
        if crate::sys::is_set_user_id() {
            return Config::default();
        }
        let (config, warnings) = Config::from_lookup(read_variable);
        for warning in warnings {
            notice::line(format_args!("{warning}"));
        }
        config
    }

    /// As [`Config::from_env`], with any source of values; the warnings come back.
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> (Config, Vec<String>) {
        let mut config = Config::default();
        let mut warnings = Vec::new();
        for setting in SETTINGS {
            let Some(value) = lookup(setting.variable) else {
                continue;
            };
            let result = match value.to_str() {
                Some(text) => (setting.set)(&mut config, text.trim()),
                None => Err("it is not valid UTF-8".into()),
            };
            if let Err(why) = result {
                warnings.push(format!(
                    "{}={value:?} is ignored: {why} (values: {}; default: {})",
                    setting.variable, setting.values, setting.default
                ));
            }
        }
        if config.force_compat && config.fallback == Fallback::Forbid {
            // Every transfer would be refused, which nobody can have meant.
            config.fallback = Fallback::Allow;
            warnings.push(
                "compatibility mode is both forced and forbidden: transfers are staged through host memory"
                    .into(),
            );
        }
        if config.unsupported_file_systems {
            warnings.push(
                "HIPFILE_UNSUPPORTED_FILE_SYSTEMS is set: direct access is tried on file systems it is not known to \
                 be safe on"
                    .into(),
            );
        }
        for (variable, len) in
            [("HIPFILE_POOL_SIZE", &mut config.pool_len), ("HIPFILE_STREAM_MEMORY", &mut config.stream_len)]
        {
            // A large Block alone is reason enough to need more than the default: only what was asked for is a mistake.
            let asked = lookup(variable).filter(|_| *len < config.block_len);
            if let Some(value) = asked {
                warnings.push(format!(
                    "{variable}={value:?} is less than one Block: {} bytes are used",
                    config.block_len
                ));
            }
            *len = config.block_len.max(*len);
        }
        (config, warnings)
    }
}

#[allow(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
fn read_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn pick<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(value))
        .map(|(_, choice)| *choice)
        .ok_or_else(|| "it is none of the values".into())
}

fn boolean(value: &str) -> Result<bool, String> {
    pick(
        value,
        &[
            ("true", true),
            ("1", true),
            ("yes", true),
            ("on", true),
            ("false", false),
            ("0", false),
            ("no", false),
            ("off", false),
        ],
    )
    .map_err(|_| "it is not a boolean (true/false, 1/0, yes/no, on/off)".into())
}

/// A number from 1 to `most`.
fn count(value: &str, most: usize) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("it is not a number from 1 to {most}")),
    }
}

/// A time; none for 0.
fn seconds(value: &str) -> Result<Option<Duration>, String> {
    let seconds: u32 = value.parse().map_err(|_| "it is not a number of seconds")?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.into())))
}

/// A number of bytes: digits, then K, M or G (powers of 1024), in either case.
fn size(value: &str) -> Result<usize, String> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("it is not a number of bytes".into());
    }
    let number: usize = digits.parse().map_err(|_| "the number is too large")?;
    number.checked_mul(1 << shift).ok_or_else(|| "the number is too large".into())
}

#[cfg(test)]
mod tests;
