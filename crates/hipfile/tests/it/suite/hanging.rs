//! Storage that never answers: a file system of ours that takes a request and says nothing. It holds up only who asked it, whatever
//! they hold meanwhile.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use hipfile::{Buffer, Driver, Entry, EventStatus, FileId, Op, RawBatch};
use test_support::fuse;

use crate::support::streams::Watchdog;
use crate::support::{Storage, driver_with, skip};

const KIB: usize = 1 << 10;
const LEN: usize = 300_000;

fn pattern() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8).collect()
}

fn hangs() -> Option<(tempfile::TempDir, fuse::Hanging)> {
    let at = tempfile::tempdir().unwrap();
    match fuse::Hanging::serve(at.path()) {
        Ok(hanging) => Some((at, hanging)),
        Err(why) => {
            skip("storage that hangs", &format!("FUSE cannot be mounted here: {why}"));
            None
        }
    }
}

/// A file that hangs, one that does not, and memory; for threads that outlive a test's round too.
struct Both {
    driver: Driver,
    memory: Buffer,
    hung: FileId,
    near: FileId,
    _open: [std::fs::File; 2],
    _elsewhere: Storage,
}

impl Both {
    fn new(at: &tempfile::TempDir, blocks: usize) -> Arc<Both> {
        Both::with(at, |c| c.pool_len = blocks * 64 * KIB)
    }

    fn with(at: &tempfile::TempDir, change: impl FnOnce(&mut hipfile::Config)) -> Arc<Both> {
        let driver = driver_with(&["uring", "bounce"], |c| {
            c.wait_notice = None;
            change(c);
        });
        let elsewhere = Storage::here();
        std::fs::write(elsewhere.path("f"), pattern()).unwrap();
        let open =
            [at.path().join(fuse::NAME), elsewhere.path("f")].map(|path| std::fs::File::open(path).unwrap());
        let [hung, near] = [0, 1].map(|n: usize| driver.register_file(open[n].as_raw_fd()).unwrap());
        let memory = Buffer::alloc(&driver, 0, LEN).unwrap();
        Arc::new(Both { driver, memory, hung, near, _open: open, _elsewhere: elsewhere })
    }

    /// Hands in reads of `len` bytes of these files; the numbers are their cookies.
    fn submit(&self, files: &[FileId], len: usize) -> RawBatch {
        let batch = RawBatch::new(files.len()).unwrap();
        let entry = |(cookie, file): (usize, &FileId)| Entry {
            op: Ok(Op::Read),
            file: *file,
            buffer: self.memory.ptr(),
            buffer_offset: 0,
            file_offset: 0,
            len,
            cookie: cookie as u64,
        };
        let entries: Vec<_> = files.iter().enumerate().map(entry).collect();
        // SAFETY: the memory is kept for as long as the process.
        unsafe { batch.submit(&self.driver, &entries) }.unwrap();
        batch
    }

    /// What is near arrives, all of it.
    fn arrives(&self, what: &str, files: &[FileId], len: usize) {
        let batch = self.submit(files, len);
        let due: BTreeSet<_> = (0..files.len() as u64).filter(|n| files[*n as usize] == self.near).collect();
        let mut done = BTreeSet::new();
        while done != due {
            for event in batch.poll(1, 64, Some(Duration::from_secs(1))).unwrap() {
                assert!(matches!(event.status, EventStatus::Complete(n) if n == len), "{what}: {event:?}");
                assert!(done.insert(event.cookie), "{what}");
            }
        }
        // It would wait for what the kernel works on.
        std::mem::forget(batch);
    }

    /// Reads what hangs on a thread that nobody waits for.
    fn hang(self: &Arc<Both>, len: usize) {
        let both = Arc::clone(self);
        // SAFETY: the memory is kept.
        std::thread::spawn(move || unsafe { both.driver.read(both.hung, both.memory.ptr(), len, 0, 0) });
    }
}

/// They wait in one ring, if there is one, and others behind and before them in the same list do not.
#[test]
fn small_reads_that_hang_keep_no_other_of_their_batch() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    // 128 fill a ring and, at sixteen to a Block, half the Blocks; of 1000 most have neither ring nor Block.
    for (hung, ahead) in [(1, 0), (1, 10), (8, 10), (127, 0), (128, 10), (200, 0), (1000, 0)] {
        let both = Both::new(&at, 16);
        let mut files = vec![both.near; ahead];
        files.extend(vec![both.hung; hung]);
        files.extend([both.near; 20]);
        both.arrives(&format!("{ahead}, {hung} that hang, 20"), &files, 4 * KIB);
        std::mem::forget(both);
    }
    let both = Both::new(&at, 16);
    let turns: Vec<_> = (0..400).map(|n| if n % 2 == 0 { both.hung } else { both.near }).collect();
    both.arrives("one that hangs before each", &turns, 4 * KIB);
    std::mem::forget(both);
    hanging.vanish();
}

/// Threads for batches are not without number: what hangs in some must leave some to others.
#[test]
fn batches_of_what_hangs_keep_no_other_batch() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    let both = Both::new(&at, 16);
    let hung: Vec<_> =
        (0..20).map(|n| both.submit(&[both.hung; 1000], if n % 2 == 0 { 4 } else { 128 } * KIB)).collect();
    for _ in 0..4 {
        for batch in &hung {
            assert_eq!(batch.poll(1, 8, Some(Duration::from_millis(60))).unwrap().len(), 0);
        }
    }
    for len in [4, 128, 4] {
        both.arrives("another batch", &[both.near; 20], len * KIB);
    }
    for n in 0..40 {
        let mut files = vec![both.hung; 40];
        files.extend([both.near; 10]);
        both.arrives(&format!("one more of the kind, {n}"), &files, if n % 2 == 0 { 4 } else { 128 } * KIB);
    }
    hanging.vanish();
    std::mem::forget((both, hung));
}

/// Near entries do not wait, so that their time is never over.
#[test]
fn a_time_for_entries_to_start_is_enough_for_what_is_near() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    let both = Both::with(&at, |c| c.batch_timeout = Some(Duration::from_millis(500)));
    for len in [4, 128] {
        let mut files = vec![both.hung; 200];
        files.extend([both.near; 20]);
        let batch = both.submit(&files, len * KIB);
        let mut near = 0;
        while near < 20 {
            for event in batch.poll(1, 64, Some(Duration::from_secs(1))).unwrap() {
                match event.status {
                    EventStatus::Complete(n) if n == len * KIB && event.cookie >= 200 => near += 1,
                    EventStatus::TimedOut if event.cookie < 200 => {}
                    status => panic!("{} ended as {status:?}", event.cookie),
                }
            }
        }
        std::mem::forget(batch);
    }
    hanging.vanish();
    std::mem::forget(both);
}

/// Without a Block the ring carries nothing: what it gives back is not carried one after the other behind what hangs.
#[test]
fn entries_that_the_ring_gave_back_do_not_wait_for_one_that_hangs() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    let both = Both::new(&at, 1);
    both.hang(64 * KIB);
    let mut files = vec![both.near; 41];
    files[0] = both.hung;
    // The one Block is taken first.
    std::thread::sleep(Duration::from_millis(100));
    both.arrives("without a Block", &files, 4 * KIB);
    hanging.vanish();
    std::mem::forget(both);
}

/// A caller who waits without a limit works meanwhile, but not on what may keep him from the events that are there.
#[test]
fn a_call_that_waits_for_one_event_is_not_kept_by_another() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    for round in 0..8 {
        let both = Both::new(&at, 16);
        let mut files = [both.near; 4];
        files[round % 4] = both.hung;
        let batch = both.submit(&files, if round < 4 { 4 } else { 128 } * KIB);
        let mut events = 0;
        while events < 3 {
            events += batch.poll(1, 64, None).unwrap().len();
        }
        std::mem::forget((batch, both));
    }
    hanging.vanish();
}

/// Decision: who waits for storage that hangs says so after a time, and ends when the storage does; nobody else waits for it.
#[test]
fn storage_that_hangs_holds_up_only_who_asked_it() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    let driver = driver_with(&["uring", "bounce"], |c| c.wait_notice = Some(Duration::from_millis(300)));
    let open = std::fs::File::open(at.path().join(fuse::NAME)).unwrap();
    let hung = driver.register_file(open.as_raw_fd()).unwrap();
    let memory = Buffer::alloc(&driver, 0, LEN).unwrap();
    std::thread::scope(|scope| {
        let (driver, ptr) = (&driver, memory.ptr());
        // SAFETY: the memory is kept.
        let readers: Vec<_> =
            (0..4).map(|_| scope.spawn(move || unsafe { driver.read(hung, ptr, 64 * KIB, 0, 0) })).collect();
        let batch = RawBatch::new(8).unwrap();
        let entry = |cookie| Entry {
            op: Ok(Op::Read),
            file: hung,
            buffer: ptr,
            buffer_offset: 0,
            file_offset: 0,
            len: 64 * KIB,
            cookie,
        };
        // SAFETY: the memory is kept.
        unsafe { batch.submit(driver, &(0..8).map(entry).collect::<Vec<_>>()) }.unwrap();
        // A wait with a limit comes back.
        assert_eq!(batch.poll(1, 8, Some(Duration::from_millis(100))).unwrap().len(), 0);
        // Other storage is served meanwhile, by the same driver.
        let elsewhere = Storage::here();
        std::fs::write(elsewhere.path("f"), pattern()).unwrap();
        let other = std::fs::File::open(elsewhere.path("f")).unwrap();
        let id = driver.register_file(other.as_raw_fd()).unwrap();
        let second = Buffer::alloc(driver, 0, LEN).unwrap();
        for _ in 0..20 {
            // SAFETY: the memory is kept.
            assert_eq!(unsafe { driver.read(id, second.ptr(), LEN, 0, 0) }.unwrap(), LEN);
        }
        // In one batch with it too, wherever it stands there.
        let mixed: Vec<_> = [3, 6, 7].into_iter().map(|at| (at, RawBatch::new(25).unwrap())).collect();
        for (hangs_at, batch) in &mixed {
            let entries: Vec<_> = (0..25)
                .map(|cookie| match cookie {
                    n if n == *hangs_at => Entry { len: 128 * KIB, ..entry(cookie) },
                    _ => Entry { file: id, buffer: second.ptr(), len: 4 * KIB, ..entry(cookie) },
                })
                .collect();
            // SAFETY: the memory is kept.
            unsafe { batch.submit(driver, &entries) }.unwrap();
            let mut done = BTreeSet::new();
            while done.len() < 24 {
                let events = batch.poll(1, 25, Some(Duration::from_secs(1))).unwrap();
                done.extend(events.iter().map(|event| event.cookie));
            }
            assert!(!done.contains(hangs_at));
        }
        // What those entries worked on is not in use any more.
        driver.deregister_file(id).unwrap();
        // The driver closes without waiting for it.
        driver.close();
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        std::thread::scope(|inner| {
            let destroying = inner.spawn(|| batch.destroy());
            std::thread::sleep(Duration::from_millis(700));
            // It waits for what the kernel works on, and has said so: see the test of batches for the words.
            assert!(!destroying.is_finished());
            hanging.vanish();
        });
        drop(mixed);
        for reader in readers {
            let error = reader.join().unwrap().expect_err("the storage is gone");
            assert!(error.os_error().is_some(), "{error}");
        }
    });
}

/// More of them than there are Blocks and threads for.
#[test]
fn however_many_wait_for_storage_that_hangs_others_are_served() {
    let _watchdog = Watchdog::new(100);
    let Some((at, hanging)) = hangs() else { return };
    for engines in [&["uring", "bounce"][..], &["bounce"]] {
        let driver = driver_with(engines, |c| c.wait_notice = None);
        let open = std::fs::File::open(at.path().join(fuse::NAME)).unwrap();
        let hung = driver.register_file(open.as_raw_fd()).unwrap();
        let elsewhere = Storage::here();
        std::fs::write(elsewhere.path("f"), pattern()).unwrap();
        let other = std::fs::File::open(elsewhere.path("f")).unwrap();
        let id = driver.register_file(other.as_raw_fd()).unwrap();
        // Kept while threads that outlive this round use them.
        let memory = Arc::new(Buffer::alloc(&driver, 0, LEN).unwrap());
        let driver = Arc::new(driver);
        for _ in 0..20 {
            let (driver, memory) = (Arc::clone(&driver), Arc::clone(&memory));
            // SAFETY: the memory is kept.
            std::thread::spawn(move || unsafe { driver.read(hung, memory.ptr(), 64 * KIB, 0, 0) });
        }
        let second = Buffer::alloc(&driver, 0, LEN).unwrap();
        let entry = |file, ptr, cookie| Entry {
            op: Ok(Op::Read),
            file,
            buffer: ptr,
            buffer_offset: 0,
            file_offset: 0,
            len: 128 * KIB,
            cookie,
        };
        let hang = RawBatch::new(20).unwrap();
        let entries: Vec<_> = (0..20).map(|n| entry(hung, memory.ptr(), n)).collect();
        // SAFETY: the memory is kept.
        unsafe { hang.submit(&driver, &entries) }.unwrap();
        assert_eq!(hang.poll(1, 8, Some(Duration::from_millis(300))).unwrap().len(), 0);
        for _ in 0..3 {
            for len in [4 * KIB, LEN] {
                // SAFETY: the memory is kept.
                assert_eq!(unsafe { driver.read(id, second.ptr(), len, 0, 0) }.unwrap(), len);
            }
            let batch = RawBatch::new(20).unwrap();
            let entries: Vec<_> = (0..20).map(|n| entry(id, second.ptr(), n)).collect();
            // SAFETY: the memory is kept.
            unsafe { batch.submit(&driver, &entries) }.unwrap();
            let mut done = 0;
            while done < 20 {
                let events = batch.poll(1, 20, Some(Duration::from_secs(1))).unwrap();
                assert!(
                    events.iter().all(|e| matches!(e.status, EventStatus::Complete(n) if n == 128 * KIB))
                );
                done += events.len();
            }
        }
        let mut seen = vec![0; LEN];
        second.download(0, &mut seen).unwrap();
        assert!(seen == pattern());
        // It would wait for what the kernel works on.
        std::mem::forget(hang);
    }
    hanging.vanish();
}
