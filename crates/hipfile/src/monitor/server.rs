//! The thread that hands the pages of statistics out: two sockets without a file, one for AMD's tools and one for ours. Peers
//! of other users get nothing.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::Timespec;

use super::Board;
use crate::{pool, sys};

/// How the names of the sockets begin; the number of the process follows, in eight hexadecimal digits.
pub(super) const AMD_NAME: &str = "AISSTATS";
pub(super) const OUR_NAME: &str = "HIPFSTAT";

/// What comes with the descriptor: a number of four bytes.
pub(super) const GREETING: [u8; 4] = 1_i32.to_ne_bytes();

/// How often AMD's page is brought up to date: while numbers change, and at the least.
const OFTEN: Duration = Duration::from_millis(25);
const SELDOM: Duration = Duration::from_millis(400);
/// How long a thread waits that was refused a descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// Peers that are served before the page is looked after.
const AT_ONCE: usize = 64;

/// A running thread. Dropped, it tells the thread to end, and does not wait for it.
#[derive(Debug)]
pub(super) struct Server {
    stop: Arc<OwnedFd>,
    forks: u32,
}

/// The address of a process's socket. The name is as long as the kernel lets it be, filled up with zeroes.
pub(super) fn address(name: &str, pid: u32) -> io::Result<SocketAddr> {
    let mut bytes = [0; 107];
    let text = format!("{name}{pid:08x}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    SocketAddr::from_abstract_name(bytes)
}

fn listen(name: &str) -> Option<UnixListener> {
    let listener = UnixListener::bind_addr(&address(name, std::process::id()).ok()?).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(UnixListener::from(sys::out_of_the_way(listener.into())))
}

impl Server {
    /// Begins to serve; `None` where there is nothing to serve, both names are taken, or the system gives no thread.
    pub(super) fn start(board: &Arc<Board>) -> Option<Server> {
        // Ours first: who finds AMD's finds ours as well.
        let ours = board.page().and_then(|_| listen(OUR_NAME));
        let amds = board.amd_page().and_then(|_| listen(AMD_NAME));
        if ours.is_none() && amds.is_none() {
            return None;
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let stop = Arc::new(sys::out_of_the_way(stop));
        let (board, stopped) = (Arc::clone(board), Arc::clone(&stop));
        let body = move || serve(&board, [ours.as_ref(), amds.as_ref()], &stopped);
        pool::spawn("hipfile-stats".to_owned(), body).then_some(Server { stop, forks: sys::forks() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child of a fork shares the event with its parent.
        if sys::forks() == self.forks {
            let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits until one of them can be read; which. `None` when somebody has closed one that is not his.
fn wait<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], limit: Option<Duration>) -> Option<[bool; N]> {
    let mut ready = [false; N];
    let mut polled: Vec<_> = fds.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let limit = limit
        .map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
    if poll(&mut polled, limit.as_ref()).is_ok() {
        let there = (0..N).filter(|n| fds[*n].is_some());
        there.zip(&polled).for_each(|(n, polled)| ready[n] = !polled.revents().is_empty());
        if polled.iter().any(|polled| polled.revents().contains(PollFlags::NVAL)) {
            return None;
        }
    }
    Some(ready)
}

fn serve(board: &Board, listeners: [Option<&UnixListener>; 2], stop: &OwnedFd) {
    let fds = listeners.map(|listener| listener.map(AsFd::as_fd));
    let (mut interval, mut published) = (SELDOM, 0);
    loop {
        let looked_at = board.looked_at.load(Ordering::Relaxed);
        let ready = wait([fds[0], fds[1], Some(stop.as_fd())], looked_at.then_some(interval));
        let Some([ours, amds, false]) = ready else { return };
        let mut starved = false;
        for (is_amds, listener) in
            [(false, listeners[0].filter(|_| ours)), (true, listeners[1].filter(|_| amds))]
        {
            for _ in 0..AT_ONCE {
                match listener.map(UnixListener::accept) {
                    Some(Ok((peer, _))) => show(board, &peer, is_amds),
                    Some(Err(error)) => {
                        let passing = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted];
                        starved |= !passing.contains(&error.kind());
                        break;
                    }
                    None => break,
                }
            }
        }
        if starved && wait([Some(stop.as_fd())], Some(PAUSE)) != Some([false]) {
            return;
        }
        if board.looked_at.load(Ordering::Relaxed) {
            let now = board.publish();
            interval = if now == published { (interval * 2).min(SELDOM) } else { OFTEN };
            published = now;
        }
    }
}

/// Whether a user may look: the one that this process runs as, and root.
fn may_look(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn show(board: &Board, peer: &UnixStream, is_amds: bool) {
    if !sys::peer(peer.as_fd()).is_ok_and(|(_, uid)| may_look(uid)) {
        return;
    }
    let file = if is_amds {
        board.looked_at.store(true, Ordering::Relaxed);
        board.publish();
        board.amd_page()
    } else {
        board.page()
    };
    let Some(file) = file else { return };
    let files = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if control.push(SendAncillaryMessage::ScmRights(&files)) {
        // One that does not wait for its answer gets none.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(peer, &[IoSlice::new(&GREETING)], &mut control, flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_159_only_the_same_user_and_root_may_look() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_look(0) && may_look(own));
        assert!(!may_look(own.wrapping_add(1).max(1)) && !may_look(65_534));
    }

    #[test]
    fn names_are_as_long_as_can_be() {
        let address = address(AMD_NAME, 0xabc).unwrap();
        let name = address.as_abstract_name().unwrap();
        assert!(name.starts_with(b"AISSTATS00000abc\0") && name.len() == 107);
    }
}
