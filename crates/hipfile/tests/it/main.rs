//! The behaviour suite: what the library does, stamped over devices and engines. Unit tests stand beside the code.
//!
//! The emulated GPU and the driver's settings are process-wide, so the suite relies on a runner that gives each test a
//! process of its own (cargo-nextest).
#![allow(clippy::disallowed_methods, reason = "tests read and set the environment")]
#![allow(clippy::unwrap_used, reason = "a test's unwrap is an assertion")]
#![allow(clippy::print_stderr, reason = "seeds and skips are said")]

mod support;

/// One module per row of the model test, over every file system.
macro_rules! over_file_systems {
    ($($row:ident: $engines:expr, $change:expr $(, through $door:ident)?;)*) => { $(
        mod $row {
            use crate::support::{Storage, model, model::Row};
            use hipfile::{Config, Fallback, PageCache};
            #[allow(unused, reason = "not every row names them")]
            type Names = (Config, Fallback, PageCache);
            // The last one named.
            const DOORS: &[model::Door] = &[model::Door::Calls $(, model::Door::$door)?];
            const ROW: Row = Row { engines: &$engines, change: $change, door: DOORS[DOORS.len() - 1] };
            #[test]
            fn here() { model::run(&ROW, Storage::here()); }
            #[test]
            fn on_ext4() { Storage::ext4(&[]).map(|s| model::run(&ROW, s)); }
            #[test]
            fn on_xfs() { Storage::xfs().map(|s| model::run(&ROW, s)); }
            #[test]
            fn on_tmpfs() { Storage::tmpfs().map(|s| model::run(&ROW, s)); }
        }
    )* };
}

// What changes: engines, how the page cache is treated, how scarce staging memory is, what fails.
over_file_systems! {
    model_bounce: ["bounce"], |_| false;
    model_p2p: ["p2p", "bounce"], |_| false;
    model_p2p_with_faults: ["p2p", "uring", "bounce"], |_| true;
    model_forbid: ["p2p", "uring", "bounce"], |c| { c.fallback = Fallback::Forbid; false };
    model_forbid_with_faults: ["p2p", "uring", "bounce"], |c| { c.fallback = Fallback::Forbid; true };
    model_forbid_streams: ["p2p", "uring", "bounce"], |c| { c.fallback = Fallback::Forbid; true }, through Streams;
    model_forbid_batch: ["p2p", "uring", "bounce"], |c| { c.fallback = Fallback::Forbid; true }, through Batches;
    model_uring_auto: ["uring", "bounce"], |_| false;
    model_uring_direct: ["uring", "bounce"], |c| { c.page_cache = PageCache::Direct; false };
    model_uring_no_cache: ["uring", "bounce"], |c| { c.page_cache = PageCache::NoCache; false };
    model_uring_one_block: ["uring", "bounce"], |c| {
        c.page_cache = PageCache::Direct;
        c.pool_len = c.block_len;
        false
    };
    model_uring_two_blocks: ["uring", "bounce"], |c| { c.pool_len = 2 * c.block_len; false };
    model_uring_refused: ["uring", "bounce"], |c| {
        crate::support::refuse_io_uring();
        c.page_cache = PageCache::Direct;
        false
    };
    model_streams: ["p2p", "uring", "bounce"], |_| false, through Streams;
    model_streams_staged: ["uring", "bounce"], |c| { c.stream_len = 2 * c.block_len; false }, through Streams;
    model_streams_direct: ["uring", "bounce"], |c| { c.page_cache = PageCache::Direct; false }, through Streams;
    model_streams_with_faults: ["p2p", "uring", "bounce"], |_| true, through Streams;
    model_bounce_direct: ["bounce"], |c| { c.page_cache = PageCache::Direct; false };
    model_bounce_no_cache: ["bounce"], |c| { c.page_cache = PageCache::NoCache; false };
    model_batch: ["p2p", "uring", "bounce"], |_| false, through Batches;
    model_batch_with_faults: ["p2p", "uring", "bounce"], |_| true, through Batches;
    model_batch_direct: ["uring", "bounce"], |c| { c.page_cache = PageCache::Direct; false }, through Batches;
    model_batch_one_block: ["uring", "bounce"], |c| { c.pool_len = c.block_len; false }, through Batches;
}

mod suite {
    #[cfg(debug_assertions)]
    mod adversity;
    mod batch_rules;
    mod batches;
    mod buffers;
    mod coherence;
    mod crash;
    mod crowds;
    mod cufile;
    mod descriptors;
    mod direct;
    mod documents;
    mod driver_calls;
    mod evidence;
    #[cfg(debug_assertions)]
    mod fault_matrix;
    mod faults;
    mod files;
    mod hanging;
    mod kinds;
    mod lifecycle;
    mod logging;
    #[cfg(debug_assertions)]
    mod mapped;
    mod memory_kinds;
    mod owned_streams;
    mod rdma;
    mod reach;
    mod rings;
    mod scarce;
    mod settings;
    mod staged;
    mod statistics;
    mod statistics_shown;
    mod stream_rules;
    mod streams;
    mod streams_ahead;
    mod streams_aside;
    mod streams_many;
    mod userspace;
}
