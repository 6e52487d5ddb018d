//! Statistics in C: what the structures hold after known work, at which level, and that asking disturbs nobody.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The functions, for pointers that are NULL or to such structures.
fn get_l1(stats: *mut hipFileStatsLevel1_t) -> hipFileError_t {
    // SAFETY: NULL, or the test's own structure.
    unsafe { hipFileGetStatsL1(stats) }
}

fn get_l2(stats: *mut hipFileStatsLevel2_t) -> hipFileError_t {
    // SAFETY: as above.
    unsafe { hipFileGetStatsL2(stats) }
}

fn get_l3(stats: *mut hipFileStatsLevel3_t) -> hipFileError_t {
    // SAFETY: as above.
    unsafe { hipFileGetStatsL3(stats) }
}

fn set_up(batch: *mut hipFileBatchHandle_t) -> hipFileError_t {
    // SAFETY: as above.
    unsafe { hipFileBatchIOSetUp(batch, 8) }
}

/// A connection of the client's, or none.
type Context = *mut hipFileStatsContext_t;

fn create(context: *mut Context, pid: c_int) -> hipFileStatsError_t {
    // SAFETY: NULL, or the test's own variable.
    unsafe { hipFileStatsCreateContext(context, pid) }
}

fn connect(context: Context) -> hipFileStatsError_t {
    // SAFETY: NULL, or a connection that the test has made and not closed.
    unsafe { hipFileStatsConnectToTargetProcess(context) }
}

fn poll(context: Context, block: bool) -> hipFileStatsError_t {
    // SAFETY: as above.
    unsafe { hipFileStatsPollTargetProcess(context, block) }
}

fn report(context: Context, fd: c_int) -> hipFileStatsError_t {
    // SAFETY: as above; the descriptor is open, or is refused.
    unsafe { hipFileStatsGenerateReport(context, fd) }
}

fn close(context: Context) {
    // SAFETY: as above, and it is not used again.
    unsafe { hipFileStatsCloseContext(context) }
}

fn level_1() -> hipFileStatsLevel1_t {
    level_3().detailed.basic
}

fn level_3() -> hipFileStatsLevel3_t {
    let mut stats = core::mem::MaybeUninit::<[hipFileStatsLevel3_t; 2]>::uninit();
    let start = stats.as_mut_ptr().cast::<hipFileStatsLevel3_t>();
    // SAFETY: two lie there; any bytes will do for what must be left alone.
    unsafe { start.cast::<u8>().write_bytes(0xa5, 2 * size_of::<hipFileStatsLevel3_t>()) };
    ok(get_l3(start));
    let behind = start.wrapping_add(1).cast::<u8>();
    // SAFETY: the second of the two, whose bytes were written above.
    let behind = unsafe { core::slice::from_raw_parts(behind, size_of::<hipFileStatsLevel3_t>()) };
    assert!(behind.iter().all(|byte| *byte == 0xa5), "nothing beyond the structure is touched");
    // SAFETY: all of it was written, and all its members are numbers.
    unsafe { start.read() }
}

#[test]
fn the_getters_judge_their_argument_and_open_nothing() {
    start();
    let codes = [get_l1(core::ptr::null_mut()), get_l2(core::ptr::null_mut()), get_l3(core::ptr::null_mut())];
    assert_eq!(codes.map(code), [hipFileInvalidValue; 3]);
    assert_eq!((level_3().num_gpus, level_1().read_ops.ok), (0, 0));
    assert_eq!(hipFileUseCount(), 0);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert!(!names.any(|name| name.starts_with("hipfile")), "nothing starts before the driver is opened");
}

#[test]
fn structures_hold_what_was_done_also_after_closing() {
    start();
    let device = Device::new(1 << 20, 1);
    let (_file, handle) = registered_file(&vec![3; 1 << 20]);
    ok(register_memory(device.start, 1 << 20));
    for size in [1 << 20, 4096, 4095] {
        assert_eq!(read(handle, device.start, size, 0, 0).0, size as isize);
    }
    assert_eq!(write(handle, device.start, 8192, 0, 0).0, 8192);
    assert_eq!(read(handle, device.start, 1, -1, 0).0, -1);
    let stats = level_3();
    let (detailed, basic) = (stats.detailed, stats.detailed.basic);
    assert_eq!((basic.read_ops.ok, basic.read_ops.err, basic.write_ops.ok), (3, 1, 1));
    assert_eq!((basic.read_bytes, basic.write_bytes), ((1 << 20) + 4096 + 4095, 8192));
    assert_eq!((basic.hdl_register_ops.ok, basic.buf_register_ops.ok), (1, 1));
    assert!(basic.read_bw_bytes_per_sec > 0 && basic.read_ops_per_sec > 0, "rates are there");
    assert!(basic.read_lat_sum_us > 0 && basic.read_lat_avg_us <= basic.read_lat_sum_us);
    let sizes = |hist: &[u64; 32]| {
        hist.iter().enumerate().filter(|(_, n)| **n > 0).map(|(n, _)| n).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&detailed.read_size_kb_hist), [0, 1, 9]);
    assert_eq!(sizes(&detailed.write_size_kb_hist), [2]);
    assert_eq!(stats.num_gpus, 1);
    let gpu = &stats.per_gpu_stats[0];
    assert_eq!((gpu.n_total_reads, gpu.n_nvfs_reads + gpu.n_posix_reads), (3, 3));
    assert_eq!((gpu.n_mmap, gpu.n_mmap_ok, gpu.n_mmap_free, gpu.reg_bytes), (1, 1, 0, 1 << 20));
    assert!(gpu.n_unaligned_reads >= 1 && gpu.read_utilization <= 100);
    let mut uuid = gpu_sys::hip::Uuid { bytes: [0; 16] };
    // SAFETY: `uuid` may be written to.
    assert_eq!(unsafe { (hip_emu::api().hipDeviceGetUuid)(&raw mut uuid, 0) }, HipError::SUCCESS);
    assert_eq!(gpu.uuid, uuid.bytes, "as the runtime tells it");
    assert!(stats.per_gpu_stats[1..].iter().all(|gpu| gpu.n_total_reads == 0 && gpu.uuid == [0; 16]));
    while hipFileUseCount() > 0 {
        ok(hipFileDriverClose());
    }
    let closed = level_3();
    assert_eq!(closed.detailed.basic.read_ops.ok, 3);
    assert_eq!((closed.per_gpu_stats[0].n_mmap_free, closed.per_gpu_stats[0].reg_bytes), (1, 0));
    // Opened again, the same counters go on.
    let (_file, _handle) = registered_file(b"x");
    assert_eq!(level_1().hdl_register_ops.ok, 2);
}

#[test]
fn batches_are_in_level_1() {
    start();
    let device = Device::new(64 << 10, 1);
    let (_file, handle) = registered_file(&vec![3; 64 << 10]);
    let mut batch = core::ptr::null_mut();
    ok(set_up(&raw mut batch));
    assert_eq!(code(set_up(core::ptr::null_mut())), hipFileInvalidValue);
    let entry = |opcode, n: usize| hipFileIOParams_t {
        mode: hipFileBatch,
        u: hipFileIOParams_u {
            batch: hipFileIOParams_batch {
                devPtr_base: device.start,
                file_offset: (n * 4096) as i64,
                devPtr_offset: (n * 4096) as i64,
                size: 4096,
            },
        },
        fh: handle,
        opcode,
        cookie: core::ptr::null_mut(),
    };
    let mut entries = [entry(hipFileBatchRead, 0), entry(hipFileBatchRead, 1), entry(hipFileBatchWrite, 2)];
    // SAFETY: three entries, whose memory stays.
    ok(unsafe { hipFileBatchIOSubmit(batch, 3, entries.as_mut_ptr(), 0) });
    let mut events = [hipFileIOEvents_t { cookie: core::ptr::null_mut(), status: hipFileWaiting, ret: 0 }; 3];
    let mut count = 3;
    // SAFETY: there is room for three.
    ok(unsafe {
        hipFileBatchIOGetStatus(batch, 3, &raw mut count, events.as_mut_ptr(), core::ptr::null_mut())
    });
    assert_eq!(count, 3);
    ok(hipFileBatchIOCancel(batch));
    hipFileBatchIODestroy(batch);
    let stats = level_1();
    assert_eq!((stats.batch_setup_ops.ok, stats.batch_setup_ops.err), (1, 1));
    assert_eq!(
        (stats.batch_submit_ops.ok, stats.batch_enqueued_ops.ok, stats.batch_complete_ops.ok),
        (1, 3, 3)
    );
    assert_eq!(
        (stats.batch_cancel_ops.ok, stats.batch_destroy_ops.ok, stats.batch_mixed_io_submit_ops.ok),
        (1, 1, 1)
    );
    assert_eq!((stats.batch_read_bytes, stats.batch_write_bytes), (8192, 4096));
    assert_eq!((stats.last_batch_read_bytes, stats.last_batch_write_bytes), (8192, 4096));
    assert_eq!(stats.batch_posix_processed_ops.ok + stats.batch_nvfs_submit_ops.ok, 3);
}

#[test]
fn level_0_counts_nothing_and_answers_all_the_same() {
    start();
    ok(hipFileSetParameterSizeT(hipFileParamProfileStats, 0));
    let device = Device::new(4096, 1);
    let (_file, handle) = registered_file(&[3; 4096]);
    assert_eq!(read(handle, device.start, 4096, 0, 0).0, 4096);
    let stats = level_3();
    assert_eq!((stats.detailed.basic.read_ops.ok, stats.num_gpus), (0, 0));
}

#[test]
fn behaviour_129_asking_for_every_level_while_io_runs() {
    start();
    watchdog(std::time::Duration::from_secs(300));
    let device = Device::new(4096, 1);
    let (_file, handle) = registered_file(&[3; 4096]);
    let (over, handle, memory) = (AtomicBool::new(false), handle.addr(), device.start.addr());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let handle = core::ptr::without_provenance_mut(handle);
                let memory = core::ptr::without_provenance_mut(memory);
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(read(handle, memory, 4096, 0, 0).0, 4096);
                }
            });
        }
        let mut last = 0;
        for _ in 0..33_334 {
            let mut one = core::mem::MaybeUninit::<hipFileStatsLevel1_t>::uninit();
            let mut two = core::mem::MaybeUninit::<hipFileStatsLevel2_t>::uninit();
            ok(get_l1(one.as_mut_ptr()));
            ok(get_l2(two.as_mut_ptr()));
            // SAFETY: it was written.
            let now = unsafe { one.assume_init() }.read_ops.ok;
            assert!(now >= last, "{now} after {last}");
            last = now;
            let three = level_3();
            assert!(three.detailed.basic.read_ops.ok >= now && three.num_gpus <= 1);
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_statistics_client_judges_its_arguments() {
    start();
    let mut context = core::ptr::without_provenance_mut::<hipFileStatsContext_t>(8);
    assert_eq!(create(core::ptr::null_mut(), 1), hipFileStatsInvalidArgument);
    for pid in [0, -1, c_int::MIN] {
        context = core::ptr::without_provenance_mut(8);
        assert_eq!(create(&raw mut context, pid), hipFileStatsInvalidArgument);
        assert!(context.is_null());
    }
    // A process that has ended and was waited for.
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    assert_eq!(create(&raw mut context, gone.id() as c_int), hipFileStatsTargetProcessNotFound);
    assert!(context.is_null());
    let null = core::ptr::null_mut();
    assert_eq!(connect(null), hipFileStatsInvalidArgument);
    assert_eq!(poll(null, false), hipFileStatsInvalidArgument);
    assert_eq!(report(null, 1), hipFileStatsInvalidArgument);
    close(null);
    let mut sleeping = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(create(&raw mut context, sleeping.id() as c_int), hipFileStatsSuccess);
    assert_eq!(poll(context, false), hipFileStatsTargetProcessNotAccessible);
    assert_eq!(report(context, -1), hipFileStatsInvalidArgument);
    assert_eq!(report(context, 1), hipFileStatsReportGenerationFailed);
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    assert_eq!(connect(context), hipFileStatsTargetProcessNotAccessible);
    assert_eq!(poll(context, true), hipFileStatsSuccess);
    close(context);
}

#[test]
fn the_statistics_client_reports_on_a_process() {
    use std::io::{Read as _, Seek as _};
    start();
    let device = Device::new(4096, 1);
    let (_file, handle) = registered_file(&[3; 4096]);
    assert_eq!(read(handle, device.start, 4096, 0, 0).0, 4096);
    let mut context = core::ptr::null_mut();
    let mut written = tempfile::tempfile().unwrap();
    assert_eq!(create(&raw mut context, std::process::id() as c_int), hipFileStatsSuccess);
    assert_eq!(connect(context), hipFileStatsSuccess);
    assert_eq!(poll(context, false), hipFileStatsTargetProcessNotAccessible);
    assert_eq!(report(context, written.as_raw_fd()), hipFileStatsSuccess);
    let read_only = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(report(context, read_only.as_raw_fd()), hipFileStatsReportGenerationFailed);
    close(context);
    let mut text = String::new();
    written.rewind().unwrap();
    written.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("AIS-STATS Version: 1\nHipFile Stats Level: 1\nGPU: emulated"), "{text}");
    assert!(
        text.contains("Total fallback path reads (B): 4096")
            || text.contains("Total fast path reads (B): 4096")
    );
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_and_no_signal() {
    use super::fork::in_child;
    start();
    let device = Device::new(4096, 1);
    let (_file, handle) = registered_file(&[3; 4096]);
    assert_eq!(read(handle, device.start, 4096, 0, 0).0, 4096);
    let mut context = core::ptr::null_mut();
    assert_eq!(create(&raw mut context, std::process::id() as c_int), hipFileStatsSuccess);
    assert_eq!(connect(context), hipFileStatsSuccess);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = tempfile::tempfile().unwrap();
    in_child(|| {
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            // SAFETY: no handler of anyone's is replaced.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let limit = libc::rlimit { rlim_cur: 10, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: it is read only.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        [writer.as_raw_fd(), file.as_raw_fd(), 99_999]
            .into_iter()
            .all(|fd| report(context, fd) == hipFileStatsReportGenerationFailed)
    });
    close(context);
}
