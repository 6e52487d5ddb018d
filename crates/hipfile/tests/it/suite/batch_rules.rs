//! Batches at their edges: what refusals and notices say, scarce memory, large entries, many at once, and owners that go.

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{
    Batch, Buffer, DevPtr, Entry, ErrorKind, EventStatus, File, FileId, Job, MAX_TRANSFER, NoOp, Op,
    PageCache, RawBatch,
};

use super::batches::{STAGED, Setup, Watchdog, collect, setup};
use crate::support::gpu::is_emulated_hip;
use crate::support::{Storage, driver_with};

fn delay_copies(time: Duration) {
    fault::add(Rule { function: Function::hipMemcpy, when: When::Every, fault: Fault::Delay(time) });
}

#[test]
fn a_refusal_names_the_entry_and_the_wrong_value() {
    let setup = setup(STAGED, 4 * 4096, |_| {});
    let batch = RawBatch::new(8).unwrap();
    let good = setup.read(0, 4096);
    let cases: Vec<(Entry, &[&str])> = vec![
        (Entry { op: Err(NoOp { name: "opcode", value: 77 }), ..good }, &["opcode is 77"]),
        (Entry { op: Err(NoOp { name: "mode", value: -3 }), ..good }, &["mode is -3"]),
        (Entry { file: FileId::from_raw(0xabcd), ..good }, &["handle 0xabcd"]),
        (Entry { buffer: DevPtr(0), ..good }, &["null"]),
        (Entry { buffer_offset: -5, ..good }, &["buffer offset -5"]),
        (Entry { file_offset: -6, ..good }, &["file offset -6"]),
        (Entry { buffer_offset: 99_999, ..good }, &["99999", "16384"]),
        (Entry { len: 77_777, ..good }, &["77777", "16384"]),
    ];
    for (bad, words) in cases {
        let error = setup.submit(&batch, &[good, good, bad, good]).unwrap_err();
        assert_eq!(error.entry(), Some(2), "{error}");
        let text = error.to_string();
        for word in ["entry 2"].iter().chain(words) {
            assert!(text.contains(word), "{word} is missing in: {text}");
        }
    }
    let error = setup.submit(&batch, &[good; 9]).unwrap_err();
    assert_eq!((error.kind(), error.entry()), (ErrorKind::BatchFull, None));
    assert!(error.to_string().contains("9 entries for 8 free places of 8"), "{error}");
    let error = RawBatch::new(4097).unwrap_err().to_string();
    assert!(error.contains("4096") && error.contains("4097"), "{error}");
}

/// What the library says on standard error while `during` runs. Output is the process's, so the test has one of its own.
fn said(during: impl FnOnce()) -> String {
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: a duplicate of standard error, kept until it is put back.
    let before = unsafe { libc::dup(2) };
    assert!(before >= 0);
    // SAFETY: both are open descriptors.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
    during();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(before, 2) }, 2);
    // SAFETY: the duplicate is this function's own.
    assert_eq!(unsafe { libc::close(before) }, 0);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.lines().filter(|line| line.starts_with("hipfile: a batch")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_wait_without_progress_says_which_file_and_engine_it_waits_for() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("notice", 60);
    for (engines, engine) in [(&["bounce"][..], "bounce"), (STAGED, "uring")] {
        let setup = setup(engines, 4 * 4096, |c| {
            c.wait_notice = Some(Duration::from_millis(200));
            c.page_cache = PageCache::Direct;
            // Larger than the Block of a queue would be asked for, so that the entry is under way alone.
            c.uring_min = 4096;
        });
        let path = setup.file.info().unwrap().path.unwrap();
        let batch = RawBatch::new(8).unwrap();
        delay_copies(Duration::from_millis(900));
        let wait = said(|| {
            setup.submit(&batch, &[setup.read(3, 4096)]).unwrap();
            assert_eq!(batch.poll(1, 8, Some(Duration::from_secs(30))).unwrap().len(), 1);
        });
        let ending = said(|| {
            setup.submit(&batch, &[setup.read(3, 4096)]).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            batch.destroy();
        });
        fault::clear();
        for text in [wait, ending] {
            assert_eq!(text.lines().count(), 1, "once: {text}");
            let wanted = ["no event for 0.", "1 entries run, 0 wait", "read of 4096 bytes at offset 12288"];
            for word in wanted.into_iter().chain([path.to_str().unwrap(), "(fd ", " s old"]) {
                assert!(text.contains(word), "{word} is missing in: {text}");
            }
            let by = |name: &str| text.contains(&format!("engine {name},"));
            // Where there is no O_DIRECT or io_uring the other one serves.
            assert!(by(engine) || (engine == "uring" && by("bounce")), "{text}");
        }
    }
}

#[test]
fn a_wait_that_makes_progress_says_nothing() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("progress", 60);
    let setup = setup(&["bounce"], 16 * 4096, |c| {
        c.wait_notice = Some(Duration::from_millis(400));
        c.io_threads = 1;
    });
    let batch = RawBatch::new(16).unwrap();
    delay_copies(Duration::from_millis(60));
    let text = said(|| {
        let entries: Vec<_> = (0..16).map(|n| setup.read(n, 4096)).collect();
        setup.submit(&batch, &entries).unwrap();
        assert_eq!(batch.poll(16, 16, Some(Duration::from_secs(30))).unwrap().len(), 16);
    });
    fault::clear();
    assert_eq!(text, "");
}

/// The address space that the process uses, in bytes.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn without_memory_a_batch_is_refused_and_those_there_are_work_on() {
    let setup = setup(STAGED, 4 * 4096, |_| {});
    let ready = RawBatch::new(4).unwrap();
    // All that is made at first use is made now.
    setup.submit(&ready, &[setup.read(0, 4096)]).unwrap();
    assert_eq!(ready.poll(1, 4, None).unwrap().len(), 1);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit to be filled.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }, 0);
    let scarce = libc::rlimit { rlim_cur: address_space() + (4 << 20), ..limit };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const scarce) }, 0);
    let mut batches = Vec::with_capacity(1000);
    let error = loop {
        match RawBatch::new(4096) {
            Ok(batch) => batches.push(batch),
            Err(error) => break error,
        }
        assert!(batches.len() < 1000, "the limit counts");
    };
    // SAFETY: the limit there was.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    setup.submit(&ready, &[setup.read(1, 4096)]).unwrap();
    let events = ready.poll(1, 4, None).unwrap();
    assert_eq!(error.kind(), ErrorKind::InternalError, "{error}");
    assert!(error.to_string().contains("memory"), "{error}");
    assert!(matches!(events[0].status, EventStatus::Complete(4096)), "{events:?}");
    drop(batches);
    RawBatch::new(4096).expect("there is memory again");
}

/// Sixteen entries whose copies take long: together they take far less than one after the other.
#[test]
fn behaviour_75_entries_are_under_way_at_the_same_time() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("depth", 60);
    const LEN: usize = 128 << 10;
    const TIME: Duration = Duration::from_millis(250);
    let setup = setup(&["bounce"], 16 * LEN, |c| {
        (c.block_len, c.pool_len, c.io_threads) = (LEN, 16 * LEN, 1);
    });
    let batch = RawBatch::new(16).unwrap();
    delay_copies(TIME);
    let began = Instant::now();
    let entries: Vec<_> = (0..16).map(|n| setup.read(n, LEN)).collect();
    setup.submit(&batch, &entries).unwrap();
    collect(&batch, 16, LEN);
    let depth = 16.0 * TIME.as_secs_f64() / began.elapsed().as_secs_f64();
    fault::clear();
    setup.check_memory();
    assert!(depth > 4.0, "{depth:.1} entries were under way at a time");
}

#[test]
fn behaviour_76_one_entry_may_be_as_large_as_one_call() {
    let _watchdog = Watchdog::new("large entries", 240);
    const GIB: usize = 1 << 30;
    const SIZES: [usize; 4] = [(16 << 20) + 1, (64 << 20) + 4097, MAX_TRANSFER, 3 * GIB];
    let (driver, storage) =
        (driver_with(STAGED, |c| (c.block_len, c.pool_len) = (1 << 20, 8 << 20)), Storage::here());
    std::fs::write(storage.path("sparse"), "").unwrap();
    let sparse = std::fs::File::options().read(true).write(true).open(storage.path("sparse")).unwrap();
    sparse.set_len(3 * GIB as u64).unwrap();
    // Eight bytes that tell their place, before every place where something ends.
    for end in SIZES {
        sparse.write_all_at(&end.to_le_bytes(), end as u64 - 8).unwrap();
    }
    let file = File::register(&driver, sparse).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 3 * GIB).unwrap();
    let batch = RawBatch::new(4).unwrap();
    for len in SIZES {
        let entry = Entry {
            op: Ok(Op::Read),
            file: file.id(),
            buffer: buffer.ptr(),
            buffer_offset: 0,
            file_offset: 0,
            len,
            cookie: 1,
        };
        // SAFETY: the buffer outlives the batch's event.
        unsafe { batch.submit(&driver, &[entry]) }.unwrap();
        let expected = len.min(MAX_TRANSFER);
        let events = batch.poll(1, 1, None).unwrap();
        assert!(
            matches!(events[0].status, EventStatus::Complete(moved) if moved == expected),
            "{len}: {events:?}"
        );
        let mut mark = [0; 8];
        buffer.download(expected - 8, &mut mark).unwrap();
        assert_eq!(usize::from_le_bytes(mark), expected, "{len}");
    }
}

fn jobs(setup: &Setup, file: &Arc<File>, count: usize) -> Vec<Job> {
    let job = |n: usize| Job {
        op: Op::Read,
        file: Arc::clone(file),
        file_offset: n as u64 * 4096,
        buffer: Buffer::alloc(&setup.driver, 0, 4096).unwrap(),
        range: 0..4096,
    };
    (0..count).map(job).collect()
}

/// The rule: what has not started is canceled, what has is waited for, and only then is the memory freed.
#[test]
fn a_dropped_batch_waits_for_what_runs_and_frees_after_that() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("drop", 60);
    let setup = setup(&["bounce"], 64 * 4096, |c| c.io_threads = 1);
    let plain = std::fs::File::open(setup.file.info().unwrap().path.unwrap()).unwrap();
    let file = Arc::new(File::register(&setup.driver, plain).unwrap());
    let mut batch = Batch::new(&setup.driver, 64).unwrap();
    let waiting = jobs(&setup, &file, 64);
    delay_copies(Duration::from_millis(150));
    let (copies, frees) = (fault::calls("hipMemcpy"), fault::calls("hipFree"));
    batch.submit(waiting).unwrap();
    while fault::calls("hipMemcpy") == copies {
        std::thread::yield_now();
    }
    assert_eq!(fault::calls("hipFree"), frees);
    let began = Instant::now();
    drop(batch);
    assert!(began.elapsed() >= Duration::from_millis(50), "what ran was waited for");
    let done = fault::calls("hipMemcpy") - copies;
    assert!((1..32).contains(&done), "{done} of 64 ran, the rest was canceled");
    assert_eq!(fault::calls("hipFree") - frees, 64, "every buffer is freed");
    fault::clear();
    // Nothing runs any more: no copy came after the memory was freed, and file and driver are free.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fault::calls("hipMemcpy") - copies, done);
    setup.driver.deregister_file(file.id()).unwrap();
}

#[test]
fn a_forgotten_batch_leaks_its_memory_and_its_work_is_done() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let _watchdog = Watchdog::new("forget", 60);
    let setup = setup(&["bounce"], 8 * 4096, |_| {});
    let plain = std::fs::File::open(setup.file.info().unwrap().path.unwrap()).unwrap();
    let file = Arc::new(File::register(&setup.driver, plain).unwrap());
    let mut batch = Batch::new(&setup.driver, 8).unwrap();
    let jobs = jobs(&setup, &file, 8);
    let places: Vec<_> = jobs.iter().map(|job| job.buffer.ptr()).collect();
    delay_copies(Duration::from_millis(20));
    let frees = fault::calls("hipFree");
    batch.submit(jobs).unwrap();
    std::mem::forget(batch);
    let end = Instant::now() + Duration::from_secs(30);
    while setup.driver.deregister_file(file.id()).is_err() {
        assert!(Instant::now() < end, "the work ends by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    fault::clear();
    assert_eq!(fault::calls("hipFree"), frees, "nothing was freed");
    assert_eq!(setup.driver.stats().read.iter().map(|engine| engine.bytes).sum::<u64>(), 8 * 4096);
    for place in places {
        setup.driver.deregister_buffer(place).unwrap();
    }
}
