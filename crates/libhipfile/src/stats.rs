//! The header's group "Statistics", and `include/hipfile-stats.h`: C's structures for what the core has counted.

use core::ffi::{c_char, c_int};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use hipfile::monitor::{self, Target, Unreachable};
use hipfile::{Calls, GpuStats, Op, Side, Snapshot, notice};

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL1(stats: *mut hipFileStatsLevel1_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l1(stats))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL2(stats: *mut hipFileStatsLevel2_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l2(stats))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL3(stats: *mut hipFileStatsLevel3_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l3(stats))
}

pub(crate) extern "C" fn get_l1(stats: *mut hipFileStatsLevel1_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL1", || fill(stats, level_1))
}

pub(crate) extern "C" fn get_l2(stats: *mut hipFileStatsLevel2_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL2", || fill(stats, level_2))
}

pub(crate) extern "C" fn get_l3(stats: *mut hipFileStatsLevel3_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL3", || fill(stats, level_3))
}

/// A snapshot with its sums over all GPUs.
struct Sums {
    snapshot: Snapshot,
    read: Side,
    write: Side,
}

fn fill<T>(stats: *mut T, level: fn(&Sums) -> T) -> Result<(), Failure> {
    if stats.is_null() {
        return Err(Failure::new(hipFileInvalidValue, "stats is NULL"));
    }
    let snapshot = global::snapshot();
    let [read, write] = [Op::Read, Op::Write].map(|op| snapshot.total(op));
    let filled = level(&Sums { snapshot, read, write });
    // SAFETY: `stats` is not NULL, so it points to such a structure that may be written to.
    unsafe { stats.write(filled) };
    Ok(())
}

fn counter(calls: Calls) -> hipFileOpCounter_t {
    hipFileOpCounter_t { ok: calls.ok, err: calls.failed }
}

fn ok(ok: u64) -> hipFileOpCounter_t {
    hipFileOpCounter_t { ok, err: 0 }
}

fn average(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

/// The operations of a direction: those refused before anything moved have failed too.
fn operations(snapshot: &Snapshot, op: Op, side: &Side) -> hipFileOpCounter_t {
    hipFileOpCounter_t { ok: side.operations(), err: side.errors() + snapshot.refused[op as usize] }
}

fn level_1(Sums { snapshot, read, write }: &Sums) -> hipFileStatsLevel1_t {
    let batches = &snapshot.batches;
    let mut both = read.clone();
    both.add(write);
    let unfinished = batches.entries_canceled + batches.entries_timed_out;
    let (timed, nanoseconds) = (batches.timed[0], batches.timed[1]);
    let completion = average(nanoseconds, timed) / 1000;
    let submit = batches.submit_nanoseconds / 1000;
    hipFileStatsLevel1_t {
        read_ops: operations(snapshot, Op::Read, read),
        write_ops: operations(snapshot, Op::Write, write),
        hdl_register_ops: counter(snapshot.files.begun),
        hdl_deregister_ops: counter(snapshot.files.ended),
        buf_register_ops: counter(snapshot.buffers.begun),
        buf_deregister_ops: counter(snapshot.buffers.ended),
        read_bytes: read.bytes(),
        write_bytes: write.bytes(),
        read_bw_bytes_per_sec: read.per_second(read.bytes()) as u64,
        write_bw_bytes_per_sec: write.per_second(write.bytes()) as u64,
        read_lat_avg_us: average(read.microseconds(), read.operations()),
        write_lat_avg_us: average(write.microseconds(), write.operations()),
        read_ops_per_sec: read.per_second(read.operations()) as u64,
        write_ops_per_sec: write.per_second(write.operations()) as u64,
        read_lat_sum_us: read.microseconds(),
        write_lat_sum_us: write.microseconds(),
        batch_submit_ops: counter(batches.submitted),
        batch_complete_ops: hipFileOpCounter_t { ok: batches.done.ok, err: batches.done.failed + unfinished },
        batch_setup_ops: counter(batches.set_up),
        batch_cancel_ops: counter(batches.canceled),
        batch_destroy_ops: ok(batches.destroyed),
        batch_enqueued_ops: counter(batches.entries),
        // Which engine carries an entry is decided when it runs.
        batch_posix_enqueued_ops: ok(0),
        batch_processed_ops: counter(batches.done),
        batch_posix_processed_ops: ok(batches.staged),
        batch_nvfs_submit_ops: ok(batches.direct),
        batch_p2p_submit_ops: ok(batches.direct),
        batch_aio_submit_ops: ok(0),
        batch_iouring_submit_ops: ok(batches.uring),
        batch_mixed_io_submit_ops: ok(batches.mixed),
        batch_total_submit_ops: counter(batches.entries),
        batch_read_bytes: batches.bytes[0],
        batch_write_bytes: batches.bytes[1],
        batch_read_bw_bytes: read.per_second(batches.bytes[0]) as u64,
        batch_write_bw_bytes: write.per_second(batches.bytes[1]) as u64,
        batch_submit_lat_avg_us: average(submit, batches.submitted.ok),
        batch_completion_lat_avg_us: completion,
        batch_submit_ops_per_sec: both.per_second(batches.submitted.ok) as u64,
        batch_complete_ops_per_sec: both.per_second(batches.done.ok) as u64,
        batch_submit_lat_sum_us: submit,
        // Of entries whose time was not taken the average is taken.
        batch_completion_lat_sum_us: completion.saturating_mul(batches.done.ok),
        last_batch_read_bytes: batches.last_bytes[0],
        last_batch_write_bytes: batches.last_bytes[1],
    }
}

/// Operations by size: below 4 KiB, then one class for each power of two.
fn sizes(side: &Side) -> [u64; 32] {
    let mut sizes = [0; 32];
    for classes in [&side.direct, &side.staged] {
        for (class, counted) in classes.iter().enumerate() {
            sizes[class.min(31)] += counted.operations;
        }
    }
    sizes
}

fn level_2(sums: &Sums) -> hipFileStatsLevel2_t {
    hipFileStatsLevel2_t {
        basic: level_1(sums),
        read_size_kb_hist: sizes(&sums.read),
        write_size_kb_hist: sizes(&sums.write),
    }
}

fn level_3(sums: &Sums) -> hipFileStatsLevel3_t {
    let snapshot = &sums.snapshot;
    let row = |ordinal: usize| match snapshot.gpu(Some(ordinal as u32)) {
        Some(gpu) => gpu_row(snapshot, gpu),
        None => gpu_row(&Snapshot::default(), &GpuStats::default()),
    };
    let used = snapshot.gpus.iter().filter(|gpu| gpu.ordinal.is_some());
    hipFileStatsLevel3_t {
        detailed: level_2(sums),
        num_gpus: used.count() as u32,
        per_gpu_stats: core::array::from_fn(row),
    }
}

fn gpu_row(snapshot: &Snapshot, gpu: &GpuStats) -> hipFilePerGpuStats_t {
    let direct = |side: &Side| side.direct.iter().map(|class| class.operations).sum::<u64>();
    let (read, write) = (&gpu.read, &gpu.write);
    let p2p = |side: &Side| side.engines.iter().find(|e| e.name == "p2p").map_or(0, |e| e.operations);
    hipFilePerGpuStats_t {
        uuid: gpu.uuid.map(|byte| byte as c_char),
        read_bytes: read.bytes(),
        read_bw_bytes_per_sec: read.per_second(read.bytes()) as u64,
        read_utilization: read.utilization(),
        read_duration_us: read.microseconds(),
        n_total_reads: read.operations(),
        n_p2p_reads: p2p(read),
        n_nvfs_reads: direct(read),
        n_posix_reads: read.operations() - direct(read),
        n_unaligned_reads: read.unaligned[0] + read.unaligned[1],
        n_dr_reads: 0,
        n_sparse_regions: 0,
        n_inline_regions: 0,
        n_reads_err: read.errors(),
        write_bytes: write.bytes(),
        write_bw_bytes_per_sec: write.per_second(write.bytes()) as u64,
        write_utilization: write.utilization(),
        write_duration_us: write.microseconds(),
        n_total_writes: write.operations(),
        n_p2p_writes: p2p(write),
        n_nvfs_writes: direct(write),
        n_posix_writes: write.operations() - direct(write),
        n_unaligned_writes: write.unaligned[0] + write.unaligned[1],
        n_dr_writes: 0,
        n_writes_err: write.errors(),
        n_mmap: gpu.memory[0],
        n_mmap_ok: gpu.memory[0],
        // Memory that was not registered belongs to no GPU.
        n_mmap_err: snapshot.buffers.begun.failed,
        n_mmap_free: gpu.memory[1],
        reg_bytes: gpu.memory_bytes[0].saturating_sub(gpu.memory_bytes[1]),
    }
}

/// See `include/hipfile-stats.h`.
///
/// # Safety
/// `ctx` is NULL or points to a pointer that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsCreateContext(
    ctx: *mut *mut hipFileStatsContext_t,
    target_pid: c_int,
) -> hipFileStatsError_t {
    guard::value(hipFileStatsTargetProcessNotAccessible, || {
        if ctx.is_null() {
            return hipFileStatsInvalidArgument;
        }
        // SAFETY: not NULL, so it points to a pointer that may be written to.
        unsafe { ctx.write(core::ptr::null_mut()) };
        let pid = match u32::try_from(target_pid) {
            Ok(pid) if pid > 0 => pid,
            _ => return hipFileStatsInvalidArgument,
        };
        match Target::new(pid) {
            Ok(target) => {
                let context = Box::into_raw(Box::new(target)).cast();
                // SAFETY: as above.
                unsafe { ctx.write(context) };
                hipFileStatsSuccess
            }
            Err(Unreachable::NotFound) => hipFileStatsTargetProcessNotFound,
            Err(_) => hipFileStatsTargetProcessNotAccessible,
        }
    })
}

/// See `include/hipfile-stats.h`.
///
/// # Safety
/// `ctx` is NULL or a connection that nobody uses, and will not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsCloseContext(ctx: *mut hipFileStatsContext_t) {
    guard::value((), || {
        if !ctx.is_null() {
            // SAFETY: it came from Box::into_raw of a target, and this is its last use.
            drop(unsafe { Box::from_raw(ctx.cast::<Target>()) });
        }
    });
}

/// See `include/hipfile-stats.h`.
///
/// # Safety
/// `ctx` is NULL or a connection that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsConnectToTargetProcess(
    ctx: *mut hipFileStatsContext_t,
) -> hipFileStatsError_t {
    guard::value(hipFileStatsTargetProcessNotAccessible, || {
        // SAFETY: NULL, or a target that only this call uses.
        let Some(target) = (unsafe { ctx.cast::<Target>().as_mut() }) else {
            return hipFileStatsInvalidArgument;
        };
        match target.connect(None) {
            Ok(()) => hipFileStatsSuccess,
            Err(_) => hipFileStatsTargetProcessNotAccessible,
        }
    })
}

/// See `include/hipfile-stats.h`.
///
/// # Safety
/// As [`hipFileStatsConnectToTargetProcess`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsPollTargetProcess(
    ctx: *const hipFileStatsContext_t,
    block: bool,
) -> hipFileStatsError_t {
    guard::value(hipFileStatsTargetProcessNotAccessible, || {
        // SAFETY: NULL, or a target that only this call uses.
        let Some(target) = (unsafe { ctx.cast::<Target>().as_ref() }) else {
            return hipFileStatsInvalidArgument;
        };
        match target.wait((!block).then_some(Duration::ZERO)) {
            true => hipFileStatsSuccess,
            false => hipFileStatsTargetProcessNotAccessible,
        }
    })
}

/// See `include/hipfile-stats.h`.
///
/// # Safety
/// As [`hipFileStatsConnectToTargetProcess`]. `fd` stays open during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsGenerateReport(
    ctx: *const hipFileStatsContext_t,
    fd: c_int,
) -> hipFileStatsError_t {
    guard::value(hipFileStatsReportGenerationFailed, || {
        // SAFETY: NULL, or a target that only this call uses.
        let target = unsafe { ctx.cast::<Target>().as_ref() };
        let Some(target) = target.filter(|_| fd >= 0) else { return hipFileStatsInvalidArgument };
        let Ok(snapshot) = target.snapshot() else { return hipFileStatsReportGenerationFailed };
        // SAFETY: the descriptor is the caller's and stays open during the call; a number that names nothing gives EBADF.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        match notice::write(file, monitor::report(&snapshot).as_bytes()) {
            Ok(()) => hipFileStatsSuccess,
            Err(_) => hipFileStatsReportGenerationFailed,
        }
    })
}
