//! What a stream can be told to do, and the doing of it. Everything here was validated when it was submitted, except what
//! only the GPU learns when it gets there.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gpu_sys::hip::{STREAM_WAIT_VALUE_AND, STREAM_WAIT_VALUE_EQ, STREAM_WAIT_VALUE_GTE};

use crate::link::{self, Direction};
use crate::looking;
use crate::module::CopyLate;
use crate::ranges::Allocation;
use crate::state::State;
use crate::streaming;
use crate::sys;
use crate::thread;

/// One piece of work. Addresses are those the CPU can reach.
#[derive(Debug)]
pub(crate) enum Op {
    /// Nothing: work that only waits for other work.
    Nothing,
    /// A copy.
    Copy(Copy),
    /// A memset.
    Fill(Fill),
    /// A host function.
    Host(HostCall),
    /// Wait until a word in memory compares as asked.
    WaitValue(WaitValue),
    /// Write a word to memory.
    WriteValue(WriteValue),
    /// Note the time for an event.
    Mark(Arc<OnceLock<u64>>),
    /// The one kernel that the emulation knows.
    CopyLate(CopyLate),
    /// Give memory back, in stream order.
    Free(Arc<Allocation>),
}

/// A copy between two proven places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: usize,
    pub(crate) src: usize,
    pub(crate) len: usize,
    /// Over the timed link of this device, where copies take time and move nothing.
    pub(crate) timed: Option<(usize, Direction)>,
    /// Whether it goes to device memory.
    pub(crate) to_device: bool,
}

impl Copy {
    /// Moves the bytes now, on this thread.
    pub(crate) fn run(&self) {
        let apart = self.dst.abs_diff(self.src) >= self.len;
        if self.to_device && self.len >= streaming::LONG && apart {
            // SAFETY: as below; and the ends do not overlap.
            return unsafe { streaming::copy(self.dst as *mut u8, self.src as *const u8, self.len) };
        }
        // SAFETY: both ends were proven to be `len` bytes of one allocation or are memory the caller vouches for, and an
        // allocation is not given back while work on it is queued or running. The ends may overlap: `copy` allows it.
        unsafe { core::ptr::copy(self.src as *const u8, self.dst as *mut u8, self.len) };
    }
}

/// A memset of one proven place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) dst: usize,
    /// How many times the pattern.
    pub(crate) count: usize,
    pub(crate) pattern: Pattern,
}

/// What a memset writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    Byte(u8),
    Word(u32),
}

impl Fill {
    /// Writes the bytes now, on this thread.
    pub(crate) fn run(&self) {
        match self.pattern {
            // SAFETY: the place was proven to hold `count` bytes, and is not given back while work on it is queued.
            Pattern::Byte(byte) => unsafe { core::ptr::write_bytes(self.dst as *mut u8, byte, self.count) },
            Pattern::Word(word) => {
                for at in 0..self.count {
                    let dst = (self.dst + 4 * at) as *mut u32;
                    // SAFETY: the place was proven to hold `count` words; it need not be aligned for us.
                    unsafe { dst.write_unaligned(word) };
                }
            }
        }
    }
}

/// A host function and its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) user_data: usize,
}

impl HostCall {
    fn run(&self) {
        thread::with(|thread| thread.in_host_function.set(true));
        // SAFETY: whoever launched it promised that the function may be called with this argument, on any thread.
        unsafe { (self.function)(self.user_data as *mut c_void) };
        thread::with(|thread| thread.in_host_function.set(false));
    }
}

/// Which word, and how wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) at: usize,
    pub(crate) wide: bool,
}

impl Word {
    fn load(self) -> u64 {
        if self.wide {
            // SAFETY: the word was proven to be eight aligned bytes of memory the runtime knows, in use as an atomic.
            unsafe { AtomicU64::from_ptr(self.at as *mut u64) }.load(Ordering::Acquire)
        } else {
            // SAFETY: as above, four bytes.
            u64::from(unsafe { AtomicU32::from_ptr(self.at as *mut u32) }.load(Ordering::Acquire))
        }
    }

    fn store(self, value: u64) {
        if self.wide {
            // SAFETY: the word was proven to be eight aligned bytes of memory the runtime knows, in use as an atomic.
            unsafe { AtomicU64::from_ptr(self.at as *mut u64) }.store(value, Ordering::Release);
        } else {
            // SAFETY: as above, four bytes.
            unsafe { AtomicU32::from_ptr(self.at as *mut u32) }.store(value as u32, Ordering::Release);
        }
    }
}

/// A wait for a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitValue {
    pub(crate) word: Word,
    pub(crate) value: u64,
    pub(crate) mask: u64,
    /// One of the four STREAM_WAIT_VALUE constants.
    pub(crate) how: u32,
}

impl WaitValue {
    /// Whether the word compares as asked, now.
    pub(crate) fn holds(&self) -> bool {
        let found = self.word.load() & self.mask;
        match self.how {
            STREAM_WAIT_VALUE_GTE => found >= self.value,
            STREAM_WAIT_VALUE_EQ => found == self.value,
            STREAM_WAIT_VALUE_AND => found & self.value != 0,
            _ if self.word.wide => !(found | (self.value & self.mask)) != 0,
            _ => !((found | (self.value & self.mask)) as u32) != 0,
        }
    }
}

/// A write of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteValue {
    pub(crate) word: Word,
    pub(crate) value: u64,
}

impl WriteValue {
    /// Writes it now, on this thread.
    pub(crate) fn run(&self) {
        self.word.store(self.value);
    }
}

impl Op {
    /// Does the work, on the queue's own thread. `from` is when the queue got to it in link time; the answer is when it
    /// was done with it.
    pub(crate) fn run(&self, state: &State, from: u64) -> u64 {
        match self {
            Op::Nothing => {}
            Op::Copy(copy) => match copy.timed.and_then(|(device, direction)| {
                state.devices[device].link.as_ref().map(|link| link.reserve(from, copy.len, direction))
            }) {
                Some(end) => {
                    link::wait_until(end);
                    return end;
                }
                None => copy.run(),
            },
            Op::Fill(fill) => fill.run(),
            Op::Host(call) => call.run(),
            Op::WaitValue(wait) => looking::wait_for(*wait),
            Op::WriteValue(write) => write.run(),
            Op::Mark(time) => {
                let _ = time.set(sys::now());
            }
            Op::CopyLate(kernel) => return kernel.run(state, from),
            Op::Free(allocation) => {
                state.give_back(allocation);
            }
        }
        sys::now()
    }
}
