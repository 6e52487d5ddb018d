//! The list of every function of the emulated runtime: its name, its number for counters and faults, its address.

use core::ffi::c_void;

/// Declares [`Function`] from the modules and the functions in them.
macro_rules! functions {
    ($($module:ident: $($name:ident),+;)+) => {
        /// One function of the emulated runtime, by its C name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        #[allow(non_camel_case_types, missing_docs, reason = "variants are the C functions of those names")]
        pub enum Function {
            $($($name,)+)+
        }

        impl Function {
            /// Every function.
            pub const ALL: &'static [Function] = &[$($(Function::$name,)+)+];

            /// The C name.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Function::$name => stringify!($name),)+)+
                }
            }

            /// The address, as `hipGetProcAddress` gives it.
            pub fn address(self) -> *mut c_void {
                match self {
                    $($(Function::$name => crate::$module::$name as *const () as *mut c_void,)+)+
                }
            }
        }
    };
}

functions! {
    device: hipInit, hipRuntimeGetVersion, hipDriverGetVersion, hipGetDeviceCount, hipGetDevice, hipSetDevice, hipDeviceGet, hipDeviceGetAttribute, hipDeviceGetName, hipDeviceGetPCIBusId, hipDeviceGetByPCIBusId, hipDeviceGetUuid, hipDeviceTotalMem, hipDeviceComputeCapability, hipDeviceSynchronize, hipGetDevicePropertiesR0600, hipDeviceCanAccessPeer, hipDeviceEnablePeerAccess, hipDeviceDisablePeerAccess, hipDeviceGetStreamPriorityRange;
    errors: hipGetErrorName, hipGetErrorString, hipDrvGetErrorName, hipDrvGetErrorString, hipGetLastError, hipPeekAtLastError, hipExtGetLastError;
    pointer: hipPointerGetAttributes, hipPointerGetAttribute, hipMemGetAddressRange;
    memory: hipMalloc, hipFree, hipMallocAsync, hipFreeAsync, hipMallocManaged, hipExtMallocWithFlags, hipMemGetInfo;
    virtual_memory: hipMemGetAllocationGranularity, hipMemCreate, hipMemRelease, hipMemAddressReserve, hipMemAddressFree, hipMemMap, hipMemUnmap, hipMemSetAccess, hipMemRetainAllocationHandle;
    ipc: hipIpcGetMemHandle, hipIpcOpenMemHandle, hipIpcCloseMemHandle;
    dma_buf: hipMemGetHandleForAddressRange;
    host: hipHostMalloc, hipHostAlloc, hipMallocHost, hipHostFree, hipFreeHost, hipHostRegister, hipHostUnregister, hipHostGetDevicePointer, hipHostGetFlags;
    copy: hipMemcpy, hipMemcpyAsync, hipMemcpyWithStream, hipMemcpyHtoD, hipMemcpyDtoH, hipMemcpyDtoD, hipMemcpyHtoDAsync, hipMemcpyDtoHAsync, hipMemcpyDtoDAsync, hipMemcpyPeer, hipMemcpyPeerAsync;
    memset: hipMemset, hipMemsetAsync, hipMemsetD8, hipMemsetD8Async, hipMemsetD32, hipMemsetD32Async;
    stream: hipStreamCreate, hipStreamCreateWithFlags, hipStreamCreateWithPriority, hipStreamDestroy, hipStreamSynchronize, hipStreamQuery, hipStreamWaitEvent, hipStreamGetFlags, hipStreamGetPriority, hipStreamGetDevice, hipLaunchHostFunc;
    wait_value: hipStreamWaitValue32, hipStreamWaitValue64, hipStreamWriteValue32, hipStreamWriteValue64;
    event: hipEventCreate, hipEventCreateWithFlags, hipEventRecord, hipEventQuery, hipEventSynchronize, hipEventElapsedTime, hipEventDestroy;
    capture: hipStreamBeginCapture, hipStreamEndCapture, hipStreamIsCapturing, hipThreadExchangeStreamCaptureMode, hipGraphDestroy;
    module: hipModuleLoadData, hipModuleUnload, hipModuleGetFunction, hipModuleLaunchKernel;
    proc_address: hipGetProcAddress;
    amd_file: hipAmdFileRead, hipAmdFileWrite;
    rtc: hiprtcVersion, hiprtcGetErrorString, hiprtcCreateProgram, hiprtcCompileProgram, hiprtcGetCodeSize, hiprtcGetCode, hiprtcGetProgramLogSize, hiprtcGetProgramLog, hiprtcDestroyProgram;
}

impl Function {
    /// The function of that C name.
    pub fn by_name(name: &str) -> Option<Function> {
        Function::ALL.iter().copied().find(|function| function.name() == name)
    }

    /// Whether it belongs to the runtime compiler, which is a library of its own.
    pub fn is_rtc(self) -> bool {
        self.name().starts_with("hiprtc")
    }
}
