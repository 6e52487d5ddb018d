//! Modules and kernels: exactly one kernel exists here, a copy whose length is read when it runs. A code object for it is
//! [`blob`]; any other is `hipErrorNoBinaryForGpu`, as a code object for other hardware would be.

use core::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpu_sys::hip::{FunctionPtr, HipError, ModulePtr, StreamPtr};

use crate::call::{call, put, text};
use crate::capture;
use crate::copy;
use crate::function::Function;
use crate::op::{Copy, Op};
use crate::ranges::Place;
use crate::state::State;
use crate::stream;
use crate::sys;

/// The only kernel: `hipfile_copy_late(const uint64_t late[5])` copies `late[2]` bytes to `late[0]` from `late[1]`, words that it
/// reads when it runs. When it begins it stores `late[4]` at `late[3]`, unless that is 0. It ends the process, as a memory fault on a GPU does, if a range is not one that a GPU reaches.
pub const COPY_LATE: &str = "hipfile_copy_late";

/// What a code object for the emulated GPU begins with; the kernel's name and a NUL follow.
pub const BLOB_MAGIC: &[u8; 8] = b"HIPEMU01";

/// The code object of [`COPY_LATE`]: [`BLOB_MAGIC`], the name, a NUL.
pub fn blob() -> Vec<u8> {
    [BLOB_MAGIC.as_slice(), COPY_LATE.as_bytes(), b"\0"].concat()
}

/// A loaded module; its one function is it too.
#[derive(Debug)]
pub(crate) struct Module;

/// A launch of [`COPY_LATE`], with the address of its words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLate {
    late: usize,
}

impl CopyLate {
    /// Does what the kernel does. Over a timed link it takes the copy's time instead.
    pub(crate) fn run(&self, state: &State, from: u64) -> u64 {
        let ranges = state.ranges.read();
        let prove = |address: usize, len: usize, what: &str| -> Place<'_> {
            match ranges.prove(address, len, &state.span) {
                Ok(place) if place.is_visible() => place,
                _ => sys::die(&format!(
                    "memory access fault: kernel {COPY_LATE} used {len} bytes at {address:#x} ({what}), which no GPU reaches"
                )),
            }
        };
        if !self.late.is_multiple_of(8) {
            sys::die(&format!(
                "memory access fault: kernel {COPY_LATE} read its words at {:#x}, not aligned to 8",
                self.late
            ));
        }
        let words = prove(self.late, 40, "its words").reach;
        let word = |at: usize| {
            // SAFETY: eight aligned bytes, proven before; others access them with atomic operations.
            unsafe { AtomicU64::from_ptr(at as *mut u64) }
        };
        let [dst, src, len, told, number] =
            [0, 8, 16, 24, 32].map(|at| word(words + at).load(Ordering::Acquire) as usize);
        if told != 0 {
            if !told.is_multiple_of(8) {
                sys::die(&format!("memory access fault: kernel {COPY_LATE} stored a word at {told:#x}"));
            }
            word(prove(told, 8, "where it tells").reach).store(number as u64, Ordering::Release);
        }
        if len == 0 {
            return sys::now();
        }
        let mut copies = Vec::new();
        let mut done = 0;
        while done < len {
            let (to, of, rest) = (dst.wrapping_add(done), src.wrapping_add(done), len - done);
            let piece = ranges.unbroken(to, rest).min(ranges.unbroken(of, rest));
            let (to, of) = (prove(to, piece, "its destination"), prove(of, piece, "its source"));
            copies.push(Copy {
                dst: to.reach,
                src: of.reach,
                len: piece,
                timed: copy::timed(&to, &of),
                to_device: to.is_device(),
            });
            done += piece;
        }
        drop(ranges);
        copies.into_iter().fold(from, |from, copy| Op::Copy(copy).run(state, from))
    }
}

/// Loads a code object, after the current device's queued work.
///
/// # Errors
/// hipErrorInvalidValue for null, hipErrorNoBinaryForGpu for anything but [`blob`].
///
/// # Safety
/// `module` is null or may be written to; `image` is null or leads to a code object, read no further than it agrees with
/// [`blob`].
pub unsafe extern "C" fn hipModuleLoadData(module: *mut ModulePtr, image: *const c_void) -> HipError {
    call(Function::hipModuleLoadData, |state| {
        capture::refuse_unsafe(state)?;
        let device = state.current()?;
        if module.is_null() || image.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        device.drain();
        for (at, expected) in blob().into_iter().enumerate() {
            // SAFETY: all bytes before this one agree with a code object of ours, so the image has this one.
            let byte = unsafe { image.cast::<u8>().add(at) };
            // SAFETY: as above.
            if unsafe { byte.read() } != expected {
                return Err(HipError::NO_BINARY_FOR_GPU);
            }
        }
        let handle = state.modules.insert(Arc::new(Module));
        // SAFETY: as this function demands.
        unsafe { put(module, handle as ModulePtr) }
    })
}

/// Unloads a module. Launches already queued are done all the same.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipModuleUnload(module: ModulePtr) -> HipError {
    call(Function::hipModuleUnload, |state| {
        capture::refuse_unsafe(state)?;
        state.modules.remove(module as usize).map(drop).ok_or(HipError::INVALID_HANDLE)
    })
}

/// Finds a kernel of a module.
///
/// # Errors
/// hipErrorInvalidValue for null, hipErrorInvalidHandle for no module, hipErrorNotFound for another name.
///
/// # Safety
/// `function` is null or may be written to; `name` is null or a NUL-terminated string.
pub unsafe extern "C" fn hipModuleGetFunction(
    function: *mut FunctionPtr,
    module: ModulePtr,
    name: *const c_char,
) -> HipError {
    call(Function::hipModuleGetFunction, |state| {
        if function.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        let name = unsafe { text(name) }?;
        let module = state.modules.get(module as usize).ok_or(HipError::INVALID_HANDLE)?;
        if name.to_bytes() != COPY_LATE.as_bytes() {
            return Err(HipError::NOT_FOUND);
        }
        let handle = state.functions.insert(module);
        // SAFETY: as this function demands.
        unsafe { put(function, handle as FunctionPtr) }
    })
}

/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `..._SIZE`, `..._END`: the words of the `extra` list.
const EXTRA: [usize; 3] = [1, 2, 3];

/// The kernel's argument, from the list of pointers to arguments or from a packed buffer.
///
/// # Safety
/// As [`hipModuleLaunchKernel`] demands of `params` and `extra`.
unsafe fn argument(params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<usize, HipError> {
    if !params.is_null() {
        // SAFETY: the list has an entry for each parameter of the kernel, of which there is one.
        let from = unsafe { params.read() }.cast::<usize>();
        if from.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: each entry leads to a value of its parameter's type, here a pointer.
        return Ok(unsafe { from.read_unaligned() });
    }
    if extra.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let mut list = [core::ptr::null_mut(); 5];
    for (at, slot) in list.iter_mut().enumerate() {
        // SAFETY: a list that is not null has five words: two pairs and the end.
        let entry = unsafe { extra.add(at) };
        // SAFETY: as above.
        *slot = unsafe { entry.read() };
    }
    let [pointer_key, buffer, size_key, size, end] = list;
    if [pointer_key as usize, size_key as usize, end as usize] != EXTRA || buffer.is_null() || size.is_null()
    {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: after its key comes a pointer to the size.
    if unsafe { size.cast::<usize>().read_unaligned() } != size_of::<usize>() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the buffer has that size, checked to be that of the argument.
    Ok(unsafe { buffer.cast::<usize>().read_unaligned() })
}

/// Launches a kernel on a stream. The arguments are read now; what they lead to, when the kernel runs.
///
/// # Errors
/// hipErrorInvalidHandle for no function; hipErrorInvalidValue for a grid or block of zero and for missing arguments;
/// hipErrorInvalidConfiguration for a block of more than 1024 threads.
///
/// # Safety
/// `params` is null or has a pointer to each argument; else `extra` is a list of pairs that ends as HIP says. What the
/// arguments lead to is not used by others until the kernel has run.
pub unsafe extern "C" fn hipModuleLaunchKernel(
    function: FunctionPtr,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: StreamPtr,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> HipError {
    call(Function::hipModuleLaunchKernel, |state| {
        state.functions.get(function as usize).ok_or(HipError::INVALID_HANDLE)?;
        if [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0) {
            return Err(HipError::INVALID_VALUE);
        }
        if u64::from(block_x) * u64::from(block_y) * u64::from(block_z) > 1024 {
            return Err(HipError::INVALID_CONFIGURATION);
        }
        // SAFETY: as this function demands.
        let kernel = CopyLate { late: unsafe { argument(params, extra) }? };
        stream::with(state, stream, |stream| {
            if capture::take(state, stream, || Op::CopyLate(kernel))? {
                return Ok(());
            }
            if stream.is_clear(state) && state.options.link.is_none() {
                kernel.run(state, 0);
                return Ok(());
            }
            stream::submit(state, stream, Op::CopyLate(kernel), Vec::new()).map(drop)
        })
    })
}
