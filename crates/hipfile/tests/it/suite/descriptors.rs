//! Programs that close descriptors they do not know, and whose own files then get the numbers: what is theirs is neither used
//! nor closed.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use hipfile::monitor::{Target, Unreachable};
use hipfile::{Buffer, DevPtr, Driver, ErrorKind, PageCache};

use crate::support::{Storage, driver_with};

const MIB: usize = 1 << 20;
const SIZE: usize = 4 * MIB;

/// The process's descriptors whose name in /proc holds this.
fn numbers(name: &str) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let named = entries.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().contains(name))
    });
    let mut numbers: Vec<RawFd> =
        named.map(|entry| entry.file_name().into_string().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Closes a number as a program does that does not know it.
fn close(number: RawFd) {
    // SAFETY: the library's descriptors are closed behind its back; that is what is tested.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

/// Lets a file get a number.
fn take(file: &std::fs::File, number: RawFd) {
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup3(file.as_raw_fd(), number, libc::O_CLOEXEC) }, number);
}

fn open(path: &Path) -> std::fs::File {
    std::fs::File::options().read(true).write(true).open(path).unwrap()
}

/// A registered file of ones, and a stranger's of twos.
struct Case {
    driver: Driver,
    own: std::fs::File,
    stranger: std::fs::File,
    buffer: Buffer,
    id: hipfile::FileId,
    private: Vec<RawFd>,
    storage: Storage,
}

impl Case {
    fn new(engines: &[&str], cache: PageCache) -> Case {
        let storage = Storage::here();
        std::fs::write(storage.path("own"), vec![1; SIZE]).unwrap();
        std::fs::write(storage.path("stranger"), vec![2; SIZE]).unwrap();
        let (own, stranger) = (open(&storage.path("own")), open(&storage.path("stranger")));
        own.sync_all().unwrap();
        let driver = driver_with(engines, |c| c.page_cache = cache);
        let id = driver.register_file(own.as_raw_fd()).unwrap();
        let buffer = Buffer::alloc(&driver, 0, SIZE).unwrap();
        let mut case = Case { driver, own, stranger, buffer, id, private: Vec::new(), storage };
        // Both descriptors are opened at first use.
        assert_eq!(case.read(MIB), Ok((MIB, true)));
        assert_eq!(case.read(10), Ok((10, true)));
        case.private = numbers(case.storage.path("own").to_str().unwrap());
        case.private.retain(|number| *number != case.own.as_raw_fd());
        assert!(!case.private.is_empty() && case.private.iter().all(|number| *number >= 512));
        case
    }

    fn ptr(&self) -> DevPtr {
        self.buffer.ptr()
    }

    /// How much was read, and whether it is the file's own.
    fn read(&mut self, len: usize) -> Result<(usize, bool), ErrorKind> {
        // SAFETY: the memory is the buffer's.
        let moved = unsafe { self.driver.read(self.id, self.ptr(), len, 0, 0) }.map_err(|e| e.kind())?;
        let mut bytes = vec![0; moved];
        self.buffer.download(0, &mut bytes).unwrap();
        Ok((moved, bytes.iter().all(|byte| *byte == 1)))
    }

    fn lose(&self, reused: bool) {
        for number in &self.private {
            close(*number);
            if reused {
                take(&self.stranger, *number);
            }
        }
    }
}

const WAYS: [(&[&str], PageCache); 4] = [
    (&["bounce"], PageCache::Buffered),
    (&["bounce"], PageCache::Direct),
    (&["uring", "bounce"], PageCache::Direct),
    (&["p2p", "bounce"], PageCache::Auto),
];

#[test]
fn a_descriptor_that_was_closed_is_done_without() {
    for (engines, cache) in WAYS {
        for len in [1, 4096, 100_000, MIB, SIZE] {
            let mut case = Case::new(engines, cache);
            case.lose(false);
            assert_eq!(case.read(len), Ok((len, true)), "{engines:?} {cache:?} {len}");
            // SAFETY: the memory is the buffer's.
            let written = unsafe { case.driver.write(case.id, case.ptr(), len, 0, 0) };
            assert_eq!(written.unwrap(), len);
        }
    }
}

#[test]
fn a_number_that_is_a_strangers_by_now_is_found_out() {
    for (engines, cache) in WAYS {
        // A large transfer asks first.
        for len in [MIB, SIZE] {
            let mut case = Case::new(engines, cache);
            case.lose(true);
            assert_eq!(case.read(len), Ok((len, true)), "{engines:?} {cache:?} {len}");
        }
        // A small one asks now and then.
        for len in [512, 4096, 65536] {
            let mut case = Case::new(engines, cache);
            case.lose(true);
            std::thread::sleep(Duration::from_millis(30));
            (0..16).for_each(|_| _ = case.read(len).unwrap());
            assert_eq!(case.read(len), Ok((len, true)), "{engines:?} {cache:?} {len}");
        }
    }
}

#[test]
fn what_came_to_an_end_too_early_is_read_again() {
    for (engines, cache) in WAYS {
        let mut case = Case::new(engines, cache);
        case.stranger.set_len(1000).unwrap();
        case.lose(true);
        assert_eq!(case.read(65536), Ok((65536, true)), "{engines:?} {cache:?}");
    }
}

#[test]
fn a_file_whose_descriptors_are_all_gone_is_refused() {
    for (engines, cache) in WAYS {
        for reused in [false, true] {
            let mut case = Case::new(engines, cache);
            case.lose(reused);
            let number = case.own.as_raw_fd();
            close(number);
            take(&case.stranger, number);
            assert_eq!(case.read(SIZE), Err(ErrorKind::HandleNotRegistered), "{engines:?} {cache:?}");
            assert!(std::fs::read(case.storage.path("stranger")).unwrap() == vec![2; SIZE]);
        }
    }
}

#[test]
fn a_strangers_descriptor_is_not_closed() {
    let case = Case::new(&["uring", "bounce"], PageCache::Direct);
    case.lose(true);
    // What is in the process beside: pages, sockets, rings.
    let others: Vec<RawFd> =
        ["memfd:HIPFSTAT", "memfd:AISSTATS", "io_uring"].into_iter().flat_map(numbers).collect();
    let sockets: Vec<RawFd> = numbers("socket:").into_iter().filter(|number| *number >= 512).collect();
    assert_eq!(sockets.len(), 2);
    for number in others.iter().chain(&sockets) {
        close(*number);
        take(&case.stranger, *number);
    }
    let Case { driver, stranger, buffer, id, private, own, .. } = case;
    // SAFETY: the memory is the buffer's.
    let moved = unsafe { driver.read(id, buffer.ptr(), SIZE, 0, 0) };
    assert_eq!(moved.unwrap(), SIZE);
    driver.deregister_file(id).unwrap();
    drop((driver, buffer, own));
    // The thread of statistics has nothing left to do.
    std::thread::sleep(Duration::from_millis(200));
    let still = numbers("stranger");
    assert!(private.iter().chain(&others).chain(&sockets).all(|number| still.contains(number)), "{still:?}");
    drop(stranger);
}

#[test]
fn the_thread_of_statistics_serves_no_stranger() {
    let driver = driver_with(&["bounce"], |_| {});
    let mut target = Target::new(std::process::id()).unwrap();
    target.connect(Some(Duration::from_secs(10))).unwrap();
    drop(target);
    // A stranger's socket, which others connect to, gets the numbers of ours.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let sockets: Vec<RawFd> = numbers("socket:").into_iter().filter(|number| *number >= 512).collect();
    assert_eq!(sockets.len(), 2);
    let as_file = std::fs::File::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap()));
    for number in &sockets {
        close(*number);
        take(&as_file, *number);
    }
    // It waits at the old ones, until somebody comes.
    let mut target = Target::new(std::process::id()).unwrap();
    let refused = target.connect(Some(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(refused, Unreachable::Silent | Unreachable::Refused(_)), "{refused}");
    listener.set_nonblocking(true).unwrap();
    let _peer = std::os::unix::net::UnixStream::connect(&path).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(listener.accept().is_ok(), "nobody else has accepted it");
    drop(driver);
    assert_eq!(numbers("socket:").iter().filter(|number| sockets.contains(number)).count(), 2);
}
