//! The functions that are HIP's under another name, in the current context.

use core::ffi::{c_char, c_uint, c_ulonglong, c_void};

use gpu_sys::cuda::{
    CudaError, DevicePtr, EventPtr, FunctionPtr, GraphPtr, HostFn, MEMCPY_SRC_ACCESS_ORDER_STREAM,
    MemRangeHandleType, MemcpyAttributes, ModulePtr, StreamCaptureMode, StreamCaptureStatus, StreamPtr,
};
use gpu_sys::hip::HipError;

use super::context::{within, within_state};
use super::{hip_result, is_copy_late, started};
use crate::{capture, copy, device, dma_buf, event, host, memory, module, stream, wait_value};

/// A device address as HIP writes it.
pub(super) fn address(ptr: DevicePtr) -> *mut c_void {
    ptr as usize as *mut c_void
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),*) = $body:expr;)+) => { $(
        pub(super) unsafe extern "C" fn $name($($arg: $ty),*) -> CudaError {
            // SAFETY: as the C function demands; HIP's function demands no more, and checks as much.
            within(stringify!($name), || unsafe { $body })
        }
    )+ };
}

calls! {
    cuCtxSynchronize() = device::hipDeviceSynchronize();
    cuMemFree_v2(ptr: DevicePtr) = memory::hipFree(address(ptr));
    cuMemFreeHost(ptr: *mut c_void) = host::hipHostFree(ptr);
    cuMemHostGetDevicePointer_v2(at: *mut DevicePtr, ptr: *mut c_void, flags: c_uint) =
        host::hipHostGetDevicePointer(at.cast(), ptr, flags);
    cuMemHostRegister_v2(ptr: *mut c_void, size: usize, flags: c_uint) =
        host::hipHostRegister(ptr, size, flags);
    cuMemHostUnregister(ptr: *mut c_void) = host::hipHostUnregister(ptr);
    cuMemcpyHtoDAsync_v2(dst: DevicePtr, src: *const c_void, size: usize, stream: StreamPtr) =
        copy::hipMemcpyHtoDAsync(address(dst), src, size, stream.cast());
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: DevicePtr, size: usize, stream: StreamPtr) =
        copy::hipMemcpyDtoHAsync(dst, address(src), size, stream.cast());
    cuMemcpyDtoDAsync_v2(dst: DevicePtr, src: DevicePtr, size: usize, stream: StreamPtr) =
        copy::hipMemcpyDtoDAsync(address(dst), address(src), size, stream.cast());
    cuStreamCreate(stream: *mut StreamPtr, flags: c_uint) =
        stream::hipStreamCreateWithFlags(stream.cast(), flags);
    cuStreamDestroy_v2(stream: StreamPtr) = stream::hipStreamDestroy(stream.cast());
    cuStreamSynchronize(stream: StreamPtr) = stream::hipStreamSynchronize(stream.cast());
    cuStreamQuery(stream: StreamPtr) = stream::hipStreamQuery(stream.cast());
    cuStreamGetFlags(stream: StreamPtr, flags: *mut c_uint) = stream::hipStreamGetFlags(stream.cast(), flags);
    cuStreamWaitEvent(stream: StreamPtr, event: EventPtr, flags: c_uint) =
        stream::hipStreamWaitEvent(stream.cast(), event.cast(), flags);
    cuStreamIsCapturing(stream: StreamPtr, status: *mut StreamCaptureStatus) =
        capture::hipStreamIsCapturing(stream.cast(), status);
    cuStreamBeginCapture_v2(stream: StreamPtr, mode: StreamCaptureMode) =
        capture::hipStreamBeginCapture(stream.cast(), mode);
    cuStreamEndCapture(stream: StreamPtr, graph: *mut GraphPtr) =
        capture::hipStreamEndCapture(stream.cast(), graph.cast());
    cuStreamWaitValue64_v2(stream: StreamPtr, ptr: DevicePtr, value: u64, flags: c_uint) =
        wait_value::hipStreamWaitValue64(stream.cast(), address(ptr), value, flags, u64::MAX);
    cuStreamWriteValue64_v2(stream: StreamPtr, ptr: DevicePtr, value: u64, flags: c_uint) =
        wait_value::hipStreamWriteValue64(stream.cast(), address(ptr), value, flags);
    cuEventCreate(event: *mut EventPtr, flags: c_uint) = event::hipEventCreateWithFlags(event.cast(), flags);
    cuEventRecord(event: EventPtr, stream: StreamPtr) = event::hipEventRecord(event.cast(), stream.cast());
    cuEventDestroy_v2(event: EventPtr) = event::hipEventDestroy(event.cast());
    cuLaunchHostFunc(stream: StreamPtr, function: HostFn, data: *mut c_void) =
        stream::hipLaunchHostFunc(stream.cast(), function, data);
    cuModuleGetFunction(function: *mut FunctionPtr, module: ModulePtr, name: *const c_char) =
        module::hipModuleGetFunction(function.cast(), module.cast(), name);
    cuMemAllocAsync(ptr: *mut DevicePtr, size: usize, stream: StreamPtr) =
        memory::hipMallocAsync(ptr.cast(), size, stream.cast());
    cuMemFreeAsync(ptr: DevicePtr, stream: StreamPtr) = memory::hipFreeAsync(address(ptr), stream.cast());
    cuMemAllocManaged(ptr: *mut DevicePtr, size: usize, flags: c_uint) =
        memory::hipMallocManaged(ptr.cast(), size, flags);
    cuMemGetHandleForAddressRange(
        handle: *mut c_void, ptr: DevicePtr, size: usize, kind: MemRangeHandleType, flags: c_ulonglong
    ) = dma_buf::hipMemGetHandleForAddressRange(handle, address(ptr), size, kind, flags);
    cuMemAlloc_v2(ptr: *mut DevicePtr, size: usize) = match size {
        0 => HipError::INVALID_VALUE,
        _ => memory::hipMalloc(ptr.cast(), size),
    };
    cuMemHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) = match size {
        0 => HipError::INVALID_VALUE,
        _ => host::hipHostAlloc(ptr, size, flags),
    };
    cuLaunchKernel(
        function: FunctionPtr,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: StreamPtr,
        params: *mut *mut c_void, extra: *mut *mut c_void
    ) = module::hipModuleLaunchKernel(
        function.cast(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream.cast(), params, extra,
    );
}

/// Of the thread, not of a context.
pub(super) unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut StreamCaptureMode) -> CudaError {
    started("cuThreadExchangeStreamCaptureMode", |_| {
        // SAFETY: as the C function demands.
        hip_result(unsafe { capture::hipThreadExchangeStreamCaptureMode(mode) })
    })
}

/// Blocking copies are work of the default stream, and otherwise as unsafe as allocation: a relaxed thread may do them
/// while a stream is captured that is not ordered with the default stream.
fn blocking(name: &str, copy: impl FnOnce() -> HipError) -> CudaError {
    within_state(name, |state| {
        let device = state.current().map_err(super::code)?;
        capture::refuse_implicit(state, device.ordinal).map_err(super::code)?;
        capture::refuse_unsafe(state).map_err(super::code)?;
        hip_result(copy())?;
        // SAFETY: a plain call.
        hip_result(unsafe { stream::hipStreamSynchronize(core::ptr::null_mut()) })
    })
}

pub(super) unsafe extern "C" fn cuMemcpyHtoD_v2(
    dst: DevicePtr,
    src: *const c_void,
    size: usize,
) -> CudaError {
    let null = core::ptr::null_mut();
    // SAFETY: as the C function demands.
    blocking("cuMemcpyHtoD", || unsafe { copy::hipMemcpyHtoDAsync(address(dst), src, size, null) })
}

pub(super) unsafe extern "C" fn cuMemcpyDtoH_v2(dst: *mut c_void, src: DevicePtr, size: usize) -> CudaError {
    let null = core::ptr::null_mut();
    // SAFETY: as the C function demands.
    blocking("cuMemcpyDtoH", || unsafe { copy::hipMemcpyDtoHAsync(dst, address(src), size, null) })
}

/// # Safety
/// The list has so many elements and one more.
unsafe fn element<T: Copy>(list: *const T, at: usize) -> T {
    // SAFETY: as this function demands.
    let element = unsafe { list.add(at) };
    // SAFETY: as this function demands.
    unsafe { element.read() }
}

/// Copies to the GPU, one after the other: in the stream's order only, and on no default stream.
pub(super) unsafe extern "C" fn cuMemcpyBatchAsync_v2(
    dsts: *mut DevicePtr,
    srcs: *mut DevicePtr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut MemcpyAttributes,
    attribute_indices: *mut usize,
    attribute_count: usize,
    stream: StreamPtr,
) -> CudaError {
    within_state("cuMemcpyBatchAsync", |_| {
        let lists =
            [dsts.cast::<c_void>(), srcs.cast(), sizes.cast(), attributes.cast(), attribute_indices.cast()];
        if count == 0 || attribute_count != 1 || stream.is_null() || lists.iter().any(|list| list.is_null()) {
            return Err(CudaError::INVALID_VALUE);
        }
        // SAFETY: as the C function demands: one index.
        let index = unsafe { attribute_indices.read() };
        // SAFETY: as the C function demands: one set of attributes.
        let attributes = unsafe { attributes.read() };
        if index != 0 || attributes.src_access_order != MEMCPY_SRC_ACCESS_ORDER_STREAM {
            return Err(CudaError::INVALID_VALUE);
        }
        for at in 0..count {
            // SAFETY: as the C function demands: so many of each.
            let dst = address(unsafe { element(dsts, at) });
            // SAFETY: as above.
            let src = address(unsafe { element(srcs, at) });
            // SAFETY: as above.
            let size = unsafe { element(sizes, at) };
            if size == 0 {
                return Err(CudaError::INVALID_VALUE);
            }
            // SAFETY: as the C function demands; the addresses are checked.
            hip_result(unsafe { copy::hipMemcpyHtoDAsync(dst, src, size, stream.cast()) })?;
        }
        Ok(())
    })
}

/// Takes PTX with the one kernel there is, and nothing else.
pub(super) unsafe extern "C" fn cuModuleLoadData(loaded: *mut ModulePtr, image: *const c_void) -> CudaError {
    within_state("cuModuleLoadData", |_| {
        if image.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        // SAFETY: as the C function demands.
        unsafe { is_copy_late(image) }?;
        let blob = module::blob();
        // SAFETY: as the C function demands; the image is a code object of ours.
        hip_result(unsafe { module::hipModuleLoadData(loaded.cast(), blob.as_ptr().cast()) })
    })
}
