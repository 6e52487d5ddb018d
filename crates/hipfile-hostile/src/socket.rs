//! The sockets on which processes show their statistics: from the one side whatever answers in a process's name, from the other
//! whoever comes to it. Nobody hangs, and who is honest is served.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::OnceLock;
use std::time::Duration;

use hipfile::Statistics;
use hipfile::monitor::{Target, Unreachable};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::Input;

/// As docs/statistics.md has it.
fn address(name: &str) -> SocketAddr {
    let mut bytes = [0; 107];
    let text = format!("{name}{:08x}", std::process::id());
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    SocketAddr::from_abstract_name(bytes).expect("a name that is short enough")
}

/// A file that is sent in place of a page.
fn page(input: &mut Input<'_>) -> Option<OwnedFd> {
    match input.byte() % 5 {
        0 => Some(std::fs::File::open("/dev/null").ok()?.into()),
        1 => Some(std::io::pipe().ok()?.0.into()),
        kind => {
            let file =
                rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
            // AMD's size, some length, or what is there.
            let len = match input.byte() {
                n @ 0..64 => 33_576 + u64::from(n / 16),
                n @ 64..128 => u64::from(n) * 4096,
                _ => input.0.len() as u64,
            };
            let contents = input.bytes(len.min(64 << 10) as usize);
            rustix::fs::ftruncate(&file, len).ok()?;
            rustix::io::pwrite(&file, contents, 0).ok()?;
            if kind > 2 {
                rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).ok()?;
            }
            Some(file)
        }
    }
}

/// Answers what the input says to whoever asks, and closes.
fn answer(peer: &UnixStream, input: &mut Input<'_>) {
    let files: Vec<OwnedFd> = (0..input.byte() % 7).filter_map(|_| page(input)).collect();
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let greeting = match input.byte() {
        0..200 => &1_i32.to_ne_bytes()[..],
        _ => input.bytes(32),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let _ = files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files));
    let _ = sendmsg(peer, &[IoSlice::new(greeting)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What a process that is looked at may send.
pub(crate) fn answers(bytes: &[u8]) {
    static LISTENERS: OnceLock<Vec<UnixListener>> = OnceLock::new();
    let listeners = LISTENERS.get_or_init(|| {
        let listen = |name| {
            let listener = UnixListener::bind_addr(&address(name)).expect("a name of this process's own");
            listener.set_nonblocking(true).expect("a socket that does not wait");
            listener
        };
        ["HIPFSTAT", "AISSTATS"].map(listen).into()
    });
    let mut input = Input(bytes);
    let mut target = Target::new(std::process::id()).expect("this process");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for listener in listeners {
                    if let Ok((peer, _)) = listener.accept() {
                        answer(&peer, &mut input);
                    }
                }
                std::thread::yield_now();
            }
        });
        for _ in 0..2 {
            match target.connect(Some(Duration::ZERO)) {
                Ok(()) => _ = format!("{:?}", target.snapshot().expect("what was understood once")),
                Err(Unreachable::Refused(why)) => assert!(why.len() < 500, "{why}"),
                Err(_) => {}
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Whoever comes to a process that shows its statistics.
pub(crate) fn peers(bytes: &[u8]) {
    static SHOWN: OnceLock<Statistics> = OnceLock::new();
    let shown = SHOWN.get_or_init(Statistics::new);
    shown.serve();
    let mut input = Input(bytes);
    let mut there = Vec::new();
    while !input.0.is_empty() && there.len() < 100 {
        let name = if input.byte() % 2 == 0 { "HIPFSTAT" } else { "AISSTATS" };
        let Ok(mut peer) = UnixStream::connect_addr(&address(name)) else { continue };
        match input.byte() % 4 {
            0 => drop(peer),
            1 => {
                let _ = peer.shutdown(std::net::Shutdown::Write);
                there.push(peer);
            }
            2 => {
                let len = usize::from(input.byte());
                let _ = peer.write_all(input.bytes(len));
                there.push(peer);
            }
            _ => {
                answer(&peer, &mut input);
                there.push(peer);
            }
        }
    }
    // Also while the others are there.
    let mut honest = Target::new(std::process::id()).expect("this process");
    honest.connect(Some(Duration::from_secs(20))).expect("who is honest is served");
    honest.snapshot().expect("a page that is well formed");
}
