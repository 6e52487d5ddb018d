//! One operation of each door, from opening a driver to closing it, during which something is made to fail; and what must
//! hold afterwards. What fails, and how, is for the callers to say.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hipfile::faults::{self, Site};
use hipfile::{
    Buffer, Config, DevPtr, Driver, Entry, Error, EventStatus, FileId, Op, PageCache, RawBatch, WriteSync,
};

use super::streams::{Stream, Variables, enqueue};
use super::{Random, Storage, driver_with};

/// By which calls the bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Calls,
    Streams,
    Batches,
    /// Calls with memory of the process's own.
    Host,
}

/// Which engines there are, and what the machine lacks.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) engines: &'static [&'static str],
    pub(crate) change: fn(&mut Config),
    pub(crate) absent: &'static [Site],
    /// Whether nothing of the file is in the page cache.
    pub(crate) cold: bool,
    /// Whether it is a file in memory.
    pub(crate) memory: bool,
}

pub(crate) const ROWS: &[Row] = &[
    Row { name: "bounce", engines: &["bounce"], change: |_| {}, absent: &[], cold: false, memory: false },
    Row {
        name: "bounce, cache left clean, synced",
        engines: &["bounce"],
        change: |c| (c.page_cache, c.write_sync) = (PageCache::NoCache, WriteSync::Data),
        // Around the page cache nothing has to be left out of it.
        absent: &[Site::FileReopen],
        cold: true,
        memory: false,
    },
    Row {
        name: "uring",
        engines: &["uring", "bounce"],
        change: |c| (c.page_cache, c.uring_min) = (PageCache::Direct, 0),
        absent: &[],
        cold: false,
        memory: false,
    },
    Row {
        name: "p2p",
        engines: &["p2p", "uring", "bounce"],
        change: |_| {},
        absent: &[],
        cold: false,
        memory: false,
    },
    Row {
        name: "no descriptors to spare",
        engines: &["uring", "bounce"],
        change: |_| {},
        absent: &[Site::FileReopen, Site::FileDuplicate],
        cold: false,
        memory: false,
    },
    Row {
        name: "no Blocks, no cachestat",
        engines: &["uring", "bounce"],
        change: |c| c.block_len = 68 << 10,
        absent: &[Site::BlockMap, Site::CacheLook],
        cold: true,
        memory: false,
    },
    Row {
        name: "by a mapping",
        engines: &["bounce"],
        change: |c| (c.mapped_min, c.mapped_threads) = (100_000, 3),
        absent: &[],
        cold: false,
        memory: true,
    },
];

/// A small transfer at odd places, one through the page cache or around it, and one of many Blocks.
pub(crate) const PIECES: &[(usize, u64, usize)] =
    &[(3000, 5, 1), (20 << 10, 8192, 4096), (700_001, 40_960, 100)];
const SPACE: usize = 800 << 10;

/// How an operation ended.
#[derive(Debug)]
pub(crate) enum Seen {
    Full,
    Short(usize),
    Failed(Error),
}

/// What an operation works on.
pub(crate) struct World {
    pub(crate) storage: Storage,
    memory: Storage,
    content: Vec<u8>,
    other: Vec<u8>,
    /// Set by a case in which the kernel keeps Blocks that it may still write to.
    pub(crate) lost: AtomicBool,
}

/// What a process has of what can leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) mapped: usize,
}

impl Held {
    pub(crate) fn now() -> Held {
        let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = tasks.filter_map(name).filter(|name| name.starts_with("hipfile")).count();
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mapped = pages.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0_usize) * 4096;
        Held { descriptors: count("/proc/self/fd"), threads, mapped }
    }

    /// Waits until no more descriptors and threads are there than before: threads end by themselves a moment later.
    pub(crate) fn is_back_to(before: Held) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Held::now();
            if now.descriptors <= before.descriptors && now.threads <= before.threads {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{before:?} before, {now:?} now"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What went through one door of one driver.
struct Desk<'a> {
    driver: &'a Driver,
    file: FileId,
    door: Door,
    stream: Option<Stream>,
    memory: DevPtr,
}

impl Desk<'_> {
    fn go(&self, op: Op, (len, at, offset): (usize, u64, usize)) -> Result<usize, Error> {
        let (at, offset) = (at as i64, offset as i64);
        match (self.door, op) {
            // SAFETY: the memory is the world's own and lives longer.
            (Door::Calls | Door::Host, Op::Read) => unsafe {
                self.driver.read(self.file, self.memory, len, at, offset)
            },
            // SAFETY: as above.
            (Door::Calls | Door::Host, Op::Write) => unsafe {
                self.driver.write(self.file, self.memory, len, at, offset)
            },
            (Door::Streams, _) => {
                let stream = self.stream.expect("a stream");
                let variables = Variables::new(len, at, offset);
                enqueue(self.driver, op, self.file, self.memory, stream, 0, &variables)?;
                // Not by a call of the runtime's, which may be what fails.
                let end = Instant::now() + Duration::from_secs(50);
                while !variables.is_over() {
                    assert!(Instant::now() < end, "the operation on the stream has no end");
                    std::thread::yield_now();
                }
                variables.result()
            }
            (Door::Batches, _) => {
                let batch = RawBatch::new(1)?;
                let entry = Entry {
                    op: Ok(op),
                    file: self.file,
                    buffer: self.memory,
                    buffer_offset: offset,
                    file_offset: at,
                    len,
                    cookie: 7,
                };
                // SAFETY: as above.
                unsafe { batch.submit(self.driver, &[entry]) }?;
                let mut events = batch.poll(1, 1, Some(Duration::from_secs(60)))?;
                assert_eq!(events.len(), 1, "exactly one event");
                let event = events.remove(0);
                assert_eq!(event.cookie, 7);
                match event.status {
                    EventStatus::Complete(n) => Ok(n),
                    EventStatus::Failed(error) => Err(error),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

impl World {
    pub(crate) fn new() -> World {
        let mut random = Random::new();
        let (mut content, mut other) = (vec![0; SPACE], vec![0; SPACE]);
        random.fill(&mut content);
        random.fill(&mut other);
        World {
            storage: Storage::here(),
            memory: Storage::memfd(),
            content,
            other,
            lost: AtomicBool::new(false),
        }
    }

    /// Opens, registers, moves bytes, with `arm` called first; then all of it again with nothing failing, by the same
    /// driver. How the first part ended is what is told. In a thread of its own, so that what threads keep ends too.
    pub(crate) fn run(
        &self,
        row: &Row,
        door: Door,
        op: Op,
        arm: impl FnOnce() + Send,
        disarm: impl FnMut() + Send,
    ) -> Vec<Seen> {
        std::thread::scope(|scope| {
            let case = scope.spawn(|| self.run_here(row, door, op, arm, disarm));
            case.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn run_here(
        &self,
        row: &Row,
        door: Door,
        op: Op,
        arm: impl FnOnce(),
        mut disarm: impl FnMut(),
    ) -> Vec<Seen> {
        let open = if row.memory { self.memory.open("f") } else { self.storage.open("f") };
        open.write_all_at(&self.content, 0).unwrap();
        if row.cold {
            open.sync_all().unwrap();
            rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let mut host = vec![0_u8; SPACE];
        let stream = (door == Door::Streams).then(Stream::free);
        faults::absent(row.absent);
        arm();
        let driver = driver_with(row.engines, |config| {
            config.allow_system_memory = door == Door::Host;
            config.stats_level = 3;
            (row.change)(config);
        });
        let mut seen = Vec::new();
        let device = match door {
            Door::Host => None,
            _ => match Buffer::alloc(&driver, 0, SPACE) {
                Ok(buffer) => Some(buffer),
                Err(error) => {
                    let error_kind = error.kind();
                    seen.push(Seen::Failed(error));
                    disarm();
                    match Buffer::alloc(&driver, 0, SPACE) {
                        Ok(buffer) => Some(buffer),
                        // Which runtimes serve is found out once; a driver without one is closed and opened again.
                        Err(again) => {
                            assert_eq!(again.kind(), error_kind, "the same answer until then");
                            drop(driver);
                            faults::absent(&[]);
                            let mut rest = self.run_here(row, door, op, nothing, nothing);
                            rest.insert(0, Seen::Failed(again));
                            return rest;
                        }
                    }
                }
            },
        };
        let memory = device.as_ref().map_or(DevPtr(host.as_mut_ptr().expose_provenance()), Buffer::ptr);
        let put = |device: &mut Option<Buffer>, host: &mut [u8], bytes: &[u8]| match device {
            Some(buffer) => buffer.upload(0, bytes),
            None => {
                host.copy_from_slice(bytes);
                Ok(())
            }
        };
        let mut device = device;
        if put(&mut device, &mut host, &self.other).is_err() {
            // The GPU's own refusal of the test's copy.
            faults::clear();
            hip_emu::fault::clear();
            put(&mut device, &mut host, &self.other).expect("a copy, after the fault");
        }
        if let Some(Err(error)) = stream.map(|stream| driver.prepare_stream(stream.ptr())) {
            seen.push(Seen::Failed(error));
        }
        let mut registered = None;
        match driver.register_file(open.as_raw_fd()) {
            Err(error) => seen.push(Seen::Failed(error)),
            Ok(file) => {
                let desk = Desk { driver: &driver, file, door, stream, memory };
                let mut model = self.content.clone();
                for piece in PIECES {
                    let (len, at, offset) = *piece;
                    let result = desk.go(op, *piece);
                    let moved = *result.as_ref().unwrap_or(&0);
                    assert!(moved <= len);
                    let mut now = vec![0; SPACE];
                    open.read_exact_at(&mut now, 0).unwrap();
                    let at = at as usize;
                    match op {
                        // What lies beyond the prefix may have changed, up to the end of the request.
                        Op::Write => {
                            let given = &self.other[offset..offset + moved];
                            assert!(now[at..at + moved] == *given, "{piece:?}: wrong bytes");
                            assert!(now[..at] == model[..at], "{piece:?}: bytes before it");
                            assert!(now[at + len..] == model[at + len..], "{piece:?}: bytes behind it");
                            model = now;
                        }
                        Op::Read => {
                            let mut there = vec![0; SPACE];
                            fetch(device.as_ref(), &host, &mut there);
                            assert!(
                                there[offset..offset + moved] == self.content[at..at + moved],
                                "{piece:?}: wrong bytes"
                            );
                            assert!(
                                there[offset + len..] == self.other[offset + len..],
                                "{piece:?}: bytes behind it"
                            );
                            if put(&mut device, &mut host, &self.other).is_err() {
                                hip_emu::fault::clear();
                                put(&mut device, &mut host, &self.other).expect("a copy, without a fault");
                            }
                        }
                    }
                    seen.push(match result {
                        Err(error) => Seen::Failed(error),
                        Ok(n) if n == len => Seen::Full,
                        Ok(n) => Seen::Short(n),
                    });
                }
                registered = Some(file);
            }
        }
        disarm();
        if op == Op::Write {
            // Nothing is under way any more that the system could find in the way of something else.
            open.sync_all().expect("what was written can be made durable");
        }
        if let Some(file) = registered {
            // A stream keeps what it was given until it has passed it, also of an operation that was refused.
            let end = Instant::now() + Duration::from_secs(5);
            while let Err(error) = driver.deregister_file(file) {
                assert!(Instant::now() < end, "the file stays in use: {error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.run_well(&driver, &open, door, op, stream, &mut device, &mut host);
        if !self.lost.swap(false, Ordering::Relaxed) {
            all_blocks_are_back(&driver);
        }
        drop(device);
        drop(driver);
        stream.inspect(|stream| stream.destroy());
        faults::absent(&[]);
        seen
    }

    /// The next operation works, by the same driver.
    #[allow(clippy::too_many_arguments, reason = "what the first part used")]
    fn run_well(
        &self,
        driver: &Driver,
        open: &std::fs::File,
        door: Door,
        op: Op,
        stream: Option<Stream>,
        device: &mut Option<Buffer>,
        host: &mut [u8],
    ) {
        open.write_all_at(&self.content, 0).unwrap();
        match device {
            Some(buffer) => buffer.upload(0, &self.other).unwrap(),
            None => host.copy_from_slice(&self.other),
        }
        let memory = device.as_ref().map_or(DevPtr(host.as_mut_ptr().expose_provenance()), Buffer::ptr);
        let file = driver.register_file(open.as_raw_fd()).expect("a registration, after the fault");
        let desk = Desk { driver, file, door, stream, memory };
        for piece in PIECES {
            let (len, at, offset) = *piece;
            assert_eq!(
                desk.go(op, *piece).expect("a transfer, after the fault"),
                len,
                "{piece:?} after the fault"
            );
            let (at, mut there) = (at as usize, vec![0; SPACE]);
            match op {
                Op::Write => {
                    open.read_exact_at(&mut there, 0).unwrap();
                    assert!(
                        there[at..at + len] == self.other[offset..offset + len],
                        "{piece:?} after the fault"
                    );
                }
                Op::Read => {
                    fetch(device.as_ref(), host, &mut there);
                    assert!(
                        there[offset..offset + len] == self.content[at..at + len],
                        "{piece:?} after the fault"
                    );
                }
            }
        }
        driver.deregister_file(file).expect("the file was registered");
        if op == Op::Write {
            open.sync_all().expect("what was written after the fault can be made durable");
        }
    }
}

/// Whoever has a Block keeps its slab from being given back. Copies that nobody waits for end by themselves.
fn all_blocks_are_back(driver: &Driver) {
    let end = Instant::now() + Duration::from_secs(5);
    let kept = || {
        driver.trim();
        driver.staging_bytes()
    };
    while kept() > 0 {
        assert!(Instant::now() < end, "Blocks that nobody gave back: {} bytes stay", driver.staging_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing() {}

fn fetch(device: Option<&Buffer>, host: &[u8], to: &mut [u8]) {
    match device {
        Some(buffer) => {
            // It may be the test's own copy that the fault was for.
            if buffer.download(0, to).is_err() {
                hip_emu::fault::clear();
                buffer.download(0, to).expect("a copy, without a fault");
            }
        }
        None => to.copy_from_slice(host),
    }
}
