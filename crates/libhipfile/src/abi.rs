//! The types and constants of `include/hipfile.h` in Rust: layouts and numbers, no behaviour.
//!
//! Every type is declared through a macro that also lists its parts in [`LAYOUTS`], so that the test which compares
//! them with the C compiler's view of the header cannot leave one out. Enumerations that C hands in are transparent
//! integers: a value that the header does not name is legal here.
#![allow(missing_docs, reason = "the header documents each of these names")]
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, reason = "the names are the header's")]

use core::ffi::{c_char, c_int, c_uint, c_void};

/// What a type is made of, for the comparison with the header.
#[doc(hidden)]
#[derive(Debug)]
pub struct Layout {
    /// The type in C; a dot leads to a member that has no type name of its own.
    pub c_name: &'static str,
    pub size: usize,
    pub align: usize,
    /// Name, offset and size of each member.
    pub fields: &'static [(&'static str, usize, usize)],
    /// Name and value of each enumerator.
    pub values: &'static [(&'static str, i64)],
}

macro_rules! c_enum {
    ($name:ident { $($value:ident = $number:expr),* $(,)? }) => {
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub c_int);
        $(pub const $value: $name = $name($number);)*
        impl $name {
            pub(crate) const LAYOUT: Layout = Layout {
                c_name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[],
                values: &[$((stringify!($value), $number as i64)),*],
            };
        }
    };
}

macro_rules! c_type {
    ($kind:ident $name:ident as $c_name:literal { $($field:ident: $type:ty),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub $kind $name { $(pub $field: $type),* }
        impl $name {
            pub(crate) const LAYOUT: Layout = Layout {
                c_name: $c_name,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$((
                    stringify!($field),
                    core::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                )),*],
                values: &[],
            };
        }
    };
}

/// Each `$name: $type` also becomes a row of the integer constants that are compared with the header's macros.
macro_rules! c_macros {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub const $name: $type = $value;)*
        /// The header's integer macros.
        #[doc(hidden)]
        pub const MACROS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

/// The GPU runtime's status code, whatever the runtime: only its number travels.
pub type hipError_t = c_int;
pub const hipSuccess: hipError_t = 0;
/// A GPU stream, opaque to this library.
pub type hipStream_t = *mut c_void;
pub type hipFileHandle_t = *mut c_void;
pub type hipFileBatchHandle_t = *mut c_void;
pub type hoff_t = libc::off_t;

c_macros! {
    HIPFILE_VERSION_MAJOR: c_uint = 0;
    HIPFILE_VERSION_MINOR: c_uint = 5;
    HIPFILE_VERSION_PATCH: c_uint = 0;
    HIPFILE_BASE_ERR: c_int = 5000;
    HIPFILE_RDMA_REGISTER: c_int = 1;
    HIPFILE_RDMA_RELAXED_ORDERING: c_int = 2;
    HIPFILE_STREAM_FIXED_BUF_OFFSET: c_uint = 1;
    HIPFILE_STREAM_FIXED_FILE_OFFSET: c_uint = 2;
    HIPFILE_STREAM_FIXED_FILE_SIZE: c_uint = 4;
    HIPFILE_STREAM_PAGE_ALIGNED_INPUTS: c_uint = 8;
    HIPFILE_STREAM_FLAGS_MASK: c_uint = 0xf;
    HIPFILE_MAX_GPUS: usize = 16;
    HIPFILE_GPU_UUID_LEN: usize = 16;
    HIPFILE_EXT_FEATURE_SYNC_IO: u64 = 0x1;
    HIPFILE_EXT_FEATURE_STREAM_IO: u64 = 0x2;
    HIPFILE_EXT_FEATURE_BATCH_IO: u64 = 0x4;
    HIPFILE_EXT_FEATURE_PROPERTIES: u64 = 0x8;
    HIPFILE_EXT_FEATURE_PARAMETERS: u64 = 0x10;
    HIPFILE_EXT_FEATURE_STATISTICS: u64 = 0x20;
    HIPFILE_EXT_FEATURE_USERSPACE_FS: u64 = 0x40;
    HIPFILE_EXT_MAX_ENGINES: usize = 8;
    HIPFILE_EXT_MAX_REASONS: usize = 64;
}

// --- errors ---

c_enum!(hipFileOpError_t {
    hipFileSuccess = 0,
    hipFileDriverNotInitialized = 5001,
    hipFileDriverInvalidProps = 5002,
    hipFileDriverUnsupportedLimit = 5003,
    hipFileDriverVersionMismatch = 5004,
    hipFileDriverVersionReadError = 5005,
    hipFileDriverClosing = 5006,
    hipFilePlatformNotSupported = 5007,
    hipFileIONotSupported = 5008,
    hipFileDeviceNotSupported = 5009,
    hipFileDriverError = 5010,
    hipFileHipDriverError = 5011,
    hipFileHipPointerInvalid = 5012,
    hipFileHipMemoryTypeInvalid = 5013,
    hipFileHipPointerRangeError = 5014,
    hipFileHipContextMismatch = 5015,
    hipFileInvalidMappingSize = 5016,
    hipFileInvalidMappingRange = 5017,
    hipFileInvalidFileType = 5018,
    hipFileInvalidFileOpenFlag = 5019,
    hipFileDIONotSet = 5020,
    hipFileInvalidValue = 5022,
    hipFileMemoryAlreadyRegistered = 5023,
    hipFileMemoryNotRegistered = 5024,
    hipFilePermissionDenied = 5025,
    hipFileDriverAlreadyOpen = 5026,
    hipFileHandleNotRegistered = 5027,
    hipFileHandleAlreadyRegistered = 5028,
    hipFileDeviceNotFound = 5029,
    hipFileInternalError = 5030,
    hipFileGetNewFDFailed = 5031,
    hipFileDriverSetupError = 5033,
    hipFileIODisabled = 5034,
    hipFileBatchSubmitFailed = 5035,
    hipFileGPUMemoryPinningFailed = 5036,
    hipFileBatchFull = 5037,
    hipFileAsyncNotSupported = 5038,
    hipFileIOMaxError = 5039,
});

c_type!(struct hipFileError_t as "hipFileError_t" { err: hipFileOpError_t, hip_drv_err: hipError_t });

// --- driver ---

c_enum!(hipFileDriverStatusFlags_t {
    hipFileLustreSupported = 0,
    hipFileWekaFSSupported = 1,
    hipFileNFSSupported = 2,
    hipFileGPFSSupported = 3,
    hipFileNVMeSupported = 4,
    hipFileNVMeoFSupported = 5,
    hipFileSCSISupported = 6,
    hipFileScaleFluxCSDSupported = 7,
    hipFileNVMeshSupported = 8,
    hipFileBeeGFSSupported = 9,
    hipFileNVMeP2PSupported = 11,
    hipFileScatefsSupported = 12,
});

c_enum!(hipFileDriverControlFlags_t { hipFileUsePollMode = 0, hipFileAllowCompatMode = 1 });

c_enum!(hipFileFeatureFlags_t {
    hipFileDynRoutingSupported = 0,
    hipFileBatchIOSupported = 1,
    hipFileStreamsSupported = 2,
    hipFileParallelIOSupported = 3,
});

c_type!(struct hipFileDriverProps_nvfs as "hipFileDriverProps_t.nvfs" {
    major_version: c_uint,
    minor_version: c_uint,
    poll_thresh_size: u64,
    max_direct_io_size: u64,
    driver_status_flags: c_uint,
    driver_control_flags: c_uint,
});

c_type!(struct hipFileDriverProps_t as "hipFileDriverProps_t" {
    nvfs: hipFileDriverProps_nvfs,
    feature_flags: c_uint,
    max_device_cache_size: u64,
    per_buffer_cache_size: u64,
    max_device_pinned_mem_size: u64,
    max_batch_io_count: c_uint,
    max_batch_io_timeout_msecs: c_uint,
});

// --- file handles ---

c_type!(struct hipFileRDMAInfo_t as "hipFileRDMAInfo_t" {
    version: c_int,
    desc_len: c_int,
    desc_str: *const c_char,
});

c_type!(struct hipFileFSOps_t as "hipFileFSOps_t" {
    fs_type: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    getRDMADeviceList: Option<unsafe extern "C" fn(*mut c_void, *mut *mut libc::sockaddr) -> c_int>,
    getRDMADevicePriority: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_char, usize, hoff_t, *mut libc::sockaddr) -> c_int,
    >,
    read: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_char, usize, hoff_t, *mut hipFileRDMAInfo_t) -> isize,
    >,
    write: Option<
        unsafe extern "C" fn(*mut c_void, *const c_char, usize, hoff_t, *mut hipFileRDMAInfo_t) -> isize,
    >,
});

c_enum!(hipFileFileHandleType_t {
    hipFileHandleTypeOpaqueFD = 1,
    hipFileHandleTypeOpaqueWin32 = 2,
    hipFileHandleTypeUserspaceFS = 3,
});

c_type!(union hipFileDescr_handle as "hipFileDescr_t.handle" { fd: c_int, hFile: *mut c_void });

c_type!(struct hipFileDescr_t as "hipFileDescr_t" {
    r#type: hipFileFileHandleType_t,
    handle: hipFileDescr_handle,
    fs_ops: *const hipFileFSOps_t,
});

// --- batches ---

c_enum!(hipFileOpcode_t { hipFileBatchRead = 0, hipFileBatchWrite = 1 });

c_enum!(hipFileStatus_t {
    hipFileWaiting = 1,
    hipFilePending = 2,
    hipFileInvalid = 4,
    hipFileCanceled = 8,
    hipFileComplete = 16,
    hipFileTimeout = 32,
    hipFileFailed = 64,
});

c_enum!(hipFileBatchMode_t { hipFileBatch = 1 });

c_type!(struct hipFileIOParams_batch as "hipFileIOParams_t.u.batch" {
    devPtr_base: *mut c_void,
    file_offset: i64,
    devPtr_offset: i64,
    size: usize,
});

c_type!(union hipFileIOParams_u as "hipFileIOParams_t.u" { batch: hipFileIOParams_batch });

c_type!(struct hipFileIOParams_t as "hipFileIOParams_t" {
    mode: hipFileBatchMode_t,
    u: hipFileIOParams_u,
    fh: hipFileHandle_t,
    opcode: hipFileOpcode_t,
    cookie: *mut c_void,
});

c_type!(struct hipFileIOEvents_t as "hipFileIOEvents_t" {
    cookie: *mut c_void,
    status: hipFileStatus_t,
    ret: usize,
});

// --- parameters ---

c_enum!(hipFileSizeTConfigParameter_t {
    hipFileParamProfileStats = 0,
    hipFileParamExecutionMaxIOQueueDepth = 1,
    hipFileParamExecutionMaxIOThreads = 2,
    hipFileParamExecutionMinIOThresholdSizeKB = 3,
    hipFileParamExecutionMaxRequestParallelism = 4,
    hipFileParamPropertiesMaxDirectIOSizeKB = 5,
    hipFileParamPropertiesMaxDeviceCacheSizeKB = 6,
    hipFileParamPropertiesPerBufferCacheSizeKB = 7,
    hipFileParamPropertiesMaxDevicePinnedMemSizeKB = 8,
    hipFileParamPropertiesIOBatchsize = 9,
    hipFileParamPollthresholdSizeKB = 10,
    hipFileParamPropertiesBatchIOTimeoutMs = 11,
});

c_enum!(hipFileBoolConfigParameter_t {
    hipFileParamPropertiesUsePollMode = 0,
    hipFileParamPropertiesAllowCompatMode = 1,
    hipFileParamForceCompatMode = 2,
    hipFileParamFsMiscApiCheckAggressive = 3,
    hipFileParamExecutionParallelIO = 4,
    hipFileParamProfileNvtx = 5,
    hipFileParamPropertiesAllowSystemMemory = 6,
    hipFileParamUsePcip2pdma = 7,
    hipFileParamPreferIOUring = 8,
    hipFileParamForceOdirectMode = 9,
    hipFileParamSkipTopologyDetection = 10,
    hipFileParamStreamMemopsBypass = 11,
});

c_enum!(hipFileStringConfigParameter_t {
    hipFileParamLoggingLevel = 0,
    hipFileParamEnvLogfilePath = 1,
    hipFileParamLogDir = 2,
});

// --- extensions ---

c_type!(struct hipFileExtBuildInfo_t as "hipFileExtBuildInfo_t" {
    size: usize,
    name: *const c_char,
    version: *const c_char,
    features: u64,
    emulation_available: u32,
    reserved: u32,
});

c_type!(struct hipFileExtErrorInfo_t as "hipFileExtErrorInfo_t" {
    size: usize,
    err: hipFileOpError_t,
    hip_drv_err: hipError_t,
    os_error: c_int,
    function: *const c_char,
    text: *const c_char,
});

c_type!(struct hipFileExtEngineCounters_t as "hipFileExtEngineCounters_t" {
    name: *const c_char,
    read_operations: u64,
    read_bytes: u64,
    read_errors: u64,
    write_operations: u64,
    write_bytes: u64,
    write_errors: u64,
});

c_type!(struct hipFileExtReasonCounters_t as "hipFileExtReasonCounters_t" {
    word: *const c_char,
    text: *const c_char,
    read_operations: u64,
    read_bytes: u64,
    write_operations: u64,
    write_bytes: u64,
});

c_enum!(hipFileExtPageCache_t {
    hipFileExtPageCacheDefault = 0,
    hipFileExtPageCacheAuto = 1,
    hipFileExtPageCacheDirect = 2,
    hipFileExtPageCacheBuffered = 3,
    hipFileExtPageCacheNoCache = 4,
});

c_type!(struct hipFileExtHandleInfo_t as "hipFileExtHandleInfo_t" {
    size: usize,
    engine: *const c_char,
    reason: *const c_char,
    reason_text: *const c_char,
    file_system: [c_char; 32],
    path: [c_char; 1024],
    device_major: u32,
    device_minor: u32,
    memory_align: u32,
    offset_align: u32,
    read_offset_align: u32,
    private_descriptors: u32,
    page_cache: hipFileExtPageCache_t,
    engine_count: u32,
    reason_count: u32,
    emulated: u32,
    engines: [hipFileExtEngineCounters_t; HIPFILE_EXT_MAX_ENGINES],
    reasons: [hipFileExtReasonCounters_t; HIPFILE_EXT_MAX_REASONS],
});

c_type!(struct hipFileExtPoolInfo_t as "hipFileExtPoolInfo_t" {
    size: usize,
    held_bytes: u64,
    most_bytes: u64,
    block_size: u64,
});

c_type!(struct hipFileExtBufInfo_t as "hipFileExtBufInfo_t" {
    size: usize,
    start: *const c_void,
    length: u64,
    gpu: c_int,
    emulated: u32,
    current: u32,
    reserved: u32,
    pieces: u64,
});

mod stats;
pub use stats::*;

/// Every type above and those of `abi/stats.rs`.
#[doc(hidden)]
pub const LAYOUTS: &[Layout] = &[
    hipFileOpError_t::LAYOUT,
    hipFileError_t::LAYOUT,
    hipFileDriverStatusFlags_t::LAYOUT,
    hipFileDriverControlFlags_t::LAYOUT,
    hipFileFeatureFlags_t::LAYOUT,
    hipFileDriverProps_nvfs::LAYOUT,
    hipFileDriverProps_t::LAYOUT,
    hipFileRDMAInfo_t::LAYOUT,
    hipFileFSOps_t::LAYOUT,
    hipFileFileHandleType_t::LAYOUT,
    hipFileDescr_handle::LAYOUT,
    hipFileDescr_t::LAYOUT,
    hipFileOpcode_t::LAYOUT,
    hipFileStatus_t::LAYOUT,
    hipFileBatchMode_t::LAYOUT,
    hipFileIOParams_batch::LAYOUT,
    hipFileIOParams_u::LAYOUT,
    hipFileIOParams_t::LAYOUT,
    hipFileIOEvents_t::LAYOUT,
    hipFileSizeTConfigParameter_t::LAYOUT,
    hipFileBoolConfigParameter_t::LAYOUT,
    hipFileStringConfigParameter_t::LAYOUT,
    hipFileOpCounter_t::LAYOUT,
    hipFileStatsLevel1_t::LAYOUT,
    hipFileStatsLevel2_t::LAYOUT,
    hipFilePerGpuStats_t::LAYOUT,
    hipFileStatsLevel3_t::LAYOUT,
    hipFileStatsError_t::LAYOUT,
    hipFileExtBuildInfo_t::LAYOUT,
    hipFileExtErrorInfo_t::LAYOUT,
    hipFileExtEngineCounters_t::LAYOUT,
    hipFileExtReasonCounters_t::LAYOUT,
    hipFileExtPageCache_t::LAYOUT,
    hipFileExtHandleInfo_t::LAYOUT,
    hipFileExtPoolInfo_t::LAYOUT,
    hipFileExtBufInfo_t::LAYOUT,
];
