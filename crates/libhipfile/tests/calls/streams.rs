//! Operations on streams: codes and their order, registrations, what arrives in the caller's variables. The bytes are the
//! business of the core's own tests.

use std::sync::atomic::{AtomicU64, Ordering};

use hip_emu::fault::{self, When};

use super::*;

const LEN: usize = 65536;
const NULL: hipStream_t = core::ptr::null_mut();

/// Prepares the process; what hangs is said to.
fn begin() {
    start();
    watchdog(std::time::Duration::from_secs(120));
}

/// The variables of an operation.
struct Variables {
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
    bytes: isize,
}

impl Variables {
    fn new(size: usize, file_offset: hoff_t, buffer_offset: hoff_t) -> Variables {
        Variables { size, file_offset, buffer_offset, bytes: 77 }
    }

    fn read(&mut self, fh: hipFileHandle_t, buffer: *mut c_void) -> hipFileError_t {
        self.read_on(fh, buffer, NULL)
    }

    fn read_on(&mut self, fh: hipFileHandle_t, buffer: *mut c_void, stream: hipStream_t) -> hipFileError_t {
        let (size, bytes) = (&raw mut self.size, &raw mut self.bytes);
        let (at, offset) = (&raw mut self.file_offset, &raw mut self.buffer_offset);
        // SAFETY: the tests wait for the stream before the variables go.
        unsafe { hipFileReadAsync(fh, buffer, size, at, offset, bytes, stream) }
    }

    fn write_on(&mut self, fh: hipFileHandle_t, buffer: *mut c_void, stream: hipStream_t) -> hipFileError_t {
        let (size, bytes) = (&raw mut self.size, &raw mut self.bytes);
        let (at, offset) = (&raw mut self.file_offset, &raw mut self.buffer_offset);
        // SAFETY: the tests wait for the stream before the variables go.
        unsafe { hipFileWriteAsync(fh, buffer, size, at, offset, bytes, stream) }
    }
}

fn wait() {
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipStreamSynchronize)(core::ptr::null_mut()) }, HipError::SUCCESS);
}

#[test]
fn a_closed_driver_is_opened_and_the_call_refused() {
    begin();
    let mut one = Variables::new(1, 0, 0);
    assert_eq!(code(one.read(core::ptr::null_mut(), core::ptr::null_mut())), hipFileInvalidValue);
    assert_eq!((hipFileUseCount(), one.bytes), (1, 77));
}

#[test]
fn the_checks_of_an_operation_come_in_order() {
    begin();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    let (host, unknown) = ([0u8; 16], core::ptr::null_mut());
    let host: *mut c_void = host.as_ptr().cast_mut().cast();
    let mut bad = Variables::new(LEN + 1, -1, -1);
    // SAFETY: null is what is refused.
    let nulls = unsafe {
        let null = core::ptr::null_mut();
        hipFileReadAsync(
            handle,
            device.start,
            null,
            core::ptr::null_mut(),
            core::ptr::null_mut(),
            &raw mut bad.bytes,
            NULL,
        )
    };
    assert_eq!(code(nulls), hipFileInvalidValue);
    assert_eq!(code(bad.read(unknown, core::ptr::null_mut())), hipFileInvalidValue);
    assert_eq!(code(bad.read(unknown, host)), hipFileHandleNotRegistered);
    assert_eq!(code(bad.read(handle, host)), hipFileInternalError);
    for (size, file_offset, buffer_offset) in [(LEN + 1, 0, 0), (1, -1, 0), (1, 0, -1), (0, 0, LEN as hoff_t)]
    {
        let mut wrong = Variables::new(size, file_offset, buffer_offset);
        assert_eq!(code(wrong.read(handle, device.start)), hipFileInvalidValue);
        assert_eq!(wrong.bytes, 77, "a refused call leaves it");
    }
    let mut none = Variables::new(0, 0, 0);
    ok(none.read(handle, device.start));
    assert_eq!(none.bytes, 0);
    let mut some = Variables::new(100, 4, 9);
    ok(some.read(handle, device.start));
    wait();
    assert_eq!(some.bytes, 6);
    assert_eq!(&device.bytes()[9..15], b"456789");
}

#[test]
fn behaviour_82_a_result_is_a_count_or_minus_one_or_a_code() {
    begin();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(&[7; LEN]);
    let mut one = Variables::new(4096, 0, 0);
    for (errno, expected) in [(libc::EIO, -1), (libc::ENODEV, 4096)] {
        fault::inject("hipAmdFileRead", When::Every, hip_emu::fault::Fault::Status(errno)).unwrap();
        ok(one.read(handle, device.start));
        wait();
        let direct = fault::calls("hipAmdFileRead") > 0;
        fault::clear();
        assert_eq!(one.bytes, if direct { expected } else { 4096 }, "{errno}");
    }
}

#[test]
fn registrations_are_the_process_s() {
    begin();
    assert_eq!(code(hipFileStreamDeregister(NULL)), hipFileInvalidValue);
    // SAFETY: the default stream.
    let register = |flags| unsafe { hipFileStreamRegister(NULL, flags) };
    assert_eq!(code(register(0x10)), hipFileInvalidValue);
    ok(register(0xf));
    assert_eq!(hipFileUseCount(), 0, "no driver is opened");
    assert_eq!(code(register(0xf)), hipFileInvalidValue);
    ok(hipFileDriverOpen());
    ok(hipFileDriverClose());
    assert_eq!(code(register(0)), hipFileInvalidValue, "closing leaves it");
    ok(hipFileStreamDeregister(NULL));
    ok(register(0));
    let stream = stream();
    destroy(stream);
    // SAFETY: the emulation knows that the stream is gone.
    let gone = unsafe { hipFileStreamRegister(stream, 0) };
    assert_eq!(gone.err, hipFileHipDriverError);
    assert_ne!(gone.hip_drv_err, hipSuccess);
}

/// A stream that nothing orders against others.
fn stream() -> hipStream_t {
    let mut stream = core::ptr::null_mut();
    // SAFETY: `stream` is writable.
    let made = unsafe { (hip_emu::api().hipStreamCreateWithFlags)(&raw mut stream, 1) };
    assert_eq!(made, HipError::SUCCESS);
    stream.cast()
}

fn destroy(stream: hipStream_t) {
    // SAFETY: the handle is not used again but as a number.
    assert_eq!(unsafe { (hip_emu::api().hipStreamDestroy)(stream.cast()) }, HipError::SUCCESS);
}

fn await_stream(stream: hipStream_t) {
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipStreamSynchronize)(stream.cast()) }, HipError::SUCCESS);
}

/// Holds streams until it is opened; never freed.
struct Gate(&'static AtomicU64);

impl Gate {
    fn new() -> Gate {
        let mut at = core::ptr::null_mut();
        // SAFETY: `at` is writable.
        let made =
            unsafe { (hip_emu::api().hipHostMalloc)(&raw mut at, 64, gpu_sys::hip::HOST_MALLOC_MAPPED) };
        assert_eq!(made, HipError::SUCCESS);
        let word: *mut u64 = at.cast();
        // SAFETY: just allocated.
        unsafe { word.write(0) };
        // SAFETY: aligned, never freed, and used as an atomic only from here on.
        Gate(unsafe { AtomicU64::from_ptr(word) })
    }

    fn hold(&self, stream: hipStream_t) {
        self.0.store(0, Ordering::Release);
        let wait = hip_emu::api().hipStreamWaitValue64.unwrap();
        let flags = gpu_sys::hip::STREAM_WAIT_VALUE_GTE;
        // SAFETY: the word is pinned memory that lives as long as the process.
        let held = unsafe { wait(stream.cast(), self.0.as_ptr().cast(), 1, flags, u64::MAX) };
        assert_eq!(held, HipError::SUCCESS);
    }

    fn open(&self) {
        self.0.store(1, Ordering::Release);
    }
}

/// Size, file offset and buffer offset.
type Triple = (usize, hoff_t, hoff_t);

#[test]
fn behaviour_80_what_a_flag_fixes_is_not_read_again() {
    begin();
    let device = Device::new(LEN, 0);
    let content: Vec<u8> = (0..LEN).map(|i| (i / 256 + i) as u8).collect();
    let (_file, handle) = registered_file(&content);
    let gate = Gate::new();
    let cases: [(Triple, Triple); 7] = [
        ((8192, 0, 0), (4096, 0, 0)),
        ((8192, 0, 0), (8193, 0, 0)),
        ((8192, 0, 0), (8192, 0, 60_000)),
        ((8192, 4096, 0), (4000, 8192, 0)),
        ((8192, 0, 77), (5000, 0, 777)),
        ((8192, 1, 2), (6001, 12_345, 4097)),
        ((8192, 0, 0), (8192, -1, 0)),
    ];
    for flags in 0..=HIPFILE_STREAM_FLAGS_MASK {
        let stream = stream();
        // SAFETY: a stream of this test.
        ok(unsafe { hipFileStreamRegister(stream, flags) });
        for (first, late) in cases {
            let mut one = Variables::new(first.0, first.1, first.2);
            gate.hold(stream);
            ok(one.read_on(handle, device.start, stream));
            (one.size, one.file_offset, one.buffer_offset) = late;
            gate.open();
            await_stream(stream);
            let size = if flags & HIPFILE_STREAM_FIXED_FILE_SIZE != 0 { first.0 } else { late.0 };
            let at = if flags & HIPFILE_STREAM_FIXED_FILE_OFFSET != 0 { first.1 } else { late.1 };
            let to = if flags & HIPFILE_STREAM_FIXED_BUF_OFFSET != 0 { first.2 } else { late.2 };
            let good = size <= first.0 && at >= 0 && to as usize + size <= LEN;
            let what = format!("flags {flags:#x}: {first:?}, late {late:?}");
            assert_eq!(one.bytes, if good { size as isize } else { -5022 }, "{what}");
            if good {
                let (at, to) = (at as usize, to as usize);
                assert!(device.bytes()[to..to + size] == content[at..at + size], "{what}");
            }
        }
        ok(hipFileStreamDeregister(stream));
        destroy(stream);
    }
}

fn told(bytes: *const isize) -> (hipFileOpError_t, i32, String) {
    // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
    let mut info: hipFileExtErrorInfo_t = unsafe { core::mem::zeroed() };
    info.size = size_of_val(&info);
    // SAFETY: the stream has passed the operation; `info` is of the size it says.
    ok(unsafe { hipFileExtStreamError(bytes, &raw mut info) });
    // SAFETY: the library gave it: a C string that lives until the next call.
    let text = unsafe { core::ffi::CStr::from_ptr(info.text) };
    (info.err, info.os_error, text.to_str().unwrap().to_owned())
}

#[test]
fn behaviour_82_the_errno_of_each_operation_is_kept() {
    begin();
    let device = Device::new(LEN, 0);
    let writable = file(&[1; LEN]);
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", writable.as_raw_fd())).unwrap();
    let handle = register(read_only.as_raw_fd()).unwrap();
    let (stream, gate) = (stream(), Gate::new());
    // SAFETY: a stream of this test.
    ok(unsafe { hipFileStreamRegister(stream, 0) });
    let mut all: Vec<_> = (0..3).map(|_| Variables::new(4096, 0, 0)).collect();
    gate.hold(stream);
    ok(all[0].write_on(handle, device.start, stream));
    ok(all[1].read_on(handle, device.start, stream));
    ok(all[2].read_on(handle, device.start, stream));
    all[2].size = 4097;
    gate.open();
    await_stream(stream);
    assert_eq!(all.iter().map(|one| one.bytes).collect::<Vec<_>>(), [-1, 4096, -5022]);
    let (err, errno, text) = told(&raw const all[0].bytes);
    assert_eq!((err, errno), (hipFileSuccess, libc::EBADF));
    for part in ["hipFileWriteAsync", "write", "EBADF", "size 4096"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(told(&raw const all[1].bytes), (hipFileSuccess, 0, String::new()));
    let (err, errno, text) = told(&raw const all[2].bytes);
    assert_eq!((err, errno), (hipFileInvalidValue, 0));
    assert!(text.contains("hipFileReadAsync") && text.contains("4097"), "{text}");
    assert_eq!(text.matches("read: ").count(), 1, "{text}");
    let (stray, null) = (-1_isize, core::ptr::null_mut::<hipFileExtErrorInfo_t>());
    // SAFETY: a variable of this test, which no operation writes.
    assert_eq!(code(unsafe { hipFileExtStreamError(&raw const stray, null) }), hipFileInvalidValue);
    let mut info: hipFileExtErrorInfo_t = {
        // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
        unsafe { core::mem::zeroed() }
    };
    info.size = size_of_val(&info);
    // SAFETY: as above; `info` is of the size it says.
    assert_eq!(code(unsafe { hipFileExtStreamError(&raw const stray, &raw mut info) }), hipFileInvalidValue);
    // SAFETY: null is refused.
    assert_eq!(code(unsafe { hipFileExtStreamError(core::ptr::null(), &raw mut info) }), hipFileInvalidValue);
}

#[test]
fn behaviour_86_deregistering_destroying_and_closing_let_queued_work_finish() {
    begin();
    let device = Device::new(LEN, 0);
    let content: Vec<u8> = (0..LEN).map(|i| (i % 253) as u8).collect();
    for way in 0..3 {
        device.put(&vec![0; LEN]);
        let (_file, handle) = registered_file(&content);
        ok(register_memory(device.start, LEN));
        let (stream, gate) = (stream(), Gate::new());
        // SAFETY: a stream of this test.
        ok(unsafe { hipFileStreamRegister(stream, HIPFILE_STREAM_FLAGS_MASK) });
        let mut all: Vec<_> = (0..16).map(|i| Variables::new(4096, i * 4096, i * 4096)).collect();
        gate.hold(stream);
        for one in &mut all {
            ok(one.read_on(handle, device.start, stream));
            // Fixed, so they may go.
            (one.size, one.file_offset, one.buffer_offset) = (usize::MAX, -1, -1);
        }
        let busy = || code(hipFileBufDeregister(device.start));
        assert_eq!(busy(), hipFileInternalError, "in use");
        match way {
            0 => ok(hipFileStreamDeregister(stream)),
            1 => destroy(stream),
            _ => {
                while hipFileUseCount() > 0 {
                    ok(hipFileDriverClose());
                }
            }
        }
        gate.open();
        let start = std::time::Instant::now();
        // Destroyed, it cannot be waited for.
        while all.iter().any(|one| {
            // SAFETY: the variable lives; the runtime's thread writes it once, as an aligned word.
            let bytes = unsafe { (&raw const one.bytes).read_volatile() };
            bytes == 0
        }) {
            assert!(start.elapsed().as_secs() < 30, "way {way}: operations are lost");
            std::thread::yield_now();
        }
        assert!(all.iter().all(|one| one.bytes == 4096), "way {way}");
        assert!(device.bytes() == content, "way {way}");
        if way < 2 {
            // Who sees a result may do this at once.
            ok(hipFileBufDeregister(device.start));
            hipFileHandleDeregister(handle);
        }
        if way != 0 {
            ok(hipFileStreamDeregister(stream));
        }
    }
}

#[test]
fn a_captured_stream_is_refused() {
    begin();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(&[3; LEN]);
    let stream = stream();
    // SAFETY: a stream of this test.
    ok(unsafe { hipFileStreamRegister(stream, 0) });
    // SAFETY: a stream of this test; the mode is the global one.
    let began = unsafe { hip_emu::capture::hipStreamBeginCapture(stream.cast(), 0) };
    assert_eq!(began, HipError::SUCCESS);
    let mut one = Variables::new(4096, 0, 0);
    assert_eq!(code(one.read_on(handle, device.start, stream)), hipFileAsyncNotSupported);
    assert_eq!(code(one.write_on(handle, device.start, stream)), hipFileAsyncNotSupported);
    assert_eq!(one.bytes, 77);
    let mut graph = core::ptr::null_mut();
    // SAFETY: `graph` is writable.
    let ended = unsafe { hip_emu::capture::hipStreamEndCapture(stream.cast(), &raw mut graph) };
    assert_eq!(ended, HipError::SUCCESS, "the capture is as good as before");
    ok(one.read_on(handle, device.start, stream));
    await_stream(stream);
    assert_eq!(one.bytes, 4096);
}
