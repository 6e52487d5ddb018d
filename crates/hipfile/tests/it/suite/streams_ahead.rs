//! Large reads on streams, of which later pieces are filled while earlier ones are copied: that they are exact whatever ends
//! them, keep the stream's order, and never wait for each other.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpu_sys::hip::{HipError, STREAM_DEFAULT};
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Config, Op, PageCache};

use crate::support::gpu::is_emulated_hip;
use crate::support::streams::*;

const STAGED: &[&str] = &["uring", "bounce"];
const BLOCK: usize = 64 << 10;
const LEN: usize = 6 << 20;

/// So many Blocks for streams: small, so that a ring goes round often.
fn blocks(count: usize) -> impl Fn(&mut Config) {
    move |config| {
        config.block_len = BLOCK;
        config.stream_len = count * BLOCK;
    }
}

/// Fills the buffer with something that is in no file.
fn paint(bench: &mut Bench) {
    let len = bench.buffer.len();
    bench.buffer.upload(0, &vec![0xa5; len]).unwrap();
}

#[test]
fn large_reads_move_what_synchronous_calls_would() {
    let _watchdog = Watchdog::new(120);
    for (count, cache) in
        [(64, PageCache::Auto), (8, PageCache::Auto), (64, PageCache::Direct), (5, PageCache::Direct)]
    {
        let mut bench = Bench::with_buffer(STAGED, LEN + 777, LEN, |c| {
            blocks(count)(c);
            c.page_cache = cache;
        });
        for stream in [Stream::free(), Stream::new(STREAM_DEFAULT), LEGACY, PER_THREAD] {
            bench.driver.prepare_stream(stream.ptr()).unwrap();
            for (flags, len, file_offset, buffer_offset) in [
                (0, LEN, 0, 0),
                (7, LEN, 777, 0),
                (7, LEN - 4096, 4096, 4096),
                (0, 4 * BLOCK, 1, 3),
                (7, 5 * BLOCK + 1, 4095, 1),
                (3, LEN, 3 << 20, 0),
                (15, 4 << 20, LEN as i64 + 776, 0),
            ] {
                paint(&mut bench);
                let read = Variables::new(len, file_offset, buffer_offset);
                bench.read(stream, flags, &read).unwrap();
                stream.wait();
                let expected = len.min(bench.data.len() - file_offset as usize);
                let what = format!("{count} Blocks, {cache:?}, {flags:#x}, {len} from {file_offset}");
                assert_eq!(read.result().unwrap(), expected, "{what}");
                let (from, to) = (file_offset as usize, buffer_offset as usize);
                let memory = bench.memory(0, LEN);
                assert!(memory[to..to + expected] == bench.data[from..from + expected], "{what}");
                assert!(memory[..to].iter().chain(&memory[to + expected..]).all(|b| *b == 0xa5), "{what}");
            }
        }
    }
}

#[test]
fn behaviour_80_large_reads_are_bound_late_and_may_shrink() {
    let _watchdog = Watchdog::new(120);
    let mut bench = Bench::with_buffer(STAGED, LEN, LEN, blocks(32));
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    for (len, file_offset, buffer_offset) in [
        (LEN, 0, 0),
        (LEN - 1, 1, 1),
        (3 << 20, 4097, 77),
        (BLOCK, 5, 0),
        (1, 0, 9),
        (0, 0, 0),
        (4096, -1, 0),
        (4096, 0, -1),
    ] {
        paint(&mut bench);
        let (gate, read) = (word(), Variables::new(LEN, 0, 0));
        stream.hold(gate);
        std::thread::scope(|scope| {
            // All its commands may be more than a queue holds: then the call waits for the gate.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                read.set(len, file_offset, buffer_offset);
                gate.store(1, Ordering::Release);
            });
            bench.read(stream, 0, &read).unwrap();
        });
        stream.wait();
        let result = read.result();
        let memory = bench.memory(0, LEN);
        if file_offset < 0 || buffer_offset < 0 {
            assert_eq!(result.unwrap_err().kind(), hipfile::ErrorKind::InvalidValue);
            assert!(memory.iter().all(|b| *b == 0xa5));
            continue;
        }
        assert_eq!(result.unwrap(), len);
        let (from, to) = (file_offset as usize, buffer_offset as usize);
        assert!(memory[to..to + len] == bench.data[from..from + len], "{len} from {from} to {to}");
        assert!(
            memory[..to].iter().chain(&memory[to + len..]).all(|b| *b == 0xa5),
            "{len} from {from} to {to}"
        );
    }
}

#[test]
fn a_large_read_of_a_file_that_shrinks_leaves_what_is_behind_it() {
    let _watchdog = Watchdog::new(120);
    let mut bench = Bench::with_buffer(STAGED, LEN, LEN, blocks(32));
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    for left in [0, 1, BLOCK, 1 << 20, (3 << 20) + 1234, LEN - 1] {
        bench.file.write_all_at(&bench.data, 0).unwrap();
        paint(&mut bench);
        let (gate, read) = (word(), Variables::new(LEN, 0, 0));
        stream.hold(gate);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                bench.file.set_len(left as u64).unwrap();
                gate.store(1, Ordering::Release);
            });
            bench.read(stream, 7, &read).unwrap();
        });
        stream.wait();
        assert_eq!(read.result().unwrap(), left);
        let memory = bench.memory(0, LEN);
        assert!(memory[..left] == bench.data[..left]);
        assert!(memory[left..].iter().all(|b| *b == 0xa5), "{left}");
    }
}

#[test]
fn large_reads_keep_the_order_of_their_stream() {
    let _watchdog = Watchdog::new(120);
    let bench = Bench::with_buffer(STAGED, LEN, 2 * LEN, blocks(32));
    let stream = Stream::free();
    // Each reads elsewhere, and what it leaves is saved before the next one overwrites it.
    let (half, mut all) = (LEN / 2, Vec::new());
    for step in 0..4 {
        let read = Variables::new(half, (step * 4096) as i64, 0);
        bench.read(stream, (step % 8) as u32, &read).unwrap();
        let save = hipfile::DevPtr(bench.buffer.ptr().0 + half + step % 2 * half);
        stream.copy(save, bench.buffer.ptr(), half);
        if step % 2 == 1 {
            stream.wait();
            for (saved, first) in [(half, step - 1), (2 * half, step)] {
                assert!(bench.memory(saved, half) == bench.data[first * 4096..][..half], "{step} {saved}");
            }
        }
        all.push(read);
    }
    let mut last = 0;
    for read in all {
        assert_eq!(read.result().unwrap(), half);
        assert!(read.order() > last);
        last = read.order();
    }
}

/// More streams than hardware queues, among them held ones, and memory for few: whoever is behind a held stream waits, and
/// everybody gets through once it is let go.
#[test]
fn large_reads_on_many_streams_get_through() {
    let _watchdog = Watchdog::new(180);
    for count in [16, 64] {
        let bench = Bench::with_buffer(STAGED, 2 << 20, 12 * (1 << 20), |c| {
            blocks(count)(c);
            c.pool_len = 2 * BLOCK;
        });
        let streams: Vec<_> = (0..12).map(|i| Stream::new(i % 2)).collect();
        streams.iter().for_each(|stream| bench.driver.prepare_stream(stream.ptr()).unwrap());
        let held: Vec<_> = (0..2).map(|_| (Stream::free(), word())).collect();
        held.iter().for_each(|(stream, gate)| stream.hold(gate));
        std::thread::scope(|scope| {
            for (index, stream) in streams.iter().enumerate() {
                let bench = &bench;
                scope.spawn(move || {
                    for round in 0..6_usize {
                        let len = [1 << 20, 3000, 700_000][(round + index) % 3];
                        let from = (round * 5000 + index) as i64;
                        let read = Variables::new(len, from, (index << 20) as i64);
                        while bench.read(*stream, round as u32 % 8, &read).is_err() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        if round % 2 == 1 {
                            stream.wait();
                            assert_eq!(read.result().unwrap(), len);
                            let memory = bench.memory(index << 20, len);
                            assert!(memory == bench.data[from as usize..][..len], "{index} {round}");
                        }
                    }
                });
            }
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                held.iter().for_each(|(_, gate)| gate.store(1, Ordering::Release));
            });
        });
    }
}

#[test]
fn an_error_in_the_middle_ends_a_large_read_there() {
    let _watchdog = Watchdog::new(120);
    let pages = 1 << 20;
    // SAFETY: a fresh mapping.
    let memory = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 4 * pages, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let start = memory.expose_provenance();
    // SAFETY: inside the mapping, which nobody else uses.
    unsafe { memory.cast::<u8>().write_bytes(0x3c, 4 * pages) };
    let hole = start + 2 * pages + 12_288;
    // SAFETY: a page of the mapping, not used from here on.
    assert_eq!(unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(hole), 4096) }, 0);
    let mut bench = Bench::with_buffer(STAGED, 4096, 4 * pages, blocks(32));
    // The process's own memory as a file: what is not mapped cannot be read.
    let file = std::fs::File::open("/proc/self/mem").unwrap();
    let Ok(id) = bench.driver.register_file(file.as_raw_fd()) else {
        return eprintln!("SKIP: errors in the middle of a file: /proc/self/mem does not register");
    };
    let stream = Stream::free();
    for (from, expected) in
        [(start, Some(hole - start)), (start + 5000, Some(hole - start - 5000)), (hole, None)]
    {
        paint(&mut bench);
        let read = Variables::new(4 * pages - (from - start), from as i64, 0);
        enqueue(&bench.driver, Op::Read, id, bench.buffer.ptr(), stream, 7, &read).unwrap();
        stream.wait();
        let memory = bench.memory(0, 4 * pages);
        match expected {
            Some(expected) => assert_eq!(read.result().unwrap(), expected),
            None => {
                let error = read.result().unwrap_err();
                assert_eq!(error.os_error(), Some(libc::EIO));
                let whole = format!("{}", 4 * pages - (from - start));
                assert!(error.to_string().contains(&whole), "{error}");
            }
        }
        let expected = expected.unwrap_or(0);
        assert!(
            memory[..expected].iter().all(|b| *b == 0x3c) && memory[expected..].iter().all(|b| *b == 0xa5)
        );
    }
    bench.driver.deregister_file(id).unwrap();
}

#[test]
fn large_reads_are_counted_once() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(STAGED, LEN, LEN, blocks(64));
    let stream = Stream::free();
    for _ in 0..3 {
        let read = Variables::new(LEN, 0, 0);
        bench.read(stream, 0, &read).unwrap();
        stream.wait();
        assert_eq!(read.result().unwrap(), LEN);
    }
    let stats = bench.driver.stats();
    let sums = |operations: u64, bytes: u64| (operations, bytes);
    assert_eq!(
        stats.read.iter().map(|e| sums(e.operations, e.bytes)).collect::<Vec<_>>(),
        [(3, 3 * LEN as u64)]
    );
    assert_eq!(
        stats.read_staged.iter().map(|r| sums(r.operations, r.bytes)).collect::<Vec<_>>(),
        [(3, 3 * LEN as u64)]
    );
    let snapshot = bench.driver.snapshot();
    assert_eq!(snapshot.streams.bytes, [3 * LEN as u64, 0]);
    assert_eq!(snapshot.total(Op::Read).operations(), 3);
}

#[test]
fn without_wait_values_large_reads_are_filled_ahead_too() {
    if !is_emulated_hip("it hides a function of HIP's") {
        return;
    }
    // SAFETY: before any thread; the emulation reads it at its first use.
    unsafe { std::env::set_var("HIP_EMU_HIDE", "hipStreamWaitValue64") };
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(STAGED, LEN, 4 * LEN, blocks(64));
    let streams: Vec<_> = (0..4).map(|_| Stream::free()).collect();
    let reads: Vec<_> = (0..12)
        .map(|i| {
            let read = Variables::new(LEN - 50_000, i * 3000, i % 4 * LEN as i64);
            bench.read(streams[i as usize % 4], i as u32 % 8, &read).unwrap();
            read
        })
        .collect();
    streams.iter().for_each(|s| s.wait());
    for (i, read) in reads.iter().enumerate() {
        assert_eq!(read.result().unwrap(), LEN - 50_000);
        if i >= 8 {
            assert!(bench.memory(i % 4 * LEN, LEN - 50_000) == bench.data[i * 3000..][..LEN - 50_000]);
        }
    }
}

#[test]
fn a_command_of_a_large_read_that_cannot_be_queued_fails_the_call_and_nothing_hangs() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new(120);
    let bench = Bench::with_buffer(STAGED, LEN, LEN, blocks(16));
    let (free, busy) = (Stream::free(), Stream::new(STREAM_DEFAULT));
    let commands =
        [Function::hipLaunchHostFunc, Function::hipStreamWaitValue64, Function::hipModuleLaunchKernel];
    for (function, nth) in commands.into_iter().flat_map(|f| [1, 2, 3, 5, 9, 17].map(|nth| (f, nth))) {
        for stream in [free, busy] {
            bench.driver.prepare_stream(stream.ptr()).unwrap();
            let read = Variables::new(2 << 20, 0, 0);
            fault::add(Rule {
                function,
                when: When::Nth(nth),
                fault: Fault::Error(HipError::LAUNCH_FAILURE),
            });
            let got = bench.read(stream, 0, &read);
            fault::clear();
            stream.wait();
            if let Err(error) = got {
                assert_eq!(error.device_code(), Some(HipError::LAUNCH_FAILURE.0 as i32));
                assert!(read.take().is_none(), "{function:?} {nth}: no result after a refusal");
            } else {
                assert_eq!(read.result().unwrap(), 2 << 20);
            }
            // The memory of the stream is back, and used again.
            let again: Arc<Variables> = Variables::new(2 << 20, 4096, 0);
            bench.read(stream, 0, &again).unwrap();
            stream.wait();
            assert_eq!(again.result().unwrap(), 2 << 20, "{function:?} {nth}");
            assert!(bench.memory(0, 2 << 20) == bench.data[4096..][..2 << 20], "{function:?} {nth}");
        }
    }
}

#[test]
fn later_pieces_are_read_while_the_first_cannot_be_copied() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(STAGED, 2 << 20, 2 << 20, blocks(32));
    let gate = word();
    // As many held streams as hardware queues: the next stream shares one of them.
    let held: Vec<_> = (0..4).map(|_| Stream::free()).collect();
    let stream = Stream::free();
    bench.driver.prepare_stream(stream.ptr()).unwrap();
    held.iter().for_each(|held| held.hold(gate));
    let moved = || bench.driver.stats().read.iter().map(|engine| engine.bytes).sum::<u64>() as usize;
    let read = Variables::new(2 << 20, 0, 0);
    bench.read(stream, 7, &read).unwrap();
    // On a real GPU it need not share one.
    if bench.driver.devices().unwrap()[0].emulated {
        // A fourth of the memory for streams, and no more.
        while moved() < 8 * BLOCK {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(moved(), 8 * BLOCK);
        assert!(!read.is_over(), "the copies are the stream's own");
    }
    gate.store(1, Ordering::Release);
    stream.wait();
    assert_eq!(read.result().unwrap(), 2 << 20);
    assert!(bench.memory(0, 2 << 20) == bench.data);
}

/// The stream that comes first leaves memory to those that come later, and who finds none has its own Block.
#[test]
fn large_reads_that_come_later_are_filled_ahead_too() {
    let _watchdog = Watchdog::new(60);
    let bench = Bench::with_buffer(STAGED, 2 << 20, 16 << 20, blocks(64));
    let gate = word();
    // As many held streams as hardware queues: no copy of the others is made.
    let held: Vec<_> = (0..4).map(|_| Stream::free()).collect();
    let streams: Vec<_> = (0..6).map(|_| Stream::free()).collect();
    bench.driver.prepare_stream(streams[0].ptr()).unwrap();
    held.iter().for_each(|held| held.hold(gate));
    let moved = || bench.driver.stats().read.iter().map(|engine| engine.bytes).sum::<u64>() as usize;
    let emulated = bench.driver.devices().unwrap()[0].emulated;
    let (mut reads, mut before) = (Vec::new(), 0);
    for (index, expected) in [16, 8, 4, 2, 2, 1].into_iter().enumerate() {
        let read = Variables::new(2 << 20, 0, (index as i64) << 21);
        bench.read(streams[index], 7, &read).unwrap();
        reads.push(read);
        before += expected * BLOCK;
        while emulated && moved() < before {
            std::thread::yield_now();
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(!emulated || moved() == before, "{} of {before}", moved());
    gate.store(1, Ordering::Release);
    for (index, (stream, read)) in streams.iter().zip(reads).enumerate() {
        stream.wait();
        assert_eq!(read.result().unwrap(), 2 << 20);
        assert!(bench.memory(index << 21, 2 << 20) == bench.data, "{index}");
    }
}

/// With memory for one or two streams, a large read has its own Block and no other; a third stream is refused meanwhile.
#[test]
fn a_reserve_of_one_or_two_blocks_serves_large_reads() {
    let _watchdog = Watchdog::new(60);
    for count in [1, 2] {
        let bench = Bench::with_buffer(STAGED, LEN, 3 * LEN, blocks(count));
        let streams: Vec<_> = (0..=count).map(|_| Stream::free()).collect();
        streams.iter().for_each(|stream| bench.driver.prepare_stream(stream.ptr()).unwrap());
        for round in 0..4 {
            let gate = word();
            streams[0].hold(gate);
            let reads: Vec<_> = (0..count)
                .map(|i| Variables::new(LEN - 7, (round + i as i64) * 9, (i * LEN) as i64))
                .collect();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(10));
                    gate.store(1, Ordering::Release);
                });
                for (stream, read) in streams.iter().zip(&reads) {
                    bench.read(*stream, round as u32, read).unwrap();
                }
            });
            streams.iter().for_each(|stream| stream.wait());
            for (i, read) in reads.iter().enumerate() {
                let from = (round as usize + i) * 9;
                let len = (LEN - 7).min(LEN - from);
                assert_eq!(read.result().unwrap(), len);
                assert!(bench.memory(i * LEN, len) == bench.data[from..][..len], "{count} {round} {i}");
            }
        }
        let gate = word();
        for (index, stream) in streams[..count].iter().enumerate() {
            stream.hold(gate);
            bench.read(*stream, 7, &Variables::new(4096, 0, index as i64 * 4096)).unwrap();
        }
        let refused = bench.read(streams[count], 7, &Variables::new(LEN, 0, 0)).unwrap_err();
        assert_eq!(refused.kind(), hipfile::ErrorKind::HipDriverError);
        gate.store(1, Ordering::Release);
        streams.iter().for_each(|stream| stream.wait());
    }
}
