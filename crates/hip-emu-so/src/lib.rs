//! The emulated GPU as `libamdhip64.so`: every function of `hip-emu` under its C name, and nothing else. It decides
//! nothing; the functions themselves stop panics at the C boundary.

use core::ffi::*;

use gpu_sys::hip::*;
use hip_emu::types::*;

const MARKER: &str = concat!("hip-emu ", env!("CARGO_PKG_VERSION"), "\0");

/// What tells a program, and hipfile, that this runtime is emulated: [`EMULATION_MARKER`] is its name. It reads as
/// a C string.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a C name")]
pub static hipfile_emulated_gpu: [u8; MARKER.len()] = {
    let mut text = [0; MARKER.len()];
    text.copy_from_slice(MARKER.as_bytes());
    text
};

/// Gives the functions of one module of `hip-emu` their C names.
macro_rules! export {
    ($module:ident: $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            /// HIP's function of that name.
            ///
            /// # Safety
            /// As HIP states it.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "a C name")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                // SAFETY: the caller keeps HIP's rules, which are those of the emulated function.
                unsafe { hip_emu::$module::$name($($arg),*) }
            }
        )*
    };
}

export! { device:
    fn hipInit(flags: c_uint) -> HipError;
    fn hipRuntimeGetVersion(version: *mut c_int) -> HipError;
    fn hipDriverGetVersion(version: *mut c_int) -> HipError;
    fn hipGetDeviceCount(count: *mut c_int) -> HipError;
    fn hipGetDevice(device: *mut c_int) -> HipError;
    fn hipSetDevice(device: c_int) -> HipError;
    fn hipDeviceGet(device: *mut DeviceOrdinal, ordinal: c_int) -> HipError;
    fn hipDeviceGetAttribute(value: *mut c_int, attribute: DeviceAttribute, device: c_int) -> HipError;
    fn hipDeviceGetName(name: *mut c_char, len: c_int, device: DeviceOrdinal) -> HipError;
    fn hipDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) -> HipError;
    fn hipDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) -> HipError;
    fn hipDeviceGetUuid(uuid: *mut Uuid, device: DeviceOrdinal) -> HipError;
    fn hipDeviceTotalMem(bytes: *mut usize, device: DeviceOrdinal) -> HipError;
    fn hipDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: DeviceOrdinal) -> HipError;
    fn hipDeviceSynchronize() -> HipError;
    fn hipGetDevicePropertiesR0600(properties: *mut DeviceProperties, device: c_int) -> HipError;
    fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> HipError;
    fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> HipError;
    fn hipDeviceDisablePeerAccess(peer: c_int) -> HipError;
    fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> HipError;
}

export! { errors:
    fn hipGetErrorName(error: HipError) -> *const c_char;
    fn hipGetErrorString(error: HipError) -> *const c_char;
    fn hipDrvGetErrorName(error: HipError, text: *mut *const c_char) -> HipError;
    fn hipDrvGetErrorString(error: HipError, text: *mut *const c_char) -> HipError;
    fn hipGetLastError() -> HipError;
    fn hipPeekAtLastError() -> HipError;
    fn hipExtGetLastError() -> HipError;
}

export! { pointer:
    fn hipPointerGetAttributes(attributes: *mut PointerAttributes, ptr: *const c_void) -> HipError;
    fn hipPointerGetAttribute(data: *mut c_void, attribute: PointerAttribute, ptr: DevicePtr) -> HipError;
    fn hipMemGetAddressRange(base: *mut DevicePtr, size: *mut usize, ptr: DevicePtr) -> HipError;
}

export! { memory:
    fn hipMalloc(ptr: *mut *mut c_void, size: usize) -> HipError;
    fn hipFree(ptr: *mut c_void) -> HipError;
    fn hipMallocAsync(ptr: *mut *mut c_void, size: usize, stream: StreamPtr) -> HipError;
    fn hipFreeAsync(ptr: *mut c_void, stream: StreamPtr) -> HipError;
    fn hipMallocManaged(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
    fn hipExtMallocWithFlags(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> HipError;
}

export! { virtual_memory:
    fn hipMemGetAllocationGranularity(
        granularity: *mut usize, prop: *const MemAllocationProp, option: MemGranularity,
    ) -> HipError;
    fn hipMemCreate(
        handle: *mut AllocationPtr, size: usize, prop: *const MemAllocationProp, flags: c_ulonglong,
    ) -> HipError;
    fn hipMemRelease(handle: AllocationPtr) -> HipError;
    fn hipMemAddressReserve(
        ptr: *mut *mut c_void, size: usize, alignment: usize, addr: *mut c_void, flags: c_ulonglong,
    ) -> HipError;
    fn hipMemAddressFree(ptr: *mut c_void, size: usize) -> HipError;
    fn hipMemMap(
        ptr: *mut c_void, size: usize, offset: usize, handle: AllocationPtr, flags: c_ulonglong,
    ) -> HipError;
    fn hipMemUnmap(ptr: *mut c_void, size: usize) -> HipError;
    fn hipMemSetAccess(ptr: *mut c_void, size: usize, desc: *const MemAccessDesc, count: usize) -> HipError;
    fn hipMemRetainAllocationHandle(handle: *mut AllocationPtr, addr: *mut c_void) -> HipError;
}

export! { ipc:
    fn hipIpcGetMemHandle(handle: *mut IpcMemHandle, ptr: *mut c_void) -> HipError;
    fn hipIpcOpenMemHandle(ptr: *mut *mut c_void, handle: IpcMemHandle, flags: c_uint) -> HipError;
    fn hipIpcCloseMemHandle(ptr: *mut c_void) -> HipError;
}

export! { host:
    fn hipHostMalloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
    fn hipHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError;
    fn hipMallocHost(ptr: *mut *mut c_void, size: usize) -> HipError;
    fn hipHostFree(ptr: *mut c_void) -> HipError;
    fn hipFreeHost(ptr: *mut c_void) -> HipError;
    fn hipHostRegister(ptr: *mut c_void, size: usize, flags: c_uint) -> HipError;
    fn hipHostUnregister(ptr: *mut c_void) -> HipError;
    fn hipHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint) -> HipError;
    fn hipHostGetFlags(flags: *mut c_uint, host: *mut c_void) -> HipError;
}

export! { copy:
    fn hipMemcpy(dst: *mut c_void, src: *const c_void, size: usize, kind: MemcpyKind) -> HipError;
    fn hipMemcpyAsync(
        dst: *mut c_void, src: *const c_void, size: usize, kind: MemcpyKind, stream: StreamPtr,
    ) -> HipError;
    fn hipMemcpyWithStream(
        dst: *mut c_void, src: *const c_void, size: usize, kind: MemcpyKind, stream: StreamPtr,
    ) -> HipError;
    fn hipMemcpyHtoD(dst: DevicePtr, src: *const c_void, size: usize) -> HipError;
    fn hipMemcpyDtoH(dst: *mut c_void, src: DevicePtr, size: usize) -> HipError;
    fn hipMemcpyDtoD(dst: DevicePtr, src: DevicePtr, size: usize) -> HipError;
    fn hipMemcpyHtoDAsync(dst: DevicePtr, src: *const c_void, size: usize, stream: StreamPtr) -> HipError;
    fn hipMemcpyDtoHAsync(dst: *mut c_void, src: DevicePtr, size: usize, stream: StreamPtr) -> HipError;
    fn hipMemcpyDtoDAsync(dst: DevicePtr, src: DevicePtr, size: usize, stream: StreamPtr) -> HipError;
    fn hipMemcpyPeer(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, size: usize,
    ) -> HipError;
    fn hipMemcpyPeerAsync(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, size: usize,
        stream: StreamPtr,
    ) -> HipError;
}

export! { memset:
    fn hipMemset(dst: *mut c_void, value: c_int, size: usize) -> HipError;
    fn hipMemsetAsync(dst: *mut c_void, value: c_int, size: usize, stream: StreamPtr) -> HipError;
    fn hipMemsetD8(dst: DevicePtr, value: c_uchar, count: usize) -> HipError;
    fn hipMemsetD8Async(dst: DevicePtr, value: c_uchar, count: usize, stream: StreamPtr) -> HipError;
    fn hipMemsetD32(dst: DevicePtr, value: c_int, count: usize) -> HipError;
    fn hipMemsetD32Async(dst: DevicePtr, value: c_int, count: usize, stream: StreamPtr) -> HipError;
}

export! { stream:
    fn hipStreamCreate(stream: *mut StreamPtr) -> HipError;
    fn hipStreamCreateWithFlags(stream: *mut StreamPtr, flags: c_uint) -> HipError;
    fn hipStreamCreateWithPriority(stream: *mut StreamPtr, flags: c_uint, priority: c_int) -> HipError;
    fn hipStreamDestroy(stream: StreamPtr) -> HipError;
    fn hipStreamSynchronize(stream: StreamPtr) -> HipError;
    fn hipStreamQuery(stream: StreamPtr) -> HipError;
    fn hipStreamWaitEvent(stream: StreamPtr, event: EventPtr, flags: c_uint) -> HipError;
    fn hipStreamGetFlags(stream: StreamPtr, flags: *mut c_uint) -> HipError;
    fn hipStreamGetPriority(stream: StreamPtr, priority: *mut c_int) -> HipError;
    fn hipStreamGetDevice(stream: StreamPtr, device: *mut DeviceOrdinal) -> HipError;
    fn hipLaunchHostFunc(stream: StreamPtr, function: HostFn, user_data: *mut c_void) -> HipError;
}

export! { wait_value:
    fn hipStreamWaitValue32(
        stream: StreamPtr, ptr: *mut c_void, value: u32, flags: c_uint, mask: u32,
    ) -> HipError;
    fn hipStreamWaitValue64(
        stream: StreamPtr, ptr: *mut c_void, value: u64, flags: c_uint, mask: u64,
    ) -> HipError;
    fn hipStreamWriteValue32(stream: StreamPtr, ptr: *mut c_void, value: u32, flags: c_uint) -> HipError;
    fn hipStreamWriteValue64(stream: StreamPtr, ptr: *mut c_void, value: u64, flags: c_uint) -> HipError;
}

export! { event:
    fn hipEventCreate(event: *mut EventPtr) -> HipError;
    fn hipEventCreateWithFlags(event: *mut EventPtr, flags: c_uint) -> HipError;
    fn hipEventRecord(event: EventPtr, stream: StreamPtr) -> HipError;
    fn hipEventQuery(event: EventPtr) -> HipError;
    fn hipEventSynchronize(event: EventPtr) -> HipError;
    fn hipEventElapsedTime(milliseconds: *mut f32, start: EventPtr, stop: EventPtr) -> HipError;
    fn hipEventDestroy(event: EventPtr) -> HipError;
}

export! { capture:
    fn hipStreamBeginCapture(stream: StreamPtr, mode: StreamCaptureMode) -> HipError;
    fn hipStreamEndCapture(stream: StreamPtr, graph: *mut GraphPtr) -> HipError;
    fn hipStreamIsCapturing(stream: StreamPtr, status: *mut StreamCaptureStatus) -> HipError;
    fn hipThreadExchangeStreamCaptureMode(mode: *mut StreamCaptureMode) -> HipError;
    fn hipGraphDestroy(graph: GraphPtr) -> HipError;
}

export! { module:
    fn hipModuleLoadData(module: *mut ModulePtr, image: *const c_void) -> HipError;
    fn hipModuleUnload(module: ModulePtr) -> HipError;
    fn hipModuleGetFunction(function: *mut FunctionPtr, module: ModulePtr, name: *const c_char) -> HipError;
    fn hipModuleLaunchKernel(
        function: FunctionPtr, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: StreamPtr, params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> HipError;
}

export! { proc_address:
    fn hipGetProcAddress(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut ProcAddressStatus,
    ) -> HipError;
}

// hipAmdFileRead and hipAmdFileWrite are in no public header, hipMemGetHandleForAddressRange is only in newer ones: they are
// reached by hipGetProcAddress alone.
