//! The native half of the Python package `hipfile`: the core's verbs for Python, with the interpreter released while they
//! wait. Names, defaults and containers are the Python half's business; no rule about transfers is made here.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "submits memory that Python objects keep valid")]
mod batch;
#[allow(unsafe_code, reason = "the unsafe verbs, for addresses that Python objects keep valid")]
mod calls;
mod errors;
mod global;
#[allow(unsafe_code, reason = "asks the interpreter for its number")]
mod interpreter;
mod memory;
mod numbers;
mod report;
#[allow(unsafe_code, reason = "submits memory that Python objects keep valid")]
mod stream;
#[allow(unsafe_code, reason = "reads what a DLPack capsule points to")]
mod views;

use pyo3::prelude::*;

/// The functions and classes that the package is built on. Private: names and signatures may change.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::calls::{
        close_file, deregister_buffer, deregister_file, read, read_pieces, register_buffer, register_file,
        set_page_cache, wait_for_stream, write, write_pieces,
    };
    #[pymodule_export]
    use crate::global::{after_fork_in_child, close_driver, exiting, forks, open_driver, use_count};
    #[pymodule_export]
    use crate::memory::DeviceMemory;
    #[pymodule_export]
    use crate::report::{check, devices, file_info, properties, runtimes, say, settings, stats, wait_notice};
    #[pymodule_export]
    use crate::stream::{StreamOperation, enqueue, prepare_stream};
    #[pymodule_export]
    use crate::views::{DlpackView, HostView};

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::interpreter::check_main(module.py())
    }

    /// The version of the package and of the interface it is compatible with: major, minor, patch.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
