//! Batches: every accepted entry gives exactly one event, in every state of files, memory, staging and driver.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{
    Batch, Buffer, Config, Driver, Entry, ErrorKind, Event, EventStatus, File, FileId, Job, NoOp, Op,
    PageCache, RawBatch,
};

use crate::support::gpu::is_emulated_hip;
use crate::support::{Random, Storage, driver_with};

const ALL: &[&str] = &["p2p", "uring", "bounce"];
pub(super) const STAGED: &[&str] = &["uring", "bounce"];

/// Ends the process with a message when a test takes too long: a hang is a failure, not a wait.
pub(super) struct Watchdog(Arc<std::sync::atomic::AtomicBool>);

impl Watchdog {
    pub(super) fn new(what: &'static str, seconds: u64) -> Watchdog {
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&done);
        std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < end {
                if seen.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            eprintln!("{what}: no end after {seconds} s");
            std::process::abort();
        });
        Watchdog(done)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A file of random bytes, registered, and as much device memory.
pub(super) struct Setup {
    pub(super) driver: Driver,
    pub(super) file: File,
    content: Vec<u8>,
    buffer: Buffer,
    _storage: Storage,
}

pub(super) fn setup(engines: &[&str], len: usize, change: impl FnOnce(&mut Config)) -> Setup {
    let (driver, storage) = (driver_with(engines, change), Storage::here());
    let mut content = vec![0; len];
    Random::new().fill(&mut content);
    std::fs::write(storage.path("f"), &content).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    open.sync_all().unwrap();
    let file = File::register(&driver, open).unwrap();
    let buffer = Buffer::alloc(&driver, 0, len).unwrap();
    Setup { driver, file, content, buffer, _storage: storage }
}

impl Setup {
    /// Reads piece `n` of `len` bytes to its own place in the memory.
    pub(super) fn read(&self, n: usize, len: usize) -> Entry {
        self.entry(Op::Read, n * len, len, n as u64)
    }

    fn entry(&self, op: Op, at: usize, len: usize, cookie: u64) -> Entry {
        let (file, buffer, at) = (self.file.id(), self.buffer.ptr(), at as i64);
        Entry { op: Ok(op), file, buffer, buffer_offset: at, file_offset: at, len, cookie }
    }

    pub(super) fn submit(&self, batch: &RawBatch, entries: &[Entry]) -> hipfile::Result<()> {
        // SAFETY: the memory outlives the batch, in every test, and is read back only when the events are there.
        unsafe { batch.submit(&self.driver, entries) }
    }

    /// Reads the whole file in one call.
    pub(super) fn read_whole(&mut self) {
        let len = self.content.len();
        self.buffer.upload(0, &vec![0xEE; len]).unwrap();
        assert_eq!(self.file.read_at(&mut self.buffer, 0..len, 0).unwrap(), len);
        self.check_memory();
    }

    /// Writes the whole file in one call, with what is in it.
    pub(super) fn write_whole(&mut self) {
        let len = self.content.len();
        self.buffer.upload(0, &self.content).unwrap();
        assert_eq!(self.file.write_at(&self.buffer, 0..len, 0).unwrap(), len);
    }

    pub(super) fn check_memory(&self) {
        let mut now = vec![0; self.content.len()];
        self.buffer.download(0, &mut now).unwrap();
        assert!(now == self.content, "the memory holds what the file does");
    }
}

/// All events of a batch, each cookie once and whole.
pub(super) fn collect(batch: &RawBatch, count: usize, len: usize) {
    let mut seen = HashSet::new();
    while seen.len() < count {
        for event in batch.poll(1, 7, None).unwrap() {
            assert!(matches!(event.status, EventStatus::Complete(n) if n == len), "{event:?}");
            assert!(seen.insert(event.cookie), "one event for each entry");
        }
    }
    assert!(batch.poll(1, 7, None).unwrap().is_empty(), "and no more");
}

#[test]
fn small_reads_arrive_whatever_carries_them() {
    let _watchdog = Watchdog::new("small reads", 60);
    for engines in [ALL, STAGED, &["bounce"]] {
        for page_cache in [PageCache::Auto, PageCache::Direct, PageCache::NoCache, PageCache::Buffered] {
            for len in [1, 100, 512, 4096, 5000] {
                let setup = setup(engines, 300 * len, |c| c.page_cache = page_cache);
                let batch = RawBatch::new(300).unwrap();
                let entries: Vec<_> = (0..300).map(|n| setup.read(n, len)).collect();
                setup.submit(&batch, &entries).unwrap();
                collect(&batch, 300, len);
                setup.check_memory();
                let stats = setup.driver.stats();
                let total = |of: fn(&hipfile::EngineStats) -> u64| stats.read.iter().map(of).sum::<u64>();
                assert_eq!(
                    total(|e| e.bytes),
                    300 * len as u64,
                    "{engines:?} {page_cache:?} {len}: {stats:?}"
                );
                let staged: u64 = stats.read_staged.iter().map(|r| r.bytes).sum();
                let direct: u64 = stats.read.iter().filter(|e| e.engine == "p2p").map(|e| e.bytes).sum();
                assert_eq!(staged + direct, 300 * len as u64, "each staged byte has a reason");
            }
        }
    }
}

#[test]
fn small_reads_share_a_ring() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let setup = setup(STAGED, 128 * 4096, |c| c.page_cache = PageCache::Direct);
    let batch = RawBatch::new(128).unwrap();
    let entries: Vec<_> = (0..128).map(|n| setup.read(n, 4096)).collect();
    fault::clear();
    let before = fault::calls("hipMemcpy");
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 128, 4096);
    setup.check_memory();
    let stats = setup.driver.stats();
    match stats.read.as_slice() {
        [uring] if uring.engine == "uring" => assert_eq!(uring.operations, 128),
        [bounce] if bounce.engine == "bounce" => {
            crate::support::skip("shared ring", "no O_DIRECT or io_uring here")
        }
        other => panic!("{other:?}"),
    }
    let copies = fault::calls("hipMemcpy") - before;
    assert!(copies <= 129, "neighbours are copied together: {copies}");
}

/// After many reads that found their bytes in the page cache others are tried: what changes then is seen by the next.
#[test]
fn a_file_that_was_warm_for_long_may_change() {
    const COUNT: usize = 300;
    const LEN: usize = 4096;
    let _watchdog = Watchdog::new("a warm file", 60);
    for engines in [STAGED, &["bounce"]] {
        let mut setup = setup(engines, COUNT * LEN, |c| c.page_cache = PageCache::Buffered);
        let path = setup._storage.path("f");
        let batch = RawBatch::new(COUNT).unwrap();
        let entries: Vec<_> = (0..COUNT).map(|n| setup.read(n, LEN)).collect();
        let read = |setup: &Setup| {
            setup.submit(&batch, &entries).unwrap();
            collect(&batch, COUNT, LEN);
            setup.check_memory();
        };
        for round in 0..4 {
            read(&setup);
            // Other bytes, still in the page cache.
            setup.content[round * LEN..][..LEN].fill(round as u8);
            std::fs::write(&path, &setup.content).unwrap();
        }
        read(&setup);
        let open = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        open.sync_all().unwrap();
        rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        read(&setup);
        read(&setup);
        // It ends within an entry.
        open.set_len((COUNT / 2 * LEN + 100) as u64).unwrap();
        setup.submit(&batch, &entries).unwrap();
        let events = batch.poll(COUNT, COUNT, None).unwrap();
        assert_eq!(events.len(), COUNT);
        for Event { cookie, status, .. } in events {
            let there = (COUNT / 2 * LEN + 100).saturating_sub(cookie as usize * LEN).min(LEN);
            assert!(matches!(status, EventStatus::Complete(n) if n == there), "{cookie}: {status:?}");
        }
    }
}

#[test]
fn behaviour_70_1024_entries_of_1_mib_pass_through_one_block() {
    let _watchdog = Watchdog::new("1024 entries", 120);
    for page_cache in [PageCache::Auto, PageCache::Direct] {
        let setup = setup(STAGED, 8 << 20, |c| {
            (c.block_len, c.pool_len, c.page_cache) = (1 << 20, 1 << 20, page_cache);
        });
        let batch = RawBatch::new(1024).unwrap();
        let entries: Vec<_> =
            (0..1024).map(|n| Entry { cookie: n as u64, ..setup.read(n % 8, 1 << 20) }).collect();
        setup.submit(&batch, &entries).unwrap();
        collect(&batch, 1024, 1 << 20);
        setup.check_memory();
    }
}

#[test]
fn behaviour_69_too_many_entries_are_refused_whole() {
    let setup = setup(STAGED, 64 * 512, |_| {});
    let batch = RawBatch::new(10).unwrap();
    let entries: Vec<_> = (0..11).map(|n| setup.read(n, 512)).collect();
    let full = |result: hipfile::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::BatchFull);
    full(setup.submit(&batch, &entries));
    assert!(batch.poll(1, 1, None).unwrap().is_empty(), "nothing was accepted");
    setup.submit(&batch, &entries[..6]).unwrap();
    full(setup.submit(&batch, &entries[..5]));
    setup.submit(&batch, &entries[6..10]).unwrap();
    full(setup.submit(&batch, &entries[..1]));
    // An event keeps its place until it is collected.
    let first = batch.poll(3, 3, None).unwrap();
    assert_eq!(first.len(), 3);
    full(setup.submit(&batch, &entries[..4]));
    // The first ones may still be under way: the memory is theirs.
    let more: Vec<_> = (11..14).map(|n| setup.read(n, 512)).collect();
    setup.submit(&batch, &more).unwrap();
    let mut rest = 0;
    while rest < 10 {
        rest += batch.poll(1, 10, None).unwrap().len();
    }
    assert_eq!(rest, 10);
}

#[test]
fn behaviour_71_a_batch_has_room_for_4096() {
    let _watchdog = Watchdog::new("4096 entries", 60);
    for capacity in [0, 4097, usize::MAX] {
        assert_eq!(RawBatch::new(capacity).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    let setup = setup(STAGED, 4096 * 512, |_| {});
    let batch = RawBatch::new(4096).unwrap();
    let entries: Vec<_> = (0..4096).map(|n| setup.read(n, 512)).collect();
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 4096, 512);
    setup.check_memory();
}

#[test]
fn one_bad_entry_refuses_all() {
    let setup = setup(STAGED, 4 * 4096, |_| {});
    let batch = RawBatch::new(8).unwrap();
    let good = setup.read(0, 4096);
    let bad: Vec<(&str, Entry, ErrorKind)> = vec![
        ("file", Entry { file: FileId::from_raw(42), ..good }, ErrorKind::HandleNotRegistered),
        ("null", Entry { buffer: hipfile::DevPtr(0), ..good }, ErrorKind::InvalidValue),
        (
            "host memory",
            Entry { buffer: hipfile::DevPtr((&raw const good).addr()), ..good },
            ErrorKind::HipMemoryTypeInvalid,
        ),
        ("buffer offset", Entry { buffer_offset: -1, ..good }, ErrorKind::InvalidValue),
        ("file offset", Entry { file_offset: -1, ..good }, ErrorKind::InvalidValue),
        ("behind the end", Entry { buffer_offset: 4 * 4096, len: 0, ..good }, ErrorKind::InvalidValue),
        ("over the end", Entry { buffer_offset: 1, len: 4 * 4096, ..good }, ErrorKind::InvalidValue),
        ("huge", Entry { len: usize::MAX, ..good }, ErrorKind::InvalidValue),
        ("direction", Entry { op: Err(NoOp { name: "opcode", value: 7 }), ..good }, ErrorKind::InvalidValue),
    ];
    for (what, entry, kind) in bad {
        let error = setup.submit(&batch, &[good, entry, good]).unwrap_err();
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert!(batch.poll(1, 8, None).unwrap().is_empty(), "{what}: nothing was accepted");
    }
    // Nothing is held by what was refused.
    setup.driver.deregister_buffer(setup.buffer.ptr()).unwrap();
}

#[test]
fn short_reads_empty_entries_and_errors_are_told_as_they_are() {
    let setup = setup(STAGED, 10_000, |_| {});
    let batch = RawBatch::new(8).unwrap();
    let entries = [
        Entry { file_offset: 9_000, ..setup.entry(Op::Read, 0, 4096, 1) },
        Entry { file_offset: 10_000, ..setup.entry(Op::Read, 0, 4096, 2) },
        setup.entry(Op::Read, 5, 0, 3),
        Entry { file_offset: i64::MAX - 10, buffer_offset: 5000, ..setup.entry(Op::Write, 0, 4096, 4) },
    ];
    setup.submit(&batch, &entries).unwrap();
    let mut events = batch.poll(4, 8, None).unwrap();
    events.sort_by_key(|event| event.cookie);
    let moved = |event: &Event| match &event.status {
        EventStatus::Complete(n) => Ok(*n),
        EventStatus::Failed(error) => Err(error.os_error()),
        other => panic!("{other:?}"),
    };
    let results: Vec<_> = events.iter().map(moved).collect();
    assert_eq!(results[..3], [Ok(1000), Ok(0), Ok(0)]);
    assert!(matches!(results[3], Err(Some(libc::EFBIG | libc::EINVAL))), "{results:?}");
}

#[test]
fn behaviour_73_poll_judges_its_arguments_and_keeps_time() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let setup = setup(STAGED, 4096, |_| {});
    let batch = RawBatch::new(4).unwrap();
    for (min, most) in [(2, 1), (5, 8)] {
        assert_eq!(batch.poll(min, most, None).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    assert!(batch.poll(4, 4, None).unwrap().is_empty(), "nothing is in flight, so nothing is waited for");
    fault::add(Rule {
        function: Function::hipMemcpy,
        when: When::Every,
        fault: Fault::Delay(Duration::from_millis(300)),
    });
    setup.submit(&batch, &[setup.read(0, 4096)]).unwrap();
    let began = Instant::now();
    assert!(batch.poll(1, 4, Some(Duration::ZERO)).unwrap().is_empty());
    assert!(batch.poll(1, 4, Some(Duration::from_millis(50))).unwrap().is_empty());
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(batch.poll(1, 4, Some(Duration::MAX)).unwrap().len(), 1);
    fault::clear();
}

#[test]
fn behaviour_77_cancel_and_results_add_up() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("cancel", 60);
    let setup = setup(&["bounce"], 200 * 4096, |c| c.io_threads = 1);
    fault::add(Rule {
        function: Function::hipMemcpy,
        when: When::Every,
        fault: Fault::Delay(Duration::from_millis(5)),
    });
    let batch = RawBatch::new(200).unwrap();
    let entries: Vec<_> = (0..200).map(|n| setup.read(n, 4096)).collect();
    setup.submit(&batch, &entries).unwrap();
    assert!(!batch.poll(1, 1, None).unwrap().is_empty());
    batch.cancel().unwrap();
    let (mut complete, mut canceled) = (1, 0);
    while complete + canceled < 200 {
        for event in batch.poll(1, 50, None).unwrap() {
            match event.status {
                EventStatus::Complete(4096) => complete += 1,
                EventStatus::Canceled => canceled += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(canceled > 100, "{canceled} of 200 were canceled");
    // The batch stays usable, and so do file and memory.
    batch.cancel().unwrap();
    setup.submit(&batch, &entries[..1]).unwrap();
    assert_eq!(batch.poll(1, 1, None).unwrap().len(), 1);
    fault::clear();
    drop(batch);
    setup.driver.deregister_buffer(setup.buffer.ptr()).unwrap();
}

#[test]
fn behaviour_50_destroy_and_close_with_work_in_flight() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("destroy", 60);
    let setup = setup(STAGED, 100 * 4096, |_| {});
    fault::add(Rule {
        function: Function::hipMemcpy,
        when: When::Every,
        fault: Fault::Delay(Duration::from_millis(20)),
    });
    for round in 0..10 {
        let batch = RawBatch::new(100).unwrap();
        let entries: Vec<_> = (0..100).map(|n| setup.read(n, 4096)).collect();
        setup.submit(&batch, &entries).unwrap();
        std::thread::scope(|scope| {
            // A waiting call is released.
            let waiter = scope.spawn(|| batch.poll(100, 100, None).map(|events| events.len()));
            std::thread::sleep(Duration::from_millis(round));
            batch.destroy();
            assert!(waiter.join().unwrap().is_ok());
        });
        assert_eq!(setup.submit(&batch, &entries).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    // A driver that is closed meanwhile: the entries keep what they need.
    let batch = RawBatch::new(100).unwrap();
    let entries: Vec<_> = (0..100).map(|n| setup.read(n, 4096)).collect();
    setup.submit(&batch, &entries).unwrap();
    setup.driver.close();
    collect(&batch, 100, 4096);
    assert_eq!(setup.submit(&batch, &entries).unwrap_err().kind(), ErrorKind::HandleNotRegistered);
    fault::clear();
    setup.check_memory();
}

#[test]
fn what_is_in_flight_cannot_be_deregistered() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("deregister", 60);
    let setup = setup(STAGED, 4096, |_| {});
    fault::add(Rule {
        function: Function::hipMemcpy,
        when: When::Every,
        fault: Fault::Delay(Duration::from_millis(300)),
    });
    let batch = RawBatch::new(4).unwrap();
    setup.submit(&batch, &[setup.read(0, 4096)]).unwrap();
    let refused =
        |result: hipfile::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::InternalError);
    refused(setup.driver.deregister_file(setup.file.id()));
    refused(setup.driver.deregister_buffer(setup.buffer.ptr()));
    assert_eq!(batch.poll(1, 1, None).unwrap().len(), 1);
    fault::clear();
    // From the event on nothing is used any more.
    setup.driver.deregister_file(setup.file.id()).unwrap();
    setup.driver.deregister_buffer(setup.buffer.ptr()).unwrap();
}

#[test]
fn copies_that_fail_are_tried_again_one_by_one() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let setup = setup(STAGED, 64 * 4096, |c| c.page_cache = PageCache::Direct);
    for nth in 1..4 {
        fault::inject("hipMemcpy", When::Nth(nth), gpu_sys::hip::HipError::UNKNOWN).unwrap();
        let batch = RawBatch::new(64).unwrap();
        let entries: Vec<_> = (0..64).map(|n| setup.read(n, 4096)).collect();
        setup.submit(&batch, &entries).unwrap();
        let mut failed = 0;
        for _ in 0..64 {
            match &batch.poll(1, 1, None).unwrap()[0].status {
                EventStatus::Complete(4096) => {}
                EventStatus::Failed(error) if error.kind() == ErrorKind::HipDriverError => failed += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(failed <= 1, "{failed}");
        fault::clear();
    }
}

#[test]
fn behaviour_74_entries_are_not_ordered_but_all_happen() {
    let _watchdog = Watchdog::new("mixed", 60);
    let setup = setup(STAGED, 64 * 8192, |_| {});
    let batch = RawBatch::new(128).unwrap();
    // Reads of even pieces, writes of odd ones: no overlap, so any order gives the same.
    let mut memory = setup.content.clone();
    memory.iter_mut().for_each(|byte| *byte ^= 0xff);
    let mut buffer = Buffer::alloc(&setup.driver, 0, memory.len()).unwrap();
    buffer.upload(0, &memory).unwrap();
    let entries: Vec<_> = (0..128)
        .map(|n| {
            let op = if n % 2 == 0 { Op::Read } else { Op::Write };
            Entry { buffer: buffer.ptr(), ..setup.entry(op, n * 4096, 4096, n as u64) }
        })
        .collect();
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 128, 4096);
    let (mut now, mut disk) = (vec![0; memory.len()], vec![0; memory.len()]);
    buffer.download(0, &mut now).unwrap();
    let plain = std::fs::File::open(setup.file.info().unwrap().path.unwrap()).unwrap();
    plain.read_exact_at(&mut disk, 0).unwrap();
    for n in 0..128 {
        let piece = n * 4096..(n + 1) * 4096;
        let expected = if n % 2 == 0 { &setup.content } else { &memory };
        assert!(
            now[piece.clone()] == expected[piece.clone()] && disk[piece.clone()] == expected[piece],
            "{n}"
        );
    }
}

#[test]
fn behaviour_75_a_rust_batch_owns_what_is_in_flight() {
    let _watchdog = Watchdog::new("owned", 60);
    let Setup { driver, file, content, _storage, .. } = setup(STAGED, 64 * 4096, |_| {});
    let file = Arc::new(file);
    let mut batch = Batch::new(&driver, 8).unwrap();
    let job = |n: usize, buffer| Job {
        op: Op::Read,
        file: Arc::clone(&file),
        file_offset: n as u64 * 4096,
        buffer,
        range: 0..4096,
    };
    let fresh = || Buffer::alloc(&driver, 0, 4096).unwrap();
    batch.submit((0..8).map(|n| job(n, fresh())).collect()).unwrap();
    let (error, back) = batch.submit(vec![job(8, fresh())]).unwrap_err();
    assert_eq!((error.kind(), back.len()), (ErrorKind::BatchFull, 1));
    // Slots are refilled as they come free, thirty-two in flight being the eight there are.
    let (mut next, mut seen) = (8, HashSet::new());
    while !batch.is_empty() {
        for finished in batch.wait(1, None).unwrap() {
            assert!(matches!(finished.status, EventStatus::Complete(4096)));
            let at = finished.job.file_offset as usize;
            let mut bytes = vec![0; 4096];
            finished.job.buffer.download(0, &mut bytes).unwrap();
            assert!(bytes == content[at..at + 4096] && seen.insert(at));
            if next < 64 {
                batch.submit(vec![job(next, finished.job.buffer)]).unwrap();
                next += 1;
            }
        }
    }
    assert_eq!(seen.len(), 64);
    // Dropped in flight: it waits, and the memory is freed after that.
    batch.submit((0..8).map(|n| job(n, fresh())).collect()).unwrap();
    drop(batch);
}

#[test]
fn many_threads_share_a_batch() {
    let _watchdog = Watchdog::new("threads", 120);
    const ROUNDS: usize = 100;
    let setup = setup(STAGED, 8 * ROUNDS * 2 * 4096, |c| c.pool_len = 2 * c.block_len);
    let batch = RawBatch::new(64).unwrap();
    let (submitted, collected) =
        (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (setup, batch, submitted, collected) = (&setup, &batch, &submitted, &collected);
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    // Memory of its own for each entry.
                    let at = 2 * (thread * ROUNDS + n);
                    let entries = [setup.read(at, 4096), setup.read(at + 1, 4096)];
                    if setup.submit(batch, &entries).is_ok() {
                        submitted.fetch_add(2, order);
                    }
                    if n % 30 == 7 {
                        batch.cancel().unwrap();
                    }
                    collected.fetch_add(batch.poll(0, 5, None).unwrap().len(), order);
                }
            });
        }
    });
    loop {
        match batch.poll(1, 64, None).unwrap().len() {
            0 => break,
            n => collected.fetch_add(n, order),
        };
    }
    assert!(submitted.load(order) > 0);
    assert_eq!(submitted.into_inner(), collected.into_inner());
}
