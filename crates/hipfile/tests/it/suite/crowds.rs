//! Many threads and processes at once, and first times: what is made once is made beforehand, and a crowd is served like a few.
//! What is done is counted; how fast it is, `hipfile bench` measures.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hipfile::{Buffer, DevPtr, DeviceChoice, Driver, File, PageCache};

use crate::support::gpu::choice;
use crate::support::streams::Watchdog;
use crate::support::{Storage, driver_with, operations, skip};

const MIB: usize = 1 << 20;

/// Runs it in a child of its own, in which nothing of the library was used, and gives what it answers.
fn in_child(body: impl FnOnce() -> f64) -> f64 {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the parent has used nothing of the library.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let code = i32::from(answer.is_err());
        let bytes = answer.unwrap_or(f64::NAN).to_ne_bytes();
        // SAFETY: the bytes are there.
        unsafe { libc::write(ends[1], bytes.as_ptr().cast(), 8) };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let (mut bytes, mut status) = ([0; 8], 0);
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    // SAFETY: room for as many bytes.
    assert_eq!(unsafe { libc::read(ends[0], bytes.as_mut_ptr().cast(), 8) }, 8);
    for end in ends {
        // SAFETY: opened above.
        unsafe { libc::close(end) };
    }
    f64::from_ne_bytes(bytes)
}

fn file(storage: &Storage, driver: &Driver, len: usize) -> File {
    if !storage.path("f").exists() {
        std::fs::write(storage.path("f"), vec![7; len]).unwrap();
    }
    File::register(driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap()
}

fn read(driver: &Driver, file: &File, to: DevPtr, len: usize) {
    // SAFETY: the memory is kept.
    assert_eq!(unsafe { driver.read(file.id(), to, len, 0, 0) }.unwrap(), len);
}

/// Without a clock: the first read makes no call of the system and none of the GPU's runtime that later ones do not make.
#[cfg(debug_assertions)]
#[test]
fn behaviour_55_the_first_read_does_nothing_once() {
    use hip_emu::fault;
    use hip_emu::function::Function;
    use hipfile::faults::{self, Site};
    if !crate::support::gpu::is_emulated_hip("it counts the calls of HIP's functions") {
        return;
    }
    let storage = Storage::here();
    for (engines, page_cache) in [
        (&["uring", "bounce"][..], PageCache::Buffered),
        (&["bounce"], PageCache::Direct),
        (&["p2p", "bounce"], PageCache::Auto),
    ] {
        let driver = driver_with(engines, |c| (c.page_cache, c.block_len) = (page_cache, MIB));
        assert_eq!(driver.snapshot().set_up_nanoseconds, 0, "opening loads nothing");
        let file = file(&storage, &driver, MIB);
        let buffer = Buffer::alloc(&driver, 0, MIB).unwrap();
        let spent = driver.snapshot().set_up_nanoseconds;
        assert!(spent > 0, "the time is told");
        let calls = || -> Vec<(String, u64)> {
            let system = Site::ALL.iter().map(|site| (format!("{site:?}"), faults::hits(*site)));
            let gpu = Function::ALL.iter().map(|f| (f.name().to_owned(), fault::calls(f.name())));
            // The thread of the statistics does its own.
            system.chain(gpu).filter(|(name, _)| !name.starts_with("Statistics")).collect()
        };
        // Private descriptors and Blocks are taken at the first read by design, and each thread tells HIP once that it is
        // there; what is left is to be the same.
        const LAZY: &[&str] = &[
            "FileReopen",
            "FileIdentity",
            "FileFlags",
            "FileAside",
            "FileLockAside",
            "FileLock",
            "BlockMap",
            "OutOfTheWay",
            "FileSystemKind",
            "PrivateIdentity",
            "hipInit",
            "MachineFile",
            "MachineFolder",
            "MachineLink",
            "MachinePath",
        ];
        let during = || {
            let before = calls();
            read(&driver, &file, buffer.ptr(), MIB);
            let pairs = calls().into_iter().zip(before);
            let made = pairs.filter(|((name, _), _)| !LAZY.contains(&name.as_str()));
            made.map(|((name, now), (_, before))| (name, now - before))
                .filter(|(_, n)| *n > 0)
                .collect::<Vec<_>>()
        };
        let (first, _, third) = (during(), during(), during());
        assert_eq!(first, third, "{engines:?}");
        assert_eq!(driver.snapshot().set_up_nanoseconds, spent, "and no more");
    }
}

/// Without a clock: what 72 threads do that were never seen before is what they do the second time. Staging memory is made once
/// for all of them.
#[cfg(debug_assertions)]
#[test]
fn behaviour_64_the_first_reads_of_72_fresh_threads_are_like_their_second() {
    use hip_emu::fault;
    use hip_emu::function::Function;
    use hipfile::faults::{self, Site};
    const THREADS: usize = 72;
    const BLOCKS: u64 = 64;
    if !crate::support::gpu::is_emulated_hip("it counts the calls of HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(200);
    let storage = Storage::here();
    let driver = driver_with(&["uring", "bounce"], |c| {
        (c.block_len, c.pool_len) = (MIB, BLOCKS as usize * MIB);
    });
    let file = file(&storage, &driver, MIB);
    let buffer = Buffer::alloc(&driver, 0, THREADS * MIB).unwrap();
    let gpu = || -> Vec<_> { Function::ALL.iter().map(|f| (f.name(), fault::calls(f.name()))).collect() };
    let once = || [Site::BlockMap, Site::FileReopen].map(faults::hits);
    // All threads live until the last one has read twice, or the second round would be of other threads.
    let rounds = [const { Barrier::new(THREADS + 1) }; 4];
    let (before, once_before) = (gpu(), once());
    let (between, once_between) = std::thread::scope(|scope| {
        for n in 0..THREADS {
            let (driver, file, to) = (&driver, &file, DevPtr(buffer.ptr().0 + n * MIB));
            let rounds = &rounds;
            scope.spawn(move || {
                for round in rounds.chunks(2) {
                    round[0].wait();
                    read(driver, file, to, MIB);
                    round[1].wait();
                }
            });
        }
        rounds[0].wait();
        rounds[1].wait();
        let between = (gpu(), once());
        rounds[2].wait();
        rounds[3].wait();
        between
    });

    let after = gpu();
    let made: u64 = once()[0] - once_before[0];
    assert!(made <= BLOCKS, "{made} pieces of staging memory for {THREADS} threads");
    // Threads that come to it at the same time may each open the file; one of these descriptors stays.
    let opened = [once_between[1] - once_before[1], once()[1] - once_between[1]];
    assert!((1..=THREADS as u64).contains(&opened[0]) && opened[1] == 0, "opened {opened:?} times");
    let calls = before.into_iter().zip(between).zip(after);
    let calls: Vec<_> = calls
        .map(|(((name, before), (_, between)), (_, after))| (name, between - before, after - between))
        .collect();
    let pins = |(name, first, second): &(&str, u64, u64)| {
        if name.starts_with("hipHost") { first + second } else { 0 }
    };
    // One call or two for each piece of it; and two around each, so that nobody's capture is disturbed.
    let pins: u64 = calls.iter().map(pins).sum();
    assert!(pins <= 2 * BLOCKS, "{pins} calls to pin memory");
    let mut copies = 0;
    for (name, first, second) in calls {
        match name {
            // Each thread tells HIP once that it is there.
            "hipInit" => assert!(first <= THREADS as u64 && second == 0, "{name}: {first}, then {second}"),
            name if name.starts_with("hipHost") => {}
            "hipThreadExchangeStreamCaptureMode" => {
                assert!(first.abs_diff(second) <= 2 * pins, "{name}: {first}, then {second}");
            }
            _ => assert_eq!(first, second, "{name}"),
        }
        copies += if name.starts_with("hipMemcpy") { first } else { 0 };
    }
    assert!(copies >= THREADS as u64, "{copies} copies of {THREADS} reads were seen");
}

/// How fast that is, is the row `many-threads` of `hipfile bench --table`: at least 0.9 of the best of fewer threads.
#[test]
fn behaviour_62_64_threads_share_the_few_that_copy() {
    const CALLERS: usize = 64;
    let _watchdog = Watchdog::new(200);
    let storage = Storage::here();
    let driver = driver_with(&["uring", "bounce"], |c| {
        (c.block_len, c.pool_len, c.page_cache) = (MIB, 64 * MIB, PageCache::Buffered);
        (c.io_threads, c.parallel_min) = (4, 256 << 10);
    });
    let (file, buffer) = (file(&storage, &driver, MIB), Buffer::alloc(&driver, 0, CALLERS * MIB).unwrap());
    let (most, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for n in 0..CALLERS {
            let (driver, file, most, done) = (&driver, &file, &most, &done);
            let to = DevPtr(buffer.ptr().0 + n * MIB);
            scope.spawn(move || {
                for _ in 0..20 {
                    read(driver, file, to, MIB);
                    most.fetch_max(threads_named("hipfile-io"), Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), CALLERS);
    let most = most.into_inner();
    // Callers enough need none.
    assert!(most <= 3, "{most} threads beside {CALLERS} that called");
}

fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

#[test]
fn behaviour_63_the_number_of_threads_is_what_is_set() {
    let storage = Storage::here();
    // What is not set follows the machine.
    let usual = hipfile::Config::default().io_threads;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(usual, processors.min(8));
    for set in [Some(1), Some(2), Some(5), None] {
        let threads = set.unwrap_or(usual);
        let driver = driver_with(&["bounce"], |c| {
            c.parallel_min = 64 << 10;
            set.into_iter().for_each(|threads| c.io_threads = threads);
        });
        let (file, buffer) =
            (file(&storage, &driver, 16 * MIB), Buffer::alloc(&driver, 0, 16 * MIB).unwrap());
        for _ in 0..20 {
            read(&driver, &file, buffer.ptr(), 16 * MIB);
        }
        // The caller is one of them.
        assert_eq!(threads_named("hipfile-io"), threads - 1, "{threads}");
        drop((buffer, file, driver));
        let end = Instant::now() + Duration::from_secs(10);
        while threads_named("hipfile-io") > 0 {
            assert!(Instant::now() < end, "the threads outlive the driver");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the kernel says from now on; `None` for who may not hear it.
struct KernelLog(std::fs::File);

impl KernelLog {
    fn begin() -> Option<KernelLog> {
        use std::io::Seek as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut log =
            std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
        log.seek(std::io::SeekFrom::End(0)).ok()?;
        Some(KernelLog(log))
    }

    /// What it says about this folder and this test, and of its own faults.
    fn complaints(&mut self, about: &str) -> Vec<String> {
        use std::io::Read as _;
        let (mut told, mut record) = (Vec::new(), [0; 8192]);
        // One record for each read; EPIPE where some were lost.
        loop {
            match self.0.read(&mut record) {
                Ok(0) => return told,
                Ok(n) => {
                    let line = String::from_utf8_lossy(&record[..n]).into_owned();
                    // Other tests let file systems fail meanwhile.
                    let words = [about, "suite::crowds", "BUG:", "Oops"];
                    if words.iter().any(|word| line.contains(word)) {
                        told.push(line);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return told,
            }
        }
    }
}

/// The memory of this process that is its own, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let number = |at: usize| pages.split(' ').nth(at).unwrap().parse::<usize>().unwrap();
    (number(1) - number(2)) * 4096
}

/// What one of the processes does, and the memory that it took beyond its GPU memory.
fn work(storage: &Storage, seed: usize, until: Instant) -> f64 {
    const EACH: usize = MIB;
    let before = resident();
    let driver = driver_with(&["p2p", "uring", "bounce"], |c| (c.block_len, c.pool_len) = (MIB, 8 * MIB));
    let buffer = Buffer::alloc(&driver, 0, 4 * EACH).unwrap();
    let path = storage.path(&format!("f{seed}"));
    std::fs::write(&path, vec![seed as u8; 4 * EACH]).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let id = driver.register_file(open.as_raw_fd()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4_usize {
            let (driver, to, at) = (&driver, DevPtr(buffer.ptr().0 + n * EACH), (n * EACH) as i64);
            scope.spawn(move || {
                let mut len = 1;
                while Instant::now() < until {
                    len = (len * 7 + n + 4093) % EACH + 1;
                    // SAFETY: the memory is kept, and each thread has its own.
                    assert_eq!(unsafe { driver.read(id, to, len, at, 0) }.unwrap(), len);
                    // SAFETY: as above.
                    assert_eq!(unsafe { driver.write(id, to, len, at, 0) }.unwrap(), len);
                }
            });
        }
    });
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == seed as u8));
    (resident().saturating_sub(before).saturating_sub(4 * EACH)) as f64
}

#[test]
fn behaviour_65_many_processes_with_many_threads_take_little_each() {
    let _watchdog = Watchdog::new(250);
    let storage = Storage::here();
    // In a long run as many and as long as users had them.
    let long = operations(0) >= 1000;
    let (processes, seconds) = if long { (64, 60) } else { (12, 2) };
    let log = KernelLog::begin();
    if log.is_none() {
        skip("what the kernel says", "it may not be read here");
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let most: Vec<f64> = std::thread::scope(|scope| {
        let all: Vec<_> = (1..=processes)
            .map(|seed| {
                let storage = &storage;
                scope.spawn(move || in_child(|| work(storage, seed, until)))
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let most = most.into_iter().fold(0.0, f64::max) / MIB as f64;
    let _ = writeln!(std::io::stderr(), "{processes} processes: {most:.1} MiB at most");
    let complaints = log.map(|mut log| log.complaints(&storage.folder().display().to_string()));
    assert!(complaints.as_ref().is_none_or(Vec::is_empty), "{complaints:?}");
    if choice() == DeviceChoice::Cuda {
        return skip("the memory of a process", "a real driver's own is not told apart");
    }
    // Staging memory as it was set, and 8 MiB of the library's own.
    assert!(most < 16.0, "a process took {most:.1} MiB");
}
