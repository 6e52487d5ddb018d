//! Operations on streams: codes and their order, registrations, what arrives in the caller's variables. The bytes are the
//! business of the core's own tests.

use hip_emu::fault::{self, When};

use super::*;

const LEN: usize = 65536;
const NULL: hipStream_t = core::ptr::null_mut();

/// The variables of an operation.
struct Variables {
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
    bytes: isize,
}

impl Variables {
    fn new(size: usize, file_offset: hoff_t, buffer_offset: hoff_t) -> Variables {
        Variables { size, file_offset, buffer_offset, bytes: 77 }
    }

    fn read(&mut self, fh: hipFileHandle_t, buffer: *mut c_void) -> hipFileError_t {
        let (size, bytes) = (&raw mut self.size, &raw mut self.bytes);
        let (at, offset) = (&raw mut self.file_offset, &raw mut self.buffer_offset);
        // SAFETY: the tests wait for the stream before the variables go.
        unsafe { hipFileReadAsync(fh, buffer, size, at, offset, bytes, NULL) }
    }
}

fn wait() {
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipStreamSynchronize)(core::ptr::null_mut()) }, HipError::SUCCESS);
}

#[test]
fn a_closed_driver_is_opened_and_the_call_refused() {
    start();
    let mut one = Variables::new(1, 0, 0);
    assert_eq!(code(one.read(core::ptr::null_mut(), core::ptr::null_mut())), hipFileInvalidValue);
    assert_eq!((hipFileUseCount(), one.bytes), (1, 77));
}

#[test]
fn the_checks_of_an_operation_come_in_order() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    let (host, unknown) = ([0u8; 16], core::ptr::null_mut());
    let host: *mut c_void = host.as_ptr().cast_mut().cast();
    let mut bad = Variables::new(LEN + 1, -1, -1);
    // SAFETY: null is what is refused.
    let nulls = unsafe {
        let null = core::ptr::null_mut();
        hipFileReadAsync(
            handle,
            device.start,
            null,
            core::ptr::null_mut(),
            core::ptr::null_mut(),
            &raw mut bad.bytes,
            NULL,
        )
    };
    assert_eq!(code(nulls), hipFileInvalidValue);
    assert_eq!(code(bad.read(unknown, core::ptr::null_mut())), hipFileInvalidValue);
    assert_eq!(code(bad.read(unknown, host)), hipFileHandleNotRegistered);
    assert_eq!(code(bad.read(handle, host)), hipFileInternalError);
    for (size, file_offset, buffer_offset) in [(LEN + 1, 0, 0), (1, -1, 0), (1, 0, -1), (0, 0, LEN as hoff_t)]
    {
        let mut wrong = Variables::new(size, file_offset, buffer_offset);
        assert_eq!(code(wrong.read(handle, device.start)), hipFileInvalidValue);
        assert_eq!(wrong.bytes, 77, "a refused call leaves it");
    }
    let mut none = Variables::new(0, 0, 0);
    ok(none.read(handle, device.start));
    assert_eq!(none.bytes, 0);
    let mut some = Variables::new(100, 4, 9);
    ok(some.read(handle, device.start));
    wait();
    assert_eq!(some.bytes, 6);
    assert_eq!(&device.bytes()[9..15], b"456789");
}

#[test]
fn behaviour_82_a_result_is_a_count_or_minus_one_or_a_code() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(&[7; LEN]);
    let mut one = Variables::new(4096, 0, 0);
    for (errno, expected) in [(libc::EIO, -1), (libc::ENODEV, 4096)] {
        fault::inject("hipAmdFileRead", When::Every, hip_emu::fault::Fault::Status(errno)).unwrap();
        ok(one.read(handle, device.start));
        wait();
        let direct = fault::calls("hipAmdFileRead") > 0;
        fault::clear();
        assert_eq!(one.bytes, if direct { expected } else { 4096 }, "{errno}");
    }
}

#[test]
fn registrations_are_the_process_s() {
    start();
    assert_eq!(code(hipFileStreamDeregister(NULL)), hipFileInvalidValue);
    // SAFETY: the default stream.
    let register = |flags| unsafe { hipFileStreamRegister(NULL, flags) };
    assert_eq!(code(register(0x10)), hipFileInvalidValue);
    ok(register(0xf));
    assert_eq!(hipFileUseCount(), 0, "no driver is opened");
    assert_eq!(code(register(0xf)), hipFileInvalidValue);
    ok(hipFileDriverOpen());
    ok(hipFileDriverClose());
    assert_eq!(code(register(0)), hipFileInvalidValue, "closing leaves it");
    ok(hipFileStreamDeregister(NULL));
    ok(register(0));
    let mut stream = core::ptr::null_mut();
    // SAFETY: `stream` is writable.
    let made = unsafe { (hip_emu::api().hipStreamCreateWithFlags)(&raw mut stream, 1) };
    assert_eq!(made, HipError::SUCCESS);
    // SAFETY: the handle is not used again but as a number.
    assert_eq!(unsafe { (hip_emu::api().hipStreamDestroy)(stream) }, HipError::SUCCESS);
    // SAFETY: the emulation knows that the stream is gone.
    let gone = unsafe { hipFileStreamRegister(stream.cast(), 0) };
    assert_eq!(gone.err, hipFileHipDriverError);
    assert_ne!(gone.hip_drv_err, hipSuccess);
}
