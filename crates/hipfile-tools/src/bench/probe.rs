//! What the library costs in memory, in a process that does nothing else: `--memory-probe`, which the table starts. The memory
//! of an emulated GPU is the process's own too; what was allocated there does not count.

use std::path::Path;
use std::sync::{Barrier, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use hipfile::{Buffer, Config, Driver};
use serde::Serialize;

use crate::failure::Failure;

/// Threads that read at once, and what each reads.
const THREADS: usize = 32;
const PIECE: usize = 4 << 20;
const PIECES: u64 = 8;
/// What the threads touch of their stacks beforehand: a stack is the caller's, not the library's.
const STACK: usize = 32 << 10;
/// How often the process is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// What `--memory-probe` prints.
#[derive(Debug, Serialize)]
pub(super) struct Probe {
    /// What an open driver and a registered file cost.
    idle_growth_bytes: u64,
    /// What many reading threads add at most, device memory aside: staging memory and the runtime's own.
    load_growth_bytes: u64,
    /// Staging memory in the end.
    staging_bytes: u64,
    /// The bound of the staging pool.
    pool_bound_bytes: u64,
}

/// What the threads work with.
struct Ready {
    driver: Driver,
    file: hipfile::File,
    /// One for each thread that comes.
    buffers: Mutex<Vec<Buffer>>,
    idle_growth: u64,
    /// Anonymous memory of the process before any device memory was there.
    anonymous: u64,
}

/// Measures this process. Nothing may have used the library before.
pub(super) fn measure(path: &Path, gpu: u32, config: Config) -> Result<Probe, Failure> {
    let size = std::fs::metadata(path).map_err(|error| Failure::at(path, error))?.len();
    let pieces = (size / PIECE as u64).max(1);
    let (ready, begin) = (OnceLock::<Ready>::new(), Barrier::new(THREADS + 1));
    let most = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|thread| {
                let (ready, begin) = (&ready, &begin);
                scope.spawn(move || {
                    std::hint::black_box([1_u8; STACK]);
                    begin.wait();
                    begin.wait();
                    let Some(ready) = ready.get() else { return Ok(()) };
                    let mut buffer = lock(&ready.buffers).pop();
                    let read = buffer.as_mut().map_or(Ok(()), |buffer| {
                        (0..PIECES).try_for_each(|n| {
                            let at = (thread * PIECES + n) % pieces * PIECE as u64;
                            ready.file.read_at(buffer, 0..PIECE, at).map(drop)
                        })
                    });
                    // Freed here, it would be missed in what the others add.
                    lock(&ready.buffers).extend(buffer);
                    read
                })
            })
            .collect();
        begin.wait();
        let prepared = prepare(path, gpu, config).map(|made| drop(ready.set(made)));
        begin.wait();
        prepared?;
        let mut most = 0;
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            most = resident("RssAnon")?.max(most);
            std::thread::sleep(LOOK);
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result.map_err(|error| Failure::at(path, error)),
            Err(_) => Err(Failure::new("memory probe", "a thread panicked")),
        })?;
        Ok(most)
    })?;
    let Some(Ready { driver, idle_growth, anonymous, .. }) = ready.into_inner() else {
        return Err(Failure::new("memory probe", "nothing was measured"));
    };
    let devices = driver.devices().map_err(|error| Failure::new("GPU", error))?;
    let emulated = devices.iter().any(|device| device.emulated);
    let device_memory = if emulated { (THREADS * PIECE) as u64 } else { 0 };
    Ok(Probe {
        idle_growth_bytes: idle_growth,
        load_growth_bytes: most.saturating_sub(anonymous).saturating_sub(device_memory),
        staging_bytes: driver.staging_bytes() as u64,
        pool_bound_bytes: driver.config().pool_len as u64,
    })
}

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prepare(path: &Path, gpu: u32, config: Config) -> Result<Ready, Failure> {
    let fd = std::fs::File::open(path).map_err(|error| Failure::at(path, error))?;
    let before = resident("VmRSS")?;
    let driver = Driver::open(config).map_err(|error| Failure::new("GPU", error))?;
    let file = hipfile::File::register(&driver, fd).map_err(|error| Failure::at(path, error))?;
    let idle_growth = resident("VmRSS")?.saturating_sub(before);
    let anonymous = resident("RssAnon")?;

    let gpu_memory = |error| Failure::new(format_args!("memory of GPU {gpu}"), error);
    let piece = vec![1; PIECE];
    let buffers = (0..THREADS).map(|_| -> hipfile::Result<Buffer> {
        let mut buffer = Buffer::alloc(&driver, gpu, PIECE)?;
        // Each page is there before the first look.
        buffer.upload(0, &piece)?;
        Ok(buffer)
    });
    let buffers = Mutex::new(buffers.collect::<Result<_, _>>().map_err(gpu_memory)?);
    Ok(Ready { driver, file, buffers, idle_growth, anonymous })
}

/// A field of /proc/self/status, in bytes.
fn resident(field: &str) -> Result<u64, Failure> {
    const STATUS: &str = "/proc/self/status";
    let text = std::fs::read_to_string(STATUS).map_err(|error| Failure::new(STATUS, error))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Failure::new(STATUS, format_args!("has no {field}")))
}
