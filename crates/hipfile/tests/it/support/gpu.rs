//! The GPU that the suite runs on, and what tests themselves ask of it: `HIPFILE_TEST_DEVICE` is `emulated` (as by default),
//! `emulated-cuda`, or `cuda` for the machine's own. What only some of them can do is skipped aloud on the others.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use gpu_sys::cuda::{self, CudaApi, CudaError};
use gpu_sys::hip::{self, HipApi, HipError};
use hipfile::{DevPtr, DeviceChoice};

/// What the tests call.
enum Api {
    Hip(&'static HipApi),
    Cuda(&'static CudaApi),
}

/// Which GPU runs the suite.
pub(crate) fn choice() -> DeviceChoice {
    match std::env::var("HIPFILE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("emulated") => DeviceChoice::Emulated,
        Ok("emulated-cuda") => DeviceChoice::EmulatedCuda,
        Ok("cuda") => DeviceChoice::Cuda,
        Ok(other) => panic!("HIPFILE_TEST_DEVICE is {other}: emulated, emulated-cuda or cuda"),
    }
}

/// Whether this is the emulated GPU under HIP's functions, which the test needs; says that it is skipped elsewhere.
pub(crate) fn is_emulated_hip(why: &str) -> bool {
    let can = choice() == DeviceChoice::Emulated;
    if !can {
        let thread = std::thread::current();
        super::skip(thread.name().unwrap_or("a case"), &format!("{why} ({:?})", choice()));
    }
    can
}

fn api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    let api = API.get_or_init(|| match choice() {
        DeviceChoice::EmulatedCuda => Api::Cuda(hip_emu::cuda::api()),
        DeviceChoice::Cuda => {
            // Of which there is one for as long as the process lives.
            Api::Cuda(Box::leak(Box::new(gpu_sys::cuda_load::load(false).expect("a CUDA driver").api)))
        }
        _ => Api::Hip(hip_emu::api()),
    });
    if let Api::Cuda(cuda) = api {
        use_first_gpu(cuda);
    }
    api
}

fn ok(code: HipError) {
    assert_eq!(code, HipError::SUCCESS);
}

fn done(code: CudaError) {
    assert_eq!(code, CudaError::SUCCESS);
}

/// As CUDA's runtime does it: a thread without a context gets the first GPU's primary one.
fn use_first_gpu(cuda: &CudaApi) {
    // SAFETY: a plain call, allowed any number of times.
    done(unsafe { (cuda.cuInit)(0) });
    let mut context = null_mut();
    // SAFETY: `context` is writable.
    done(unsafe { (cuda.cuCtxGetCurrent)(&raw mut context) });
    if context.is_null() {
        // SAFETY: `context` is writable; it is never released.
        done(unsafe { (cuda.cuDevicePrimaryCtxRetain)(&raw mut context, 0) });
        // SAFETY: the context was just retained.
        done(unsafe { (cuda.cuCtxPushCurrent_v2)(context) });
    }
}

fn hip_stream(stream: usize) -> hip::StreamPtr {
    std::ptr::with_exposed_provenance_mut(stream)
}

fn cuda_stream(stream: usize) -> cuda::StreamPtr {
    std::ptr::with_exposed_provenance_mut(stream)
}

pub(crate) fn create_stream(flags: u32) -> usize {
    match api() {
        Api::Hip(hip) => {
            let mut stream = null_mut();
            // SAFETY: `stream` is writable.
            ok(unsafe { (hip.hipStreamCreateWithFlags)(&raw mut stream, flags) });
            stream.expose_provenance()
        }
        Api::Cuda(cuda) => {
            let mut stream = null_mut();
            // SAFETY: `stream` is writable; both flags are the same in CUDA.
            done(unsafe { (cuda.cuStreamCreate)(&raw mut stream, flags) });
            stream.expose_provenance()
        }
    }
}

pub(crate) fn destroy_stream(stream: usize) {
    match api() {
        // SAFETY: the handle is not used again.
        Api::Hip(hip) => ok(unsafe { (hip.hipStreamDestroy)(hip_stream(stream)) }),
        // SAFETY: as above.
        Api::Cuda(cuda) => done(unsafe { (cuda.cuStreamDestroy_v2)(cuda_stream(stream)) }),
    }
}

pub(crate) fn wait_for_stream(stream: usize) {
    match api() {
        // SAFETY: a plain call.
        Api::Hip(hip) => ok(unsafe { (hip.hipStreamSynchronize)(hip_stream(stream)) }),
        // SAFETY: a plain call.
        Api::Cuda(cuda) => done(unsafe { (cuda.cuStreamSynchronize)(cuda_stream(stream)) }),
    }
}

pub(crate) fn stream_is_idle(stream: usize) -> bool {
    match api() {
        // SAFETY: a plain call.
        Api::Hip(hip) => unsafe { (hip.hipStreamQuery)(hip_stream(stream)) == HipError::SUCCESS },
        // SAFETY: a plain call.
        Api::Cuda(cuda) => unsafe { (cuda.cuStreamQuery)(cuda_stream(stream)) == CudaError::SUCCESS },
    }
}

/// Holds a stream until the word is set.
pub(crate) fn hold_stream(stream: usize, word: &'static AtomicU64) {
    match api() {
        Api::Hip(hip) => {
            let (wait, at) = (hip.hipStreamWaitValue64.unwrap(), word.as_ptr().cast());
            // SAFETY: the word is pinned memory that lives as long as the process.
            ok(unsafe { wait(hip_stream(stream), at, 1, hip::STREAM_WAIT_VALUE_GTE, u64::MAX) });
        }
        Api::Cuda(cuda) => {
            let (wait, at) = (cuda.cuStreamWaitValue64_v2, word.as_ptr().addr() as u64);
            // SAFETY: as above; under unified addressing it has the same address for the GPU.
            done(unsafe { wait(cuda_stream(stream), at, 1, cuda::STREAM_WAIT_VALUE_GEQ) });
        }
    }
}

/// Copies between device addresses, in stream order: a stand-in for a kernel of the caller's.
pub(crate) fn copy_on_stream(stream: usize, to: DevPtr, from: DevPtr, len: usize) {
    match api() {
        Api::Hip(hip) => {
            let (to, from) = (std::ptr::without_provenance_mut(to.0), std::ptr::without_provenance(from.0));
            let kind = hip::MEMCPY_DEVICE_TO_DEVICE;
            // SAFETY: both are buffers of the test.
            ok(unsafe { (hip.hipMemcpyAsync)(to, from, len, kind, hip_stream(stream)) });
        }
        Api::Cuda(cuda) => {
            let (to, from) = (to.0 as u64, from.0 as u64);
            // SAFETY: both are buffers of the test.
            done(unsafe { (cuda.cuMemcpyDtoDAsync_v2)(to, from, len, cuda_stream(stream)) });
        }
    }
}

/// A word that streams may wait for; never freed.
pub(crate) fn word() -> &'static AtomicU64 {
    let mut at = null_mut();
    match api() {
        // SAFETY: `at` is writable.
        Api::Hip(hip) => ok(unsafe { (hip.hipHostMalloc)(&raw mut at, 64, hip::HOST_MALLOC_MAPPED) }),
        Api::Cuda(cuda) => {
            let flags = cuda::MEM_HOST_ALLOC_DEVICE_MAP | cuda::MEM_HOST_ALLOC_PORTABLE;
            // SAFETY: `at` is writable.
            done(unsafe { (cuda.cuMemHostAlloc)(&raw mut at, 64, flags) });
        }
    }
    let word: *mut u64 = at.cast();
    // SAFETY: just allocated.
    unsafe { word.write(0) };
    // SAFETY: aligned, never freed, and used as an atomic only from here on.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Begins to capture a stream; 0 is the global mode, 2 the relaxed one, in HIP and CUDA alike.
pub(crate) fn begin_capture(stream: usize, mode: u32) {
    match api() {
        // SAFETY: a stream of the test.
        Api::Hip(_) => ok(unsafe { hip_emu::capture::hipStreamBeginCapture(hip_stream(stream), mode) }),
        // SAFETY: a stream of the test.
        Api::Cuda(cuda) => done(unsafe { (cuda.cuStreamBeginCapture_v2)(cuda_stream(stream), mode) }),
    }
}

/// Ends a capture; whether nothing has voided it.
pub(crate) fn end_capture(stream: usize) -> bool {
    match api() {
        Api::Hip(_) => {
            let mut graph = null_mut();
            // SAFETY: `graph` is writable.
            let ended = unsafe { hip_emu::capture::hipStreamEndCapture(hip_stream(stream), &raw mut graph) };
            ended == HipError::SUCCESS
        }
        Api::Cuda(cuda) => {
            let mut graph = null_mut();
            // SAFETY: `graph` is writable.
            let ended = unsafe { (cuda.cuStreamEndCapture)(cuda_stream(stream), &raw mut graph) };
            ended == CudaError::SUCCESS
        }
    }
}
