//! Pinned memory: allocated and registered.

use gpu_sys::hip::{
    HOST_MALLOC_PORTABLE, HOST_REGISTER_PORTABLE, MEMORY_TYPE_HOST, MEMORY_TYPE_UNREGISTERED,
    PointerAttributes,
};

use crate::support::*;

fn type_of(api: &gpu_sys::hip::HipApi, at: *const core::ffi::c_void) -> u32 {
    let mut attributes = PointerAttributes::ZERO;
    ok!((api.hipPointerGetAttributes)(&raw mut attributes, at));
    attributes.memory_type
}

#[test]
fn pinned_memory_is_the_host_s_and_the_device_s() {
    let api = hip();
    let mut at = core::ptr::null_mut();
    ok!((api.hipHostMalloc)(&raw mut at, 10_000, HOST_MALLOC_PORTABLE));
    ok!((api.hipMemset)(at, 3, 10_000));
    // SAFETY: pinned memory of 10,000 bytes, this test's own.
    assert_eq!(unsafe { at.cast::<[u8; 10_000]>().read() }[9_999], 3);
    let mut seen = core::ptr::null_mut();
    ok!((api.hipHostGetDevicePointer)(&raw mut seen, at, 0));
    assert_eq!(seen, at);
    let mut flags = 0;
    ok!(hip_emu::host::hipHostGetFlags(&raw mut flags, at));
    assert_eq!(flags, HOST_MALLOC_PORTABLE);
    gives!(INVALID_VALUE, (api.hipHostFree)(at.wrapping_byte_add(1)));
    ok!((api.hipHostFree)(at));
    gives!(INVALID_VALUE, (api.hipHostFree)(at));
    ok!((api.hipHostFree)(core::ptr::null_mut()));
}

#[test]
fn odd_sizes_and_flags() {
    let api = hip();
    let mut at = core::ptr::without_provenance_mut(8);
    ok!((api.hipHostMalloc)(&raw mut at, 0, 0));
    assert!(at.is_null());
    gives!(INVALID_VALUE, (api.hipHostMalloc)(core::ptr::null_mut(), 8, 0));
    gives!(INVALID_VALUE, (api.hipHostMalloc)(&raw mut at, 8, 0x4000_0000 | 0x8000_0000));
    gives!(INVALID_VALUE, (api.hipHostMalloc)(&raw mut at, 8, 0x100));
    gives!(OUT_OF_MEMORY, (api.hipHostMalloc)(&raw mut at, usize::MAX - 5, 0));
    let device = malloc(api, 16);
    gives!(INVALID_VALUE, (api.hipHostFree)(device));
    gives!(INVALID_VALUE, (api.hipHostGetDevicePointer)(&raw mut at, device, 0));
    free(api, device);
}

#[test]
fn registered_memory_is_pinned_until_it_is_not() {
    let api = hip();
    let mut bytes = vec![0u8; 10_000];
    let at: *mut core::ffi::c_void = bytes.as_mut_ptr().cast();
    assert_eq!(type_of(api, at), MEMORY_TYPE_UNREGISTERED);
    ok!((api.hipHostRegister)(at, 10_000, HOST_REGISTER_PORTABLE));
    assert_eq!(type_of(api, at), MEMORY_TYPE_HOST);
    assert_eq!(type_of(api, at.wrapping_byte_add(9_999)), MEMORY_TYPE_HOST);
    gives!(HOST_MEMORY_ALREADY_REGISTERED, (api.hipHostRegister)(at, 10_000, 0));
    gives!(HOST_MEMORY_ALREADY_REGISTERED, (api.hipHostRegister)(at.wrapping_byte_add(5_000), 10, 0));
    gives!(HOST_MEMORY_NOT_REGISTERED, (api.hipHostUnregister)(at.wrapping_byte_add(1)));
    gives!(INVALID_VALUE, (api.hipFree)(at));
    ok!((api.hipHostUnregister)(at));
    assert_eq!(type_of(api, at), MEMORY_TYPE_UNREGISTERED);
    gives!(HOST_MEMORY_NOT_REGISTERED, (api.hipHostUnregister)(at));
}

#[test]
fn what_is_no_memory_cannot_be_registered() {
    let api = hip();
    let mut bytes = [0u8; 64];
    let at: *mut core::ffi::c_void = bytes.as_mut_ptr().cast();
    gives!(INVALID_VALUE, (api.hipHostRegister)(core::ptr::null_mut(), 10, 0));
    gives!(INVALID_VALUE, (api.hipHostRegister)(at, 0, 0));
    gives!(INVALID_VALUE, (api.hipHostRegister)(at, 64, 0x100));
    gives!(INVALID_VALUE, (api.hipHostRegister)(core::ptr::without_provenance_mut(4096), 4096, 0));
    gives!(INVALID_VALUE, (api.hipHostRegister)(at, usize::MAX, 0));
    let device = malloc(api, 16);
    gives!(INVALID_VALUE, (api.hipHostRegister)(device, 16, 0));
    gives!(INVALID_VALUE, (api.hipHostUnregister)(core::ptr::null_mut()));
    free(api, device);
}
