//! The C ABI of hipFile over the `hipfile` crate. It translates and never decides: what a call does is the core's
//! business, what C sees of it is written here, one file per group of `include/hipfile.h`.
//!
//! The functions carry their C names. Each is a thin forwarder through the one [`dispatch`] table; the function behind
//! the table runs inside `guard`, which keeps panics and a changed errno from the caller.

// Handles and offsets are 64 bits wide in the ABI.
const _: () = assert!(size_of::<usize>() == 8);

pub mod abi;
#[doc(hidden)]
pub mod dispatch;
pub mod status;

mod batch;
mod buffer;
mod driver;
mod ext;
mod file;
mod global;
mod guard;
mod io;
mod log;
mod params;
mod profiler;
mod stats;
mod stream;
mod user_fs;
mod version;

pub use batch::*;
pub use buffer::*;
pub use driver::*;
pub use ext::*;
pub use file::*;
pub use io::*;
pub use params::*;
pub use profiler::rocprofiler_register_import_hipFile;
pub use stats::*;
pub use status::hipFileGetOpErrorString;
pub use stream::*;
pub use version::*;
