//! Copies that are done when they return, in the order of the legacy default stream.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpu_sys::cuda::{self, CudaError, EventPtr, StreamPtr};

use super::{Cuda, Gpu};
use crate::buffer::Span;
use crate::config::Order;
use crate::device::{Streams, UnderWay};
use crate::error::Result;

/// Up to here a copy is mostly what surrounds it, and on the default stream itself that is least.
pub(super) const SMALL: usize = 64 << 10;

/// Up to here memory need not be pinned: the driver copies it into memory of its own meanwhile.
pub(super) const PLAIN: usize = 16 << 10;

/// The host's end of a copy.
#[derive(Clone, Copy)]
pub(super) enum Side {
    /// Copied from, to the GPU.
    Source(*const u8),
    /// Copied to, from the GPU.
    Target(*mut u8),
}

/// A stream of our own and an event, by which copies of several threads run beside each other.
#[derive(Debug)]
pub(super) struct Channel {
    stream: usize,
    event: usize,
}

impl Channel {
    fn stream(&self) -> StreamPtr {
        std::ptr::with_exposed_provenance_mut(self.stream)
    }

    fn event(&self) -> EventPtr {
        std::ptr::with_exposed_provenance_mut(self.event)
    }
}

/// A word that the GPU writes when it has come so far.
#[derive(Debug)]
pub(super) struct Mark {
    word: usize,
    /// What was written last.
    told: u64,
}

impl Mark {
    /// Whether the GPU has come so far; looks for a while.
    fn is_written(&self) -> bool {
        // SAFETY: a word of `alloc_word`, aligned and never freed, which the GPU writes, and this process only looks at.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(self.word)) };
        let began = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if word.load(Ordering::Acquire) == self.told {
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= LOOKING {
                return false;
            }
        }
    }
}

/// How long the word of a small copy is looked at before the driver waits for it: several times as long as such a copy takes.
const LOOKING: Duration = Duration::from_micros(50);
/// Looks between two at the clock.
const LOOKS: usize = 64;

/// Copies queued on a channel.
pub(super) struct Copying<'a> {
    cuda: &'a Cuda,
    ordinal: u32,
    stream: StreamPtr,
    /// Until it was waited for.
    channel: Option<Channel>,
}

impl Copying<'_> {
    /// Queues one more. The GPU is current.
    ///
    /// # Safety
    /// Both ranges are valid until this was waited for or dropped.
    unsafe fn queue(&self, op: &'static str, at: usize, host: Side, len: usize) -> Result<()> {
        let (api, at) = (&self.cuda.api, at as u64);
        let code = match host {
            // SAFETY: as this function demands.
            Side::Source(from) => unsafe { (api.cuMemcpyHtoDAsync_v2)(at, from.cast(), len, self.stream) },
            // SAFETY: as above.
            Side::Target(to) => unsafe { (api.cuMemcpyDtoHAsync_v2)(to.cast(), at, len, self.stream) },
        };
        self.cuda.call(op, code)
    }

    /// Queues several more, to the GPU and none of them empty, by as few calls as can be.
    ///
    /// # Safety
    /// As [`Copying::queue`], of all.
    unsafe fn queue_all(&self, pieces: &[(Span<'_>, &[u8])]) -> Result<()> {
        let each = |pieces: &[(Span<'_>, &[u8])]| {
            pieces.iter().try_for_each(|(to, from)| {
                // SAFETY: as this function demands.
                unsafe { self.queue(UPLOAD, to.start(), Side::Source(from.as_ptr()), from.len()) }
            })
        };
        let together = self.cuda.api.cuMemcpyBatchAsync_v2.filter(|_| pieces.len() > 1);
        let Some(batch) = together else { return each(pieces) };
        for pieces in pieces.chunks(TOGETHER) {
            let (mut to, mut from, mut lens) = ([0; TOGETHER], [0; TOGETHER], [0; TOGETHER]);
            for (at, (span, bytes)) in pieces.iter().enumerate() {
                (to[at], from[at], lens[at]) =
                    (span.start() as u64, bytes.as_ptr().expose_provenance() as u64, bytes.len());
            }
            let mut attributes = cuda::MemcpyAttributes {
                src_access_order: cuda::MEMCPY_SRC_ACCESS_ORDER_STREAM,
                ..Default::default()
            };
            let (to, from, lens, mut all) = (to.as_mut_ptr(), from.as_mut_ptr(), lens.as_mut_ptr(), 0);
            // SAFETY: as this function demands; so many of each list are set, and the attributes are those of all.
            let code = unsafe {
                batch(to, from, lens, pieces.len(), &raw mut attributes, &raw mut all, 1, self.stream)
            };
            match code {
                CudaError::NOT_SUPPORTED => each(pieces)?,
                code => self.cuda.call(UPLOAD, code)?,
            }
        }
        Ok(())
    }

    fn finish(&mut self, op: &'static str) -> Result<()> {
        let Some(channel) = self.channel.take() else { return Ok(()) };
        let _on = self.cuda.on(op, self.ordinal)?;
        let _relaxed = self.cuda.relaxed();
        // SAFETY: a plain call.
        self.cuda.call(op, unsafe { (self.cuda.api.cuStreamSynchronize)(channel.stream()) })?;
        let channels = &self.cuda.gpu(op, self.ordinal)?.channels;
        channels.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
        Ok(())
    }
}

impl UnderWay for Copying<'_> {
    fn wait(mut self: Box<Self>) -> Result<()> {
        self.finish(UPLOAD)
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let _ = self.finish(UPLOAD);
    }
}

/// Most copies that the driver is given at once.
const TOGETHER: usize = 64;

const UPLOAD: &str = "copy to the GPU";
const LEGACY: StreamPtr = std::ptr::null_mut();

impl Cuda {
    /// A copy between device and host memory, in the order of the legacy default stream, done when it returns. `meanwhile` is
    /// done beside a large one, else before it.
    ///
    /// # Safety
    /// Both ranges are valid for the call.
    pub(super) unsafe fn copy(
        &self,
        op: &'static str,
        ordinal: u32,
        at: usize,
        host: Side,
        len: usize,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<()> {
        let _on = self.on(op, ordinal)?;
        let _relaxed = self.relaxed();
        if self.order == Order::Device {
            // SAFETY: a plain call.
            self.call("wait for the GPU", unsafe { (self.api.cuCtxSynchronize)() })?;
        }
        // While a stream that is ordered with the default stream is captured, using that would void the capture.
        let usable = self.order != Order::Off && self.default_stream_usable();
        if usable && len <= SMALL {
            meanwhile();
            // SAFETY: as this function demands.
            return unsafe { self.copy_small(op, ordinal, at, host, len) };
        }
        let mut copying = self.copying(op, ordinal, usable)?;
        // SAFETY: as this function demands; the ranges are in use until the stream was waited for, also after an error.
        unsafe { copying.queue(op, at, host, len) }?;
        meanwhile();
        copying.finish(op)
    }

    /// # Safety
    /// Both ranges are valid for the call.
    unsafe fn copy_small(
        &self,
        op: &'static str,
        ordinal: u32,
        at: usize,
        host: Side,
        len: usize,
    ) -> Result<()> {
        match host {
            Side::Target(to) => {
                // SAFETY: as this function demands.
                self.call(op, unsafe { (self.api.cuMemcpyDtoH_v2)(to.cast(), at as u64, len) })
            }
            Side::Source(from) => {
                // SAFETY: as this function demands. Nothing else returns before the copy is done, below.
                let code = unsafe { (self.api.cuMemcpyHtoDAsync_v2)(at as u64, from.cast(), len, LEGACY) };
                self.call(op, code)?;
                self.wait_small(op, ordinal)
            }
        }
    }

    /// Waits for what is queued on the legacy default stream: by a word that the GPU writes behind it, which is half a
    /// microsecond less than the driver's wait takes; and by that where the GPU writes none, or not for a while.
    fn wait_small(&self, op: &'static str, ordinal: u32) -> Result<()> {
        let gpu = self.gpu(op, ordinal)?;
        let mark = self.tell(ordinal);
        if !mark.as_ref().is_some_and(Mark::is_written) {
            // SAFETY: a plain call.
            self.call(op, unsafe { (self.api.cuStreamSynchronize)(LEGACY) })?;
        }
        // After an error the word may yet be written: it is left alone.
        if let Some(mark) = mark {
            gpu.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
        }
        Ok(())
    }

    /// Has the GPU write a word behind what is queued on the legacy default stream, if it can.
    fn tell(&self, ordinal: u32) -> Option<Mark> {
        let (write, gpu) = (self.api.cuStreamWriteValue64_v2, self.gpus.get(ordinal as usize)?);
        if !*gpu.tells.get_or_init(|| Streams::can_wait(self, ordinal)) {
            return None;
        }
        let unused = gpu.marks.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mark = match unused {
            Some(mark) => Mark { told: mark.told + 1, ..mark },
            None => Mark { word: self.alloc_word(ordinal).ok()?, told: 1 },
        };
        // SAFETY: a word of `alloc_word`, which stays for ever.
        let code = unsafe { write(LEGACY, mark.word as u64, mark.told, 0) };
        (code == CudaError::SUCCESS).then_some(mark)
    }

    /// Queues copies to a GPU on a channel, in the order of the legacy default stream.
    ///
    /// # Safety
    /// All ranges are valid, and no shorter in the GPU's memory, until the answer was waited for or dropped.
    pub(super) unsafe fn uploading(&self, ordinal: u32, pieces: &[(Span<'_>, &[u8])]) -> Result<Copying<'_>> {
        let _on = self.on(UPLOAD, ordinal)?;
        let _relaxed = self.relaxed();
        if self.order == Order::Device {
            // SAFETY: a plain call.
            self.call("wait for the GPU", unsafe { (self.api.cuCtxSynchronize)() })?;
        }
        let after_default = self.order != Order::Off && self.default_stream_usable();
        let copying = self.copying(UPLOAD, ordinal, after_default)?;
        // SAFETY: as this function demands.
        unsafe { copying.queue_all(pieces) }?;
        Ok(copying)
    }

    /// A channel for copies, behind what is queued on the default stream unless that may not be used. Its GPU is current.
    fn copying(&self, op: &'static str, ordinal: u32, after_default: bool) -> Result<Copying<'_>> {
        let channel = self.channel(self.gpu(op, ordinal)?)?;
        let (stream, event) = (channel.stream(), channel.event());
        // From here on an error leaves the channel to be waited for.
        let copying = Copying { cuda: self, ordinal, stream, channel: Some(channel) };
        if after_default {
            // SAFETY: the event is the channel's; the legacy default stream is always there.
            self.call(op, unsafe { (self.api.cuEventRecord)(event, LEGACY) })?;
            // SAFETY: both are the channel's.
            self.call(op, unsafe { (self.api.cuStreamWaitEvent)(stream, event, 0) })?;
        }
        Ok(copying)
    }

    pub(super) fn default_stream_usable(&self) -> bool {
        let mut status = cuda::STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is writable. Asking voids no capture.
        let asked = unsafe { (self.api.cuStreamIsCapturing)(LEGACY, &raw mut status) };
        asked == CudaError::SUCCESS && status == cuda::STREAM_CAPTURE_STATUS_NONE
    }

    /// A channel that nobody uses. Its GPU is current.
    fn channel(&self, gpu: &Gpu) -> Result<Channel> {
        const OP: &str = "make stream";
        if let Some(channel) = gpu.channels.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(channel);
        }
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: `stream` is writable.
        let made = unsafe { (self.api.cuStreamCreate)(&raw mut stream, cuda::STREAM_NON_BLOCKING) };
        self.call(OP, made)?;
        // SAFETY: `event` is writable.
        let made = unsafe { (self.api.cuEventCreate)(&raw mut event, cuda::EVENT_DISABLE_TIMING) };
        if let Err(error) = self.call(OP, made) {
            // SAFETY: the stream was just made, and has nothing to do.
            let _ = unsafe { (self.api.cuStreamDestroy_v2)(stream) };
            return Err(error);
        }
        Ok(Channel { stream: stream.expose_provenance(), event: event.expose_provenance() })
    }
}
