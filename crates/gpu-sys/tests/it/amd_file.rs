//! AMD's file functions, which no header declares: how they are found, and that the handle's eight bytes arrive in C
//! as they were sent.

use gpu_sys::hip::{AmdFileFn, AmdFileHandle};

use crate::probe::{CALL_AMD_FILE, Probe};
use crate::stub::Stub;

/// Copies its arguments into its results; `sum` tells which of the two functions was called.
const FILE_FUNCTION: &str = r#"
typedef struct { union { void *handle; int fd; uint8_t pad[8]; }; } Handle;
#define FILE_FUNCTION(name, sign) \
    int name(Handle handle, void *at, uint64_t size, int64_t offset, uint64_t *copied, int32_t *status) { \
        *copied = size + (uint64_t)(uintptr_t)at; \
        *status = sign handle.fd; \
        return (int)(offset >> 32); \
    }
"#;

/// Hands the functions out by name, for the version the runtime reports and no other.
const PROC_ADDRESS: &str = r#"
#include <string.h>
int hipGetProcAddress(const char *name, void **out, int version, uint64_t flags, unsigned *status) {
    if (version != 71400000 || flags != 0 || status != NULL) return 1;
    if (strcmp(name, "hipAmdFileRead") == 0) { *out = (void *)by_name_read; return 0; }
    if (strcmp(name, "hipAmdFileWrite") == 0) { *out = (void *)by_name_write; return 0; }
    return 500;
}
"#;

/// Called in the loader's process: calls both functions with marked arguments.
pub(crate) fn probe((read, write): (AmdFileFn, AmdFileFn)) {
    for (name, function) in [("amd_read", read), ("amd_write", write)] {
        let mut handle = AmdFileHandle { pad: [0; 8] };
        handle.fd = 41;
        let (mut copied, mut status) = (0, 0);
        let at = core::ptr::without_provenance_mut(0x7000_0000_0000);
        // SAFETY: the stub's functions have this prototype, do not touch `at`, and the rest are valid out parameters.
        let code = unsafe { function(handle, at, 5, 7 << 32, &raw mut copied, &raw mut status) };
        println!("probe> {name}={:x} {status} {}", copied, code.0);
    }
}

const READ: &str = "700000000005 41 7";
const WRITE: &str = "700000000005 -41 7";

#[test]
fn the_runtime_is_asked_by_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let library = Stub::new(71_400_000)
        .extra(FILE_FUNCTION)
        .extra("static FILE_FUNCTION(by_name_read, +)\nstatic FILE_FUNCTION(by_name_write, -)\n")
        .extra(PROC_ADDRESS)
        .build(folder.path(), "libstub.so");
    let found = Probe::new().library(&library).env(CALL_AMD_FILE, "1").run();
    assert_eq!((found.get("amd_read"), found.get("amd_write")), (Some(READ), Some(WRITE)));
}

#[test]
fn a_runtime_that_cannot_be_asked_is_searched() {
    let folder = tempfile::tempdir().unwrap();
    let exported = "FILE_FUNCTION(hipAmdFileRead, +)\nFILE_FUNCTION(hipAmdFileWrite, -)\n";
    let refusing = Stub::new(71_400_000).extra(FILE_FUNCTION).extra(exported);
    let lacking = Stub::new(71_400_000).extra(FILE_FUNCTION).extra(exported).without_optional();
    for (name, stub) in [("librefusing.so", refusing), ("liblacking.so", lacking)] {
        let found = Probe::new().library(stub.build(folder.path(), name)).env(CALL_AMD_FILE, "1").run();
        assert_eq!((found.get("amd_read"), found.get("amd_write")), (Some(READ), Some(WRITE)), "{name}");
    }
}

#[test]
fn one_function_alone_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let library = Stub::new(71_400_000)
        .extra(FILE_FUNCTION)
        .extra("FILE_FUNCTION(hipAmdFileRead, +)\n")
        .build(folder.path(), "libstub.so");
    assert_eq!(Probe::new().library(&library).run().get("amd_file"), Some("none"));
}

#[test]
fn the_handle_is_eight_bytes() {
    assert_eq!((size_of::<AmdFileHandle>(), align_of::<AmdFileHandle>()), (8, 8));
}
