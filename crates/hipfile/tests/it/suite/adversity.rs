//! Machines that give little and storage that fails, for real: limits, missing /proc and /sys, full and vanishing file systems,
//! storage that hangs. Whatever can be served is served; else the answer is the system's own error, and then the next
//! operation works. What takes mounting is skipped aloud where that is not allowed.
#![cfg(debug_assertions)]

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use hipfile::{Buffer, Config, Driver, Error, EventStatus, File, Op, PageCache, RawBatch};

use crate::support::faulty::{Door, ROWS, Seen, World};
use crate::support::gpu::is_emulated_hip;
use crate::support::streams::Watchdog;
use crate::support::{Storage, driver_with, skip};

const DOORS: &[Door] = &[Door::Calls, Door::Streams, Door::Batches, Door::Host];
const KIB: usize = 1 << 10;

/// Every door, direction and row of engines works.
fn all_works(world: &World) {
    for row in ROWS {
        for door in DOORS {
            for op in [Op::Read, Op::Write] {
                let seen = world.run(row, *door, op, || {}, || {});
                assert!(
                    seen.iter().all(|seen| matches!(seen, Seen::Full)),
                    "{} {door:?} {op:?}: {seen:?}",
                    row.name
                );
            }
        }
    }
}

fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    let set = unsafe { libc::setrlimit(resource, &raw const limit) };
    if set != 0 {
        let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
    }
}

fn text(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// From here on this thread, and those that it starts, see an empty folder there.
fn hide(paths: &[&str]) -> Result<(), String> {
    let errno = || std::io::Error::last_os_error().to_string();
    // SAFETY: only this thread's view of mounts changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(errno());
    }
    let (none, root, kind) = (text("none"), text("/"), text("tmpfs"));
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the texts end with a zero.
    if unsafe { libc::mount(none.as_ptr(), root.as_ptr(), std::ptr::null(), private, std::ptr::null()) } != 0
    {
        return Err(errno());
    }
    for path in paths {
        let at = text(path);
        // SAFETY: as above.
        if unsafe { libc::mount(none.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) } != 0 {
            return Err(errno());
        }
    }
    Ok(())
}

#[test]
fn behaviour_153_without_proc_sys_udev_io_uring_and_devices_everything_works() {
    if !is_emulated_hip("the doors of the matrix") {
        return;
    }
    let _watchdog = Watchdog::new(200);
    let world = World::new();
    if let Err(why) = hide(&["/proc", "/sys", "/run", "/dev"]) {
        return skip("a container without /proc and /sys", &format!("mounting is not allowed here: {why}"));
    }
    assert!(std::fs::read("/proc/self/mountinfo").is_err() && std::fs::read_dir("/sys/dev").is_err());
    crate::support::refuse_io_uring();
    all_works(&world);
}

#[test]
fn behaviour_153_a_user_without_rights_and_locked_memory_is_served() {
    if !is_emulated_hip("the doors of the matrix") {
        return;
    }
    let _watchdog = Watchdog::new(200);
    let world = World::new();
    limit(libc::RLIMIT_MEMLOCK, 0);
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } == 0 {
        let folder = world.storage.folder();
        std::os::unix::fs::chown(folder, Some(65_534), Some(65_534)).unwrap();
        let deep = folder.ancestors().all(|above| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::metadata(above).is_ok_and(|facts| above == folder || facts.permissions().mode() & 1 == 1)
        });
        if !deep {
            return skip("a user without rights", "the build folder is not open to all");
        }
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::setresgid(65_534, 65_534, 65_534) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
    }
    all_works(&world);
}

#[test]
fn behaviour_20_without_a_descriptor_to_spare_everything_works() {
    if !is_emulated_hip("the doors of the matrix") {
        return;
    }
    let _watchdog = Watchdog::new(200);
    let world = World::new();
    // The test's own file, and one more.
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    limit(libc::RLIMIT_NOFILE, open + 2);
    all_works(&world);
}

/// A file on some storage, the driver's, and memory full of a pattern.
struct Setup {
    driver: Driver,
    file: File,
    memory: Buffer,
}

const LEN: usize = 512 * KIB;

fn byte(at: usize) -> u8 {
    (at / 7 % 250) as u8 + 1
}

fn setup(storage: &Storage, engines: &[&str], change: impl FnOnce(&mut Config)) -> Setup {
    let driver = driver_with(engines, change);
    let mut options = std::fs::File::options();
    let open = options.create(true).truncate(false).read(true).write(true).open(storage.path("f")).unwrap();
    let file = File::register(&driver, open).unwrap();
    let mut memory = Buffer::alloc(&driver, 0, LEN).unwrap();
    memory.upload(0, &(0..LEN).map(byte).collect::<Vec<_>>()).unwrap();
    Setup { driver, file, memory }
}

const BOTH: &[&[&str]] = &[&["uring", "bounce"], &["p2p", "uring", "bounce"]];

impl Setup {
    /// By a call, and by a batch.
    fn go(&self, op: Op, by_batch: bool, at: u64) -> Result<usize, Error> {
        let (ptr, at) = (self.memory.ptr(), at as i64);
        if by_batch {
            let batch = RawBatch::new(1)?;
            let entry = hipfile::Entry {
                op: Ok(op),
                file: self.file.id(),
                buffer: ptr,
                buffer_offset: 0,
                file_offset: at,
                len: LEN,
                cookie: 0,
            };
            // SAFETY: the memory is kept.
            unsafe { batch.submit(&self.driver, &[entry]) }?;
            return match batch.poll(1, 1, None)?.remove(0).status {
                EventStatus::Complete(n) => Ok(n),
                EventStatus::Failed(error) => Err(error),
                other => panic!("{other:?}"),
            };
        }
        match op {
            // SAFETY: the memory is kept.
            Op::Read => unsafe { self.driver.read(self.file.id(), ptr, LEN, at, 0) },
            // SAFETY: the memory is kept.
            Op::Write => unsafe { self.driver.write(self.file.id(), ptr, LEN, at, 0) },
        }
    }
}

/// Writes until the storage takes no more: each count is right, what was counted is there, then comes the error. When there is
/// room again, it goes on.
fn fills_up(storage: &Storage, errno: i32, room: Option<u64>, make_scarce: impl Fn(), make_room: impl Fn()) {
    for engines in BOTH {
        for by_batch in [false, true] {
            for cache in [PageCache::Buffered, PageCache::Direct] {
                make_scarce();
                let setup = setup(storage, engines, |c| c.page_cache = cache);
                let (mut at, mut pieces) = (0_u64, Vec::new());
                let error = loop {
                    match setup.go(Op::Write, by_batch, at) {
                        Ok(0) => panic!("a write of nothing"),
                        Ok(n) => {
                            pieces.push((at, n));
                            at += n as u64;
                        }
                        Err(error) => break error,
                    }
                    assert!(at < 1 << 30, "it never ends");
                };
                let what = format!("{engines:?} {by_batch} {cache:?} at {at}: {error}");
                assert_eq!(error.os_error(), Some(errno), "{what}");
                let written = std::fs::read(storage.path("f")).unwrap();
                assert!(written.len() as u64 >= at, "{what}");
                // Past the host too, where the driver does not say how far it came.
                assert!(room.is_none_or(|room| room == at), "{what}: all that there is room for");
                let whole = |piece: &(u64, usize)| {
                    let (from, n) = (piece.0 as usize, piece.1);
                    written[from..from + n] == pattern()[..n]
                };
                assert!(pieces.iter().all(whole), "{what}: what was counted is there");
                make_room();
                assert!(setup.go(Op::Write, by_batch, 0).unwrap() > 0, "{what}");
                drop(setup);
                std::fs::remove_file(storage.path("f")).unwrap();
            }
        }
    }
}

fn pattern() -> Vec<u8> {
    (0..LEN).map(byte).collect()
}

#[test]
fn a_full_file_system_gives_the_prefix_and_then_enospc() {
    let Some(storage) = Storage::small_ext4() else { return };
    let _watchdog = Watchdog::new(200);
    fills_up(
        &storage,
        libc::ENOSPC,
        None,
        || {},
        || {
            std::fs::File::options().write(true).open(storage.path("f")).unwrap().set_len(0).unwrap();
        },
    );
}

#[test]
fn a_quota_gives_the_prefix_and_then_edquot() {
    let Some(storage) = Storage::btrfs() else { return };
    let _watchdog = Watchdog::new(200);
    let btrfs = |args: &[&str]| -> Result<(), String> {
        let output = std::process::Command::new("btrfs").args(args).arg(storage.folder()).output();
        output.map_err(|e| e.to_string()).and_then(|o| {
            if o.status.success() {
                Ok(())
            } else {
                Err(String::from_utf8_lossy(&o.stderr).trim().to_owned())
            }
        })
    };
    if let Err(why) = btrfs(&["quota", "enable"]).and_then(|()| btrfs(&["qgroup", "limit", "8M"])) {
        return skip("a quota on btrfs", &why);
    }
    // Even what gives room back takes some, so the limit goes instead.
    fills_up(
        &storage,
        libc::EDQUOT,
        None,
        || {
            // What was removed is counted until the transaction ends.
            let _ = std::process::Command::new("sync").arg("-f").arg(storage.folder()).status();
            btrfs(&["qgroup", "limit", "8M"]).unwrap();
        },
        || btrfs(&["qgroup", "limit", "none"]).unwrap(),
    );
}

#[test]
fn the_limit_of_file_sizes_gives_the_prefix_and_then_efbig() {
    // A thread of the library's own blocks all signals; the caller's own write raises this one, as pwrite does.
    // SAFETY: no handler is installed, the signal is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let storage = Storage::here();
    let room = 3 * LEN as u64 + 100 * KIB as u64 + 512;
    limit(libc::RLIMIT_FSIZE, room);
    fills_up(&storage, libc::EFBIG, Some(room), || {}, || {});
}

/// All that is open goes bad; each answer is the system's, quickly, and another file system works as before.
fn goes_bad(storage: &Storage, op: Op, spoil: impl FnOnce(), errnos: &[i32]) {
    let _watchdog = Watchdog::new(100);
    let whole: Vec<Setup> =
        BOTH.iter().map(|e| setup(storage, e, |c| c.page_cache = PageCache::Direct)).collect();
    for setup in &whole {
        assert_eq!(setup.go(Op::Write, false, 0).unwrap(), LEN);
        assert_eq!(setup.go(op, true, 0).unwrap(), LEN);
    }
    spoil();
    for setup in &whole {
        for by_batch in [false, true] {
            let error = setup.go(op, by_batch, 0).expect_err("the storage is gone");
            assert!(error.os_error().is_some_and(|errno| errnos.contains(&errno)), "{by_batch}: {error}");
        }
    }
    let elsewhere = Storage::here();
    std::fs::write(elsewhere.path("f"), pattern()).unwrap();
    for there in &whole {
        let open = std::fs::File::open(elsewhere.path("f")).unwrap();
        let id = there.driver.register_file(open.as_raw_fd()).unwrap();
        // SAFETY: the memory is kept.
        assert_eq!(unsafe { there.driver.read(id, there.memory.ptr(), LEN, 0, 0) }.unwrap(), LEN);
        there.driver.deregister_file(id).unwrap();
    }
}

#[test]
fn a_device_that_vanishes_gives_eio() {
    for storage in [|| Storage::ext4(&[]), Storage::xfs] {
        for op in [Op::Read, Op::Write] {
            let Some(storage) = storage() else { continue };
            let folder = std::fs::File::open(storage.folder()).unwrap();
            // Of xfs, whose number ext4 has taken over.
            const SHUTDOWN: libc::c_ulong = 0x8004_587d;
            let without_log = 2_u32;
            // SAFETY: the call reads one word.
            let shut = || unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &raw const without_log) };
            goes_bad(&storage, op, || assert_eq!(shut(), 0), &[libc::EIO, libc::ESHUTDOWN]);
        }
    }
}

/// What is open of a block device stays usable when it is detached; when what was behind it is gone, the answer says so.
#[test]
fn a_block_device_that_is_detached_under_io_gives_what_is_there_and_then_an_error() {
    use std::process::Command;
    for (op, errnos) in [(Op::Read, &[libc::EIO][..]), (Op::Write, &[libc::ENOSPC, libc::EIO])] {
        let storage = Storage::here();
        let image = storage.path("image");
        let back = std::fs::File::create(&image).unwrap();
        back.set_len(64 << 20).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let device = match attached {
            Ok(said) if said.status.success() => String::from_utf8(said.stdout).unwrap().trim().to_owned(),
            other => return skip("a loop device", &format!("losetup: {other:?}")),
        };
        let _detaches = test_support::afterwards::Afterwards::detach(&image);
        std::os::unix::fs::symlink(&device, storage.path("f")).unwrap();
        let told = |arguments: &[&str]| {
            let done = Command::new("losetup").args(arguments).arg(&device).output().unwrap();
            assert!(done.status.success(), "{arguments:?}: {done:?}");
        };
        let detach = || {
            let setup = setup(&storage, &["uring", "bounce"], |c| c.page_cache = PageCache::Direct);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let io = scope.spawn(|| {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) || count < 20 {
                        assert_eq!(setup.go(op, count % 2 == 1, 1 << 20).unwrap(), LEN);
                        count += 1;
                    }
                });
                told(&["--detach"]);
                stop.store(true, Ordering::Relaxed);
                io.join().unwrap();
            });
            back.set_len(0).unwrap();
            if op == Op::Write {
                // The device learns how long it is now.
                told(&["--set-capacity"]);
            }
        };
        goes_bad(&storage, op, detach, errnos);
    }
}

#[test]
fn a_file_system_that_turns_read_only_gives_erofs() {
    let Some(storage) = Storage::ext4(&[]) else { return };
    let abort = || {
        let status =
            std::process::Command::new("mount").args(["-o", "remount,abort"]).arg(storage.folder()).status();
        assert!(status.is_ok_and(|status| status.success()));
    };
    goes_bad(&storage, Op::Write, abort, &[libc::EROFS, libc::EIO]);
}

#[test]
fn a_file_cut_short_while_it_is_read_gives_what_is_there() {
    let _watchdog = Watchdog::new(100);
    for engines in BOTH {
        for cache in [PageCache::Buffered, PageCache::Direct] {
            let storage = Storage::here();
            std::fs::write(storage.path("f"), pattern()).unwrap();
            let setup = setup(&storage, engines, |c| c.page_cache = cache);
            let other = std::fs::File::options().write(true).open(storage.path("f")).unwrap();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let data = pattern();
                    while !stop.load(Ordering::Relaxed) {
                        other.set_len(100_001).unwrap();
                        std::thread::yield_now();
                        other.write_all_at(&data[100_001..], 100_001).unwrap();
                    }
                });
                let mut seen = vec![0; LEN];
                for round in 0..60 {
                    let n = setup.go(Op::Read, round % 2 == 1, 0).unwrap();
                    assert!((100_001..=LEN).contains(&n), "{n}");
                    setup.memory.download(0, &mut seen).unwrap();
                    // What was cut off and is not written again reads as zero.
                    let wrong = (0..n).find(|at| seen[*at] != byte(*at) && (*at < 100_001 || seen[*at] != 0));
                    assert_eq!(wrong, None, "{engines:?} {cache:?} of {n}");
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}
