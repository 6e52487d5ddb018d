//! Registering memory, with a runtime that works and with one that fails.

use hip_emu::fault::{self, When};

use super::*;

const LEN: usize = 65536;

fn inject(function: &str, error: u32) {
    fault::inject(function, When::Every, HipError(error)).unwrap();
}

#[test]
fn registering_opens_the_driver_even_if_it_fails() {
    start();
    assert_eq!(code(register_memory(core::ptr::null(), 4096)), hipFileInvalidValue);
    assert_eq!(hipFileUseCount(), 1);
    ok(hipFileDriverClose());
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
}

#[test]
fn a_buffer_is_registered_once() {
    start();
    let device = Device::new(LEN, 0);
    ok(register_memory(device.start, LEN));
    assert_eq!(hipFileUseCount(), 1);
    assert_eq!(code(register_memory(device.start, LEN)), hipFileMemoryAlreadyRegistered);
    assert_eq!(code(register_memory(device.start, 1)), hipFileMemoryAlreadyRegistered);
    assert_eq!(
        code(register_memory(device.start, LEN + 1)),
        hipFileMemoryAlreadyRegistered,
        "known before wrong"
    );
    ok(register_memory(device.at(4096), LEN - 4096));
    ok(hipFileBufDeregister(device.start));
    assert_eq!(code(hipFileBufDeregister(device.start)), hipFileMemoryNotRegistered);
    assert_eq!(code(hipFileBufDeregister(core::ptr::null())), hipFileMemoryNotRegistered);
    ok(register_memory(device.start, LEN));
}

#[test]
fn the_range_must_lie_in_its_allocation() {
    start();
    let device = Device::new(LEN, 0);
    for (start, len) in [
        (device.start, LEN + 1),
        (device.at(4096), LEN),
        (device.at(LEN - 1), 2),
        (device.start, usize::MAX),
        (device.at(1), usize::MAX),
        (device.at(4096), usize::MAX - 4095),
    ] {
        assert_eq!(code(register_memory(start, len)), hipFileHipPointerRangeError, "{len}");
    }
    ok(register_memory(device.at(LEN - 1), 1));
    ok(register_memory(device.at(1), LEN - 2));
}

#[test]
fn a_buffer_without_bytes_can_be_registered_and_not_used() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    ok(register_memory(device.start, 0));
    let invalid = (-(hipFileInvalidValue.0 as isize), MARK);
    assert_eq!(read(handle, device.start, 0, 0, 0), invalid);
    assert_eq!(read(handle, device.start, 1, 0, 0), invalid);
    ok(hipFileBufDeregister(device.start));
    assert_eq!(read(handle, device.start, 1, 0, 0), (1, MARK));
}

#[test]
fn only_device_memory_registers() {
    start();
    let plain = vec![0u8; LEN];
    assert_eq!(code(register_memory(plain.as_ptr().cast(), LEN)), hipFileHipMemoryTypeInvalid);
    let mut pinned = core::ptr::null_mut();
    // SAFETY: `pinned` may be written to.
    let answer = unsafe { (hip_emu::api().hipHostMalloc)(&raw mut pinned, LEN, 0) };
    assert_eq!(answer, HipError::SUCCESS);
    assert_eq!(code(register_memory(pinned, LEN)), hipFileHipMemoryTypeInvalid);
    let mut managed = core::ptr::null_mut();
    // SAFETY: `managed` may be written to.
    let answer = unsafe { (hip_emu::api().hipMallocManaged.unwrap())(&raw mut managed, LEN, 1) };
    assert_eq!(answer, HipError::SUCCESS);
    assert_eq!(code(register_memory(managed, LEN)), hipFileHipMemoryTypeInvalid);
    // The kind is judged before the range.
    assert_eq!(code(register_memory(pinned, usize::MAX)), hipFileHipMemoryTypeInvalid);
}

#[test]
fn errors_of_the_pointer_query_are_passed_on() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    for error in [999, 3, 100, 719] {
        inject("hipPointerGetAttributes", error);
        let answer = register_memory(device.start, LEN);
        assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, error as i32));
        // Unregistered memory is looked up by each call.
        assert_eq!(read(handle, device.start, 10, 0, 0), (-(error as isize), MARK));
        assert_eq!(write(handle, device.start, 10, 0, 0), (-(error as isize), MARK));
        fault::clear();
    }
    ok(register_memory(device.start, LEN));
    inject("hipPointerGetAttributes", 999);
    assert_eq!(read(handle, device.start, 10, 0, 0), (10, MARK), "registered memory needs no query");
}

#[test]
fn errors_of_the_range_query_are_passed_on_or_mean_an_unknown_pointer() {
    start();
    let device = Device::new(LEN, 0);
    // hipErrorInvalidValue is 1, hipErrorNotFound 500.
    for (error, expected) in [(1, hipFileInvalidValue), (500, hipFileInvalidValue)] {
        inject("hipMemGetAddressRange", error);
        assert_eq!(code(register_memory(device.start, LEN)), expected, "{error}");
        fault::clear();
    }
    inject("hipMemGetAddressRange", 999);
    let answer = register_memory(device.start, LEN);
    assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, 999));
}

#[test]
fn a_runtime_without_a_gpu_says_so() {
    start();
    let plain = [0u8; 16];
    inject("hipGetDeviceCount", 100);
    let answer = register_memory(plain.as_ptr().cast(), 16);
    assert_eq!((answer.err, answer.hip_drv_err), (hipFileHipDriverError, 100));
    assert_eq!(hipFileUseCount(), 1);
    // Files need no GPU.
    let (_file, handle) = registered_file(b"x");
    let to = core::ptr::without_provenance_mut(0x1000);
    assert_eq!(read(handle, to, 1, 0, 0), (-100, MARK));
}

#[test]
fn behaviour_41_which_registration_holds_a_range_can_be_asked() {
    start();
    let device = Device::new(1 << 20, 0);
    let ask = |offset: usize, length: usize| {
        let size = size_of::<hipFileExtBufInfo_t>();
        let mut info = hipFileExtBufInfo_t {
            size,
            start: core::ptr::null(),
            length: 0,
            gpu: 77,
            emulated: 77,
            current: 77,
            reserved: 77,
            pieces: 77,
        };
        let start = device.start.wrapping_byte_add(offset);
        // SAFETY: it points to a local variable with its size in it; the memory is only asked about.
        let answer = code(unsafe { hipFileExtBufGetInfo(start, length, &raw mut info) });
        let offset = info.start.addr().wrapping_sub(device.start.addr());
        if answer == hipFileSuccess {
            Ok((offset, info.length, info.gpu, info.emulated))
        } else {
            Err(answer)
        }
    };
    assert_eq!((ask(0, 1), hipFileUseCount()), (Err(hipFileMemoryNotRegistered), 0));
    ok(register_memory(device.start, 1 << 20));
    ok(register_memory(device.start.wrapping_byte_add(4096), 8192));
    assert_eq!(ask(0, 1 << 20), Ok((0, 1 << 20, 0, 1)));
    assert_eq!(ask(5000, 0), Ok((4096, 8192, 0, 1)));
    assert_eq!(ask(5000, 100_000), Ok((0, 1 << 20, 0, 1)), "the one that holds all of it");
    for (offset, length) in [(0, (1 << 20) + 1), (1 << 20, 1), (usize::MAX - 9, 5), (10, usize::MAX)] {
        assert_eq!(ask(offset, length), Err(hipFileMemoryNotRegistered), "{offset} {length}");
    }
    // SAFETY: NULL is allowed.
    let nowhere = unsafe { hipFileExtBufGetInfo(device.start, 1, core::ptr::null_mut()) };
    assert_eq!(code(nowhere), hipFileInvalidValue);
    ok(hipFileBufDeregister(device.start));
    assert_eq!(ask(0, 1), Err(hipFileMemoryNotRegistered));
    assert_eq!(ask(4096, 8192), Ok((4096, 8192, 0, 1)));
}
