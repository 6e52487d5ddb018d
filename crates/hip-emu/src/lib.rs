//! An emulated GPU: HIP in plain memory, filling the function table of `gpu-sys`.

pub mod amd_file;
pub mod capture;
pub mod copy;
pub mod device;
pub mod errors;
pub mod event;
pub mod function;
pub mod host;
pub mod memory;
pub mod memset;
pub mod module;
pub mod pointer;
pub mod proc_address;
pub mod properties;
pub mod rtc;
pub mod stream;
pub mod types;
pub mod wait_value;

use gpu_sys::hip::HipApi;

static API: HipApi = HipApi {
    hipInit: device::hipInit,
    hipRuntimeGetVersion: device::hipRuntimeGetVersion,
    hipGetDeviceCount: device::hipGetDeviceCount,
    hipGetDevice: device::hipGetDevice,
    hipSetDevice: device::hipSetDevice,
    hipDeviceGetAttribute: device::hipDeviceGetAttribute,
    hipDeviceGetName: device::hipDeviceGetName,
    hipDeviceGetPCIBusId: device::hipDeviceGetPCIBusId,
    hipDeviceGetUuid: device::hipDeviceGetUuid,
    hipDeviceSynchronize: device::hipDeviceSynchronize,
    hipGetErrorName: errors::hipGetErrorName,
    hipGetErrorString: errors::hipGetErrorString,
    hipGetLastError: errors::hipGetLastError,
    hipPointerGetAttributes: pointer::hipPointerGetAttributes,
    hipPointerGetAttribute: pointer::hipPointerGetAttribute,
    hipMemGetAddressRange: pointer::hipMemGetAddressRange,
    hipMalloc: memory::hipMalloc,
    hipFree: memory::hipFree,
    hipHostMalloc: host::hipHostMalloc,
    hipHostFree: host::hipHostFree,
    hipHostRegister: host::hipHostRegister,
    hipHostUnregister: host::hipHostUnregister,
    hipHostGetDevicePointer: host::hipHostGetDevicePointer,
    hipMemcpy: copy::hipMemcpy,
    hipMemcpyAsync: copy::hipMemcpyAsync,
    hipMemset: memset::hipMemset,
    hipStreamCreateWithFlags: stream::hipStreamCreateWithFlags,
    hipStreamDestroy: stream::hipStreamDestroy,
    hipStreamSynchronize: stream::hipStreamSynchronize,
    hipStreamQuery: stream::hipStreamQuery,
    hipStreamWaitEvent: stream::hipStreamWaitEvent,
    hipStreamGetFlags: stream::hipStreamGetFlags,
    hipEventCreateWithFlags: event::hipEventCreateWithFlags,
    hipEventRecord: event::hipEventRecord,
    hipEventQuery: event::hipEventQuery,
    hipEventSynchronize: event::hipEventSynchronize,
    hipEventDestroy: event::hipEventDestroy,
    hipLaunchHostFunc: stream::hipLaunchHostFunc,
    hipGetProcAddress: Some(proc_address::hipGetProcAddress),
    hipStreamGetDevice: Some(stream::hipStreamGetDevice),
    hipStreamIsCapturing: Some(capture::hipStreamIsCapturing),
    hipStreamWaitValue64: Some(wait_value::hipStreamWaitValue64),
    hipStreamWriteValue64: Some(wait_value::hipStreamWriteValue64),
    hipExtMallocWithFlags: Some(memory::hipExtMallocWithFlags),
    hipMallocManaged: Some(memory::hipMallocManaged),
    hipModuleLoadData: Some(module::hipModuleLoadData),
    hipModuleUnload: Some(module::hipModuleUnload),
    hipModuleGetFunction: Some(module::hipModuleGetFunction),
    hipModuleLaunchKernel: Some(module::hipModuleLaunchKernel),
};

/// The emulated runtime as a function table.
pub fn api() -> &'static HipApi {
    &API
}
