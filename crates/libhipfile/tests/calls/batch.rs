//! Batches through the C functions: codes and their order, events, time limits, handles, fork.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;

use super::fork::in_child;
use super::*;

type Handle = hipFileBatchHandle_t;

fn set_up(capacity: u32) -> Result<Handle, hipFileOpError_t> {
    let mark = core::ptr::without_provenance_mut(0x5a5a);
    let mut handle = mark;
    // SAFETY: `handle` may be written to.
    let status = code(unsafe { hipFileBatchIOSetUp(&raw mut handle, capacity) });
    if status == hipFileSuccess {
        return Ok(handle);
    }
    assert_eq!(handle, mark, "the handle is left alone on failure");
    Err(status)
}

fn read_entry(
    fh: hipFileHandle_t,
    device: &Device,
    at: usize,
    len: usize,
    cookie: usize,
) -> hipFileIOParams_t {
    hipFileIOParams_t {
        mode: hipFileBatch,
        u: hipFileIOParams_u {
            batch: hipFileIOParams_batch {
                devPtr_base: device.start,
                file_offset: at as i64,
                devPtr_offset: at as i64,
                size: len,
            },
        },
        fh,
        opcode: hipFileBatchRead,
        cookie: core::ptr::without_provenance_mut(cookie),
    }
}

fn submit(batch: Handle, entries: &mut [hipFileIOParams_t]) -> hipFileError_t {
    // SAFETY: the slice holds as many transfers; device memory is never freed in these tests.
    unsafe { hipFileBatchIOSubmit(batch, entries.len() as u32, entries.as_mut_ptr(), 7) }
}

/// The code, and (cookie, status, result) of each event.
fn poll(
    batch: Handle,
    min: u32,
    room: u32,
    timeout: Option<(i64, i64)>,
) -> (hipFileOpError_t, Vec<(usize, hipFileStatus_t, isize)>) {
    let none = hipFileIOEvents_t { cookie: core::ptr::null_mut(), status: hipFileInvalid, ret: 0 };
    let mut events = vec![none; room as usize + 1];
    let mut nr = room;
    let mut time = timeout.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    let at = time.as_mut().map_or(core::ptr::null_mut(), |time| &raw mut *time);
    // SAFETY: the vector has room for `nr` events, and the time is NULL or valid.
    let answer = unsafe { hipFileBatchIOGetStatus(batch, min, &raw mut nr, events.as_mut_ptr(), at) };
    let answer = code(answer);
    let count = if answer == hipFileSuccess { nr as usize } else { 0 };
    assert!(events[count..].iter().all(|event| event.status == hipFileInvalid), "nothing else is written");
    (answer, events[..count].iter().map(|e| (e.cookie.addr(), e.status, e.ret as isize)).collect())
}

/// Slows down whatever brings bytes to the GPU.
fn delay_copies(time: Duration) {
    for function in [Function::hipMemcpy, Function::hipAmdFileRead] {
        fault::add(Rule { function, when: When::Every, fault: Fault::Delay(time) });
    }
}

#[test]
fn setup_judges_its_arguments_and_needs_no_driver() {
    start();
    // SAFETY: NULL is refused.
    assert_eq!(code(unsafe { hipFileBatchIOSetUp(core::ptr::null_mut(), 1) }), hipFileInvalidValue);
    for capacity in [0, 4097, u32::MAX] {
        assert_eq!(set_up(capacity), Err(hipFileInvalidValue));
    }
    let (one, two) = (set_up(128).unwrap(), set_up(4096).unwrap());
    assert!(one != two && !one.is_null() && !two.is_null());
    assert_eq!(hipFileUseCount(), 0);
    for bad in [core::ptr::null_mut(), core::ptr::without_provenance_mut(42), one.wrapping_byte_add(1)] {
        assert_eq!(code(hipFileBatchIOCancel(bad)), hipFileInvalidValue);
        assert_eq!(poll(bad, 0, 1, None).0, hipFileInvalidValue);
        hipFileBatchIODestroy(bad);
    }
    ok(hipFileBatchIOCancel(one));
    hipFileBatchIODestroy(one);
    hipFileBatchIODestroy(one);
    assert_eq!(code(hipFileBatchIOCancel(one)), hipFileInvalidValue);
    ok(hipFileBatchIOCancel(two));
}

#[test]
fn submit_answers_in_the_order_of_its_checks() {
    start();
    let batch = set_up(2).unwrap();
    let device = Device::new(8192, 0);
    let mut entry = read_entry(core::ptr::without_provenance_mut(8), &device, 0, 4096, 1);
    // SAFETY: NULL and zero are refused.
    let call = |batch, nr, at| code(unsafe { hipFileBatchIOSubmit(batch, nr, at, 0) });
    assert_eq!(call(batch, 0, &raw mut entry), hipFileInvalidValue);
    assert_eq!(call(batch, 1, core::ptr::null_mut()), hipFileInvalidValue);
    assert_eq!(call(core::ptr::null_mut(), 1, &raw mut entry), hipFileInvalidValue);
    assert_eq!(call(batch, 1, &raw mut entry), hipFileDriverNotInitialized);
    let (_file, fh) = registered_file(&[7; 8192]);
    let mut host = [0_u8; 16];
    let good = read_entry(fh, &device, 0, 4096, 1);
    let with = |change: &dyn Fn(&mut hipFileIOParams_t, &mut hipFileIOParams_batch)| {
        let mut entry = good;
        // SAFETY: the union has one member.
        let mut transfer = unsafe { entry.u.batch };
        change(&mut entry, &mut transfer);
        entry.u.batch = transfer;
        entry
    };
    let stale = core::ptr::without_provenance_mut(8);
    let host = host.as_mut_ptr().cast();
    for (mut entry, expected) in [
        (with(&|e, _| (e.fh, e.opcode) = (stale, hipFileOpcode_t(9))), hipFileHandleNotRegistered),
        (
            with(&|e, t| (t.devPtr_base, e.mode) = (core::ptr::null_mut(), hipFileBatchMode_t(0))),
            hipFileInvalidValue,
        ),
        (with(&|_, t| t.devPtr_base = host), hipFileHipMemoryTypeInvalid),
        (with(&|_, t| t.devPtr_offset = -1), hipFileInvalidValue),
        (with(&|_, t| (t.devPtr_offset, t.size) = (8192, 0)), hipFileInvalidValue),
        (with(&|_, t| t.size = 8193), hipFileInvalidValue),
        (with(&|_, t| t.file_offset = -1), hipFileInvalidValue),
        (with(&|e, _| e.opcode = hipFileOpcode_t(2)), hipFileInvalidValue),
        (with(&|e, _| e.mode = hipFileBatchMode_t(0)), hipFileInvalidValue),
    ] {
        assert_eq!(call(batch, 1, &raw mut entry), expected);
        // Before room is looked at.
        assert_eq!(code(submit(batch, &mut [good, good, entry])), expected);
        assert!(last_text().contains("entry 2: "), "{}", last_text());
    }
    assert_eq!(code(submit(batch, &mut [good, good, good])), hipFileBatchFull);
    fault::inject("hipPointerGetAttributes", When::Every, HipError::UNKNOWN).unwrap();
    let answer = submit(batch, &mut [good]);
    fault::clear();
    assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, HipError::UNKNOWN.0 as i32));
    assert_eq!(poll(batch, 2, 2, None), (hipFileSuccess, vec![]), "nothing was ever accepted");
    ok(submit(batch, &mut [good, good]));
    assert_eq!(poll(batch, 2, 2, None).1, [(1, hipFileComplete, 4096); 2]);
    ok(hipFileDriverClose());
    assert_eq!(code(submit(batch, &mut [good])), hipFileDriverNotInitialized);
}

fn last_text() -> String {
    // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
    let mut info: hipFileExtErrorInfo_t = unsafe { core::mem::zeroed() };
    info.size = size_of_val(&info);
    // SAFETY: `info` is of the size it says.
    ok(unsafe { hipFileExtLastError(&raw mut info) });
    // SAFETY: a C string that lives until the next call.
    unsafe { core::ffi::CStr::from_ptr(info.text) }.to_str().unwrap().to_owned()
}

#[test]
fn texts_name_the_entry_and_the_wrong_value() {
    start();
    let batch = set_up(8).unwrap();
    let device = Device::new(8192, 0);
    let (_file, fh) = registered_file(&[7; 8192]);
    let good = read_entry(fh, &device, 0, 4096, 1);
    let (mut opcode, mut mode, mut stale) = (good, good, good);
    opcode.opcode = hipFileOpcode_t(77);
    mode.mode = hipFileBatchMode_t(78);
    stale.fh = core::ptr::without_provenance_mut(0x7_9079);
    for (bad, word) in [(opcode, "opcode is 77"), (mode, "mode is 78"), (stale, "handle 0x79079")] {
        assert!(code(submit(batch, &mut [good, bad, good])) != hipFileSuccess);
        let text = last_text();
        assert!(text.contains("entry 1: ") && text.contains(word), "{text}");
    }
    let unknown = core::ptr::without_provenance_mut(0x5a5a);
    assert_eq!(code(hipFileBatchIOCancel(unknown)), hipFileInvalidValue);
    assert!(last_text().contains("0x5a5a"), "{}", last_text());
    assert_eq!(set_up(4097), Err(hipFileInvalidValue));
    assert!(last_text().contains("4097"), "{}", last_text());
    hipFileBatchIODestroy(batch);
}

#[test]
fn behaviour_73_status_answers_in_the_order_of_its_checks() {
    start();
    let batch = set_up(4).unwrap();
    let mut event = hipFileIOEvents_t { cookie: core::ptr::null_mut(), status: hipFileInvalid, ret: 0 };
    let mut nr = 1;
    let null = core::ptr::null_mut();
    // SAFETY: NULL is refused, the rest is valid.
    let call = |nr, events| code(unsafe { hipFileBatchIOGetStatus(batch, 0, nr, events, null) });
    assert_eq!(call(&raw mut nr, core::ptr::null_mut()), hipFileInvalidValue);
    assert_eq!(call(core::ptr::null_mut(), &raw mut event), hipFileInvalidValue);
    assert_eq!(poll(batch, 0, 0, None).0, hipFileInvalidValue);
    assert_eq!(poll(batch, 3, 2, None).0, hipFileInvalidValue);
    assert_eq!(poll(batch, 5, 8, None).0, hipFileInvalidValue);
    for time in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
        assert_eq!(poll(batch, 0, 1, Some(time)).0, hipFileInvalidValue);
    }
    assert_eq!(poll(batch, 4, 4, Some((i64::MAX, 999_999_999))), (hipFileSuccess, vec![]));
    assert_eq!(poll(batch, 4, 4, None), (hipFileSuccess, vec![]), "nothing is in flight");
}

#[test]
fn reads_writes_and_failures_give_their_events() {
    start();
    let (file, fh) = registered_file(&[7; 10_000]);
    let (device, batch) = (Device::new(16_384, 9), set_up(8).unwrap());
    let mut write = read_entry(fh, &device, 12_288, 4096, 3);
    write.opcode = hipFileBatchWrite;
    let mut far = write;
    far.u.batch.file_offset = i64::MAX - 4096;
    far.cookie = core::ptr::without_provenance_mut(4);
    let mut entries = [
        read_entry(fh, &device, 0, 4096, 1),
        read_entry(fh, &device, 8192, 4096, 2),
        far,
        read_entry(fh, &device, 0, 0, 5),
    ];
    ok(submit(batch, &mut entries));
    // The array is the caller's again.
    entries.fill(read_entry(core::ptr::null_mut(), &device, 0, 1, 99));
    let (answer, mut events) = poll(batch, 4, 8, None);
    assert_eq!(answer, hipFileSuccess);
    events.sort_unstable_by_key(|event| event.0);
    assert_eq!(events[..2], [(1, hipFileComplete, 4096), (2, hipFileComplete, 10_000 - 8192)]);
    let (_, status, ret) = events[2];
    assert!(
        status == hipFileFailed && [-libc::EFBIG as isize, -libc::EINVAL as isize].contains(&ret),
        "{ret}"
    );
    let last = super::last_error::last();
    assert_eq!((last.function.as_str(), -last.info.os_error as isize), ("hipFileBatchIOGetStatus", ret));
    let offset = (i64::MAX - 4096).to_string();
    assert!(last.text.contains(&offset) && last.text.contains("write"), "{}", last.text);
    assert_eq!(events[3], (5, hipFileComplete, 0));
    ok(submit(batch, &mut [write]));
    assert_eq!(poll(batch, 1, 1, None).1, [(3, hipFileComplete, 4096)]);
    let mut bytes = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 12_288).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 9));
    assert!(device.bytes()[..4096].iter().all(|byte| *byte == 7));
    // An error of the GPU runtime is one code, whatever the runtime said.
    for function in ["hipMemcpy", "hipAmdFileRead"] {
        fault::inject(function, When::Every, HipError::ILLEGAL_ADDRESS).unwrap();
    }
    ok(submit(batch, &mut [read_entry(fh, &device, 0, 4096, 6)]));
    let events = poll(batch, 1, 1, None).1;
    fault::clear();
    assert_eq!(events, [(6, hipFileFailed, -5011)]);
    let last = super::last_error::last();
    assert_eq!(last.info.hip_drv_err, HipError::ILLEGAL_ADDRESS.0 as i32, "{}", last.text);
}

#[test]
fn waits_keep_their_time_and_cancel_leaves_an_event_each() {
    start();
    let (_file, fh) = registered_file(&[7; 65_536]);
    let (device, batch) = (Device::new(65_536, 0), set_up(128).unwrap());
    delay_copies(Duration::from_millis(30));
    let mut entries: Vec<_> = (0..128).map(|n| read_entry(fh, &device, n % 16 * 4096, 4096, n)).collect();
    ok(submit(batch, &mut entries));
    assert_eq!(poll(batch, 1, 8, Some((0, 0))), (hipFileSuccess, vec![]), "a poll does not wait");
    let began = Instant::now();
    // The limit ends the wait and no transfer.
    assert!(poll(batch, 128, 128, Some((0, 1_000_000))).1.iter().all(|event| event.1 == hipFileComplete));
    assert!(began.elapsed() < Duration::from_secs(5));
    ok(hipFileBatchIOCancel(batch));
    let mut seen = HashSet::new();
    loop {
        let (answer, events) = poll(batch, 1, 9, None);
        assert_eq!(answer, hipFileSuccess);
        if events.is_empty() {
            break;
        }
        for (cookie, status, ret) in events {
            assert!(seen.insert(cookie), "one event each");
            assert!((status, ret) == (hipFileComplete, 4096) || (status, ret) == (hipFileCanceled, 0));
        }
    }
    assert!(seen.len() >= 100, "{}", seen.len());
    ok(hipFileBatchIOCancel(batch));
    // Destroyed in flight: it takes as long as what runs.
    ok(submit(batch, &mut entries));
    let began = Instant::now();
    hipFileBatchIODestroy(batch);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(poll(batch, 1, 1, None).0, hipFileInvalidValue);
    fault::clear();
}

#[test]
fn entries_that_do_not_start_in_time_end_with_a_timeout_if_the_parameter_says_so() {
    start();
    ok(hipFileSetParameterSizeT(hipFileParamPropertiesBatchIOTimeoutMs, 20));
    let (_file, fh) = registered_file(&[7; 65_536]);
    let (device, batch) = (Device::new(65_536, 0), set_up(128).unwrap());
    delay_copies(Duration::from_millis(30));
    let mut entries: Vec<_> = (0..128).map(|n| read_entry(fh, &device, n % 16 * 4096, 4096, n)).collect();
    ok(submit(batch, &mut entries));
    let mut seen = HashSet::new();
    let (mut complete, mut late) = (0, 0);
    let began = Instant::now();
    while seen.len() < 128 {
        for (cookie, status, ret) in poll(batch, 1, 128, Some((10, 0))).1 {
            assert!(seen.insert(cookie), "one event each");
            match (status, ret) {
                (status, 4096) if status == hipFileComplete => complete += 1,
                (status, 0) if status == hipFileTimeout => late += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    assert!(complete > 0 && late > 20, "{complete} complete, {late} late");
    fault::clear();
    // What is taken up in time is carried out, and the batch is as good as before.
    ok(submit(batch, &mut entries[..1]));
    assert_eq!(poll(batch, 1, 1, None).1, [(0, hipFileComplete, 4096)]);
    hipFileBatchIODestroy(batch);
    ok(hipFileDriverClose());
}

#[test]
fn behaviour_50_the_driver_is_closed_with_a_batch_in_flight() {
    start();
    let (file, fh) = registered_file(&[7; 65_536]);
    let (device, batch) = (Device::new(65_536, 0), set_up(64).unwrap());
    delay_copies(Duration::from_millis(10));
    let mut entries: Vec<_> = (0..64).map(|n| read_entry(fh, &device, n % 16 * 4096, 4096, n)).collect();
    ok(submit(batch, &mut entries));
    ok(hipFileDriverClose());
    drop(file);
    assert_eq!(code(submit(batch, &mut entries)), hipFileDriverNotInitialized);
    let mut count = 0;
    while count < 64 {
        let (_, events) = poll(batch, 1, 64, None);
        assert!(
            events.iter().all(|(_, status, ret)| (*status, *ret) == (hipFileComplete, 4096)),
            "{events:?}"
        );
        count += events.len();
    }
    fault::clear();
    assert!(device.bytes().iter().all(|byte| *byte == 7));
}

#[test]
fn the_child_of_a_fork_has_batches_of_its_own() {
    start();
    let (file, fh) = registered_file(&[7; 4096]);
    let (device, batch) = (Device::new(4096, 0), set_up(4).unwrap());
    delay_copies(Duration::from_millis(200));
    ok(submit(batch, &mut [read_entry(fh, &device, 0, 4096, 1)]));
    in_child(|| {
        let refused = code(submit(batch, &mut [read_entry(fh, &device, 0, 4096, 2)])) == hipFileDriverClosing
            && poll(batch, 1, 1, None).0 == hipFileDriverClosing
            && code(hipFileBatchIOCancel(batch)) == hipFileDriverClosing;
        hipFileBatchIODestroy(batch);
        let own = set_up(4).unwrap();
        ok(hipFileBatchIOCancel(own));
        let fresh = own != batch && poll(batch, 1, 1, None).0 == hipFileDriverClosing;
        hipFileBatchIODestroy(own);
        refused && fresh && poll(own, 1, 1, None).0 == hipFileInvalidValue
    });
    fault::clear();
    assert_eq!(poll(batch, 1, 1, None).1, [(1, hipFileComplete, 4096)]);
    drop(file);
}
