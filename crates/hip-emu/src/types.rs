//! C types of the emulated runtime that the function table of `gpu-sys` does not need.

use core::ffi::c_uint;

pub use crate::properties::DeviceProperties;

/// What `hipGraph_t` points to: opaque.
#[repr(C)]
pub struct GraphOpaque {
    _private: [u8; 0],
}
/// `hipGraph_t`.
pub type GraphPtr = *mut GraphOpaque;

/// What `hiprtcProgram` points to: opaque.
#[repr(C)]
pub struct RtcProgramOpaque {
    _private: [u8; 0],
}
/// `hiprtcProgram`.
pub type RtcProgramPtr = *mut RtcProgramOpaque;

/// `hiprtcResult`: a number, not an enum.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtcResult(pub u32);

/// `hipEventBlockingSync`.
pub const EVENT_BLOCKING_SYNC: c_uint = 1;
/// `hipEventInterprocess`.
pub const EVENT_INTERPROCESS: c_uint = 4;
/// `hipEventDisableSystemFence`.
pub const EVENT_DISABLE_SYSTEM_FENCE: c_uint = 0x2000_0000;
/// `hipEventReleaseToDevice`.
pub const EVENT_RELEASE_TO_DEVICE: c_uint = 0x4000_0000;
/// `hipEventReleaseToSystem`.
pub const EVENT_RELEASE_TO_SYSTEM: c_uint = 0x8000_0000;
