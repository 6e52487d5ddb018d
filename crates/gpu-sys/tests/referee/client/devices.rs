//! Devices and errors: what the runtime says of itself.

use core::ffi::{CStr, c_char};

use cubecl_hip_sys::*;
use gpu_sys::hip::HipError;

use super::{DeviceMemory, hip, in_client, ok, pattern};

fn text(read: impl FnOnce(*mut c_char, i32)) -> String {
    let mut bytes = [b'?' as c_char; 128];
    read(bytes.as_mut_ptr(), 128);
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn the_version_is_that_of_the_newest_bindings() {
    in_client("client::devices::the_version_is_that_of_the_newest_bindings", &[], || {
        let (mut runtime, mut driver) = (0, 0);
        ok!(hipRuntimeGetVersion(&raw mut runtime));
        ok!(hipDriverGetVersion(&raw mut driver));
        assert_eq!((runtime, driver), (71_460_850, 71_460_850));
        ok!(hipInit(0));
    });
}

#[test]
fn each_device_has_a_name_of_its_own() {
    in_client("client::devices::each_device_has_a_name_of_its_own", &[("HIP_EMU_DEVICES", "3")], || {
        let mut count = 0;
        ok!(hipGetDeviceCount(&raw mut count));
        assert_eq!(count, 3);
        let mut seen = std::collections::BTreeSet::new();
        for device in 0..3 {
            let name = text(|at, len| ok!(hipDeviceGetName(at, len, device)));
            assert!(name.contains("mulated"), "{name} does not say what it is");
            let bus = text(|at, len| ok!(hipDeviceGetPCIBusId(at, len, device)));
            let mut uuid = hipUUID { bytes: [0; 16] };
            ok!(hipDeviceGetUuid(&raw mut uuid, device));
            assert!(seen.insert(bus.clone()) && seen.insert(format!("{:?}", uuid.bytes)));

            let number = |attribute| {
                let mut value = -1;
                ok!(hipDeviceGetAttribute(&raw mut value, attribute, device));
                value
            };
            let pci = format!(
                "{:04x}:{:02x}:{:02x}.0",
                number(hipDeviceAttribute_t_hipDeviceAttributePciDomainID),
                number(hipDeviceAttribute_t_hipDeviceAttributePciBusId),
                number(hipDeviceAttribute_t_hipDeviceAttributePciDeviceId),
            );
            assert_eq!(bus, pci);
            assert_eq!(number(hipDeviceAttribute_t_hipDeviceAttributeIntegrated), 0);
            assert_eq!(number(hipDeviceAttribute_t_hipDeviceAttributeCanUseStreamWaitValue), 1);
            assert_eq!(number(hipDeviceAttribute_t_hipDeviceAttributeHostRegisterSupported), 1);

            let mut found = -1;
            let c_bus = std::ffi::CString::new(bus).unwrap();
            ok!(hipDeviceGetByPCIBusId(&raw mut found, c_bus.as_ptr()));
            assert_eq!(found, device);
        }
        let mut value = 0;
        let code =
            hip!(hipDeviceGetAttribute(&raw mut value, hipDeviceAttribute_t_hipDeviceAttributeIntegrated, 3));
        assert_eq!(HipError(code), HipError::INVALID_DEVICE);
    });
}

#[test]
fn properties_agree_with_attributes() {
    in_client("client::devices::properties_agree_with_attributes", &[("HIP_EMU_DEVICES", "2")], || {
        let mut properties = core::mem::MaybeUninit::<hipDeviceProp_tR0600>::uninit();
        ok!(hipGetDevicePropertiesR0600(properties.as_mut_ptr(), 1));
        // SAFETY: the call succeeded, so it has filled the structure.
        let properties = unsafe { properties.assume_init() };
        let name: Vec<u8> = properties.name.iter().map(|byte| *byte as u8).collect();
        let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
        assert_eq!(name, text(|at, len| ok!(hipDeviceGetName(at, len, 1))));
        assert_eq!(properties.totalGlobalMem, 1 << 30);
        let mut total = 0;
        ok!(hipDeviceTotalMem(&raw mut total, 1));
        assert_eq!(total, 1 << 30);
        let mut uuid = hipUUID { bytes: [0; 16] };
        ok!(hipDeviceGetUuid(&raw mut uuid, 1));
        assert_eq!(properties.uuid.bytes, uuid.bytes);
        for (value, attribute) in [
            (properties.warpSize, hipDeviceAttribute_t_hipDeviceAttributeWarpSize),
            (properties.maxThreadsPerBlock, hipDeviceAttribute_t_hipDeviceAttributeMaxThreadsPerBlock),
            (properties.multiProcessorCount, hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount),
            (properties.pciBusID, hipDeviceAttribute_t_hipDeviceAttributePciBusId),
            (properties.integrated, hipDeviceAttribute_t_hipDeviceAttributeIntegrated),
            (properties.hostRegisterSupported, hipDeviceAttribute_t_hipDeviceAttributeHostRegisterSupported),
            (properties.isLargeBar, hipDeviceAttribute_t_hipDeviceAttributeIsLargeBar),
        ] {
            let mut answer = -1;
            ok!(hipDeviceGetAttribute(&raw mut answer, attribute, 1));
            assert_eq!(value, answer, "attribute {attribute}");
        }
    });
}

#[test]
fn the_current_device_is_the_threads_own() {
    in_client("client::devices::the_current_device_is_the_threads_own", &[("HIP_EMU_DEVICES", "2")], || {
        let current = || {
            let mut device = -1;
            ok!(hipGetDevice(&raw mut device));
            device
        };
        assert_eq!(current(), 0);
        ok!(hipSetDevice(1));
        assert_eq!(current(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(current(), 0));
        });
        assert_eq!(HipError(hip!(hipSetDevice(2))), HipError::INVALID_DEVICE);
        assert_eq!(HipError(hip!(hipSetDevice(-1))), HipError::INVALID_DEVICE);
        assert_eq!(current(), 1);

        // Memory belongs to the device that was current; a copy between two needs no other call.
        let there = DeviceMemory::new(5000);
        ok!(hipSetDevice(0));
        let here = DeviceMemory::new(5000);
        let sent = pattern(5000, 4);
        there.write(&sent);
        ok!(hipMemcpyPeer(here.at, 0, there.at, 1, 5000));
        assert!(here.bytes() == sent);
    });
}

#[test]
fn no_device_is_said_so() {
    in_client("client::devices::no_device_is_said_so", &[("HIP_EMU_DEVICES", "0")], || {
        let mut count = 9;
        assert_eq!(HipError(hip!(hipGetDeviceCount(&raw mut count))), HipError::NO_DEVICE);
        assert_eq!(count, 0);
        let mut version = 0;
        ok!(hipRuntimeGetVersion(&raw mut version));
        let mut at = core::ptr::null_mut();
        assert_eq!(HipError(hip!(hipMalloc(&raw mut at, 4096))), HipError::NO_DEVICE);
    });
}

#[test]
fn errors_have_hips_names() {
    in_client("client::devices::errors_have_hips_names", &[], || {
        let string = |at: *const c_char| {
            assert!(!at.is_null());
            // SAFETY: the runtime's texts are static and end in NUL.
            unsafe { CStr::from_ptr(at) }.to_str().unwrap().to_owned()
        };
        for (code, name) in HipError::NAMED {
            assert_eq!(string(hip!(hipGetErrorName(code.0))), *name);
            assert!(!string(hip!(hipGetErrorString(code.0))).is_empty(), "{name}");
            let mut text = core::ptr::null();
            ok!(hipDrvGetErrorName(code.0, &raw mut text));
            assert_eq!(string(text), *name);
        }
        assert_eq!(string(hip!(hipGetErrorName(123_456))), "hipErrorUnknown");
    });
}

#[test]
fn a_fault_comes_when_it_was_ordered() {
    let fault = [("HIP_EMU_FAULT", "hipMalloc:2:hipErrorOutOfMemory")];
    in_client("client::devices::a_fault_comes_when_it_was_ordered", &fault, || {
        let mut at = core::ptr::null_mut();
        ok!(hipMalloc(&raw mut at, 4096));
        assert_eq!(HipError(hip!(hipMalloc(&raw mut at, 4096))), HipError::OUT_OF_MEMORY);
        ok!(hipMalloc(&raw mut at, 4096));
    });
}
