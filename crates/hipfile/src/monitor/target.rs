//! Another process, whose statistics are looked at. Whatever it sends is checked before it is used.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use super::server::{AMD_NAME, GREETING, OUR_NAME, PARENT_NAME, listen, reach};
use crate::private::Private;
use crate::stats::{self, AMD_WORDS, MOST_WORDS, Region, Snapshot};
use crate::sys::{self, Site};

/// Why a process cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// There is no such process.
    NotFound,
    /// It ended before it showed anything.
    Ended,
    /// It shows nothing within the time given: it does not use hipfile yet, or counts nothing.
    Silent,
    /// It cannot be asked, or its answer is not to be believed.
    Refused(String),
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreachable::NotFound => f.write_str("there is no such process"),
            Unreachable::Ended => f.write_str("it ended without having shown any statistics"),
            Unreachable::Silent => {
                f.write_str("it shows no statistics: it has not opened hipfile, or HIPFILE_STATS_LEVEL is 0")
            }
            Unreachable::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unreachable {}

/// Hears of the children of this process that use hipfile. Made before a child is started, none is too short to be looked at.
#[derive(Debug)]
pub struct Children {
    listener: Option<Private<UnixListener>>,
}

impl Children {
    /// Listens from now on, if nothing in this process does yet; without that, children are asked as any process is.
    pub fn new() -> Children {
        Children { listener: listen(PARENT_NAME) }
    }
}

impl Default for Children {
    fn default() -> Children {
        Children::new()
    }
}

/// A process whose statistics are looked at. The pages stay readable when it has ended.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    process: Private,
    children: Children,
    page: Option<Page>,
}

#[derive(Debug)]
enum Page {
    Ours(Region),
    Amds(Region),
}

/// How long is waited before the next attempt: at first, and at most.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(5);
/// How long one that has accepted may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Why one attempt gave nothing.
enum Attempt {
    /// There may be something later.
    NotYet,
    Never(String),
}

impl Target {
    /// The process with this number. It need not use hipfile yet.
    ///
    /// # Errors
    /// `NotFound`; `Refused` where the system cannot tell processes apart (Linux before 5.3).
    pub fn new(pid: u32) -> Result<Target, Unreachable> {
        Target::child(pid, Children { listener: None })
    }

    /// A child of this process with this number, started after `children` was made: [`Target::connect`] finds what it has
    /// counted also when it has ended by then.
    ///
    /// # Errors
    /// As [`Target::new`].
    pub fn child(pid: u32, children: Children) -> Result<Target, Unreachable> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Unreachable::NotFound)?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => Ok(Target { pid, process: Private::new(process), children, page: None }),
            Err(Errno::SRCH | Errno::INVAL) => Err(Unreachable::NotFound),
            Err(error) => Err(Unreachable::Refused(format!("it cannot be watched: {error}"))),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it tells no more than AMD's page holds.
    pub fn is_amds(&self) -> bool {
        matches!(self.page, Some(Page::Amds(_)))
    }

    /// Waits until the process has ended, at most so long; whether it has.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        self.ready(self.process.as_fd(), limit).1
    }

    /// Waits for something to read, or for the end of the process; which of both came.
    fn ready(&self, fd: std::os::fd::BorrowedFd<'_>, limit: Option<Duration>) -> (bool, bool) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let mut polled = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&self.process, PollFlags::IN)];
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let time = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            match poll(&mut polled, time.as_ref()) {
                Err(Errno::INTR) => continue,
                _ => return (!polled[0].revents().is_empty(), !polled[1].revents().is_empty()),
            }
        }
    }

    /// Asks the process for its page; tries again until it answers, has ended, or `limit` is over.
    ///
    /// # Errors
    /// `Ended`, `Silent` when the time is over, `Refused`.
    pub fn connect(&mut self, limit: Option<Duration>) -> Result<(), Unreachable> {
        let began = Instant::now();
        let mut pause = SOON;
        loop {
            if let Some(told) = self.told() {
                return self.take(Page::Ours(told));
            }
            let ours = || Ok(Page::Ours(self.ask(OUR_NAME)?));
            let amds = || Ok(Page::Amds(self.ask(AMD_NAME)?));
            // Ours is there before AMD's, so it is asked for once more if AMD's is.
            let found = ours().or_else(|first| match (first, amds()) {
                (never @ Attempt::Never(_), _) => Err(never),
                (Attempt::NotYet, Ok(amds)) => Ok(ours().unwrap_or(amds)),
                (Attempt::NotYet, Err(error)) => Err(error),
            });
            match found {
                Ok(page) => return self.take(page),
                Err(Attempt::Never(why)) => return Err(Unreachable::Refused(why)),
                Err(Attempt::NotYet) => {}
            }
            let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Unreachable::Silent);
            }
            if self.wait(Some(left.map_or(pause, |left| left.min(pause)))) {
                // It may have come and gone since it was looked for.
                let told = self.told().ok_or(Unreachable::Ended)?;
                return self.take(Page::Ours(told));
            }
            pause = (pause * 2).min(LATER);
        }
    }

    /// Looks at this page from now on, if it can be read; else at what there was.
    fn take(&mut self, page: Page) -> Result<(), Unreachable> {
        let previous = self.page.replace(page);
        self.snapshot().map(drop).inspect_err(|_| self.page = previous)
    }

    /// The page that it sent by itself, if it is a child of this process that did.
    fn told(&self) -> Option<Region> {
        let listener = self.children.listener.as_ref().filter(|listener| listener.is_intact())?;
        while let Ok((socket, _)) = sys::at(Site::StatisticsHear, || listener.accept()) {
            // Others may be children too; who is none of them has no business here.
            let is_it = |(pid, _)| u32::try_from(pid) == Ok(self.pid);
            if sys::peer(socket.as_fd()).is_ok_and(is_it) && self.ready(socket.as_fd(), Some(ANSWER)).0 {
                return receive(&socket).and_then(|file| checked(file, false)).ok();
            }
        }
        None
    }

    fn ask(&self, name: &str) -> Result<Region, Attempt> {
        let never = |why: String| Attempt::Never(why);
        let failed = |error: Errno| Attempt::Never(format!("its socket cannot be used: {error}"));
        let socket = match sys::at(Site::StatisticsAsk, || reach(name, self.pid)) {
            Ok(socket) => socket,
            // Nobody listens, or nobody accepts.
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => return Err(Attempt::NotYet),
            Err(error) => return Err(failed(error)),
        };
        let (pid, uid) =
            sys::peer(socket.as_fd()).map_err(|error| failed(Errno::from_raw_os_error(error)))?;
        if u32::try_from(pid) != Ok(self.pid) {
            return Err(never(format!(
                "process {pid} of user {uid} answers in the name of process {}",
                self.pid
            )));
        }
        let (came, ended) = self.ready(socket.as_fd(), Some(ANSWER));
        if !came {
            let why = format!("it did not answer within {} s", ANSWER.as_secs());
            return Err(if ended { Attempt::NotYet } else { never(why) });
        }
        let file = receive(&socket).map_err(never)?;
        checked(file, name == AMD_NAME).map_err(never)
    }

    /// What it has counted so far, or had when it ended.
    ///
    /// # Errors
    /// `Silent` before [`Target::connect`], `Refused` when its page is malformed.
    pub fn snapshot(&self) -> Result<Snapshot, Unreachable> {
        let snapshot = match &self.page {
            None => return Err(Unreachable::Silent),
            Some(Page::Ours(region)) => Snapshot::of(region.words(), stats::now()),
            Some(Page::Amds(region)) => stats::read_amd(region.words(), self.pid, stats::now()),
        };
        snapshot.map_err(|malformed| Unreachable::Refused(malformed.to_string()))
    }
}

/// The descriptor that comes with the greeting.
fn receive(socket: &UnixStream) -> Result<OwnedFd, String> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    );
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    match received.map(|message| message.bytes) {
        Err(error) => Err(format!("it cannot be heard: {error}")),
        Ok(0) => Err("it shows its statistics to its own user and to root only".to_owned()),
        Ok(4) if bytes[..4] == GREETING && files.len() == 1 => files.pop().ok_or_else(String::new),
        Ok(n) => Err(format!("its answer is malformed: {n} bytes and {} descriptors", files.len())),
    }
}

/// Maps a page, if it is one that can be relied on to stay.
fn checked(file: OwnedFd, is_amds: bool) -> Result<Region, String> {
    let malformed = |what: String| format!("its page is malformed: {what}");
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(|error| malformed(format!("seals: {error}")))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(malformed("it is not sealed".to_owned()));
    }
    let size = rustix::fs::fstat(&file).map_err(|error| malformed(error.to_string()))?.st_size;
    let words = usize::try_from(size).unwrap_or(0) / 8;
    let fits = if is_amds { words == AMD_WORDS } else { words > 0 && words <= MOST_WORDS };
    if !fits {
        return Err(malformed(format!("{size} bytes")));
    }
    Region::of(file, words).map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::sync::atomic::Ordering;

    fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("hipfile-test", flags).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn behaviour_159_pages_that_may_shrink_or_have_odd_sizes_are_refused() {
        for (bytes, seals, is_amds) in [
            (33_576, SealFlags::empty(), true),
            (33_576, SealFlags::GROW, true),
            (33_568, SealFlags::SHRINK, true),
            (33_584, SealFlags::SHRINK, true),
            (0, SealFlags::SHRINK, false),
            ((MOST_WORDS as u64 + 1) * 8, SealFlags::SHRINK, false),
        ] {
            assert!(checked(memory(bytes, seals), is_amds).is_err(), "{bytes} {seals:?}");
        }
        assert!(checked(memory(33_576, SealFlags::SHRINK), true).is_ok());
        let plain = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(checked(plain, false).is_err());
    }

    #[test]
    fn behaviour_159_no_header_makes_a_reader_leave_the_page() {
        let ledger = crate::stats::Ledger::new(&["a", "b"]).unwrap();
        let words = ledger.page().words();
        assert!(Snapshot::of(words, 0).is_ok());
        assert!(Snapshot::of(&words[..words.len() - 1], 0).is_err(), "the length is part of it");
        assert!(Snapshot::of(&words[..10], 0).is_err());
        for at in 0..512 {
            let before = words[at].load(Ordering::Relaxed);
            for value in [0, 1, 2, 63, 64, 65, 1 << 20, u64::MAX / 8, u64::MAX - 1, u64::MAX] {
                words[at].store(value, Ordering::Relaxed);
                // Refused, or read within the page; either way it returns.
                if let Ok(snapshot) = Snapshot::of(words, 0) {
                    let side = snapshot.total(crate::op::Op::Read);
                    let _ = (side.latency(0.5), side.operations(), snapshot.rejections());
                }
            }
            words[at].store(before, Ordering::Relaxed);
        }
    }
}
