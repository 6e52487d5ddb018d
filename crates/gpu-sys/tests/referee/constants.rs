//! Numbers: every constant and error code of ours, each equal to HIP's by the compiler's word.

use std::collections::BTreeSet;

use gpu_sys::hip::HipError;

macro_rules! same_constants {
    ($($ours:ident = $theirs:ident;)*) => {
        const COMPARED: &[(&str, &str)] = &[$((stringify!($ours), stringify!($theirs))),*];
        const _: () = {
            use gpu_sys::hip::*;
            use hip_emu::types::*;
            $(assert!($ours == cubecl_hip_sys::$theirs, concat!(stringify!($ours), " has another value in HIP"));)*
        };
    };
}

macro_rules! same_errors {
    ($($ours:ident = $theirs:ident;)*) => {
        const COMPARED_ERRORS: &[(HipError, &str)] = &[$((HipError::$ours, stringify!($theirs))),*];
        const _: () = {
            $(
                assert!(
                    HipError::$ours.0 == cubecl_hip_sys::$theirs,
                    concat!(stringify!($ours), " has another value in HIP"),
                );
            )*
        };
    };
}

same_constants! {
    MEMCPY_HOST_TO_HOST = hipMemcpyKind_hipMemcpyHostToHost;
    MEMCPY_HOST_TO_DEVICE = hipMemcpyKind_hipMemcpyHostToDevice;
    MEMCPY_DEVICE_TO_HOST = hipMemcpyKind_hipMemcpyDeviceToHost;
    MEMCPY_DEVICE_TO_DEVICE = hipMemcpyKind_hipMemcpyDeviceToDevice;
    MEMCPY_DEFAULT = hipMemcpyKind_hipMemcpyDefault;
    MEMORY_TYPE_UNREGISTERED = hipMemoryType_hipMemoryTypeUnregistered;
    MEMORY_TYPE_HOST = hipMemoryType_hipMemoryTypeHost;
    MEMORY_TYPE_DEVICE = hipMemoryType_hipMemoryTypeDevice;
    MEMORY_TYPE_MANAGED = hipMemoryType_hipMemoryTypeManaged;
    MEMORY_TYPE_ARRAY = hipMemoryType_hipMemoryTypeArray;
    MEMORY_TYPE_UNIFIED = hipMemoryType_hipMemoryTypeUnified;
    ATTRIBUTE_INTEGRATED = hipDeviceAttribute_t_hipDeviceAttributeIntegrated;
    ATTRIBUTE_PCI_BUS_ID = hipDeviceAttribute_t_hipDeviceAttributePciBusId;
    ATTRIBUTE_PCI_DEVICE_ID = hipDeviceAttribute_t_hipDeviceAttributePciDeviceId;
    ATTRIBUTE_PCI_DOMAIN_ID = hipDeviceAttribute_t_hipDeviceAttributePciDomainID;
    ATTRIBUTE_HOST_REGISTER_SUPPORTED = hipDeviceAttribute_t_hipDeviceAttributeHostRegisterSupported;
    ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE = hipDeviceAttribute_t_hipDeviceAttributeCanUseStreamWaitValue;
    POINTER_ATTRIBUTE_BUFFER_ID = hipPointer_attribute_HIP_POINTER_ATTRIBUTE_BUFFER_ID;
    STREAM_CAPTURE_STATUS_NONE = hipStreamCaptureStatus_hipStreamCaptureStatusNone;
    STREAM_CAPTURE_STATUS_ACTIVE = hipStreamCaptureStatus_hipStreamCaptureStatusActive;
    STREAM_CAPTURE_STATUS_INVALIDATED = hipStreamCaptureStatus_hipStreamCaptureStatusInvalidated;
    PROC_ADDRESS_SUCCESS = hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_SUCCESS;
    PROC_ADDRESS_NOT_FOUND = hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    PROC_ADDRESS_VERSION_NOT_SUFFICIENT =
        hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    STREAM_DEFAULT = hipStreamDefault;
    STREAM_NON_BLOCKING = hipStreamNonBlocking;
    EVENT_DISABLE_TIMING = hipEventDisableTiming;
    HOST_REGISTER_PORTABLE = hipHostRegisterPortable;
    HOST_REGISTER_MAPPED = hipHostRegisterMapped;
    HOST_MALLOC_PORTABLE = hipHostMallocPortable;
    HOST_MALLOC_MAPPED = hipHostMallocMapped;
    MALLOC_SIGNAL_MEMORY = hipMallocSignalMemory;
    STREAM_WAIT_VALUE_GTE = hipStreamWaitValueGte;
    STREAM_WAIT_VALUE_EQ = hipStreamWaitValueEq;
    STREAM_WAIT_VALUE_AND = hipStreamWaitValueAnd;
    STREAM_WAIT_VALUE_NOR = hipStreamWaitValueNor;
    STREAM_CAPTURE_MODE_GLOBAL = hipStreamCaptureMode_hipStreamCaptureModeGlobal;
    STREAM_CAPTURE_MODE_THREAD_LOCAL = hipStreamCaptureMode_hipStreamCaptureModeThreadLocal;
    STREAM_CAPTURE_MODE_RELAXED = hipStreamCaptureMode_hipStreamCaptureModeRelaxed;
    MEM_ALLOCATION_PINNED = hipMemAllocationType_hipMemAllocationTypePinned;
    MEM_HANDLE_NONE = hipMemAllocationHandleType_hipMemHandleTypeNone;
    MEM_HANDLE_POSIX_FD = hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor;
    MEM_GRANULARITY_MINIMUM = hipMemAllocationGranularity_flags_hipMemAllocationGranularityMinimum;
    MEM_GRANULARITY_RECOMMENDED = hipMemAllocationGranularity_flags_hipMemAllocationGranularityRecommended;
    MEM_LOCATION_DEVICE = hipMemLocationType_hipMemLocationTypeDevice;
    MEM_ACCESS_NONE = hipMemAccessFlags_hipMemAccessFlagsProtNone;
    MEM_ACCESS_READ = hipMemAccessFlags_hipMemAccessFlagsProtRead;
    MEM_ACCESS_READ_WRITE = hipMemAccessFlags_hipMemAccessFlagsProtReadWrite;
    EVENT_BLOCKING_SYNC = hipEventBlockingSync;
    EVENT_INTERPROCESS = hipEventInterprocess;
    EVENT_DISABLE_SYSTEM_FENCE = hipEventDisableSystemFence;
    EVENT_RELEASE_TO_DEVICE = hipEventReleaseToDevice;
    EVENT_RELEASE_TO_SYSTEM = hipEventReleaseToSystem;
}

/// Ours alone, or in the headers a cast that the bindings leave out.
const NOT_IN_THE_BINDINGS: &[&str] = &[
    "STREAM_LEGACY",
    "STREAM_PER_THREAD",
    "OLDEST_RUNTIME_VERSION",
    "EMULATION_MARKER",
    // Only in the newer ones: that of a function of ROCm 6.4.
    "RANGE_HANDLE_DMA_BUF_FD",
];

same_errors! {
    SUCCESS = hipError_t_hipSuccess;
    INVALID_VALUE = hipError_t_hipErrorInvalidValue;
    OUT_OF_MEMORY = hipError_t_hipErrorOutOfMemory;
    NOT_INITIALIZED = hipError_t_hipErrorNotInitialized;
    DEINITIALIZED = hipError_t_hipErrorDeinitialized;
    INVALID_CONFIGURATION = hipError_t_hipErrorInvalidConfiguration;
    INVALID_SYMBOL = hipError_t_hipErrorInvalidSymbol;
    INVALID_DEVICE_POINTER = hipError_t_hipErrorInvalidDevicePointer;
    INVALID_MEMCPY_DIRECTION = hipError_t_hipErrorInvalidMemcpyDirection;
    INSUFFICIENT_DRIVER = hipError_t_hipErrorInsufficientDriver;
    NO_DEVICE = hipError_t_hipErrorNoDevice;
    INVALID_DEVICE = hipError_t_hipErrorInvalidDevice;
    INVALID_IMAGE = hipError_t_hipErrorInvalidImage;
    INVALID_CONTEXT = hipError_t_hipErrorInvalidContext;
    MAP_FAILED = hipError_t_hipErrorMapFailed;
    NO_BINARY_FOR_GPU = hipError_t_hipErrorNoBinaryForGpu;
    SHARED_OBJECT_INIT_FAILED = hipError_t_hipErrorSharedObjectInitFailed;
    OPERATING_SYSTEM = hipError_t_hipErrorOperatingSystem;
    INVALID_HANDLE = hipError_t_hipErrorInvalidHandle;
    ILLEGAL_STATE = hipError_t_hipErrorIllegalState;
    NOT_FOUND = hipError_t_hipErrorNotFound;
    NOT_READY = hipError_t_hipErrorNotReady;
    ILLEGAL_ADDRESS = hipError_t_hipErrorIllegalAddress;
    PEER_ACCESS_ALREADY_ENABLED = hipError_t_hipErrorPeerAccessAlreadyEnabled;
    PEER_ACCESS_NOT_ENABLED = hipError_t_hipErrorPeerAccessNotEnabled;
    CONTEXT_IS_DESTROYED = hipError_t_hipErrorContextIsDestroyed;
    HOST_MEMORY_ALREADY_REGISTERED = hipError_t_hipErrorHostMemoryAlreadyRegistered;
    HOST_MEMORY_NOT_REGISTERED = hipError_t_hipErrorHostMemoryNotRegistered;
    LAUNCH_FAILURE = hipError_t_hipErrorLaunchFailure;
    NOT_SUPPORTED = hipError_t_hipErrorNotSupported;
    STREAM_CAPTURE_UNSUPPORTED = hipError_t_hipErrorStreamCaptureUnsupported;
    STREAM_CAPTURE_INVALIDATED = hipError_t_hipErrorStreamCaptureInvalidated;
    STREAM_CAPTURE_UNMATCHED = hipError_t_hipErrorStreamCaptureUnmatched;
    STREAM_CAPTURE_ISOLATION = hipError_t_hipErrorStreamCaptureIsolation;
    STREAM_CAPTURE_IMPLICIT = hipError_t_hipErrorStreamCaptureImplicit;
    CAPTURED_EVENT = hipError_t_hipErrorCapturedEvent;
    STREAM_CAPTURE_WRONG_THREAD = hipError_t_hipErrorStreamCaptureWrongThread;
    UNKNOWN = hipError_t_hipErrorUnknown;
}

/// The names of the bindings' constants that are compared here.
pub(crate) fn their_names() -> impl Iterator<Item = &'static str> {
    COMPARED.iter().map(|(_, theirs)| *theirs).chain(COMPARED_ERRORS.iter().map(|(_, theirs)| *theirs))
}

#[test]
fn no_constant_is_left_out() {
    let sources = [include_str!("../../src/hip.rs"), include_str!("../../../hip-emu/src/types.rs")];
    let declared: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .collect();
    let compared = COMPARED.iter().map(|(ours, _)| *ours);
    assert_eq!(declared, compared.chain(NOT_IN_THE_BINDINGS.iter().copied()).collect());
    assert!(declared.contains("MEMCPY_DEFAULT"));
}

#[test]
fn every_error_has_the_name_that_hip_gives_it() {
    let named: BTreeSet<(u32, &str)> = HipError::NAMED.iter().map(|(code, name)| (code.0, *name)).collect();
    let compared =
        COMPARED_ERRORS.iter().map(|(code, name)| (code.0, name.strip_prefix("hipError_t_").unwrap()));
    assert_eq!(named, compared.collect());
    assert_eq!(named.len(), HipError::NAMED.len());
}
