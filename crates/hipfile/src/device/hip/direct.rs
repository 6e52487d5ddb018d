//! What reaches a GPU's memory without the runtime's copies: its own file functions, and the processor on a GPU that shares
//! memory with it. Copies are elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd};

use gpu_sys::hip::{self, AmdFileFn, HipError};
use gpu_sys::hip_load;

use super::Hip;
use crate::buffer::Span;
use crate::config::Order;
use crate::device::PeerToPeer;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::sys;

impl Hip {
    pub(super) fn amd_file(&self) -> Option<(AmdFileFn, AmdFileFn)> {
        *self.amd_file.get_or_init(|| hip_load::lookup_amd_file(&self.api, self.library))
    }

    /// One call of the runtime's file functions.
    fn amd_transfer(
        &self,
        op: Op,
        fd: BorrowedFd<'_>,
        span: &Span<'_>,
        file_offset: u64,
        held: bool,
    ) -> Result<usize> {
        let Some((read, write)) = self.amd_file() else {
            return Err(Error::os(op.name(), libc::ENOSYS));
        };
        self.start_thread(op)?;
        let _on = self.on(span.place().gpu_or_first())?;
        if !held {
            self.await_work()?;
        }
        let function = match op {
            Op::Read => read,
            Op::Write => write,
        };
        let mut handle = hip::AmdFileHandle { pad: [0; 8] };
        handle.fd = fd.as_raw_fd();
        // Lower layers may leave both untouched.
        let (mut copied, mut status) = (0_u64, 0_i32);
        let at = std::ptr::without_provenance_mut(span.start());
        sys::clear_errno();
        // SAFETY: the span proves the device range, the descriptor is borrowed for the call, the outputs are writable.
        let code = unsafe {
            function(handle, at, span.len() as u64, file_offset as i64, &raw mut copied, &raw mut status)
        };
        let errno = sys::last_errno();
        if code != HipError::SUCCESS && errno == libc::ENOTTY {
            // The kernel driver does not know the request at all; the runtime makes some code of its own out of it.
            let _ = self.call(op.name(), code);
            return Err(Error::os(op.name(), libc::ENOTTY));
        }
        if status != 0 {
            let _ = self.call(op.name(), code);
            let errno = i32::try_from(status.unsigned_abs()).unwrap_or(libc::EIO);
            return Err(Error::os(op.name(), errno));
        }
        self.call(op.name(), code)?;
        // More than asked for would be a defect of the runtime; it must not become one of ours.
        Ok(usize::try_from(copied).unwrap_or(usize::MAX).min(span.len()))
    }

    /// The runtime can crash when a file function is a thread's first call.
    fn start_thread(&self, op: Op) -> Result<()> {
        thread_local!(static STARTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
        if STARTED.get() {
            return Ok(());
        }
        // SAFETY: a plain call.
        self.call(op.name(), unsafe { (self.api.hipInit)(0) })?;
        STARTED.set(true);
        Ok(())
    }

    pub(super) fn is_integrated(&self, ordinal: u32) -> bool {
        let mut integrated = 0;
        // SAFETY: `integrated` is writable.
        let code = unsafe {
            (self.api.hipDeviceGetAttribute)(
                &raw mut integrated,
                hip::ATTRIBUTE_INTEGRATED,
                ordinal.cast_signed(),
            )
        };
        self.call("describe GPU", code).is_ok() && integrated != 0
    }

    /// A direct transfer is no stream work: what the order setting promises has to be waited for.
    pub(super) fn await_work(&self) -> Result<()> {
        match self.order {
            Order::Device => return self.await_device(),
            Order::Off => return Ok(()),
            Order::Stream => {}
        }
        let _relaxed = self.relaxed();
        // SAFETY: a plain call; null is the legacy default stream.
        let waited = unsafe { (self.api.hipStreamSynchronize)(std::ptr::null_mut()) };
        self.call("wait for the default stream", waited)
    }
}

impl PeerToPeer for Hip {
    fn read(&self, fd: BorrowedFd<'_>, to: &Span<'_>, file_offset: u64, held: bool) -> Result<usize> {
        self.amd_transfer(Op::Read, fd, to, file_offset, held)
    }

    fn write(&self, fd: BorrowedFd<'_>, from: &Span<'_>, file_offset: u64, held: bool) -> Result<usize> {
        self.amd_transfer(Op::Write, fd, from, file_offset, held)
    }
}
