//! Programs that the emulated compiler makes, and functions that are found by name.

use core::ffi::{c_char, c_void};

use cubecl_hip_sys::*;
use gpu_sys::hip::{AmdFileFn, AmdFileHandle, HipError};

use super::{DeviceMemory, hip, in_client, ok, pattern};

/// Compiles a program; its code, or the compiler's log.
fn compile(source: &core::ffi::CStr) -> Result<Vec<u8>, String> {
    let mut program: hiprtcProgram = core::ptr::null_mut();
    let (name, none) = (c"program.hip".as_ptr(), core::ptr::null_mut());
    ok!(hiprtcCreateProgram(&raw mut program, source.as_ptr(), name, 0, none, none));
    let compiled = hip!(hiprtcCompileProgram(program, 0, none));
    let result = if compiled == hiprtcResult_HIPRTC_SUCCESS {
        let mut size = 0;
        ok!(hiprtcGetCodeSize(program, &raw mut size));
        let mut code = vec![0; size];
        ok!(hiprtcGetCode(program, code.as_mut_ptr().cast::<c_char>()));
        Ok(code)
    } else {
        assert_eq!(compiled, hiprtcResult_HIPRTC_ERROR_COMPILATION);
        let mut size = 0;
        ok!(hiprtcGetProgramLogSize(program, &raw mut size));
        let mut log = vec![0; size];
        ok!(hiprtcGetProgramLog(program, log.as_mut_ptr().cast::<c_char>()));
        assert_eq!(log.pop(), Some(0));
        Err(String::from_utf8(log).unwrap())
    };
    ok!(hiprtcDestroyProgram(&raw mut program));
    assert!(program.is_null());
    result
}

const COPY_LATE: &core::ffi::CStr = c"extern \"C\" __global__ void hipfile_copy_late(
    const unsigned long long *late) { /* the emulation knows it by name */ }";

#[test]
fn the_late_copy_compiles_loads_and_copies() {
    in_client("client::modules::the_late_copy_compiles_loads_and_copies", &[], || {
        let code = compile(COPY_LATE).unwrap();
        let (mut module, mut function) = (core::ptr::null_mut(), core::ptr::null_mut());
        ok!(hipModuleLoadData(&raw mut module, code.as_ptr().cast()));
        ok!(hipModuleGetFunction(&raw mut function, module, c"hipfile_copy_late".as_ptr()));
        let other = hip!(hipModuleGetFunction(&raw mut function, module, c"other".as_ptr()));
        assert_eq!(HipError(other), HipError::NOT_FOUND);
        ok!(hipModuleGetFunction(&raw mut function, module, c"hipfile_copy_late".as_ptr()));

        let mut stream = core::ptr::null_mut();
        ok!(hipStreamCreate(&raw mut stream));
        let mut pinned = core::ptr::null_mut();
        ok!(hipHostMalloc(&raw mut pinned, 8192, hipHostMallocMapped));
        let source = pattern(4096, 8);
        let kind = hipMemcpyKind_hipMemcpyHostToHost;
        ok!(hipMemcpy(pinned, source.as_ptr().cast(), 4096, kind));
        let memory = DeviceMemory::new(4096);
        ok!(hipMemset(memory.at, 0xEE, 4096));

        // The words are read when the stream gets there.
        let mut late = pinned.wrapping_byte_add(4096);
        let words = late.cast::<[u64; 5]>();
        // SAFETY: the words lie inside the pinned memory, are aligned, and nothing is queued yet that reads them.
        unsafe { words.write([memory.at.addr() as u64, pinned.addr() as u64, 0, 0, 0]) };
        ok!(hipStreamWriteValue64(stream, late.wrapping_byte_add(16), 1234, 0));
        let mut arguments: [*mut c_void; 1] = [(&raw mut late).cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), core::ptr::null_mut());
        ok!(hipModuleLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments, none));
        ok!(hipStreamSynchronize(stream));
        let mut expected = vec![0xEE; 4096];
        expected[..1234].copy_from_slice(&source[..1234]);
        assert!(memory.bytes() == expected);

        ok!(hipModuleUnload(module));
        ok!(hipHostFree(pinned));
        ok!(hipStreamDestroy(stream));
    });
}

#[test]
fn no_other_program_compiles_or_loads() {
    in_client("client::modules::no_other_program_compiles_or_loads", &[], || {
        let log = compile(c"extern \"C\" __global__ void other() {}").expect_err("it compiled");
        assert!(log.contains("hipfile_copy_late"), "{log}");
        let mut module = core::ptr::null_mut();
        let foreign = *b"\x7fELF and so on: a code object for other hardware";
        let code = hip!(hipModuleLoadData(&raw mut module, foreign.as_ptr().cast()));
        assert_eq!(HipError(code), HipError::NO_BINARY_FOR_GPU);
    });
}

fn by_name(name: &core::ffi::CStr, version: i32) -> (HipError, *mut c_void) {
    let mut address = core::ptr::null_mut();
    let code = hip!(hipGetProcAddress(name.as_ptr(), &raw mut address, version, 0, core::ptr::null_mut()));
    (HipError(code), address)
}

#[test]
fn functions_are_found_by_name() {
    in_client("client::modules::functions_are_found_by_name", &[], || {
        let (code, address) = by_name(c"hipMalloc", 71_460_850);
        assert_eq!((code, address.is_null()), (HipError::SUCCESS, false));
        let mut at = core::ptr::null_mut();
        // SAFETY: the runtime gave this address for hipMalloc.
        let malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> HipError =
            unsafe { core::mem::transmute(address) };
        // SAFETY: `at` is a valid out parameter.
        assert_eq!(unsafe { malloc(&raw mut at, 4096) }, HipError::SUCCESS);
        ok!(hipFree(at));
        assert_ne!(by_name(c"hipNothingOfThatName", 71_460_850).0, HipError::SUCCESS);
    });
}

#[test]
fn files_are_read_and_written_without_a_host_copy() {
    let everywhere = [("HIP_EMU_KNOWN_FS", "all")];
    in_client("client::modules::files_are_read_and_written_without_a_host_copy", &everywhere, || {
        let (code, read) = by_name(c"hipAmdFileRead", 71_460_850);
        assert_eq!(code, HipError::SUCCESS);
        let (code, write) = by_name(c"hipAmdFileWrite", 71_460_850);
        assert_eq!(code, HipError::SUCCESS);
        // SAFETY: the runtime gave this address for hipAmdFileRead.
        let read: AmdFileFn = unsafe { core::mem::transmute(read) };
        // SAFETY: the runtime gave this address for hipAmdFileWrite.
        let write: AmdFileFn = unsafe { core::mem::transmute(write) };

        use std::os::fd::AsRawFd;
        let mut file = tempfile::tempfile().unwrap();
        let sent = pattern(16 << 10, 6);
        std::io::Write::write_all(&mut file, &sent).unwrap();
        let mut handle = AmdFileHandle { pad: [0; 8] };
        handle.fd = file.as_raw_fd();
        let memory = DeviceMemory::new(16 << 10);
        let (mut copied, mut status) = (0, 0);
        // SAFETY: the range lies inside device memory, and the results are variables.
        let code = unsafe { read(handle, memory.at, 16 << 10, 0, &raw mut copied, &raw mut status) };
        assert_eq!((code, copied, status), (HipError::SUCCESS, 16 << 10, 0));
        assert!(memory.bytes() == sent);

        let other = pattern(4096, 77);
        memory.write(&other);
        (copied, status) = (0, 0);
        // SAFETY: as above.
        let code = unsafe { write(handle, memory.at, 4096, 8192, &raw mut copied, &raw mut status) };
        assert_eq!((code, copied, status), (HipError::SUCCESS, 4096, 0));
        let mut found = vec![0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 8192).unwrap();
        assert!(found == other);

        (copied, status) = (0, 0);
        // SAFETY: as above.
        let code = unsafe { read(handle, memory.at, 100, 0, &raw mut copied, &raw mut status) };
        assert_ne!(code, HipError::SUCCESS);
        assert_eq!((copied, status.abs()), (0, libc::EINVAL));
    });
}
