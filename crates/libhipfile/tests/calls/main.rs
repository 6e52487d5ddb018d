//! The C functions, called from Rust in one process with the built-in emulated GPU: codes, their order, the use count,
//! errno, faults of the runtime, first use by many threads, fork. What only a C program can show is in `tests/c`.
//!
//! The driver is the process's, so each test needs a process of its own: run with `cargo nextest run`.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod batch;
mod buffers;
mod driver;
mod fork;
mod handles;
mod io;
mod last_error;
mod log;
mod params;
mod stats;
mod streams;
mod streams_many;
mod threads;

use core::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;

use gpu_sys::hip::{HipError, MEMCPY_DEVICE_TO_HOST, MEMCPY_HOST_TO_DEVICE};
use hipfile_c::abi::*;
use hipfile_c::*;

/// Prepares the process for the emulated GPU. Every test begins with it.
fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[allow(clippy::disallowed_methods, reason = "asks the test runner, not the user")]
        let runner = std::env::var_os("NEXTEST");
        assert!(runner.is_some(), "these tests need a process each: run them with cargo nextest");
        // SAFETY: the test has just begun, and no other thread of the process reads the environment.
        unsafe { std::env::set_var("HIPFILE_DEVICE", "emulated") };
        // SAFETY: as above.
        unsafe { std::env::set_var("HIP_EMU_MEMORY", "256M") };
    });
}

/// Ends the process, saying where it hangs, unless the test is over by then.
fn watchdog(patience: std::time::Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        abort_with_threads();
    });
}

/// Says where each thread waits.
#[allow(clippy::print_stderr, reason = "says where a test hangs")]
fn abort_with_threads() -> ! {
    eprintln!("WATCHDOG: the test hangs; threads and where they wait:");
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        eprintln!("  {} {} {}", read("comm").trim(), read("wchan").trim(), read("syscall").trim());
    }
    std::process::abort();
}

/// The code, after checking that it comes without one of the runtime.
#[track_caller]
fn code(answer: hipFileError_t) -> hipFileOpError_t {
    assert_eq!(answer.hip_drv_err, hipSuccess, "{}", answer.err.0);
    answer.err
}

#[track_caller]
fn ok(answer: hipFileError_t) {
    assert_eq!(code(answer), hipFileSuccess);
}

/// Registers a descriptor.
fn register(fd: RawFd) -> Result<hipFileHandle_t, hipFileOpError_t> {
    let mut handle = core::ptr::null_mut();
    let mut description = describe(hipFileHandleTypeOpaqueFD, fd);
    // SAFETY: both point to values that live during the call.
    let answer = unsafe { hipFileHandleRegister(&raw mut handle, &raw mut description) };
    let status = code(answer);
    if status == hipFileSuccess {
        assert!(!handle.is_null());
        return Ok(handle);
    }
    assert!(handle.is_null(), "the handle is left alone on failure");
    Err(status)
}

/// A description whose `fs_ops` is garbage: nobody may look at it.
fn describe(kind: hipFileFileHandleType_t, fd: c_int) -> hipFileDescr_t {
    let fs_ops = core::ptr::without_provenance(0xdead_beef);
    hipFileDescr_t { r#type: kind, handle: hipFileDescr_handle { fd }, fs_ops }
}

/// Registers memory.
fn register_memory(start: *const c_void, len: usize) -> hipFileError_t {
    // SAFETY: the tests free no memory that is registered; the pointer is not dereferenced.
    unsafe { hipFileBufRegister(start, len, 0) }
}

/// Reads, with errno set to a mark before; the result and errno.
fn read(
    fh: hipFileHandle_t,
    to: *mut c_void,
    size: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> (isize, c_int) {
    set_errno(MARK);
    // SAFETY: the tests give device memory that stays allocated, or none that is ever touched.
    let n = unsafe { hipFileRead(fh, to, size, file_offset, buffer_offset) };
    (n, errno())
}

/// Writes; as [`read`].
fn write(
    fh: hipFileHandle_t,
    from: *const c_void,
    size: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> (isize, c_int) {
    set_errno(MARK);
    // SAFETY: the tests give device memory that stays allocated, or none that is ever touched.
    let n = unsafe { hipFileWrite(fh, from, size, file_offset, buffer_offset) };
    (n, errno())
}

/// An errno that no call gives.
const MARK: c_int = 4242;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn set_errno(value: c_int) {
    // SAFETY: it returns the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid and aligned.
    unsafe { place.write(value) };
}

/// A temporary file with these bytes.
fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    file
}

/// A registered temporary file.
fn registered_file(bytes: &[u8]) -> (std::fs::File, hipFileHandle_t) {
    let file = file(bytes);
    let handle = register(file.as_raw_fd()).unwrap();
    (file, handle)
}

/// Memory of the emulated GPU, allocated through its HIP interface as a program would. Never freed: the process is short.
struct Device {
    start: *mut c_void,
    len: usize,
}

impl Device {
    /// Filled with `byte`.
    fn new(len: usize, byte: u8) -> Device {
        let mut start = core::ptr::null_mut();
        // SAFETY: `start` may be written to.
        let answer = unsafe { (hip_emu::api().hipMalloc)(&raw mut start, len) };
        assert_eq!(answer, HipError::SUCCESS);
        let device = Device { start, len };
        device.put(&vec![byte; len]);
        device
    }

    fn at(&self, offset: usize) -> *mut c_void {
        self.start.wrapping_byte_add(offset)
    }

    fn put(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        let from = bytes.as_ptr().cast();
        // SAFETY: `bytes` and the device memory hold as many bytes.
        let answer =
            unsafe { (hip_emu::api().hipMemcpy)(self.start, from, bytes.len(), MEMCPY_HOST_TO_DEVICE) };
        assert_eq!(answer, HipError::SUCCESS);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.len];
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: `bytes` and the device memory hold as many bytes.
        let answer = unsafe { (hip_emu::api().hipMemcpy)(to, self.start, self.len, MEMCPY_DEVICE_TO_HOST) };
        assert_eq!(answer, HipError::SUCCESS);
        bytes
    }
}
