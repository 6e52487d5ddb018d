//! C types of the emulated runtime that the function table of `gpu-sys` does not need.

use core::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

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

/// `hipIpcMemHandle_t`: opaque.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcMemHandle {
    /// What it says only the runtime knows.
    pub reserved: [core::ffi::c_char; 64],
}

/// `hipMemAllocationType`.
pub type MemAllocationType = c_uint;
/// `hipMemAllocationTypePinned`.
pub const MEM_ALLOCATION_PINNED: MemAllocationType = 1;

/// `hipMemAllocationHandleType`.
pub type MemHandleType = c_uint;
/// `hipMemHandleTypeNone`.
pub const MEM_HANDLE_NONE: MemHandleType = 0;
/// `hipMemHandleTypePosixFileDescriptor`.
pub const MEM_HANDLE_POSIX_FD: MemHandleType = 1;

/// `hipMemAllocationGranularity_flags`.
pub type MemGranularity = c_uint;
/// `hipMemAllocationGranularityMinimum`.
pub const MEM_GRANULARITY_MINIMUM: MemGranularity = 0;
/// `hipMemAllocationGranularityRecommended`.
pub const MEM_GRANULARITY_RECOMMENDED: MemGranularity = 1;

/// `hipMemLocationType`.
pub type MemLocationType = c_uint;
/// `hipMemLocationTypeDevice`.
pub const MEM_LOCATION_DEVICE: MemLocationType = 1;

/// `hipMemAccessFlags`.
pub type MemAccessFlags = c_uint;
/// `hipMemAccessFlagsProtNone`.
pub const MEM_ACCESS_NONE: MemAccessFlags = 0;
/// `hipMemAccessFlagsProtRead`.
pub const MEM_ACCESS_READ: MemAccessFlags = 1;
/// `hipMemAccessFlagsProtReadWrite`.
pub const MEM_ACCESS_READ_WRITE: MemAccessFlags = 3;

/// `hipMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemLocation {
    /// What the number is of.
    pub kind: MemLocationType,
    /// The number, for instance a device's ordinal.
    pub id: c_int,
}

/// `hipMemAllocationProp::allocFlags`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "HIP's fields of those names, without use here")]
pub struct MemAllocationFlags {
    pub compression_type: c_uchar,
    pub gpu_direct_rdma_capable: c_uchar,
    pub usage: c_ushort,
}

/// `hipMemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAllocationProp {
    /// What memory it is.
    pub kind: MemAllocationType,
    /// How it may be shared.
    pub handle_types: MemHandleType,
    /// Where it is.
    pub location: MemLocation,
    /// Of no use on Linux.
    pub win32_handle_meta_data: *mut c_void,
    /// Further wishes, which nobody here hears.
    pub flags: MemAllocationFlags,
}

/// `hipMemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAccessDesc {
    /// Who.
    pub location: MemLocation,
    /// What they may.
    pub flags: MemAccessFlags,
}

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
