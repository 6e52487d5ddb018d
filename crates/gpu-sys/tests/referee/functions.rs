//! Signatures: every function of the table and of the emulated runtime, argument by argument, in the compiler's
//! eyes. An underscore stands for an argument; one too few or too many does not compile.

use std::collections::BTreeSet;

use gpu_sys::hip::HipApi;
use hip_emu::function::Function;

use crate::same::same;

macro_rules! theirs {
    ($name:ident $($arg:tt)*) => {
        &(cubecl_hip_sys::$name as unsafe extern "C" fn($($arg),*) -> _)
    };
}

macro_rules! table {
    (required { $($name:ident($($arg:tt),*);)* } optional { $($oname:ident($($oarg:tt),*);)* }) => {
        const REQUIRED: &[&str] = &[$(stringify!($name)),*];
        const OPTIONAL: &[&str] = &[$(stringify!($oname)),*];
        #[expect(dead_code, reason = "for the compiler to check")]
        fn table(api: HipApi) {
            $(same(&api.$name, theirs!($name $($arg)*));)*
            $(same(&api.$oname, &Some(*theirs!($oname $($oarg)*)));)*
        }
    };
}

macro_rules! emulated {
    ($($module:ident { $($name:ident($($arg:tt),*);)* })*) => {
        const EMULATED: &[&str] = &[$($(stringify!($name),)*)*];
        #[expect(dead_code, reason = "for the compiler to check")]
        fn emulated() {
            $($(
                same(
                    &(hip_emu::$module::$name as unsafe extern "C" fn($($arg),*) -> _),
                    theirs!($name $($arg)*),
                );
            )*)*
        }
    };
}

table! {
    required {
        hipInit(_);
        hipRuntimeGetVersion(_);
        hipGetDeviceCount(_);
        hipGetDevice(_);
        hipSetDevice(_);
        hipDeviceGetAttribute(_, _, _);
        hipDeviceGetName(_, _, _);
        hipDeviceGetPCIBusId(_, _, _);
        hipDeviceGetUuid(_, _);
        hipDeviceSynchronize();
        hipGetErrorName(_);
        hipGetErrorString(_);
        hipGetLastError();
        hipPointerGetAttributes(_, _);
        hipPointerGetAttribute(_, _, _);
        hipMemGetAddressRange(_, _, _);
        hipMalloc(_, _);
        hipFree(_);
        hipHostMalloc(_, _, _);
        hipHostFree(_);
        hipHostRegister(_, _, _);
        hipHostUnregister(_);
        hipHostGetDevicePointer(_, _, _);
        hipMemcpy(_, _, _, _);
        hipMemcpyAsync(_, _, _, _, _);
        hipMemset(_, _, _);
        hipStreamCreateWithFlags(_, _);
        hipStreamDestroy(_);
        hipStreamSynchronize(_);
        hipStreamQuery(_);
        hipStreamWaitEvent(_, _, _);
        hipStreamGetFlags(_, _);
        hipEventCreateWithFlags(_, _);
        hipEventRecord(_, _);
        hipEventQuery(_);
        hipEventSynchronize(_);
        hipEventDestroy(_);
        hipLaunchHostFunc(_, _, _);
    }
    optional {
        hipGetProcAddress(_, _, _, _, _);
        hipStreamGetDevice(_, _);
        hipStreamIsCapturing(_, _);
        hipThreadExchangeStreamCaptureMode(_);
        hipStreamWaitValue64(_, _, _, _, _);
        hipStreamWriteValue64(_, _, _, _);
        hipExtMallocWithFlags(_, _, _);
        hipMallocManaged(_, _, _);
        hipMemRetainAllocationHandle(_, _);
        hipMemRelease(_);
        hipModuleLoadData(_, _);
        hipModuleUnload(_);
        hipModuleGetFunction(_, _, _);
        hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
    }
}

// Those that are not in the table: the table holds the others with the types compared above.
emulated! {
    device {
        hipDriverGetVersion(_);
        hipDeviceGet(_, _);
        hipDeviceGetByPCIBusId(_, _);
        hipDeviceTotalMem(_, _);
        hipDeviceComputeCapability(_, _, _);
        hipGetDevicePropertiesR0600(_, _);
        hipDeviceCanAccessPeer(_, _, _);
        hipDeviceEnablePeerAccess(_, _);
        hipDeviceDisablePeerAccess(_);
        hipDeviceGetStreamPriorityRange(_, _);
    }
    errors {
        hipDrvGetErrorName(_, _);
        hipDrvGetErrorString(_, _);
        hipPeekAtLastError();
        hipExtGetLastError();
    }
    memory {
        hipMallocAsync(_, _, _);
        hipFreeAsync(_, _);
        hipMemGetInfo(_, _);
    }
    virtual_memory {
        hipMemGetAllocationGranularity(_, _, _);
        hipMemCreate(_, _, _, _);
        hipMemAddressReserve(_, _, _, _, _);
        hipMemAddressFree(_, _);
        hipMemMap(_, _, _, _, _);
        hipMemUnmap(_, _);
        hipMemSetAccess(_, _, _, _);
    }
    ipc {
        hipIpcGetMemHandle(_, _);
        hipIpcOpenMemHandle(_, _, _);
        hipIpcCloseMemHandle(_);
    }
    host {
        hipHostAlloc(_, _, _);
        hipMallocHost(_, _);
        hipFreeHost(_);
        hipHostGetFlags(_, _);
    }
    copy {
        hipMemcpyWithStream(_, _, _, _, _);
        hipMemcpyHtoD(_, _, _);
        hipMemcpyDtoH(_, _, _);
        hipMemcpyDtoD(_, _, _);
        hipMemcpyHtoDAsync(_, _, _, _);
        hipMemcpyDtoHAsync(_, _, _, _);
        hipMemcpyDtoDAsync(_, _, _, _);
        hipMemcpyPeer(_, _, _, _, _);
        hipMemcpyPeerAsync(_, _, _, _, _, _);
    }
    memset {
        hipMemsetAsync(_, _, _, _);
        hipMemsetD8(_, _, _);
        hipMemsetD8Async(_, _, _, _);
        hipMemsetD32(_, _, _);
        hipMemsetD32Async(_, _, _, _);
    }
    stream {
        hipStreamCreate(_);
        hipStreamCreateWithPriority(_, _, _);
        hipStreamGetPriority(_, _);
    }
    wait_value {
        hipStreamWaitValue32(_, _, _, _, _);
        hipStreamWriteValue32(_, _, _, _);
    }
    event {
        hipEventCreate(_);
        hipEventElapsedTime(_, _, _);
    }
    capture {
        hipStreamBeginCapture(_, _);
        hipStreamEndCapture(_, _);
        hipGraphDestroy(_);
    }
    rtc {
        hiprtcVersion(_, _);
        hiprtcGetErrorString(_);
        hiprtcCreateProgram(_, _, _, _, _, _);
        hiprtcCompileProgram(_, _, _);
        hiprtcGetCodeSize(_, _);
        hiprtcGetCode(_, _);
        hiprtcGetProgramLogSize(_, _);
        hiprtcGetProgramLog(_, _);
        hiprtcDestroyProgram(_);
    }
}

/// The first two are in no header of ROCm, and `tests/it/amd_file.rs` passes their handle to C; the last is in those of 6.4 and
/// later only.
pub(crate) const UNDECLARED: &[&str] =
    &["hipAmdFileRead", "hipAmdFileWrite", "hipMemGetHandleForAddressRange"];

#[test]
fn no_function_of_the_table_is_left_out() {
    assert_eq!(HipApi::REQUIRED, REQUIRED);
    assert_eq!(HipApi::OPTIONAL, OPTIONAL);
}

#[test]
fn no_function_of_the_emulation_is_left_out() {
    let all: BTreeSet<&str> = Function::ALL.iter().map(|function| function.name()).collect();
    let compared = [REQUIRED, OPTIONAL, EMULATED, UNDECLARED].concat();
    assert_eq!(all, compared.into_iter().collect());
}
