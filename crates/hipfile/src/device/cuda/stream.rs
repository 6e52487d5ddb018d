//! CUDA's streams: what they are told in the order of their work. It waits for nothing.

use std::ffi::{CStr, c_void};
use std::sync::PoisonError;

use gpu_sys::cuda::{self, CudaError, FunctionPtr};

use super::Cuda;
use crate::device::{HostFn, LATE_THREADS, Pinned, StreamPtr, Streams, late_groups};
use crate::error::Result;

/// Copies `late[2]` bytes from `late[1]` to `late[0]`, and stores `late[4]` at `late[3]` when it begins, unless that is 0: what
/// was queued on the stream before it is done then. One thread of a block reads the words for all: loads of host memory
/// by every thread would take longer than most copies. They are plain loads, as those of the bytes are: the kernel begins
/// after the wait before it, and no cache of the GPU keeps host memory from one launch to the next. Volatile ones take turns,
/// 3 us for each block. Stores are of 16 aligned bytes; where the source is aligned differently, those are shifted together
/// from two aligned loads, each of which has a byte that is wanted, and so leaves no page that the source is in. Where both
/// agree, each thread has four loads under way before it stores.
const PTX: &CStr = c".version 6.4
.target sm_70
.address_size 64
.visible .entry hipfile_copy_late(.param .u64 late)
{
.reg .pred %p<8>;
.reg .b16 %h<2>;
.reg .b32 %r<8>;
.reg .b64 %d<32>;
.shared .align 8 .b64 words[3];
ld.param.u64 %d0, [late];
mov.u32 %r2, %tid.x;
setp.ne.u32 %p0, %r2, 0;
@%p0 bra KNOWN;
ld.global.u64 %d1, [%d0];
ld.global.u64 %d2, [%d0+8];
ld.global.u64 %d3, [%d0+16];
ld.global.u64 %d27, [%d0+24];
ld.global.u64 %d28, [%d0+32];
st.shared.u64 [words], %d1;
st.shared.u64 [words+8], %d2;
st.shared.u64 [words+16], %d3;
mov.u32 %r0, %ctaid.x;
setp.ne.u32 %p0, %r0, 0;
@%p0 bra KNOWN;
setp.eq.u64 %p0, %d27, 0;
@%p0 bra KNOWN;
st.volatile.global.u64 [%d27], %d28;
KNOWN:
bar.sync 0;
ld.shared.u64 %d1, [words];
ld.shared.u64 %d2, [words+8];
ld.shared.u64 %d3, [words+16];
mov.u32 %r0, %ctaid.x;
mov.u32 %r1, %ntid.x;
mov.u32 %r3, %nctaid.x;
mad.lo.u32 %r4, %r0, %r1, %r2;
mul.lo.u32 %r5, %r1, %r3;
cvt.u64.u32 %d4, %r4;
cvt.u64.u32 %d5, %r5;
neg.s64 %d6, %d1;
and.b64 %d6, %d6, 15;
min.u64 %d6, %d6, %d3;
sub.u64 %d7, %d3, %d6;
shr.u64 %d8, %d7, 4;
and.b64 %d26, %d7, -16;
add.u64 %d26, %d26, %d6;
setp.ge.u64 %p1, %d4, %d6;
@%p1 bra TAIL;
add.u64 %d11, %d2, %d4;
add.u64 %d12, %d1, %d4;
ld.global.u8 %h0, [%d11];
st.global.u8 [%d12], %h0;
TAIL:
add.u64 %d9, %d26, %d4;
setp.ge.u64 %p4, %d9, %d3;
@%p4 bra WHOLE;
add.u64 %d11, %d2, %d9;
add.u64 %d12, %d1, %d9;
ld.global.u8 %h1, [%d11];
st.global.u8 [%d12], %h1;
WHOLE:
add.u64 %d1, %d1, %d6;
add.u64 %d2, %d2, %d6;
mov.u64 %d9, %d4;
and.b64 %d7, %d2, 15;
setp.ne.u64 %p5, %d7, 0;
@%p5 bra SHIFTED;
shl.b64 %d15, %d5, 2;
shl.b64 %d16, %d5, 4;
FOUR:
mad.lo.u64 %d17, %d5, 3, %d9;
setp.ge.u64 %p2, %d17, %d8;
@%p2 bra ONE;
shl.b64 %d10, %d9, 4;
add.u64 %d11, %d2, %d10;
add.u64 %d12, %d1, %d10;
ld.global.v2.u64 {%d18, %d19}, [%d11];
add.u64 %d11, %d11, %d16;
ld.global.v2.u64 {%d20, %d21}, [%d11];
add.u64 %d11, %d11, %d16;
ld.global.v2.u64 {%d22, %d23}, [%d11];
add.u64 %d11, %d11, %d16;
ld.global.v2.u64 {%d24, %d25}, [%d11];
st.global.v2.u64 [%d12], {%d18, %d19};
add.u64 %d12, %d12, %d16;
st.global.v2.u64 [%d12], {%d20, %d21};
add.u64 %d12, %d12, %d16;
st.global.v2.u64 [%d12], {%d22, %d23};
add.u64 %d12, %d12, %d16;
st.global.v2.u64 [%d12], {%d24, %d25};
add.u64 %d9, %d9, %d15;
bra FOUR;
ONE:
setp.ge.u64 %p3, %d9, %d8;
@%p3 bra END;
shl.b64 %d10, %d9, 4;
add.u64 %d11, %d2, %d10;
add.u64 %d12, %d1, %d10;
ld.global.v2.u64 {%d18, %d19}, [%d11];
st.global.v2.u64 [%d12], {%d18, %d19};
add.u64 %d9, %d9, %d5;
bra ONE;
SHIFTED:
and.b64 %d2, %d2, -16;
setp.ge.u64 %p6, %d7, 8;
cvt.u32.u64 %r6, %d7;
and.b32 %r6, %r6, 7;
shl.b32 %r6, %r6, 3;
mov.u32 %r7, 64;
sub.u32 %r7, %r7, %r6;
UNIT:
setp.ge.u64 %p7, %d9, %d8;
@%p7 bra END;
shl.b64 %d10, %d9, 4;
add.u64 %d11, %d2, %d10;
add.u64 %d12, %d1, %d10;
ld.global.v2.u64 {%d18, %d19}, [%d11];
ld.global.v2.u64 {%d20, %d21}, [%d11+16];
selp.b64 %d22, %d19, %d18, %p6;
selp.b64 %d23, %d20, %d19, %p6;
selp.b64 %d24, %d21, %d20, %p6;
shr.u64 %d22, %d22, %r6;
shl.b64 %d25, %d23, %r7;
or.b64 %d22, %d22, %d25;
shr.u64 %d23, %d23, %r6;
shl.b64 %d25, %d24, %r7;
or.b64 %d23, %d23, %d25;
st.global.v2.u64 [%d12], {%d22, %d23};
add.u64 %d9, %d9, %d5;
bra UNIT;
END:
ret;
}
";
const NAME: &CStr = c"hipfile_copy_late";
/// Bytes between two words that streams wait for.
const WORD_SPACE: usize = 64;
const WORDS: usize = 64;

fn handle(stream: StreamPtr) -> cuda::StreamPtr {
    std::ptr::with_exposed_provenance_mut(stream.0)
}

impl Cuda {
    /// Host memory that all GPUs reach, zeroed.
    fn alloc_host(&self, op: &'static str, gpu: u32, len: usize) -> Result<*mut c_void> {
        let _on = self.on(op, gpu)?;
        let _relaxed = self.relaxed();
        let flags = cuda::MEM_HOST_ALLOC_PORTABLE | cuda::MEM_HOST_ALLOC_DEVICE_MAP;
        let mut host = std::ptr::null_mut();
        // SAFETY: `host` is writable.
        self.call(op, unsafe { (self.api.cuMemHostAlloc)(&raw mut host, len, flags) })?;
        // SAFETY: the memory was just allocated.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, len) };
        Ok(host)
    }
}

impl Streams for Cuda {
    fn gpu_of(&self, stream: StreamPtr) -> Result<u32> {
        self.gpu_of_stream("look up stream", handle(stream))
    }

    fn create(&self, gpu: u32) -> Result<StreamPtr> {
        const OP: &str = "make stream";
        let _on = self.on(OP, gpu)?;
        let _relaxed = self.relaxed();
        let mut stream = std::ptr::null_mut();
        // SAFETY: `stream` is writable.
        let code = unsafe { (self.api.cuStreamCreate)(&raw mut stream, cuda::STREAM_NON_BLOCKING) };
        Cuda::call(self, OP, code).map(|()| StreamPtr(stream.expose_provenance()))
    }

    fn destroy(&self, stream: StreamPtr) -> Result<()> {
        const OP: &str = "destroy stream";
        let _on = self.on_stream(OP, handle(stream))?;
        // SAFETY: the caller gives a stream of `create`, once.
        Cuda::call(self, OP, unsafe { (self.api.cuStreamDestroy_v2)(handle(stream)) })
    }

    fn synchronize(&self, stream: StreamPtr) -> Result<()> {
        const OP: &str = "wait for stream";
        let _on = self.on_stream(OP, handle(stream))?;
        let _relaxed = self.relaxed();
        // SAFETY: a plain call; the stream is the caller's.
        Cuda::call(self, OP, unsafe { (self.api.cuStreamSynchronize)(handle(stream)) })
    }

    fn is_capturing(&self, stream: StreamPtr) -> Result<bool> {
        const OP: &str = "look at stream";
        let _on = self.on_stream(OP, handle(stream))?;
        let mut status = cuda::STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is writable; the stream is the caller's.
        match unsafe { (self.api.cuStreamIsCapturing)(handle(stream), &raw mut status) } {
            // Of the default stream it is not said whether it or another one captures; it may not be used either way.
            CudaError::STREAM_CAPTURE_IMPLICIT => Ok(true),
            code => {
                Cuda::call(self, OP, code)?;
                Ok(status != cuda::STREAM_CAPTURE_STATUS_NONE)
            }
        }
    }

    fn is_per_thread(&self, stream: StreamPtr) -> bool {
        stream.0 == cuda::STREAM_PER_THREAD
    }

    fn is_legacy(&self, stream: StreamPtr) -> bool {
        matches!(stream.0, 0 | cuda::STREAM_LEGACY)
    }

    fn is_idle(&self, stream: StreamPtr) -> bool {
        const OP: &str = "look at stream";
        // A blocking stream waits for the default stream, which nobody may ask about while it captures.
        if self.is_legacy(stream) || self.is_per_thread(stream) {
            return false;
        }
        let Ok(_on) = self.on_stream(OP, handle(stream)) else { return false };
        let (mut flags, _relaxed) = (0, self.relaxed());
        // SAFETY: `flags` is writable; the stream is the caller's.
        let asked =
            Cuda::call(self, OP, unsafe { (self.api.cuStreamGetFlags)(handle(stream), &raw mut flags) });
        asked.is_ok()
            && flags & cuda::STREAM_NON_BLOCKING != 0
            // SAFETY: the stream is the caller's.
            && Cuda::call(self, OP, unsafe { (self.api.cuStreamQuery)(handle(stream)) }).is_ok()
    }

    fn is_drained(&self, stream: StreamPtr) -> bool {
        const OP: &str = "look at stream";
        // Who asks about a stream that captures ends the capture.
        let is_free = matches!(self.is_capturing(stream), Ok(false));
        let Ok(_on) = self.on_stream(OP, handle(stream)) else { return false };
        let _relaxed = self.relaxed();
        // SAFETY: the stream is the caller's.
        is_free && Cuda::call(self, OP, unsafe { (self.api.cuStreamQuery)(handle(stream)) }).is_ok()
    }

    fn load_copy(&self, gpu: u32) -> Result<usize> {
        const OP: &str = "load the copy kernel";
        let _on = self.on(OP, gpu)?;
        let _relaxed = self.relaxed();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: `module` is writable, the text ends in NUL.
        let loaded = unsafe { (self.api.cuModuleLoadData)(&raw mut module, PTX.as_ptr().cast()) };
        Cuda::call(self, OP, loaded)?;
        // SAFETY: `function` is writable; the module stays loaded.
        let found = unsafe { (self.api.cuModuleGetFunction)(&raw mut function, module, NAME.as_ptr()) };
        Cuda::call(self, OP, found)?;
        // A first launch may load something too: this one, which copies nothing, and which nobody waits for.
        let kernel = function.expose_provenance();
        let (stream, words) = (Streams::create(self, gpu)?, self.alloc_word(gpu)?);
        // SAFETY: the words stay for ever, and are zero: the length.
        unsafe { Streams::copy(self, gpu, stream, kernel, words, 0) }?;
        self.destroy(stream)?;
        Ok(kernel)
    }

    fn can_wait(&self, gpu: u32) -> bool {
        let Ok(gpu) = self.gpu("look at GPU", gpu) else { return false };
        let mut can = 0;
        let attribute = cuda::ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
        // SAFETY: `can` is writable.
        let asked = unsafe { (self.api.cuDeviceGetAttribute)(&raw mut can, attribute, gpu.device) };
        !self.bypass_memops && asked == CudaError::SUCCESS && can != 0
    }

    fn alloc_pinned(&self, gpu: u32, len: usize) -> Result<Pinned> {
        const OP: &str = "pin memory for streams";
        let host = self.alloc_host(OP, gpu, len)?;
        let _on = self.on(OP, gpu)?;
        let mut device = 0;
        // SAFETY: `device` is writable, the memory pinned.
        let code = unsafe { (self.api.cuMemHostGetDevicePointer_v2)(&raw mut device, host, 0) };
        if let Err(error) = Cuda::call(self, OP, code) {
            // SAFETY: it was just allocated and is given back once.
            let _ = unsafe { (self.api.cuMemFreeHost)(host) };
            return Err(error);
        }
        Ok(Pinned { host: host.expose_provenance(), device: device as usize, len })
    }

    fn alloc_word(&self, gpu: u32) -> Result<usize> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() {
            // Under unified addressing it has one address for all. Allocating it is slow: many at once.
            let chunk = self.alloc_host("allocate a signal", gpu, WORDS * WORD_SPACE)?.expose_provenance();
            words.extend((0..WORDS).map(|index| chunk + index * WORD_SPACE));
        }
        // Never empty here.
        Ok(words.pop().unwrap_or_default())
    }

    unsafe fn call(&self, gpu: u32, stream: StreamPtr, function: HostFn, data: *mut c_void) -> Result<()> {
        const OP: &str = "call from stream";
        let _on = self.on(OP, gpu)?;
        // SAFETY: as this function demands.
        let code = unsafe { (self.api.cuLaunchHostFunc)(handle(stream), Some(function), data) };
        Cuda::call(self, OP, code)
    }

    fn wait(&self, gpu: u32, stream: StreamPtr, word: usize, value: u64) -> Result<()> {
        const OP: &str = "hold stream";
        let _on = self.on(OP, gpu)?;
        let at = word as u64;
        // SAFETY: a word of `alloc_word`, which stays, and is written by atomic stores.
        let code = unsafe {
            (self.api.cuStreamWaitValue64_v2)(handle(stream), at, value, cuda::STREAM_WAIT_VALUE_GEQ)
        };
        Cuda::call(self, OP, code)
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
        let _on = self.on(OP, gpu)?;
        let function: FunctionPtr = std::ptr::with_exposed_provenance_mut(kernel);
        let (groups, threads) = (late_groups(most), LATE_THREADS);
        let mut late = late as u64;
        let mut params = [(&raw mut late).cast::<c_void>()];
        let (params, none) = (params.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel has one parameter, an address; what is there is the caller's promise.
        let code = unsafe {
            let launch = self.api.cuLaunchKernel;
            launch(function, groups, 1, 1, threads, 1, 1, 0, handle(stream), params, none)
        };
        Cuda::call(self, OP, code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_kernel() {
        let head = format!(".visible .entry {}(", NAME.to_str().unwrap());
        assert!(PTX.to_str().unwrap().contains(&head));
    }
}
