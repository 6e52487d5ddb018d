//! Settings do what they say: each is observed by what the driver does, not read back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{
    Buffer, Config, Driver, Entry, EventStatus, Fallback, File, Invalid, Job, Op, PageCache, RawBatch,
    Setting, Stream, Value,
};

use crate::support::gpu::is_emulated_hip;
use crate::support::streams::Watchdog;
use crate::support::{Storage, driver_with};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn change(driver: &Driver, name: &str, value: u64) -> Result<(), Invalid> {
    driver.change(&[(Setting::named(name).unwrap(), Value::Number(value))])
}

/// A file of `size` bytes and a buffer for it.
fn registered(driver: &Driver, storage: &Storage, size: usize) -> (File, Buffer) {
    let content: Vec<u8> = (0..size).map(|n| ((n / 5) ^ (n >> 11)) as u8).collect();
    std::fs::write(storage.path("f"), content).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    open.sync_all().unwrap();
    (File::register(driver, open).unwrap(), Buffer::alloc(driver, 0, size).unwrap())
}

/// Reads all of a file, and compares.
fn read(storage: &Storage, file: &File, buffer: &mut Buffer, size: usize) {
    assert_eq!(file.read_at(buffer, 0..size, 0).unwrap(), size);
    let mut bytes = vec![0; size];
    buffer.download(0, &mut bytes).unwrap();
    assert!(bytes == std::fs::read(storage.path("f")).unwrap(), "wrong bytes");
}

/// Which engines read so far.
fn engines(driver: &Driver) -> Vec<&'static str> {
    driver.stats().read.iter().filter(|e| e.bytes > 0).map(|e| e.engine).collect()
}

/// Threads of this process that help with large transfers.
fn helpers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("hipfile-io")).count()
}

#[test]
fn max_direct_io_splits_direct_transfers_at_once() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let Some(storage) = Storage::ext4(&[]) else { return };
    let driver = driver_with(&["p2p", "bounce"], |c| c.direct_max = 64 * KIB);
    let (file, mut buffer) = registered(&driver, &storage, MIB);
    let calls = || (fault::calls("hipAmdFileRead"), fault::calls("hipAmdFileWrite"));
    read(&storage, &file, &mut buffer, MIB);
    assert_eq!(calls(), (16, 0));
    change(&driver, "max_direct_io", 256 << 10).unwrap();
    read(&storage, &file, &mut buffer, MIB);
    assert_eq!(file.write_at(&buffer, 0..MIB, 0).unwrap(), MIB);
    assert_eq!(calls(), (16 + 4, 4));
    change(&driver, "max_direct_io", 2 << 30).unwrap();
    read(&storage, &file, &mut buffer, MIB);
    assert_eq!(calls(), (21, 4), "the default is no limit");
    assert_eq!(engines(&driver), ["p2p"]);
}

#[test]
fn without_p2p_or_with_compatibility_forced_nothing_goes_direct() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let Some(storage) = Storage::ext4(&[]) else { return };
    let with = |set: fn(&mut Config)| {
        let driver = driver_with(&["p2p", "bounce"], set);
        let (file, mut buffer) = registered(&driver, &storage, MIB);
        read(&storage, &file, &mut buffer, MIB);
        engines(&driver)
    };
    assert_eq!(with(|_| {}), ["p2p"]);
    assert_eq!(with(|c| c.use_p2p = false), ["bounce"]);
    assert_eq!(with(|c| c.force_compat = true), ["bounce"]);
}

#[test]
fn io_uring_and_o_direct_can_be_preferred() {
    let storage = Storage::here();
    let with = |set: &dyn Fn(&mut Config)| {
        let driver = driver_with(&["uring", "bounce"], |c| set(c));
        let (file, mut buffer) = registered(&driver, &storage, 256 * KIB);
        if file.info().unwrap().direct_align.is_none() {
            crate::support::skip("O_DIRECT", "the file system here has none");
            return None;
        }
        // The file is in the page cache: it was just written.
        read(&storage, &file, &mut buffer, 256 * KIB);
        Some(engines(&driver))
    };
    let Some(usual) = with(&|_| {}) else { return };
    assert_eq!(usual, ["bounce"]);
    assert_eq!(with(&|c| c.prefer_io_uring = true).unwrap(), ["bounce"], "not what the page cache has");
    assert_eq!(with(&|c| c.force_o_direct = true).unwrap(), ["bounce"], "not what is small");
    let both = |c: &mut Config| (c.prefer_io_uring, c.force_o_direct) = (true, true);
    assert_eq!(with(&both).unwrap(), ["uring"]);
    let asked_otherwise = |c: &mut Config| {
        both(c);
        c.page_cache = PageCache::Buffered;
    };
    assert_eq!(with(&asked_otherwise).unwrap(), ["bounce"], "a setting of the page cache goes before");
}

#[test]
fn threads_of_a_transfer_follow_four_settings() {
    let storage = Storage::here();
    let with = |some: bool, set: fn(&mut Config)| {
        let driver = driver_with(&["bounce"], |c| {
            (c.io_threads, c.parallel_min, c.page_cache) = (4, MIB, PageCache::Buffered);
            set(c);
        });
        let before = helpers();
        let (file, mut buffer) = registered(&driver, &storage, 2 * MIB);
        read(&storage, &file, &mut buffer, 2 * MIB);
        // A thread gives itself its name, once it gets to run.
        let began = Instant::now();
        while helpers() == before && began.elapsed() < Duration::from_millis(if some { 10_000 } else { 100 })
        {
            std::thread::yield_now();
        }
        helpers() - before
    };
    // Of drivers that are gone no thread may be counted, so fewer come first.
    assert_eq!(with(false, |c| c.parallel_io = false), 0);
    assert_eq!(with(false, |c| c.request_parallelism = 1), 0);
    assert_eq!(with(false, |c| c.io_threads = 1), 0);
    assert_eq!(with(false, |c| c.parallel_min = 4 * MIB), 0);
    assert_eq!(with(true, |c| c.request_parallelism = 2), 1);
}

#[test]
fn requests_in_flight_follow_the_queue_depth() {
    // Each request in flight has a Block, and one more is being copied; Blocks come in slabs of 4 MiB.
    for (depth, resident) in [(1, 4 * MIB), (12, 16 * MIB)] {
        let Some(storage) = Storage::ext4(&[]) else { return };
        let driver = driver_with(&["uring", "bounce"], |c| {
            (c.queue_depth, c.page_cache) = (depth, PageCache::Direct);
            (c.block_len, c.pool_len) = (MIB, 64 * MIB);
        });
        let (file, mut buffer) = registered(&driver, &storage, 32 * MIB);
        read(&storage, &file, &mut buffer, 32 * MIB);
        if engines(&driver) != ["uring"] {
            return eprintln!("SKIP: queue depth: io_uring is not to be had here");
        }
        assert_eq!(driver.staging_bytes(), resident, "depth {depth}");
    }
}

#[test]
fn the_size_of_blocks_is_that_of_the_copies() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let storage = Storage::here();
    let with = |block_len| {
        let driver = driver_with(&["bounce"], |c| {
            (c.block_len, c.pool_len, c.io_threads) = (block_len, 4 * MIB, 1);
            c.page_cache = PageCache::Buffered;
        });
        let (file, mut buffer) = registered(&driver, &storage, MIB);
        let copies = || fault::calls("hipMemcpy") + fault::calls("hipMemcpyAsync");
        let before = copies();
        assert_eq!(file.read_at(&mut buffer, 0..MIB, 0).unwrap(), MIB);
        copies() - before
    };
    assert_eq!((with(64 * KIB), with(256 * KIB)), (16, 4));
}

/// Has every thread of many move something large, so that the pool grows as far as it may.
fn press(driver: &Driver, storage: &Storage) {
    let size = 4 * MIB;
    let (file, _) = registered(driver, storage, size);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                let mut buffer = Buffer::alloc(driver, 0, size).unwrap();
                for _ in 0..2 {
                    read(storage, &file, &mut buffer, size);
                }
            });
        }
    });
}

#[test]
fn behaviour_39_a_lower_limit_shrinks_staging_memory_and_no_transfer_fails_for_it() {
    let _watchdog = Watchdog::new(120);
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |c| {
        (c.block_len, c.pool_len, c.pool_idle) = (4 * MIB, 32 * MIB, None);
        (c.stream_len, c.pinned_max) = (8 * MIB, 40 * MIB);
    });
    // How many transfers meet is up to the machine; the watchdog waits for more than a few.
    let grow = || {
        while driver.staging_bytes() <= 12 * MIB {
            press(&driver, &storage);
        }
    };
    grow();
    assert!(driver.staging_bytes() <= 32 * MIB, "{}", driver.staging_bytes());
    // The pool itself, while nothing is under way.
    change(&driver, "pool_size", 12 << 20).unwrap();
    assert!(driver.staging_bytes() <= 12 * MIB, "{}", driver.staging_bytes());
    press(&driver, &storage);
    assert!(driver.staging_bytes() <= 12 * MIB, "{}", driver.staging_bytes());
    // Up again.
    change(&driver, "pool_size", 64 << 20).unwrap();
    grow();
    // Pinned memory: half may be for streams, what is left bounds the pool. Changed while transfers run.
    std::thread::scope(|scope| {
        let pressing = scope.spawn(|| press(&driver, &storage));
        while !pressing.is_finished() {
            for limit in [16, 64, 8, 32] {
                change(&driver, "max_pinned", limit << 20).unwrap();
            }
        }
        pressing.join().unwrap();
    });
    change(&driver, "max_pinned", 16 << 20).unwrap();
    assert!(driver.staging_bytes() <= 8 * MIB, "{}", driver.staging_bytes());
    press(&driver, &storage);
    assert!(driver.staging_bytes() <= 8 * MIB, "{}", driver.staging_bytes());
    // Less than what must be there is refused, and nothing changes.
    for (name, value) in [("pool_size", 2 << 20), ("max_pinned", 4 << 20), ("max_direct_io", 0)] {
        assert!(matches!(change(&driver, name, value), Err(Invalid::Range(_))), "{name}");
    }
    press(&driver, &storage);
    assert!(driver.staging_bytes() <= 8 * MIB);
}

#[test]
fn streams_are_held_without_memory_operations_where_those_are_bypassed() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let storage = Storage::here();
    let with = |bypass| {
        let driver = driver_with(&["bounce"], |c| c.bypass_memops = bypass);
        let (file, buffer) = registered(&driver, &storage, 64 * KIB);
        let stream = Stream::new(&driver, 0).unwrap();
        let before = fault::calls("hipStreamWaitValue64");
        let file = Arc::new(file);
        let job = Job { op: Op::Read, file, file_offset: 0, buffer, range: 0..64 * KIB };
        let finished = stream.submit(job).map_err(|(error, _)| error).unwrap().wait();
        assert!(
            matches!(finished.status, EventStatus::Complete(n) if n == 64 * KIB),
            "{:?}",
            finished.status
        );
        fault::calls("hipStreamWaitValue64") - before
    };
    // The reserve of a driver that is gone serves the next only if it holds streams the same way.
    assert!(with(false) > 0);
    assert_eq!(with(true), 0);
    assert!(with(false) > 0);
}

/// How often this thread went to sleep so far.
fn sleeps() -> i64 {
    // SAFETY: all zeroes are such counts.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written to.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_nvcsw
}

#[test]
fn who_waits_for_a_batch_of_small_transfers_looks_instead_of_sleeping_if_polling_is_on() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, buffer) = registered(&driver, &storage, 64 * KIB);
    let batch = RawBatch::new(4).unwrap();
    fault::add(Rule {
        function: Function::hipMemcpy,
        when: When::Every,
        fault: Fault::Delay(Duration::from_millis(5)),
    });
    let slept = |len| {
        let before = sleeps();
        for _ in 0..40 {
            let (file, buffer) = (file.id(), buffer.ptr());
            let entry =
                Entry { op: Ok(Op::Read), file, buffer, buffer_offset: 0, file_offset: 0, len, cookie: 0 };
            // SAFETY: file and buffer outlive the event, which is waited for.
            unsafe { batch.submit(&driver, &[entry]) }.unwrap();
            assert_eq!(batch.poll(1, 1, Some(Duration::from_secs(20))).unwrap().len(), 1);
        }
        sleeps() - before
    };
    let usual = slept(4096);
    assert!(usual >= 40, "{usual}");
    let settings = [("poll", Value::Bool(true)), ("poll_max", Value::Number(8192))];
    driver.change(&settings.map(|(name, value)| (Setting::named(name).unwrap(), value))).unwrap();
    let polling = slept(4096);
    assert!(polling < 20, "{polling}");
    let large = slept(16384);
    assert!(large >= 40, "{large}");
    fault::clear();
}

#[test]
fn frozen_settings_do_not_change_an_open_driver() {
    let driver = driver_with(&["bounce"], |_| {});
    for setting in hipfile::SETTINGS.iter().filter(|setting| !setting.live) {
        let value = setting.get(driver.config());
        assert!(matches!(driver.change(&[(setting, value)]), Err(Invalid::Frozen(_))), "{}", setting.name);
    }
    let both = [("pool_size", 2 << 20), ("queue_depth", 3)]
        .map(|(name, value)| (Setting::named(name).unwrap(), Value::Number(value)));
    assert!(driver.change(&both).is_err());
    assert_eq!(driver.settings().pool_len, driver.config().pool_len, "all or none");
    assert_eq!(driver.config().fallback, Fallback::Allow);
}

/// The test that sees a parameter of the C interface change what is done, and the file it is in.
const OBSERVED: &[(&str, &str, &str)] = &[
    ("hipFileParamForceCompatMode", HERE, "without_p2p_or_with_compatibility_forced_nothing_goes_direct"),
    ("hipFileParamPropertiesAllowCompatMode", CALLS, "parameters_change_what_calls_do"),
    ("hipFileParamUsePcip2pdma", HERE, "without_p2p_or_with_compatibility_forced_nothing_goes_direct"),
    ("hipFileParamPropertiesAllowSystemMemory", CALLS, "parameters_change_what_calls_do"),
    ("hipFileParamForceOdirectMode", HERE, "io_uring_and_o_direct_can_be_preferred"),
    ("hipFileParamPreferIOUring", HERE, "io_uring_and_o_direct_can_be_preferred"),
    ("hipFileParamPropertiesMaxDirectIOSizeKB", HERE, "max_direct_io_splits_direct_transfers_at_once"),
    ("hipFileParamExecutionMinIOThresholdSizeKB", HERE, "threads_of_a_transfer_follow_four_settings"),
    ("hipFileParamExecutionMaxIOQueueDepth", HERE, "requests_in_flight_follow_the_queue_depth"),
    ("hipFileParamExecutionMaxIOThreads", HERE, "threads_of_a_transfer_follow_four_settings"),
    ("hipFileParamExecutionMaxRequestParallelism", HERE, "threads_of_a_transfer_follow_four_settings"),
    ("hipFileParamExecutionParallelIO", HERE, "threads_of_a_transfer_follow_four_settings"),
    ("hipFileParamPropertiesPerBufferCacheSizeKB", HERE, "the_size_of_blocks_is_that_of_the_copies"),
    ("hipFileParamPropertiesMaxDeviceCacheSizeKB", HERE, LIMITS),
    ("hipFileParamPropertiesMaxDevicePinnedMemSizeKB", HERE, LIMITS),
    ("hipFileParamPropertiesIOBatchsize", CALLS, "parameters_change_what_calls_do"),
    ("hipFileParamPropertiesBatchIOTimeoutMs", "libhipfile/tests/calls/batch.rs", TIMEOUT),
    ("hipFileParamPropertiesUsePollMode", HERE, POLLING),
    ("hipFileParamPollthresholdSizeKB", HERE, POLLING),
    ("hipFileParamSkipTopologyDetection", "hipfile/src/device/hip.rs", TOPOLOGY),
    (
        "hipFileParamStreamMemopsBypass",
        HERE,
        "streams_are_held_without_memory_operations_where_those_are_bypassed",
    ),
    (
        "hipFileParamProfileStats",
        "libhipfile/tests/calls/stats.rs",
        "level_0_counts_nothing_and_answers_all_the_same",
    ),
    ("hipFileParamLoggingLevel", LOG, "calls_set_the_log_too"),
    ("hipFileParamEnvLogfilePath", LOG, "calls_set_the_log_too"),
    ("hipFileParamLogDir", LOG, "calls_set_the_log_too"),
];
const HERE: &str = "hipfile/tests/it/suite/settings.rs";
const CALLS: &str = "libhipfile/tests/calls/params.rs";
const TIMEOUT: &str = "entries_that_do_not_start_in_time_end_with_a_timeout_if_the_parameter_says_so";
const TOPOLOGY: &str = "the_topology_can_be_left_alone";
const LOG: &str = "libhipfile/tests/calls/log.rs";
const LIMITS: &str = "behaviour_39_a_lower_limit_shrinks_staging_memory_and_no_transfer_fails_for_it";
const POLLING: &str = "who_waits_for_a_batch_of_small_transfers_looks_instead_of_sleeping_if_polling_is_on";

#[test]
fn each_parameter_that_has_an_effect_is_seen_to_have_it() {
    let crates = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if !crates.is_dir() {
        return eprintln!("SKIP: who sees a parameter's effect: the sources are not on this machine");
    }
    for setting in hipfile::SETTINGS.iter().filter(|setting| setting.effect) {
        let Some(parameter) = setting.parameter else { continue };
        let Some((_, file, test)) = OBSERVED.iter().find(|(name, ..)| *name == parameter) else {
            panic!("no test is named that sees {parameter} change anything");
        };
        let text = std::fs::read_to_string(crates.join(file)).unwrap();
        let Some((_, body)) = text.split_once(&format!("fn {test}()")) else {
            panic!("{file} has no test {test}");
        };
        let body = body.split_once("\n#[test]").map_or(body, |(body, _)| body);
        // Tests of the core name the setting's field, or the setting; those of the C interface the parameter.
        let named = [parameter, setting.name].iter().any(|name| body.contains(name));
        assert!(
            named || FIELDS.iter().any(|(name, field)| *name == setting.name && body.contains(field)),
            "{parameter}"
        );
    }
}

/// Fields that are called otherwise than their settings.
const FIELDS: &[(&str, &str)] = &[("force_compat_mode", "force_compat"), ("block_size", "block_len")];
