//! Streams that own what is in flight on them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpu_sys::hip::HipError;
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Buffer, Driver, ErrorKind, EventStatus, File, Job, Op, Stream};

use crate::support::gpu::is_emulated_hip;
use crate::support::streams::{Watchdog, word};
use crate::support::{Storage, driver_with};

const LEN: usize = 100_000;

struct World {
    driver: Driver,
    file: Arc<File>,
    data: Vec<u8>,
    _storage: Storage,
}

impl World {
    fn new() -> World {
        let (driver, storage) = (driver_with(&["p2p", "uring", "bounce"], |_| {}), Storage::here());
        let data: Vec<u8> = (0..LEN).map(|i| (i / 256 + i) as u8).collect();
        std::fs::write(storage.path("f"), &data).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
        let file = Arc::new(File::register(&driver, file).unwrap());
        World { driver, file, data, _storage: storage }
    }

    fn job(&self, op: Op, file_offset: u64, len: usize) -> Job {
        let buffer = Buffer::alloc(&self.driver, 0, LEN).unwrap();
        Job { op, file: Arc::clone(&self.file), file_offset, buffer, range: 7..7 + len }
    }
}

/// Holds a stream until the word is set.
fn hold(stream: &Stream) -> &'static std::sync::atomic::AtomicU64 {
    let gate = word();
    crate::support::streams::Stream(stream.ptr().0).hold(gate);
    gate
}

#[test]
fn jobs_come_back_with_their_buffers() {
    let _watchdog = Watchdog::new(60);
    let world = World::new();
    let stream = Stream::new(&world.driver, 0).unwrap();
    let all: Vec<_> = (0..10)
        .map(|i| stream.submit(world.job(Op::Read, i * 10_000, 10_000)).map_err(|(e, _)| e).unwrap())
        .collect();
    stream.wait().unwrap();
    for pending in all {
        assert!(pending.is_over());
        let finished = pending.wait();
        assert!(matches!(finished.status, EventStatus::Complete(10_000)), "{:?}", finished.status);
        let (at, mut bytes) = (finished.job.file_offset as usize, vec![0; 10_000]);
        finished.job.buffer.download(7, &mut bytes).unwrap();
        assert!(bytes == world.data[at..at + 10_000]);
    }
    // Nothing to do, the end of the file, and an error.
    let end = |job| stream.submit(job).map_err(|(e, _)| e).unwrap().wait().status;
    assert!(matches!(end(world.job(Op::Read, 0, 0)), EventStatus::Complete(0)));
    assert!(matches!(end(world.job(Op::Read, 99_990, 100)), EventStatus::Complete(10)));
    let read_only = std::fs::File::open("/proc/self/exe").unwrap();
    let file = Arc::new(File::register(&world.driver, read_only).unwrap());
    match end(Job { file, ..world.job(Op::Write, 0, 10) }) {
        EventStatus::Failed(error) => assert_eq!(error.os_error(), Some(libc::EBADF)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_job_comes_back() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let world = World::new();
    assert_eq!(Stream::new(&world.driver, 99).unwrap_err().kind(), ErrorKind::DeviceNotFound);
    let stream = Stream::new(&world.driver, 0).unwrap();
    let refused = |job: Job| {
        let (error, job) = stream.submit(job).unwrap_err();
        assert_eq!(job.buffer.len(), LEN);
        error.kind()
    };
    assert_eq!(refused(world.job(Op::Read, 0, LEN)), ErrorKind::InvalidValue);
    assert_eq!(refused(world.job(Op::Read, u64::MAX, 1)), ErrorKind::InvalidValue);
    #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
    let backwards = Job { range: 9..8, ..world.job(Op::Read, 0, 1) };
    assert_eq!(refused(backwards), ErrorKind::InvalidValue);
    for (function, nth) in [
        (Function::hipLaunchHostFunc, 1),
        (Function::hipModuleLaunchKernel, 2),
        (Function::hipLaunchHostFunc, 3),
    ] {
        fault::add(Rule { function, when: When::Nth(nth), fault: Fault::Error(HipError::LAUNCH_FAILURE) });
        assert_eq!(refused(world.job(Op::Read, 0, 90_000)), ErrorKind::HipDriverError);
        fault::clear();
    }
    let good = stream.submit(world.job(Op::Read, 0, 90_000)).map_err(|(e, _)| e).unwrap().wait();
    assert!(matches!(good.status, EventStatus::Complete(90_000)));
}

#[test]
fn behaviour_86_dropping_never_frees_what_is_in_use() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let world = World::new();
    let frees = || fault::calls("hipFree");
    let stream = Stream::new(&world.driver, 0).unwrap();
    // Nothing can be allocated while a stream is held.
    let jobs: Vec<_> = (0..8).map(|i| world.job(Op::Read, i * 1000, 50_000)).collect();
    let gate = hold(&stream);
    let before = frees();
    for job in jobs {
        drop(stream.submit(job).map_err(|(e, _)| e).unwrap());
    }
    assert_eq!(frees(), before, "the jobs are the stream's now");
    std::thread::scope(|scope| {
        let dropping = scope.spawn(move || drop(stream));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!dropping.is_finished(), "it waits for what is in flight");
        assert_eq!(frees(), before);
        gate.store(1, Ordering::Release);
        dropping.join().unwrap();
    });
    assert_eq!(frees(), before + 8);

    // Forgotten: leaked.
    let stream = Stream::new(&world.driver, 0).unwrap();
    let (kept, dropped) = (world.job(Op::Read, 0, 50_000), world.job(Op::Read, 0, 50_000));
    let (gate, before) = (hold(&stream), frees());
    let pending = stream.submit(kept).map_err(|(e, _)| e).unwrap();
    drop(stream.submit(dropped).map_err(|(e, _)| e).unwrap());
    std::mem::forget(stream);
    gate.store(1, Ordering::Release);
    let finished = pending.wait();
    assert!(matches!(finished.status, EventStatus::Complete(50_000)));
    drop(finished);
    assert_eq!(frees(), before + 1, "only what was given back");

    // A job that nobody waits for is freed by the next call after it.
    let stream = Stream::new(&world.driver, 0).unwrap();
    let before = frees();
    drop(stream.submit(world.job(Op::Write, 0, 50_000)).map_err(|(e, _)| e).unwrap());
    stream.wait().unwrap();
    assert_eq!(frees(), before + 1);
    // SAFETY: the default stream is there as long as the runtime.
    let default = unsafe { Stream::from_raw(&world.driver, hipfile::StreamPtr(0)) }.unwrap();
    let last = default.submit(world.job(Op::Read, 0, 5000)).map_err(|(e, _)| e).unwrap();
    drop(default);
    assert!(last.is_over());
    assert!(matches!(last.wait().status, EventStatus::Complete(5000)));
}
