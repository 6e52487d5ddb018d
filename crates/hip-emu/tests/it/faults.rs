//! Faults and counters, at run time and from the environment.

use std::time::{Duration, Instant};

use gpu_sys::hip::HipError;
use hip_emu::fault::{self, Fault, When};

use crate::support::*;

#[test]
fn chosen_calls_fail_and_are_counted() {
    let _turn = faults();
    let api = hip();
    let mut device = 0;
    let mut priority = || {
        // SAFETY: the variable is valid. No other test calls this function.
        unsafe { hip_emu::device::hipDeviceGetStreamPriorityRange(&raw mut device, core::ptr::null_mut()) }
    };
    let name = "hipDeviceGetStreamPriorityRange";
    let before = fault::calls(name);
    fault::inject(name, When::Nth(2), HipError::UNKNOWN).unwrap();
    fault::inject(name, When::From(4), HipError(4711)).unwrap();
    let results: Vec<_> = (0..5).map(|_| priority().0).collect();
    assert_eq!(results, [0, 999, 0, 4711, 4711]);
    // SAFETY: nothing to keep.
    assert_eq!(unsafe { (api.hipGetLastError)() }, HipError(4711));
    assert_eq!(fault::calls(name) - before, 5, "a call that fails is a call");
    fault::clear();
    assert_eq!(priority(), HipError::SUCCESS);
    assert!(fault::inject("hipNothing", When::Every, HipError::UNKNOWN).is_err());
    assert_eq!(fault::calls("hipNothing"), 0);
}

#[test]
fn a_call_can_be_late() {
    let _turn = faults();
    hip();
    let delay = Duration::from_millis(30);
    fault::inject("hipDeviceGetStreamPriorityRange", When::Every, Fault::Delay(delay)).unwrap();
    let start = Instant::now();
    ok!(hip_emu::device::hipDeviceGetStreamPriorityRange(core::ptr::null_mut(), core::ptr::null_mut()));
    assert!(start.elapsed() >= delay);
    fault::clear();
}

#[test]
fn faults_come_from_the_environment() {
    child_passes(
        "faults::child_with_faults",
        &[("HIP_EMU_FAULT", "hipMalloc:2:hipErrorOutOfMemory, hipSetDevice:*:999,hiprtcVersion:1:11")],
    );
}

#[test]
#[ignore = "needs faults of its own: run by faults_come_from_the_environment"]
fn child_with_faults() {
    // The compiler is the first to be called: it may be in a library where nobody else is.
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the variables are valid.
    let version = unsafe { hip_emu::rtc::hiprtcVersion(&raw mut major, &raw mut minor) };
    assert_eq!(version, hip_emu::types::RtcResult(11));
    let api = hip_emu::api();
    let mut at = core::ptr::null_mut();
    ok!((api.hipMalloc)(&raw mut at, 8));
    gives!(OUT_OF_MEMORY, (api.hipMalloc)(&raw mut at, 8));
    ok!((api.hipMalloc)(&raw mut at, 8));
    gives!(UNKNOWN, (api.hipSetDevice)(0));
    gives!(UNKNOWN, (api.hipSetDevice)(0));
}
