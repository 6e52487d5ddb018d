//! What the runtime says pointers are.

use core::ffi::c_void;

use gpu_sys::hip::{
    DevicePtr, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, MEMORY_TYPE_MANAGED, MEMORY_TYPE_UNREGISTERED,
    PointerAttributes,
};

use crate::support::*;

fn attributes(api: &gpu_sys::hip::HipApi, at: *const c_void) -> PointerAttributes {
    let mut attributes = PointerAttributes { device: 77, ..PointerAttributes::ZERO };
    ok!((api.hipPointerGetAttributes)(&raw mut attributes, at));
    attributes
}

#[test]
fn every_kind_is_told_apart() {
    let api = hip();
    let device = malloc(api, 4096);
    let found = attributes(api, device.wrapping_byte_add(100));
    assert_eq!((found.memory_type, found.device), (MEMORY_TYPE_DEVICE, current(api)));
    assert_eq!(
        (found.device_pointer, found.host_pointer),
        (device.wrapping_byte_add(100), core::ptr::null_mut())
    );

    let host: *mut c_void = pinned(api, 100).as_mut_ptr().cast();
    let found = attributes(api, host.wrapping_byte_add(99));
    assert_eq!((found.memory_type, found.host_pointer), (MEMORY_TYPE_HOST, host.wrapping_byte_add(99)));

    let mut managed = core::ptr::null_mut();
    ok!(api.hipMallocManaged.unwrap()(&raw mut managed, 100, 1));
    let found = attributes(api, managed);
    assert_eq!((found.memory_type, found.is_managed), (MEMORY_TYPE_MANAGED, 1));

    let local = 0u8;
    let found = attributes(api, (&raw const local).cast());
    assert_eq!((found.memory_type, found.device), (MEMORY_TYPE_UNREGISTERED, -2));
    assert!(found.device_pointer.is_null());

    free(api, device);
    assert_eq!(attributes(api, device).memory_type, MEMORY_TYPE_UNREGISTERED);
}

#[test]
fn null_is_unregistered_in_seven_and_an_error_in_six() {
    let api = hip();
    assert_eq!(attributes(api, core::ptr::null()).memory_type, MEMORY_TYPE_UNREGISTERED);
    gives!(INVALID_VALUE, (api.hipPointerGetAttributes)(core::ptr::null_mut(), core::ptr::null()));
    child_passes("pointers::child_of_version_six", &[("HIP_EMU_VERSION", "6.2")]);
}

#[test]
#[ignore = "needs a runtime of another version: run by null_is_unregistered_in_seven_and_an_error_in_six"]
fn child_of_version_six() {
    let api = hip_emu::api();
    let mut found = PointerAttributes::ZERO;
    gives!(INVALID_VALUE, (api.hipPointerGetAttributes)(&raw mut found, core::ptr::null()));
    let mut version = 0;
    ok!((api.hipRuntimeGetVersion)(&raw mut version));
    assert_eq!(version, 60_200_000);
    // Before HIP 7.0 success replaced the last error.
    gives!(INVALID_VALUE, (api.hipMalloc)(core::ptr::null_mut(), 1));
    ok!((api.hipSetDevice)(0));
    ok!((api.hipGetLastError)());
}

#[test]
fn single_attributes() {
    let api = hip();
    let at = malloc(api, 5000);
    let inside = at.wrapping_byte_add(4000);
    let mut value = [0u64; 1];
    let data: *mut c_void = value.as_mut_ptr().cast();
    let mut ask = |attribute| {
        value[0] = 0;
        ok!((api.hipPointerGetAttribute)(data, attribute, inside));
        value[0]
    };
    assert_eq!(ask(2), u64::from(MEMORY_TYPE_DEVICE));
    assert_eq!(ask(3), inside.addr() as u64);
    assert_eq!(ask(8), 0);
    assert_eq!(ask(9), current(api) as u64);
    assert_eq!(ask(11), at.addr() as u64);
    assert_eq!(ask(12), 5000);
    assert_eq!(ask(13), 1);
    gives!(INVALID_VALUE, (api.hipPointerGetAttribute)(data, 4, inside));
    gives!(NOT_SUPPORTED, (api.hipPointerGetAttribute)(data, 5, inside));
    gives!(INVALID_VALUE, (api.hipPointerGetAttribute)(data, 99, inside));
    gives!(INVALID_VALUE, (api.hipPointerGetAttribute)(core::ptr::null_mut(), 2, inside));
    gives!(INVALID_VALUE, (api.hipPointerGetAttribute)(data, 2, core::ptr::null_mut()));
    gives!(INVALID_VALUE, (api.hipPointerGetAttribute)(data, 7, data));
    free(api, at);
}

#[test]
fn the_range_of_an_allocation() {
    let api = hip();
    let at = malloc(api, 5000);
    let (mut base, mut size): (DevicePtr, usize) = (core::ptr::null_mut(), 0);
    ok!((api.hipMemGetAddressRange)(&raw mut base, &raw mut size, at.wrapping_byte_add(4999)));
    assert_eq!((base, size), (at, 5000));
    gives!(NOT_FOUND, (api.hipMemGetAddressRange)(&raw mut base, &raw mut size, at.wrapping_byte_add(5000)));
    gives!(INVALID_VALUE, (api.hipMemGetAddressRange)(core::ptr::null_mut(), &raw mut size, at));
    free(api, at);
    gives!(NOT_FOUND, (api.hipMemGetAddressRange)(&raw mut base, &raw mut size, at));
    let mut local = 0u8;
    gives!(NOT_FOUND, (api.hipMemGetAddressRange)(&raw mut base, &raw mut size, (&raw mut local).cast()));
}
