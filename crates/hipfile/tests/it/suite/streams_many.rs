//! Many threads with many streams each, while files, memory and streams come and go. Through the core's own door, so that
//! the thread sanitizer can watch; the C functions have a test like it.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use hipfile::{Buffer, ErrorKind, Op};

use crate::support::gpu::is_emulated_hip;
use crate::support::operations;
use crate::support::streams::{Bench, Stream, Variables, Watchdog, enqueue};

const THREADS: usize = 64;
const STREAMS: usize = 8;
const LEN: usize = 512;
/// Operations of one stream between two waits.
const BURST: usize = 10;

#[test]
fn sixty_four_threads_use_eight_streams_each() {
    let _watchdog = Watchdog::new(600);
    let bench = Bench::with_buffer(&["p2p", "uring", "bounce"], 256 << 10, 4096, |c| {
        c.block_len = 64 << 10;
        // One for each stream that can have work queued, so that none is refused.
        c.stream_len = THREADS * STREAMS * (64 << 10);
    });
    let bursts = operations(1000).div_ceil(10 * BURST).max(2);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bench = &bench;
            scope.spawn(move || work(bench, thread, bursts));
        }
    });
    if is_emulated_hip("its calls are counted") {
        assert_eq!(
            hip_emu::fault::calls("hipHostMalloc"),
            1,
            "one reserve serves all, also if all come first"
        );
    }
    let stats = bench.driver.stats();
    let read: u64 = stats.read.iter().map(|engine| engine.bytes).sum();
    assert_eq!(read, (THREADS * STREAMS * BURST * bursts * LEN) as u64);
}

/// A driver that is opened while another one is there, its last operations under way perhaps, takes no memory of its own.
#[test]
fn drivers_that_are_open_at_once_share_the_memory_of_streams() {
    if !is_emulated_hip("its calls are counted") {
        return;
    }
    let _watchdog = Watchdog::new(60);
    let stream = Stream::free();
    let mut open = Vec::new();
    for turn in 0..5 {
        let bench = Bench::new(&["uring", "bounce"], 64 << 10, |c| c.stream_len = 4 * c.block_len);
        bench.driver.prepare_stream(stream.ptr()).unwrap();
        assert_eq!(hip_emu::fault::calls("hipHostMalloc"), 1, "driver {turn}");
        open.push(bench);
    }
    for bench in &open {
        let variables = Variables::new(4096, 0, 0);
        bench.read(stream, 0, &variables).unwrap();
        stream.wait();
        assert_eq!(variables.result().unwrap(), 4096);
    }
}

fn work(bench: &Bench, thread: usize, bursts: usize) {
    let driver = &bench.driver;
    for burst in 0..bursts {
        // A descriptor, a registration, memory and streams of its own, each time anew.
        let file = bench.file.try_clone().unwrap();
        let id = driver.register_file(file.as_raw_fd()).unwrap();
        let buffer = Buffer::alloc(driver, 0, STREAMS * BURST * LEN).unwrap();
        let streams: Vec<_> = (0..STREAMS).map(|_| Stream::free()).collect();
        let mut all = Vec::new();
        for step in 0..BURST {
            for (number, stream) in streams.iter().enumerate() {
                if step == 0 {
                    driver.prepare_stream(stream.ptr()).unwrap();
                }
                let to = (number * BURST + step) * LEN;
                let from = (thread * 7919 + burst * 131 + to * 3) % (bench.data.len() - LEN);
                let variables = Variables::new(LEN, from as i64, to as i64);
                let flags = (thread + step) as u32 % 8;
                enqueue(driver, Op::Read, id, buffer.ptr(), *stream, flags, &variables).unwrap();
                all.push((to, from, Arc::clone(&variables)));
            }
        }
        // While anything of it is queued the file and the memory are in use; afterwards they are not.
        let early = driver.deregister_file(id);
        assert!(early.is_ok() || early.is_err_and(|error| error.kind() == ErrorKind::InternalError));
        streams.iter().for_each(|stream| stream.wait());
        let late = driver.deregister_file(id);
        assert!(late.is_ok() || late.is_err_and(|error| error.kind() == ErrorKind::HandleNotRegistered));
        streams.iter().for_each(|stream| stream.destroy());
        let mut bytes = vec![0; buffer.len()];
        buffer.download(0, &mut bytes).unwrap();
        for (to, from, variables) in all {
            assert_eq!(variables.result().unwrap(), LEN);
            assert!(bytes[to..to + LEN] == bench.data[from..from + LEN], "thread {thread}, from {from}");
        }
    }
}
