//! A process that is killed at any moment, and a machine that loses its power: every byte that was told to be written, and that
//! was synced, is there.

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
fn write_for_ever(storage: &Storage, mut told: std::fs::File) {
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
}

/// A process that writes until it is killed.
struct Writer {
    child: libc::pid_t,
    told: std::fs::File,
}

impl Writer {
    /// One that has written a first record, which takes as long as all that is made once. Nothing of the library was used in
    /// this process.
    fn start(storage: &Storage) -> Writer {
        std::fs::write(storage.path("f"), b"").unwrap();
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: just opened.
        let [mut told, write] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
        // SAFETY: as this function demands; the child uses the library and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(told);
            // A write that fails, as without power, ends it.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write_for_ever(storage, write)));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(1) };
        }
        drop(write);
        told.read_exact(&mut [0]).expect("a first record");
        Writer { child, told }
    }

    /// Kills it. How many records are safe.
    fn kill(mut self) -> usize {
        // SAFETY: the child is ours.
        assert_eq!(unsafe { libc::kill(self.child, libc::SIGKILL) }, 0);
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(self.child, &raw mut status, 0) }, self.child);
        let mut rest = Vec::new();
        self.told.read_to_end(&mut rest).unwrap();
        1 + rest.len()
    }
}

fn all_there(storage: &Storage, safe: usize, case: &str) {
    let file = std::fs::File::open(storage.path("f")).unwrap();
    let mut there = vec![0; RECORD];
    for record in 0..safe {
        file.read_exact_at(&mut there, (record * RECORD) as u64).unwrap();
        assert!(there == content(record), "{case}: record {record} of {safe}");
    }
}

#[test]
fn what_was_acknowledged_and_synced_survives_the_process() {
    let _watchdog = Watchdog::new(250);
    let (storage, mut random) = (Storage::here(), Random::new());
    let mut records = 0;
    // Each is a process, whose runtime may need a second to begin.
    for round in 0..(operations(480) / 40).clamp(1, 500) {
        let writer = Writer::start(&storage);
        std::thread::sleep(Duration::from_micros(random.below(60_000) as u64));
        let safe = writer.kill();
        all_there(&storage, safe, &format!("round {round}"));
        records += safe;
    }
    eprintln!("{records} records were acknowledged");
}

/// Written and synced means on the device: what the page cache and the file system's journal still had is lost here.
#[test]
fn what_was_acknowledged_and_synced_survives_a_loss_of_power() {
    let _watchdog = Watchdog::new(250);
    let mut random = Random::new();
    for storage in [|| Storage::ext4(&[]), Storage::xfs] {
        let Some(storage) = storage() else { continue };
        let mut records = 0;
        for round in 0..(operations(160) / 40).clamp(1, 100) {
            let (writer, mut safe) = (Writer::start(&storage), 0);
            std::thread::sleep(Duration::from_micros(random.below(60_000) as u64));
            storage.lose_power(|| safe = writer.kill());
            all_there(&storage, safe, &format!("{} round {round}", storage.name));
            records += safe;
        }
        // Of what nobody had synced, some is lost: or nothing of this was shown.
        std::fs::write(storage.path("f"), content(1)).unwrap();
        storage.lose_power(|| ());
        assert!(std::fs::read(storage.path("f")).unwrap() != content(1), "{}", storage.name);
        eprintln!("{records} records were acknowledged on {}", storage.name);
    }
}
