//! HIP's streams: what they are told in the order of their work. It waits for nothing.

use std::ffi::{CStr, c_void};

use gpu_sys::hip::{self, FunctionPtr, HipError};
use gpu_sys::hiprtc;

use super::Hip;
use crate::device::{HostFn, LATE_THREADS, Pinned, StreamPtr, Streams, late_groups};
use crate::error::{Error, ErrorKind, Result};

/// Copies `late[2]` bytes from `late[1]` to `late[0]`, and stores `late[4]` at `late[3]` when it begins, unless that is 0: what
/// was queued on the stream before it is done then. One thread of a block reads the words for all: loads of host memory
/// by every thread would take longer than most copies. They are plain loads, as those of the bytes are: the kernel begins
/// after the wait before it. Stores are of 16 aligned bytes; where the source is aligned differently, those are shifted
/// together from two aligned loads, each of which has a byte that is wanted, and so leaves no page that the source is in.
const SOURCE: &CStr = c"extern \"C\" __global__ void hipfile_copy_late(const unsigned long long *late)
{
    __shared__ unsigned long long words[3];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; i++)
            words[i] = late[i];
        if (blockIdx.x == 0 && late[3] != 0)
            *(volatile unsigned long long *)late[3] = late[4];
    }
    __syncthreads();
    const unsigned long long len = words[2], step = (unsigned long long)blockDim.x * gridDim.x;
    unsigned char *to = (unsigned char *)words[0];
    const unsigned char *from = (const unsigned char *)words[1];
    const unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long head = -words[0] & 15;
    if (head > len)
        head = len;
    const unsigned long long whole = (len - head) / 16, tail = head + whole * 16 + at;
    if (at < head)
        to[at] = from[at];
    if (tail < len)
        to[tail] = from[tail];
    ulonglong2 *units = (ulonglong2 *)(to + head);
    const unsigned long long start = words[1] + head, off = start & 15;
    const ulonglong2 *source = (const ulonglong2 *)(start - off);
    if (off == 0) {
        for (unsigned long long i = at; i < whole; i += step)
            units[i] = source[i];
        return;
    }
    const unsigned down = (off & 7) * 8, up = 63 - down;
    for (unsigned long long i = at; i < whole; i += step) {
        const ulonglong2 low = source[i], high = source[i + 1];
        const unsigned long long a = off < 8 ? low.x : low.y;
        const unsigned long long b = off < 8 ? low.y : high.x;
        const unsigned long long c = off < 8 ? high.x : high.y;
        ulonglong2 unit;
        unit.x = a >> down | b << up << 1;
        unit.y = b >> down | c << up << 1;
        units[i] = unit;
    }
}
";
const NAME: &CStr = c"hipfile_copy_late";

const MISSING: &str = "the GPU runtime has no functions for stream operations";

fn missing(op: &'static str) -> Error {
    Error::message(ErrorKind::AsyncNotSupported, op, MISSING)
}

fn handle(stream: StreamPtr) -> hip::StreamPtr {
    std::ptr::with_exposed_provenance_mut(stream.0)
}

impl Hip {
    /// The kernel's code for the current GPU.
    fn code(&self) -> Result<Vec<u8>> {
        if self.emulated {
            // What its compiler makes of the program.
            return Ok([b"HIPEMU01".as_slice(), NAME.to_bytes_with_nul()].concat());
        }
        hiprtc::load(self.library)
            .and_then(|api| hiprtc::compile(&api, SOURCE))
            .map_err(|why| Error::message(ErrorKind::AsyncNotSupported, "compile the copy kernel", why))
    }
}

impl Streams for Hip {
    fn gpu_of(&self, stream: StreamPtr) -> Result<u32> {
        const OP: &str = "look up stream";
        let mut gpu = 0;
        let code = match self.api.hipStreamGetDevice {
            // SAFETY: `gpu` is writable; the stream is the caller's.
            Some(get) => unsafe { get(handle(stream), &raw mut gpu) },
            // SAFETY: `gpu` is writable.
            None => unsafe { (self.api.hipGetDevice)(&raw mut gpu) },
        };
        self.call(OP, code)?;
        Ok(u32::try_from(gpu).unwrap_or(0))
    }

    fn create(&self, gpu: u32) -> Result<StreamPtr> {
        const OP: &str = "make stream";
        self.check_ordinal(OP, gpu)?;
        let _on = self.on(gpu)?;
        let _relaxed = self.relaxed();
        let mut stream = std::ptr::null_mut();
        // SAFETY: `stream` is writable.
        let code = unsafe { (self.api.hipStreamCreateWithFlags)(&raw mut stream, hip::STREAM_NON_BLOCKING) };
        Hip::call(self, OP, code).map(|()| StreamPtr(stream.expose_provenance()))
    }

    fn destroy(&self, stream: StreamPtr) -> Result<()> {
        // SAFETY: the caller gives a stream of `create`, once.
        Hip::call(self, "destroy stream", unsafe { (self.api.hipStreamDestroy)(handle(stream)) })
    }

    fn synchronize(&self, stream: StreamPtr) -> Result<()> {
        let _relaxed = self.relaxed();
        // SAFETY: a plain call; the stream is the caller's.
        Hip::call(self, "wait for stream", unsafe { (self.api.hipStreamSynchronize)(handle(stream)) })
    }

    fn is_capturing(&self, stream: StreamPtr) -> Result<bool> {
        let Some(is_capturing) = self.api.hipStreamIsCapturing else { return Ok(false) };
        let mut status = hip::STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is writable; the stream is the caller's.
        match unsafe { is_capturing(handle(stream), &raw mut status) } {
            // Of the default stream it is not said whether it or another one captures; it may not be used either way.
            HipError::STREAM_CAPTURE_IMPLICIT => {
                let _ = self.call("look at stream", HipError::STREAM_CAPTURE_IMPLICIT);
                Ok(true)
            }
            code => {
                self.call("look at stream", code)?;
                Ok(status != hip::STREAM_CAPTURE_STATUS_NONE)
            }
        }
    }

    fn is_per_thread(&self, stream: StreamPtr) -> bool {
        stream.0 == hip::STREAM_PER_THREAD
    }

    fn is_legacy(&self, stream: StreamPtr) -> bool {
        matches!(stream.0, 0 | hip::STREAM_LEGACY)
    }

    fn is_idle(&self, stream: StreamPtr) -> bool {
        let (mut flags, _relaxed) = (0, self.relaxed());
        // A blocking stream waits for the default stream, which nobody may ask about while it captures.
        !(self.is_legacy(stream) || self.is_per_thread(stream))
            // SAFETY: `flags` is writable; the stream is the caller's.
            && self.call("look at stream", unsafe { (self.api.hipStreamGetFlags)(handle(stream), &raw mut flags) }).is_ok()
            && flags & hip::STREAM_NON_BLOCKING != 0
            // SAFETY: the stream is the caller's.
            && self.call("look at stream", unsafe { (self.api.hipStreamQuery)(handle(stream)) }).is_ok()
    }

    fn is_drained(&self, stream: StreamPtr) -> bool {
        // Who asks about a stream that captures ends the capture.
        let is_free = matches!(self.is_capturing(stream), Ok(false));
        let _relaxed = self.relaxed();
        // SAFETY: the stream is the caller's.
        is_free && self.call("look at stream", unsafe { (self.api.hipStreamQuery)(handle(stream)) }).is_ok()
    }

    fn load_copy(&self, gpu: u32) -> Result<usize> {
        const OP: &str = "load the copy kernel";
        let _on = self.on(gpu)?;
        let _relaxed = self.relaxed();
        let load = self.api.hipModuleLoadData.ok_or_else(|| missing(OP))?;
        let get = self.api.hipModuleGetFunction.ok_or_else(|| missing(OP))?;
        let code = self.code()?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: `module` is writable, the code complete.
        self.call(OP, unsafe { load(&raw mut module, code.as_ptr().cast()) })?;
        // SAFETY: `function` is writable; the module stays loaded.
        self.call(OP, unsafe { get(&raw mut function, module, NAME.as_ptr()) })?;
        Ok(function.expose_provenance())
    }

    fn can_wait(&self, gpu: u32) -> bool {
        if self.bypass_memops {
            return false;
        }
        let mut can = 0;
        let attribute = hip::ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE;
        // SAFETY: `can` is writable.
        let code = unsafe { (self.api.hipDeviceGetAttribute)(&raw mut can, attribute, gpu as i32) };
        self.call("look at GPU", code).is_ok()
            && can != 0
            && self.api.hipStreamWaitValue64.is_some()
            && self.api.hipExtMallocWithFlags.is_some()
    }

    fn alloc_pinned(&self, _gpu: u32, len: usize) -> Result<Pinned> {
        const OP: &str = "pin memory for streams";
        let _relaxed = self.relaxed();
        let (mut host, mut device) = (std::ptr::null_mut(), std::ptr::null_mut());
        let flags = hip::HOST_MALLOC_PORTABLE | hip::HOST_MALLOC_MAPPED;
        // SAFETY: `host` is writable.
        self.call(OP, unsafe { (self.api.hipHostMalloc)(&raw mut host, len, flags) })?;
        // SAFETY: the memory was just allocated.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, len) };
        // SAFETY: `device` is writable, the memory pinned.
        let code = unsafe { (self.api.hipHostGetDevicePointer)(&raw mut device, host, 0) };
        if let Err(error) = self.call(OP, code) {
            // SAFETY: it was just allocated and is given back once.
            let _ = unsafe { (self.api.hipHostFree)(host) };
            return Err(error);
        }
        Ok(Pinned { host: host.expose_provenance(), device: device.addr(), len })
    }

    fn alloc_word(&self, gpu: u32) -> Result<usize> {
        const OP: &str = "allocate a signal";
        let _on = self.on(gpu)?;
        let _relaxed = self.relaxed();
        let malloc = self.api.hipExtMallocWithFlags.ok_or_else(|| missing(OP))?;
        let mut word = std::ptr::null_mut();
        // SAFETY: `word` is writable; signal memory is eight bytes.
        self.call(OP, unsafe { malloc(&raw mut word, 8, hip::MALLOC_SIGNAL_MEMORY) })?;
        // SAFETY: signal memory is memory of the host, and these eight bytes were just allocated.
        unsafe { word.cast::<u64>().write(0) };
        Ok(word.expose_provenance())
    }

    unsafe fn call(&self, gpu: u32, stream: StreamPtr, function: HostFn, data: *mut c_void) -> Result<()> {
        let _on = self.on(gpu)?;
        // SAFETY: as this function demands.
        let code = unsafe { (self.api.hipLaunchHostFunc)(handle(stream), Some(function), data) };
        Hip::call(self, "call from stream", code)
    }

    fn wait(&self, gpu: u32, stream: StreamPtr, word: usize, value: u64) -> Result<()> {
        const OP: &str = "hold stream";
        let _on = self.on(gpu)?;
        let wait = self.api.hipStreamWaitValue64.ok_or_else(|| missing(OP))?;
        let word = std::ptr::with_exposed_provenance_mut(word);
        // SAFETY: signal memory of `alloc_word`, which stays, and is written by atomic stores.
        let code = unsafe { wait(handle(stream), word, value, hip::STREAM_WAIT_VALUE_GTE, u64::MAX) };
        Hip::call(self, OP, code)
    }

    unsafe fn copy(
        &self,
        gpu: u32,
        stream: StreamPtr,
        kernel: usize,
        late: usize,
        most: usize,
    ) -> Result<()> {
        const OP: &str = "copy on stream";
        let _on = self.on(gpu)?;
        let launch = self.api.hipModuleLaunchKernel.ok_or_else(|| missing(OP))?;
        let function: FunctionPtr = std::ptr::with_exposed_provenance_mut(kernel);
        let (groups, threads) = (late_groups(most), LATE_THREADS);
        let mut late: *mut c_void = std::ptr::with_exposed_provenance_mut(late);
        let mut params = [(&raw mut late).cast::<c_void>()];
        let (params, none) = (params.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel has one parameter, an address; what is there is the caller's promise.
        let code = unsafe { launch(function, groups, 1, 1, threads, 1, 1, 0, handle(stream), params, none) };
        Hip::call(self, OP, code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_has_the_kernel() {
        assert!(SOURCE.to_str().unwrap().contains(NAME.to_str().unwrap()));
    }
}
