//! Streams that wait for words in memory, and write them. The words may be pinned, managed, signal or device memory.

use core::ffi::{c_uint, c_void};

use gpu_sys::hip::{HipError, STREAM_WAIT_VALUE_NOR, StreamPtr};

use crate::call::call;
use crate::capture;
use crate::function::Function;
use crate::op::{Op, WaitValue, Word, WriteValue};
use crate::state::State;
use crate::stream;

/// Proves that a word lies in memory that the runtime knows, aligned to its size.
fn prove(state: &State, ptr: *mut c_void, wide: bool) -> Result<Word, HipError> {
    let size = if wide { 8 } else { 4 };
    let address = ptr as usize;
    if ptr.is_null() || !address.is_multiple_of(size) {
        return Err(HipError::INVALID_VALUE);
    }
    let ranges = state.ranges.read();
    let place = ranges.prove(address, size, &state.span)?;
    if !place.is_visible() {
        return Err(HipError::INVALID_VALUE);
    }
    Ok(Word { at: place.reach, wide })
}

fn wait(
    state: &'static State,
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u64,
    how: c_uint,
    mask: u64,
    wide: bool,
) -> Result<(), HipError> {
    if how > STREAM_WAIT_VALUE_NOR {
        return Err(HipError::INVALID_VALUE);
    }
    let wait = WaitValue { word: prove(state, ptr, wide)?, value, mask, how };
    stream::with(state, stream, |stream| {
        capture::refuse(state, stream)?;
        if stream.is_clear(state) && wait.holds() {
            return Ok(());
        }
        stream::submit(state, stream, Op::WaitValue(wait), Vec::new()).map(drop)
    })
}

fn write(
    state: &'static State,
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u64,
    wide: bool,
) -> Result<(), HipError> {
    let write = WriteValue { word: prove(state, ptr, wide)?, value };
    stream::with(state, stream, |stream| {
        capture::refuse(state, stream)?;
        if stream.is_clear(state) {
            write.run();
            return Ok(());
        }
        stream::submit(state, stream, Op::WriteValue(write), Vec::new()).map(drop)
    })
}

/// Holds a stream, and the queue it shares, until the 32-bit word at `ptr` compares as `flags` says.
///
/// # Safety
/// The word is written by atomic stores until the stream has passed.
pub unsafe extern "C" fn hipStreamWaitValue32(
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u32,
    flags: c_uint,
    mask: u32,
) -> HipError {
    call(Function::hipStreamWaitValue32, |state| {
        wait(state, stream, ptr, value.into(), flags, mask.into(), false)
    })
}

/// Holds a stream, and the queue it shares, until the 64-bit word at `ptr` compares as `flags` says.
///
/// # Safety
/// The word is written by atomic stores until the stream has passed.
pub unsafe extern "C" fn hipStreamWaitValue64(
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u64,
    flags: c_uint,
    mask: u64,
) -> HipError {
    call(Function::hipStreamWaitValue64, |state| wait(state, stream, ptr, value, flags, mask, true))
}

/// Writes a 32-bit word in stream order. Flags are not used, as in HIP.
///
/// # Safety
/// The word is accessed by atomics only until the stream has passed.
pub unsafe extern "C" fn hipStreamWriteValue32(
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u32,
    _flags: c_uint,
) -> HipError {
    call(Function::hipStreamWriteValue32, |state| write(state, stream, ptr, value.into(), false))
}

/// Writes a 64-bit word in stream order. Flags are not used, as in HIP.
///
/// # Safety
/// The word is accessed by atomics only until the stream has passed.
pub unsafe extern "C" fn hipStreamWriteValue64(
    stream: StreamPtr,
    ptr: *mut c_void,
    value: u64,
    _flags: c_uint,
) -> HipError {
    call(Function::hipStreamWriteValue64, |state| write(state, stream, ptr, value, true))
}
