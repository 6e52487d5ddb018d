//! How often the GPU's driver is called for one transfer: what a small one costs is mostly that. On the emulated GPU under
//! CUDA's functions, which count as the functions of HIP that do the same.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu_sys::cuda::{self, CudaError};
use gpu_sys::hip::HipError;
use hip_emu::fault::{self, Fault, When};
use hip_emu::function::Function;
use hipfile::{Batch, Buffer, Config, DeviceChoice, Driver, EventStatus, File, Job, Op};

use crate::support::{Storage, driver_with};

const LEN: usize = 4096;
const COUNT: usize = 128;

/// A driver on the emulated GPU, and a file that is in the page cache.
fn warm(storage: &Storage, change: impl FnOnce(&mut Config)) -> (Driver, File) {
    let driver = driver_with(&["p2p", "uring", "bounce"], |config| {
        config.device = DeviceChoice::EmulatedCuda;
        change(config);
    });
    std::fs::write(storage.path("f"), vec![7; 2 * COUNT * LEN]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    (driver, file)
}

/// What was called during that, and how often.
fn calls_of(what: impl FnOnce()) -> Vec<(&'static str, u64)> {
    let count = || Function::ALL.iter().map(|function| fault::calls(function.name()));
    let before: Vec<u64> = count().collect();
    what();
    let during = Function::ALL.iter().zip(count().zip(before));
    during.map(|(function, (now, before))| (function.name(), now - before)).filter(|(_, n)| *n > 0).collect()
}

/// The copy, the word behind it, and what asks whether that would harm a capture: no look-up, no event, no stream of its own.
#[test]
fn a_small_read_makes_no_call_that_it_can_do_without() {
    let storage = Storage::here();
    let (driver, file) = warm(&storage, |_| {});
    let mut buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
    let mut read = || assert_eq!(file.read_at(&mut buffer, 0..LEN, 0).unwrap(), LEN);
    read();
    let mut calls = calls_of(&mut read);
    calls.sort_unstable();
    let mut expected = vec![
        ("hipMemcpyHtoDAsync", 1),
        ("hipStreamIsCapturing", 1),
        ("hipStreamWriteValue64", 1),
        ("hipThreadExchangeStreamCaptureMode", 2),
    ];
    assert_eq!(calls, expected);

    // Where no word can be written, the driver waits.
    fault::inject("hipStreamWriteValue64", When::Nth(1), Fault::Error(HipError::NOT_SUPPORTED)).unwrap();
    let mut calls = calls_of(&mut read);
    fault::clear();
    calls.sort_unstable();
    expected.insert(2, ("hipStreamSynchronize", 1));
    assert_eq!(calls, expected);
}

/// A small read waits for what is on the default stream before it, however long that takes; and the words that tell of its end
/// are used again then.
#[test]
fn small_reads_behind_a_busy_default_stream_wait_for_it() {
    // Of memory that is not pinned the copying call itself may wait.
    const PINNED: usize = 8 * LEN;
    let storage = Storage::here();
    let (driver, file) = warm(&storage, |_| {});
    let mut buffer = Buffer::alloc(&driver, 0, PINNED).unwrap();
    let cuda = hip_emu::cuda::api();
    let (mut context, mut at) = (null_mut(), null_mut());
    // SAFETY: `context` is writable.
    let retained = unsafe { (cuda.cuDevicePrimaryCtxRetain)(&raw mut context, 0) };
    // SAFETY: it is retained.
    let current = unsafe { (cuda.cuCtxPushCurrent_v2)(context) };
    // SAFETY: `at` is writable.
    let made = unsafe { (cuda.cuMemHostAlloc)(&raw mut at, 64, cuda::MEM_HOST_ALLOC_DEVICE_MAP) };
    assert_eq!([retained, current, made], [CudaError::SUCCESS; 3]);
    // SAFETY: aligned, never freed, and used as an atomic only.
    let gate = unsafe { AtomicU64::from_ptr(at.cast()) };
    gate.store(0, Ordering::Release);
    assert_eq!(file.read_at(&mut buffer, 0..PINNED, 0).unwrap(), PINNED);
    let calls = calls_of(|| {
        // More often than words are allocated at once.
        for round in 1..=100 {
            let address = gate.as_ptr().addr() as u64;
            // SAFETY: the word lives as long as the process.
            let held = unsafe {
                (cuda.cuStreamWaitValue64_v2)(null_mut(), address, round, cuda::STREAM_WAIT_VALUE_GEQ)
            };
            assert_eq!(held, CudaError::SUCCESS);
            let waits = || fault::calls(Function::hipStreamSynchronize.name());
            let before = waits();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(file.read_at(&mut buffer, 0..PINNED, 0).unwrap(), PINNED);
                    assert_eq!(gate.load(Ordering::Acquire), round, "the read was early");
                });
                while waits() == before {
                    std::thread::yield_now();
                }
                gate.store(round, Ordering::Release);
            });
        }
    });
    let count = |name| calls.iter().find(|(called, _)| *called == name).map_or(0, |(_, n)| *n);
    assert_eq!((count("hipStreamWriteValue64"), count("hipHostMalloc")), (100, 0), "{calls:?}");
}

/// Small entries that are in the page cache are copied as many at a time as the driver takes, whoever carries them.
#[test]
fn small_entries_of_a_batch_share_the_calls_that_copy_them() {
    let storage = Storage::here();
    let (driver, file) = warm(&storage, |config| config.io_threads = 1);
    let file = std::sync::Arc::new(file);
    let mut batch = Batch::new(&driver, COUNT).unwrap();
    let mut round = || {
        let jobs = (0..COUNT).map(|n| {
            let buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
            let file_offset = (2 * n * LEN) as u64;
            Job { op: Op::Read, file: std::sync::Arc::clone(&file), file_offset, buffer, range: 0..LEN }
        });
        let jobs: Vec<_> = jobs.collect();
        let calls = calls_of(|| {
            batch.submit(jobs).unwrap();
            let done = batch.wait(COUNT, None).unwrap();
            assert!(done.iter().all(|one| matches!(one.status, EventStatus::Complete(LEN))));
        });
        calls.iter().find(|(name, _)| *name == "hipEventRecord").map_or(0, |(_, n)| *n)
    };
    round();
    let groups = round();
    // Two threads at most, and each may end with a few that are fewer.
    assert!((2..=4).contains(&groups), "{groups} groups for {COUNT} entries");
}
