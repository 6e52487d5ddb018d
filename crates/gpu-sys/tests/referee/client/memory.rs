//! Memory of all types, what the runtime says about it, and every kind of copy.

use core::ffi::c_void;

use cubecl_hip_sys::*;
use gpu_sys::hip::HipError;

use super::{DeviceMemory, hip, in_client, ok, pattern};

fn attributes(ptr: *const c_void) -> hipPointerAttribute_t {
    let mut attributes = hipPointerAttribute_t {
        type_: 99,
        device: 99,
        devicePointer: core::ptr::null_mut(),
        hostPointer: core::ptr::null_mut(),
        isManaged: 99,
        allocationFlags: 99,
    };
    ok!(hipPointerGetAttributes(&raw mut attributes, ptr));
    attributes
}

#[test]
fn bytes_survive_every_kind_of_copy() {
    in_client("client::memory::bytes_survive_every_kind_of_copy", &[], || {
        for len in [1, 511, 4096, 4097, 1 << 20, (8 << 20) + 3] {
            let sent = pattern(len, 7);
            let (a, b) = (DeviceMemory::new(len), DeviceMemory::new(len));
            a.write(&sent);
            ok!(hipMemcpy(b.at, a.at, len, hipMemcpyKind_hipMemcpyDeviceToDevice));
            assert!(b.bytes() == sent, "device to device, {len} bytes");

            let mut back = vec![0; len];
            ok!(hipMemcpy(back.as_mut_ptr().cast(), b.at, len, hipMemcpyKind_hipMemcpyDefault));
            assert!(back == sent, "default out, {len} bytes");
            let other = pattern(len, 90);
            ok!(hipMemcpy(a.at, other.as_ptr().cast(), len, hipMemcpyKind_hipMemcpyDefault));
            ok!(hipMemcpyDtoD(b.at, a.at, len));
            ok!(hipMemcpyDtoH(back.as_mut_ptr().cast(), b.at, len));
            assert!(back == other, "default in, {len} bytes");
            ok!(hipMemcpy(
                back.as_mut_ptr().cast(),
                sent.as_ptr().cast(),
                len,
                hipMemcpyKind_hipMemcpyHostToHost
            ));
            assert!(back == sent, "host to host, {len} bytes");
        }
    });
}

#[test]
fn a_copy_touches_its_range_and_nothing_beside() {
    in_client("client::memory::a_copy_touches_its_range_and_nothing_beside", &[], || {
        let memory = DeviceMemory::new(3 * 4096);
        ok!(hipMemset(memory.at, 0xAB, memory.len));
        let sent = pattern(1000, 3);
        ok!(hipMemcpy(memory.plus(5000), sent.as_ptr().cast(), 1000, hipMemcpyKind_hipMemcpyHostToDevice));
        ok!(hipMemset(memory.plus(8000), 0x1CD, 7));
        let mut expected = vec![0xAB; memory.len];
        expected[5000..6000].copy_from_slice(&sent);
        expected[8000..8007].fill(0xCD);
        assert!(memory.bytes() == expected);

        ok!(hipMemsetD32(memory.plus(4096), 0x0403_0201, 3));
        ok!(hipMemsetD8(memory.plus(0), 9, 2));
        expected[4096..4108].copy_from_slice(&[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
        expected[..2].fill(9);
        assert!(memory.bytes() == expected);
    });
}

#[test]
fn pointers_are_described() {
    in_client("client::memory::pointers_are_described", &[], || {
        let memory = DeviceMemory::new(10_000);
        for offset in [0, 1, 4096, 9_999] {
            let inside = memory.plus(offset);
            let found = attributes(inside);
            assert_eq!(
                (found.type_, found.device, found.isManaged),
                (hipMemoryType_hipMemoryTypeDevice, 0, 0)
            );
            assert_eq!((found.devicePointer, found.hostPointer), (inside, core::ptr::null_mut()));

            let (mut base, mut size) = (core::ptr::null_mut(), 0);
            ok!(hipMemGetAddressRange(&raw mut base, &raw mut size, inside));
            assert_eq!((base, size), (memory.at, 10_000));
        }

        let mut pinned = core::ptr::null_mut();
        ok!(hipHostMalloc(&raw mut pinned, 8192, hipHostMallocPortable));
        let found = attributes(pinned.wrapping_byte_add(100));
        assert_eq!((found.type_, found.isManaged), (hipMemoryType_hipMemoryTypeHost, 0));
        assert_eq!(found.hostPointer, pinned.wrapping_byte_add(100));
        let mut flags = 0;
        ok!(hipHostGetFlags(&raw mut flags, pinned));
        assert_eq!(flags & hipHostMallocPortable, hipHostMallocPortable);
        ok!(hipHostFree(pinned));
        assert_eq!(attributes(pinned).type_, hipMemoryType_hipMemoryTypeUnregistered);

        let mut managed = core::ptr::null_mut();
        ok!(hipMallocManaged(&raw mut managed, 4096, hipMemAttachGlobal));
        let found = attributes(managed);
        assert_eq!((found.type_, found.isManaged), (hipMemoryType_hipMemoryTypeManaged, 1));
        assert_eq!((found.devicePointer, found.hostPointer), (managed, managed));
        ok!(hipFree(managed));

        // ROCm 6 and newer describe memory of no concern instead of failing.
        let plain = 5_u64;
        let found = attributes((&raw const plain).cast());
        assert_eq!(found.type_, hipMemoryType_hipMemoryTypeUnregistered);
        assert_eq!((found.devicePointer, found.hostPointer), (core::ptr::null_mut(), core::ptr::null_mut()));
    });
}

#[test]
fn buffer_ids_are_never_given_twice() {
    in_client("client::memory::buffer_ids_are_never_given_twice", &[], || {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let memory = DeviceMemory::new(4096);
            let mut ids = [0_u64; 2];
            for (id, offset) in ids.iter_mut().zip([0, 4095]) {
                let attribute = hipPointer_attribute_HIP_POINTER_ATTRIBUTE_BUFFER_ID;
                ok!(hipPointerGetAttribute((&raw mut *id).cast(), attribute, memory.plus(offset)));
            }
            assert_eq!(ids[0], ids[1]);
            assert!(seen.insert(ids[0]), "{} was given twice", ids[0]);
        }
    });
}

#[test]
fn the_callers_own_memory_can_be_pinned() {
    in_client("client::memory::the_callers_own_memory_can_be_pinned", &[], || {
        let mut own = vec![7_u8; 64 << 10];
        let at = own.as_mut_ptr().cast::<c_void>();
        ok!(hipHostRegister(at, own.len(), hipHostRegisterPortable | hipHostRegisterMapped));
        assert_eq!(attributes(at).type_, hipMemoryType_hipMemoryTypeHost);
        let again = hip!(hipHostRegister(at, own.len(), hipHostRegisterDefault));
        assert_eq!(HipError(again), HipError::HOST_MEMORY_ALREADY_REGISTERED);
        let mut seen = core::ptr::null_mut();
        ok!(hipHostGetDevicePointer(&raw mut seen, at, 0));
        assert_eq!(seen, at);

        let memory = DeviceMemory::new(own.len());
        ok!(hipMemcpy(memory.at, at, own.len(), hipMemcpyKind_hipMemcpyHostToDevice));
        assert!(memory.bytes() == own);
        ok!(hipHostUnregister(at));
        assert_eq!(HipError(hip!(hipHostUnregister(at))), HipError::HOST_MEMORY_NOT_REGISTERED);
        assert_eq!(attributes(at).type_, hipMemoryType_hipMemoryTypeUnregistered);
    });
}

#[test]
fn misuse_is_answered_by_a_code() {
    in_client("client::memory::misuse_is_answered_by_a_code", &[], || {
        let memory = DeviceMemory::new(4096);
        let mut sink = [0_u8; 8192];
        let sink = sink.as_mut_ptr().cast::<c_void>();
        let mut out = core::ptr::null_mut();
        let null = core::ptr::null_mut();
        let out_of_host = hipMemcpyKind_hipMemcpyDeviceToHost;
        let invalid = HipError::INVALID_VALUE;
        assert_eq!(HipError(hip!(hipMalloc(core::ptr::null_mut(), 1))), invalid);
        assert_eq!(HipError(hip!(hipMalloc(&raw mut out, 1 << 45))), HipError::OUT_OF_MEMORY);
        assert_eq!(HipError(hip!(hipFree(memory.plus(1)))), invalid);
        assert_eq!(HipError(hip!(hipFree(sink))), invalid);
        ok!(hipFree(null));
        assert_ne!(HipError(hip!(hipMemcpy(sink, memory.at, 4097, out_of_host))), HipError::SUCCESS);
        assert_ne!(HipError(hip!(hipMemcpy(sink, memory.plus(4090), 7, out_of_host))), HipError::SUCCESS);
        assert_ne!(HipError(hip!(hipMemset(memory.plus(4000), 0, 97))), HipError::SUCCESS);
        assert_eq!(HipError(hip!(hipMemcpy(null, memory.at, 1, out_of_host))), invalid);
        assert_eq!(HipError(hip!(hipMemcpy(sink, memory.at, 1, 77))), HipError::INVALID_MEMCPY_DIRECTION);
        assert_eq!(HipError(hip!(hipPointerGetAttributes(core::ptr::null_mut(), memory.at))), invalid);
        ok!(hipMemcpy(sink, memory.at, 0, out_of_host));

        // An error stays to be asked for, once.
        assert_ne!(hip!(hipFree(sink)), 0);
        assert_eq!(HipError(hip!(hipPeekAtLastError())), invalid);
        assert_eq!(HipError(hip!(hipGetLastError())), invalid);
        assert_eq!(HipError(hip!(hipGetLastError())), HipError::SUCCESS);
    });
}

#[test]
fn memory_is_finite_and_comes_back() {
    in_client("client::memory::memory_is_finite_and_comes_back", &[], || {
        let room = || {
            let (mut free, mut total) = (0, 0);
            ok!(hipMemGetInfo(&raw mut free, &raw mut total));
            assert_eq!(total, 1 << 30);
            free
        };
        let at_first = room();
        let mut held = Vec::new();
        let full = loop {
            let mut at = core::ptr::null_mut();
            match HipError(hip!(hipMalloc(&raw mut at, 64 << 20))) {
                HipError::SUCCESS => held.push(at),
                code => break code,
            }
            assert!(held.len() <= 16, "more than there is");
        };
        assert_eq!(full, HipError::OUT_OF_MEMORY);
        assert!(held.len() >= 14, "{} blocks of 64 MiB", held.len());
        for at in held {
            ok!(hipFree(at));
        }
        assert_eq!(room(), at_first);
    });
}
