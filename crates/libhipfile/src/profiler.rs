//! Offers the table of functions to a profiler that the process has, once, before the first call goes through it. Without a
//! profiler it does nothing; what a profiler does with the table is not its business.

use std::sync::atomic::{AtomicBool, Ordering};

use gpu_sys::rocprofiler::register_api_table;

use crate::abi::{HIPFILE_VERSION_MAJOR, HIPFILE_VERSION_MINOR, HIPFILE_VERSION_PATCH};
use crate::dispatch::TABLE;
use crate::guard;

/// The symbol by which profilers recognise the library that offers the table; the version of the interface in one number.
/// No part of the interface for programs, so that no header declares it.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_register_import_hipFile() -> u32 {
    10_000 * HIPFILE_VERSION_MAJOR + 100 * HIPFILE_VERSION_MINOR + HIPFILE_VERSION_PATCH
}

/// Whether the table was offered, or is being offered, or nobody was there.
static OFFERED: AtomicBool = AtomicBool::new(false);

/// To be called before anything goes through the table.
#[inline(always)]
pub(crate) fn before_use() {
    if !OFFERED.load(Ordering::Relaxed) {
        offer();
    }
}

/// Whoever calls meanwhile, another thread or the profiler itself, goes through the table as it is: nobody waits for anybody.
#[cold]
fn offer() {
    if OFFERED.swap(true, Ordering::AcqRel) {
        return;
    }
    guard::leaving_errno(|| {
        let (import, table) = (rocprofiler_register_import_hipFile, (&raw const TABLE).cast_mut().cast());
        // SAFETY: it is the table of this name and version, a static whose entries are cells for functions of their types.
        let answer = unsafe { register_api_table(c"hipFile", import, import(), table) };
        if let Some(status) = answer {
            tracing::event!(
                name: "functions offered to a profiler",
                target: "hipfile",
                tracing::Level::INFO,
                status,
                "functions offered to a profiler"
            );
        }
    });
}
