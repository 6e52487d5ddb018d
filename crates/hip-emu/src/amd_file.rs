//! `hipAmdFileRead` and `hipAmdFileWrite`: between a file and device memory with no host copy, by the rules that AMD's
//! kernel driver has for them. In no public header; clients find them by `hipGetProcAddress`. They leave the last error
//! alone, and wait for no stream.

use core::ffi::{c_int, c_void};

use gpu_sys::hip::{AmdFileHandle, HipError};

use crate::call::{call_quietly, put};
use crate::fault::Fault;
use crate::function::Function;
use crate::ranges::{Busy, Kind};
use crate::state::State;
use crate::sys::PAGE;

/// What the lower layers may do with the request.
enum Refusal {
    /// The user-space layers refuse it: there is no errno.
    Plain,
    /// The kernel refuses it with this errno.
    Errno(i32),
}

#[derive(Clone, Copy)]
enum Op {
    Read,
    Write,
}

struct Request {
    op: Op,
    fd: c_int,
    address: usize,
    len: u64,
    file_offset: i64,
    limit: Option<u64>,
}

/// Moves the bytes; how many were moved.
fn run(state: &State, request: &Request) -> Result<u64, Refusal> {
    let len = usize::try_from(request.len).map_err(|_| Refusal::Plain)?;
    let (reach, _busy) = {
        let ranges = state.ranges.read();
        if request.address == 0 {
            return Err(Refusal::Plain);
        }
        let place = ranges.prove(request.address, len, &state.span).map_err(|_| Refusal::Plain)?;
        let allocation = place.allocation.ok_or(Refusal::Plain)?;
        if request.fd < 0 || allocation.kind != Kind::Device {
            return Err(Refusal::Errno(libc::EINVAL));
        }
        (place.reach, Busy::new(allocation))
    };
    let is_aligned = |value: u64| value.is_multiple_of(PAGE as u64);
    if request.file_offset < 0
        || !is_aligned(request.file_offset as u64)
        || !is_aligned(request.len)
        || !request.address.is_multiple_of(PAGE)
    {
        return Err(Refusal::Errno(libc::EINVAL));
    }
    if !is_known_storage(request.fd, state.options.any_file_system)? {
        return Err(Refusal::Errno(libc::ENODEV));
    }
    let most = request.limit.map_or(len, |limit| len.min(usize::try_from(limit).unwrap_or(len)));
    // The kernel moves whole blocks, also where a fault has it own up to less; what ends inside one is a short transfer,
    // and an error there.
    let whole = most.next_multiple_of(PAGE).min(len);
    let moved = move_bytes(request.op, request.fd, reach, whole, request.file_offset)?;
    if moved < whole && !moved.is_multiple_of(PAGE) {
        return Err(Refusal::Errno(libc::EIO));
    }
    Ok(moved.min(most) as u64)
}

fn move_bytes(op: Op, fd: c_int, reach: usize, len: usize, file_offset: i64) -> Result<usize, Refusal> {
    let mut moved = 0;
    while moved < len {
        let offset = file_offset + moved as i64;
        let at = reach + moved;
        let n = match op {
            // SAFETY: `reach..reach + len` is memory of an allocation that is marked busy, so it stays.
            Op::Read => unsafe { libc::pread(fd, at as *mut c_void, len - moved, offset) },
            // SAFETY: as above.
            Op::Write => unsafe { libc::pwrite(fd, at as *const c_void, len - moved, offset) },
        };
        match n {
            0 => break,
            1.. => moved += n as usize,
            _ => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                errno => return Err(Refusal::Errno(errno.unwrap_or(libc::EIO))),
            },
        }
    }
    Ok(moved)
}

/// Whether the descriptor's file is on storage that a GPU could talk to: ext4, xfs, a block device.
fn is_known_storage(fd: c_int, any_file_system: bool) -> Result<bool, Refusal> {
    const EXT4: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    let last_errno = || Refusal::Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for the answer.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: fstat succeeded, so it wrote the answer.
    let stat = unsafe { stat.assume_init() };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFBLK => return Ok(true),
        libc::S_IFREG if any_file_system => return Ok(true),
        libc::S_IFREG => {}
        _ => return Ok(false),
    }
    let mut fs = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `fs` has room for the answer.
    if unsafe { libc::fstatfs(fd, fs.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: fstatfs succeeded, so it wrote the answer.
    let fs = unsafe { fs.assume_init() };
    Ok([EXT4, XFS].contains(&(fs.f_type as u64)))
}

/// # Safety
/// As [`hipAmdFileRead`].
unsafe fn transfer(
    function: Function,
    mut request: Request,
    size_copied: *mut u64,
    status: *mut i32,
) -> HipError {
    call_quietly(function, |state, fault| {
        state.current().map_err(|_| HipError::INVALID_DEVICE)?;
        if request.len == 0 {
            return if state.is_at_least(7, 14) { Ok(()) } else { Err(HipError::UNKNOWN) };
        }
        let outcome = match fault {
            Some(Fault::Status(errno)) => Err(Refusal::Errno(errno)),
            Some(Fault::Short(bytes)) => {
                request.limit = Some(bytes);
                run(state, &request)
            }
            _ => run(state, &request),
        };
        match outcome {
            Ok(moved) => {
                if !size_copied.is_null() {
                    // SAFETY: this function's callers vouch for `size_copied`.
                    unsafe { put(size_copied, moved) }?;
                }
                Ok(())
            }
            Err(refusal) => {
                if let Refusal::Errno(errno) = refusal
                    && !status.is_null()
                {
                    // SAFETY: this function's callers vouch for `status`.
                    unsafe { put(status, -errno) }?;
                }
                Err(HipError::UNKNOWN)
            }
        }
    })
}

/// Reads from a file into device memory. On success `*size_copied` is how much, in whole pages less than asked at the end
/// of the file; `*size_copied` and `*status` are left alone where the lower layers leave them: zero both before.
///
/// # Errors
/// hipErrorInvalidDevice without a device; else hipErrorUnknown. With `*status` = -errno where the kernel refuses: EINVAL for a negative descriptor, memory
/// that is not device memory, an offset, size or address that is no multiple of 4096; EBADF; ENODEV for storage that is
/// neither ext4, xfs nor a block device; EIO for a read that ends inside a page. With `*status` untouched where the layers
/// above it do: a null or unknown pointer, a range that leaves its allocation, size 0 before ROCm 7.14 (from then on that
/// is success).
///
/// # Safety
/// `size_copied` and `status` are null or may be written to. Nobody uses the device memory meanwhile.
pub unsafe extern "C" fn hipAmdFileRead(
    handle: AmdFileHandle,
    device_ptr: *mut c_void,
    size: u64,
    file_offset: i64,
    size_copied: *mut u64,
    status: *mut i32,
) -> HipError {
    // SAFETY: every bit pattern is a descriptor number, valid or not.
    let fd = unsafe { handle.fd };
    let request =
        Request { op: Op::Read, fd, address: device_ptr as usize, len: size, file_offset, limit: None };
    // SAFETY: as this function demands.
    unsafe { transfer(Function::hipAmdFileRead, request, size_copied, status) }
}

/// Writes from device memory to a file; see [`hipAmdFileRead`].
///
/// # Errors
/// As [`hipAmdFileRead`], and what `pwrite` has, in `*status`.
///
/// # Safety
/// As [`hipAmdFileRead`].
pub unsafe extern "C" fn hipAmdFileWrite(
    handle: AmdFileHandle,
    device_ptr: *mut c_void,
    size: u64,
    file_offset: i64,
    size_copied: *mut u64,
    status: *mut i32,
) -> HipError {
    // SAFETY: every bit pattern is a descriptor number, valid or not.
    let fd = unsafe { handle.fd };
    let request =
        Request { op: Op::Write, fd, address: device_ptr as usize, len: size, file_offset, limit: None };
    // SAFETY: as this function demands.
    unsafe { transfer(Function::hipAmdFileWrite, request, size_copied, status) }
}
