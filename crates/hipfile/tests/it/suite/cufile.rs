//! The engine that hands transfers to NVIDIA's libcufile, with a library in its place that knows the emulated GPU: what it is
//! given, what is left to others and why, and that a mistake of its costs no byte. On real hardware with GPUDirect Storage it
//! has not run.

use std::ffi::c_void;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use gpu_sys::cuda::CudaError;
use gpu_sys::library::Library;
use hipfile::{Buffer, Config, DeviceChoice, Driver, Fallback, File, Job, Op, Reason, Stream};

use crate::support::model::{self, Door, Row};
use crate::support::{Storage, driver_with, skip};

const ENGINES: &[&str] = &["p2p", "cufile", "uring", "bounce"];
const UNIT: usize = 4096;

/// The stand-in's knobs and counters, in its order.
#[repr(C)]
struct Knobs {
    open_error: AtomicI64,
    status: AtomicI64,
    control: AtomicI64,
    register_error: AtomicI64,
    fail_at: AtomicI64,
    fail_errno: AtomicI64,
    fail_code: AtomicI64,
    most: AtomicI64,
    opens: AtomicI64,
    registers: AtomicI64,
    deregisters: AtomicI64,
    reads: AtomicI64,
    writes: AtomicI64,
    calls: AtomicI64,
}

impl Knobs {
    /// Lets the next call fail, with an errno or a code of the library's.
    fn fail_next(&self, errno: i32, code: i64) {
        self.fail_errno.store(errno.into(), Ordering::SeqCst);
        self.fail_code.store(code, Ordering::SeqCst);
        self.fail_at.store(get(&self.calls) + 1, Ordering::SeqCst);
    }
}

fn get(counter: &AtomicI64) -> i64 {
    counter.load(Ordering::SeqCst)
}

type Change = fn(&Knobs);

/// As the library would reach memory: in the GPU's context, which must be current.
unsafe extern "C" fn copy(device: usize, host: *mut c_void, len: usize, to_device: i32) -> i32 {
    let api = hip_emu::cuda::api();
    let code = match to_device {
        // SAFETY: both ranges are the library's to use.
        0 => unsafe { (api.cuMemcpyDtoH_v2)(host, device as u64, len) },
        // SAFETY: as above.
        _ => unsafe { (api.cuMemcpyHtoD_v2)(device as u64, host, len) },
    };
    i32::from(code != CudaError::SUCCESS)
}

struct Bench {
    driver: Driver,
    file: File,
    buffer: Buffer,
    content: Vec<u8>,
    knobs: &'static Knobs,
    storage: Storage,
}

/// Builds the stand-in and loads it, as a process has the real one. `None`, said aloud, where it cannot be built.
fn stand_in(storage: &Storage) -> Option<&'static Knobs> {
    let (source, library) = (storage.path("stand_in.c"), storage.path("libcufile.so.0"));
    std::fs::write(&source, include_str!("../cufile_stand_in.c")).unwrap();
    let flags =
        ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcufile.so.0", "-o"];
    match Command::new("cc").args(flags).arg(&library).arg(&source).status() {
        Ok(status) => assert!(status.success(), "the stand-in for libcufile compiles"),
        Err(error) => {
            skip("libcufile", &format!("no C compiler for what stands in for it: {error}"));
            return None;
        }
    }
    let library = Library::open_path(&library).unwrap();
    let set = library
        .symbol(c"stand_in_copy")
        .cast::<unsafe extern "C" fn(usize, *mut c_void, usize, i32) -> i32>();
    // SAFETY: the variable of that name in the stand-in is a pointer to such a function.
    unsafe { set.write(copy) };
    let knobs: *const Knobs = library.symbol(c"stand_in").cast();
    // SAFETY: the variable of that name has this layout, and the library is never closed.
    Some(unsafe { &*knobs })
}

fn bench(size: usize, change: impl FnOnce(&mut Config, &Knobs)) -> Option<Bench> {
    let storage = Storage::here();
    let knobs = stand_in(&storage)?;
    let driver = driver_with(ENGINES, |config| {
        config.device = DeviceChoice::EmulatedCuda;
        change(config, knobs);
    });
    let content: Vec<u8> = (0..size).map(|n| ((n / 3) ^ (n >> 9)) as u8).collect();
    std::fs::write(storage.path("f"), &content).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let file = File::register(&driver, open).unwrap();
    let buffer = Buffer::alloc(&driver, 0, size + 65536).unwrap();
    Some(Bench { driver, file, buffer, content, knobs, storage })
}

impl Bench {
    /// Reads and compares; how many bytes went by libcufile.
    fn read(&mut self, at: usize, len: usize, offset: usize) -> u64 {
        let before = self.direct(Op::Read);
        let n = self.file.read_at(&mut self.buffer, at..at + len, offset as u64).unwrap();
        assert_eq!(n, self.content.len().saturating_sub(offset).min(len));
        let mut bytes = vec![0; n];
        self.buffer.download(at, &mut bytes).unwrap();
        assert!(bytes == self.content[offset..][..n], "{len} from {offset}");
        self.direct(Op::Read) - before
    }

    fn direct(&self, op: Op) -> u64 {
        let stats = self.driver.stats();
        let side = if op == Op::Read { stats.read } else { stats.write };
        side.iter().find(|e| e.engine == "cufile").map_or(0, |e| e.bytes)
    }

    fn reasons(&self) -> Vec<Reason> {
        self.driver.stats().read_staged.iter().map(|staged| staged.reason).collect()
    }
}

#[test]
fn what_is_aligned_goes_by_libcufile_and_the_ends_do_not() {
    let Some(mut bench) = bench(40 * UNIT + 123, |_, _| {}) else { return };
    assert_eq!(bench.read(0, 40 * UNIT, 0), 40 * UNIT as u64);
    assert_eq!(bench.driver.file_info(bench.file.id()).unwrap().engine, "cufile");
    assert!(bench.reasons().is_empty());
    assert_eq!(bench.read(7, 5 * UNIT, 7), 4 * UNIT as u64, "ragged at both ends");
    assert_eq!(bench.reasons(), [Reason::Alignment]);
    assert_eq!(bench.read(8, 5 * UNIT, 0), 0, "memory and file do not agree");
    // The end of the file, and beyond it.
    assert_eq!(bench.read(0, 41 * UNIT, 0), 40 * UNIT as u64 + 123);
    assert_eq!(bench.read(0, UNIT, 40 * UNIT), 123);
    // Written and read back by others.
    let bytes: Vec<u8> = (0..8 * UNIT + 5).map(|n| (n % 253) as u8).collect();
    bench.buffer.upload(0, &bytes).unwrap();
    assert_eq!(bench.file.write_at(&bench.buffer, 0..bytes.len(), 4 * UNIT as u64).unwrap(), bytes.len());
    assert_eq!(bench.direct(Op::Write), 8 * UNIT as u64);
    let mut disk = vec![0; bytes.len()];
    let plain = std::fs::File::open(bench.storage.path("f")).unwrap();
    plain.read_exact_at(&mut disk, 4 * UNIT as u64).unwrap();
    assert!(disk == bytes);
    assert_eq!((get(&bench.knobs.opens), get(&bench.knobs.registers)), (1, 1));
}

#[test]
fn what_libcufile_refuses_is_staged_and_what_the_file_answers_is_told() {
    let Some(mut bench) = bench(40 * UNIT, |_, _| {}) else { return };
    // Codes of its own, and errnos that say that the way does not suit.
    for (errno, code, reason) in [
        (0, 5008, Reason::Refused),
        (0, 5011, Reason::Refused),
        (libc::ENODEV, 0, Reason::NoStorageDevice),
        (libc::ENOMEM, 0, Reason::NoMemory),
    ] {
        bench.knobs.fail_next(errno, code);
        assert_eq!(bench.read(0, 8 * UNIT, 0), 0, "{errno} {code}");
        assert!(bench.reasons().contains(&reason), "{errno} {code}: {:?}", bench.reasons());
        assert_eq!(bench.read(0, 8 * UNIT, 0), 8 * UNIT as u64, "the next goes its way again");
    }
    bench.knobs.fail_next(libc::EIO, 0);
    let error = bench.file.read_at(&mut bench.buffer, 0..UNIT, 0).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EIO));
    // Short counts in the middle of a file: others go on, and no byte is lost.
    bench.knobs.most.store(3 * UNIT as i64, Ordering::SeqCst);
    assert_eq!(bench.read(0, 40 * UNIT, 0), 3 * UNIT as u64);
    bench.knobs.most.store(0, Ordering::SeqCst);
    assert_eq!(bench.read(0, 40 * UNIT, 0), 0);
}

#[test]
fn forbidden_staging_stays_forbidden_beside_libcufile() {
    let Some(mut bench) = bench(40 * UNIT, |config, _| config.fallback = Fallback::Forbid) else { return };
    assert_eq!(bench.read(0, 40 * UNIT, 0), 40 * UNIT as u64);
    let error = bench.file.read_at(&mut bench.buffer, 0..UNIT, 1).unwrap_err();
    assert_eq!(error.kind(), hipfile::ErrorKind::IONotSupported);
    bench.knobs.fail_next(0, 5008);
    let error = bench.file.read_at(&mut bench.buffer, 0..UNIT, 0).unwrap_err();
    assert!(error.to_string().contains("libcufile answers -5008"), "{error}");
    bench.knobs.most.store(3 * UNIT as i64, Ordering::SeqCst);
    assert_eq!(bench.file.read_at(&mut bench.buffer, 0..8 * UNIT, 0).unwrap(), 3 * UNIT, "the prefix moved");
}

#[test]
fn a_libcufile_that_would_stage_itself_does_not_serve() {
    let cases: [(&str, Change); 3] = [
        ("compat", |knobs| knobs.control.store(1 << 1, Ordering::SeqCst)),
        ("nothing", |knobs| knobs.status.store(0, Ordering::SeqCst)),
        ("closed", |knobs| knobs.open_error.store(5001, Ordering::SeqCst)),
    ];
    for (what, set) in cases {
        let Some(mut bench) = bench(8 * UNIT, |_, knobs| {
            reset(knobs);
            set(knobs);
        }) else {
            return;
        };
        assert_eq!(bench.read(0, 8 * UNIT, 0), 0, "{what}");
        assert_eq!(bench.reasons(), [Reason::NoGds], "{what}");
        let info = bench.driver.file_info(bench.file.id()).unwrap();
        assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::NoGds)), "{what}");
        assert_eq!(get(&bench.knobs.registers), 0);
    }
}

/// As the stand-in is at first.
fn reset(knobs: &Knobs) {
    knobs.control.store(0, Ordering::SeqCst);
    knobs.status.store(1 << 4, Ordering::SeqCst);
    knobs.open_error.store(0, Ordering::SeqCst);
}

#[test]
fn a_file_that_libcufile_does_not_take_is_staged() {
    let Some(mut bench) = bench(8 * UNIT, |_, knobs| knobs.register_error.store(5030, Ordering::SeqCst))
    else {
        return;
    };
    assert_eq!(bench.read(0, 8 * UNIT, 0), 0);
    assert_eq!(bench.reasons(), [Reason::Refused]);
    assert_eq!((get(&bench.knobs.reads), get(&bench.knobs.opens)), (0, 1));
}

#[test]
fn held_streams_do_not_call_libcufile() {
    let Some(mut bench) = bench(64 * UNIT, |_, _| {}) else { return };
    assert_eq!(bench.read(0, 64 * UNIT, 0), 64 * UNIT as u64);
    let calls = get(&bench.knobs.calls);
    let Bench { driver, file, buffer, content, knobs, .. } = bench;
    let (stream, file) = (Stream::new(&driver, 0).unwrap(), std::sync::Arc::new(file));
    let job = Job { op: Op::Read, file, file_offset: 0, buffer, range: 0..content.len() };
    let finished = stream.submit(job).map_err(|(error, _)| error).unwrap().wait();
    assert!(matches!(finished.status, hipfile::EventStatus::Complete(n) if n == content.len()));
    assert_eq!(get(&knobs.calls), calls);
    assert!(driver.stats().read_staged.iter().any(|staged| staged.reason == Reason::HeldStream));
}

#[test]
fn handles_are_given_back_when_files_are_gone() {
    let Some(mut bench) = bench(8 * UNIT, |_, _| {}) else { return };
    for round in 1..4 {
        assert_eq!(bench.read(0, 8 * UNIT, 0), 8 * UNIT as u64);
        assert_eq!((get(&bench.knobs.registers), get(&bench.knobs.deregisters)), (round, round - 1));
        let open = std::fs::File::options().read(true).write(true).open(bench.storage.path("f")).unwrap();
        bench.file = File::register(&bench.driver, open).unwrap();
    }
}

/// The library is the process's and goes by numbers of descriptors, which the next driver has again.
#[test]
fn a_driver_that_comes_after_another_goes_by_libcufile_too() {
    let Some(bench) = bench(8 * UNIT, |_, _| {}) else { return };
    let Bench { driver, file, buffer, knobs, storage, .. } = bench;
    drop((file, buffer, driver));
    for round in 1..4 {
        let driver = driver_with(ENGINES, |config| config.device = DeviceChoice::EmulatedCuda);
        let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
        let file = File::register(&driver, open).unwrap();
        let mut buffer = Buffer::alloc(&driver, 0, 8 * UNIT).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0..8 * UNIT, 0).unwrap(), 8 * UNIT);
        assert_eq!(driver.file_info(file.id()).unwrap().engine, "cufile");
        assert_eq!((get(&knobs.registers), get(&knobs.deregisters)), (round, round - 1));
    }
}

/// Before the call, what is queued on the default stream is done: the library knows nothing of it.
#[test]
fn transfers_by_libcufile_are_ordered_as_blocking_copies_are() {
    let Some(mut bench) = bench(8 * UNIT, |_, _| {}) else { return };
    bench.read(0, 8 * UNIT, 0);
    let waits = || hip_emu::fault::calls("hipStreamSynchronize");
    let before = waits();
    bench.read(0, 8 * UNIT, 0);
    assert!(waits() > before, "it waits for the default stream");
}

/// Random operations against a model, by libcufile as far as it takes them: whole, or in parts of which the rest is staged.
fn model(door: Door, most: i64) {
    let storage = Storage::here();
    let Some(knobs) = stand_in(&storage) else { return };
    knobs.most.store(most, Ordering::SeqCst);
    let change = |config: &mut Config| {
        config.device = DeviceChoice::EmulatedCuda;
        false
    };
    model::run(&Row { engines: ENGINES, change, door }, Storage::here());
    assert!(get(&knobs.reads) > 0 && get(&knobs.writes) > 0, "it went by libcufile too");
    assert!(get(&knobs.registers) > 1 && get(&knobs.registers) <= get(&knobs.deregisters) + 2);
}

#[test]
fn model_cufile() {
    model(Door::Calls, -1);
}

#[test]
fn model_cufile_in_parts() {
    model(Door::Calls, 4 * UNIT as i64);
}

#[test]
fn model_cufile_batch() {
    model(Door::Batches, 16 * UNIT as i64);
}
