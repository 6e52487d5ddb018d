//! The referee of the CUDA table: types, numbers and prototypes against bindings that the crate `cudarc` generated from
//! NVIDIA's own headers. The compiler compares those of the newest CUDA; `versions` shows that all since 12.0 read alike.

#![allow(clippy::unwrap_used, reason = "a test program, helpers included")]

#[path = "../support/packages.rs"]
mod packages;
mod versions;

use core::ffi::c_void;
use core::mem::offset_of;
use std::collections::BTreeSet;

use cudarc::driver::sys as theirs;
use gpu_sys::cuda::{self, CudaApi, CudaError};

/// Our type is what the header declares.
#[diagnostic::on_unimplemented(message = "`{Self}` is not what CUDA's header declares: `{Theirs}`")]
trait Same<Theirs: ?Sized> {}

macro_rules! same {
    ($($ours:ty = $theirs:ty;)*) => { $(impl Same<$theirs> for $ours {})* };
}

same! {
    i8 = i8;
    u8 = u8;
    i32 = i32;
    u32 = u32;
    u64 = u64;
    usize = usize;
    c_void = c_void;
    () = ();
    CudaError = theirs::CUresult;
    u32 = theirs::CUmemorytype;
    u32 = theirs::CUpointer_attribute;
    u32 = theirs::CUdevice_attribute;
    u32 = theirs::CUstreamCaptureStatus;
    u32 = theirs::CUstreamCaptureMode;
    u32 = theirs::CUmemRangeHandleType;
    cuda::ContextOpaque = theirs::CUctx_st;
    cuda::StreamOpaque = theirs::CUstream_st;
    cuda::EventOpaque = theirs::CUevent_st;
    cuda::ModuleOpaque = theirs::CUmod_st;
    cuda::FunctionOpaque = theirs::CUfunc_st;
    cuda::GraphOpaque = theirs::CUgraph_st;
    cuda::Uuid = theirs::CUuuid;
    cuda::MemcpyAttributes = theirs::CUmemcpyAttributes_st;
}

impl<A: Same<B>, B> Same<*mut B> for *mut A {}
impl<A: Same<B>, B> Same<*const B> for *const A {}
impl<A: Same<B>, B> Same<Option<B>> for Option<A> {}

macro_rules! same_functions {
    ($(($($ours:ident)*) ($($theirs:ident)*);)*) => {
        $(
            impl<$($ours: Same<$theirs>, $theirs,)* R: Same<S>, S>
                Same<unsafe extern "C" fn($($theirs),*) -> S> for unsafe extern "C" fn($($ours),*) -> R {}
            // The bindings call the library's functions through functions of their own.
            impl<$($ours: Same<$theirs>, $theirs,)* R: Same<S>, S>
                Same<unsafe fn($($theirs),*) -> S> for unsafe extern "C" fn($($ours),*) -> R {}
        )*
    };
}

same_functions! {
    () ();
    (A) (B);
    (A A1) (B B1);
    (A A1 A2) (B B1 B2);
    (A A1 A2 A3) (B B1 B2 B3);
    (A A1 A2 A3 A4) (B B1 B2 B3 B4);
    (A A1 A2 A3 A4 A5 A6 A7) (B B1 B2 B3 B4 B5 B6 B7);
    (A A1 A2 A3 A4 A5 A6 A7 A8 A9 A10) (B B1 B2 B3 B4 B5 B6 B7 B8 B9 B10);
}

/// Holds when it compiles.
const fn same<Ours: Same<Theirs>, Theirs>(_ours: &Ours, _theirs: &Theirs) {}

macro_rules! theirs {
    ($name:ident $($arg:tt)*) => { &(theirs::$name as unsafe fn($($arg),*) -> _) };
}

macro_rules! table {
    (required { $($name:ident($($arg:tt),*);)* } optional { $($oname:ident($($oarg:tt),*);)* }) => {
        const REQUIRED: &[&str] = &[$(stringify!($name)),*];
        const OPTIONAL: &[&str] = &[$(stringify!($oname)),*];
        #[expect(dead_code, reason = "for the compiler to check")]
        fn table(api: CudaApi) {
            $(same(&api.$name, theirs!($name $($arg)*));)*
            $(same(&api.$oname, &Some(*theirs!($oname $($oarg)*)));)*
        }
    };
}

// An underscore stands for an argument; one too few or too many does not compile.
table! {
    required {
        cuInit(_);
        cuDriverGetVersion(_);
        cuGetErrorName(_, _);
        cuDeviceGetCount(_);
        cuDeviceGet(_, _);
        cuDeviceGetAttribute(_, _, _);
        cuDeviceGetName(_, _, _);
        cuDeviceGetPCIBusId(_, _, _);
        cuDeviceGetUuid_v2(_, _);
        cuDevicePrimaryCtxRetain(_, _);
        cuDevicePrimaryCtxGetState(_, _, _);
        cuCtxGetCurrent(_);
        cuCtxPushCurrent_v2(_);
        cuCtxPopCurrent_v2(_);
        cuCtxGetDevice(_);
        cuCtxSynchronize();
        cuPointerGetAttributes(_, _, _, _);
        cuMemAlloc_v2(_, _);
        cuMemFree_v2(_);
        cuMemHostAlloc(_, _, _);
        cuMemFreeHost(_);
        cuMemHostGetDevicePointer_v2(_, _, _);
        cuMemHostRegister_v2(_, _, _);
        cuMemHostUnregister(_);
        cuMemcpyHtoD_v2(_, _, _);
        cuMemcpyDtoH_v2(_, _, _);
        cuMemcpyHtoDAsync_v2(_, _, _, _);
        cuMemcpyDtoHAsync_v2(_, _, _, _);
        cuMemcpyDtoDAsync_v2(_, _, _, _);
        cuStreamCreate(_, _);
        cuStreamDestroy_v2(_);
        cuStreamSynchronize(_);
        cuStreamQuery(_);
        cuStreamGetFlags(_, _);
        cuStreamWaitEvent(_, _, _);
        cuStreamGetCtx(_, _);
        cuStreamIsCapturing(_, _);
        cuStreamBeginCapture_v2(_, _);
        cuStreamEndCapture(_, _);
        cuThreadExchangeStreamCaptureMode(_);
        cuStreamWaitValue64_v2(_, _, _, _);
        cuStreamWriteValue64_v2(_, _, _, _);
        cuEventCreate(_, _);
        cuEventRecord(_, _);
        cuEventDestroy_v2(_);
        cuLaunchHostFunc(_, _, _);
        cuModuleLoadData(_, _);
        cuModuleGetFunction(_, _, _);
        cuLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
    }
    optional {
        cuMemAllocManaged(_, _, _);
        cuMemAllocAsync(_, _, _);
        cuMemFreeAsync(_, _);
        cuMemcpyBatchAsync_v2(_, _, _, _, _, _, _, _);
        cuMemGetHandleForAddressRange(_, _, _, _, _);
    }
}

macro_rules! same_constants {
    ($($ours:ident = $($theirs:ident)::+;)*) => {
        const CONSTANTS: &[(&str, u32, &str)] =
            &[$((stringify!($ours), cuda::$ours as u32, last(&[$(stringify!($theirs)),+]))),*];
        const _: () = {
            $(assert!(
                cuda::$ours as u32 == theirs::$($theirs)::+ as u32,
                concat!(stringify!($ours), " has another value in CUDA"),
            );)*
        };
    };
}

const fn last(names: &[&'static str]) -> &'static str {
    names[names.len() - 1]
}

same_constants! {
    MEMORY_TYPE_HOST = CUmemorytype::CU_MEMORYTYPE_HOST;
    MEMORY_TYPE_DEVICE = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    MEMORY_TYPE_ARRAY = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    MEMORY_TYPE_UNIFIED = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    POINTER_ATTRIBUTE_MEMORY_TYPE = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    POINTER_ATTRIBUTE_BUFFER_ID = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
    POINTER_ATTRIBUTE_IS_MANAGED = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    POINTER_ATTRIBUTE_DEVICE_ORDINAL = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    POINTER_ATTRIBUTE_RANGE_START_ADDR = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    POINTER_ATTRIBUTE_RANGE_SIZE = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    ATTRIBUTE_UNIFIED_ADDRESSING = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS =
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
    ATTRIBUTE_DMA_BUF_SUPPORTED = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    MEM_RANGE_HANDLE_DMA_BUF_FD = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    STREAM_CAPTURE_STATUS_NONE = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    STREAM_CAPTURE_MODE_GLOBAL = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    STREAM_CAPTURE_MODE_RELAXED = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    STREAM_DEFAULT = CUstream_flags::CU_STREAM_DEFAULT;
    STREAM_NON_BLOCKING = CUstream_flags::CU_STREAM_NON_BLOCKING;
    STREAM_WAIT_VALUE_GEQ = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ;
    EVENT_DISABLE_TIMING = CUevent_flags::CU_EVENT_DISABLE_TIMING;
    MEM_HOST_REGISTER_PORTABLE = CU_MEMHOSTREGISTER_PORTABLE;
    MEM_HOST_REGISTER_DEVICE_MAP = CU_MEMHOSTREGISTER_DEVICEMAP;
    MEM_HOST_ALLOC_PORTABLE = CU_MEMHOSTALLOC_PORTABLE;
    MEM_HOST_ALLOC_DEVICE_MAP = CU_MEMHOSTALLOC_DEVICEMAP;
    MEMCPY_SRC_ACCESS_ORDER_STREAM =
        CUmemcpySrcAccessOrder_enum::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    MEM_ATTACH_GLOBAL = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
}

/// In the header casts that the bindings leave out, or ours alone.
const NOT_IN_THE_BINDINGS: &[&str] = &["STREAM_LEGACY", "STREAM_PER_THREAD", "OLDEST_DRIVER_VERSION"];

#[test]
fn no_function_is_left_out() {
    assert_eq!(CudaApi::REQUIRED, REQUIRED);
    assert_eq!(CudaApi::OPTIONAL, OPTIONAL);
}

#[test]
fn no_constant_is_left_out() {
    let source = include_str!("../../src/cuda.rs");
    let declared: BTreeSet<&str> =
        source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next()).collect();
    let compared = CONSTANTS.iter().map(|(ours, ..)| *ours);
    assert_eq!(declared, compared.chain(NOT_IN_THE_BINDINGS.iter().copied()).collect());
    assert!(declared.contains("MEMORY_TYPE_HOST"));
}

#[test]
fn a_uuid_is_sixteen_bytes() {
    type Theirs = theirs::CUuuid;
    fn fields(ours: cuda::Uuid, theirs: Theirs) {
        let (cuda::Uuid { bytes }, Theirs { bytes: other }) = (ours, theirs);
        assert_eq!(bytes, other);
    }
    fields(cuda::Uuid { bytes: [3; 16] }, Theirs { bytes: [3; 16] });
    assert_eq!(size_of::<cuda::Uuid>(), size_of::<Theirs>());
    assert_eq!(offset_of!(cuda::Uuid, bytes), offset_of!(Theirs, bytes));
}

#[test]
fn attributes_of_copies_are_laid_out_alike() {
    type Theirs = theirs::CUmemcpyAttributes;
    type Ours = cuda::MemcpyAttributes;
    assert_eq!(size_of::<Ours>(), size_of::<Theirs>());
    assert_eq!(offset_of!(Ours, src_access_order), offset_of!(Theirs, srcAccessOrder));
    assert_eq!(offset_of!(Ours, src_location), offset_of!(Theirs, srcLocHint));
    assert_eq!(offset_of!(Ours, dst_location), offset_of!(Theirs, dstLocHint));
    assert_eq!(offset_of!(Ours, flags), offset_of!(Theirs, flags));
    assert_eq!(size_of::<cuda::MemLocation>(), size_of::<theirs::CUmemLocation>());
    assert_eq!(offset_of!(cuda::MemLocation, kind), offset_of!(theirs::CUmemLocation, type_));
}

#[test]
fn numbers_are_as_wide_as_theirs() {
    assert_eq!(size_of::<CudaError>(), size_of::<theirs::CUresult>());
    assert_eq!(size_of::<cuda::DevicePtr>(), size_of::<theirs::CUdeviceptr>());
    assert_eq!(size_of::<cuda::CudaDevice>(), size_of::<theirs::CUdevice>());
    const { assert!(size_of::<cuda::DevicePtr>() == size_of::<usize>()) };
}
