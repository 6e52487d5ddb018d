//! Contexts: the primary one of each device, and each thread's stack of those that are current.

use core::cell::RefCell;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};

use gpu_sys::cuda::{ContextPtr, CudaDevice, CudaError, STREAM_PER_THREAD, StreamPtr};
use gpu_sys::hip::HipError;

use super::{hip_result, known, put, started};
use crate::call::refuse_in_host_function_named;
use crate::state::{self, State};
use crate::{stream, thread};

/// As many as there can be devices.
const MOST: usize = 32;
/// How often each device's primary context is retained. A context's handle is the address of its counter.
static RETAINED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn handle_of(ordinal: usize) -> ContextPtr {
    RETAINED[ordinal].as_ptr().cast()
}

/// The device of a context that somebody retains.
fn device_of(context: ContextPtr) -> Option<usize> {
    let ordinal = (0..MOST).find(|ordinal| handle_of(*ordinal) == context)?;
    (RETAINED[ordinal].load(Ordering::Acquire) > 0).then_some(ordinal)
}

/// The device whose context is current on this thread.
pub(super) fn current() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// The body of a function that works in the current context.
pub(super) fn within_state(
    name: &str,
    body: impl FnOnce(&'static State) -> Result<(), CudaError>,
) -> CudaError {
    started(name, |state| {
        let ordinal = current().ok_or(CudaError::INVALID_CONTEXT)?;
        thread::with(|thread| thread.device.set(ordinal));
        body(state)
    })
}

/// The same, for a body that is a function of HIP.
pub(super) fn within(name: &str, body: impl FnOnce() -> HipError) -> CudaError {
    within_state(name, |_| hip_result(body()))
}

pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut ContextPtr,
    device: CudaDevice,
) -> CudaError {
    started("cuDevicePrimaryCtxRetain", |state| {
        let ordinal = known(state, device)?;
        // SAFETY: as the C function demands.
        unsafe { put(context, handle_of(ordinal)) }?;
        RETAINED[ordinal].fetch_add(1, Ordering::AcqRel);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: CudaDevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> CudaError {
    started("cuDevicePrimaryCtxGetState", |state| {
        let ordinal = known(state, device)?;
        // SAFETY: as the C function demands.
        unsafe { put(flags, 0) }?;
        let is_active = RETAINED[ordinal].load(Ordering::Acquire) > 0;
        // SAFETY: as the C function demands.
        unsafe { put(active, c_int::from(is_active)) }
    })
}

pub(super) unsafe extern "C" fn cuCtxGetCurrent(context: *mut ContextPtr) -> CudaError {
    started("cuCtxGetCurrent", |_| {
        // SAFETY: as the C function demands.
        unsafe { put(context, current().map_or(core::ptr::null_mut(), handle_of)) }
    })
}

pub(super) unsafe extern "C" fn cuCtxPushCurrent_v2(context: ContextPtr) -> CudaError {
    started("cuCtxPushCurrent", |_| {
        let ordinal = device_of(context).ok_or(CudaError::INVALID_CONTEXT)?;
        STACK.with_borrow_mut(|stack| stack.push(ordinal));
        Ok(())
    })
}

pub(super) unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut ContextPtr) -> CudaError {
    started("cuCtxPopCurrent", |_| {
        let ordinal = STACK.with_borrow_mut(Vec::pop).ok_or(CudaError::INVALID_CONTEXT)?;
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: as the C function demands.
        unsafe { put(context, handle_of(ordinal)) }
    })
}

pub(super) unsafe extern "C" fn cuCtxGetDevice(device: *mut CudaDevice) -> CudaError {
    started("cuCtxGetDevice", |_| {
        let ordinal = current().ok_or(CudaError::INVALID_CONTEXT)?;
        // SAFETY: as the C function demands.
        unsafe { put(device, ordinal as CudaDevice) }
    })
}

/// Default streams are those of the current context; others know theirs.
pub(super) unsafe extern "C" fn cuStreamGetCtx(stream: StreamPtr, context: *mut ContextPtr) -> CudaError {
    refuse_in_host_function_named("cuStreamGetCtx");
    started("cuStreamGetCtx", |_| {
        if stream.addr() <= STREAM_PER_THREAD {
            let ordinal = current().ok_or(CudaError::INVALID_CONTEXT)?;
            // SAFETY: as the C function demands.
            return unsafe { put(context, handle_of(ordinal)) };
        }
        let state = state::get().map_err(super::code)?;
        let mut ordinal = 0;
        stream::with(state, stream.cast(), |stream| {
            ordinal = stream.device;
            Ok(())
        })
        .map_err(super::code)?;
        // SAFETY: as the C function demands.
        unsafe { put(context, handle_of(ordinal)) }
    })
}
