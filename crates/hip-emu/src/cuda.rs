//! The same emulated machine under CUDA's driver API: thin functions over those of HIP, for clients of the table of
//! `gpu_sys::cuda`. What is CUDA's own here: a strict stack of contexts for each thread, primary ones only, without which
//! nothing works; what a pointer is; PTX as text; error numbers. It has no C names and is no library.

mod calls;
mod context;
pub mod ipc;

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use gpu_sys::cuda::{
    ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, ATTRIBUTE_DMA_BUF_SUPPORTED, ATTRIBUTE_UNIFIED_ADDRESSING,
    CudaApi, CudaDevice, CudaError, DeviceAttribute, DevicePtr, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST,
    POINTER_ATTRIBUTE_BUFFER_ID, POINTER_ATTRIBUTE_DEVICE_ORDINAL, POINTER_ATTRIBUTE_IS_MANAGED,
    POINTER_ATTRIBUTE_MEMORY_TYPE, POINTER_ATTRIBUTE_RANGE_SIZE, POINTER_ATTRIBUTE_RANGE_START_ADDR,
    PointerAttribute, Uuid,
};
use gpu_sys::hip::{self, HipError};

use crate::call::refuse_in_host_function_named;
use crate::device;
use crate::ranges::Kind;
use crate::state::{self, State};

/// What the driver reports: CUDA 13.0.
pub const VERSION: c_int = 13_000;

static STARTED: AtomicBool = AtomicBool::new(false);

/// The same number in CUDA, but for the few that CUDA does not have.
fn code(error: HipError) -> CudaError {
    match error {
        HipError::INVALID_CONFIGURATION
        | HipError::INVALID_DEVICE_POINTER
        | HipError::INVALID_MEMCPY_DIRECTION
        | HipError::INVALID_SYMBOL => CudaError::INVALID_VALUE,
        other => CudaError(other.0),
    }
}

fn outcome(result: Result<(), CudaError>) -> CudaError {
    result.err().unwrap_or(CudaError::SUCCESS)
}

/// The body of a function that needs no context, only a driver that was started.
fn started(name: &str, body: impl FnOnce(&'static State) -> Result<(), CudaError>) -> CudaError {
    refuse_in_host_function_named(name);
    if !STARTED.load(Ordering::Acquire) {
        return CudaError::NOT_INITIALIZED;
    }
    outcome(state::get().map_err(code).and_then(body))
}

/// Writes an answer.
///
/// # Safety
/// `to` is null or may be written to.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), CudaError> {
    // SAFETY: as this function demands.
    unsafe { crate::call::put(to, value) }.map_err(code)
}

fn known(state: &State, device: CudaDevice) -> Result<usize, CudaError> {
    usize::try_from(device)
        .ok()
        .filter(|ordinal| *ordinal < state.devices.len())
        .ok_or(CudaError::INVALID_DEVICE)
}

unsafe extern "C" fn cuInit(flags: c_uint) -> CudaError {
    refuse_in_host_function_named("cuInit");
    if flags != 0 {
        return CudaError::INVALID_VALUE;
    }
    match state::get() {
        Err(error) => code(error),
        Ok(state) if state.devices.is_empty() => CudaError::NO_DEVICE,
        Ok(_) => {
            STARTED.store(true, Ordering::Release);
            CudaError::SUCCESS
        }
    }
}

unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CudaError {
    // SAFETY: as the C function demands.
    outcome(unsafe { put(version, VERSION) })
}

unsafe extern "C" fn cuGetErrorName(error: CudaError, name: *mut *const c_char) -> CudaError {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        CudaError::NAMED.iter().map(|(_, name)| CString::new(*name).unwrap_or_default()).collect()
    });
    let at = CudaError::NAMED.iter().position(|(code, _)| *code == error);
    let found = at.map_or(core::ptr::null(), |at| names[at].as_ptr());
    // SAFETY: as the C function demands.
    let put = unsafe { put(name, found) };
    outcome(put.and(if found.is_null() { Err(CudaError::INVALID_VALUE) } else { Ok(()) }))
}

unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CudaError {
    // SAFETY: as the C function demands.
    started("cuDeviceGetCount", |state| unsafe { put(count, state.devices.len() as c_int) })
}

unsafe extern "C" fn cuDeviceGet(device: *mut CudaDevice, ordinal: c_int) -> CudaError {
    started("cuDeviceGet", |state| {
        known(state, ordinal)?;
        // SAFETY: as the C function demands.
        unsafe { put(device, ordinal) }
    })
}

unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: DeviceAttribute,
    device: CudaDevice,
) -> CudaError {
    started("cuDeviceGetAttribute", |state| {
        known(state, device)?;
        match attribute {
            // SAFETY: as the C function demands.
            ATTRIBUTE_UNIFIED_ADDRESSING => unsafe { put(value, 1) },
            ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS => {
                let hidden = state.options.hide.iter().any(|name| name == "hipStreamWaitValue64");
                // SAFETY: as the C function demands.
                unsafe { put(value, c_int::from(!hidden)) }
            }
            ATTRIBUTE_DMA_BUF_SUPPORTED => {
                let hidden = state.options.hide.iter().any(|name| name == "hipMemGetHandleForAddressRange");
                // SAFETY: as the C function demands.
                unsafe { put(value, c_int::from(!hidden)) }
            }
            _ => Err(CudaError::INVALID_VALUE),
        }
    })
}

unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CudaDevice) -> CudaError {
    // SAFETY: as the C function demands.
    started("cuDeviceGetName", |_| hip_result(unsafe { device::hipDeviceGetName(name, len, device) }))
}

unsafe extern "C" fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CudaDevice) -> CudaError {
    // SAFETY: as the C function demands.
    started("cuDeviceGetPCIBusId", |_| hip_result(unsafe { device::hipDeviceGetPCIBusId(id, len, device) }))
}

unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: CudaDevice) -> CudaError {
    started("cuDeviceGetUuid", |_| {
        let mut found = hip::Uuid { bytes: [0; 16] };
        // SAFETY: `found` is writable.
        hip_result(unsafe { device::hipDeviceGetUuid(&raw mut found, device) })?;
        // SAFETY: as the C function demands.
        unsafe { put(uuid, Uuid { bytes: found.bytes }) }
    })
}

fn hip_result(error: HipError) -> Result<(), CudaError> {
    if error == HipError::SUCCESS { Ok(()) } else { Err(code(error)) }
}

unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut PointerAttribute,
    data: *mut *mut c_void,
    ptr: DevicePtr,
) -> CudaError {
    context::within_state("cuPointerGetAttributes", |state| {
        if count == 0 || attributes.is_null() || data.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let found = state.find(ptr as usize);
        let managed = found.as_ref().is_some_and(|found| matches!(found.kind, Kind::Managed { .. }));
        // SAFETY: the caller's array has that many elements.
        let attributes = unsafe { core::slice::from_raw_parts(attributes, count as usize) };
        // SAFETY: as above.
        let places = unsafe { core::slice::from_raw_parts(data, count as usize) };
        for (attribute, to) in attributes.iter().zip(places) {
            match *attribute {
                POINTER_ATTRIBUTE_MEMORY_TYPE => {
                    let kind = found.as_ref().map_or(0, |found| match found.memory_type() {
                        hip::MEMORY_TYPE_HOST => MEMORY_TYPE_HOST,
                        _ => MEMORY_TYPE_DEVICE,
                    });
                    // SAFETY: the caller's place has room for the attribute.
                    unsafe { put(to.cast(), kind) }
                }
                POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                    let device = found.as_ref().map_or(-2, |found| found.device as c_int);
                    // SAFETY: as above.
                    unsafe { put(to.cast(), device) }
                }
                // SAFETY: as above.
                POINTER_ATTRIBUTE_IS_MANAGED => unsafe { put(to.cast(), c_uint::from(managed)) },
                POINTER_ATTRIBUTE_BUFFER_ID => {
                    let id = found.as_ref().map_or(0, |found| u64::from(found.id));
                    // SAFETY: as above.
                    unsafe { put(to.cast(), id) }
                }
                POINTER_ATTRIBUTE_RANGE_START_ADDR => {
                    let base = found.as_ref().map_or(0, |found| found.base as DevicePtr);
                    // SAFETY: as above.
                    unsafe { put(to.cast(), base) }
                }
                POINTER_ATTRIBUTE_RANGE_SIZE => {
                    let len = found.as_ref().map_or(0, |found| found.len);
                    // SAFETY: as above.
                    unsafe { put(to.cast(), len) }
                }
                _ => Err(CudaError::INVALID_VALUE),
            }?;
        }
        Ok(())
    })
}

/// What a module's text begins with.
const PTX_HEAD: &CStr = c".version ";
/// What it has to have somewhere: the one kernel there is.
const ENTRY: &str = ".entry hipfile_copy_late(";

/// Whether a module's image is PTX with the one kernel.
///
/// # Safety
/// `image` leads to a NUL-terminated text, or to something that differs from one within its first bytes.
unsafe fn is_copy_late(image: *const c_void) -> Result<(), CudaError> {
    for (at, expected) in PTX_HEAD.to_bytes().iter().enumerate() {
        // SAFETY: all bytes before this one agree with a text, which goes on here.
        let byte = unsafe { image.cast::<u8>().add(at) };
        // SAFETY: as above.
        if unsafe { byte.read() } != *expected {
            return Err(CudaError::INVALID_IMAGE);
        }
    }
    // SAFETY: as this function demands.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let is_ours = text.to_str().is_ok_and(|text| text.contains(ENTRY));
    if is_ours { Ok(()) } else { Err(CudaError::INVALID_PTX) }
}

macro_rules! table {
    (required { $($module:ident { $($required:ident;)+ })+ } optional { $($optional:ident;)+ }) => {
        const API: CudaApi = CudaApi {
            $($($required: $module::$required,)+)+
            $($optional: Some(calls::$optional),)+
        };
    };
}

use self as here;

table! {
    required {
        here {
            cuInit;
            cuDriverGetVersion;
            cuGetErrorName;
            cuDeviceGetCount;
            cuDeviceGet;
            cuDeviceGetAttribute;
            cuDeviceGetName;
            cuDeviceGetPCIBusId;
            cuDeviceGetUuid_v2;
            cuPointerGetAttributes;
        }
        context {
            cuDevicePrimaryCtxRetain;
            cuDevicePrimaryCtxGetState;
            cuCtxGetCurrent;
            cuCtxPushCurrent_v2;
            cuCtxPopCurrent_v2;
            cuCtxGetDevice;
            cuStreamGetCtx;
        }
        calls {
            cuCtxSynchronize;
            cuMemAlloc_v2;
            cuMemFree_v2;
            cuMemHostAlloc;
            cuMemFreeHost;
            cuMemHostGetDevicePointer_v2;
            cuMemHostRegister_v2;
            cuMemHostUnregister;
            cuMemcpyHtoD_v2;
            cuMemcpyDtoH_v2;
            cuMemcpyHtoDAsync_v2;
            cuMemcpyDtoHAsync_v2;
            cuMemcpyDtoDAsync_v2;
            cuStreamCreate;
            cuStreamDestroy_v2;
            cuStreamSynchronize;
            cuStreamQuery;
            cuStreamGetFlags;
            cuStreamWaitEvent;
            cuStreamIsCapturing;
            cuStreamBeginCapture_v2;
            cuStreamEndCapture;
            cuThreadExchangeStreamCaptureMode;
            cuStreamWaitValue64_v2;
            cuStreamWriteValue64_v2;
            cuEventCreate;
            cuEventRecord;
            cuEventDestroy_v2;
            cuLaunchHostFunc;
            cuModuleLoadData;
            cuModuleGetFunction;
            cuLaunchKernel;
        }
    }
    optional {
        cuMemAllocManaged;
        cuMemAllocAsync;
        cuMemFreeAsync;
        cuMemcpyBatchAsync_v2;
        cuMemGetHandleForAddressRange;
    }
}

/// The emulated driver as a function table. The emulated machine is that of [`crate::api`].
pub fn api() -> &'static CudaApi {
    const { &API }
}
