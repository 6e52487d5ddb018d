//! What the library costs in memory, in a process that does nothing else: `--memory-probe`, which the table starts. The memory
//! of an emulated GPU is the process's own too; what was allocated there does not count.

use std::path::Path;
use std::time::Duration;

use hipfile::{Buffer, Config, Driver};
use serde::Serialize;

use crate::failure::Failure;

/// Threads that read at once, and what each reads.
const THREADS: usize = 32;
const PIECE: usize = 4 << 20;
const PIECES: u64 = 8;
/// How often the process is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// What `--memory-probe` prints.
#[derive(Debug, Serialize)]
pub(super) struct Probe {
    /// What an open driver and a registered file cost.
    idle_growth_bytes: u64,
    /// What many reading threads add at most, device memory aside: staging memory, stacks, the runtime's part.
    load_growth_bytes: u64,
    /// Staging memory in the end.
    staging_bytes: u64,
    /// The bound of the staging pool.
    pool_bound_bytes: u64,
}

/// Measures this process. Nothing may have used the library before.
pub(super) fn measure(path: &Path, gpu: u32, config: Config) -> Result<Probe, Failure> {
    let open = || std::fs::File::open(path).map_err(|error| Failure::at(path, error));
    let before = resident("VmRSS")?;
    let driver = Driver::open(config).map_err(|error| Failure::new("GPU", error))?;
    let file = hipfile::File::register(&driver, open()?).map_err(|error| Failure::at(path, error))?;
    let idle = resident("VmRSS")?;
    let idle_anonymous = resident("RssAnon")?;

    let gpu_memory = |error| Failure::new(format_args!("memory of GPU {gpu}"), error);
    let mut buffers = Vec::new();
    let piece = vec![1; PIECE];
    for _ in 0..THREADS {
        let mut buffer = Buffer::alloc(&driver, gpu, PIECE).map_err(gpu_memory)?;
        buffer.upload(0, &piece).map_err(gpu_memory)?;
        buffers.push(buffer);
    }
    drop(piece);
    let size = std::fs::metadata(path).map_err(|error| Failure::at(path, error))?.len();
    let last = (size / PIECE as u64).max(1);
    let mut most = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = buffers
            .iter_mut()
            .enumerate()
            .map(|(thread, buffer)| {
                let file = &file;
                scope.spawn(move || {
                    (0..PIECES).try_for_each(|n| {
                        let at = (thread as u64 * PIECES + n) % last * PIECE as u64;
                        file.read_at(buffer, 0..PIECE, at).map(drop)
                    })
                })
            })
            .collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            most = resident("RssAnon")?.max(most);
            std::thread::sleep(LOOK);
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result.map_err(|error| Failure::at(path, error)),
            Err(_) => Err(Failure::new("memory probe", "a thread panicked")),
        })
    })?;
    let growth = resident("RssAnon")?.max(most).saturating_sub(idle_anonymous);
    let emulated = driver.devices().map_err(gpu_memory)?.iter().any(|device| device.emulated);
    let device_memory = if emulated { (THREADS * PIECE) as u64 } else { 0 };
    Ok(Probe {
        idle_growth_bytes: idle.saturating_sub(before),
        load_growth_bytes: growth.saturating_sub(device_memory),
        staging_bytes: driver.staging_bytes() as u64,
        pool_bound_bytes: driver.config().pool_len as u64,
    })
}

/// A field of /proc/self/status, in bytes.
fn resident(field: &str) -> Result<u64, Failure> {
    const STATUS: &str = "/proc/self/status";
    let text = std::fs::read_to_string(STATUS).map_err(|error| Failure::new(STATUS, error))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Failure::new(STATUS, format_args!("has no {field}")))
}
