//! Memsets, of memory the runtime knows. Those of device memory never make the host wait.

use core::ffi::{c_int, c_uchar, c_void};

use gpu_sys::hip::{DevicePtr, HipError, StreamPtr};

use crate::call::call;
use crate::capture;
use crate::function::Function;
use crate::op::{Fill, Op, Pattern};
use crate::ranges::Busy;
use crate::state::State;
use crate::stream;

/// Fills `count` bytes or words, in the order of a stream; `is_blocking` for the calls without one.
fn fill(
    state: &'static State,
    dst: *mut c_void,
    pattern: Pattern,
    count: usize,
    stream: StreamPtr,
    is_blocking: bool,
) -> Result<(), HipError> {
    if is_blocking {
        capture::refuse_blocking(state)?;
    }
    stream::with(state, stream, |stream| {
        if count == 0 {
            return Ok(());
        }
        let width = match pattern {
            Pattern::Byte(_) => 1,
            Pattern::Word(_) => 4,
        };
        let len = count.checked_mul(width).ok_or(HipError::INVALID_VALUE)?;
        if dst.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let ranges = state.ranges.read();
        let place = ranges.prove(dst as usize, len, &state.span)?;
        let allocation = place.allocation.ok_or(HipError::INVALID_VALUE)?;
        let fill = Fill { dst: place.reach, count, pattern };
        if !is_blocking && capture::take(state, stream, || Op::Fill(fill))? {
            return Ok(());
        }
        let host_waits = is_blocking && !place.is_device();
        if stream.is_clear(state) {
            let _busy = Busy::new(allocation);
            drop(ranges);
            fill.run();
            return Ok(());
        }
        drop(ranges);
        let ticket = stream::submit(state, stream, Op::Fill(fill), Vec::new())?;
        if host_waits {
            ticket.wait();
        }
        Ok(())
    })
}

const NULL: StreamPtr = core::ptr::null_mut();

/// Sets bytes, in the order of the legacy default stream.
///
/// # Safety
/// Nobody uses the range until the stream has passed.
pub unsafe extern "C" fn hipMemset(dst: *mut c_void, value: c_int, size: usize) -> HipError {
    call(Function::hipMemset, |state| fill(state, dst, Pattern::Byte(value as u8), size, NULL, true))
}

/// Sets bytes, in the order of a stream.
///
/// # Safety
/// As [`hipMemset`].
pub unsafe extern "C" fn hipMemsetAsync(
    dst: *mut c_void,
    value: c_int,
    size: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemsetAsync, |state| fill(state, dst, Pattern::Byte(value as u8), size, stream, false))
}

/// Sets bytes, in the order of the legacy default stream.
///
/// # Safety
/// As [`hipMemset`].
pub unsafe extern "C" fn hipMemsetD8(dst: DevicePtr, value: c_uchar, count: usize) -> HipError {
    call(Function::hipMemsetD8, |state| fill(state, dst, Pattern::Byte(value), count, NULL, true))
}

/// Sets bytes, in the order of a stream.
///
/// # Safety
/// As [`hipMemset`].
pub unsafe extern "C" fn hipMemsetD8Async(
    dst: DevicePtr,
    value: c_uchar,
    count: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemsetD8Async, |state| fill(state, dst, Pattern::Byte(value), count, stream, false))
}

/// Sets 32-bit words, in the order of the legacy default stream.
///
/// # Safety
/// As [`hipMemset`].
pub unsafe extern "C" fn hipMemsetD32(dst: DevicePtr, value: c_int, count: usize) -> HipError {
    call(Function::hipMemsetD32, |state| fill(state, dst, Pattern::Word(value as u32), count, NULL, true))
}

/// Sets 32-bit words, in the order of a stream.
///
/// # Safety
/// As [`hipMemset`].
pub unsafe extern "C" fn hipMemsetD32Async(
    dst: DevicePtr,
    value: c_int,
    count: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemsetD32Async, |state| {
        fill(state, dst, Pattern::Word(value as u32), count, stream, false)
    })
}
