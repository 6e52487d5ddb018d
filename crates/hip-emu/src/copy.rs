//! Copies in all directions. A copy whose stream is clear runs on its caller's thread, since a hand-off to the queue's
//! thread costs more than most copies; only what has to wait is queued.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use gpu_sys::hip::{
    DevicePtr, HipError, MEMCPY_DEFAULT, MEMCPY_DEVICE_TO_DEVICE, MEMCPY_DEVICE_TO_HOST,
    MEMCPY_HOST_TO_DEVICE, MEMCPY_HOST_TO_HOST, MemcpyKind, StreamPtr,
};

use crate::call::call;
use crate::capture;
use crate::function::Function;
use crate::link::{self, Direction};
use crate::op::{Copy, Op};
use crate::ranges::{Busy, Kind, Place, Ranges};
use crate::state::State;
use crate::stream::{self, Stream};
use crate::sys;

/// `hipMemcpyDeviceToDeviceNoCU`: device to device, by the copy engine.
const MEMCPY_DEVICE_TO_DEVICE_NO_CU: MemcpyKind = 1024;

/// Copies up to this size run under the map's lock; longer ones mark their allocations busy instead, so that nobody who
/// allocates waits for them.
const SHORT: usize = 64 << 10;

/// Where the host goes on: after the copy, or once it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    /// hipMemcpy: after the copy, except between two places of one device.
    WhenDone,
    /// hipMemcpyAsync: at once, if both ends are memory the runtime knows; pageable memory is waited for.
    WhenQueued,
}

/// A copy proven to be possible.
struct Plan<'a> {
    copy: Copy,
    dst: Place<'a>,
    src: Place<'a>,
}

impl Plan<'_> {
    fn host_waits(&self, returns: Return) -> bool {
        let pageable = !self.dst.is_visible() || !self.src.is_visible();
        pageable || (returns == Return::WhenDone && !self.is_within_device())
    }

    fn is_within_device(&self) -> bool {
        self.dst.is_device() && self.src.is_device() && device_of(&self.dst) == device_of(&self.src)
    }
}

fn device_of(place: &Place<'_>) -> Option<usize> {
    place.allocation.map(|allocation| allocation.device)
}

fn plan<'a>(
    state: &State,
    ranges: &'a Ranges,
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    kind: MemcpyKind,
) -> Result<Plan<'a>, HipError> {
    if dst.is_null() || src.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let dst = ranges.prove(dst as usize, len, &state.span)?;
    let src = ranges.prove(src as usize, len, &state.span)?;
    // A side called "host" must not be device memory, a side called "device" must be memory a GPU reaches.
    let fits = match kind {
        MEMCPY_HOST_TO_HOST => !dst.is_device() && !src.is_device(),
        MEMCPY_HOST_TO_DEVICE => dst.is_visible() && !src.is_device(),
        MEMCPY_DEVICE_TO_HOST => !dst.is_device() && src.is_visible(),
        MEMCPY_DEVICE_TO_DEVICE | MEMCPY_DEVICE_TO_DEVICE_NO_CU => dst.is_visible() && src.is_visible(),
        MEMCPY_DEFAULT => true,
        _ => return Err(HipError::INVALID_MEMCPY_DIRECTION),
    };
    if !fits {
        return Err(HipError::INVALID_VALUE);
    }
    let timed = if state.options.link.is_some() { timed(&dst, &src) } else { None };
    Ok(Plan {
        copy: Copy { dst: dst.reach, src: src.reach, len, timed, to_device: dst.is_device() },
        dst,
        src,
    })
}

/// The link that a copy between these places goes over: the device's, when the other end is pinned.
pub(crate) fn timed(dst: &Place<'_>, src: &Place<'_>) -> Option<(usize, Direction)> {
    let is_pinned = |place: &Place<'_>| {
        place
            .allocation
            .is_some_and(|allocation| matches!(allocation.kind, Kind::Host { .. } | Kind::Registered))
    };
    if dst.is_device() && is_pinned(src) {
        device_of(dst).map(|device| (device, Direction::ToDevice))
    } else if src.is_device() && is_pinned(dst) {
        device_of(src).map(|device| (device, Direction::ToHost))
    } else {
        None
    }
}

fn transfer(
    state: &'static State,
    stream: &Arc<Stream>,
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    kind: MemcpyKind,
    returns: Return,
) -> Result<(), HipError> {
    let ranges = state.ranges.read();
    let plan = plan(state, &ranges, dst, src, len, kind)?;
    let copy = plan.copy;
    if returns == Return::WhenQueued && capture::take(state, stream, || Op::Copy(copy))? {
        return Ok(());
    }
    let is_clear = stream.is_clear(state);
    if is_clear && copy.timed.is_none() {
        if len <= SHORT {
            copy.run();
        } else {
            let _busy = [plan.dst.allocation.map(Busy::new), plan.src.allocation.map(Busy::new)];
            drop(ranges);
            copy.run();
        }
        return Ok(());
    }
    let host_waits = plan.host_waits(returns);
    drop(ranges);
    if is_clear && host_waits {
        if let Some((device, direction)) = copy.timed
            && let Some(link) = &state.devices[device].link
        {
            link::wait_until(link.reserve(sys::now(), len, direction));
        }
        return Ok(());
    }
    let ticket = stream::submit(state, stream, Op::Copy(copy), Vec::new())?;
    if host_waits {
        ticket.wait();
    }
    Ok(())
}

/// A copy on the legacy default stream.
fn blocking(
    state: &'static State,
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    kind: MemcpyKind,
) -> Result<(), HipError> {
    capture::refuse_blocking(state)?;
    let null = &state.current()?.null;
    if len == 0 {
        return Ok(());
    }
    transfer(state, null, dst, src, len, kind, Return::WhenDone)
}

/// A copy on a stream that may be captured.
fn queued(
    state: &'static State,
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    kind: MemcpyKind,
    stream: StreamPtr,
) -> Result<(), HipError> {
    stream::with(state, stream, |stream| {
        if len == 0 {
            return Ok(());
        }
        transfer(state, stream, dst, src, len, kind, Return::WhenQueued)
    })
}

/// Copies in the order of the legacy default stream: after all work of the streams ordered against it.
///
/// # Errors
/// hipErrorInvalidValue for null, for a range that leaves its allocation, for a direction that contradicts the pointers;
/// hipErrorInvalidMemcpyDirection for a direction that does not exist; nothing is looked at when `size` is 0.
///
/// # Safety
/// Ends in memory the runtime does not know are valid for `size` bytes, and nobody else writes to either end meanwhile.
pub unsafe extern "C" fn hipMemcpy(
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    kind: MemcpyKind,
) -> HipError {
    call(Function::hipMemcpy, |state| blocking(state, dst, src, size, kind))
}

/// Copies in the order of a stream. Returns at once unless an end is pageable memory, which is waited for.
///
/// # Safety
/// As [`hipMemcpy`], until the stream has passed the copy.
pub unsafe extern "C" fn hipMemcpyAsync(
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    kind: MemcpyKind,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyAsync, |state| queued(state, dst, src, size, kind, stream))
}

/// Copies in the order of a stream and waits for the copy.
///
/// # Safety
/// As [`hipMemcpy`].
pub unsafe extern "C" fn hipMemcpyWithStream(
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    kind: MemcpyKind,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyWithStream, |state| {
        stream::with(state, stream, |stream| {
            capture::refuse_stream_wait(state, stream)?;
            if size == 0 {
                return Ok(());
            }
            transfer(state, stream, dst, src, size, kind, Return::WhenDone)
        })
    })
}

/// [`hipMemcpy`] from the host to a device.
///
/// # Safety
/// As [`hipMemcpy`].
pub unsafe extern "C" fn hipMemcpyHtoD(dst: DevicePtr, src: *const c_void, size: usize) -> HipError {
    call(Function::hipMemcpyHtoD, |state| blocking(state, dst, src, size, MEMCPY_HOST_TO_DEVICE))
}

/// [`hipMemcpy`] from a device to the host.
///
/// # Safety
/// As [`hipMemcpy`].
pub unsafe extern "C" fn hipMemcpyDtoH(dst: *mut c_void, src: DevicePtr, size: usize) -> HipError {
    call(Function::hipMemcpyDtoH, |state| blocking(state, dst, src, size, MEMCPY_DEVICE_TO_HOST))
}

/// [`hipMemcpy`] from a device to a device.
///
/// # Safety
/// As [`hipMemcpy`].
pub unsafe extern "C" fn hipMemcpyDtoD(dst: DevicePtr, src: DevicePtr, size: usize) -> HipError {
    call(Function::hipMemcpyDtoD, |state| blocking(state, dst, src, size, MEMCPY_DEVICE_TO_DEVICE))
}

/// [`hipMemcpyAsync`] from the host to a device.
///
/// # Safety
/// As [`hipMemcpyAsync`].
pub unsafe extern "C" fn hipMemcpyHtoDAsync(
    dst: DevicePtr,
    src: *const c_void,
    size: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyHtoDAsync, |state| queued(state, dst, src, size, MEMCPY_HOST_TO_DEVICE, stream))
}

/// [`hipMemcpyAsync`] from a device to the host.
///
/// # Safety
/// As [`hipMemcpyAsync`].
pub unsafe extern "C" fn hipMemcpyDtoHAsync(
    dst: *mut c_void,
    src: DevicePtr,
    size: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyDtoHAsync, |state| queued(state, dst, src, size, MEMCPY_DEVICE_TO_HOST, stream))
}

/// [`hipMemcpyAsync`] from a device to a device.
///
/// # Safety
/// As [`hipMemcpyAsync`].
pub unsafe extern "C" fn hipMemcpyDtoDAsync(
    dst: DevicePtr,
    src: DevicePtr,
    size: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyDtoDAsync, |state| queued(state, dst, src, size, MEMCPY_DEVICE_TO_DEVICE, stream))
}

/// [`hipMemcpyDtoD`] with both devices named; they must exist.
///
/// # Safety
/// As [`hipMemcpy`].
pub unsafe extern "C" fn hipMemcpyPeer(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    size: usize,
) -> HipError {
    call(Function::hipMemcpyPeer, |state| {
        state.device(dst_device).and(state.device(src_device))?;
        blocking(state, dst, src, size, MEMCPY_DEVICE_TO_DEVICE)
    })
}

/// [`hipMemcpyDtoDAsync`] with both devices named; they must exist.
///
/// # Safety
/// As [`hipMemcpyAsync`].
pub unsafe extern "C" fn hipMemcpyPeerAsync(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    size: usize,
    stream: StreamPtr,
) -> HipError {
    call(Function::hipMemcpyPeerAsync, |state| {
        state.device(dst_device).and(state.device(src_device))?;
        queued(state, dst, src, size, MEMCPY_DEVICE_TO_DEVICE, stream)
    })
}
