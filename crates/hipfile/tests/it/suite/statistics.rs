//! Statistics are what happened: counts to the last one, rates by the clock, times of those transfers that the level says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_sys::hip::HipError;
use hip_emu::fault::{self, When};
use hipfile::{
    Batch, Buffer, Calls, Config, DevPtr, Driver, EventStatus, File, Job, Op, Side, Statistics, Stream,
};

use crate::support::gpu::{choice, is_emulated_hip};
use crate::support::{Storage, driver_with, skip};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn open(storage: &Storage, size: usize) -> std::fs::File {
    std::fs::write(storage.path("f"), vec![5; size]).unwrap();
    std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap()
}

/// A file of `size` bytes and a buffer for it.
fn registered(driver: &Driver, storage: &Storage, size: usize) -> (File, Buffer) {
    (File::register(driver, open(storage, size)).unwrap(), Buffer::alloc(driver, 0, size).unwrap())
}

/// Operations and bytes of each class of sizes that is not empty.
fn classes(side: &Side) -> Vec<(usize, u64, u64)> {
    let both = side.direct.iter().zip(&side.staged).enumerate();
    let sums = both.map(|(class, (a, b))| (class, a.operations + b.operations, a.bytes + b.bytes));
    sums.filter(|(_, operations, bytes)| (*operations, *bytes) != (0, 0)).collect()
}

fn times_taken(side: &Side) -> u64 {
    side.direct.iter().chain(&side.staged).map(|class| class.timed).sum()
}

#[test]
fn behaviour_124_the_rate_of_eight_threads_is_that_of_the_clock() {
    const EACH: usize = 40;
    const SIZE: usize = 256 * KIB;
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, _) = registered(&driver, &storage, SIZE);
    // Memory comes and goes outside the time that is measured: a real GPU's takes milliseconds.
    let mut buffers: Vec<_> = (0..8).map(|_| Buffer::alloc(&driver, 0, SIZE).unwrap()).collect();
    // Of each thread, between which times its first read began, and its last one ended.
    let times: Vec<[std::ops::Range<Instant>; 2]> = std::thread::scope(|scope| {
        let threads = buffers.iter_mut().map(|buffer| {
            let file = &file;
            scope.spawn(move || {
                let began = Instant::now();
                let reads = (0..EACH).map(|n| {
                    let due = Duration::from_millis(20) * n as u32;
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                    let before = Instant::now();
                    file.read_at(buffer, 0..SIZE, 0).unwrap();
                    before..Instant::now()
                });
                let reads: Vec<_> = reads.collect();
                [reads[0].clone(), reads[EACH - 1].clone()]
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = times.iter().map(|[first, _]| first.start).min().unwrap();
    let first_ended = times.iter().map(|[first, _]| first.end).min().unwrap();
    let last_began = times.iter().map(|[_, last]| last.start).max().unwrap();
    let last = times.iter().map(|[_, last]| last.end).max().unwrap();
    let rate = |time: Duration| (8 * EACH * SIZE) as f64 / time.as_secs_f64();
    std::thread::sleep(Duration::from_millis(300));
    let side = driver.snapshot().total(Op::Read);
    assert_eq!((side.operations(), side.bytes()), (8 * EACH as u64, (8 * EACH * SIZE) as u64));
    let told = side.per_second(side.bytes());
    // However long a thread was kept from running between looking at the clock and reading.
    let (least, most) = (rate(last - first), rate(last_began - first_ended));
    assert!(told > least * 0.99 && told < most * 1.01, "{told} B/s, and it was {least} to {most}");
    assert!(told < rate(Duration::from_millis(20) * (EACH as u32 - 1)) * 1.01,);
}

#[test]
fn sizes_are_counted_exactly_by_all_threads_together() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, _) = registered(&driver, &storage, MIB);
    std::thread::scope(|scope| {
        for _ in 0..70 {
            scope.spawn(|| {
                let mut buffer = Buffer::alloc(&driver, 0, MIB).unwrap();
                for len in [1, 4095, 4096, 5000, 64 * KIB, MIB] {
                    assert_eq!(file.read_at(&mut buffer, 0..len, 0).unwrap(), len);
                }
                assert_eq!(file.write_at(&buffer, 0..8192, 0).unwrap(), 8192);
            });
        }
    });
    let snapshot = driver.snapshot();
    let all = |n: u64| 70 * n;
    assert_eq!(
        classes(&snapshot.total(Op::Read)),
        [
            (0, all(2), all(4096)),
            (1, all(2), all(9096)),
            (5, all(1), all(64 << 10)),
            (9, all(1), all(1 << 20)),
        ]
    );
    assert_eq!(classes(&snapshot.total(Op::Write)), [(2, all(1), all(8192))]);
    assert_eq!(snapshot.total(Op::Read).unaligned, [0, all(3)]);
    assert_eq!(snapshot.buffers.begun, Calls { ok: 71, failed: 0 });
    // All buffers are gone.
    assert_eq!(snapshot.buffers.ended.ok, 71);
    let gpu = snapshot.gpu(Some(0)).unwrap();
    assert_eq!((gpu.memory, gpu.memory_bytes[0] - gpu.memory_bytes[1]), ([71, 71], 0));
    assert_ne!(gpu.uuid, [0; 16]);
    assert_eq!(snapshot.emulated, Some(choice().is_emulated()));
}

#[test]
fn behaviour_129_the_level_says_which_times_are_taken() {
    let storage = Storage::here();
    let with = |level| {
        let driver = driver_with(&["bounce"], |c| c.stats_level = level);
        let (file, mut buffer) = registered(&driver, &storage, 64 * KIB);
        for _ in 0..160 {
            file.read_at(&mut buffer, 0..4096, 0).unwrap();
        }
        for _ in 0..3 {
            file.read_at(&mut buffer, 0..64 * KIB, 0).unwrap();
        }
        let snapshot = driver.snapshot();
        let side = snapshot.total(Op::Read);
        assert_eq!(times_taken(&side), side.times_taken());
        assert_eq!(file.info().unwrap().stats.read[0].operations, 163, "a file is always counted");
        (snapshot.level, side.operations(), times_taken(&side))
    };
    assert_eq!(with(0), (0, 0, 0));
    assert_eq!(with(1), (1, 163, 13));
    assert_eq!(with(2), (2, 163, 43));
    assert_eq!(with(3), (3, 163, 163));
}

#[test]
fn times_are_those_of_the_transfers() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |c| c.stats_level = 3);
    let (file, mut buffer) = registered(&driver, &storage, MIB);
    let began = Instant::now();
    for _ in 0..50 {
        file.read_at(&mut buffer, 0..MIB, 0).unwrap();
    }
    let elapsed = began.elapsed().as_micros() as u64;
    let side = driver.snapshot().total(Op::Read);
    let sum = side.microseconds();
    assert!(sum <= elapsed && sum > 0, "{sum} of {elapsed} us");
    let [half, most] = [0.5, 1.0].map(|share| side.latency(share).unwrap() / 1000.0);
    assert!(0.0 < half && half <= most && most <= 1.1 * elapsed as f64, "{half}, {most} us");
    // Half of them took as long as the median, or longer; classes are a sixteenth off at most. Other bounds from below would
    // be those of a machine that does nothing else.
    assert!(25.0 * 0.9 * half <= sum as f64, "{half} us of {sum}");
    assert!(side.seconds() * 1e6 <= 1.01 * elapsed as f64, "{side:?}");
    assert!(side.utilization() + 2 >= sum * 100 / elapsed, "{side:?}");
}

#[test]
fn behaviour_41_what_is_refused_or_fails_is_counted() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, mut buffer) = registered(&driver, &storage, 64 * KIB);
    assert!(driver.register_file(-1).is_err());
    // SAFETY: nothing is accessed; the registrations are refused.
    assert!(unsafe { driver.register_buffer(DevPtr(0), 1, 0) }.is_err());
    let at = buffer.ptr();
    // SAFETY: as above.
    assert!(unsafe { driver.register_buffer(at, 1, 0) }.is_err());
    assert!(driver.deregister_buffer(DevPtr(1)).is_err());
    // SAFETY: refused.
    assert!(unsafe { driver.read(file.id(), at, 1 << 30, 0, 0) }.is_err());
    // SAFETY: as above.
    assert!(unsafe { driver.write(file.id(), at, 1, -1, 0) }.is_err());
    for function in ["hipMemcpy", "hipMemcpyAsync"] {
        fault::inject(function, When::Every, HipError::UNKNOWN).unwrap();
    }
    assert!(file.read_at(&mut buffer, 0..4096, 0).is_err());
    assert!(file.read_at(&mut buffer, 0..64 * KIB, 0).is_err());
    fault::clear();
    let snapshot = driver.snapshot();
    assert_eq!(snapshot.files.begun, Calls { ok: 1, failed: 1 });
    assert_eq!(snapshot.buffers.begun, Calls { ok: 1, failed: 2 });
    assert_eq!(snapshot.buffers.ended, Calls { ok: 0, failed: 1 });
    assert_eq!(snapshot.refused, [1, 1]);
    let side = snapshot.total(Op::Read);
    assert_eq!((side.operations(), side.errors()), (0, 2));
    assert_eq!(side.engines.iter().map(|e| (e.name.as_str(), e.errors)).collect::<Vec<_>>(), [("bounce", 2)]);
}

#[test]
fn direct_and_staged_parts_of_a_transfer_count_as_one() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let Some(storage) = Storage::ext4(&[]) else { return };
    let driver = driver_with(&["p2p", "bounce"], |_| {});
    let (file, mut buffer) = registered(&driver, &storage, MIB);
    file.read_at(&mut buffer, 0..MIB, 0).unwrap();
    file.read_at(&mut buffer, 0..MIB - 100, 0).unwrap();
    file.read_at(&mut buffer, 1..101, 0).unwrap();
    let snapshot = driver.snapshot();
    let side = snapshot.total(Op::Read);
    let sums = |classes: &[hipfile::SizeClass]| {
        classes.iter().fold((0, 0), |sum, class| (sum.0 + class.operations, sum.1 + class.bytes))
    };
    let tail = (MIB as u64 - 100) % 4096;
    assert_eq!(sums(&side.direct), (2, 2 * MIB as u64 - 100 - tail));
    assert_eq!(sums(&side.staged), (1, tail + 100));
    assert_eq!(side.unaligned, [1, 1]);
    let reasons: u64 = side.reasons.iter().map(|reason| reason.operations).sum();
    assert_eq!((snapshot.rejections(), reasons), (2, 2));
}

#[test]
fn each_gpu_has_its_row() {
    if !choice().is_emulated() {
        return skip("suite::statistics::each_gpu_has_its_row", "it makes 18 emulated GPUs");
    }
    // SAFETY: the test has just begun, and no other thread of the process reads the environment.
    unsafe { std::env::set_var("HIP_EMU_DEVICES", "18") };
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |c| c.allow_system_memory = true);
    let (file, _) = registered(&driver, &storage, 64 * KIB);
    for gpu in [1, 15, 16, 17] {
        let mut buffer = Buffer::alloc(&driver, gpu, 4096).unwrap();
        file.read_at(&mut buffer, 0..4096, 0).unwrap();
    }
    let mut host = vec![0_u8; 4096];
    // SAFETY: the memory is this test's own.
    unsafe { driver.read(file.id(), DevPtr(host.as_mut_ptr().addr()), 4096, 0, 0) }.unwrap();
    let snapshot = driver.snapshot();
    let rows: Vec<_> = snapshot.gpus.iter().map(|gpu| (gpu.ordinal, gpu.read.operations())).collect();
    assert_eq!(rows, [(Some(0), 0), (Some(1), 1), (Some(15), 1), (None, 3)]);
    assert_ne!(snapshot.gpus[1].uuid, snapshot.gpus[2].uuid);
}

fn job(driver: &Driver, file: &Arc<File>, op: Op, len: usize) -> Job {
    let buffer = Buffer::alloc(driver, 0, len).unwrap();
    Job { op, file: Arc::clone(file), file_offset: 0, buffer, range: 0..len }
}

#[test]
fn batches_are_counted() {
    let storage = Storage::here();
    let driver = driver_with(&["uring", "bounce"], |_| {});
    let file = Arc::new(File::register(&driver, open(&storage, MIB)).unwrap());
    let mut batch = Batch::new(&driver, 16).unwrap();
    let jobs = |ops: &[Op]| ops.iter().map(|op| job(&driver, &file, *op, 8192)).collect::<Vec<_>>();
    batch.submit(jobs(&[Op::Read; 8])).unwrap();
    batch.submit(jobs(&[Op::Read, Op::Write, Op::Read])).unwrap();
    assert!(batch.submit(jobs(&[Op::Read; 8])).is_err(), "there is no room");
    let mut done = 0;
    while done < 11 {
        let finished = batch.wait(1, None).unwrap();
        assert!(finished.iter().all(|one| matches!(one.status, EventStatus::Complete(8192))));
        done += finished.len();
    }
    let snapshot = driver.snapshot();
    let counted = snapshot.batches;
    assert_eq!(counted.submitted, Calls { ok: 2, failed: 1 });
    assert_eq!(counted.entries, Calls { ok: 11, failed: 8 });
    assert_eq!((counted.done, counted.mixed), (Calls { ok: 11, failed: 0 }, 1));
    assert_eq!(counted.bytes, [10 * 8192, 8192]);
    assert_eq!(counted.last_bytes, [2 * 8192, 8192]);
    assert_eq!((counted.direct, counted.staged), (0, 11));
    assert!(counted.submit_nanoseconds > 0 && counted.timed[0] > 0 && counted.timed[1] > 0, "{counted:?}");
    assert_eq!(snapshot.total(Op::Read).operations(), 10, "entries are transfers like others");
}

#[test]
fn operations_on_streams_are_counted() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let file = Arc::new(File::register(&driver, open(&storage, MIB)).unwrap());
    let stream = Stream::new(&driver, 0).unwrap();
    for (op, len) in [(Op::Read, MIB), (Op::Write, 4096), (Op::Read, 8192)] {
        let pending = stream.submit(job(&driver, &file, op, len)).map_err(|(error, _)| error).unwrap();
        assert!(matches!(pending.wait().status, EventStatus::Complete(n) if n == len));
    }
    let snapshot = driver.snapshot();
    assert_eq!(snapshot.streams.submitted, Calls { ok: 3, failed: 0 });
    assert_eq!(snapshot.streams.done, Calls { ok: 3, failed: 0 });
    assert_eq!(snapshot.streams.bytes, [(MIB + 8192) as u64, 4096]);
    let side = snapshot.total(Op::Read);
    assert_eq!(classes(&side), [(2, 1, 8192), (9, 1, 1 << 20)]);
    assert!(side.microseconds() > 0 && times_taken(&side) == 2);
}

#[test]
fn drivers_of_one_process_may_count_together() {
    let storage = Storage::here();
    let statistics = Statistics::new();
    let mut config = Config::default();
    config.device = choice();
    for _ in 0..2 {
        let driver = Driver::open_with(config.clone(), &statistics).unwrap();
        let (file, mut buffer) = registered(&driver, &storage, 4096);
        file.read_at(&mut buffer, 0..4096, 0).unwrap();
    }
    let snapshot = statistics.snapshot();
    assert_eq!((snapshot.total(Op::Read).operations(), snapshot.files.begun.ok), (2, 2));
    assert_eq!(Statistics::none().snapshot().total(Op::Read).operations(), 0);
}

#[test]
fn numbers_never_go_back_while_threads_count_and_end() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, _) = registered(&driver, &storage, 4096);
    std::thread::scope(|scope| {
        let writers = scope.spawn(|| {
            for _ in 0..20 {
                std::thread::scope(|scope| {
                    for _ in 0..64 {
                        scope.spawn(|| {
                            let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
                            (0..20).for_each(|_| _ = file.read_at(&mut buffer, 0..4096, 0).unwrap());
                        });
                    }
                });
            }
        });
        let mut before = driver.snapshot().total(Op::Read);
        while !writers.is_finished() {
            let now = driver.snapshot().total(Op::Read);
            assert!(now.operations() >= before.operations() && now.bytes() >= before.bytes());
            assert!(now.bytes() <= 20 * 64 * 20 * 4096 && now.last >= before.last);
            before = now;
        }
    });
    let side = driver.snapshot().total(Op::Read);
    assert_eq!((side.operations(), side.bytes()), (20 * 64 * 20, 20 * 64 * 20 * 4096));
}
