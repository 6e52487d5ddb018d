//! HIP as hipfile uses it: types, constants and the function table. No logic; every fact here is compared with
//! bindings generated from ROCm's own headers by this crate's tests.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;

use crate::table::{function_table, named_codes};

/// `hipError_t`: a number, not an enum, so that a code unknown to us survives the journey to the caller.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HipError(pub u32);

named_codes! {
    HipError;
    SUCCESS = 0, "hipSuccess";
    INVALID_VALUE = 1, "hipErrorInvalidValue";
    OUT_OF_MEMORY = 2, "hipErrorOutOfMemory";
    NOT_INITIALIZED = 3, "hipErrorNotInitialized";
    DEINITIALIZED = 4, "hipErrorDeinitialized";
    INVALID_CONFIGURATION = 9, "hipErrorInvalidConfiguration";
    INVALID_SYMBOL = 13, "hipErrorInvalidSymbol";
    INVALID_DEVICE_POINTER = 17, "hipErrorInvalidDevicePointer";
    INVALID_MEMCPY_DIRECTION = 21, "hipErrorInvalidMemcpyDirection";
    INSUFFICIENT_DRIVER = 35, "hipErrorInsufficientDriver";
    NO_DEVICE = 100, "hipErrorNoDevice";
    INVALID_DEVICE = 101, "hipErrorInvalidDevice";
    INVALID_IMAGE = 200, "hipErrorInvalidImage";
    INVALID_CONTEXT = 201, "hipErrorInvalidContext";
    MAP_FAILED = 205, "hipErrorMapFailed";
    NO_BINARY_FOR_GPU = 209, "hipErrorNoBinaryForGpu";
    SHARED_OBJECT_INIT_FAILED = 303, "hipErrorSharedObjectInitFailed";
    OPERATING_SYSTEM = 304, "hipErrorOperatingSystem";
    INVALID_HANDLE = 400, "hipErrorInvalidHandle";
    ILLEGAL_STATE = 401, "hipErrorIllegalState";
    NOT_FOUND = 500, "hipErrorNotFound";
    NOT_READY = 600, "hipErrorNotReady";
    ILLEGAL_ADDRESS = 700, "hipErrorIllegalAddress";
    PEER_ACCESS_ALREADY_ENABLED = 704, "hipErrorPeerAccessAlreadyEnabled";
    PEER_ACCESS_NOT_ENABLED = 705, "hipErrorPeerAccessNotEnabled";
    CONTEXT_IS_DESTROYED = 709, "hipErrorContextIsDestroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "hipErrorHostMemoryAlreadyRegistered";
    HOST_MEMORY_NOT_REGISTERED = 713, "hipErrorHostMemoryNotRegistered";
    LAUNCH_FAILURE = 719, "hipErrorLaunchFailure";
    NOT_SUPPORTED = 801, "hipErrorNotSupported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "hipErrorStreamCaptureUnsupported";
    STREAM_CAPTURE_INVALIDATED = 901, "hipErrorStreamCaptureInvalidated";
    STREAM_CAPTURE_UNMATCHED = 903, "hipErrorStreamCaptureUnmatched";
    STREAM_CAPTURE_ISOLATION = 905, "hipErrorStreamCaptureIsolation";
    STREAM_CAPTURE_IMPLICIT = 906, "hipErrorStreamCaptureImplicit";
    CAPTURED_EVENT = 907, "hipErrorCapturedEvent";
    STREAM_CAPTURE_WRONG_THREAD = 908, "hipErrorStreamCaptureWrongThread";
    UNKNOWN = 999, "hipErrorUnknown";
}

impl HipError {
    /// `Ok` for `hipSuccess`.
    ///
    /// # Errors
    /// The code itself otherwise.
    pub fn ok(self) -> Result<(), HipError> {
        if self == HipError::SUCCESS { Ok(()) } else { Err(self) }
    }
}

impl fmt::Debug for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "hipError({})", self.0),
        }
    }
}

/// `hipMemcpyKind`.
pub type MemcpyKind = c_uint;
/// Host to host.
pub const MEMCPY_HOST_TO_HOST: MemcpyKind = 0;
/// Host to device.
pub const MEMCPY_HOST_TO_DEVICE: MemcpyKind = 1;
/// Device to host.
pub const MEMCPY_DEVICE_TO_HOST: MemcpyKind = 2;
/// Device to device.
pub const MEMCPY_DEVICE_TO_DEVICE: MemcpyKind = 3;
/// Direction found from the pointers.
pub const MEMCPY_DEFAULT: MemcpyKind = 4;

/// `hipMemoryType` as ROCm 6 and newer number it (ROCm 5 numbers differ, which is one reason to refuse it).
pub type MemoryType = c_uint;
/// The runtime does not know the pointer.
pub const MEMORY_TYPE_UNREGISTERED: MemoryType = 0;
/// Pinned host memory.
pub const MEMORY_TYPE_HOST: MemoryType = 1;
/// Device memory.
pub const MEMORY_TYPE_DEVICE: MemoryType = 2;
/// Managed memory.
pub const MEMORY_TYPE_MANAGED: MemoryType = 3;
/// An array.
pub const MEMORY_TYPE_ARRAY: MemoryType = 10;
/// Unified memory.
pub const MEMORY_TYPE_UNIFIED: MemoryType = 11;

/// `hipPointerAttribute_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "field names are HIP's own")]
pub struct PointerAttributes {
    pub memory_type: MemoryType,
    pub device: c_int,
    pub device_pointer: *mut c_void,
    pub host_pointer: *mut c_void,
    pub is_managed: c_int,
    pub allocation_flags: c_uint,
}

impl PointerAttributes {
    /// All zero: what an out parameter starts from.
    pub const ZERO: PointerAttributes = PointerAttributes {
        memory_type: 0,
        device: 0,
        device_pointer: core::ptr::null_mut(),
        host_pointer: core::ptr::null_mut(),
        is_managed: 0,
        allocation_flags: 0,
    };
}

/// `hipDeviceptr_t`.
pub type DevicePtr = *mut c_void;
/// `hipDevice_t`: a device's ordinal.
pub type DeviceOrdinal = c_int;

/// What `hipStream_t` points to: opaque.
#[repr(C)]
pub struct StreamOpaque {
    _private: [u8; 0],
}
/// `hipStream_t`.
pub type StreamPtr = *mut StreamOpaque;

/// What `hipEvent_t` points to: opaque.
#[repr(C)]
pub struct EventOpaque {
    _private: [u8; 0],
}
/// `hipEvent_t`.
pub type EventPtr = *mut EventOpaque;

/// What `hipMemGenericAllocationHandle_t` points to: opaque.
#[repr(C)]
pub struct AllocationOpaque {
    _private: [u8; 0],
}
/// `hipMemGenericAllocationHandle_t`: physical memory of the virtual-memory API.
pub type AllocationPtr = *mut AllocationOpaque;

/// What `hipModule_t` points to: opaque.
#[repr(C)]
pub struct ModuleOpaque {
    _private: [u8; 0],
}
/// `hipModule_t`.
pub type ModulePtr = *mut ModuleOpaque;

/// What `hipFunction_t` points to: opaque.
#[repr(C)]
pub struct FunctionOpaque {
    _private: [u8; 0],
}
/// `hipFunction_t`.
pub type FunctionPtr = *mut FunctionOpaque;

/// `hipHostFn_t`.
pub type HostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// `hipUUID`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid {
    /// Sixteen bytes, often ASCII on AMD.
    pub bytes: [c_char; 16],
}

/// `hipDeviceAttribute_t`.
pub type DeviceAttribute = c_uint;
/// The GPU shares memory with the host (an APU).
pub const ATTRIBUTE_INTEGRATED: DeviceAttribute = 16;
/// PCI bus number.
pub const ATTRIBUTE_PCI_BUS_ID: DeviceAttribute = 67;
/// PCI device number.
pub const ATTRIBUTE_PCI_DEVICE_ID: DeviceAttribute = 68;
/// PCI domain.
pub const ATTRIBUTE_PCI_DOMAIN_ID: DeviceAttribute = 69;
/// Whether `hipHostRegister` works.
pub const ATTRIBUTE_HOST_REGISTER_SUPPORTED: DeviceAttribute = 90;
/// Whether `hipStreamWaitValue64` works.
pub const ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE: DeviceAttribute = 10013;

/// `hipPointer_attribute`.
pub type PointerAttribute = c_uint;
/// A number that names one allocation during the life of the process.
pub const POINTER_ATTRIBUTE_BUFFER_ID: PointerAttribute = 7;

/// `hipStreamCaptureStatus`.
pub type StreamCaptureStatus = c_uint;
/// Not capturing.
pub const STREAM_CAPTURE_STATUS_NONE: StreamCaptureStatus = 0;
/// Capturing.
pub const STREAM_CAPTURE_STATUS_ACTIVE: StreamCaptureStatus = 1;
/// The capture was invalidated and not yet ended.
pub const STREAM_CAPTURE_STATUS_INVALIDATED: StreamCaptureStatus = 2;

/// `hipStreamCaptureMode`.
pub type StreamCaptureMode = c_uint;
/// `hipStreamCaptureModeGlobal`: while it captures, unsafe calls of any thread are refused.
pub const STREAM_CAPTURE_MODE_GLOBAL: StreamCaptureMode = 0;
/// `hipStreamCaptureModeThreadLocal`: while it captures, unsafe calls of the capturing thread are refused.
pub const STREAM_CAPTURE_MODE_THREAD_LOCAL: StreamCaptureMode = 1;
/// `hipStreamCaptureModeRelaxed`: no call is refused as unsafe.
pub const STREAM_CAPTURE_MODE_RELAXED: StreamCaptureMode = 2;

/// `hipDriverProcAddressQueryResult`.
pub type ProcAddressStatus = c_uint;
/// Found.
pub const PROC_ADDRESS_SUCCESS: ProcAddressStatus = 0;
/// No such symbol.
pub const PROC_ADDRESS_NOT_FOUND: ProcAddressStatus = 1;
/// The symbol exists, but not in the version asked for.
pub const PROC_ADDRESS_VERSION_NOT_SUFFICIENT: ProcAddressStatus = 2;

/// `hipStreamDefault`.
pub const STREAM_DEFAULT: c_uint = 0;
/// `hipStreamNonBlocking`.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipStreamLegacy`'s value as a handle.
pub const STREAM_LEGACY: usize = 1;
/// `hipStreamPerThread`'s value as a handle.
pub const STREAM_PER_THREAD: usize = 2;
/// `hipEventDisableTiming`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `hipHostRegisterPortable`.
pub const HOST_REGISTER_PORTABLE: c_uint = 1;
/// `hipHostRegisterMapped`.
pub const HOST_REGISTER_MAPPED: c_uint = 2;
/// `hipHostMallocPortable`.
pub const HOST_MALLOC_PORTABLE: c_uint = 1;
/// `hipHostMallocMapped`.
pub const HOST_MALLOC_MAPPED: c_uint = 2;
/// `hipMallocSignalMemory`.
pub const MALLOC_SIGNAL_MEMORY: c_uint = 2;
/// `hipStreamWaitValueGte`.
pub const STREAM_WAIT_VALUE_GTE: c_uint = 0;
/// `hipStreamWaitValueEq`.
pub const STREAM_WAIT_VALUE_EQ: c_uint = 1;
/// `hipStreamWaitValueAnd`.
pub const STREAM_WAIT_VALUE_AND: c_uint = 2;
/// `hipStreamWaitValueNor`.
pub const STREAM_WAIT_VALUE_NOR: c_uint = 3;

/// `hipAmdFileHandle_t`: eight bytes, passed by value in one register. In no public HIP header; layout from
/// AMD's hipFile documentation. Zero it, then set `fd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union AmdFileHandle {
    /// Not used on Linux.
    pub handle: *mut c_void,
    /// The descriptor.
    pub fd: c_int,
    /// The union's size.
    pub pad: [u8; 8],
}

/// `hipMemGetHandleForAddressRange`: where the handle goes, the range, the kind of handle, flags.
pub type ExportFn =
    unsafe extern "C" fn(*mut c_void, DevicePtr, usize, c_uint, core::ffi::c_ulonglong) -> HipError;
/// `hipMemRangeHandleTypeDmaBufFd`: the handle is an int.
pub const RANGE_HANDLE_DMA_BUF_FD: c_uint = 1;

/// `hipAmdFileRead` and `hipAmdFileWrite`; resolved with `hipGetProcAddress`, never by a header.
pub type AmdFileFn = unsafe extern "C" fn(
    handle: AmdFileHandle,
    device_ptr: *mut c_void,
    size: u64,
    file_offset: i64,
    size_copied: *mut u64,
    status: *mut i32,
) -> HipError;

/// First `hipRuntimeGetVersion` value served: ROCm 6.0. Version 5 numbers memory types otherwise.
pub const OLDEST_RUNTIME_VERSION: c_int = 60_000_000;

/// A symbol that only the emulated runtime exports. Its presence is what "emulated" means.
pub const EMULATION_MARKER: &core::ffi::CStr = c"hipfile_emulated_gpu";

function_table! {
    /// The functions of HIP that hipfile calls.
    ///
    /// Every field is HIP's function of that name; `Option` fields may be missing from older runtimes.
    pub struct HipApi;
    required {
        fn hipInit(flags: c_uint) -> HipError;
        fn hipRuntimeGetVersion(version: *mut c_int) -> HipError;
        fn hipGetDeviceCount(count: *mut c_int) -> HipError;
        fn hipGetDevice(device: *mut c_int) -> HipError;
        fn hipSetDevice(device: c_int) -> HipError;
        fn hipDeviceGetAttribute(value: *mut c_int, attribute: DeviceAttribute, device: c_int) -> HipError;
        fn hipDeviceGetName(name: *mut c_char, len: c_int, device: DeviceOrdinal) -> HipError;
        fn hipDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) -> HipError;
        fn hipDeviceGetUuid(uuid: *mut Uuid, device: DeviceOrdinal) -> HipError;
        fn hipDeviceSynchronize() -> HipError;
        fn hipGetErrorName(error: HipError) -> *const c_char;
        fn hipGetErrorString(error: HipError) -> *const c_char;
        fn hipGetLastError() -> HipError;
        fn hipPointerGetAttributes(attributes: *mut PointerAttributes, ptr: *const c_void) -> HipError;
        fn hipPointerGetAttribute(
            data: *mut c_void, attribute: PointerAttribute, ptr: DevicePtr,
        ) -> HipError;
        fn hipMemGetAddressRange(base: *mut DevicePtr, size: *mut usize, ptr: DevicePtr) -> HipError;
        fn hipMalloc(ptr: *mut *mut c_void, size: usize) -> HipError;
        fn hipFree(ptr: *mut c_void) -> HipError;
        fn hipHostMalloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
        fn hipHostFree(ptr: *mut c_void) -> HipError;
        fn hipHostRegister(ptr: *mut c_void, size: usize, flags: c_uint) -> HipError;
        fn hipHostUnregister(ptr: *mut c_void) -> HipError;
        fn hipHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint) -> HipError;
        fn hipMemcpy(dst: *mut c_void, src: *const c_void, size: usize, kind: MemcpyKind) -> HipError;
        fn hipMemcpyAsync(
            dst: *mut c_void, src: *const c_void, size: usize, kind: MemcpyKind, stream: StreamPtr,
        ) -> HipError;
        fn hipMemset(dst: *mut c_void, value: c_int, size: usize) -> HipError;
        fn hipStreamCreateWithFlags(stream: *mut StreamPtr, flags: c_uint) -> HipError;
        fn hipStreamDestroy(stream: StreamPtr) -> HipError;
        fn hipStreamSynchronize(stream: StreamPtr) -> HipError;
        fn hipStreamQuery(stream: StreamPtr) -> HipError;
        fn hipStreamWaitEvent(stream: StreamPtr, event: EventPtr, flags: c_uint) -> HipError;
        fn hipStreamGetFlags(stream: StreamPtr, flags: *mut c_uint) -> HipError;
        fn hipEventCreateWithFlags(event: *mut EventPtr, flags: c_uint) -> HipError;
        fn hipEventRecord(event: EventPtr, stream: StreamPtr) -> HipError;
        fn hipEventQuery(event: EventPtr) -> HipError;
        fn hipEventSynchronize(event: EventPtr) -> HipError;
        fn hipEventDestroy(event: EventPtr) -> HipError;
        fn hipLaunchHostFunc(stream: StreamPtr, function: HostFn, user_data: *mut c_void) -> HipError;
    }
    optional {
        fn hipGetProcAddress(
            symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
            status: *mut ProcAddressStatus,
        ) -> HipError;
        fn hipStreamGetDevice(stream: StreamPtr, device: *mut DeviceOrdinal) -> HipError;
        fn hipStreamIsCapturing(stream: StreamPtr, status: *mut StreamCaptureStatus) -> HipError;
        fn hipThreadExchangeStreamCaptureMode(mode: *mut StreamCaptureMode) -> HipError;
        fn hipStreamWaitValue64(
            stream: StreamPtr, ptr: *mut c_void, value: u64, flags: c_uint, mask: u64,
        ) -> HipError;
        fn hipStreamWriteValue64(stream: StreamPtr, ptr: *mut c_void, value: u64, flags: c_uint) -> HipError;
        fn hipExtMallocWithFlags(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
        fn hipMallocManaged(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
        fn hipMemRetainAllocationHandle(handle: *mut AllocationPtr, address: *mut c_void) -> HipError;
        fn hipMemRelease(handle: AllocationPtr) -> HipError;
        fn hipModuleLoadData(module: *mut ModulePtr, image: *const c_void) -> HipError;
        fn hipModuleUnload(module: ModulePtr) -> HipError;
        fn hipModuleGetFunction(
            function: *mut FunctionPtr, module: ModulePtr, name: *const c_char,
        ) -> HipError;
        fn hipModuleLaunchKernel(
            function: FunctionPtr,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: StreamPtr,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> HipError;
    }
}
