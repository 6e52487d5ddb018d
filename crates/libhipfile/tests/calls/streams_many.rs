//! Many threads with many streams each, while everything they use is registered and deregistered.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

const THREADS: usize = 64;
const STREAMS: usize = 8;
const OPERATIONS: usize = 100;
/// Between two waits.
const BURST: usize = 10;
/// Bytes of each thread, in the file and on the GPU.
const SHARE: usize = STREAMS * BURST * 512;

/// How far each thread has come, for whoever finds that it has stopped.
static PROGRESS: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];
static OVER: AtomicBool = AtomicBool::new(false);

/// Ends the process, with what it was doing, when nothing moves any more.
#[allow(clippy::print_stderr, reason = "says where a test hangs")]
fn watch(patience: Duration) {
    let (mut last, mut since) = (0, Instant::now());
    while !OVER.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(50));
        let now: usize = PROGRESS.iter().map(|thread| thread.load(Ordering::Relaxed)).sum();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() < patience {
            continue;
        }
        eprintln!("WATCHDOG: nothing has moved for {patience:?}; operations done by each thread:");
        eprintln!("  {:?}", PROGRESS.iter().map(|t| t.load(Ordering::Relaxed)).collect::<Vec<_>>());
        abort_with_threads();
    }
}

fn content(at: usize) -> u8 {
    (at / 512 * 31 + at % 509) as u8
}

struct Variables {
    size: usize,
    at: hoff_t,
    to: hoff_t,
    bytes: isize,
}

/// Streams of the emulated GPU.
fn made() -> hipStream_t {
    let mut stream = core::ptr::null_mut();
    // SAFETY: `stream` is writable.
    let made = unsafe { (hip_emu::api().hipStreamCreateWithFlags)(&raw mut stream, 1) };
    assert_eq!(made, HipError::SUCCESS);
    stream.cast()
}

fn await_all(streams: &[hipStream_t]) {
    for stream in streams {
        // SAFETY: a plain call.
        let waited = unsafe { (hip_emu::api().hipStreamSynchronize)((*stream).cast()) };
        assert_eq!(waited, HipError::SUCCESS);
    }
}

fn work(thread: usize, file: &std::fs::File, shared: hipFileHandle_t) {
    let device = Device::new(SHARE, 0);
    let streams: Vec<_> = (0..STREAMS).map(|_| made()).collect();
    let mut registered = [false; STREAMS];
    let own = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .unwrap();
    for burst in 0..OPERATIONS / BURST {
        // What changes from burst to burst: the handle, the memory's registration, the streams' and their flags.
        let handle =
            if (thread + burst).is_multiple_of(2) { shared } else { register(own.as_raw_fd()).unwrap() };
        let memory = (thread + burst).is_multiple_of(3);
        if memory {
            ok(register_memory(device.start, SHARE));
        }
        for (number, stream) in streams.iter().enumerate() {
            if (thread + burst + number).is_multiple_of(4) {
                if registered[number] {
                    ok(hipFileStreamDeregister(*stream));
                } else {
                    // SAFETY: a stream of this test.
                    ok(unsafe { hipFileStreamRegister(*stream, ((burst + number) % 16) as u32) });
                }
                registered[number] = !registered[number];
            }
        }
        let mut all: Vec<_> = (0..STREAMS * BURST)
            .map(|piece| Variables {
                size: 512,
                at: (thread * SHARE + piece * 512) as hoff_t,
                to: (piece * 512) as hoff_t,
                bytes: 0,
            })
            .collect();
        let submit = if burst % 3 == 2 { hipFileWriteAsync } else { hipFileReadAsync };
        for (number, one) in all.iter_mut().enumerate() {
            let (size, at, to) = (&raw mut one.size, &raw mut one.at, &raw mut one.to);
            let (bytes, stream) = (&raw mut one.bytes, streams[number % STREAMS]);
            loop {
                // SAFETY: the streams are waited for before the variables go.
                let answer = unsafe { submit(handle, device.start, size, at, to, bytes, stream) };
                if answer.err == hipFileSuccess {
                    break;
                }
                // Other streams have all the staging memory: ours give theirs back.
                assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, 2));
                await_all(&streams);
                std::thread::yield_now();
            }
        }
        await_all(&streams);
        assert!(all.iter().all(|one| one.bytes == 512), "thread {thread}, burst {burst}");
        if memory {
            ok(hipFileBufDeregister(device.start));
        }
        if handle != shared {
            hipFileHandleDeregister(handle);
        }
        let expected: Vec<u8> = (0..SHARE).map(|i| content(thread * SHARE + i)).collect();
        assert!(device.bytes() == expected, "thread {thread}, burst {burst}");
        PROGRESS[thread].fetch_add(STREAMS * BURST, Ordering::Relaxed);
    }
    for (stream, registered) in streams.into_iter().zip(registered) {
        if registered {
            ok(hipFileStreamDeregister(stream));
        }
        // SAFETY: the stream has nothing to do and is not used again.
        assert_eq!(unsafe { (hip_emu::api().hipStreamDestroy)(stream.cast()) }, HipError::SUCCESS);
    }
}

#[test]
fn many_threads_with_many_streams_come_through() {
    start();
    for (name, value) in [("HIPFILE_BLOCK_SIZE", "64K"), ("HIPFILE_STREAM_MEMORY", "4M")] {
        // SAFETY: the test has just begun, and no other thread of the process reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let all: Vec<u8> = (0..THREADS * SHARE).map(content).collect();
    let (file, handle) = registered_file(&all);
    let handle = handle.addr();
    std::thread::scope(|scope| {
        scope.spawn(|| watch(Duration::from_secs(60)));
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let file = &file;
                scope.spawn(move || work(thread, file, core::ptr::without_provenance_mut(handle)))
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        OVER.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a thread panicked");
    });
    let mut now = vec![0; all.len()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut now, 0).unwrap();
    assert!(now == all);
    hipFileHandleDeregister(core::ptr::without_provenance_mut(handle));
    ok(hipFileDriverClose());
}
