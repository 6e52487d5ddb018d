//! What operations on streams promise beyond the bytes: what overlaps, what stays together, what a capture of somebody
//! else's survives, what errors say.

#[cfg(debug_assertions)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use gpu_sys::hip::{HipError, STREAM_DEFAULT};
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Ask, Buffer, Caller, DeviceChoice, ErrorKind, File, Op, Order, Result};

use crate::support::gpu::{choice, is_emulated_hip};
use crate::support::streams::*;
use crate::support::{Storage, driver_with};

const STAGED: &[&str] = &["uring", "bounce"];
const ALL: &[&str] = &["p2p", "uring", "bounce"];

/// Meets the others when its stream gets there.
struct Meeting {
    ask: Ask,
    bound: bool,
    barrier: Arc<Barrier>,
    met: Arc<AtomicUsize>,
}

impl Caller for Meeting {
    fn bind(&mut self) -> Ask {
        if std::mem::replace(&mut self.bound, true) {
            self.barrier.wait();
        }
        self.ask
    }

    fn is_fixed(&self) -> bool {
        false
    }

    fn accepted(&mut self) {}

    fn done(self: Box<Self>, result: Result<usize>) {
        assert_eq!(result.unwrap(), self.ask.len);
        self.met.fetch_add(1, Ordering::SeqCst);
    }
}

/// Each operation goes on only when all of them are under way: had one to wait for another, this would hang.
fn all_meet(streams: usize) {
    let bench = Bench::with_buffer(ALL, 256 << 10, 16 * 4096, |_| {});
    let (barrier, met) = (Arc::new(Barrier::new(streams)), Arc::new(AtomicUsize::new(0)));
    let streams: Vec<_> = (0..streams).map(|_| Stream::free()).collect();
    streams.iter().for_each(|stream| bench.driver.prepare_stream(stream.ptr()).unwrap());
    for round in 0..10 {
        for (index, stream) in streams.iter().enumerate() {
            let at = (index * 4096) as i64;
            let caller = Meeting {
                ask: Ask { len: 4096, file_offset: at, buffer_offset: at },
                bound: false,
                barrier: Arc::clone(&barrier),
                met: Arc::clone(&met),
            };
            // SAFETY: the streams are waited for before the buffer goes.
            let queued = unsafe {
                bench.driver.enqueue(Op::Read, bench.id, bench.buffer.ptr(), stream.ptr(), Box::new(caller))
            };
            queued.unwrap();
        }
        streams.iter().for_each(|stream| stream.wait());
        assert_eq!(met.load(Ordering::SeqCst), streams.len() * (round + 1));
        assert!(bench.memory(0, streams.len() * 4096) == bench.data[..streams.len() * 4096]);
    }
}

#[test]
fn behaviour_83_operations_on_sixteen_streams_overlap() {
    // SAFETY: before any thread; the emulation reads it at its first use.
    unsafe { std::env::set_var("HIP_EMU_QUEUES", "16") };
    let _watchdog = Watchdog::new(60);
    all_meet(16);
}

#[test]
fn behaviour_83_as_many_overlap_as_there_are_hardware_queues() {
    let _watchdog = Watchdog::new(60);
    all_meet(4);
}

/// Writes memory that a stream is about to fill, while that stream is held; what the file has then.
fn written_while_held(order: Order, stream: Stream) -> u8 {
    let bench = Bench::with_buffer(STAGED, 4096, 4096, |c| c.order = order);
    let mut fresh = Buffer::alloc(&bench.driver, 0, 4096).unwrap();
    fresh.upload(0, &[9; 4096]).unwrap();
    let gate = word();
    stream.hold(gate);
    stream.copy(bench.buffer.ptr(), fresh.ptr(), 4096);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            // SAFETY: the buffer outlives the call, and its content is what is tested.
            let written = unsafe { bench.driver.write(bench.id, bench.buffer.ptr(), 4096, 0, 0) };
            assert_eq!(written.unwrap(), 4096);
        });
        // One that does not wait would be done by now.
        std::thread::sleep(std::time::Duration::from_millis(50));
        gate.store(1, Ordering::Release);
        writing.join().unwrap();
    });
    stream.wait();
    bench.disk(0, 1)[0]
}

#[test]
fn behaviour_61_synchronous_calls_wait_for_what_the_order_setting_says() {
    let _watchdog = Watchdog::new(60);
    assert_eq!(written_while_held(Order::Device, Stream::free()), 9, "all work of the device");
    assert_eq!(written_while_held(Order::Stream, Stream::new(STREAM_DEFAULT)), 9, "a blocking stream's");
    assert_eq!(written_while_held(Order::Stream, LEGACY), 9, "the legacy default stream's");
    assert_eq!(written_while_held(Order::Stream, Stream::free()), 0, "no other stream's");
    assert_eq!(written_while_held(Order::Off, Stream::new(STREAM_DEFAULT)), 0, "nothing");
    assert_eq!(written_while_held(Order::Off, LEGACY), 0, "nothing");
}

#[test]
fn behaviour_80_fixed_parameters_are_read_once() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(ALL, 65_536, |_| {});
    let (stream, gate) = (Stream::free(), word());
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    stream.hold(gate);
    let all: Vec<_> = (0..8_u32)
        .map(|flags| {
            let variables = Variables::new(1000, 4096, i64::from(flags) * 8192);
            bench.read(stream, flags | 8, &variables).unwrap();
            // Each is smaller: only what is not fixed takes effect.
            variables.set(500, 5000, i64::from(flags) * 8192 + 100);
            (flags, variables)
        })
        .collect();
    gate.store(1, Ordering::Release);
    stream.wait();
    for (flags, variables) in all {
        let pick = |bit: u32, first: usize, now: usize| if flags & bit != 0 { first } else { now };
        let (len, from) = (pick(4, 1000, 500), pick(2, 4096, 5000));
        let to = flags as usize * 8192 + pick(1, 0, 100);
        assert_eq!(variables.result().unwrap(), len, "{flags:#x}");
        assert!(bench.memory(to, len) == bench.data[from..from + len], "{flags:#x}");
    }
}

#[test]
fn appended_writes_of_streams_and_calls_are_whole() {
    let _watchdog = Watchdog::new(60);
    const RECORD: usize = 200_000;
    for engines in [STAGED, ALL] {
        let (driver, storage) = (driver_with(engines, |_| {}), Storage::here());
        let open = || std::fs::File::options().create(true).append(true).read(true).open(storage.path("log"));
        let file = File::register(&driver, open().unwrap()).unwrap();
        let other = File::register(&driver, open().unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6_u8 {
                let (driver, file) = (&driver, if thread % 2 == 0 { &file } else { &other });
                scope.spawn(move || {
                    let mut buffer = Buffer::alloc(driver, 0, RECORD).unwrap();
                    buffer.upload(0, &vec![thread; RECORD]).unwrap();
                    let stream = Stream::free();
                    for step in 0..5 {
                        if thread < 2 {
                            assert_eq!(file.write_at(&buffer, 0..RECORD, 7).unwrap(), RECORD);
                            continue;
                        }
                        let variables = Variables::new(RECORD, step * 100, 0);
                        enqueue(driver, Op::Write, file.id(), buffer.ptr(), stream, 0, &variables).unwrap();
                        stream.wait();
                        assert_eq!(variables.result().unwrap(), RECORD);
                    }
                });
            }
        });
        let log = std::fs::read(storage.path("log")).unwrap();
        assert_eq!(log.len(), 30 * RECORD);
        for (number, record) in log.chunks(RECORD).enumerate() {
            assert!(record.iter().all(|b| *b == record[0]), "record {number} is broken by another");
        }
    }
}

/// Captures a stream while `work` runs on another thread; whether the capture is still good.
fn survives(work: impl FnOnce() + Send) -> bool {
    let stream = Stream::free();
    stream.capture(0);
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    stream.end_capture()
}

#[test]
fn captures_of_others_survive_our_calls() {
    let _watchdog = Watchdog::new(60);
    let first = Bench::new(STAGED, 65_536, |_| {});
    let stream = Stream::free();
    assert!(survives(|| first.driver.prepare_stream(stream.ptr()).unwrap()), "registering a stream");
    assert!(
        survives(|| {
            let variables = Variables::new(10_000, 1, 2);
            first.read(stream, 0, &variables).unwrap();
            while variables.take().is_none() {
                std::thread::yield_now();
            }
        }),
        "an operation on a stream"
    );
    assert!(survives(|| drop(Buffer::alloc(&first.driver, 0, 4096).unwrap())), "allocating");
    if is_emulated_hip("it needs a runtime that moves files past the host") {
        let direct = Bench::new(&["p2p"], 65_536, |c| c.unsupported_file_systems = true);
        assert!(
            survives(|| {
                // SAFETY: the buffer outlives the call.
                let read = unsafe { direct.driver.read(direct.id, direct.buffer.ptr(), 65_536, 0, 0) };
                assert_eq!(read.unwrap(), 65_536);
            }),
            "a direct read"
        );
        assert!(fault::calls("hipAmdFileRead") > 0);
    }
    let staged = || {
        // SAFETY: the buffer outlives the call.
        let read = unsafe { first.driver.read(first.id, first.buffer.ptr(), 65_536, 0, 0) };
        assert_eq!(read.unwrap(), 65_536);
    };
    // HIP refuses every blocking copy while anything is captured, and voids it. That is met once in a process; the call
    // works nevertheless. CUDA does not.
    let first_time = survives(staged);
    assert!(first_time || choice() == DeviceChoice::Emulated, "the first staged read");
    assert!(survives(staged), "a staged read");
    assert!(first.memory(0, 65_536) == first.data);
}

/// Whatever copies, it may not copy what a full read would have had.
#[test]
fn a_file_that_shrinks_after_submission_gives_a_short_count_and_no_stale_bytes() {
    let _watchdog = Watchdog::new(60);
    for engines in [STAGED, ALL] {
        let bench = Bench::with_buffer(engines, 300_000, 300_000, |_| {});
        let stream = Stream::free();
        bench.driver.prepare_stream(stream.ptr()).unwrap();
        for (flags, left) in [(15, 200_001), (7, 65_536), (0, 65_535), (15, 1), (7, 0)] {
            std::os::unix::fs::FileExt::write_all_at(&bench.file, &bench.data, 0).unwrap();
            // The stream's Block and the memory: what is left over from a full read.
            let full = Variables::new(300_000, 0, 0);
            bench.read(stream, flags, &full).unwrap();
            stream.wait();
            assert_eq!(full.result().unwrap(), 300_000);
            // Different content, a shorter file: what lies behind it stays as it was.
            let fresh: Vec<u8> = bench.data.iter().map(|b| !b).collect();
            let (gate, last) = (word(), Variables::new(300_000, 0, 0));
            std::os::unix::fs::FileExt::write_all_at(&bench.file, &fresh, 0).unwrap();
            stream.hold(gate);
            bench.read(stream, flags, &last).unwrap();
            bench.file.set_len(left as u64).unwrap();
            gate.store(1, Ordering::Release);
            stream.wait();
            assert_eq!(last.result().unwrap(), left, "{engines:?} {flags:#x}");
            assert!(bench.memory(0, left) == fresh[..left], "{engines:?} {flags:#x} {left}");
            assert!(
                bench.memory(left, 300_000 - left) == bench.data[left..],
                "{engines:?} {flags:#x} {left}"
            );
        }
    }
}

#[test]
fn what_has_a_result_is_not_in_use() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(ALL, 65_536, |_| {});
    let (stream, mut id) = (Stream::free(), bench.id);
    for step in 0..300 {
        let variables = Variables::new(10_000, step, 3);
        let (driver, buffer) = (&bench.driver, bench.buffer.ptr());
        let op = if step % 2 == 0 { Op::Read } else { Op::Write };
        enqueue(driver, op, id, buffer, stream, 0, &variables).unwrap();
        if step % 3 == 0 {
            stream.wait();
        }
        while !variables.is_over() {
            std::hint::spin_loop();
        }
        driver.deregister_buffer(buffer).unwrap();
        driver.deregister_file(id).unwrap();
        // SAFETY: the buffer keeps the memory.
        unsafe { driver.register_buffer(buffer, bench.buffer.len(), 0) }.unwrap();
        id = driver.register_file(std::os::fd::AsRawFd::as_raw_fd(&bench.file)).unwrap();
    }
}

#[test]
fn errors_name_the_operation_once() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::new(STAGED, 8192, |_| {});
    let stream = Stream::free();
    for (len, file_offset, buffer_offset) in [(1, -1, 0), (8193, 0, 0), (1, 0, 9000)] {
        let error = bench.read(stream, 0, &Variables::new(len, file_offset, buffer_offset)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        let text = error.to_string();
        assert_eq!(text.matches("read: ").count(), 1, "{text}");
        assert!(text.contains(&len.to_string()) || text.contains("-1") || text.contains("9000"), "{text}");
    }
}

/// Of an operation that was refused nothing stays in use, also where the stream takes no function that could end it.
#[test]
fn a_stream_that_takes_no_function_keeps_nothing_in_use() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let refuse = |function| {
        let fault = Fault::Error(HipError::LAUNCH_FAILURE);
        fault::add(Rule { function, when: When::Every, fault });
    };
    for (op, len, flags) in
        [(Op::Read, 4096, 1), (Op::Read, 65_536, 0), (Op::Read, 2 << 20, 1), (Op::Write, 65_536, 1)]
    {
        for also in [None, Some(Function::hipStreamWaitValue64), Some(Function::hipModuleLaunchKernel)] {
            let bench = Bench::new(STAGED, 2 << 20, |c| c.stream_len = 16 * c.block_len);
            let stream = Stream::new(flags);
            bench.driver.prepare_stream(stream.ptr()).unwrap();
            let ran = Variables::new(4096, 0, 0);
            bench.read(stream, 0, &ran).unwrap();
            stream.wait();
            refuse(Function::hipLaunchHostFunc);
            also.into_iter().for_each(refuse);
            let variables = Variables::new(len, 0, 0);
            let got = enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables);
            assert_eq!(got.unwrap_err().device_code(), Some(HipError::LAUNCH_FAILURE.0 as i32));
            // While all is still refused.
            let case = format!("{op:?} {len} {flags} {also:?}");
            let until = |what: &str, try_it: &dyn Fn() -> bool| {
                let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
                while !try_it() {
                    assert!(std::time::Instant::now() < end, "{case}: the {what} stays in use");
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            };
            let (driver, buffer) = (&bench.driver, bench.buffer.ptr());
            until("file", &|| driver.deregister_file(bench.id).is_ok());
            until("buffer", &|| driver.deregister_buffer(buffer).is_ok());
            // SAFETY: the buffer keeps the memory.
            unsafe { driver.register_buffer(buffer, bench.buffer.len(), 0) }.unwrap();
            fault::clear();
            assert!(variables.take().is_none(), "{case}: no result after a refusal");
            let id = driver.register_file(std::os::fd::AsRawFd::as_raw_fd(&bench.file)).unwrap();
            let again = Variables::new(len, 0, 0);
            enqueue(driver, op, id, buffer, stream, 0, &again).unwrap();
            stream.wait();
            assert_eq!(again.result().unwrap(), len, "{case}");
        }
    }
}

/// A stream that takes neither a function nor a copy, while it is held: what it was given before keeps the memory until it has
/// passed that, and no longer, whichever way that is found out. One block, which other streams want too.
#[test]
fn a_stream_that_took_nothing_more_gives_its_memory_back() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(120);
    let refuse = |function, when| {
        let fault = Fault::Error(HipError::LAUNCH_FAILURE);
        fault::add(Rule { function, when, fault });
    };
    for (op, taken, held_meanwhile, flags) in [Op::Read, Op::Write].into_iter().flat_map(|op| {
        [(0, false), (1, false), (1, true)]
            .into_iter()
            .flat_map(move |(taken, held)| [0, 1].map(|flags| (op, taken, held, flags)))
    }) {
        let case = format!("{op:?} on {flags}, {taken} taken, used while held: {held_meanwhile}");
        let bench = Bench::new(STAGED, 65_536, |c| c.stream_len = 1);
        let (stream, other, gate) = (Stream::new(flags), Stream::free(), word());
        bench.driver.prepare_stream(stream.ptr()).unwrap();
        let (driver, buffer) = (&bench.driver, bench.buffer.ptr());
        let submit = |op, stream, variables: &std::sync::Arc<Variables>| {
            enqueue(driver, op, bench.id, buffer, stream, 0, variables)
        };
        stream.hold(gate);
        refuse(Function::hipLaunchHostFunc, When::From(taken + 1));
        refuse(Function::hipModuleLaunchKernel, When::Every);
        let refused = Variables::new(4096, 0, 0);
        let got = submit(op, stream, &refused);
        assert_eq!(got.unwrap_err().device_code(), Some(HipError::LAUNCH_FAILURE.0 as i32), "{case}");
        fault::clear();
        let again = Variables::new(4096, 0, 0);
        if taken > 0 {
            let occupied = submit(Op::Read, other, &Variables::new(4096, 0, 0));
            assert!(occupied.is_err(), "{case}: the held stream has yet to pass what it took");
            if held_meanwhile {
                submit(Op::Read, stream, &again).unwrap();
            }
        }
        let go_on = || {
            gate.store(1, Ordering::Release);
            stream.wait();
        };
        if taken > 0 {
            go_on();
            if !held_meanwhile {
                submit(Op::Read, stream, &again).unwrap();
                stream.wait();
            }
            assert_eq!(again.result().unwrap(), 4096, "{case}");
        }
        // Another stream finds the block; a watch may have to look once more before.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let last = Variables::new(4096, 0, 0);
        while let Err(error) = submit(Op::Read, other, &last) {
            assert!(std::time::Instant::now() < end, "{case}: the block is not given back: {error}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if taken == 0 {
            // It was there while the stream was held: it had been given nothing. The copy of the other one is not.
            go_on();
        }
        other.wait();
        assert_eq!(last.result().unwrap(), 4096, "{case}");
        assert!(refused.take().is_none(), "{case}: no result after a refusal");
        while driver.deregister_buffer(buffer).is_err() {
            assert!(std::time::Instant::now() < end, "{case}: the buffer stays in use");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: the buffer keeps the memory.
        unsafe { driver.register_buffer(buffer, bench.buffer.len(), 0) }.unwrap();
    }
}

/// What such a stream keeps for good, since it is not used again, is not missed by the next driver.
#[test]
fn the_driver_after_one_whose_stream_kept_its_memory_has_enough() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(120);
    let (stream, gate) = (Stream::free(), word());
    for round in 0..3 {
        let bench = Bench::new(STAGED, 65_536, |c| c.stream_len = 1);
        let other = Stream::free();
        bench.driver.prepare_stream(other.ptr()).unwrap();
        let read = Variables::new(4096, 0, 0);
        bench.read(other, 0, &read).unwrap_or_else(|error| panic!("round {round}: {error}"));
        other.wait();
        assert_eq!(read.result().unwrap(), 4096, "round {round}");
        stream.hold(gate);
        for (function, when) in
            [(Function::hipLaunchHostFunc, When::From(2)), (Function::hipModuleLaunchKernel, When::Every)]
        {
            fault::add(Rule { function, when, fault: Fault::Error(HipError::LAUNCH_FAILURE) });
        }
        bench.read(stream, 0, &Variables::new(4096, 0, 0)).unwrap_err();
        fault::clear();
        bench.driver.close();
        // Nothing can be allocated, and no memory given back, while a stream is held.
        gate.store(1, Ordering::Release);
        stream.wait();
        gate.store(0, Ordering::Release);
    }
}

/// A stream that is held, and the word that lets it go on.
#[cfg(debug_assertions)]
fn held() -> (Bench, Stream, &'static AtomicU64) {
    let bench = Bench::new(ALL, 2 << 20, |c| c.stream_len = 16 * c.block_len);
    let (stream, gate) = (Stream::free(), word());
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    stream.hold(gate);
    (bench, stream, gate)
}

/// When direct access comes within reach between submission and execution, what was made ready for staging is staged: a write is
/// planned by a function of the stream's, which may call nothing of the runtime.
#[cfg(debug_assertions)]
#[test]
fn what_is_to_be_staged_stays_so_when_direct_access_comes_within_reach() {
    use hipfile::faults::{Site, What, When, clear, inject};
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    for (op, len) in [(Op::Write, 65_536), (Op::Read, 65_536), (Op::Read, 2 << 20), (Op::Write, 2 << 20)] {
        let (bench, stream, gate) = held();
        inject(Site::FileReopen, When::Every, What::Errno(libc::EMFILE));
        let variables = Variables::new(len, 0, 0);
        enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables).unwrap();
        clear();
        // By now it can be opened.
        if bench.driver.file_info(bench.id).unwrap().engine != "p2p" {
            gate.store(1, Ordering::Release);
            stream.wait();
            return crate::support::skip("direct access", "not on the file system of the build folder");
        }
        gate.store(1, Ordering::Release);
        stream.wait();
        assert_eq!(variables.result().unwrap(), len, "{op:?} {len}");
        let stats = bench.driver.stats();
        let side = if op == Op::Read { &stats.read } else { &stats.write };
        assert!(
            side.iter().all(|engine| engine.engine != "p2p" || engine.operations == 0),
            "{op:?} {len}: {stats:?}"
        );
    }
}

/// Where no thread can be had, the stream's own does the work, and calls nothing of the runtime, which that forbids.
#[cfg(debug_assertions)]
#[test]
fn without_threads_a_stream_stages_what_it_does_itself() {
    use hipfile::faults::{Site, What, When, clear, inject};
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    for (op, len) in [(Op::Write, 65_536), (Op::Read, 65_536), (Op::Write, 700_001), (Op::Read, 2 << 20)] {
        let (bench, stream, gate) = held();
        inject(Site::ThreadStart, When::Every, What::Errno(libc::EAGAIN));
        let variables = Variables::new(len, 0, 0);
        enqueue(&bench.driver, op, bench.id, bench.buffer.ptr(), stream, 0, &variables).unwrap();
        gate.store(1, Ordering::Release);
        stream.wait();
        clear();
        assert_eq!(variables.result().unwrap(), len, "{op:?} {len}");
        if op == Op::Read {
            assert!(bench.memory(0, len) == bench.data[..len]);
        }
    }
}
