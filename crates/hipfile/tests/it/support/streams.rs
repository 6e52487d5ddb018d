//! Streams, operations on them whose parameters change, and a watchdog.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpu_sys::hip::STREAM_NON_BLOCKING;
use hipfile::{Ask, Buffer, Caller, DevPtr, Driver, FileId, Op, Result, StreamPtr};

use super::gpu;

/// Ends the process, with what it was doing, when a test hangs.
pub(crate) struct Watchdog {
    done: Arc<AtomicUsize>,
}

impl Watchdog {
    pub(crate) fn new(seconds: u64) -> Watchdog {
        Watchdog::named(seconds, "a test")
    }

    pub(crate) fn named(seconds: u64, what: &str) -> Watchdog {
        let what = what.to_owned();
        let done = Arc::new(AtomicUsize::new(0));
        let (seen, end) = (Arc::clone(&done), Instant::now() + Duration::from_secs(seconds));
        std::thread::spawn(move || {
            while seen.load(Ordering::Relaxed) == 0 {
                if Instant::now() > end {
                    eprintln!("WATCHDOG: {what}: no end after {seconds} s; threads and where they wait:");
                    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                        let read =
                            |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
                        eprintln!(
                            "  {} {} {}",
                            read("comm").trim(),
                            read("wchan").trim(),
                            read("syscall").trim()
                        );
                    }
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Watchdog { done }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(1, Ordering::Relaxed);
    }
}

pub(crate) const LEGACY: Stream = Stream(0);
pub(crate) const PER_THREAD: Stream = Stream(gpu_sys::hip::STREAM_PER_THREAD);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(pub(crate) usize);

impl Stream {
    pub(crate) fn new(flags: u32) -> Stream {
        Stream(gpu::create_stream(flags))
    }

    pub(crate) fn free() -> Stream {
        Stream::new(STREAM_NON_BLOCKING)
    }

    pub(crate) fn ptr(self) -> StreamPtr {
        StreamPtr(self.0)
    }

    pub(crate) fn wait(self) {
        gpu::wait_for_stream(self.0);
    }

    pub(crate) fn is_idle(self) -> bool {
        gpu::stream_is_idle(self.0)
    }

    pub(crate) fn destroy(self) {
        gpu::destroy_stream(self.0);
    }

    /// Holds the stream until the word is set.
    pub(crate) fn hold(self, word: &'static AtomicU64) {
        gpu::hold_stream(self.0, word);
    }

    /// Copies between device addresses, in stream order: a stand-in for a kernel of the caller's.
    pub(crate) fn copy(self, to: DevPtr, from: DevPtr, len: usize) {
        gpu::copy_on_stream(self.0, to, from, len);
    }

    /// Begins to capture it; 0 is the global mode, 2 the relaxed one.
    pub(crate) fn capture(self, mode: u32) {
        gpu::begin_capture(self.0, mode);
    }

    /// Ends the capture; whether nothing has voided it.
    pub(crate) fn end_capture(self) -> bool {
        gpu::end_capture(self.0)
    }
}

pub(crate) use gpu::word;

/// The variables of one operation.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub(crate) len: AtomicUsize,
    pub(crate) file_offset: AtomicI64,
    pub(crate) buffer_offset: AtomicI64,
    result: Mutex<Option<Result<usize>>>,
    order: AtomicUsize,
}

/// Counts results in the order in which they come.
static ORDER: AtomicUsize = AtomicUsize::new(1);

impl Variables {
    pub(crate) fn new(len: usize, file_offset: i64, buffer_offset: i64) -> Arc<Variables> {
        let variables = Variables::default();
        variables.set(len, file_offset, buffer_offset);
        Arc::new(variables)
    }

    pub(crate) fn set(&self, len: usize, file_offset: i64, buffer_offset: i64) {
        self.len.store(len, Ordering::SeqCst);
        self.file_offset.store(file_offset, Ordering::SeqCst);
        self.buffer_offset.store(buffer_offset, Ordering::SeqCst);
    }

    /// What it came to, once.
    pub(crate) fn take(&self) -> Option<Result<usize>> {
        self.result.lock().unwrap().take()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.result.lock().unwrap().is_some()
    }

    pub(crate) fn result(&self) -> Result<usize> {
        self.take().expect("a result")
    }

    pub(crate) fn order(&self) -> usize {
        self.order.load(Ordering::SeqCst)
    }
}

/// Bits of a registration, as in C: buffer offset, file offset, size.
struct Door {
    variables: Arc<Variables>,
    flags: u32,
    first: Option<Ask>,
}

impl Caller for Door {
    fn bind(&mut self) -> Ask {
        let now = &self.variables;
        let mut ask = Ask {
            len: now.len.load(Ordering::SeqCst),
            file_offset: now.file_offset.load(Ordering::SeqCst),
            buffer_offset: now.buffer_offset.load(Ordering::SeqCst),
        };
        if let Some(first) = self.first {
            if self.flags & 1 != 0 {
                ask.buffer_offset = first.buffer_offset;
            }
            if self.flags & 2 != 0 {
                ask.file_offset = first.file_offset;
            }
            if self.flags & 4 != 0 {
                ask.len = first.len;
            }
        }
        self.first.get_or_insert(ask);
        ask
    }

    fn is_fixed(&self) -> bool {
        self.flags & 7 == 7
    }

    fn accepted(&mut self) {
        *self.variables.result.lock().unwrap() =
            if self.first.is_some_and(|a| a.len == 0) { Some(Ok(0)) } else { None };
    }

    fn done(self: Box<Self>, result: Result<usize>) {
        self.variables.order.store(ORDER.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        let before = self.variables.result.lock().unwrap().replace(result);
        assert!(before.is_none(), "a second result");
    }
}

pub(crate) fn enqueue(
    driver: &Driver,
    op: Op,
    file: FileId,
    buffer: DevPtr,
    stream: Stream,
    flags: u32,
    variables: &Arc<Variables>,
) -> Result<()> {
    let door = Door { variables: Arc::clone(variables), flags, first: None };
    // SAFETY: tests keep their buffers until the stream has passed the operation.
    unsafe { driver.enqueue(op, file, buffer, stream.ptr(), Box::new(door)) }
}

/// A driver, a file with a pattern, and a buffer of zeros.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
    pub(crate) file: std::fs::File,
    pub(crate) id: FileId,
    pub(crate) buffer: Buffer,
    pub(crate) data: Vec<u8>,
    _storage: super::Storage,
}

impl Bench {
    pub(crate) fn new(engines: &[&str], file_len: usize, change: impl FnOnce(&mut hipfile::Config)) -> Bench {
        Bench::with_buffer(engines, file_len, file_len.max(4096), change)
    }

    pub(crate) fn with_buffer(
        engines: &[&str],
        file_len: usize,
        buffer_len: usize,
        change: impl FnOnce(&mut hipfile::Config),
    ) -> Bench {
        let driver = super::driver_with(engines, change);
        let storage = super::Storage::here();
        let data: Vec<u8> = (0..file_len).map(|i| (i / 4096 * 7 + i % 251) as u8).collect();
        std::fs::write(storage.path("file"), &data).expect("a file");
        let file =
            std::fs::File::options().read(true).write(true).open(storage.path("file")).expect("a file");
        let id = driver.register_file(file.as_raw_fd()).expect("any file registers");
        let mut buffer = Buffer::alloc(&driver, 0, buffer_len).expect("device memory");
        buffer.upload(0, &vec![0; buffer_len]).expect("an upload");
        Bench { driver, file, id, buffer, data, _storage: storage }
    }

    pub(crate) fn read(&self, stream: Stream, flags: u32, variables: &Arc<Variables>) -> Result<()> {
        enqueue(&self.driver, Op::Read, self.id, self.buffer.ptr(), stream, flags, variables)
    }

    pub(crate) fn write(&self, stream: Stream, flags: u32, variables: &Arc<Variables>) -> Result<()> {
        enqueue(&self.driver, Op::Write, self.id, self.buffer.ptr(), stream, flags, variables)
    }

    pub(crate) fn memory(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.download(at, &mut bytes).expect("a download");
        bytes
    }

    pub(crate) fn disk(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut bytes, at as u64).expect("a plain read");
        bytes
    }
}
