//! The statistics types of `include/hipfile.h` and `include/hipfile-stats.h`. Layouts only, as in the parent module.

use core::ffi::{c_char, c_int};

use super::{HIPFILE_GPU_UUID_LEN, HIPFILE_MAX_GPUS, Layout};

c_type!(struct hipFileOpCounter_t as "hipFileOpCounter_t" { ok: u64, err: u64 });

c_type!(struct hipFileStatsLevel1_t as "hipFileStatsLevel1_t" {
    read_ops: hipFileOpCounter_t,
    write_ops: hipFileOpCounter_t,
    hdl_register_ops: hipFileOpCounter_t,
    hdl_deregister_ops: hipFileOpCounter_t,
    buf_register_ops: hipFileOpCounter_t,
    buf_deregister_ops: hipFileOpCounter_t,
    read_bytes: u64,
    write_bytes: u64,
    read_bw_bytes_per_sec: u64,
    write_bw_bytes_per_sec: u64,
    read_lat_avg_us: u64,
    write_lat_avg_us: u64,
    read_ops_per_sec: u64,
    write_ops_per_sec: u64,
    read_lat_sum_us: u64,
    write_lat_sum_us: u64,
    batch_submit_ops: hipFileOpCounter_t,
    batch_complete_ops: hipFileOpCounter_t,
    batch_setup_ops: hipFileOpCounter_t,
    batch_cancel_ops: hipFileOpCounter_t,
    batch_destroy_ops: hipFileOpCounter_t,
    batch_enqueued_ops: hipFileOpCounter_t,
    batch_posix_enqueued_ops: hipFileOpCounter_t,
    batch_processed_ops: hipFileOpCounter_t,
    batch_posix_processed_ops: hipFileOpCounter_t,
    batch_nvfs_submit_ops: hipFileOpCounter_t,
    batch_p2p_submit_ops: hipFileOpCounter_t,
    batch_aio_submit_ops: hipFileOpCounter_t,
    batch_iouring_submit_ops: hipFileOpCounter_t,
    batch_mixed_io_submit_ops: hipFileOpCounter_t,
    batch_total_submit_ops: hipFileOpCounter_t,
    batch_read_bytes: u64,
    batch_write_bytes: u64,
    batch_read_bw_bytes: u64,
    batch_write_bw_bytes: u64,
    batch_submit_lat_avg_us: u64,
    batch_completion_lat_avg_us: u64,
    batch_submit_ops_per_sec: u64,
    batch_complete_ops_per_sec: u64,
    batch_submit_lat_sum_us: u64,
    batch_completion_lat_sum_us: u64,
    last_batch_read_bytes: u64,
    last_batch_write_bytes: u64,
});

c_type!(struct hipFileStatsLevel2_t as "hipFileStatsLevel2_t" {
    basic: hipFileStatsLevel1_t,
    read_size_kb_hist: [u64; 32],
    write_size_kb_hist: [u64; 32],
});

c_type!(struct hipFilePerGpuStats_t as "hipFilePerGpuStats_t" {
    uuid: [c_char; HIPFILE_GPU_UUID_LEN],
    read_bytes: u64,
    read_bw_bytes_per_sec: u64,
    read_utilization: u64,
    read_duration_us: u64,
    n_total_reads: u64,
    n_p2p_reads: u64,
    n_nvfs_reads: u64,
    n_posix_reads: u64,
    n_unaligned_reads: u64,
    n_dr_reads: u64,
    n_sparse_regions: u64,
    n_inline_regions: u64,
    n_reads_err: u64,
    write_bytes: u64,
    write_bw_bytes_per_sec: u64,
    write_utilization: u64,
    write_duration_us: u64,
    n_total_writes: u64,
    n_p2p_writes: u64,
    n_nvfs_writes: u64,
    n_posix_writes: u64,
    n_unaligned_writes: u64,
    n_dr_writes: u64,
    n_writes_err: u64,
    n_mmap: u64,
    n_mmap_ok: u64,
    n_mmap_err: u64,
    n_mmap_free: u64,
    reg_bytes: u64,
});

c_type!(struct hipFileStatsLevel3_t as "hipFileStatsLevel3_t" {
    detailed: hipFileStatsLevel2_t,
    num_gpus: u32,
    per_gpu_stats: [hipFilePerGpuStats_t; HIPFILE_MAX_GPUS],
});

c_enum!(hipFileStatsError_t {
    hipFileStatsSuccess = 0,
    hipFileStatsInvalidArgument = 1,
    hipFileStatsTargetProcessNotFound = 2,
    hipFileStatsTargetProcessNotAccessible = 3,
    hipFileStatsReportGenerationFailed = 4,
});

/// Opaque to C; never a value, only what pointers to a connection point to.
#[repr(C)]
#[derive(Debug)]
pub struct hipFileStatsContext_t {
    _private: [u8; 0],
}
