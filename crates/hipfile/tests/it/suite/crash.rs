//! A process that is killed at any moment: every byte that it was told is written, and that it synced, is there.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use hipfile::{Buffer, EventStatus, Op, PageCache, RawBatch, WriteSync};

use crate::support::streams::{Stream, Variables, Watchdog, enqueue};
use crate::support::{Random, Storage, driver_with, operations};

/// Records of odd lengths side by side, none at a place that anything is aligned to.
const RECORD: usize = 70_001;

fn content(record: usize) -> Vec<u8> {
    (0..RECORD).map(|n| (n / 3 + record * 89) as u8).collect()
}

/// In the child: writes record after record by every door, and says of each that it is safe.
fn write_for_ever(storage: &Storage, mut told: std::fs::File) -> ! {
    let driver = driver_with(&["p2p", "uring", "bounce"], |c| c.page_cache = PageCache::Direct);
    let synced = driver_with(&["uring", "bounce"], |c| c.write_sync = WriteSync::Data);
    let file = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let other = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let (id, by_itself) = (driver.register_file(file.as_raw_fd()), synced.register_file(other.as_raw_fd()));
    let (id, by_itself) = (id.unwrap(), by_itself.unwrap());
    let mut buffer = Buffer::alloc(&driver, 0, RECORD).unwrap();
    let stream = Stream::free();
    for record in 0.. {
        buffer.upload(0, &content(record)).unwrap();
        let (ptr, at) = (buffer.ptr(), (record * RECORD) as i64);
        let n = match record % 4 {
            // SAFETY: the memory is kept.
            0 => unsafe { driver.write(id, ptr, RECORD, at, 0) }.unwrap(),
            // SAFETY: the memory is kept.
            1 => unsafe { synced.write(by_itself, ptr, RECORD, at, 0) }.unwrap(),
            2 => {
                let variables = Variables::new(RECORD, at, 0);
                enqueue(&driver, Op::Write, id, ptr, stream, 0, &variables).unwrap();
                stream.wait();
                variables.result().unwrap()
            }
            _ => {
                let batch = RawBatch::new(1).unwrap();
                let (op, len) = (Ok(Op::Write), RECORD);
                let entry = hipfile::Entry {
                    op,
                    file: id,
                    buffer: ptr,
                    buffer_offset: 0,
                    file_offset: at,
                    len,
                    cookie: 0,
                };
                // SAFETY: the memory is kept.
                unsafe { batch.submit(&driver, &[entry]) }.unwrap();
                let events = batch.poll(1, 1, None).unwrap();
                let EventStatus::Complete(n) = events[0].status else { panic!("{events:?}") };
                n
            }
        };
        assert_eq!(n, RECORD);
        if record % 4 != 1 {
            file.sync_data().unwrap();
        }
        told.write_all(&[1]).unwrap();
    }
    unreachable!("it is killed")
}

#[test]
fn what_was_acknowledged_and_synced_survives_the_process() {
    let _watchdog = Watchdog::new(250);
    let (storage, mut random) = (Storage::here(), Random::new());
    let mut records = 0;
    // Each is a process, whose runtime may need a second to begin.
    for round in 0..(operations(480) / 40).clamp(1, 500) {
        std::fs::write(storage.path("f"), b"").unwrap();
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: just opened.
        let [mut read, write] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
        // SAFETY: nothing of the library was used in this process yet; the child uses it and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(read);
            write_for_ever(&storage, write);
        }
        drop(write);
        // The first record takes as long as all that is made once.
        let mut first = [0];
        read.read_exact(&mut first).expect("a first record");
        std::thread::sleep(Duration::from_micros(random.below(60_000) as u64));
        // SAFETY: the child is ours.
        assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status}");
        let mut rest = Vec::new();
        read.read_to_end(&mut rest).unwrap();
        let safe = 1 + rest.len();
        let file = std::fs::File::open(storage.path("f")).unwrap();
        let mut there = vec![0; RECORD];
        for record in 0..safe {
            file.read_exact_at(&mut there, (record * RECORD) as u64).unwrap();
            assert!(there == content(record), "round {round}: record {record} of {safe}");
        }
        records += safe;
    }
    eprintln!("{records} records were acknowledged");
}
