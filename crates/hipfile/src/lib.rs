//! Moves data between files and GPU memory: on AMD GPUs, NVIDIA GPUs, and machines with no GPU.
//!
//! Open a [`Driver`], register a [`File`] and a [`Buffer`], read and write. Every transfer is right to the last byte
//! whatever its offset, length or address, and never fails for lack of a fast path.
//!
//! ```
//! use hipfile::{Buffer, Config, DeviceChoice, Driver, File};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data");
//! # std::fs::write(&path, b"hello")?;
//! let mut config = Config::from_env();
//! config.device = DeviceChoice::Emulated; // leave this line out on a machine with a GPU
//! let driver = Driver::open(config)?;
//! let file = File::register(&driver, std::fs::File::open(&path)?)?;
//! let mut buffer = Buffer::alloc(&driver, 0, 4096)?;
//! let n = file.read_at(&mut buffer, 0..4096, 0)?; // short at end of file
//! assert_eq!(n, 5);
//! # Ok(())
//! # }
//! ```
//!
//! This crate is the core: it knows nothing of the C ABI, which is the crate `libhipfile`.
#![deny(unsafe_code)]

/// The programs in README.md are programs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod advice;
#[allow(unsafe_code, reason = "memory that the kernel writes to later")]
mod aside;
#[allow(unsafe_code, reason = "declares that memory must outlive what is submitted")]
mod batch;
#[cfg(feature = "bench-hooks")]
#[doc(hidden)]
pub mod bench_hooks;
#[allow(unsafe_code, reason = "maps staging memory")]
mod block;
#[allow(unsafe_code, reason = "declares what makes a range of memory valid")]
mod buffer;
mod config;
mod desk;
#[allow(unsafe_code, reason = "calls the runtimes' function tables")]
mod device;
#[allow(unsafe_code, reason = "the unsafe verbs, for callers with raw addresses")]
mod driver;
#[allow(unsafe_code, reason = "reads into host memory in place")]
mod engine;
mod error;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod faults {
    //! Lets tests make calls to the system fail; in builds without debug assertions there is nothing of it.
    #[cfg(feature = "emulation")]
    pub use hip_emu::fault as gpu;

    pub use crate::sys::site::{Outcome, Site, What, When, absent, clear, hits, inject};
}
#[allow(unsafe_code, reason = "borrows the caller's descriptor number")]
mod file;
#[cfg(any(fuzzing, debug_assertions))]
#[doc(hidden)]
pub mod fuzz_hooks;
#[allow(unsafe_code, reason = "uses the driver's unsafe verbs on memory it owns")]
mod handle;
mod health;
#[allow(unsafe_code, reason = "makes a transfer that is never carried out")]
mod info;
#[allow(unsafe_code, reason = "memory that streams copy from and to")]
mod lane;
mod limits;
mod log;
pub mod monitor;
pub mod notice;
mod op;
#[allow(unsafe_code, reason = "submits memory it owns")]
mod owned;
#[allow(unsafe_code, reason = "submits memory it owns")]
mod owned_stream;
mod pace;
pub mod platform;
mod policy;
#[allow(unsafe_code, reason = "lends a call's closure to helper threads")]
mod pool;
#[cfg_attr(test, allow(unsafe_code, reason = "closes descriptors by number"))]
mod private;
#[allow(unsafe_code, reason = "an instruction that does nothing")]
mod probe;
mod queued;
mod rangemap;
#[allow(unsafe_code, reason = "calls the verbs of RDMA devices")]
mod rdma;
mod reason;
mod registry;
mod route;
mod slots;
#[allow(unsafe_code, reason = "maps pages that processes share")]
mod stats;
pub mod storage;
#[allow(unsafe_code, reason = "work that outlives the call, on the caller's stream")]
mod stream;
mod sync;
#[allow(unsafe_code, reason = "system calls without a wrapper")]
mod sys;
mod ticket;
#[cfg_attr(test, allow(unsafe_code, reason = "tests make buffers out of thin air"))]
mod transfer;
mod turns;
mod usage;
mod user_fs;
mod warm;
mod watch;
mod workers;

pub use batch::{Batches, Entry, MAX_BATCH, NoOp, RawBatch};
pub use buffer::DevPtr;
pub use config::{
    Adaptive, Config, DeviceChoice, ENGINE_NAMES, Fallback, Invalid, Kind, LogLevel, Order, PageCache,
    SETTINGS, Setting, Unit, Value, WriteSync,
};
pub use desk::{Event, EventStatus};
pub use device::{DeviceInfo, StreamPtr};
pub use driver::{Driver, FileId};
pub use error::{Error, ErrorKind, Result};
pub use file::{DirectAlign, FileType};
pub use handle::{Buffer, File};
pub use info::{BufferInfo, FileInfo};
pub use monitor::Statistics;
pub use op::Op;
pub use owned::{Batch, Finished, Job};
pub use owned_stream::{Pending, Stream};
pub use pace::Rates;
pub use reason::Reason;
pub use stats::{
    BatchStats, Calls, EngineStats, GpuStats, Malformed, Named, ReasonStats, Registrations, Side, SizeClass,
    Snapshot, Stats, StreamStats,
};
pub use stream::{Ask, Caller};
pub use transfer::MAX_TRANSFER;
pub use user_fs::{RemoteMemory, UserFs};

/// Whether the emulated GPU is built in. It serves only when asked for.
pub const EMULATION_BUILT_IN: bool = cfg!(feature = "emulation");
