//! `hipfile_ext.h`.

use core::ffi::CStr;
use core::mem::offset_of;

use super::*;

pub(super) struct Last {
    pub(super) info: hipFileExtErrorInfo_t,
    pub(super) function: String,
    pub(super) text: String,
}

fn string(text: *const core::ffi::c_char) -> String {
    assert!(!text.is_null());
    // SAFETY: the library gave it: a C string that lives until the next call.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

pub(super) fn last() -> Last {
    // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
    let mut info: hipFileExtErrorInfo_t = unsafe { core::mem::zeroed() };
    info.size = size_of_val(&info);
    // SAFETY: `info` is of the size it says.
    ok(unsafe { hipFileExtLastError(&raw mut info) });
    assert_eq!(info.size, size_of_val(&info));
    Last { info, function: string(info.function), text: string(info.text) }
}

#[test]
fn nothing_has_failed_yet() {
    start();
    let last = last();
    assert_eq!((last.info.err, last.info.hip_drv_err, last.info.os_error), (hipFileSuccess, 0, 0));
    assert_eq!((last.function.as_str(), last.text.as_str()), ("", ""));
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn a_status_is_kept_with_its_reason_until_the_next_failure() {
    start();
    assert_eq!(register(-1), Err(hipFileInternalError));
    for _ in 0..2 {
        let last = last();
        assert_eq!((last.info.err, last.info.os_error), (hipFileInternalError, libc::EBADF));
        assert_eq!(last.function, "hipFileHandleRegister");
        assert!(last.text.contains("hipFileHandleRegister") && last.text.contains("EBADF"), "{}", last.text);
        ok(hipFileDriverOpen());
    }
    let device = Device::new(4096, 0);
    assert_eq!(code(hipFileBufDeregister(device.start)), hipFileMemoryNotRegistered);
    let last = last();
    assert_eq!((last.info.err, last.info.os_error), (hipFileMemoryNotRegistered, 0));
    assert_eq!(last.function, "hipFileBufDeregister");
}

#[test]
fn behaviour_88_a_failed_transfer_names_file_offset_size_and_engine() {
    start();
    let device = Device::new(4096, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.bin");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let handle = register(file.as_raw_fd()).unwrap();
    assert_eq!(write(handle, device.start, 512, 1024, 0), (-1, libc::EBADF));
    let last = last();
    assert_eq!(last.info.err, hipFileSuccess, "-1 was returned");
    assert_eq!(last.info.os_error, libc::EBADF);
    assert_eq!(last.function, "hipFileWrite");
    for part in [path.to_str().unwrap(), "1024", "512", "EBADF"] {
        assert!(last.text.contains(part), "no {part} in: {}", last.text);
    }
    assert!(!last.text.contains('\n'));
}

#[test]
fn a_code_of_the_runtime_is_kept() {
    start();
    let device = Device::new(4096, 0);
    hip_emu::fault::inject("hipPointerGetAttributes", hip_emu::fault::When::Every, HipError(999)).unwrap();
    let answer = register_memory(device.start, 4096);
    assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, 999));
    let last = last();
    assert_eq!((last.info.err, last.info.hip_drv_err), (hipFileHipDriverError, 999));
    assert!(last.text.contains("999"), "{}", last.text);
}

#[test]
fn each_thread_has_its_own() {
    start();
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    std::thread::spawn(|| {
        assert_eq!(last().info.err, hipFileSuccess);
        assert_eq!(register(-1), Err(hipFileInternalError));
    })
    .join()
    .unwrap();
    assert_eq!(last().info.err, hipFileDriverNotInitialized);
}

#[test]
fn a_bad_question_is_refused_and_not_kept() {
    start();
    assert_eq!(register(-1), Err(hipFileInternalError));
    // SAFETY: NULL is allowed.
    assert_eq!(code(unsafe { hipFileExtLastError(core::ptr::null_mut()) }), hipFileInvalidValue);
    assert_eq!(last().function, "hipFileHandleRegister");
}

#[test]
fn an_older_programs_structure_is_filled_as_far_as_it_goes() {
    start();
    assert_eq!(register(-1), Err(hipFileInternalError));
    for room in (0..size_of::<hipFileExtErrorInfo_t>()).step_by(8) {
        // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
        let mut info: hipFileExtErrorInfo_t = unsafe { core::mem::zeroed() };
        info.size = room;
        // SAFETY: `info` is at least of the size it says.
        let answer = code(unsafe { hipFileExtLastError(&raw mut info) });
        assert!(info.text.is_null(), "{room}: behind the end");
        if room <= size_of::<usize>() {
            assert_eq!(answer, hipFileInvalidValue, "{room}");
            assert_eq!(info.size, room);
        } else {
            assert_eq!(answer, hipFileSuccess, "{room}");
            assert_eq!(info.size, room);
        }
        if room >= offset_of!(hipFileExtErrorInfo_t, hip_drv_err) {
            assert_eq!(info.err, hipFileInternalError, "{room}");
        }
    }
}

#[test]
fn the_build_tells_its_name_and_what_works() {
    start();
    // SAFETY: all-zero is a value of a structure of numbers and raw pointers.
    let mut info: hipFileExtBuildInfo_t = unsafe { core::mem::zeroed() };
    info.size = size_of_val(&info) + 100;
    // SAFETY: the library fills no more than it knows, which is what `info` holds.
    ok(unsafe { hipFileExtGetBuildInfo(&raw mut info) });
    assert_eq!(info.size, size_of_val(&info));
    assert_eq!(string(info.name), "hipfile (independent implementation)");
    assert_eq!(string(info.version), env!("CARGO_PKG_VERSION"));
    assert_eq!(
        info.features,
        HIPFILE_EXT_FEATURE_SYNC_IO
            | HIPFILE_EXT_FEATURE_STREAM_IO
            | HIPFILE_EXT_FEATURE_BATCH_IO
            | HIPFILE_EXT_FEATURE_STATISTICS
            | HIPFILE_EXT_FEATURE_USERSPACE_FS
    );
    assert_eq!((info.emulation_available, info.reserved), (1, 0));
    // SAFETY: NULL is allowed.
    assert_eq!(code(unsafe { hipFileExtGetBuildInfo(core::ptr::null_mut()) }), hipFileInvalidValue);
    assert_eq!(hipFileUseCount(), 0);
}
