//! HIP's runtime compiler, as hipfile uses it: one source in, code for the current GPU out. It loads no code.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::library::Library;
use crate::table::function_table;

/// `hiprtcResult`: 0 is success.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtcResult(pub c_int);

/// `hiprtcProgram`.
pub type RtcProgram = *mut c_void;

function_table! {
    /// The functions of hiprtc that hipfile calls.
    pub struct RtcApi;
    required {
        fn hiprtcCreateProgram(
            program: *mut RtcProgram, source: *const c_char, name: *const c_char, headers: c_int,
            header_texts: *const *const c_char, header_names: *const *const c_char,
        ) -> RtcResult;
        fn hiprtcCompileProgram(program: RtcProgram, count: c_int, options: *const *const c_char) -> RtcResult;
        fn hiprtcGetCodeSize(program: RtcProgram, size: *mut usize) -> RtcResult;
        fn hiprtcGetCode(program: RtcProgram, code: *mut c_char) -> RtcResult;
        fn hiprtcDestroyProgram(program: *mut RtcProgram) -> RtcResult;
    }
    optional {}
}

const SONAMES: &[&CStr] = &[c"libhiprtc.so.7", c"libhiprtc.so.6", c"libhiprtc.so"];

/// The compiler: the process's own, else one the dynamic loader finds, else (before HIP 7) the runtime's own.
///
/// # Errors
/// What was not found.
pub fn load(runtime: Option<Library>) -> Result<RtcApi, String> {
    let loaded = SONAMES.iter().find_map(|name| Library::already_loaded(name));
    let library = loaded.or_else(|| SONAMES.iter().find_map(|name| Library::open(name).ok())).or(runtime);
    let library = library.ok_or("libhiprtc.so is not installed")?;
    // SAFETY: the library is a HIP runtime compiler by its name; its prototypes are those of ROCm 6 and newer; it is
    // never closed.
    unsafe { RtcApi::from_resolver(|name| library.symbol(name)) }
        .map_err(|name| format!("the runtime compiler has no {name}"))
}

/// Compiles a source for the current GPU.
///
/// # Errors
/// The function that failed, and its number.
pub fn compile(api: &RtcApi, source: &CStr) -> Result<Vec<u8>, String> {
    let check = |what: &str, result: RtcResult| match result {
        RtcResult(0) => Ok(()),
        RtcResult(number) => Err(format!("{what} answers {number}")),
    };
    let mut program: RtcProgram = core::ptr::null_mut();
    let (none, name) = (core::ptr::null(), c"hipfile.hip".as_ptr());
    // SAFETY: `program` is writable, the texts end in NUL, and there are no headers.
    let made = unsafe { (api.hiprtcCreateProgram)(&raw mut program, source.as_ptr(), name, 0, none, none) };
    check("hiprtcCreateProgram", made)?;
    // SAFETY: the program was just made; no options.
    let compiled = check("hiprtcCompileProgram", unsafe { (api.hiprtcCompileProgram)(program, 0, none) });
    let code = compiled.and_then(|()| {
        let mut size = 0;
        // SAFETY: the program was compiled; `size` is writable.
        check("hiprtcGetCodeSize", unsafe { (api.hiprtcGetCodeSize)(program, &raw mut size) })?;
        let mut code = vec![0_u8; size];
        // SAFETY: the buffer is as long as was said.
        check("hiprtcGetCode", unsafe { (api.hiprtcGetCode)(program, code.as_mut_ptr().cast()) })?;
        Ok(code)
    });
    // SAFETY: the program is destroyed once. A failure leaves nothing to be done.
    let _ = unsafe { (api.hiprtcDestroyProgram)(&raw mut program) };
    code
}
