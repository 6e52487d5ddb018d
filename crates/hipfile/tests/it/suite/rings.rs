//! Rings that are taken away: by a sandbox, by whoever closes their descriptor, by a fork.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use hipfile::{PageCache, RawBatch};

use super::batches::{STAGED, Setup, Watchdog, collect, setup};
use crate::support::{refuse_entering_rings, skip};

const LEN: usize = 8 << 20;

/// A setup in which this thread has read the whole file through a ring of its own; and that ring's descriptor.
fn with_ring() -> Option<(Setup, RawFd)> {
    let mut setup = setup(STAGED, LEN, |c| c.page_cache = PageCache::Direct);
    setup.read_whole();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let ring = numbers
        .flatten()
        .find(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]")
        })
        .and_then(|entry| entry.file_name().to_str()?.parse().ok());
    if ring.is_none() {
        skip("a ring that is taken away", "no O_DIRECT or io_uring here");
    }
    Some((setup, ring?))
}

#[test]
fn what_a_sandbox_takes_away_later_is_done_without_a_ring() {
    let _watchdog = Watchdog::new("rings refused later", 60);
    let Some((mut setup, _)) = with_ring() else { return };
    let batch = RawBatch::new(64).unwrap();
    let entries: Vec<_> = (0..64).map(|n| setup.read(n, 4096)).collect();
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 64, 4096);
    refuse_entering_rings();
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 64, 4096);
    setup.read_whole();
    setup.write_whole();
    setup.read_whole();
}

#[test]
fn a_ring_whose_descriptor_was_closed_harms_nobody() {
    let _watchdog = Watchdog::new("a closed ring", 60);
    let Some((mut setup, ring)) = with_ring() else { return };
    // SAFETY: that is what this test is about; nobody else uses the number.
    assert_eq!(unsafe { libc::close(ring) }, 0);
    let other = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&other), ring, "the number has a new owner");
    setup.write_whole();
    setup.read_whole();
    assert!(other.metadata().is_ok(), "its file is still open");
}

/// The number that must be open when the child below ends.
static WATCHED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell_whether_it_is_open() {
    // SAFETY: fcntl only asks.
    let open = unsafe { libc::fcntl(WATCHED.load(Ordering::Relaxed), libc::F_GETFD) } >= 0;
    // SAFETY: ends the child at once.
    unsafe { libc::_exit(if open { 0 } else { 1 }) };
}

#[test]
fn a_child_that_reuses_the_rings_number_keeps_its_file() {
    let _watchdog = Watchdog::new("a child and its parent's ring", 60);
    let Some((_setup, ring)) = with_ring() else { return };
    // SAFETY: the child makes system calls and ends; what runs at its exit is what this test is about.
    let child = unsafe { libc::fork() };
    if child == 0 {
        WATCHED.store(ring, Ordering::Relaxed);
        // SAFETY: standard output is open; the child's old number becomes one of its own files, as after closing all.
        unsafe { libc::dup2(1, ring) };
        // SAFETY: a function that ends the process. It runs after the destructors of this thread's variables.
        unsafe { libc::atexit(tell_whether_it_is_open) };
        // SAFETY: ends the child the ordinary way.
        unsafe { libc::exit(2) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child's own file was closed");
}
