//! CUDA's driver API as hipfile uses it: types, constants and the function table. No logic; every fact here is compared
//! with bindings generated from NVIDIA's own header by this crate's tests.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use core::fmt;

use crate::table::{function_table, named_codes};

/// `CUresult`: a number, not an enum, so that a code unknown to us survives the journey to the caller.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudaError(pub u32);

named_codes! {
    CudaError;
    SUCCESS = 0, "CUDA_SUCCESS";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED";
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY";
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE";
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED";
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU";
    INVALID_PTX = 218, "CUDA_ERROR_INVALID_PTX";
    JIT_COMPILER_NOT_FOUND = 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED";
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN";
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}

/// `CUdeviceptr`: a number, as wide as a pointer on every machine served.
pub type DevicePtr = u64;
/// `CUdevice`: what `cuDeviceGet` answers for an ordinal.
pub type CudaDevice = c_int;

/// What `CUcontext` points to: opaque.
#[repr(C)]
pub struct ContextOpaque {
    _private: [u8; 0],
}
/// `CUcontext`.
pub type ContextPtr = *mut ContextOpaque;

/// What `CUstream` points to: opaque.
#[repr(C)]
pub struct StreamOpaque {
    _private: [u8; 0],
}
/// `CUstream`.
pub type StreamPtr = *mut StreamOpaque;

/// What `CUevent` points to: opaque.
#[repr(C)]
pub struct EventOpaque {
    _private: [u8; 0],
}
/// `CUevent`.
pub type EventPtr = *mut EventOpaque;

/// What `CUmodule` points to: opaque.
#[repr(C)]
pub struct ModuleOpaque {
    _private: [u8; 0],
}
/// `CUmodule`.
pub type ModulePtr = *mut ModuleOpaque;

/// What `CUfunction` points to: opaque.
#[repr(C)]
pub struct FunctionOpaque {
    _private: [u8; 0],
}
/// `CUfunction`.
pub type FunctionPtr = *mut FunctionOpaque;

/// What `CUgraph` points to: opaque.
#[repr(C)]
pub struct GraphOpaque {
    _private: [u8; 0],
}
/// `CUgraph`.
pub type GraphPtr = *mut GraphOpaque;

/// `CUhostFn`.
pub type HostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid {
    /// Sixteen bytes.
    pub bytes: [c_char; 16],
}

/// `CUmemLocation`. All zero: no hint.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemLocation {
    /// `CUmemLocationType`.
    pub kind: c_uint,
    /// Which one of that kind.
    pub id: c_int,
}

/// `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcpyAttributes {
    /// When the source may be read.
    pub src_access_order: c_uint,
    /// A hint for managed memory.
    pub src_location: MemLocation,
    /// A hint for managed memory.
    pub dst_location: MemLocation,
    /// None is needed.
    pub flags: c_uint,
}
/// The source is read in the order of the stream.
pub const MEMCPY_SRC_ACCESS_ORDER_STREAM: c_uint = 1;

/// `CUmemorytype`; 0 stands for memory that CUDA does not know.
pub type MemoryType = c_uint;
/// Pinned host memory.
pub const MEMORY_TYPE_HOST: MemoryType = 1;
/// Device memory, or managed memory.
pub const MEMORY_TYPE_DEVICE: MemoryType = 2;
/// An array.
pub const MEMORY_TYPE_ARRAY: MemoryType = 3;
/// Unified memory.
pub const MEMORY_TYPE_UNIFIED: MemoryType = 4;

/// `CUpointer_attribute`.
pub type PointerAttribute = c_uint;
/// A [`MemoryType`].
pub const POINTER_ATTRIBUTE_MEMORY_TYPE: PointerAttribute = 2;
/// 64 bits that name one allocation during the life of the process.
pub const POINTER_ATTRIBUTE_BUFFER_ID: PointerAttribute = 7;
/// Whether it is managed memory; a truth, of which as many bytes are written as the driver likes.
pub const POINTER_ATTRIBUTE_IS_MANAGED: PointerAttribute = 8;
/// The device's ordinal, an `int`.
pub const POINTER_ATTRIBUTE_DEVICE_ORDINAL: PointerAttribute = 9;
/// Where the allocation begins; of reserved and mapped addresses where the reservation does.
pub const POINTER_ATTRIBUTE_RANGE_START_ADDR: PointerAttribute = 11;
/// How long the allocation or the reservation is, a `size_t`.
pub const POINTER_ATTRIBUTE_RANGE_SIZE: PointerAttribute = 12;

/// `CUdevice_attribute`.
pub type DeviceAttribute = c_uint;
/// Whether host and devices share one address space.
pub const ATTRIBUTE_UNIFIED_ADDRESSING: DeviceAttribute = 41;
/// Whether `cuStreamWaitValue64_v2` and `cuStreamWriteValue64_v2` work.
pub const ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: DeviceAttribute = 122;
/// Whether memory can be exported as a dma-buf.
pub const ATTRIBUTE_DMA_BUF_SUPPORTED: DeviceAttribute = 124;

/// `CUmemRangeHandleType`.
pub type MemRangeHandleType = c_uint;
/// The descriptor of a dma-buf, an `int`.
pub const MEM_RANGE_HANDLE_DMA_BUF_FD: MemRangeHandleType = 1;

/// `CUstreamCaptureStatus`.
pub type StreamCaptureStatus = c_uint;
/// Not capturing.
pub const STREAM_CAPTURE_STATUS_NONE: StreamCaptureStatus = 0;

/// `CUstreamCaptureMode`.
pub type StreamCaptureMode = c_uint;
/// While it captures, unsafe calls of any thread are refused.
pub const STREAM_CAPTURE_MODE_GLOBAL: StreamCaptureMode = 0;
/// No call is refused as unsafe.
pub const STREAM_CAPTURE_MODE_RELAXED: StreamCaptureMode = 2;

/// `CU_STREAM_DEFAULT`.
pub const STREAM_DEFAULT: c_uint = 0;
/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_LEGACY`'s value as a handle.
pub const STREAM_LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`'s value as a handle.
pub const STREAM_PER_THREAD: usize = 2;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
pub const STREAM_WAIT_VALUE_GEQ: c_uint = 0;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`.
pub const MEM_HOST_REGISTER_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
pub const MEM_HOST_REGISTER_DEVICE_MAP: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`.
pub const MEM_HOST_ALLOC_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`.
pub const MEM_HOST_ALLOC_DEVICE_MAP: c_uint = 2;
/// `CU_MEM_ATTACH_GLOBAL`.
pub const MEM_ATTACH_GLOBAL: c_uint = 1;

/// First `cuDriverGetVersion` value served: CUDA 12.0.
pub const OLDEST_DRIVER_VERSION: c_int = 12_000;

function_table! {
    /// The functions of CUDA's driver that hipfile calls.
    ///
    /// Every field is the driver's exported function of that name, which holds its version: `cuMemAlloc` in a program's
    /// source is `cuMemAlloc_v2` in the library. `Option` fields may be missing from older drivers.
    pub struct CudaApi;
    required {
        fn cuInit(flags: c_uint) -> CudaError;
        fn cuDriverGetVersion(version: *mut c_int) -> CudaError;
        fn cuGetErrorName(error: CudaError, name: *mut *const c_char) -> CudaError;
        fn cuDeviceGetCount(count: *mut c_int) -> CudaError;
        fn cuDeviceGet(device: *mut CudaDevice, ordinal: c_int) -> CudaError;
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: DeviceAttribute, device: CudaDevice) -> CudaError;
        fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CudaDevice) -> CudaError;
        fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CudaDevice) -> CudaError;
        fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: CudaDevice) -> CudaError;
        fn cuDevicePrimaryCtxRetain(context: *mut ContextPtr, device: CudaDevice) -> CudaError;
        fn cuDevicePrimaryCtxGetState(
            device: CudaDevice, flags: *mut c_uint, active: *mut c_int,
        ) -> CudaError;
        fn cuCtxGetCurrent(context: *mut ContextPtr) -> CudaError;
        fn cuCtxPushCurrent_v2(context: ContextPtr) -> CudaError;
        fn cuCtxPopCurrent_v2(context: *mut ContextPtr) -> CudaError;
        fn cuCtxGetDevice(device: *mut CudaDevice) -> CudaError;
        fn cuCtxSynchronize() -> CudaError;
        fn cuPointerGetAttributes(
            count: c_uint, attributes: *mut PointerAttribute, data: *mut *mut c_void, ptr: DevicePtr,
        ) -> CudaError;
        fn cuMemAlloc_v2(ptr: *mut DevicePtr, size: usize) -> CudaError;
        fn cuMemFree_v2(ptr: DevicePtr) -> CudaError;
        fn cuMemHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> CudaError;
        fn cuMemFreeHost(ptr: *mut c_void) -> CudaError;
        fn cuMemHostGetDevicePointer_v2(device: *mut DevicePtr, host: *mut c_void, flags: c_uint) -> CudaError;
        fn cuMemHostRegister_v2(ptr: *mut c_void, size: usize, flags: c_uint) -> CudaError;
        fn cuMemHostUnregister(ptr: *mut c_void) -> CudaError;
        fn cuMemcpyHtoD_v2(dst: DevicePtr, src: *const c_void, size: usize) -> CudaError;
        fn cuMemcpyDtoH_v2(dst: *mut c_void, src: DevicePtr, size: usize) -> CudaError;
        fn cuMemcpyHtoDAsync_v2(
            dst: DevicePtr, src: *const c_void, size: usize, stream: StreamPtr,
        ) -> CudaError;
        fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: DevicePtr, size: usize, stream: StreamPtr) -> CudaError;
        fn cuMemcpyDtoDAsync_v2(dst: DevicePtr, src: DevicePtr, size: usize, stream: StreamPtr) -> CudaError;
        fn cuStreamCreate(stream: *mut StreamPtr, flags: c_uint) -> CudaError;
        fn cuStreamDestroy_v2(stream: StreamPtr) -> CudaError;
        fn cuStreamSynchronize(stream: StreamPtr) -> CudaError;
        fn cuStreamQuery(stream: StreamPtr) -> CudaError;
        fn cuStreamGetFlags(stream: StreamPtr, flags: *mut c_uint) -> CudaError;
        fn cuStreamWaitEvent(stream: StreamPtr, event: EventPtr, flags: c_uint) -> CudaError;
        fn cuStreamGetCtx(stream: StreamPtr, context: *mut ContextPtr) -> CudaError;
        fn cuStreamIsCapturing(stream: StreamPtr, status: *mut StreamCaptureStatus) -> CudaError;
        fn cuStreamBeginCapture_v2(stream: StreamPtr, mode: StreamCaptureMode) -> CudaError;
        fn cuStreamEndCapture(stream: StreamPtr, graph: *mut GraphPtr) -> CudaError;
        fn cuThreadExchangeStreamCaptureMode(mode: *mut StreamCaptureMode) -> CudaError;
        fn cuStreamWaitValue64_v2(
            stream: StreamPtr, ptr: DevicePtr, value: u64, flags: c_uint,
        ) -> CudaError;
        fn cuStreamWriteValue64_v2(
            stream: StreamPtr, ptr: DevicePtr, value: u64, flags: c_uint,
        ) -> CudaError;
        fn cuEventCreate(event: *mut EventPtr, flags: c_uint) -> CudaError;
        fn cuEventRecord(event: EventPtr, stream: StreamPtr) -> CudaError;
        fn cuEventDestroy_v2(event: EventPtr) -> CudaError;
        fn cuLaunchHostFunc(stream: StreamPtr, function: HostFn, user_data: *mut c_void) -> CudaError;
        fn cuModuleLoadData(module: *mut ModulePtr, image: *const c_void) -> CudaError;
        fn cuModuleGetFunction(
            function: *mut FunctionPtr, module: ModulePtr, name: *const c_char,
        ) -> CudaError;
        fn cuLaunchKernel(
            function: FunctionPtr,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: StreamPtr,
            params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> CudaError;
    }
    optional {
        fn cuMemAllocManaged(ptr: *mut DevicePtr, size: usize, flags: c_uint) -> CudaError;
        fn cuMemAllocAsync(ptr: *mut DevicePtr, size: usize, stream: StreamPtr) -> CudaError;
        fn cuMemFreeAsync(ptr: DevicePtr, stream: StreamPtr) -> CudaError;
        fn cuMemcpyBatchAsync_v2(
            dsts: *mut DevicePtr, srcs: *mut DevicePtr, sizes: *mut usize, count: usize,
            attributes: *mut MemcpyAttributes, attribute_indices: *mut usize, attribute_count: usize,
            stream: StreamPtr,
        ) -> CudaError;
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, ptr: DevicePtr, size: usize, kind: MemRangeHandleType, flags: c_ulonglong,
        ) -> CudaError;
    }
}
