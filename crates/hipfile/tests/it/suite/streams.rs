//! Operations in the order of GPU streams. The emulated GPU has four hardware queues, so that whatever would hang on real
//! ones hangs here; a watchdog then says where.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpu_sys::hip::{HipError, STREAM_DEFAULT};
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Buffer, Entry, ErrorKind, EventStatus, Fallback, Op, RawBatch};

use crate::support::gpu::is_emulated_hip;
use crate::support::streams::*;

const STAGED: &[&str] = &["uring", "bounce"];
const ALL: &[&str] = &["p2p", "uring", "bounce"];

fn fail(function: Function, nth: When, fault: Fault) {
    fault::add(Rule { function, when: nth, fault });
}

#[test]
fn reads_and_writes_move_what_synchronous_calls_would() {
    let _watchdog = Watchdog::new(60);
    for engines in [STAGED, ALL] {
        let bench = Bench::new(engines, 300_000, |_| {});
        for flags in 0..16 {
            let stream = Stream::free();
            for (len, file_offset, buffer_offset) in [
                (4096, 0, 0),
                (4096, 4096, 8192),
                (1, 299_999, 17),
                (65_537, 3, 5),
                (200_000, 4096, 4096),
                (9000, 299_000, 0),
            ] {
                let read = Variables::new(len, file_offset, buffer_offset);
                bench.read(stream, flags, &read).unwrap();
                stream.wait();
                let expected = len.min(300_000 - file_offset as usize);
                assert_eq!(read.result().unwrap(), expected, "{engines:?} {flags:#x} {len} at {file_offset}");
                let (from, to) = (file_offset as usize, buffer_offset as usize);
                assert!(bench.memory(to, expected) == bench.data[from..from + expected]);
            }
            for (len, file_offset, buffer_offset) in
                [(4096, 4096, 0), (70_000, 1, 3), (150_000, 8192, 4096), (1, 0, 0)]
            {
                let write = Variables::new(len, file_offset, buffer_offset);
                bench.write(stream, flags, &write).unwrap();
                stream.wait();
                assert_eq!(write.result().unwrap(), len, "{engines:?} {flags:#x} {len} at {file_offset}");
                assert!(bench.disk(file_offset as usize, len) == bench.memory(buffer_offset as usize, len));
            }
            std::os::unix::fs::FileExt::write_all_at(&bench.file, &bench.data, 0).unwrap();
            stream.destroy();
        }
    }
}

#[test]
fn work_before_and_after_sees_the_order_of_the_stream() {
    let _watchdog = Watchdog::new(60);
    for stream in [Stream::free(), Stream::new(STREAM_DEFAULT), LEGACY, PER_THREAD] {
        for engines in [STAGED, ALL] {
            let bench = Bench::with_buffer(engines, 64 << 10, 128 << 10, |_| {});
            let other = Buffer::alloc(&bench.driver, 0, 8192).unwrap();
            bench.driver.prepare_stream(stream.ptr()).unwrap();
            let gate = word();
            stream.hold(gate);
            // Read page 1, write it to page 9, read page 2 over it, save what came of the first by a copy in between.
            let (a, b, c) = (
                Variables::new(4096, 4096, 0),
                Variables::new(4096, 9 * 4096, 0),
                Variables::new(4096, 8192, 0),
            );
            bench.read(stream, 7, &a).unwrap();
            stream.copy(other.ptr(), bench.buffer.ptr(), 4096);
            bench.write(stream, 7, &b).unwrap();
            bench.read(stream, 0, &c).unwrap();
            assert!(!stream.is_idle());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(a.take().is_none(), "nothing may happen before the stream gets there");
            assert_eq!(bench.disk(9 * 4096, 4096), bench.data[9 * 4096..10 * 4096]);
            gate.store(1, Ordering::Release);
            stream.wait();
            for v in [&a, &b, &c] {
                assert_eq!(v.result().unwrap(), 4096);
            }
            assert!(a.order() < b.order() && b.order() < c.order());
            assert!(bench.memory(0, 4096) == bench.data[8192..12288]);
            assert!(bench.disk(9 * 4096, 4096) == bench.data[4096..8192]);
            let mut saved = vec![0; 4096];
            other.download(0, &mut saved).unwrap();
            assert!(saved == bench.data[4096..8192]);
        }
    }
}

#[test]
fn a_read_on_an_idle_stream_does_not_wait_for_others_in_its_hardware_queue() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(STAGED, 64 << 10, |_| {});
    let gate = word();
    // As many held streams as hardware queues: the next stream shares one of them.
    let held: Vec<_> = (0..4).map(|_| Stream::free()).collect();
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    held.iter().for_each(|held| held.hold(gate));
    let moved = || bench.driver.stats().read.iter().map(|engine| engine.bytes).sum::<u64>();
    let before = moved();
    let read = Variables::new(4096, 8192, 0);
    bench.read(stream, 0, &read).unwrap();
    while moved() == before {
        std::thread::yield_now();
    }
    // What comes behind it waits for it, and for the order of the stream.
    let next = Variables::new(4096, 0, 4096);
    bench.read(stream, 0, &next).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    if bench.driver.devices().unwrap()[0].emulated {
        assert!(!read.is_over(), "the copy is the stream's own");
        assert_eq!(moved() - before, 4096);
    }
    gate.store(1, Ordering::Release);
    stream.wait();
    assert_eq!((read.result().unwrap(), next.result().unwrap()), (4096, 4096));
    assert!(
        bench.memory(0, 4096) == bench.data[8192..12_288] && bench.memory(4096, 4096) == bench.data[..4096]
    );
}

/// Size, file offset and buffer offset.
type Triple = (usize, i64, i64);

#[test]
fn behaviour_79_and_80_parameters_are_bound_late_unless_fixed() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(ALL, 200_000, 100_000, |_| {});
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    let cases: &[(Triple, Triple, Result<Triple, ()>)] = &[
        ((8192, 0, 0), (4096, 0, 0), Ok((4096, 0, 0))),
        ((8192, 0, 0), (8193, 0, 0), Err(())),
        ((8192, 0, 0), (8192, 0, 95_000), Err(())),
        ((8192, 0, 0), (8192, -1, 0), Err(())),
        ((8192, 0, 0), (8192, 0, -1), Err(())),
        ((8192, 0, 0), (4000, 4096, 0), Ok((4000, 4096, 0))),
        ((8192, 0, 0), (5000, 0, 777), Ok((5000, 0, 777))),
        ((8192, 0, 0), (6001, 12_345, 4097), Ok((6001, 12_345, 4097))),
        ((90_000, 0, 0), (90_000, 4095, 10_000), Ok((90_000, 4095, 10_000))),
        ((8192, 0, 0), (0, 0, 0), Ok((0, 0, 0))),
    ];
    for op in [Op::Read, Op::Write] {
        for (submitted, late, expected) in cases {
            for flags in 0..16_u32 {
                let fixed = |bit: u32, first: i64, now: i64| if flags & bit != 0 { first } else { now };
                let now = (
                    fixed(4, submitted.0 as i64, late.0 as i64) as usize,
                    fixed(2, submitted.1, late.1),
                    fixed(1, submitted.2, late.2),
                );
                let expected = if now == *late {
                    *expected
                } else if now.1 >= 0
                    && now.2 >= 0
                    && now.0 <= submitted.0
                    && now.2 as usize + now.0 <= 100_000
                {
                    Ok(now)
                } else {
                    Err(())
                };
                let (gate, variables) = (word(), Variables::new(submitted.0, submitted.1, submitted.2));
                stream.hold(gate);
                match op {
                    Op::Read => bench.read(stream, flags, &variables).unwrap(),
                    Op::Write => bench.write(stream, flags, &variables).unwrap(),
                }
                variables.set(late.0, late.1, late.2);
                gate.store(1, Ordering::Release);
                stream.wait();
                let got = variables.result();
                let what = format!("{op:?} {submitted:?} then {late:?}, flags {flags:#x}");
                match expected {
                    Ok((len, file_offset, buffer_offset)) => {
                        assert_eq!(got.unwrap(), len, "{what}");
                        let memory = bench.memory(buffer_offset as usize, len);
                        assert!(memory == bench.disk(file_offset as usize, len), "{what}");
                    }
                    Err(()) => assert_eq!(got.unwrap_err().kind(), ErrorKind::InvalidValue, "{what}"),
                }
            }
        }
    }
}

#[test]
fn behaviour_79_submit_refuses_what_the_header_says() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(STAGED, 8192, 8192, |_| {});
    let stream = Stream::free();
    let refused = |variables: Arc<Variables>| bench.read(stream, 0, &variables).unwrap_err().kind();
    for (len, file_offset, buffer_offset) in
        [(8193, 0, 0), (1, -1, 0), (1, 0, -1), (1, 0, 8192), (0, 0, 8192)]
    {
        assert_eq!(refused(Variables::new(len, file_offset, buffer_offset)), ErrorKind::InvalidValue);
    }
    let none = Variables::new(0, 0, 0);
    bench.read(stream, 0, &none).unwrap();
    assert_eq!((none.result().unwrap(), stream.is_idle()), (0, true));
    let unknown = hipfile::FileId::from_raw(7);
    let one = Variables::new(1, 0, 0);
    let got = enqueue(&bench.driver, Op::Read, unknown, bench.buffer.ptr(), stream, 0, &one);
    assert_eq!(got.unwrap_err().kind(), ErrorKind::HandleNotRegistered);
}

#[test]
fn memory_of_another_gpu_than_the_streams_is_refused() {
    if !is_emulated_hip("it makes two emulated GPUs") {
        return;
    }
    // SAFETY: before any thread; the emulation reads it at its first use.
    unsafe { std::env::set_var("HIP_EMU_DEVICES", "2") };
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(STAGED, 8192, |_| {});
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipSetDevice)(1) }, HipError::SUCCESS);
    let (stream, mine) = (Stream::free(), Buffer::alloc(&bench.driver, 1, 8192).unwrap());
    let one = Variables::new(4096, 4096, 0);
    assert_eq!(bench.read(stream, 0, &one).unwrap_err().kind(), ErrorKind::InvalidValue);
    enqueue(&bench.driver, Op::Read, bench.id, mine.ptr(), stream, 0, &one).unwrap();
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipSetDevice)(0) }, HipError::SUCCESS);
    stream.wait();
    assert_eq!(one.result().unwrap(), 4096);
    let mut bytes = vec![0; 4096];
    mine.download(0, &mut bytes).unwrap();
    assert!(bytes == bench.data[4096..]);
}

#[test]
fn behaviour_78_a_failing_direct_path_is_left_as_synchronously() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    for (function, op) in [(Function::hipAmdFileRead, Op::Read), (Function::hipAmdFileWrite, Op::Write)] {
        for errno in [libc::ENODEV, libc::EREMOTEIO] {
            let bench = Bench::new(ALL, 200_000, |c| c.unsupported_file_systems = true);
            let stream = Stream::free();
            fail(function, When::Every, Fault::Status(errno));
            let variables = Variables::new(131_072, 4096, 0);
            enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables).unwrap();
            stream.wait();
            fault::clear();
            assert_eq!(variables.result().unwrap(), 131_072);
            assert!(bench.memory(0, 131_072) == bench.disk(4096, 131_072));
        }
    }
}

#[test]
fn an_io_error_is_the_result_and_leaves_the_destination() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(ALL, 65_536, |c| c.unsupported_file_systems = true);
    let stream = Stream::free();
    fail(Function::hipAmdFileRead, When::Every, Fault::Status(libc::EIO));
    let (bad, good) = (Variables::new(16_384, 0, 0), Variables::new(100, 50, 20_000));
    bench.read(stream, 0, &bad).unwrap();
    bench.read(stream, 0, &good).unwrap();
    stream.wait();
    fault::clear();
    assert_eq!(bad.result().unwrap_err().os_error(), Some(libc::EIO));
    assert_eq!(good.result().unwrap(), 100, "what comes after runs");
    assert!(bench.memory(0, 16_384).iter().all(|b| *b == 0));
}

#[test]
fn with_staging_forbidden_nothing_is_staged() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(STAGED, 65_536, |c| c.fallback = Fallback::Forbid);
    let (stream, one) = (Stream::free(), Variables::new(4096, 0, 0));
    bench.read(stream, 0, &one).unwrap();
    stream.wait();
    assert_eq!(one.result().unwrap_err().kind(), ErrorKind::IONotSupported);
    assert!(bench.memory(0, 4096).iter().all(|b| *b == 0));
}

#[test]
fn a_large_transfer_goes_through_one_block_and_may_shrink() {
    let _watchdog = Watchdog::new(120);
    for engines in [STAGED, ALL] {
        let bench = Bench::new(engines, 8 << 20, |c| c.stream_len = 1);
        let stream = Stream::free();
        bench.driver.prepare_stream(stream.ptr()).unwrap();
        for late in [8 << 20, 3 << 20, 1, 0] {
            let (gate, variables) = (word(), Variables::new(8 << 20, 0, 0));
            stream.hold(gate);
            std::thread::scope(|scope| {
                // All its commands may be more than a queue holds: then the call waits for the gate.
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    variables.set(late, 0, 0);
                    gate.store(1, Ordering::Release);
                });
                bench.read(stream, 0, &variables).unwrap();
            });
            stream.wait();
            assert_eq!(variables.result().unwrap(), late);
            assert!(bench.memory(0, late) == bench.data[..late]);
            let variables = Variables::new(late.max(1), 4097, 0);
            bench.write(stream, 7, &variables).unwrap();
            stream.wait();
            assert_eq!(variables.result().unwrap(), late.max(1));
            assert!(bench.memory(0, late.max(1)) == bench.disk(4097, late.max(1)));
            std::os::unix::fs::FileExt::write_all_at(&bench.file, &bench.data, 0).unwrap();
            bench.file.set_len(8 << 20).unwrap();
        }
    }
}

#[test]
fn sixty_four_streams_share_four_queues_and_few_blocks() {
    let _watchdog = Watchdog::new(180);
    for blocks in [1, 2, 64] {
        let bench = Bench::with_buffer(ALL, 256 << 10, 64 * 8192, |c| {
            c.block_len = 64 << 10;
            c.stream_len = blocks * (64 << 10);
        });
        let streams: Vec<_> = (0..64).map(|i| Stream::new(i % 2)).chain([LEGACY]).collect();
        let refused = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (index, stream) in streams.iter().enumerate() {
                let (bench, refused) = (&bench, &refused);
                scope.spawn(move || {
                    let at = (index % 64 * 8192) as i64;
                    for step in 0..20_i64 {
                        let variables = Variables::new(4096, step * 4096, at);
                        let submit = || match step % 4 {
                            3 => bench.write(*stream, step as u32 % 8, &variables),
                            _ => bench.read(*stream, step as u32 % 8, &variables),
                        };
                        while let Err(error) = submit() {
                            assert_eq!(
                                (error.kind(), error.device_code()),
                                (ErrorKind::HipDriverError, Some(2))
                            );
                            refused.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_micros(200));
                        }
                        if step % 5 == 4 {
                            stream.wait();
                        }
                        if step % 5 == 4 {
                            assert_eq!(variables.result().unwrap(), 4096);
                        }
                    }
                    stream.wait();
                });
            }
            // Synchronous readers, whose copies wait for blocking streams, have Blocks of their own.
            let calls: Vec<_> = (0..17).map(|_| Buffer::alloc(&bench.driver, 0, 65_536).unwrap()).collect();
            let mut calls = calls.into_iter();
            let for_batch = calls.next().unwrap();
            let bench = &bench;
            scope.spawn(move || {
                let batch = RawBatch::new(16).unwrap();
                for round in 0..10 {
                    let entries: Vec<_> = (0..16)
                        .map(|i| Entry {
                            op: Ok(Op::Read),
                            file: bench.id,
                            buffer: for_batch.ptr(),
                            buffer_offset: i * 4096,
                            file_offset: (i + round) * 4096,
                            len: 4096,
                            cookie: i as u64,
                        })
                        .collect();
                    // SAFETY: the buffer is this thread's, and outlives the events.
                    unsafe { batch.submit(&bench.driver, &entries) }.unwrap();
                    let events = batch.poll(16, 16, None).unwrap();
                    assert!(events.iter().all(|e| matches!(e.status, EventStatus::Complete(4096))));
                }
            });
            for (reader, buffer) in (0..).zip(calls) {
                scope.spawn(move || {
                    for _ in 0..20 {
                        // SAFETY: the buffer is this thread's.
                        let n =
                            unsafe { bench.driver.read(bench.id, buffer.ptr(), 65_536, reader * 4096, 0) };
                        assert_eq!(n.unwrap(), 65_536);
                    }
                });
            }
        });
        eprintln!("{blocks} Blocks: {} submissions refused", refused.into_inner());
    }
}

#[test]
fn a_thousand_operations_of_a_stream_need_one_block() {
    let _watchdog = Watchdog::new(120);
    let bench = Bench::with_buffer(STAGED, 1 << 20, 1 << 20, |c| c.stream_len = 1);
    let (stream, gate) = (Stream::free(), word());
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    stream.hold(gate);
    // More commands than a queue holds: who submits them waits for the gate, holding nothing that the work needs.
    let opener = std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        gate.store(1, Ordering::Release);
    });
    let all: Vec<_> = (0..1000)
        .map(|i| {
            let variables = Variables::new(1024, i * 1000, i * 1024 % (1 << 19));
            bench.read(stream, 7, &variables).unwrap();
            variables
        })
        .collect();
    opener.join().unwrap();
    stream.wait();
    let mut last = 0;
    for variables in all {
        assert_eq!(variables.result().unwrap(), 1024);
        assert!(variables.order() > last);
        last = variables.order();
    }
}

#[test]
fn a_captured_stream_is_refused_and_nothing_is_queued() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(ALL, 8192, |_| {});
    let stream = Stream::free();
    stream.capture(2);
    let one = Variables::new(4096, 0, 0);
    assert_eq!(bench.read(stream, 0, &one).unwrap_err().kind(), ErrorKind::AsyncNotSupported);
    assert_eq!(bench.write(stream, 0, &one).unwrap_err().kind(), ErrorKind::AsyncNotSupported);
    assert!(stream.end_capture());
    bench.read(stream, 0, &one).unwrap();
    stream.wait();
    assert_eq!(one.result().unwrap(), 4096);
}

#[test]
fn behaviour_86_and_50_a_destroyed_stream_and_a_closed_driver_finish_what_is_queued() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(ALL, 65_536, |_| {});
    let (stream, other, gate) = (Stream::free(), Stream::free(), word());
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    stream.hold(gate);
    let (read, write) = (Variables::new(20_000, 1, 3), Variables::new(10_000, 0, 3));
    bench.read(stream, 0, &read).unwrap();
    bench.write(stream, 0, &write).unwrap();
    // In use as by a synchronous transfer.
    assert_eq!(bench.driver.deregister_file(bench.id).unwrap_err().kind(), ErrorKind::InternalError);
    stream.destroy();
    bench.driver.close();
    let late = Variables::new(1, 0, 0);
    assert_eq!(bench.read(other, 0, &late).unwrap_err().kind(), ErrorKind::HandleNotRegistered);
    gate.store(1, Ordering::Release);
    let (read, write) = loop {
        if let Some(write) = write.take() {
            break (read.result(), write);
        }
        std::thread::yield_now();
    };
    assert_eq!((read.unwrap(), write.unwrap()), (20_000, 10_000));
    assert!(bench.disk(0, 10_000) == bench.data[1..10_001]);
}

#[test]
fn without_wait_values_a_function_that_does_not_return_holds_the_stream() {
    if !is_emulated_hip("it hides a function of HIP's") {
        return;
    }
    // SAFETY: before any thread; the emulation reads it at its first use.
    unsafe { std::env::set_var("HIP_EMU_HIDE", "hipStreamWaitValue64") };
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(ALL, 256 << 10, 16 * 8192, |_| {});
    let streams: Vec<_> = (0..16).map(|_| Stream::free()).collect();
    let all: Vec<_> = (0..320)
        .map(|i| {
            let variables = Variables::new(5000, i % 50 * 5000, i % 16 * 8192);
            bench.read(streams[i as usize % 16], i as u32 % 8, &variables).unwrap();
            variables
        })
        .collect();
    streams.iter().for_each(|s| s.wait());
    for variables in all {
        assert_eq!(variables.result().unwrap(), 5000);
    }
}

#[test]
fn a_refused_operation_has_ended_before_the_stream_goes_on() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(120);
    let bench = Bench::new(STAGED, 65_536, |c| c.stream_len = 1);
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    let first = Variables::new(4096, 0, 0);
    bench.read(stream, 0, &first).unwrap();
    stream.wait();
    // The library's threads come last where all processors are busy.
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        if std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("hipfile-")) {
            let id = task.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: a plain call.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, id, 19) }, 0);
        }
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| while !stopped() {});
        }
        // A round takes long where processors are few.
        let began = std::time::Instant::now();
        for round in 0..150 {
            if round >= 8 && began.elapsed() > std::time::Duration::from_secs(10) {
                break;
            }
            // The hand-over is queued and runs; what should hold the stream then is not.
            let slow = Fault::Delay(std::time::Duration::from_millis(1 + round % 4));
            fail(Function::hipStreamWaitValue64, When::Nth(1), slow);
            fail(Function::hipStreamWaitValue64, When::Nth(1), Fault::Error(HipError::LAUNCH_FAILURE));
            let variables = Variables::new(65_536, 0, 0);
            let op = if round % 2 == 0 { Op::Read } else { Op::Write };
            let refused = enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables);
            fault::clear();
            stream.wait();
            let again = Variables::new(4096, 0, 0);
            bench.read(stream, 0, &again).unwrap();
            stream.wait();
            let result = again.result();
            if refused.is_ok() || !matches!(result, Ok(4096)) {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("round {round}: {refused:?} {result:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_command_that_cannot_be_queued_fails_the_call_and_nothing_hangs() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    for op in [Op::Read, Op::Write] {
        let commands =
            [Function::hipLaunchHostFunc, Function::hipStreamWaitValue64, Function::hipModuleLaunchKernel];
        for (function, nth) in commands.into_iter().flat_map(|f| [(f, 1), (f, 2)]) {
            let bench = Bench::new(STAGED, 65_536, |c| c.stream_len = 1);
            let stream = Stream::free();
            bench.driver.prepare_stream(stream.ptr()).unwrap();
            let variables = Variables::new(65_536, 0, 0);
            fail(function, When::Nth(nth), Fault::Error(HipError::LAUNCH_FAILURE));
            let got = enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables);
            fault::clear();
            stream.wait();
            if let Err(error) = got {
                assert_eq!(error.device_code(), Some(HipError::LAUNCH_FAILURE.0 as i32));
                assert!(variables.take().is_none(), "{op:?} {function:?} {nth}: no result after a refusal");
            }
            // The one Block is back.
            let again = Variables::new(4096, 0, 0);
            bench.read(stream, 0, &again).unwrap();
            stream.wait();
            assert_eq!(again.result().unwrap(), 4096, "{op:?} {function:?} {nth}");
        }
    }
}
