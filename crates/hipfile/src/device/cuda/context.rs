//! Which context is current on a thread: ours for the time of a call, then the caller's again.

use gpu_sys::cuda::{self, ContextPtr, CudaError, StreamPtr};

use super::Cuda;
use crate::error::{Error, ErrorKind, Result};

/// Keeps a context current on this thread and puts the caller's back, also on the way out of an error.
pub(super) struct OnGpu<'a> {
    cuda: &'a Cuda,
    pushed: bool,
}

impl Drop for OnGpu<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut ours: ContextPtr = std::ptr::null_mut();
            // SAFETY: `ours` is writable; what is popped was pushed by this thread.
            let _ = unsafe { (self.cuda.api.cuCtxPopCurrent_v2)(&raw mut ours) };
        }
    }
}

/// While it lives, this thread's calls neither mind nor void captures of other streams, where the call permits.
pub(super) struct Relaxed<'a> {
    cuda: &'a Cuda,
    before: Option<cuda::StreamCaptureMode>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(mut before) = self.before {
            // SAFETY: `before` may be read and written.
            let _ = unsafe { (self.cuda.api.cuThreadExchangeStreamCaptureMode)(&raw mut before) };
        }
    }
}

impl Cuda {
    /// The primary context of a GPU, retained at its first use.
    pub(super) fn context(&self, op: &'static str, ordinal: u32) -> Result<ContextPtr> {
        let gpu = self.gpu(op, ordinal)?;
        if let Some(context) = gpu.context.get() {
            return Ok(std::ptr::with_exposed_provenance_mut(*context));
        }
        let mut context: ContextPtr = std::ptr::null_mut();
        // SAFETY: `context` is writable. Several threads may retain it; it is never released.
        self.call(op, unsafe { (self.api.cuDevicePrimaryCtxRetain)(&raw mut context, gpu.device) })?;
        let _ = gpu.context.set(context.expose_provenance());
        Ok(context)
    }

    /// Makes a GPU's primary context current.
    pub(super) fn on(&self, op: &'static str, ordinal: u32) -> Result<OnGpu<'_>> {
        let context = self.context(op, ordinal)?;
        self.on_context(op, context)
    }

    fn on_context(&self, op: &'static str, context: ContextPtr) -> Result<OnGpu<'_>> {
        let mut current: ContextPtr = std::ptr::null_mut();
        // SAFETY: `current` is writable.
        self.call(op, unsafe { (self.api.cuCtxGetCurrent)(&raw mut current) })?;
        if current == context {
            return Ok(OnGpu { cuda: self, pushed: false });
        }
        // SAFETY: the context is retained, or that of a stream of the caller's.
        self.call(op, unsafe { (self.api.cuCtxPushCurrent_v2)(context) })?;
        Ok(OnGpu { cuda: self, pushed: true })
    }

    /// Makes a primary context current that is in use already: by us, or by the program.
    pub(super) fn on_any(&self) -> Result<OnGpu<'_>> {
        const OP: &str = "select GPU";
        let ours = self.gpus.iter().position(|gpu| gpu.context.get().is_some());
        let in_use = ours.or_else(|| {
            self.gpus.iter().position(|gpu| {
                let (mut flags, mut active) = (0, 0);
                // SAFETY: both are writable.
                let asked = unsafe {
                    (self.api.cuDevicePrimaryCtxGetState)(gpu.device, &raw mut flags, &raw mut active)
                };
                asked == CudaError::SUCCESS && active != 0
            })
        });
        match in_use {
            Some(ordinal) => self.on(OP, ordinal as u32),
            None => Err(Error::message(ErrorKind::HipDriverError, OP, "no GPU is in use yet")),
        }
    }

    /// The GPU in whose primary context a stream is.
    pub(super) fn gpu_of_stream(&self, op: &'static str, stream: StreamPtr) -> Result<u32> {
        let mut context: ContextPtr = std::ptr::null_mut();
        // SAFETY: `context` is writable; the stream is the caller's.
        match unsafe { (self.api.cuStreamGetCtx)(stream, &raw mut context) } {
            // A default stream on a thread that has used no GPU: CUDA's runtime would take the first.
            CudaError::INVALID_CONTEXT if stream.addr() <= cuda::STREAM_PER_THREAD => return Ok(0),
            code => self.call(op, code)?,
        }
        let number = context.addr();
        let known = |gpu: &super::Gpu| gpu.context.get() == Some(&number);
        if let Some(ordinal) = self.gpus.iter().position(known) {
            return Ok(ordinal as u32);
        }
        let mut device = 0;
        {
            let _on = self.on_context(op, context)?;
            // SAFETY: `device` is writable.
            self.call(op, unsafe { (self.api.cuCtxGetDevice)(&raw mut device) })?;
        }
        let ordinal = self.gpus.iter().position(|gpu| gpu.device == device).unwrap_or(0) as u32;
        if self.context(op, ordinal)? == context {
            return Ok(ordinal);
        }
        let why = format!("the stream is not in the primary context of GPU {ordinal}");
        Err(Error::message(ErrorKind::HipContextMismatch, op, why))
    }

    /// Makes the context of a stream current.
    pub(super) fn on_stream(&self, op: &'static str, stream: StreamPtr) -> Result<OnGpu<'_>> {
        self.on(op, self.gpu_of_stream(op, stream)?)
    }

    /// What we allocate, pin, load or wait for has nothing to do with what the caller captures.
    pub(super) fn relaxed(&self) -> Relaxed<'_> {
        let mut mode = cuda::STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` may be read and written.
        let exchanged = unsafe { (self.api.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        Relaxed { cuda: self, before: (exchanged == CudaError::SUCCESS).then_some(mode) }
    }
}
