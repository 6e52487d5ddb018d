//! The table of settings: what each is called, takes, is by default and does. The environment page, the checker's list and
//! the C interface's parameters come from it; the numbers of the C interface do not occur here.

use super::value::Field;
use super::{
    Adaptive, Config, DeviceChoice, ENGINE_NAMES, Fallback, Invalid, Kind, LogLevel, Order, PageCache, Unit,
    Value, WriteSync,
};

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name, also in a configuration file.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// The name in the C interface, if it has one there. Its numbers of bytes are in KiB.
    pub parameter: Option<&'static str>,
    /// What it takes.
    pub kind: Kind,
    /// Its default.
    pub default: &'static str,
    /// Whether it can be changed while the driver is open.
    pub live: bool,
    /// Whether it does anything; one that does not is kept for programs that set it.
    pub effect: bool,
    /// What it does.
    pub text: &'static str,
    get: fn(&Config) -> Value,
    put: fn(&mut Config, &Value),
}

impl Setting {
    /// The setting with this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The value in a configuration.
    pub fn get(&self, config: &Config) -> Value {
        (self.get)(config)
    }

    /// Whether a value is legal.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, value: &Value) -> Result<(), Invalid> {
        self.kind.check(value)
    }

    /// Sets it.
    ///
    /// # Errors
    /// Why the value is not legal; nothing is set then.
    pub fn set(&self, config: &mut Config, value: &Value) -> Result<(), Invalid> {
        self.check(value)?;
        (self.put)(config, value);
        Ok(())
    }

    /// Sets it to what people write.
    pub(super) fn set_text(&self, config: &mut Config, text: &str) -> Result<(), Invalid> {
        self.set(config, &self.kind.parse(text)?)
    }

    /// What is legal and usual, in words.
    pub(super) fn legal(&self) -> String {
        format!("values: {}; default: {}", self.kind.values(), self.default)
    }

    const fn parameter(mut self, name: &'static str) -> Setting {
        self.parameter = Some(name);
        self
    }

    const fn live(mut self) -> Setting {
        self.live = true;
        self
    }

    const fn no_effect(mut self) -> Setting {
        self.effect = false;
        self
    }
}

/// Anything that fits into memory.
const BYTES: Kind = Kind::Number { unit: Unit::Bytes, min: 0, max: 1 << 44, step: 1 };
const SECONDS: Kind = Kind::Number { unit: Unit::Seconds, min: 0, max: u32::MAX as u64, step: 1 };

const fn bytes(min: u64, max: u64, step: u64) -> Kind {
    Kind::Number { unit: Unit::Bytes, min, max, step }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Number { unit: Unit::Count, min, max, step: 1 }
}

/// A row whose value is a field of the configuration.
macro_rules! row {
    ($name:literal, $variable:literal, $kind:expr, $default:literal, $field:ident, $text:literal) => {
        row!($name, $variable, $kind, $default, (|c| c.$field.value()), (|c, v| c.$field.put(v)), $text)
    };
    ($name:literal, $variable:literal, $kind:expr, $default:literal, ($get:expr), ($put:expr), $text:literal) => {
        Setting {
            name: $name,
            variable: $variable,
            parameter: None,
            kind: $kind,
            default: $default,
            live: false,
            effect: true,
            text: $text,
            get: $get,
            put: $put,
        }
    };
}

/// Every setting, in the order in which they are applied.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row!("device", "HIPFILE_DEVICE", Kind::Word(DeviceChoice::WORDS), "auto", device,
        "GPU runtime. `emulated` is served by the built-in emulated GPU when no libamdhip64 is there, `emulated-cuda` by the same under CUDA's functions. `auto` takes what the process uses, else what is installed, HIP first."),
    row!("hip_library", "HIPFILE_HIP_LIBRARY", Kind::Path, "unset", hip_library,
        "The HIP runtime to load instead of the one in the process or libamdhip64.so.7, .6, .so."),
    row!("rocm_path", "ROCM_PATH", Kind::Path, "unset", rocm_path,
        "Where ROCm is installed; its lib folder is looked into after the usual names."),
    row!("force_compat_mode", "HIPFILE_FORCE_COMPAT_MODE", Kind::Bool, "false", force_compat,
        "True leaves the direct engines out, so that every transfer is staged through host memory, also with HIPFILE_FALLBACK=forbid.")
        .parameter("hipFileParamForceCompatMode"),
    row!("allow_compat_mode", "HIPFILE_ALLOW_COMPAT_MODE", Kind::Bool, "true",
        (|c| Value::Bool(c.fallback != Fallback::Forbid)),
        (|c, v| match v {
            Value::Bool(false) => c.fallback = Fallback::Forbid,
            _ if c.fallback == Fallback::Forbid => c.fallback = Fallback::Allow,
            _ => {}
        }),
        "False is the same as HIPFILE_FALLBACK=forbid.")
        .parameter("hipFileParamPropertiesAllowCompatMode"),
    row!("unsupported_file_systems", "HIPFILE_UNSUPPORTED_FILE_SYSTEMS", Kind::Bool, "false", unsupported_file_systems,
        "True lets the direct engines try any file system; each process that sets it says so."),
    row!("fallback", "HIPFILE_FALLBACK", Kind::Word(Fallback::WORDS), "allow", fallback,
        "What to do without a direct path: stage through host memory, say so once per reason, or refuse."),
    row!("adaptive", "HIPFILE_ADAPTIVE", Kind::Word(Adaptive::WORDS), "off", adaptive,
        "Files whose large transfers are measured both ways, direct and staged, and take the faster: none, those of network file systems, all."),
    row!("engines", "HIPFILE_ENGINES", Kind::Words(ENGINE_NAMES), "p2p,cufile,uring,bounce",
        (|c| Value::Text(c.engines.as_ref().map_or("p2p,cufile,uring,bounce".to_owned(), |names| names.join(",")))),
        (|c, v| if let Value::Text(text) = v {
            c.engines = Some(text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect());
        }),
        "The engines that may serve."),
    row!("use_p2p", "HIPFILE_USE_P2P", Kind::Bool, "true", use_p2p,
        "False leaves the p2p engine out, and lets the cufile engine serve where nvidia-fs is loaded only.")
        .parameter("hipFileParamUsePcip2pdma"),
    row!("order", "HIPFILE_ORDER", Kind::Word(Order::WORDS), "stream", order,
        "What synchronous calls wait for: work on the legacy default stream, all work of the device, or nothing."),
    row!("write_sync", "HIPFILE_WRITE_SYNC", Kind::Word(WriteSync::WORDS), "none", write_sync,
        "`data` makes each write durable before the call returns."),
    row!("allow_system_memory", "HIPFILE_ALLOW_SYSTEM_MEMORY", Kind::Bool, "false", allow_system_memory,
        "Whether host memory, pinned or plain, may be given as a buffer.")
        .parameter("hipFileParamPropertiesAllowSystemMemory"),
    row!("page_cache", "HIPFILE_PAGE_CACHE", Kind::Word(PageCache::WORDS), "auto", page_cache,
        "How staged transfers treat the page cache."),
    row!("force_o_direct", "HIPFILE_FORCE_O_DIRECT", Kind::Bool, "false", force_o_direct,
        "True takes `direct` wherever the page cache setting is `auto`.")
        .parameter("hipFileParamForceOdirectMode"),
    row!("direct_min", "HIPFILE_DIRECT_MIN", BYTES, "512K", direct_min,
        "Size from which a staged transfer goes around the page cache (page cache setting `auto`)."),
    row!("uring_min", "HIPFILE_URING_MIN", BYTES, "2M", uring_min,
        "Size from which a staged transfer that goes around the page cache uses io_uring."),
    row!("prefer_io_uring", "HIPFILE_PREFER_IO_URING", Kind::Bool, "false", prefer_io_uring,
        "True is the same as HIPFILE_URING_MIN=0.")
        .parameter("hipFileParamPreferIOUring"),
    row!("max_direct_io", "HIPFILE_MAX_DIRECT_IO", bytes(64 << 10, 1 << 44, 64 << 10), "2G", direct_max,
        "Largest piece of a direct transfer; a larger transfer goes in several. hipFileDriverSetMaxDirectIOSize sets it too.")
        .parameter("hipFileParamPropertiesMaxDirectIOSizeKB").live(),
    row!("parallel_min", "HIPFILE_PARALLEL_MIN", BYTES, "1M", parallel_min,
        "Size from which copies out of the page cache use several threads.")
        .parameter("hipFileParamExecutionMinIOThresholdSizeKB"),
    row!("mapped_min", "HIPFILE_MAPPED_MIN", BYTES, "8M", mapped_min,
        "Size from which a write of GPU memory over what a file in memory (tmpfs, memfd) has already is copied into a mapping of the file by several threads; the kernel lets one plain write at a time into it."),
    row!("mapped_threads", "HIPFILE_MAPPED_THREADS", count(0, 64), "0", mapped_threads,
        "Threads that share such a write, the caller's among them; 1 for plain writes. 0 takes twice HIPFILE_IO_THREADS but at most the processors, or plain writes where that is fewer than 4."),
    row!("queue_depth", "HIPFILE_QUEUE_DEPTH", count(1, 128), "4", queue_depth,
        "Requests of one transfer in flight at the storage.")
        .parameter("hipFileParamExecutionMaxIOQueueDepth"),
    row!("io_threads", "HIPFILE_IO_THREADS", count(1, 64), "the processors, at most 8", io_threads,
        "Threads that copy for large transfers, the caller's among them.")
        .parameter("hipFileParamExecutionMaxIOThreads"),
    row!("request_parallelism", "HIPFILE_REQUEST_PARALLELISM", count(1, 64), "64", request_parallelism,
        "Most threads that copy for one transfer, the caller's among them; never more than there are.")
        .parameter("hipFileParamExecutionMaxRequestParallelism"),
    row!("parallel_io", "HIPFILE_PARALLEL_IO", Kind::Bool, "true", parallel_io,
        "False is the same as HIPFILE_REQUEST_PARALLELISM=1.")
        .parameter("hipFileParamExecutionParallelIO"),
    row!("block_size", "HIPFILE_BLOCK_SIZE", bytes(64 << 10, 64 << 20, 4096), "1M", block_len,
        "Size of one staging Block.")
        .parameter("hipFileParamPropertiesPerBufferCacheSizeKB"),
    row!("pool_size", "HIPFILE_POOL_SIZE", BYTES, "64M", pool_len,
        "Most bytes of staging memory, at least one Block. Transfers wait in turn when it is used up; they never fail for it, and where none of it comes back for a second, since storage hangs, they go on with 64 KiB of their own. hipFileDriverSetMaxCacheSize sets it too.")
        .parameter("hipFileParamPropertiesMaxDeviceCacheSizeKB").live(),
    row!("max_pinned", "HIPFILE_MAX_PINNED", BYTES, "16T", pinned_max,
        "Most bytes of pinned memory, at least two Blocks. It bounds staging memory, half of it for streams at most. hipFileDriverSetMaxPinnedMemSize sets it too.")
        .parameter("hipFileParamPropertiesMaxDevicePinnedMemSizeKB").live(),
    row!("pool_idle", "HIPFILE_POOL_IDLE", SECONDS, "10", pool_idle,
        "After this long without need staging memory is given back, all but the first 4 MiB."),
    row!("stream_memory", "HIPFILE_STREAM_MEMORY", BYTES, "128M", stream_len,
        "Staging memory for streams alone, at least one Block: one for each stream with work queued, and up to a half of all for large reads, of which each stream takes half of what is left. A stream that finds none is refused."),
    row!("wait_notice", "HIPFILE_WAIT_NOTICE", SECONDS, "10", wait_notice,
        "After this long without progress a call that waits for a batch says on stderr which file and engine it waits for. In Python so do the closing of a file that is in use and the end of the interpreter."),
    row!("batch_size", "HIPFILE_BATCH_SIZE", count(1, 4096), "4096", batch_size,
        "Most entries of one batch.")
        .parameter("hipFileParamPropertiesIOBatchsize"),
    row!("batch_timeout", "HIPFILE_BATCH_TIMEOUT",
        Kind::Number { unit: Unit::Milliseconds, min: 0, max: u32::MAX as u64, step: 1 }, "0",
        (|c| Value::Number(c.batch_timeout.map_or(0, |time| time.as_millis() as u64))),
        (|c, v| if let Value::Number(ms) = v {
            c.batch_timeout = (*ms > 0).then(|| std::time::Duration::from_millis(*ms));
        }),
        "After this long an entry of a batch that has not started ends with hipFileTimeout.")
        .parameter("hipFileParamPropertiesBatchIOTimeoutMs"),
    row!("poll", "HIPFILE_POLL", Kind::Bool, "false", poll,
        "True waits for the events of batches of small transfers by looking again and again instead of sleeping. hipFileDriverSetPollMode sets it too.")
        .parameter("hipFileParamPropertiesUsePollMode").live(),
    row!("poll_max", "HIPFILE_POLL_MAX", bytes(0, 1 << 44, 4096), "4K", poll_max,
        "Largest transfer that HIPFILE_POLL is about.")
        .parameter("hipFileParamPollthresholdSizeKB").live(),
    row!("skip_topology", "HIPFILE_SKIP_TOPOLOGY", Kind::Bool, "false", skip_topology,
        "True leaves the machine's topology alone: staging memory is not put on the memory node near the GPU.")
        .parameter("hipFileParamSkipTopologyDetection"),
    row!("bypass_memops", "HIPFILE_BYPASS_MEMOPS", Kind::Bool, "false", bypass_memops,
        "True holds streams by a function that does not return, instead of the runtime's memory operations.")
        .parameter("hipFileParamStreamMemopsBypass"),
    row!("stats_level", "HIPFILE_STATS_LEVEL", count(0, 3), "1", stats_level,
        "How much is counted: 0 nothing, and no thread serves statistics; 1 everything, and the time of one in 16 transfers below 64 KiB and of all others; 2 the time of one in 4; 3 of all.")
        .parameter("hipFileParamProfileStats"),
    row!("log_level", "HIPFILE_LOG_LEVEL", Kind::Word(LogLevel::WORDS), "warn", log_level,
        "How much the C library logs; see docs/logging.md.")
        .parameter("hipFileParamLoggingLevel"),
    row!("log_file", "HIPFILE_LOG_FILE", Kind::Path, "unset", log_file,
        "The file that is logged to, instead of standard error; `%p` in it stands for the process's number.")
        .parameter("hipFileParamEnvLogfilePath"),
    row!("log_dir", "HIPFILE_LOG_DIR", Kind::Path, "unset", log_dir,
        "The folder for a log file whose path is not absolute; with no such file, hipfile-%p.log is written in it.")
        .parameter("hipFileParamLogDir"),
    row!("check_aggressively", "HIPFILE_CHECK_AGGRESSIVELY", Kind::Bool, "false", check_aggressively,
        "Whether every call of the file system is checked twice.")
        .parameter("hipFileParamFsMiscApiCheckAggressive").no_effect(),
    row!("profile_nvtx", "HIPFILE_PROFILE_NVTX", Kind::Bool, "false", profile_nvtx,
        "Whether ranges are marked for NVIDIA's profiler.")
        .parameter("hipFileParamProfileNvtx").no_effect(),
];
