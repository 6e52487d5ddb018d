//! C types of the emulated runtime that the function table of `gpu-sys` does not need.

use core::ffi::c_uint;

pub use crate::properties::DeviceProperties;

/// `hipStreamCaptureMode`.
pub type StreamCaptureMode = c_uint;

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
