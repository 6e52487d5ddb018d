//! Devices: how many, which is current, what they are like.

use core::ffi::{c_char, c_int, c_uint};

use gpu_sys::hip::{
    ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE, ATTRIBUTE_HOST_REGISTER_SUPPORTED, ATTRIBUTE_INTEGRATED,
    ATTRIBUTE_PCI_BUS_ID, ATTRIBUTE_PCI_DEVICE_ID, ATTRIBUTE_PCI_DOMAIN_ID, DeviceAttribute, DeviceOrdinal,
    HipError, Uuid,
};

use crate::call::{call, put, put_text, text};
use crate::capture;
use crate::function::Function;
use crate::lock::lock;
use crate::state::{Device, State};
use crate::stream::PRIORITIES;
use crate::thread;
use crate::types::DeviceProperties;

/// The PCI bus of device 0; the others follow.
const FIRST_BUS: c_int = 0xE0;
/// Compute capability that is reported: of no real GPU.
const CAPABILITY: (c_int, c_int) = (0, 0);
const WARP: c_int = 64;
const MULTIPROCESSORS: c_int = 1;
const THREADS_PER_BLOCK: c_int = 1024;
const SHARED_PER_BLOCK: c_int = 64 << 10;
const CLOCK_KHZ: c_int = 1_000_000;
/// Room for a PCI bus id and its NUL.
const PCI_ID_LEN: c_int = 13;

/// What `hipDeviceGetAttribute` answers, but for what differs between devices. Attributes that are not listed are
/// hipErrorInvalidValue: a client that needs one shows up.
const ATTRIBUTES: &[(DeviceAttribute, c_int)] = &[
    (0, 0),                                   // EccEnabled
    (2, 2),                                   // AsyncEngineCount
    (3, 1),                                   // CanMapHostMemory
    (4, 0),                                   // CanUseHostPointerForRegisteredMem
    (5, CLOCK_KHZ),                           // ClockRate
    (6, 0),                                   // ComputeMode
    (8, 1),                                   // ConcurrentKernels
    (9, 0),                                   // ConcurrentManagedAccess
    (10, 0),                                  // CooperativeLaunch
    (ATTRIBUTE_INTEGRATED, 0),                //
    (19, 4 << 20),                            // L2CacheSize
    (23, CAPABILITY.0),                       // ComputeCapabilityMajor
    (24, 1),                                  // ManagedMemory
    (26, THREADS_PER_BLOCK),                  // MaxBlockDimX
    (27, THREADS_PER_BLOCK),                  // MaxBlockDimY
    (28, THREADS_PER_BLOCK),                  // MaxBlockDimZ
    (29, c_int::MAX),                         // MaxGridDimX
    (30, 65_535),                             // MaxGridDimY
    (31, 65_535),                             // MaxGridDimZ
    (56, THREADS_PER_BLOCK),                  // MaxThreadsPerBlock
    (59, 256),                                // MemoryBusWidth
    (60, CLOCK_KHZ),                          // MemoryClockRate
    (61, CAPABILITY.1),                       // ComputeCapabilityMinor
    (63, MULTIPROCESSORS),                    // MultiprocessorCount
    (65, 0),                                  // PageableMemoryAccess
    (ATTRIBUTE_PCI_DEVICE_ID, 0),             //
    (ATTRIBUTE_PCI_DOMAIN_ID, 0),             //
    (74, SHARED_PER_BLOCK),                   // MaxSharedMemoryPerBlock
    (85, 1),                                  // UnifiedAddressing
    (87, WARP),                               // WarpSize
    (88, 0),                                  // MemoryPoolsSupported
    (ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),   //
    (10_011, 0),                              // IsLargeBar
    (ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE, 1), //
];

impl Device {
    /// What it calls itself. That it is emulated, and whether it moves bytes at all, is part of the name.
    fn name(&self) -> String {
        let note = if self.link.is_some() { " (timed link: bytes are not moved)" } else { "" };
        format!("Emulated GPU {}{note}", self.ordinal)
    }

    fn bus(&self) -> c_int {
        FIRST_BUS + self.ordinal as c_int
    }

    fn pci_id(&self) -> String {
        format!("0000:{:02x}:00.0", self.bus())
    }

    /// Sixteen characters, as AMD's are.
    fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(format!("emulated{:08x}", self.ordinal).bytes()) {
            *to = from as c_char;
        }
        Uuid { bytes }
    }
}

/// Whether copies between pinned and device memory only take time and move nothing. Then nothing that is read back means
/// anything, and only durations do.
pub fn is_timed_link() -> bool {
    crate::state::get().is_ok_and(|state| state.options.link.is_some())
}

unsafe fn version_call(state: &State, version: *mut c_int) -> Result<(), HipError> {
    // SAFETY: this function's callers vouch for `version`.
    unsafe { put(version, state.options.version) }
}

/// Makes the runtime ready. Every other function does that too.
///
/// # Errors
/// hipErrorInvalidValue for flags, hipErrorNoDevice without devices.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipInit(flags: c_uint) -> HipError {
    call(Function::hipInit, |state| {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        state.current().map(drop)
    })
}

/// The runtime's version: major * 10,000,000 + minor * 100,000 + patch. Works without devices.
///
/// # Safety
/// `version` is null or may be written to.
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipRuntimeGetVersion, |state| unsafe { version_call(state, version) })
}

/// The driver's version, in HIP the same as the runtime's.
///
/// # Safety
/// `version` is null or may be written to.
pub unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipDriverGetVersion, |state| unsafe { version_call(state, version) })
}

/// How many devices there are; hipErrorNoDevice, and 0, when none.
///
/// # Safety
/// `count` is null or may be written to.
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> HipError {
    call(Function::hipGetDeviceCount, |state| {
        // SAFETY: as this function demands.
        unsafe { put(count, state.devices.len() as c_int) }?;
        state.current().map(drop)
    })
}

/// The ordinal of this thread's current device.
///
/// # Safety
/// `device` is null or may be written to.
pub unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> HipError {
    call(Function::hipGetDevice, |state| {
        let current = state.current()?.ordinal;
        // SAFETY: as this function demands.
        unsafe { put(device, current as c_int) }
    })
}

/// Makes a device current for this thread.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipSetDevice(device: c_int) -> HipError {
    call(Function::hipSetDevice, |state| {
        state.current()?;
        let ordinal = state.device(device)?.ordinal;
        thread::with(|thread| thread.device.set(ordinal));
        Ok(())
    })
}

/// The handle of a device: its ordinal.
///
/// # Safety
/// `device` is null or may be written to.
pub unsafe extern "C" fn hipDeviceGet(device: *mut DeviceOrdinal, ordinal: c_int) -> HipError {
    call(Function::hipDeviceGet, |state| {
        let found = state.device(ordinal)?.ordinal;
        // SAFETY: as this function demands.
        unsafe { put(device, found as DeviceOrdinal) }
    })
}

/// A number about a device.
///
/// # Errors
/// hipErrorInvalidValue for null and for attributes the emulation has no answer to, hipErrorInvalidDevice.
///
/// # Safety
/// `value` is null or may be written to.
pub unsafe extern "C" fn hipDeviceGetAttribute(
    value: *mut c_int,
    attribute: DeviceAttribute,
    device: c_int,
) -> HipError {
    call(Function::hipDeviceGetAttribute, |state| {
        let device = state.device(device)?;
        let answer = match attribute {
            ATTRIBUTE_PCI_BUS_ID => device.bus(),
            ATTRIBUTE_INTEGRATED => state.options.integrated.into(),
            _ => ATTRIBUTES
                .iter()
                .find(|(known, _)| *known == attribute)
                .map(|(_, value)| *value)
                .ok_or(HipError::INVALID_VALUE)?,
        };
        // SAFETY: as this function demands.
        unsafe { put(value, answer) }
    })
}

/// A device's name, cut to `len` bytes with its NUL.
///
/// # Safety
/// `name` is null or has `len` bytes.
pub unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, len: c_int, device: DeviceOrdinal) -> HipError {
    call(Function::hipDeviceGetName, |state| {
        let full = state.device(device)?.name();
        let room = usize::try_from(len).ok().filter(|room| *room > 0).ok_or(HipError::INVALID_VALUE)?;
        let cut = full.get(..room - 1).unwrap_or(&full);
        // SAFETY: as this function demands.
        unsafe { put_text(name, len, cut) }
    })
}

/// A device's PCI address as text; needs 13 bytes.
///
/// # Safety
/// `id` is null or has `len` bytes.
pub unsafe extern "C" fn hipDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) -> HipError {
    call(Function::hipDeviceGetPCIBusId, |state| {
        let device = state.device(device)?;
        if len < PCI_ID_LEN {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        unsafe { put_text(id, len, &device.pci_id()) }
    })
}

/// The device at a PCI address.
///
/// # Safety
/// `device` is null or may be written to; `id` is null or a NUL-terminated string.
pub unsafe extern "C" fn hipDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) -> HipError {
    call(Function::hipDeviceGetByPCIBusId, |state| {
        // SAFETY: as this function demands.
        let id = unsafe { text(id) }?.to_string_lossy().to_ascii_lowercase();
        let found =
            state.devices.iter().find(|device| device.pci_id() == id).ok_or(HipError::INVALID_VALUE)?;
        // SAFETY: as this function demands.
        unsafe { put(device, found.ordinal as c_int) }
    })
}

/// Sixteen bytes that name a device: the same in every process.
///
/// # Safety
/// `uuid` is null or may be written to.
pub unsafe extern "C" fn hipDeviceGetUuid(uuid: *mut Uuid, device: DeviceOrdinal) -> HipError {
    call(Function::hipDeviceGetUuid, |state| {
        let found = state.device(device)?.uuid();
        // SAFETY: as this function demands.
        unsafe { put(uuid, found) }
    })
}

/// Bytes of memory a device has.
///
/// # Safety
/// `bytes` is null or may be written to.
pub unsafe extern "C" fn hipDeviceTotalMem(bytes: *mut usize, device: DeviceOrdinal) -> HipError {
    call(Function::hipDeviceTotalMem, |state| {
        let total = state.device(device)?.arena.room().1;
        // SAFETY: as this function demands.
        unsafe { put(bytes, total) }
    })
}

/// A device's compute capability: 0.0, of no real GPU.
///
/// # Safety
/// `major` and `minor` are null or may be written to.
pub unsafe extern "C" fn hipDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    device: DeviceOrdinal,
) -> HipError {
    call(Function::hipDeviceComputeCapability, |state| {
        state.device(device)?;
        // SAFETY: as this function demands.
        unsafe { put(major, CAPABILITY.0) }?;
        // SAFETY: as this function demands.
        unsafe { put(minor, CAPABILITY.1) }
    })
}

/// Waits for all work of the current device.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipDeviceSynchronize() -> HipError {
    call(Function::hipDeviceSynchronize, |state| {
        capture::refuse_device_wait(state)?;
        state.current()?.drain();
        Ok(())
    })
}

/// All properties of a device at once; those that mean nothing here are 0.
///
/// # Safety
/// `properties` is null or may be written to.
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(
    properties: *mut DeviceProperties,
    device: c_int,
) -> HipError {
    call(Function::hipGetDevicePropertiesR0600, |state| {
        let device = state.device(device)?;
        if properties.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let mut filled = DeviceProperties::zeroed();
        fill_text(&mut filled.name, &device.name());
        fill_text(&mut filled.gcnArchName, "gfx000");
        filled.uuid = device.uuid();
        filled.totalGlobalMem = device.arena.room().1;
        filled.sharedMemPerBlock = SHARED_PER_BLOCK as usize;
        filled.maxSharedMemoryPerMultiProcessor = SHARED_PER_BLOCK as usize;
        filled.warpSize = WARP;
        filled.maxThreadsPerBlock = THREADS_PER_BLOCK;
        filled.maxThreadsDim = [THREADS_PER_BLOCK; 3];
        filled.maxThreadsPerMultiProcessor = THREADS_PER_BLOCK;
        filled.maxGridSize = [c_int::MAX, 65_535, 65_535];
        filled.clockRate = CLOCK_KHZ;
        filled.clockInstructionRate = CLOCK_KHZ;
        filled.memoryClockRate = CLOCK_KHZ;
        filled.memoryBusWidth = 256;
        filled.l2CacheSize = 4 << 20;
        filled.major = CAPABILITY.0;
        filled.minor = CAPABILITY.1;
        filled.multiProcessorCount = MULTIPROCESSORS;
        filled.canMapHostMemory = 1;
        filled.concurrentKernels = 1;
        filled.asyncEngineCount = 2;
        filled.deviceOverlap = 1;
        filled.unifiedAddressing = 1;
        filled.managedMemory = 1;
        filled.hostRegisterSupported = 1;
        filled.pciBusID = device.bus();
        // SAFETY: as this function demands.
        unsafe { put(properties, filled) }
    })
}

fn fill_text(to: &mut [c_char; 256], text: &str) {
    for (to, from) in to.iter_mut().zip(text.bytes().take(255)) {
        *to = from as c_char;
    }
}

/// Whether a device can use a peer's memory: every other device's.
///
/// # Safety
/// `can` is null or may be written to.
pub unsafe extern "C" fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> HipError {
    call(Function::hipDeviceCanAccessPeer, |state| {
        let different = state.device(device)?.ordinal != state.device(peer)?.ordinal;
        // SAFETY: as this function demands.
        unsafe { put(can, different.into()) }
    })
}

/// Lets the current device use a peer's memory. Nothing here depends on it, but it can be done only once.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> HipError {
    call(Function::hipDeviceEnablePeerAccess, |state| {
        let (device, peer) = (state.current()?, state.device(peer)?.ordinal);
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        if device.ordinal == peer {
            return Err(HipError::INVALID_DEVICE);
        }
        let mut peers = lock(&device.peers);
        if peers.contains(&peer) {
            return Err(HipError::PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(peer);
        Ok(())
    })
}

/// Takes back [`hipDeviceEnablePeerAccess`].
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipDeviceDisablePeerAccess(peer: c_int) -> HipError {
    call(Function::hipDeviceDisablePeerAccess, |state| {
        let (device, peer) = (state.current()?, state.device(peer)?.ordinal);
        let mut peers = lock(&device.peers);
        let at = peers.iter().position(|known| *known == peer).ok_or(HipError::PEER_ACCESS_NOT_ENABLED)?;
        peers.remove(at);
        Ok(())
    })
}

/// The range of stream priorities, the least urgent first.
///
/// # Safety
/// Each pointer is null or may be written to.
pub unsafe extern "C" fn hipDeviceGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> HipError {
    call(Function::hipDeviceGetStreamPriorityRange, |_| {
        for (to, value) in [(least, PRIORITIES.0), (greatest, PRIORITIES.1)] {
            if !to.is_null() {
                // SAFETY: as this function demands.
                unsafe { put(to, value) }?;
            }
        }
        Ok(())
    })
}
