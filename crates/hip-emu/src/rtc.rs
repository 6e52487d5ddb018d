//! The runtime compiler, which compiles one program: anything that speaks of the late-length copy. It needs no device, and
//! knows no HIP state but its faults and counters.

use core::ffi::{c_char, c_int};
use std::sync::{Arc, LazyLock, Mutex};

use crate::fault::{self, Fault};
use crate::function::Function;
use crate::handles::Handles;
use crate::lock::lock;
use crate::module::{self, COPY_LATE};
use crate::types::{RtcProgramPtr, RtcResult};

const SUCCESS: RtcResult = RtcResult(0);
const INVALID_INPUT: RtcResult = RtcResult(3);
const INVALID_PROGRAM: RtcResult = RtcResult(4);
const COMPILATION: RtcResult = RtcResult(6);

/// A program, before and after it was compiled.
#[derive(Debug)]
struct Program {
    source: Vec<u8>,
    outcome: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    code: Option<Vec<u8>>,
    /// Without its NUL.
    log: String,
}

static PROGRAMS: LazyLock<Handles<Program>> = LazyLock::new(Handles::default);

fn call(function: Function, body: impl FnOnce() -> Result<(), RtcResult>) -> RtcResult {
    // The faults of the environment come in force with the machine; that there may be none is of no concern here.
    let _ = crate::state::get();
    match fault::hit(function) {
        Some(Fault::Error(code)) => RtcResult(code.0),
        _ => body().err().unwrap_or(SUCCESS),
    }
}

fn of(program: RtcProgramPtr) -> Result<Arc<Program>, RtcResult> {
    PROGRAMS.get(program as usize).ok_or(INVALID_PROGRAM)
}

unsafe fn put<T>(to: *mut T, value: T) -> Result<(), RtcResult> {
    // SAFETY: this function's callers vouch for `to`.
    unsafe { crate::call::put(to, value) }.map_err(|_| INVALID_INPUT)
}

/// Writes bytes to a buffer whose size the caller asked for before.
unsafe fn put_bytes(to: *mut c_char, bytes: &[u8]) -> Result<(), RtcResult> {
    if to.is_null() {
        return Err(INVALID_INPUT);
    }
    // SAFETY: this function's callers vouch for the buffer.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().cast::<c_char>(), to, bytes.len()) };
    Ok(())
}

/// The compiler's version, 9.0 as ROCm's.
///
/// # Safety
/// `major` and `minor` are null or may be written to.
pub unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> RtcResult {
    call(Function::hiprtcVersion, || {
        // SAFETY: as this function demands.
        unsafe { put(major, 9) }?;
        // SAFETY: as this function demands.
        unsafe { put(minor, 0) }
    })
}

/// The name of a result. Never null; the strings are static.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hiprtcGetErrorString(result: RtcResult) -> *const c_char {
    match result {
        SUCCESS => c"HIPRTC_SUCCESS",
        RtcResult(1) => c"HIPRTC_ERROR_OUT_OF_MEMORY",
        RtcResult(2) => c"HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
        INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        RtcResult(5) => c"HIPRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"HIPRTC_ERROR_COMPILATION",
        RtcResult(11) => c"HIPRTC_ERROR_INTERNAL_ERROR",
        _ => c"HIPRTC_ERROR_UNKNOWN",
    }
    .as_ptr()
}

/// Makes a program of a source. Headers are not looked at.
///
/// # Safety
/// `program` is null or may be written to; `source` is null or a NUL-terminated string.
pub unsafe extern "C" fn hiprtcCreateProgram(
    program: *mut RtcProgramPtr,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _header_texts: *const *const c_char,
    _header_names: *const *const c_char,
) -> RtcResult {
    call(Function::hiprtcCreateProgram, || {
        if program.is_null() || headers < 0 {
            return Err(INVALID_INPUT);
        }
        // SAFETY: as this function demands.
        let source = unsafe { crate::call::text(source) }.map_err(|_| INVALID_INPUT)?.to_bytes().to_vec();
        let handle = PROGRAMS.insert(Arc::new(Program { source, outcome: Mutex::default() }));
        // SAFETY: as this function demands.
        unsafe { put(program, handle as RtcProgramPtr) }
    })
}

/// Compiles a program. Options are not looked at.
///
/// # Errors
/// HIPRTC_ERROR_COMPILATION, and a log, unless the source has the name of the one kernel in it.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hiprtcCompileProgram(
    program: RtcProgramPtr,
    count: c_int,
    _options: *const *const c_char,
) -> RtcResult {
    call(Function::hiprtcCompileProgram, || {
        let program = of(program)?;
        if count < 0 {
            return Err(INVALID_INPUT);
        }
        let mut outcome = lock(&program.outcome);
        let name = COPY_LATE.as_bytes();
        if program.source.windows(name.len()).any(|window| window == name) {
            *outcome = Outcome { code: Some(module::blob()), log: String::new() };
            return Ok(());
        }
        let log = format!("error: the emulated GPU compiles only a program with the kernel {COPY_LATE}\n");
        *outcome = Outcome { code: None, log };
        Err(COMPILATION)
    })
}

/// Bytes of the compiled code.
///
/// # Safety
/// `size` is null or may be written to.
pub unsafe extern "C" fn hiprtcGetCodeSize(program: RtcProgramPtr, size: *mut usize) -> RtcResult {
    call(Function::hiprtcGetCodeSize, || {
        let program = of(program)?;
        let len = lock(&program.outcome).code.as_ref().ok_or(INVALID_PROGRAM)?.len();
        // SAFETY: as this function demands.
        unsafe { put(size, len) }
    })
}

/// The compiled code.
///
/// # Safety
/// `code` is null or has room for the bytes that [`hiprtcGetCodeSize`] says.
pub unsafe extern "C" fn hiprtcGetCode(program: RtcProgramPtr, code: *mut c_char) -> RtcResult {
    call(Function::hiprtcGetCode, || {
        let program = of(program)?;
        let outcome = lock(&program.outcome);
        // SAFETY: as this function demands.
        unsafe { put_bytes(code, outcome.code.as_ref().ok_or(INVALID_PROGRAM)?) }
    })
}

/// Bytes of the compiler's log, its NUL included.
///
/// # Safety
/// `size` is null or may be written to.
pub unsafe extern "C" fn hiprtcGetProgramLogSize(program: RtcProgramPtr, size: *mut usize) -> RtcResult {
    call(Function::hiprtcGetProgramLogSize, || {
        let len = lock(&of(program)?.outcome).log.len() + 1;
        // SAFETY: as this function demands.
        unsafe { put(size, len) }
    })
}

/// The compiler's log.
///
/// # Safety
/// `log` is null or has room for the bytes that [`hiprtcGetProgramLogSize`] says.
pub unsafe extern "C" fn hiprtcGetProgramLog(program: RtcProgramPtr, log: *mut c_char) -> RtcResult {
    call(Function::hiprtcGetProgramLog, || {
        let text = format!("{}\0", lock(&of(program)?.outcome).log);
        // SAFETY: as this function demands.
        unsafe { put_bytes(log, text.as_bytes()) }
    })
}

/// Destroys a program and makes its handle null.
///
/// # Safety
/// `program` is null or leads to a handle and may be written to.
pub unsafe extern "C" fn hiprtcDestroyProgram(program: *mut RtcProgramPtr) -> RtcResult {
    call(Function::hiprtcDestroyProgram, || {
        if program.is_null() {
            return Err(INVALID_INPUT);
        }
        // SAFETY: as this function demands.
        let handle = unsafe { program.read() };
        PROGRAMS.remove(handle as usize).ok_or(INVALID_PROGRAM)?;
        // SAFETY: as this function demands.
        unsafe { put(program, core::ptr::null_mut()) }
    })
}
