//! Modules, the one kernel, and the compiler that makes it.

use core::ffi::{c_char, c_void};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;

use gpu_sys::hip::{FunctionPtr, HipApi, HipError, ModulePtr, STREAM_NON_BLOCKING, StreamPtr};
use hip_emu::module::{COPY_LATE, blob};
use hip_emu::rtc::*;
use hip_emu::types::{RtcProgramPtr, RtcResult};

use crate::support::*;

fn load(api: &HipApi, image: &[u8]) -> Result<ModulePtr, HipError> {
    let mut module = core::ptr::null_mut();
    // SAFETY: the image is readable to its end, which is a NUL.
    unsafe { api.hipModuleLoadData.unwrap()(&raw mut module, image.as_ptr().cast()) }.ok()?;
    Ok(module)
}

fn kernel(api: &HipApi) -> FunctionPtr {
    let module = load(api, &blob()).expect("the one code object");
    let mut function = core::ptr::null_mut();
    ok!(api.hipModuleGetFunction.unwrap()(&raw mut function, module, c"hipfile_copy_late".as_ptr()));
    function
}

/// Launches the kernel; `by_buffer` chooses between HIP's two ways to pass arguments.
fn launch(
    api: &HipApi,
    kernel: FunctionPtr,
    mut late: usize,
    stream: StreamPtr,
    by_buffer: bool,
) -> HipError {
    let mut size = size_of_val(&late);
    let at = &raw mut late;
    let mut params: [*mut c_void; 1] = [at.cast()];
    let key = core::ptr::without_provenance_mut;
    let mut extra: [*mut c_void; 5] = [key(1), at.cast(), key(2), (&raw mut size).cast(), key(3)];
    let (params, extra) = if by_buffer {
        (core::ptr::null_mut(), extra.as_mut_ptr())
    } else {
        (params.as_mut_ptr(), core::ptr::null_mut())
    };
    let launch = api.hipModuleLaunchKernel.unwrap();
    // SAFETY: both lists are complete; what the arguments lead to is the caller's.
    unsafe { launch(kernel, 1, 1, 1, 256, 1, 1, 0, stream, params, extra) }
}

/// The words in memory that the GPU reads: what it copies, and nowhere to tell.
fn words(api: &HipApi, [to, from, len]: [usize; 3]) -> usize {
    let late = pinned(api, 40);
    for (bytes, word) in late.chunks_mut(8).zip([to, from, len, 0, 0]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    late.as_mut_ptr().expose_provenance()
}

/// Changes the third word.
fn set_len(late: usize, len: usize) {
    let word = core::ptr::with_exposed_provenance_mut::<u64>(late + 16);
    // SAFETY: the third of the words above, which live as long as the process; only atomics use it now.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(word) }.store(len as u64, Ordering::Release);
}

#[test]
fn the_words_are_read_when_the_kernel_runs() {
    let api = own();
    let (kernel, stream) = (kernel(api), stream(api, STREAM_NON_BLOCKING));
    let device = malloc(api, 100);
    let source = pinned(api, 100);
    source.fill(8);
    for (by_buffer, late) in [(false, 60), (true, 0), (true, 100)] {
        let gate = word(api);
        ok!((api.hipMemset)(device, 0, 100));
        let late_words = words(api, [device.addr(), source.as_ptr().expose_provenance(), 30]);
        hold(api, stream, gate);
        assert_eq!(launch(api, kernel, late_words, stream, by_buffer), HipError::SUCCESS);
        assert_held(api, stream);
        set_len(late_words, late);
        release(gate);
        ok!((api.hipStreamSynchronize)(stream));
        let expected = [vec![8; late], vec![0; 100 - late]].concat();
        assert_eq!(read(api, device, 100), expected);
    }
    // It tells that it has begun, also if there is nothing to copy.
    for len in [0, 1] {
        let (told, late) = (word(api), words(api, [device.addr(), source.as_ptr().expose_provenance(), len]));
        for (at, value) in [(24, core::ptr::from_ref(told).expose_provenance()), (32, 77)] {
            let word = core::ptr::with_exposed_provenance_mut::<u64>(late + at);
            // SAFETY: two of the words above, which nobody uses yet.
            unsafe { word.write(value as u64) };
        }
        assert_eq!(launch(api, kernel, late, stream, false), HipError::SUCCESS);
        ok!((api.hipStreamSynchronize)(stream));
        assert_eq!(told.load(Ordering::Acquire), 77);
    }
    // On a clear stream it is done at once.
    let target = pinned(api, 100);
    let late_words = words(api, [target.as_mut_ptr().expose_provenance(), device.addr(), 5]);
    assert_eq!(launch(api, kernel, late_words, stream, false), HipError::SUCCESS);
    ok!((api.hipStreamSynchronize)(stream));
    assert_eq!(target[..6], [8, 8, 8, 8, 8, 0]);
    free(api, device);
}

#[test]
fn other_code_objects_kernels_and_launches_are_refused() {
    let api = hip();
    for image in [b"\x7fELF and so on\0".as_slice(), b"__CLANG_OFFLOAD_BUNDLE__\0", b"HIPEMU01other\0", b"\0"]
    {
        assert_eq!(load(api, image), Err(HipError::NO_BINARY_FOR_GPU));
    }
    let mut module = core::ptr::null_mut();
    gives!(INVALID_VALUE, api.hipModuleLoadData.unwrap()(&raw mut module, core::ptr::null()));
    let module = load(api, &blob()).unwrap();
    let mut function = core::ptr::null_mut();
    let get = api.hipModuleGetFunction.unwrap();
    gives!(NOT_FOUND, get(&raw mut function, module, c"other".as_ptr()));
    gives!(INVALID_VALUE, get(&raw mut function, module, core::ptr::null()));
    let kernel = kernel(api);
    let launch = api.hipModuleLaunchKernel.unwrap();
    let none = core::ptr::null_mut();
    gives!(INVALID_VALUE, launch(kernel, 0, 1, 1, 1, 1, 1, 0, NULL, none, none));
    gives!(INVALID_VALUE, launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, none, none));
    gives!(INVALID_CONFIGURATION, launch(kernel, 1, 1, 1, 1024, 2, 1, 0, NULL, none, none));
    gives!(INVALID_HANDLE, launch(module.cast(), 1, 1, 1, 1, 1, 1, 0, NULL, none, none));
    let unload = api.hipModuleUnload.unwrap();
    ok!(unload(module));
    gives!(INVALID_HANDLE, unload(module));
    gives!(INVALID_HANDLE, get(&raw mut function, module, c"hipfile_copy_late".as_ptr()));
}

#[test]
fn loading_waits_for_held_streams() {
    let api = own();
    let (stream, word) = (stream(api, STREAM_NON_BLOCKING), word(api));
    hold(api, stream, word);
    assert_waits(api, word, || _ = load(api, &blob()));
}

#[test]
fn a_kernel_that_leaves_its_memory_ends_the_process() {
    let output = child("kernels::child_with_a_memory_fault", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("memory access fault") && said.contains("its destination"), "{said}");
}

#[test]
#[ignore = "ends its process: run by a_kernel_that_leaves_its_memory_ends_the_process"]
fn child_with_a_memory_fault() {
    let api = hip_emu::api();
    let (kernel, device) = (kernel(api), malloc(api, 100));
    let source = pinned(api, 200);
    let late = words(api, [device.addr(), source.as_ptr().expose_provenance(), 101]);
    launch(api, kernel, late, NULL, false);
    ok!((api.hipStreamSynchronize)(NULL));
}

fn compile(source: &core::ffi::CStr) -> (RtcProgramPtr, RtcResult) {
    let mut program = core::ptr::null_mut();
    let none = core::ptr::null();
    // SAFETY: the source is a C string, the rest is empty.
    let made =
        unsafe { hiprtcCreateProgram(&raw mut program, source.as_ptr(), none, 0, none.cast(), none.cast()) };
    assert_eq!(made, RtcResult(0));
    // SAFETY: without options.
    (program, unsafe { hiprtcCompileProgram(program, 0, none.cast()) })
}

#[test]
fn the_compiler_compiles_the_one_program() {
    let api = hip();
    let (mut program, result) = compile(c"extern \"C\" __global__ void hipfile_copy_late(void *d) {}");
    assert_eq!(result, RtcResult(0));
    let mut size = 0;
    // SAFETY: the variable is valid.
    assert_eq!(unsafe { hiprtcGetCodeSize(program, &raw mut size) }, RtcResult(0));
    let mut code = vec![0u8; size];
    // SAFETY: the buffer has the size asked for.
    assert_eq!(unsafe { hiprtcGetCode(program, code.as_mut_ptr().cast()) }, RtcResult(0));
    assert!(load(api, &code).is_ok());
    assert!(code.windows(COPY_LATE.len()).any(|window| window == COPY_LATE.as_bytes()));
    // SAFETY: the handle is valid and becomes null.
    assert_eq!(unsafe { hiprtcDestroyProgram(&raw mut program) }, RtcResult(0));
    assert!(program.is_null());
    // SAFETY: a null handle is refused.
    assert_eq!(unsafe { hiprtcDestroyProgram(&raw mut program) }, RtcResult(4));
}

#[test]
fn the_compiler_says_what_it_does_not_compile() {
    let (program, result) = compile(c"extern \"C\" __global__ void other() {}");
    assert_eq!(result, RtcResult(6));
    let mut size = 0;
    // SAFETY: the variable is valid.
    assert_eq!(unsafe { hiprtcGetProgramLogSize(program, &raw mut size) }, RtcResult(0));
    let mut log = vec![0 as c_char; size];
    // SAFETY: the buffer has the size asked for.
    assert_eq!(unsafe { hiprtcGetProgramLog(program, log.as_mut_ptr()) }, RtcResult(0));
    // SAFETY: the log ends in NUL.
    let log = unsafe { core::ffi::CStr::from_ptr(log.as_ptr()) }.to_string_lossy();
    assert!(log.contains(COPY_LATE), "{log}");
    // SAFETY: the variable is valid.
    assert_eq!(unsafe { hiprtcGetCodeSize(program, &raw mut size) }, RtcResult(4));
}
