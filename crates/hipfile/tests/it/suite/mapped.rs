//! Large writes into files in memory, which go by way of a mapping and several threads: the same bytes, counts, errors and
//! side effects as of plain writes, and plain writes where the system wants it so.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use hipfile::faults::{self, Site, What, When};
use hipfile::{Buffer, Config, Driver, Error};

use crate::support::streams::Watchdog;
use crate::support::{Random, Storage, driver_with};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Few threads do for it here, and small writes.
fn on(config: &mut Config) {
    (config.mapped_min, config.mapped_threads) = (100 * KIB, 3);
}

/// A driver, GPU memory and what it holds.
struct Gpu {
    driver: Driver,
    buffer: Buffer,
    bytes: Vec<u8>,
}

impl Gpu {
    fn new(len: usize, change: impl FnOnce(&mut Config)) -> Gpu {
        let driver = driver_with(&["bounce"], |config| {
            on(config);
            change(config);
        });
        let mut buffer = Buffer::alloc(&driver, 0, len).unwrap();
        let mut bytes = vec![0; len];
        Random::new().fill(&mut bytes);
        buffer.upload(0, &bytes).unwrap();
        Gpu { driver, buffer, bytes }
    }

    /// Writes from some place of the memory on.
    fn write(&self, file: &File, from: usize, len: usize, at: usize) -> Result<usize, Error> {
        let id = self.driver.register_file(file.as_raw_fd()).unwrap();
        // SAFETY: the memory is this value's own.
        let result = unsafe { self.driver.write(id, self.buffer.ptr(), len, at as i64, from as i64) };
        self.driver.deregister_file(id).unwrap();
        result
    }
}

fn memfd(len: usize) -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("mapped", flags).unwrap());
    file.set_len(len as u64).unwrap();
    file
}

fn content(file: &File) -> Vec<u8> {
    // Somebody may change its length meanwhile.
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], read as u64).unwrap() {
            0 => break,
            n => read += n,
        }
    }
    bytes.truncate(read);
    bytes
}

/// How often a site was come to during a work.
fn during<T>(site: Site, work: impl FnOnce() -> T) -> (u64, T) {
    let before = faults::hits(site);
    let result = work();
    (faults::hits(site) - before, result)
}

#[test]
fn all_bytes_arrive_wherever_they_begin_and_end() {
    const LEN: usize = 3 * MIB;
    let gpu = Gpu::new(LEN, |_| {});
    let mut random = Random::new();
    let storages = [Some(Storage::memfd()), Storage::tmpfs(), Storage::shared_memory()];
    for storage in storages.into_iter().flatten() {
        let (file, mut model) = storage.random_file(LEN);
        for round in 0..60 {
            match random.below(5) {
                // A file that is all hole.
                0 => {
                    file.set_len(0).unwrap();
                    file.set_len(LEN as u64).unwrap();
                    model = vec![0; LEN];
                }
                // One that ends somewhere, so that a part of what is written lies behind.
                1 => {
                    let len = random.below(LEN);
                    file.set_len(len as u64).unwrap();
                    model.resize(len, 0);
                }
                _ => {}
            }
            let len = 200 * KIB + random.below(2 * MIB);
            let from = random.below(LEN - len);
            let mut at = random.below(LEN - len);
            if random.below(3) == 0 {
                at -= at % PAGE;
            }
            let (copies, moved) = during(Site::MappedCopy, || gpu.write(&file, from, len, at).unwrap());
            assert_eq!(moved, len);
            assert!(
                copies > 0 || model.len() < at + 110 * KIB,
                "by a mapping: {len} at {at} of {}",
                model.len()
            );
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&gpu.bytes[from..from + len]);
            let now = content(&file);
            assert_eq!(now.len(), model.len());
            let wrong = now.iter().zip(&model).position(|(is, due)| is != due);
            assert_eq!(wrong, None, "{} round {round}: {len} at {at}", storage.name);
        }
    }
}

#[test]
fn small_writes_go_plainly_and_all_if_told_so() {
    let file = memfd(64 * MIB);
    let usual = Config::default();
    let with = |threads: usize| {
        Gpu::new(16 * MIB, |config| {
            (config.block_len, config.pool_len) = (MIB, 64 * MIB);
            (config.mapped_min, config.mapped_threads) = (usual.mapped_min, threads);
        })
    };
    let copies = |gpu: &Gpu, len| during(Site::MappedCopy, || gpu.write(&file, 0, len, 5).unwrap());
    let four = with(4);
    assert!(copies(&four, 8 * MIB).0 > 0 && copies(&four, 16 * MIB).0 > 0);
    assert_eq!(copies(&four, 8 * MIB - 1).0, 0);
    assert!(content(&file)[5..5 + 16 * MIB] == four.bytes);
    assert_eq!(copies(&with(1), 16 * MIB).0, 0, "switched off");
}

#[test]
fn no_other_file_system_is_written_so() {
    let storage = Storage::here();
    let (file, _) = storage.random_file(MIB);
    let gpu = Gpu::new(MIB, |config| config.page_cache = hipfile::PageCache::Buffered);
    assert_eq!(during(Site::MappedSize, || gpu.write(&file, 0, MIB, 0).unwrap()), (0, MIB));
    assert!(content(&file) == gpu.bytes);
}

#[test]
fn a_seal_is_kept_and_told_as_of_plain_writes() {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    let gpu = Gpu::new(MIB, |_| {});
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let file = memfd(MIB);
        fcntl_add_seals(&file, seal).unwrap();
        let error = gpu.write(&file, 0, MIB, 0).unwrap_err();
        assert_eq!(error.os_error(), Some(libc::EPERM), "{seal:?}: {error}");
        assert!(content(&file).iter().all(|byte| *byte == 0), "{seal:?}");
    }
    let file = memfd(MIB);
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK).unwrap();
    assert_eq!(during(Site::MappedCopy, || gpu.write(&file, 0, MIB, 0).unwrap()).1, MIB);
    assert!(content(&file) == gpu.bytes);
    // What would lie behind the end: as much as a plain write moves.
    let moved = gpu.write(&file, 0, MIB, 300_000).unwrap();
    let there = MIB - 300_000;
    assert!((there - 64 * KIB..=there).contains(&moved), "{moved}");
    assert!(content(&file)[300_000..300_000 + moved] == gpu.bytes[..moved]);
    // Nothing of a mapping is left: with one there is no sealing.
    fcntl_add_seals(&file, SealFlags::WRITE).unwrap();
}

#[test]
fn descriptors_that_cannot_be_mapped_are_written_plainly() {
    let Some(storage) = Storage::shared_memory() else { return };
    let gpu = Gpu::new(MIB, |_| {});
    drop(storage.random_file(MIB));
    let write_only = File::options().write(true).open(storage.path("f")).unwrap();
    assert_eq!(during(Site::MappedCopy, || gpu.write(&write_only, 0, MIB, 0).unwrap()), (0, MIB));
    assert!(std::fs::read(storage.path("f")).unwrap() == gpu.bytes);
    let appending = File::options().read(true).append(true).open(storage.path("f")).unwrap();
    assert_eq!(during(Site::MappedMap, || gpu.write(&appending, 0, MIB, 0).unwrap()), (0, MIB));
    let twice = [&gpu.bytes[..], &gpu.bytes[..]].concat();
    assert!(std::fs::read(storage.path("f")).unwrap() == twice);
}

#[test]
fn without_address_space_it_is_written_plainly() {
    let gpu = Gpu::new(32 * MIB, |_| {});
    let file = memfd(32 * MIB);
    // Threads and staging memory are there from here on.
    assert!(during(Site::MappedCopy, || gpu.write(&file, 1, 31 * MIB, 0).unwrap()).0 > 0);
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let now = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * PAGE as u64;
    let limit = |to| {
        let limit = libc::rlimit { rlim_cur: to, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    };
    limit(now + 16 * MIB as u64);
    let (copies, (maps, moved)) =
        during(Site::MappedCopy, || during(Site::MappedMap, || gpu.write(&file, 0, 32 * MIB, 0).unwrap()));
    limit(libc::RLIM_INFINITY);
    assert_eq!((copies, maps, moved), (0, 1, 32 * MIB));
    assert!(content(&file) == gpu.bytes);
}

#[test]
fn a_file_cut_short_meanwhile_ends_no_process_and_no_write() {
    const LEN: usize = 2 * MIB + 77;
    let _watchdog = Watchdog::new(100);
    let gpu = Gpu::new(LEN, |_| {});
    let file = memfd(LEN);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                file.set_len(300_001).unwrap();
                std::thread::yield_now();
                file.set_len(LEN as u64).unwrap();
            }
        });
        for round in 0..200 {
            assert_eq!(gpu.write(&file, 0, LEN, 0).unwrap(), LEN, "round {round}");
            let now = content(&file);
            // What was cut off, and is not written again, reads as zero.
            let wrong =
                (0..now.len()).find(|at| now[*at] != gpu.bytes[*at] && (*at < 300_001 || now[*at] != 0));
            assert_eq!(wrong, None, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // For certain: it is cut short when the first bytes are written, and the copies find nothing.
    faults::inject(Site::MappedCopy, When::Every, What::Errno(libc::EFAULT));
    file.set_len(LEN as u64).unwrap();
    let (copies, moved) = during(Site::MappedCopy, || gpu.write(&file, 0, LEN, 0).unwrap());
    faults::clear();
    assert!(copies > 1, "one file's fault is no other's");
    assert_eq!(moved, LEN);
    assert!(content(&file) == gpu.bytes);
}

#[test]
fn a_full_file_system_ends_the_write_where_its_bytes_end() {
    let Some(storage) = Storage::small_tmpfs() else { return };
    let gpu = Gpu::new(12 * MIB, |_| {});
    let file = File::options().create_new(true).read(true).write(true).open(storage.path("f")).unwrap();
    for hole in [12 * MIB, 5 * MIB, 0] {
        file.set_len(0).unwrap();
        file.set_len(hole as u64).unwrap();
        let mut at = 0;
        let error = loop {
            match gpu.write(&file, at, 12 * MIB - at, at) {
                Ok(moved) => {
                    assert!(moved > 0);
                    at += moved;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.os_error(), Some(libc::ENOSPC), "{error}");
        // Pieces are written by several threads, so some behind the prefix may have taken the last room.
        assert!((1..=8 * MIB).contains(&at), "{at}");
        let mut now = vec![0; at];
        file.read_exact_at(&mut now, 0).unwrap();
        assert!(now == gpu.bytes[..at], "hole of {hole}: what was counted is there");
    }
    file.set_len(0).unwrap();
    assert_eq!(gpu.write(&file, 0, 2 * MIB, 0).unwrap(), 2 * MIB);
}

#[test]
fn times_and_the_set_user_id_bit_change_as_by_plain_writes() {
    let file = memfd(MIB);
    let gpu = Gpu::new(MIB, |_| {});
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_modified(old).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o4755)).unwrap();
    let before = file.metadata().unwrap();
    // SAFETY: a plain call.
    let root = unsafe { libc::geteuid() } == 0;
    if root {
        std::os::unix::fs::fchown(&file, Some(65_534), Some(65_534)).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o4755)).unwrap();
        // Root's writes leave the bit.
        // SAFETY: plain calls; the test has a process of its own.
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 0) }, 0);
    }
    let (copies, moved) = during(Site::MappedCopy, || gpu.write(&file, 0, MIB, 0).unwrap());
    if root {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setresuid(0, 0, 0) }, 0);
    }
    assert!(copies > 0 && moved == MIB);
    let after = file.metadata().unwrap();
    assert_eq!(after.mode() & 0o7777, 0o755);
    assert!(after.modified().unwrap() > old + Duration::from_secs(1));
    assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
    assert!(content(&file) == gpu.bytes);
}

#[test]
fn a_process_that_may_not_copy_so_is_asked_once() {
    let file = memfd(MIB);
    for errno in [libc::EPERM, libc::ENOSYS] {
        let gpu = Gpu::new(MIB, |config| config.mapped_threads = 2);
        faults::inject(Site::MappedCopy, When::Every, What::Errno(errno));
        let (copies, moved) = during(Site::MappedCopy, || gpu.write(&file, 0, MIB, 0).unwrap());
        assert!((1..=2).contains(&copies) && moved == MIB, "once by each thread at most: {copies}");
        faults::clear();
        assert!(content(&file) == gpu.bytes);
        assert_eq!(during(Site::MappedMap, || gpu.write(&file, 0, MIB, 0).unwrap()), (0, MIB));
    }
}

#[test]
fn a_first_thread_that_has_ended_is_not_missed() {
    let _watchdog = Watchdog::new(100);
    // The process's number is then of a thread that has no memory any more.
    // SAFETY: the child starts a thread and uses nothing that the parent has opened.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::thread::spawn(|| {
            let wrote = std::panic::catch_unwind(|| {
                // Until the first thread is a zombie.
                while !std::fs::read_to_string("/proc/self/stat").unwrap().contains(") Z ") {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let (file, gpu) = (memfd(MIB), Gpu::new(MIB, |_| {}));
                let (plain, moved) = during(Site::BounceWrite, || gpu.write(&file, 0, MIB, 0).unwrap());
                assert_eq!((plain, moved), (2, MIB), "the ends alone go plainly");
                assert!(content(&file) == gpu.bytes);
            });
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(wrote.is_err())) };
        });
        // SAFETY: ends this thread alone; it holds nothing that the other needs.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `status` may be written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn writers_at_the_same_time_and_a_fork_do_each_other_no_harm() {
    const LEN: usize = 2 * MIB;
    let _watchdog = Watchdog::new(100);
    let file = memfd(8 * LEN);
    let gpu = Gpu::new(8 * LEN, |_| {});
    std::thread::scope(|scope| {
        for part in 0..8 {
            let (gpu, file) = (&gpu, &file);
            scope.spawn(move || {
                let file = file.try_clone().unwrap();
                for _ in 0..10 {
                    let at = part * LEN;
                    assert_eq!(gpu.write(&file, at, LEN, at).unwrap(), LEN);
                }
            });
        }
        for _ in 0..10 {
            assert!(std::process::Command::new("true").status().unwrap().success());
        }
    });
    assert!(content(&file) == gpu.bytes);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("memfd:mapped"), "a mapping was left");
}
