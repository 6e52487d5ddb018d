//! Linux's asynchronous I/O: reads that are under way while nobody waits. The calls only, no policy.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::last_errno;

/// `IOCB_CMD_PREAD`.
const PREAD: u16 = 0;

/// The kernel's `struct iocb` of machines with the low byte first, which are all there are packages for:
/// `include/uapi/linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    memory: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// How a request ended: the kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    /// As it was given.
    pub(crate) data: u64,
    request: u64,
    result: i64,
    more: i64,
}

impl Answer {
    /// The bytes, or the errno.
    pub(crate) fn result(&self) -> Result<usize, i32> {
        usize::try_from(self.result).map_err(|_| -self.result as i32)
    }
}

/// A queue of requests and of answers. The process that made it alone has it, no child.
#[derive(Debug)]
pub(crate) struct Context(libc::c_ulong);

impl Context {
    /// With room for so many requests.
    ///
    /// # Errors
    /// EAGAIN past the limit of the whole system (`/proc/sys/fs/aio-max-nr`), ENOSYS of a kernel without.
    pub(crate) fn new(requests: u32) -> Result<Context, i32> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes to the number, which is 0 as it demands.
        match unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut context) } {
            0 => Ok(Context(context)),
            _ => Err(last_errno()),
        }
    }

    /// Starts a read. One that would keep the caller waiting is not begun; that is told now or by the answer, as EAGAIN.
    ///
    /// # Errors
    /// EAGAIN when there is no room, and what a read has. There will be no answer then.
    ///
    /// # Safety
    /// The descriptor stays open, and the memory is there and used by nobody else, until the answer has come.
    pub(crate) unsafe fn read(
        &self,
        data: u64,
        fd: BorrowedFd<'_>,
        at: u64,
        into: *mut [u8],
    ) -> Result<(), i32> {
        let mut request = Request {
            data,
            rw_flags: libc::RWF_NOWAIT,
            opcode: PREAD,
            fd: fd.as_raw_fd() as u32,
            memory: into.cast::<u8>().expose_provenance() as u64,
            len: into.len() as u64,
            offset: i64::try_from(at).map_err(|_| libc::EINVAL)?,
            ..Request::default()
        };
        let mut list = &raw mut request;
        // SAFETY: a list of one request, which the kernel copies; its memory is as this function demands.
        match unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1_usize, &raw mut list) } {
            1 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Waits for an answer; how many there are, at most as many as there is room for.
    ///
    /// # Errors
    /// EINTR, and what a sandbox says.
    pub(crate) fn wait(&self, answers: &mut [Answer]) -> Result<usize, i32> {
        let (most, no_limit) = (answers.len(), std::ptr::null_mut::<libc::timespec>());
        // SAFETY: the call writes no more answers than there is room for.
        let got = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.0, 1_usize, most, answers.as_mut_ptr(), no_limit)
        };
        usize::try_from(got).map_err(|_| last_errno())
    }

    /// As [`Context::wait`] without waiting, out of the memory that the kernel shares: no call is made, for where that is
    /// forbidden by now. One thread at a time takes answers.
    pub(crate) fn look(&self, answers: &mut [Answer]) -> usize {
        // `struct aio_ring` of `fs/aio.c`, which libaio reads too.
        let ring: *const AtomicU32 = std::ptr::with_exposed_provenance(self.0 as usize);
        // SAFETY: the context's number is the address of a page or more that stays mapped while there is a context; its
        // first words are accessed by both sides as such.
        let word = |at: usize| unsafe { &*ring.wrapping_add(at) };
        let (count, magic, incompatible) = (word(1), word(4), word(6));
        if magic.load(Ordering::Relaxed) != 0xa10a_10a1 || incompatible.load(Ordering::Relaxed) != 0 {
            return 0;
        }
        let (head, tail) = (word(2), word(3).load(Ordering::Acquire));
        let (mut at, mut got) = (head.load(Ordering::Relaxed), 0);
        while at != tail && got < answers.len() {
            let first: *const Answer = ring.wrapping_add(8).cast();
            // SAFETY: between head and tail lie answers that the kernel has written and does not touch before head is moved.
            answers[got] = unsafe { first.wrapping_add(at as usize).read() };
            at = (at + 1) % count.load(Ordering::Relaxed).max(1);
            got += 1;
        }
        head.store(at, Ordering::Release);
        got
    }

    /// Ends it, once: its number may be another's afterwards. Waits for what is under way, and some tens of milliseconds; whoever
    /// waits for answers gets none any more.
    pub(crate) fn destroy(&self) {
        // SAFETY: takes a number and touches no memory of ours; any other than a context's is refused.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernel_s() {
        assert_eq!((size_of::<Request>(), size_of::<Answer>()), (64, 32));
        assert_eq!(size_of::<Request>(), size_of::<libc::iocb>());
        assert_eq!(std::mem::offset_of!(Request, offset), std::mem::offset_of!(libc::iocb, aio_offset));
        assert_eq!(std::mem::offset_of!(Request, rw_flags), std::mem::offset_of!(libc::iocb, aio_rw_flags));
    }
}
