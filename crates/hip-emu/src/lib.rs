//! An emulated GPU: HIP in plain memory, filling the function table of `gpu-sys`, for machines and tests without a GPU.
//!
//! It is strict rather than forgiving. Device memory faults when the CPU touches it, ranges must lie within their
//! allocation, streams run asynchronously on shared hardware queues, allocation waits for held streams, HIP called from a
//! host function ends the process. What it assumes of HIP, and from where, and what it does not model is written down in
//! `docs/devices.md`.
//!
//! [`api`] is the table. The C names are given by another crate, `hip-emu-so`: a `no_mangle` function here would be
//! exported by every library that has the emulation built in. There is one emulated machine in a process, as there is
//! one runtime; it is made at the first call, from the environment or by [`init`], and never unmade.
//!
//! Environment ([`options::VARIABLES`]):
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `HIP_EMU_DEVICES` | 1 | number of GPUs, 0 to 32 |
//! | `HIP_EMU_MEMORY` | 4G | memory of each GPU in bytes, or with K, M, G (powers of 1024); address space only until it is allocated |
//! | `HIP_EMU_QUEUES` | 4 | hardware queues of each GPU that its streams share, 1 to 64 |
//! | `HIP_EMU_QUEUE_LIMIT` | 256 | commands that a hardware queue holds, 1 to 1000000; while it is full, who submits to it waits |
//! | `HIP_EMU_VERSION` | 7.14.60850 | version that the runtime reports: major.minor or major.minor.patch |
//! | `HIP_EMU_HIDE` | | functions this runtime does not have, separated by commas: absent from the table and for hipGetProcAddress |
//! | `HIP_EMU_FAULT` | | faults, separated by commas: FUNCTION:WHEN:WHAT (see below) |
//! | `HIP_EMU_LINK` | | timed link, GB/s[,latency in us]: copies between pinned and device memory take that long and move no bytes |
//! | `HIP_EMU_KNOWN_FS` | | all: hipAmdFileRead and hipAmdFileWrite take files of every file system, not only ext4 and xfs |
//! | `HIP_EMU_INTEGRATED` | | all: the GPUs share the processor's memory, which reaches what they allocate |
//! | `HIP_EMU_STREAM_CREATE` | | wait: creating a stream waits for held streams too, as allocating does |
//!
//! A fault's WHEN is `3` (the third call), `3+` (from the third on) or `*`; its WHAT is the name or number of a HIP error,
//! `status=ERRNO` or `short=BYTES` (`hipAmdFileRead` and `hipAmdFileWrite`), or `delay=MICROSECONDS`. Tests of one process
//! use [`fault`] instead.

#![allow(non_snake_case, reason = "the functions bear the names of the C functions they stand for")]

pub mod amd_file;
mod arena;
mod call;
pub mod capture;
pub mod copy;
pub mod cuda;
pub mod device;
pub mod dma_buf;
pub mod errors;
pub mod event;
pub mod fault;
pub mod function;
mod handles;
pub mod host;
pub mod ipc;
mod link;
mod lock;
mod looking;
pub mod memory;
pub mod memset;
pub mod module;
mod op;
pub mod options;
pub mod pointer;
pub mod proc_address;
pub mod properties;
mod queue;
mod ranges;
pub mod rtc;
mod state;
pub mod stream;
mod streaming;
mod sys;
mod thread;
pub mod types;
pub mod virtual_memory;
pub mod wait_value;

use std::sync::OnceLock;

use gpu_sys::hip::HipApi;

pub use device::is_timed_link;
pub use options::Options;
pub use state::init;

/// Fills the table: the compiler demands each function that `gpu-sys` declares.
macro_rules! table {
    (
        required { $($required:ident in $required_module:ident;)+ }
        optional { $($optional:ident in $optional_module:ident;)+ }
    ) => {
        const API: HipApi = HipApi {
            $($required: $required_module::$required,)+
            $($optional: Some($optional_module::$optional),)+
        };

        /// The table without the optional functions of these names.
        fn without(mut api: HipApi, hidden: &[String]) -> HipApi {
            $(if hidden.iter().any(|name| name == stringify!($optional)) {
                api.$optional = None;
            })+
            api
        }
    };
}

table! {
    required {
        hipInit in device;
        hipRuntimeGetVersion in device;
        hipGetDeviceCount in device;
        hipGetDevice in device;
        hipSetDevice in device;
        hipDeviceGetAttribute in device;
        hipDeviceGetName in device;
        hipDeviceGetPCIBusId in device;
        hipDeviceGetUuid in device;
        hipDeviceSynchronize in device;
        hipGetErrorName in errors;
        hipGetErrorString in errors;
        hipGetLastError in errors;
        hipPointerGetAttributes in pointer;
        hipPointerGetAttribute in pointer;
        hipMemGetAddressRange in pointer;
        hipMalloc in memory;
        hipFree in memory;
        hipHostMalloc in host;
        hipHostFree in host;
        hipHostRegister in host;
        hipHostUnregister in host;
        hipHostGetDevicePointer in host;
        hipMemcpy in copy;
        hipMemcpyAsync in copy;
        hipMemset in memset;
        hipStreamCreateWithFlags in stream;
        hipStreamDestroy in stream;
        hipStreamSynchronize in stream;
        hipStreamQuery in stream;
        hipStreamWaitEvent in stream;
        hipStreamGetFlags in stream;
        hipEventCreateWithFlags in event;
        hipEventRecord in event;
        hipEventQuery in event;
        hipEventSynchronize in event;
        hipEventDestroy in event;
        hipLaunchHostFunc in stream;
    }
    optional {
        hipGetProcAddress in proc_address;
        hipStreamGetDevice in stream;
        hipStreamIsCapturing in capture;
        hipThreadExchangeStreamCaptureMode in capture;
        hipStreamWaitValue64 in wait_value;
        hipStreamWriteValue64 in wait_value;
        hipExtMallocWithFlags in memory;
        hipMallocManaged in memory;
        hipMemRetainAllocationHandle in virtual_memory;
        hipMemRelease in virtual_memory;
        hipModuleLoadData in module;
        hipModuleUnload in module;
        hipModuleGetFunction in module;
        hipModuleLaunchKernel in module;
    }
}

/// Whether the emulated machine was made by a process of which this one is a fork: it does not serve here.
pub fn is_of_parent() -> bool {
    state::is_of_parent()
}

/// The emulated runtime as a function table, the same for the life of the process. Optional functions that the options
/// hide are absent. The emulated machine is made here if it is not yet: [`init`] comes before or not at all.
pub fn api() -> &'static HipApi {
    static SHOWN: OnceLock<HipApi> = OnceLock::new();
    SHOWN.get_or_init(|| match state::get() {
        Ok(state) => without(API, &state.options.hide),
        Err(_) => API,
    })
}
