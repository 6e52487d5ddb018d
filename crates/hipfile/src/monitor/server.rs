//! The thread that hands the pages of statistics out: two sockets without a file, one for AMD's tools and one for ours. Who
//! has started this process and listens for it is given them without asking. Peers of other users get nothing.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use rustix::time::Timespec;

use super::Board;
use crate::pool;
use crate::private::Private;
use crate::sys::{self, Site};

/// How the names of the sockets begin; the number of the process follows, in eight hexadecimal digits.
pub(super) const AMD_NAME: &str = "AISSTATS";
pub(super) const OUR_NAME: &str = "HIPFSTAT";
/// The same of the socket at which one that starts processes listens for them.
pub(super) const PARENT_NAME: &str = "HIPFTELL";

/// Of the doors, AMD's.
const AMDS: usize = 1;

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
    doors: Arc<Doors>,
    forks: u32,
}

/// Where peers come: ours and AMD's.
#[derive(Debug)]
struct Doors {
    listeners: [Option<Private<UnixListener>>; 2],
    closing: AtomicBool,
}

impl Doors {
    /// Whether nobody has closed what is not his.
    fn are_intact(&self) -> bool {
        self.listeners.iter().flatten().all(Private::is_intact)
    }
}

/// The address of a process's socket. The name is as long as the kernel lets it be, filled up with zeroes.
pub(super) fn address(name: &str, pid: u32) -> io::Result<SocketAddr> {
    let mut bytes = [0; 107];
    let text = format!("{name}{pid:08x}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    SocketAddr::from_abstract_name(bytes)
}

/// A socket that was connected to such an address without waiting for anything.
pub(super) fn reach(name: &str, pid: u32) -> Result<UnixStream, Errno> {
    // Only the name counts: what std makes of it is what rustix is given.
    let address = address(name, pid).map_err(|_| Errno::INVAL)?;
    let address = SocketAddrUnix::new_abstract_name(address.as_abstract_name().unwrap_or_default())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

pub(super) fn listen(name: &str) -> Option<Private<UnixListener>> {
    let address = address(name, std::process::id()).ok()?;
    let listener = sys::at(Site::StatisticsListen, || UnixListener::bind_addr(&address)).ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(Private::new(listener))
}

/// Gives the page to the process that has started this one, if it listens: it could be too late to ask when this one is short.
fn tell(board: &Board) {
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_pid().cast_unsigned());
    if let Some(Ok(parent)) =
        parent.map(|parent| sys::at(Site::StatisticsTell, || reach(PARENT_NAME, parent)))
    {
        show(board, &parent, false);
    }
}

impl Server {
    /// Begins to serve; `None` where there is nothing to serve, both names are taken, or the system gives no thread.
    pub(super) fn start(board: &Arc<Board>) -> Option<Server> {
        tell(board);
        // Ours first: who finds AMD's finds ours as well.
        let ours = board.page().and_then(|_| listen(OUR_NAME));
        let amds = board.amd_page().and_then(|_| listen(AMD_NAME));
        if ours.is_none() && amds.is_none() {
            return None;
        }
        let doors = Arc::new(Doors { listeners: [ours, amds], closing: AtomicBool::new(false) });
        let (board, open) = (Arc::clone(board), Arc::clone(&doors));
        let body = move || serve(&board, &open);
        pool::spawn("hipfile-stats".to_owned(), body).then_some(Server { doors, forks: sys::forks() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child of a fork shares the sockets with its parent.
        if sys::forks() != self.forks {
            return;
        }
        self.doors.closing.store(true, Ordering::Release);
        // This wakes who waits for peers.
        for listener in self.doors.listeners.iter().flatten().filter(|listener| listener.is_intact()) {
            let _ = rustix::net::shutdown(&**listener, rustix::net::Shutdown::Both);
        }
    }
}

/// Waits until peers come; at which doors, if nobody has closed one that is not his.
fn wait(doors: &Doors, limit: Option<Duration>) -> Option<[bool; 2]> {
    let there = || doors.listeners.iter().flatten();
    let mut polled: Vec<_> = there().map(|listener| PollFd::new(&**listener, PollFlags::IN)).collect();
    let limit = limit
        .map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
    // Interrupted, it says that nobody came.
    let came = sys::at(Site::StatisticsPoll, || poll(&mut polled, limit.as_ref())).is_ok();
    if doors.closing.load(Ordering::Acquire) || !doors.are_intact() {
        return None;
    }
    let mut polled = polled.iter();
    Some(doors.listeners.each_ref().map(|listener| {
        let polled = listener.as_ref().and_then(|_| polled.next());
        came && polled.is_some_and(|polled| !polled.revents().is_empty())
    }))
}

fn serve(board: &Board, doors: &Doors) {
    let (mut interval, mut published) = (SELDOM, 0);
    loop {
        let looked_at = board.looked_at.load(Ordering::Relaxed);
        let Some(ready) = wait(doors, looked_at.then_some(interval)) else { return };
        let mut starved = false;
        for (at, listener) in doors.listeners.iter().enumerate().filter(|(at, _)| ready[*at]) {
            for _ in 0..AT_ONCE {
                // Also between two peers: somebody else's socket may have this number by now, and be one that waits.
                if !doors.are_intact() {
                    return;
                }
                let accept =
                    |listener: &Private<UnixListener>| sys::at(Site::StatisticsAccept, || listener.accept());
                match listener.as_ref().map(accept) {
                    Some(Ok((peer, _))) => show(board, &peer, at == AMDS),
                    Some(Err(error)) => {
                        let passing = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted];
                        starved |= !passing.contains(&error.kind());
                        break;
                    }
                    None => break,
                }
            }
        }
        if starved {
            std::thread::sleep(PAUSE);
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
    if !sys::at(Site::StatisticsPeer, || sys::peer(peer.as_fd())).is_ok_and(|(_, uid)| may_look(uid)) {
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
