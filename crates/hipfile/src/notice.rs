//! Lines on standard error that must not go unseen: rare, one each. Not the log, which is told of them too (`tracing`, target
//! [`TARGET`]); nothing on the way of data comes here.

mod turn;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::time::Timespec;

use self::turn::Turn;
use crate::sys::{self, Site};

/// The target of the events that tell listeners what was said on standard error.
pub const TARGET: &str = "hipfile::notice";

/// Lines that standard error had no room for, and that were not told of yet.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Writes one line to standard error, prefixed with the library's name, and tells listeners of it. As [`say`].
pub fn line(text: std::fmt::Arguments<'_>) {
    say(&format!("hipfile: {text}\n"));
    tracing::event!(name: "notice", target: TARGET, tracing::Level::WARN, "{text}");
}

/// Writes a line, with its end, to standard error, unless that is full: nobody waits for who does not read. The next line for
/// which there is room is preceded by one that says how many there was none for. A closed standard error is nobody's failure.
pub fn say(line: &str) {
    say_to(std::io::stderr().as_fd(), &MISSED, line);
}

/// Tells how many lines standard error had no room for, if it has room now. For the moment after which nothing may be said.
pub fn say_missed() {
    say_missed_to(std::io::stderr().as_fd(), &MISSED);
}

fn say_to(fd: BorrowedFd<'_>, missed: &AtomicU64, line: &str) {
    if !say_missed_to(fd, missed) || write_now(fd, line.as_bytes()) == Err(Errno::AGAIN) {
        missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether there was room for it.
fn say_missed_to(fd: BorrowedFd<'_>, missed: &AtomicU64) -> bool {
    let count = missed.swap(0, Ordering::Relaxed);
    if count == 0 {
        return true;
    }
    let text = format!("hipfile: {count} lines were left out: standard error was full\n");
    let full = write_now(fd, text.as_bytes()) == Err(Errno::AGAIN);
    if full {
        missed.fetch_add(count, Ordering::Relaxed);
    }
    !full
}

/// Writes bytes that belong together, in one piece where the file takes them so. Takes no lock, so that a thread that is
/// stopped in it stops no other, and no fork can leave one locked. Raises neither SIGPIPE nor SIGXFSZ.
///
/// # Errors
/// Of the system; what was written until then stays.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> std::io::Result<()> {
    sys::without_signals(|| whole(bytes, |rest| write_some(fd, rest))).map_err(Into::into)
}

fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    sys::moves(Site::NoticeWrite, || rustix::io::write(fd, bytes))
}

fn whole(bytes: &[u8], mut write: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Of who is just writing so that nobody waits: two that both saw room for one would wait.
static WRITER: Turn = Turn::new();

/// As [`write`], at most PIPE_BUF bytes, and `AGAIN` instead of waiting for who reads. The description is shared with who knows
/// whom, so O_NONBLOCK is not for us to set on it.
fn write_now(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let kind = sys::at(Site::NoticeKind, || rustix::fs::fstat(fd))
        .map(|stat| FileType::from_raw_mode(stat.st_mode))?;
    sys::without_signals(|| match kind {
        // Storage may be slow, but nobody has to read first.
        FileType::RegularFile | FileType::BlockDevice => whole(bytes, |rest| write_some(fd, rest)),
        FileType::Socket => whole(bytes, |rest| {
            sys::moves(Site::NoticeSend, || rustix::net::send(fd, rest, SendFlags::DONTWAIT))
        }),
        // `AGAIN` too if another takes too long.
        _ => WRITER.take(|| write_if_ready(fd, bytes)).unwrap_or(Err(Errno::AGAIN)),
    })
}

/// A pipe that is ready has room for PIPE_BUF bytes, unless another process is quicker. A terminal may have room for less.
fn write_if_ready(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    match sys::at(Site::NoticePoll, || poll(&mut polled, Some(&now))) {
        Ok(0) => Err(Errno::AGAIN),
        // Ready, or it has an error to tell.
        Ok(_) => whole(bytes, |rest| write_some(fd, rest)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a pipe or a socket, and empties it again.
    fn check(end: impl AsFd, mut other: impl std::io::Read + AsFd) {
        let missed = AtomicU64::new(0);
        let line = format!("{}\n", "x".repeat(3000));
        // None of these calls waits: there is no other thread that would read.
        (0..1000).for_each(|_| say_to(end.as_fd(), &missed, &line));
        let left_out = missed.load(Ordering::Relaxed);
        assert!((1..1000).contains(&left_out), "{left_out}");
        assert!(!say_missed_to(end.as_fd(), &missed), "it is full");
        rustix::io::ioctl_fionbio(&other, true).unwrap();
        let mut seen = Vec::new();
        assert!(
            other.read_to_end(&mut seen).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        );
        say_to(end.as_fd(), &missed, "last\n");
        assert!(other.read_to_end(&mut seen).is_err());
        let text = String::from_utf8(seen).unwrap();
        let said = format!("hipfile: {left_out} lines were left out: standard error was full\nlast\n");
        assert!(text.ends_with(&said), "{}", &text[text.len() - 200..]);
        assert_eq!(text.lines().filter(|line| line.starts_with('x')).count() as u64 + left_out, 1000);
        drop(other);
        // Raises no signal either; nobody missed anything.
        say_to(end.as_fd(), &missed, &line);
        assert_eq!(missed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_does_not_read_holds_nobody_up() {
        let (reader, writer) = std::io::pipe().unwrap();
        check(writer, reader);
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        check(one, other);
    }

    #[test]
    fn threads_that_see_room_for_one_line_do_not_all_write() {
        let (reader, writer) = std::io::pipe().unwrap();
        let missed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope
                    .spawn(|| (0..200).for_each(|_| say_to(writer.as_fd(), &missed, "a line of a thread\n")));
            }
        });
        drop((reader, writer));
        assert!(missed.load(Ordering::Relaxed) < 1600);
    }
}
