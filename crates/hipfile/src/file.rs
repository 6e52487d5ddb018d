//! A registered file: the caller's descriptor, the private ones, and the facts learnt about it by descriptor. It moves
//! no bytes and chooses no engine.

mod park;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};

use crate::config::PageCache;
use crate::error::{Error, ErrorKind, Result};
use crate::health::{Breaker, Demoted, Shy};
use crate::notice;
use crate::op::Op;
use crate::pace::Pace;
use crate::stats::{Counters, MAX_ENGINES};
use crate::storage::{self, Roots, StorageFacts};
use crate::sys::{self, Site, Statx};
use crate::usage::{Usage, Used};
use crate::user_fs::{User, UserFs};
use crate::warm::Warm;

/// What kind of thing the descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Something else, which the program's own file system serves.
    Other,
}

/// Alignments of direct I/O on one file, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlign {
    /// Of memory addresses.
    pub mem: u32,
    /// Of file offsets and lengths of writes.
    pub offset: u32,
    /// Of file offsets and lengths of reads.
    pub read_offset: u32,
}

impl DirectAlign {
    /// Of file offsets and lengths in one direction.
    pub(crate) fn of_offsets(self, op: Op) -> u32 {
        match op {
            Op::Read => self.read_offset,
            Op::Write => self.offset,
        }
    }
}

/// Alignments beyond this are as good as no direct I/O: the smallest Block holds no more, and no storage asks for more.
const LARGEST_ALIGN: u32 = 64 << 10;

/// How long it is believed at most that private descriptors are what they were, while transfers go on; in nanoseconds.
const LOOK_EVERY: u64 = 10_000_000;

/// A registered file.
#[derive(Debug)]
pub(crate) struct FileRecord {
    fd: RawFd,
    flags: OFlags,
    file_type: FileType,
    identity: Identity,
    facts: Statx,
    buffered: OnceLock<Descriptor>,
    direct: OnceLock<Option<OwnedFd>>,
    /// Whether the program has closed a private descriptor, so that its number may be that of a file of its own.
    lost: AtomicBool,
    /// When the private descriptors were last looked at; CLOCK_MONOTONIC in nanoseconds.
    looked_at: AtomicU64,
    magic: Option<u32>,
    storage: OnceLock<StorageFacts>,
    /// The file's own page cache setting, one more than its number; 0 for the driver's.
    page_cache: AtomicU8,
    /// Directions in which O_DIRECT was accepted at open and refused by a transfer.
    no_direct: [AtomicBool; 2],
    /// Kinds of ranges that direct access refused.
    pub(crate) demoted: Demoted,
    /// Which engines rest on this file.
    pub(crate) breakers: [Breaker; MAX_ENGINES],
    /// How fast it went either way.
    pub(crate) pace: Pace,
    pub(crate) warm: Warm,
    pub(crate) aside: Shy,
    /// What an engine has told a library of this file, if it has.
    pub(crate) known_to_library: OnceLock<Box<dyn std::any::Any + Send + Sync>>,
    pub(crate) usage: Usage,
    pub(crate) counters: Counters,
    /// The program's own file system, if the file is on one.
    user: Option<User>,
}

/// Device and inode: what "the same file" means.
pub(crate) type Identity = ((u32, u32), u64);

/// How the caller's file is reached for buffered I/O.
#[derive(Debug)]
enum Descriptor {
    /// Our own description, or a duplicate of the caller's where reopening was refused.
    Private(OwnedFd),
    /// No descriptor to spare: the caller's own, checked before each use.
    Callers,
    /// Only an O_DIRECT description exists: transfers must be aligned.
    DirectOnly(OwnedFd),
}

/// A descriptor an engine may do plain I/O on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainFd<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Whether it is O_DIRECT, so that only aligned transfers work.
    pub(crate) direct_only: bool,
}

impl FileRecord {
    /// Learns what there is to know about the descriptor. Opens nothing and changes nothing.
    pub(crate) fn inspect(fd: RawFd) -> Result<FileRecord> {
        FileRecord::learn(fd, None)
    }

    /// As [`FileRecord::inspect`] of a file on the program's own file system. If that serves both directions the descriptor
    /// may be of anything.
    pub(crate) fn inspect_user(fd: RawFd, fs: Arc<dyn UserFs>) -> Result<FileRecord> {
        FileRecord::learn(fd, Some(User::new(fs)))
    }

    fn learn(fd: RawFd, user: Option<User>) -> Result<FileRecord> {
        const OP: &str = "register file";
        let refused = |errno| Error::os_because(OP, errno, format!("descriptor {fd}"));
        let facts = sys::uninterrupted(|| sys::at(Site::FileFacts, || sys::statx(fd))).map_err(refused)?;
        // SAFETY: statx just accepted the number; fcntl only asks, and a number closed meanwhile gives EBADF.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let flags =
            rustix::io::retry_on_intr(|| sys::at(Site::FileFlags, || rustix::fs::fcntl_getfl(borrowed)));
        let flags = flags.map_err(|e| refused(e.raw_os_error()))?;
        let whole = user.as_ref().is_some_and(|user| user.serves(Op::Read) && user.serves(Op::Write));
        if flags.contains(OFlags::PATH) && !whole {
            return Err(refused(libc::EBADF));
        }
        let file_type = match u32::from(facts.mode) & libc::S_IFMT {
            libc::S_IFREG => FileType::Regular,
            libc::S_IFBLK => FileType::Block,
            _ if whole => FileType::Other,
            other => {
                let what = match other {
                    libc::S_IFDIR => "a directory",
                    libc::S_IFCHR => "a character device",
                    libc::S_IFIFO => "a pipe",
                    libc::S_IFSOCK => "a socket",
                    _ => "an unknown kind of object",
                };
                return Err(Error::message(
                    ErrorKind::InvalidFileType,
                    OP,
                    format!("descriptor {fd} is {what}"),
                ));
            }
        };
        Ok(FileRecord {
            fd,
            flags,
            file_type,
            identity: identity(&facts),
            facts,
            buffered: OnceLock::new(),
            direct: OnceLock::new(),
            lost: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
            magic: storage::magic(borrowed),
            storage: OnceLock::new(),
            page_cache: AtomicU8::new(0),
            no_direct: Default::default(),
            demoted: Demoted::default(),
            breakers: Default::default(),
            pace: Pace::default(),
            warm: Warm::default(),
            aside: Shy::default(),
            known_to_library: OnceLock::new(),
            usage: Usage::default(),
            counters: Counters::new(),
            user,
        })
    }

    /// The same file, and a kernel that says something else about its direct I/O.
    #[cfg(test)]
    pub(crate) fn pretend(
        mut self,
        dio_align: Option<(u32, u32)>,
        dio_read_align: Option<u32>,
    ) -> FileRecord {
        self.facts.dio_align = dio_align;
        self.facts.dio_read_align = dio_read_align;
        self
    }

    /// The same file, and something else below it.
    #[cfg(test)]
    pub(crate) fn on(self, storage: StorageFacts) -> FileRecord {
        assert!(self.storage.set(storage).is_ok(), "what lies below was not looked at yet");
        self
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Whether the caller's descriptor number still names this file.
    pub(crate) fn is_current(&self) -> bool {
        match sys::at(Site::FileIsCurrent, || sys::statx(self.fd)) {
            Ok(now) => identity(&now) == self.identity,
            Err(libc::EBADF) => false,
            // Storage that does not answer is no reason to believe in another file: the transfer will tell.
            Err(_) => self.inode_is_ours(self.fd).unwrap_or(true),
        }
    }

    /// Whether two registrations of one number are of the same open file. The access mode of an open file never
    /// changes, so another one means that the number was closed and opened again.
    pub(crate) fn is_same_file(&self, other: &FileRecord) -> bool {
        self.identity == other.identity && (self.flags ^ other.flags) & OFlags::ACCMODE == OFlags::empty()
    }

    /// Why the mode that the caller opened the file in does not allow this, if it does not.
    pub(crate) fn mode_against(&self, op: Op) -> Option<&'static str> {
        let mode = self.flags & OFlags::ACCMODE;
        match op {
            Op::Read if mode == OFlags::WRONLY => Some("the file was opened for writing only"),
            Op::Write if mode == OFlags::RDONLY => Some("the file was opened for reading only"),
            _ => None,
        }
    }

    pub(crate) fn appends(&self) -> bool {
        self.flags.contains(OFlags::APPEND) && self.user(Op::Write).is_none()
    }

    /// The program's own file system, if it serves the file in this direction.
    pub(crate) fn user(&self, op: Op) -> Option<&User> {
        self.user.as_ref().filter(|user| user.serves(op))
    }

    /// What the program's own file system calls itself, if the file is on one.
    pub(crate) fn user_name(&self) -> Option<String> {
        self.user.as_ref().map(User::name)
    }

    /// Whether the program's own file system is called by one thread at a time. `false` when the file is on none.
    pub(crate) fn serialize(&self, on: bool) -> bool {
        self.user.as_ref().map(|user| user.serialize(on)).is_some()
    }

    /// Alignments of direct I/O; `None` when the file has no direct I/O.
    pub(crate) fn direct_align(&self) -> Option<DirectAlign> {
        if self.user.is_some() {
            return None;
        }
        // Kernels before 6.1 do not say: the page is what every block device accepts.
        let (mem, offset) = self.facts.dio_align.unwrap_or((4096, 4096));
        let sane = |a: u32| a.is_power_of_two() && a <= LARGEST_ALIGN;
        if !sane(mem) || !sane(offset) {
            return None;
        }
        let read_offset = self.facts.dio_read_align.filter(|a| sane(*a)).unwrap_or(offset);
        Some(DirectAlign { mem, offset, read_offset })
    }

    /// The descriptor for plain reads and writes, opened at first use.
    ///
    /// # Errors
    /// `HandleNotRegistered` when the caller's number names another file by now.
    pub(crate) fn plain(&self, op: &'static str) -> Result<PlainFd<'_>> {
        if self.buffered.get().is_none() {
            let opened = self.open_buffered(op)?;
            // Another thread may have been first; ours is then closed again, with care for locks.
            if let Err(Descriptor::Private(fd) | Descriptor::DirectOnly(fd)) = self.buffered.set(opened) {
                park::close(fd, self.park_key(false));
            }
        }
        match self.buffered.get().filter(|_| !self.lost.load(Ordering::Relaxed)) {
            Some(Descriptor::Private(fd)) => Ok(PlainFd { fd: borrow(fd), direct_only: false }),
            Some(Descriptor::DirectOnly(fd)) => Ok(PlainFd { fd: borrow(fd), direct_only: true }),
            Some(Descriptor::Callers) | None => {
                if !self.is_current() {
                    return Err(self.stale(op));
                }
                // SAFETY: the number names our file now. The caller must keep its descriptor open during a call, as
                // for pread; a number closed meanwhile gives EBADF, never undefined behaviour.
                let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
                Ok(PlainFd { fd, direct_only: self.flags.contains(OFlags::DIRECT) })
            }
        }
    }

    /// The private O_DIRECT descriptor, opened at first use; `None` when the file system refuses one.
    pub(crate) fn direct(&self) -> Option<BorrowedFd<'_>> {
        self.direct_align()?;
        let fd = self.direct.get_or_init(|| self.open_direct()).as_ref();
        fd.filter(|_| !self.lost.load(Ordering::Relaxed)).map(borrow)
    }

    /// Looks whether the private descriptors are still those of this file, if that was not done a moment ago. Without them the
    /// caller's own serves.
    pub(crate) fn look_after(&self) {
        let now = sys::clock(libc::CLOCK_MONOTONIC_COARSE);
        if now.wrapping_sub(self.looked_at.load(Ordering::Relaxed)) > LOOK_EVERY {
            self.looked_at.store(now, Ordering::Relaxed);
            self.finds_lost();
        }
    }

    /// Whether a private descriptor turns out to be no longer this file's, for the first time.
    pub(crate) fn finds_lost(&self) -> bool {
        let buffered = match self.buffered.get() {
            Some(Descriptor::Private(fd) | Descriptor::DirectOnly(fd)) => Some(fd),
            Some(Descriptor::Callers) | None => None,
        };
        let mut both = buffered.into_iter().chain(self.direct.get().and_then(Option::as_ref));
        let Some(fd) = both.find(|fd| !self.names_this_file(fd)) else { return false };
        let first = !self.lost.swap(true, Ordering::Relaxed);
        if first {
            notice::line(format_args!(
                "the program closed descriptor {}, which was the library's, of the file of descriptor {}: from now on its \
                 own is used",
                fd.as_raw_fd(),
                self.fd
            ));
        }
        first
    }

    /// The file's own page cache setting, if it has one.
    pub(crate) fn page_cache(&self) -> Option<PageCache> {
        match self.page_cache.load(Ordering::Relaxed) {
            1 => Some(PageCache::Auto),
            2 => Some(PageCache::Direct),
            3 => Some(PageCache::Buffered),
            4 => Some(PageCache::NoCache),
            _ => None,
        }
    }

    pub(crate) fn set_page_cache(&self, setting: Option<PageCache>) {
        self.page_cache.store(setting.map_or(0, |s| s as u8 + 1), Ordering::Relaxed);
    }

    /// O_DIRECT does not work in this direction, whatever open said.
    pub(crate) fn refuse_direct(&self, op: Op) {
        self.no_direct[op as usize].store(true, Ordering::Relaxed);
    }

    /// The O_DIRECT descriptor for staged transfers and what their file offsets must be multiples of; `None` where
    /// there is none, or where it does not work.
    pub(crate) fn staged_direct(&self, op: Op) -> Option<(BorrowedFd<'_>, usize)> {
        let align = self.direct_align()?;
        if self.no_direct[op as usize].load(Ordering::Relaxed) || (op == Op::Write && self.appends()) {
            return None;
        }
        let offset = match op {
            Op::Read => align.read_offset,
            // A page that is written both ways at once would have to be kept coherent: bodies are whole pages.
            Op::Write => align.offset.max(4096),
        } as usize;
        // Staging memory is aligned to pages.
        (align.mem <= 4096).then_some(())?;
        Some((self.direct()?, offset))
    }

    /// How long the file or device is now; `None` when that cannot be learnt.
    pub(crate) fn size(&self) -> Option<u64> {
        let fd = self.direct()?;
        match self.file_type {
            FileType::Regular | FileType::Other => {
                let facts = sys::at(Site::FileSize, || sys::statx(fd.as_raw_fd())).ok();
                // What another file's size is tells nothing.
                let facts = facts.filter(|facts| identity(facts) == self.identity);
                if facts.is_none() {
                    self.finds_lost();
                }
                facts.map(|facts| facts.size)
            }
            // The position of our own description means nothing to anyone.
            FileType::Block => {
                sys::at(Site::DeviceSize, || rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0))).ok()
            }
        }
    }

    fn open_buffered(&self, op: &'static str) -> Result<Descriptor> {
        if let Some(fd) = self.take_parked(false) {
            return Ok(Descriptor::Private(fd));
        }
        let wants_direct = self.flags.contains(OFlags::DIRECT);
        match self.reopen(self.flags & !OFlags::DIRECT) {
            Ok(fd) => return Ok(Descriptor::Private(fd)),
            Err(Refusal::Stale) => return Err(self.stale(op)),
            Err(Refusal::System) => {}
        }
        // SAFETY: fcntl only duplicates; a number closed meanwhile gives EBADF.
        let callers = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let duplicate = |above| rustix::io::fcntl_dupfd_cloexec(callers, above);
        match sys::at(Site::FileDuplicate, || duplicate(sys::OUT_OF_THE_WAY).or_else(|_| duplicate(3))) {
            Ok(fd) if !self.names_this_file(&fd) => {
                // It may be the only descriptor of some other file on which the process holds locks.
                park::close(fd, park::NO_KEY);
                Err(self.stale(op))
            }
            Ok(fd) if wants_direct => Ok(Descriptor::DirectOnly(fd)),
            Ok(fd) => Ok(Descriptor::Private(fd)),
            Err(_) if self.is_current() => Ok(Descriptor::Callers),
            Err(_) => Err(self.stale(op)),
        }
    }

    fn open_direct(&self) -> Option<OwnedFd> {
        self.take_parked(true).or_else(|| self.reopen(self.flags | OFlags::DIRECT).ok())
    }

    fn take_parked(&self, direct: bool) -> Option<OwnedFd> {
        loop {
            let fd = park::take(&self.park_key(direct))?;
            if self.names_this_file(&fd) {
                return Some(fd);
            }
            std::mem::forget(fd);
        }
    }

    /// Opens the caller's file anew through /proc, which gives a description of our own.
    fn reopen(&self, flags: OFlags) -> std::result::Result<OwnedFd, Refusal> {
        // Flags that would act at open time (create, truncate) are not reported by F_GETFL; these must not be taken over.
        let keep = OFlags::ACCMODE
            | OFlags::APPEND
            | OFlags::DIRECT
            | OFlags::NOATIME
            | OFlags::DSYNC
            | OFlags::SYNC;
        let flags = (flags & keep) | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let path = format!("/proc/self/fd/{}", self.fd);
        let opened = sys::at(Site::FileReopen, || rustix::fs::open(path, flags, rustix::fs::Mode::empty()));
        let fd = opened.map_err(|_| Refusal::System)?;
        let fd = aside(fd).ok_or(Refusal::System)?;
        if !self.names_this_file(&fd) {
            park::close(fd, park::NO_KEY);
            return Err(Refusal::Stale);
        }
        Ok(fd)
    }

    /// Whether the number is of a file with this one's inode, as the kernel knows without asking the storage; `None` where it
    /// does not say.
    fn inode_is_ours(&self, fd: RawFd) -> Option<bool> {
        let path = format!("/proc/self/fdinfo/{fd}");
        let text = sys::at(Site::FileInode, || std::fs::read_to_string(path)).ok()?;
        let number = text.lines().find_map(|line| line.strip_prefix("ino:"))?;
        Some(number.trim().parse() == Ok(self.identity.1))
    }

    fn names_this_file(&self, fd: &OwnedFd) -> bool {
        self.is_named_by(fd, true)
    }

    /// Whether the descriptor still is of this file, and what to believe when nobody can say.
    fn is_named_by(&self, fd: &OwnedFd, unknown: bool) -> bool {
        match sys::asks_twice(|| sys::at(Site::FileIdentity, || sys::file_identity(borrow(fd)))) {
            Ok(now) => now == self.identity,
            Err(Errno::BADF) => false,
            Err(_) => self.inode_is_ours(fd.as_raw_fd()).unwrap_or(unknown),
        }
    }

    /// Lets go of a private descriptor. One that is a stranger's by now is not ours to close.
    fn let_go(&self, fd: OwnedFd, direct: bool) {
        let ours = self.is_named_by(&fd, false)
            && sys::asks_twice(|| sys::at(Site::FileLastLook, || rustix::io::fcntl_getfd(&fd)))
                .is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC));
        if ours { park::close(fd, self.park_key(direct)) } else { std::mem::forget(fd) }
    }

    fn stale(&self, op: &'static str) -> Error {
        Error::message(
            ErrorKind::HandleNotRegistered,
            op,
            format!("descriptor {} was closed or names another file than the one registered", self.fd),
        )
    }

    fn park_key(&self, direct: bool) -> park::Key {
        (
            self.identity,
            self.flags & (OFlags::ACCMODE | OFlags::APPEND | OFlags::DSYNC | OFlags::SYNC),
            direct,
        )
    }

    /// Where the file is, for people to read; may be gone or elsewhere.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let number = match (self.buffered.get(), self.direct.get()) {
            (Some(Descriptor::Private(fd) | Descriptor::DirectOnly(fd)), _) | (_, Some(Some(fd)))
                if !self.lost.load(Ordering::Relaxed) =>
            {
                fd.as_raw_fd()
            }
            _ if self.is_current() => self.fd,
            _ => return None,
        };
        sys::at(Site::FilePath, || std::fs::read_link(format!("/proc/self/fd/{number}"))).ok()
    }

    /// What lies under the file, learnt at first use.
    pub(crate) fn storage(&self) -> &StorageFacts {
        self.storage.get_or_init(|| StorageFacts::of_file(&self.facts, self.magic, &Roots::real()))
    }

    /// How many descriptors of its own the record holds: 0 to 2.
    pub(crate) fn private_descriptors(&self) -> usize {
        if self.lost.load(Ordering::Relaxed) {
            return 0;
        }
        let buffered =
            matches!(self.buffered.get(), Some(Descriptor::Private(_) | Descriptor::DirectOnly(_)));
        usize::from(buffered) + usize::from(matches!(self.direct.get(), Some(Some(_))))
    }
}

impl Used for FileRecord {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Drop for FileRecord {
    fn drop(&mut self) {
        match self.buffered.take() {
            Some(Descriptor::Private(fd)) => self.let_go(fd, false),
            Some(Descriptor::DirectOnly(fd)) => self.let_go(fd, true),
            Some(Descriptor::Callers) | None => {}
        }
        if let Some(Some(fd)) = self.direct.take() {
            self.let_go(fd, true);
        }
    }
}

enum Refusal {
    /// The number names another file by now.
    Stale,
    /// The system refused: no /proc, no permission, no descriptors left.
    System,
}

/// The same description under a number that is out of the way, and never one of the standard streams': the process may run
/// without them. Where closing the first would drop a lock of the process's it stays.
fn aside(fd: OwnedFd) -> Option<OwnedFd> {
    let standard = fd.as_raw_fd() <= libc::STDERR_FILENO;
    if !standard && sys::at(Site::FileLockAside, || sys::has_posix_lock(fd.as_raw_fd())) {
        return Some(fd);
    }
    let move_above = |above| rustix::io::fcntl_dupfd_cloexec(&fd, above);
    let moved = match sys::at(Site::FileAside, || move_above(sys::OUT_OF_THE_WAY)) {
        Err(_) if !standard => return Some(fd),
        Err(_) => move_above(libc::STDERR_FILENO + 1),
        moved => moved,
    };
    park::close(fd, park::NO_KEY);
    moved.ok()
}

fn identity(facts: &Statx) -> Identity {
    (facts.dev, facts.ino)
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}
