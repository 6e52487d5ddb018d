//! How often the GPU's driver is called for one transfer: what a small one costs is mostly that. On the emulated GPU under
//! CUDA's functions, which count as the functions of HIP that do the same.

use hip_emu::fault;
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

/// The copy, the wait for it, and what asks whether that would harm a capture: no look-up, no event, no stream of its own.
#[test]
fn a_small_read_makes_no_call_that_it_can_do_without() {
    let storage = Storage::here();
    let (driver, file) = warm(&storage, |_| {});
    let mut buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
    let mut read = || assert_eq!(file.read_at(&mut buffer, 0..LEN, 0).unwrap(), LEN);
    read();
    let mut calls = calls_of(read);
    calls.sort_unstable();
    // One wait is the emulation's own, for its blocking copy.
    let expected = [
        ("hipMemcpyHtoDAsync", 1),
        ("hipStreamIsCapturing", 1),
        ("hipStreamSynchronize", 2),
        ("hipThreadExchangeStreamCaptureMode", 2),
    ];
    assert_eq!(calls, expected);
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
