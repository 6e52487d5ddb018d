//! What can be set, from defaults, a file, the environment and calls. The only reader of environment variables; it decides
//! nothing by itself. The table of settings is in `settings`.

mod file;
mod misspelt;
mod settings;
mod value;

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::notice;
use crate::sys::{self, Site};
pub use settings::{SETTINGS, Setting};
use value::words;
pub use value::{Invalid, Kind, Unit, Value};

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
    /// The emulated GPU, by HIP.
    Emulated,
    /// The emulated GPU, by CUDA.
    EmulatedCuda,
}

impl DeviceChoice {
    /// Whether it is the emulated GPU, by whatever functions.
    pub fn is_emulated(self) -> bool {
        matches!(self, DeviceChoice::Emulated | DeviceChoice::EmulatedCuda)
    }
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
    /// Nothing: who uses the memory has waited for that.
    Off,
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

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// And what deserves attention.
    #[default]
    Warn,
    /// And what happened.
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}

words! {
    DeviceChoice: "auto" = Auto, "hip" = Hip, "cuda" = Cuda, "emulated" = Emulated,
        "emulated-cuda" = EmulatedCuda;
    Fallback: "allow" = Allow, "warn" = Warn, "forbid" = Forbid;
    Adaptive: "off" = Off, "network" = Network, "all" = All;
    Order: "stream" = Stream, "device" = Device, "off" = Off;
    PageCache: "auto" = Auto, "direct" = Direct, "buffered" = Buffered, "no-cache" = NoCache;
    WriteSync: "none" = None, "data" = Data;
    LogLevel: "off" = Off, "error" = Error, "warn" = Warn, "info" = Info, "debug" = Debug, "trace" = Trace;
}

/// Settings of a [`Driver`](crate::Driver), frozen when it opens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which GPU runtime to use.
    pub device: DeviceChoice,
    /// Whether the emulated GPU serves, with a line on standard error, where [`DeviceChoice::Auto`] finds no real one. For
    /// programs that are to run anywhere; no setting.
    pub emulated_without_gpu: bool,
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
    /// Takes [`PageCache::Direct`] wherever the page cache setting is [`PageCache::Auto`].
    pub force_o_direct: bool,
    /// Whether the p2p engine may serve.
    pub use_p2p: bool,
    /// Lets io_uring carry staged transfers of any size that go around the page cache.
    pub prefer_io_uring: bool,
    /// Most bytes of one piece of a direct transfer; a multiple of 64 KiB. Live.
    pub direct_max: usize,
    /// Bytes from which a staged transfer goes around the page cache (with [`PageCache::Auto`]).
    pub direct_min: usize,
    /// Bytes from which a staged transfer that goes around the page cache uses io_uring.
    pub uring_min: usize,
    /// Bytes from which copies out of the page cache use several threads.
    pub parallel_min: usize,
    /// Bytes from which a write into a file in memory (tmpfs) is copied into a mapping of it, by several threads.
    pub mapped_min: usize,
    /// Threads that share such a write, the caller's among them, up to 64; 1 for plain writes. 0 for twice
    /// [`Config::io_threads`] but at most the processors, or plain writes where that is fewer than 4.
    pub mapped_threads: usize,
    /// Requests of one transfer in flight at the storage; 1 to 128.
    pub queue_depth: usize,
    /// Threads that copy for large transfers, the caller's among them; 1 to 64.
    pub io_threads: usize,
    /// Most of them that one transfer takes; 1 to 64.
    pub request_parallelism: usize,
    /// Whether a transfer takes more than one.
    pub parallel_io: bool,
    /// Bytes of one staging Block; a multiple of 4096, 64 KiB to 64 MiB.
    pub block_len: usize,
    /// Most bytes of staging memory; at least one Block. Live.
    pub pool_len: usize,
    /// Most bytes of pinned memory, that of streams included; at least two Blocks. Live.
    pub pinned_max: usize,
    /// How long staging memory is kept without need; `None` for ever.
    pub pool_idle: Option<Duration>,
    /// Bytes of staging memory for streams alone; at least one Block. A stream with work queued has one Block of it, one with
    /// large reads more.
    pub stream_len: usize,
    /// After how long without progress a call that waits for a batch says on standard error what it waits for; `None` for
    /// never.
    pub wait_notice: Option<Duration>,
    /// Most entries of one batch; 1 to 4096.
    pub batch_size: usize,
    /// After how long an entry of a batch that has not started ends without having run; `None` for never.
    pub batch_timeout: Option<Duration>,
    /// Whether small transfers are waited for by looking again and again. Live.
    pub poll: bool,
    /// Largest such transfer in bytes; a multiple of 4 KiB. Live.
    pub poll_max: usize,
    /// Leaves the machine's topology alone: no memory node is preferred for a GPU.
    pub skip_topology: bool,
    /// Holds streams without their memory operations.
    pub bypass_memops: bool,
    /// How much is counted, 0 to 3.
    pub stats_level: usize,
    /// How much is logged.
    pub log_level: LogLevel,
    /// The file that is logged to, instead of standard error.
    pub log_file: Option<PathBuf>,
    /// The folder for a log file without a folder of its own.
    pub log_dir: Option<PathBuf>,
    /// Has no effect.
    pub check_aggressively: bool,
    /// Has no effect.
    pub profile_nvtx: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            device: DeviceChoice::Auto,
            emulated_without_gpu: false,
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
            force_o_direct: false,
            use_p2p: true,
            prefer_io_uring: false,
            // More than one call may move.
            direct_max: 2 << 30,
            // Kernel read-ahead wins below 256 KiB, going around the cache from 1 MiB on (docs/benchmarks.md).
            direct_min: 512 << 10,
            // Up to here one plain read is as good as a ring.
            uring_min: 2 << 20,
            // A thread is woken in about the time in which 1 MiB is copied.
            parallel_min: 1 << 20,
            // Below it each thread has too little to do.
            mapped_min: 8 << 20,
            mapped_threads: 0,
            // 1 MiB times 4 is at or near the best of every combination measured.
            queue_depth: 4,
            io_threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(8)),
            request_parallelism: 64,
            parallel_io: true,
            // The knee of chunk times depth lies at 1 to 2 MiB, and copies of 1 MiB still fit the second-level cache.
            block_len: 1 << 20,
            pool_len: 64 << 20,
            pinned_max: 16 << 40,
            pool_idle: Some(Duration::from_secs(10)),
            // Half of it is for large reads. On an H200 four streams with such read 34 GB/s with 64 MiB and 43 with this, one 37
            // and 41; twice as much brought no more.
            stream_len: 128 << 20,
            wait_notice: Some(Duration::from_secs(10)),
            batch_size: 4096,
            batch_timeout: None,
            poll: false,
            poll_max: 4 << 10,
            skip_topology: false,
            bypass_memops: false,
            stats_level: 1,
            log_level: LogLevel::Warn,
            log_file: None,
            log_dir: None,
            check_aggressively: false,
            profile_nvtx: false,
        }
    }
}

/// Names HIPFILE_ENGINES takes; a test holds them equal to the engines' own.
pub const ENGINE_NAMES: &[&str] = &["p2p", "uring", "bounce", "null", "userspace", "cufile", "rdma"];

/// The variable that names the configuration file.
const FILE_VARIABLE: &str = "HIPFILE_CONFIG";
/// Longest configuration file, in bytes.
const FILE_MAX: u64 = 1 << 20;

impl Setting {
    /// Whether its variable is set, and heeded.
    pub fn is_in_environment(&self) -> bool {
        !crate::sys::is_set_user_id() && read_variable(self.variable).is_some()
    }
}

impl Config {
    /// Defaults, then the configuration file that `HIPFILE_CONFIG` names, then the environment. What cannot be understood
    /// gives one line on standard error and is otherwise ignored. A set-user-ID program gets the defaults.
    pub fn from_env() -> Config {
        Config::from_env_and(&[])
    }

    /// As [`Config::from_env`], then what calls have set. The values must have passed [`Setting::check`].
    pub fn from_env_and(calls: &[(&'static Setting, Value)]) -> Config {
        let (config, warnings) = Config::gather(calls);
        for warning in warnings {
            notice::line(format_args!("{warning}"));
        }
        config
    }

    /// As [`Config::from_env_and`], with the warnings instead of lines on standard error.
    pub fn gather(calls: &[(&'static Setting, Value)]) -> (Config, Vec<String>) {
        match crate::sys::is_set_user_id() {
            true => Config::layers(|_| None, calls),
            false => {
                let (config, mut warnings) = Config::layers(read_variable, calls);
                warnings.extend(misspelt::warnings(std::env::vars_os().map(|(name, _)| name)));
                (config, warnings)
            }
        }
    }

    #[cfg(any(test, fuzzing, debug_assertions))]
    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> (Config, Vec<String>) {
        Config::layers(lookup, &[])
    }

    /// Each layer over the one before, from any source of variables; the warnings come back.
    fn layers(
        lookup: impl Fn(&str) -> Option<OsString>,
        calls: &[(&'static Setting, Value)],
    ) -> (Config, Vec<String>) {
        let mut config = Config::default();
        let mut warnings = Vec::new();
        if let Some(path) = lookup(FILE_VARIABLE).filter(|path| !path.is_empty()) {
            config.read_file(&PathBuf::from(path), &mut warnings);
        }
        for setting in SETTINGS {
            let Some(value) = lookup(setting.variable) else { continue };
            let result = match value.to_str() {
                Some(text) => setting.set_text(&mut config, text.trim()),
                None => Err(Invalid::Kind("it is not valid UTF-8".into())),
            };
            if let Err(why) = result {
                warnings.push(format!(
                    "{}={value:?} is ignored: {why} ({})",
                    setting.variable,
                    setting.legal()
                ));
            }
        }
        for (setting, value) in calls {
            if let Err(why) = setting.set(&mut config, value) {
                warnings.push(format!("{} = {value} is ignored: {why} ({})", setting.name, setting.legal()));
            }
        }
        config.settle(&mut warnings);
        (config, warnings)
    }

    fn read_file(&mut self, path: &Path, warnings: &mut Vec<String>) {
        let shown = path.display();
        let bytes = match read_file(path) {
            Ok(bytes) => bytes,
            Err(error) => return warnings.push(format!("{FILE_VARIABLE}={shown} is ignored: {error}")),
        };
        let Ok(text) = String::from_utf8(bytes) else {
            return warnings.push(format!("{FILE_VARIABLE}={shown} is ignored: it is not UTF-8 text"));
        };
        for file::Line { number, key, value } in file::lines(&text) {
            let mut warn = |why: &dyn std::fmt::Display| {
                warnings.push(format!("{shown}:{number}: {key} is ignored: {why}"));
            };
            let Some(setting) = Setting::named(&key) else {
                // A line that is no setting at all is better told so.
                match value {
                    Err(why) if !key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => warn(&why),
                    _ => warn(&"there is no such setting"),
                }
                continue;
            };
            match value {
                Err(why) => warn(&why),
                Ok(text) => {
                    if let Err(why) = setting.set_text(self, &text) {
                        warn(&format_args!("{text:?}: {why} ({})", setting.legal()));
                    }
                }
            }
        }
    }

    /// How staged transfers treat the page cache where the file has no setting of its own.
    pub fn default_page_cache(&self) -> PageCache {
        match self.page_cache {
            PageCache::Auto if self.force_o_direct => PageCache::Direct,
            setting => setting,
        }
    }

    /// Most bytes of staging memory beside so many for streams.
    pub(crate) fn pool_max(&self, streams: usize) -> usize {
        self.pool_len.min(self.pinned_max.saturating_sub(streams)).max(self.block_len)
    }

    /// Most bytes of staging memory for streams.
    pub(crate) fn stream_max(&self) -> usize {
        self.stream_len.min(self.pinned_max / 2).max(self.block_len)
    }

    /// Most threads that copy for one transfer, the caller's among them.
    pub fn threads_per_request(&self) -> usize {
        if self.parallel_io { self.request_parallelism.min(self.io_threads) } else { 1 }
    }

    /// Threads that share a large write into a file in memory, the caller's among them; 1 where none is shared.
    pub(crate) fn threads_per_mapped_write(&self) -> usize {
        let threads = match self.mapped_threads {
            0 => {
                mapped_threads(self.io_threads, std::thread::available_parallelism().map_or(1, NonZero::get))
            }
            threads => threads,
        };
        if self.parallel_io { threads.min(self.request_parallelism) } else { 1 }
    }

    /// Most threads that copy for large transfers beside their callers'.
    pub(crate) fn helpers(&self) -> usize {
        self.io_threads.max(self.threads_per_mapped_write()) - 1
    }

    /// Most threads that fill for one transfer of a stream. Some of them wait for storage.
    pub(crate) fn threads_ahead(&self) -> usize {
        if self.parallel_io { self.threads_per_request().max(4) } else { 1 }
    }

    /// Whether the live settings agree with those that are frozen.
    pub(crate) fn check_live(&self) -> Result<(), Invalid> {
        let block = self.block_len;
        if self.pool_len < block {
            let why = format!("{} bytes are less than one Block of {block}", self.pool_len);
            return Err(Invalid::Range(why));
        }
        if self.pinned_max < 2 * block {
            let why = format!("{} bytes are less than two Blocks of {block}", self.pinned_max);
            return Err(Invalid::Range(why));
        }
        Ok(())
    }

    /// Makes settings agree that cannot stand beside each other.
    fn settle(&mut self, warnings: &mut Vec<String>) {
        if self.force_compat && self.fallback == Fallback::Forbid {
            // Every transfer would be refused, which nobody can have meant.
            self.fallback = Fallback::Allow;
            warnings.push(
                "compatibility mode is both forced and forbidden: transfers are staged through host memory"
                    .into(),
            );
        }
        if self.unsupported_file_systems {
            warnings.push(
                "HIPFILE_UNSUPPORTED_FILE_SYSTEMS is set: direct access is tried on file systems it is not known to \
                 be safe on"
                    .into(),
            );
        }
        let usual = Config::default();
        let (block, pair) = (self.block_len, 2 * self.block_len);
        for (name, len, usual, least, words) in [
            ("pool_size", &mut self.pool_len, usual.pool_len, block, "one Block"),
            ("stream_memory", &mut self.stream_len, usual.stream_len, block, "one Block"),
            ("max_pinned", &mut self.pinned_max, usual.pinned_max, pair, "two Blocks"),
        ] {
            // A large Block alone is reason enough to need more than the default: only what was asked for is a mistake.
            if *len < least && *len != usual {
                let variable = Setting::named(name).map_or(name, |setting| setting.variable);
                warnings.push(format!("{variable}: {len} bytes are less than {words}, so {least} are used"));
            }
            *len = least.max(*len);
        }
    }
}

/// How many threads share a large write into a file in memory where that is not set. The kernel's page faults are most of
/// their work: with 12 of an H200's 16 processors it is 0.53 of the link, with 16 it is 0.64, for a tenth more processor time;
/// with 2 of 2 it was a fifth faster than a plain write, for half as much more (docs/design/0002-files-in-memory.md).
fn mapped_threads(io_threads: usize, processors: usize) -> usize {
    match (io_threads * 2).min(processors).min(64) {
        0..4 => 1,
        threads => threads,
    }
}

/// The bytes of a regular file; opening anything else could wait for ever.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    sys::at(Site::ConfigFile, || std::fs::File::open(path))?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(io::Error::other("it is too large")),
        false => Ok(bytes),
    }
}

#[allow(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
fn read_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests;
