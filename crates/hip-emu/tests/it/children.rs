//! Processes forked after the emulation was used: they may not use it, and learn so without waiting for anything.

use gpu_sys::hip::{HipError, STREAM_NON_BLOCKING};

use crate::support::*;

#[test]
fn a_forked_child_is_told_that_the_runtime_is_not_there() {
    let api = own();
    let device = malloc(api, 8);
    let (stream, word) = (stream(api, STREAM_NON_BLOCKING), word(api));
    hold(api, stream, word);
    // SAFETY: the child makes three calls, each of which is to return without a lock, and leaves.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let mut bytes = [0u8; 8];
        let mut at = core::ptr::null_mut();
        let results = [
            // SAFETY: the arguments are valid.
            unsafe { (api.hipMemcpy)(bytes.as_mut_ptr().cast(), device, 8, 4) },
            // SAFETY: as above.
            unsafe { (api.hipMalloc)(&raw mut at, 8) },
            // SAFETY: as above.
            unsafe { (api.hipStreamSynchronize)(stream) },
        ];
        let right = results.iter().all(|result| *result == HipError::NOT_INITIALIZED);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is this test's own.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    release(word);
    ok!((api.hipStreamSynchronize)(stream));
    free(api, device);
}
