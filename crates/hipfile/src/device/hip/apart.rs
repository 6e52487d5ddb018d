//! Copies that are queued and waited for. Those apart from every stream of the caller's, for who orders transfers and GPU work
//! by other means, wait for nothing but themselves.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use gpu_sys::hip;

use super::Hip;
use crate::error::Result;

/// Streams of our own that nobody copies on now, each with the number of its GPU. They live as long as the process.
pub(super) type Idle = Mutex<Vec<(u32, usize)>>;

impl Hip {
    /// A copy done when it returns.
    ///
    /// # Safety
    /// Both ranges are valid for the call.
    pub(super) unsafe fn copy_apart(
        &self,
        op: &'static str,
        ordinal: u32,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        kind: hip::MemcpyKind,
    ) -> Result<()> {
        let _relaxed = self.relaxed();
        let stream = self.stream_apart(op, ordinal)?;
        // SAFETY: as this function demands; the stream is our own.
        let [queued, waited] = unsafe { self.copy_on(stream, op, to, from, len, kind) };
        if waited.is_ok() {
            self.idle().push((ordinal, stream.expose_provenance()));
        }
        queued.and(waited)
    }

    /// A copy queued on a stream, and the wait for that: how each went.
    ///
    /// # Safety
    /// The stream exists, and both ranges are valid for the call.
    pub(super) unsafe fn copy_on(
        &self,
        stream: hip::StreamPtr,
        op: &'static str,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        kind: hip::MemcpyKind,
    ) -> [Result<()>; 2] {
        // SAFETY: as this function demands; the ranges are in use until the stream is waited for.
        let queued = self.call(op, unsafe { (self.api.hipMemcpyAsync)(to, from, len, kind, stream) });
        // SAFETY: as this function demands. Also after a failure: nothing may be in use any more.
        let waited = self.call(op, unsafe { (self.api.hipStreamSynchronize)(stream) });
        [queued, waited]
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(u32, usize)>> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of the GPU that is the current one, which no other thread has.
    fn stream_apart(&self, op: &'static str, ordinal: u32) -> Result<hip::StreamPtr> {
        let mut idle = self.idle();
        if let Some(at) = idle.iter().position(|(gpu, _)| *gpu == ordinal) {
            return Ok(std::ptr::with_exposed_provenance_mut(idle.swap_remove(at).1));
        }
        drop(idle);
        let mut stream = std::ptr::null_mut();
        // SAFETY: `stream` is writable.
        let code = unsafe { (self.api.hipStreamCreateWithFlags)(&raw mut stream, hip::STREAM_NON_BLOCKING) };
        self.call(op, code).map(|()| stream)
    }
}
