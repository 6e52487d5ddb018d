//! System calls that no crate wraps as needed, and the process's count of forks. No policy.

pub(crate) mod aio;
pub(crate) mod mapping;
pub(crate) mod site;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use self::mapping::FileMap;
pub(crate) use self::site::{Site, at, moves};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many times this process is a fork of one that called this function; a change means "we are the child".
pub(crate) fn forks() -> u32 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        extern "C" fn child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler only adds to an atomic, which is allowed in the child of a threaded process. The library
        // is never unloaded (it is linked with -z nodelete), so the handler's address stays good.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Whether the kernel can read at an address, as it does for a write from there. Memory of a driver counts by what its pages are,
/// not by whether they could be pinned.
pub(crate) fn is_reached(address: usize) -> bool {
    let Ok(nowhere) = rustix::fs::memfd_create("hipfile-probe", rustix::fs::MemfdFlags::CLOEXEC) else {
        return false;
    };
    // SAFETY: the kernel reads one byte, or answers EFAULT where there is none.
    unsafe { libc::write(nowhere.as_raw_fd(), std::ptr::with_exposed_provenance(address), 1) == 1 }
}

/// Sets this thread's errno to 0, for calls that report through it without saying so.
pub(crate) fn clear_errno() {
    // SAFETY: it only returns an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is this thread's own errno, valid and aligned while the thread lives.
    unsafe { errno.write(0) };
}

/// What statx says of an open file; fields the kernel did not fill are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statx {
    pub(crate) mode: u16,
    pub(crate) dev: (u32, u32),
    pub(crate) rdev: (u32, u32),
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) blksize: u32,
    pub(crate) mount_id: Option<u64>,
    /// Memory and offset alignment of direct I/O; (0, 0) says that the file has none.
    pub(crate) dio_align: Option<(u32, u32)>,
    /// Offset alignment of direct reads where it differs from that of writes (Linux 6.14).
    pub(crate) dio_read_align: Option<u32>,
}

/// The kernel's `struct statx`, up to the fields we read. `include/uapi/linux/stat.h` fixes the offsets.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawStatx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    _pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [u64; 8],
    rdev_major: u32,
    rdev_minor: u32,
    dev_major: u32,
    dev_minor: u32,
    mnt_id: u64,
    dio_mem_align: u32,
    dio_offset_align: u32,
    subvol: u64,
    atomic_write: [u32; 3],
    dio_read_offset_align: u32,
    spare: [u64; 9],
}
const _: () = assert!(size_of::<RawStatx>() == 256);

const STATX_BASIC: u32 = 0x7ff;
const STATX_MNT_ID: u32 = 0x1000;
const STATX_DIOALIGN: u32 = 0x2000;
const STATX_DIO_READ_ALIGN: u32 = 0x2_0000;

/// statx of a descriptor; falls back to fstat where a sandbox refuses statx.
pub(crate) fn statx(fd: RawFd) -> Result<Statx, i32> {
    // SAFETY: RawStatx is plain integers, for which all zeroes is a value.
    let mut raw: RawStatx = unsafe { std::mem::zeroed() };
    let mask = STATX_BASIC | STATX_MNT_ID | STATX_DIOALIGN | STATX_DIO_READ_ALIGN;
    // SAFETY: the path is a NUL-terminated constant and `raw` is a writable statx of the kernel's size (asserted above).
    let result =
        unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut raw) };
    if result == 0 {
        let has = |bit: u32| raw.mask & bit != 0;
        return Ok(Statx {
            mode: raw.mode,
            dev: (raw.dev_major, raw.dev_minor),
            rdev: (raw.rdev_major, raw.rdev_minor),
            ino: raw.ino,
            size: raw.size,
            blksize: raw.blksize,
            mount_id: has(STATX_MNT_ID).then_some(raw.mnt_id),
            dio_align: has(STATX_DIOALIGN).then_some((raw.dio_mem_align, raw.dio_offset_align)),
            dio_read_align: has(STATX_DIO_READ_ALIGN).then_some(raw.dio_read_offset_align),
        });
    }
    let errno = last_errno();
    if errno != libc::ENOSYS && errno != libc::EPERM {
        return Err(errno);
    }
    // SAFETY: fd is only asked about; an invalid number gives EBADF.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let stat = rustix::fs::fstat(fd).map_err(|e| e.raw_os_error())?;
    let split = |dev: u64| (rustix::fs::major(dev), rustix::fs::minor(dev));
    Ok(Statx {
        mode: stat.st_mode as u16,
        dev: split(stat.st_dev),
        rdev: split(stat.st_rdev),
        ino: stat.st_ino,
        size: stat.st_size as u64,
        blksize: stat.st_blksize as u32,
        ..Statx::default()
    })
}

/// Asks until no signal comes between.
pub(crate) fn uninterrupted<T>(ask: impl Fn() -> Result<T, i32>) -> Result<T, i32> {
    loop {
        match ask() {
            Err(libc::EINTR) => {}
            answer => return answer,
        }
    }
}

/// Asks about a descriptor, and once more if the answer is an error that may pass: file systems on a network have such. A
/// number that names nothing is told at once.
pub(crate) fn asks_twice<T>(ask: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match ask() {
        Err(rustix::io::Errno::BADF) => Err(rustix::io::Errno::BADF),
        Err(_) => ask(),
        answer => answer,
    }
}

/// Device and inode of an open file, as [`Statx`] has them, and little else: several times as fast.
pub(crate) fn file_identity(fd: BorrowedFd<'_>) -> rustix::io::Result<((u32, u32), u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)), stat.st_ino))
}

/// Whether the program runs with more rights than its caller has (set-user-ID and the like).
pub(crate) fn is_set_user_id() -> bool {
    // SAFETY: a query of the auxiliary vector, without preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the process may set io_uring up; else the errno of the refusal. Sets nothing up.
pub(crate) fn io_uring_allowed() -> Result<(), i32> {
    // SAFETY: no entries and no parameters: the kernel refuses both after it has checked whether we may, and
    // touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, std::ptr::null_mut::<u8>()) };
    match (fd, last_errno()) {
        (0.., _) | (_, libc::EFAULT | libc::EINVAL) => Ok(()),
        (_, errno) => Err(errno),
    }
}

/// A clock of the system's, in nanoseconds. By the C library: rustix looks for the kernel's function in ways that valgrind
/// does not bear.
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written to. An unknown clock leaves it alone.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The number from which descriptors that stay open for long get theirs: low ones are what programs count on, up to the
/// one that was closed a moment ago and is believed to name nothing.
pub(crate) const OUT_OF_THE_WAY: RawFd = 512;

/// The same description under a number that is out of the way, where the limit allows such a number.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    at(Site::OutOfTheWay, || rustix::io::fcntl_dupfd_cloexec(&fd, OUT_OF_THE_WAY)).unwrap_or(fd)
}

/// Who is at the other end of a Unix socket, as the kernel knows: process and user. The process is 0 where this one cannot
/// see it.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<(i32, u32), i32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `peer` and `len` may be written to, and `len` is the size of what `peer` has room for.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut len) };
    if result == 0 { Ok((peer.pid, peer.uid)) } else { Err(last_errno()) }
}

/// The signals by which the kernel answers a write, with the errors that come beside them: to a pipe that nobody reads, and
/// beyond the limit on the size of files.
const OF_WRITES: [(libc::c_int, rustix::io::Errno); 2] =
    [(libc::SIGPIPE, rustix::io::Errno::PIPE), (libc::SIGXFSZ, rustix::io::Errno::FBIG)];

/// Does what writes to any kind of file, without the signals that would end the process for it.
pub(crate) fn without_signals<T>(
    write: impl FnOnce() -> Result<T, rustix::io::Errno>,
) -> Result<T, rustix::io::Errno> {
    // SAFETY: a signal set is plain data, and all zero is one.
    let [mut blocked, mut before, mut pending]: [libc::sigset_t; 3] = unsafe { std::mem::zeroed() };
    for (signal, _) in OF_WRITES {
        // SAFETY: `blocked` is a signal set, and `signal` a signal.
        unsafe { libc::sigaddset(&raw mut blocked, signal) };
    }
    // SAFETY: both are signal sets; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before) };
    // SAFETY: `pending` is a signal set.
    unsafe { libc::sigpending(&raw mut pending) };
    let result = write();
    for (signal, error) in OF_WRITES {
        // SAFETY: `pending` is a signal set.
        let was_pending = unsafe { libc::sigismember(&raw const pending, signal) } == 1;
        if was_pending || result.as_ref().err() != Some(&error) {
            continue;
        }
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a signal set is plain data, and all zero is one.
        let mut raised: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `raised` is a signal set, and `signal` a signal.
        unsafe { libc::sigaddset(&raw mut raised, signal) };
        // SAFETY: the set and the time live during the call; nothing is wanted to know of the signal.
        unsafe { libc::sigtimedwait(&raw const raised, std::ptr::null_mut(), &raw const now) };
    }
    // SAFETY: `before` is the mask of before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// errno of this thread's last failed call.
pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Whether some POSIX (per process) record lock is held on the file, by anyone. Closing any descriptor of a file
/// drops this process's POSIX locks on it, so a private descriptor must not be closed then.
pub(crate) fn has_posix_lock(fd: RawFd) -> bool {
    // SAFETY: flock is plain integers, for which all zeroes is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    // SAFETY: F_OFD_GETLK reads and writes one flock, which `lock` is; an open-file-description query sees the
    // process's own POSIX locks as conflicts, which the POSIX query would not.
    let result = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) };
    // Open-file-description locks report pid -1 and are not dropped by closing another description.
    result == 0 && lock.l_type != libc::F_UNLCK as i16 && lock.l_pid != -1
}

/// What of a file range is in the page cache, in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheStat {
    pub(crate) cached: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// cachestat(2), Linux 6.5; EPERM for a reader who neither owns nor may write the file (newer kernels).
pub(crate) fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<CacheStat, i32> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    let mut stat = CacheStat::default();
    // SAFETY: the range is two 64-bit words and `stat` five, as the kernel's structs of that call are.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), &raw mut stat, 0_u32) };
    if result == 0 { Ok(stat) } else { Err(last_errno()) }
}

/// Whether one byte can be read without waiting for storage; `None` when the file system cannot say. A miss starts
/// the kernel's read-ahead, so this is the second choice.
pub(crate) fn readable_now(fd: BorrowedFd<'_>, offset: u64) -> Option<bool> {
    match pread_now(fd, &mut [0; 1], offset) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Reads all of `to` without waiting for storage; whether that was possible. If not, some of it may have been written.
pub(crate) fn read_now(fd: RawFd, to: &mut [u8], offset: u64) -> bool {
    let len = to.len();
    // SAFETY: for one call, which takes any number: one that names no open file gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    pread_now(fd, to, offset) == Ok(len)
}

/// Reads all of `to`, by the call that is the fastest where no storage is to be waited for; whether that was possible.
pub(crate) fn read_whole(fd: RawFd, to: &mut [u8], offset: u64) -> bool {
    let len = to.len();
    // SAFETY: for one call, which takes any number: one that names no open file gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::pread(fd, to, offset) == Ok(len)
}

/// Reads what can be had without waiting for storage. Not by libc, which makes each a point where the thread can be canceled:
/// as slow as a twentieth of the read.
fn pread_now(fd: BorrowedFd<'_>, to: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let parts = &mut [std::io::IoSliceMut::new(to)];
    rustix::io::preadv2(fd, parts, offset, rustix::io::ReadWriteFlags::NOWAIT)
}

/// Starts writing a range's dirty pages, without waiting for the end.
pub(crate) fn start_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), i32> {
    // SAFETY: a plain call on a borrowed descriptor.
    let result = unsafe {
        libc::sync_file_range(fd.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE)
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Leaves nothing in the page cache behind; Linux 6.14.
pub(crate) const RWF_DONTCACHE: rustix::io::ReadWriteFlags =
    rustix::io::ReadWriteFlags::from_bits_retain(0x80);

/// Positioned read into memory that need not be the library's own.
///
/// # Safety
/// `to..to+len` must be memory the caller of the library gave for writing, or an address range the process has not
/// mapped (the kernel then answers EFAULT).
pub(crate) unsafe fn pread_raw(fd: RawFd, to: usize, len: usize, offset: u64) -> Result<usize, i32> {
    // SAFETY: the kernel checks the range; that writing there is allowed is the caller's promise.
    let n = unsafe { libc::pread(fd, to as *mut libc::c_void, len, offset as i64) };
    usize::try_from(n).map_err(|_| last_errno())
}

/// Positioned write from memory that need not be the library's own.
///
/// # Safety
/// `from..from+len` must not be memory that Rust code holds exclusively.
pub(crate) unsafe fn pwrite_raw(fd: RawFd, from: usize, len: usize, offset: u64) -> Result<usize, i32> {
    // SAFETY: the kernel checks the range and only reads it; no Rust reference to it is created.
    let n = unsafe { libc::pwrite(fd, from as *const libc::c_void, len, offset as i64) };
    usize::try_from(n).map_err(|_| last_errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statx_agrees_with_fstat() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"12345").unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let facts = statx(file.as_raw_fd()).unwrap();
        assert_eq!(facts.size, 5);
        assert_eq!(facts.ino, stat.st_ino);
        assert_eq!(facts.dev, (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)));
        assert_eq!(u32::from(facts.mode), stat.st_mode);
        assert_eq!(statx(-1), Err(libc::EBADF));
    }

    #[test]
    fn own_posix_locks_are_seen_and_open_file_locks_are_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = std::fs::File::open(file.path()).unwrap();
        assert!(!has_posix_lock(other.as_raw_fd()));
        for (command, seen) in [(libc::F_OFD_SETLK, false), (libc::F_SETLK, true)] {
            // SAFETY: flock is plain integers.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            lock.l_type = libc::F_WRLCK as i16;
            lock.l_len = 10;
            // SAFETY: one flock is read.
            let locked = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
            assert_eq!((locked, has_posix_lock(other.as_raw_fd())), (0, seen));
            lock.l_type = libc::F_UNLCK as i16;
            // SAFETY: one flock is read.
            let unlocked = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
            assert_eq!(unlocked, 0);
        }
    }
}
