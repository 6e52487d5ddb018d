//! HIP behind the device seam, real or emulated: the same code over another table. HIP's own numbers stop here.

mod apart;
mod direct;
mod stream;

use std::ffi::{CStr, c_void};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gpu_sys::hip::{self, AmdFileFn, ExportFn, HipApi, HipError};
use gpu_sys::hip_load::{self, LoadError, LoadOptions};
use gpu_sys::library::Library;

use super::topology::{emulation_note, has_small_window, near_node, text};
use super::{Absence, Device, DeviceInfo, MemoryKind, PeerToPeer, Region, Streams};
use crate::buffer::{DevPtr, Span};
use crate::config::{Config, DeviceChoice, Order};
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug)]
struct Hip {
    api: HipApi,
    version: i32,
    emulated: bool,
    count: u32,
    order: Order,
    /// Whether nothing is asked about the machine's topology.
    skip_topology: bool,
    /// Whether streams are held without memory operations.
    bypass_memops: bool,
    library: Option<Library>,
    /// Whether a blocking copy was refused because some stream is captured.
    sees_captures: AtomicBool,
    /// The memory node near each GPU, looked up at first use.
    nodes: OnceLock<Vec<Option<u32>>>,
    /// Whether storage reaches only a part of the memory of each, looked up when direct access first fails.
    small_windows: OnceLock<Vec<bool>>,
    export: OnceLock<Option<ExportFn>>,
    /// Which GPUs share the processor's memory.
    shared: OnceLock<Vec<bool>>,
    apart: apart::Idle,
    /// `hipAmdFileRead` and `hipAmdFileWrite`, looked up at first use.
    amd_file: OnceLock<Option<(AmdFileFn, AmdFileFn)>>,
}

/// Finds the runtime: the process's own, else one that can be loaded, else (when told to) the built-in emulation.
pub(super) fn open(config: &Config) -> Result<Arc<dyn Device>, Absence> {
    Ok(Arc::new(find(config)?))
}

/// Whether the process has a runtime already, or is told which one to have. Loads nothing.
pub(super) fn is_loaded(config: &Config) -> bool {
    config.hip_library.is_some() || hip_load::is_loaded()
}

/// Whether an error means that a runtime is there and sees no GPU. CUDA's number for it is the same.
pub(super) fn means_no_gpu(error: &Error) -> bool {
    error.kind() == ErrorKind::HipDriverError && error.device_code() == Some(HipError::NO_DEVICE.0 as i32)
}

/// The emulated GPU, and nobody is told that it is one: what lies below a file counts then.
#[cfg(test)]
#[cfg(feature = "emulation")]
pub(crate) fn passed_off_as_real() -> Arc<dyn Device> {
    let config = Config { device: DeviceChoice::Emulated, ..Config::default() };
    let found = find(&config).map(|hip| Hip { emulated: false, ..hip });
    Arc::new(found.expect("the emulation serves"))
}

fn find(config: &Config) -> Result<Hip, Absence> {
    let options = LoadOptions {
        library: config.hip_library.clone(),
        rocm_path: config.rocm_path.clone(),
        // Asked for the emulation, a real runtime that is merely installed must not be drawn into the process.
        only_if_loaded: config.device == DeviceChoice::Emulated && config.hip_library.is_none(),
    };
    let (api, version, emulated, library) = match hip_load::load(&options) {
        Ok(loaded) if config.device == DeviceChoice::Emulated && !loaded.emulated => {
            return Err(Absence::Unfit(Error::message(
                ErrorKind::PlatformNotSupported,
                "open HIP",
                "the emulated GPU was asked for, but the process uses a real HIP runtime",
            )));
        }
        Ok(loaded) => (loaded.api, loaded.version, loaded.emulated, Some(loaded.library)),
        Err(error @ LoadError::NotFound { .. }) => {
            if config.device != DeviceChoice::Emulated {
                return Err(Absence::NotThere(error.to_string()));
            }
            built_in().ok_or_else(|| Absence::NotThere(no_emulation().to_owned()))?
        }
        Err(error) => {
            return Err(Absence::Unfit(Error::message(
                ErrorKind::PlatformNotSupported,
                "open HIP",
                error.to_string(),
            )));
        }
    };
    let order = config.order;
    let mut device = Hip {
        api,
        version,
        emulated,
        count: 0,
        order,
        skip_topology: config.skip_topology,
        bypass_memops: config.bypass_memops,
        library,
        sees_captures: AtomicBool::new(false),
        nodes: OnceLock::new(),
        small_windows: OnceLock::new(),
        export: OnceLock::new(),
        shared: OnceLock::new(),
        apart: apart::Idle::default(),
        amd_file: OnceLock::new(),
    };
    let mut count = 0;
    // SAFETY: `count` is writable; the table's functions have the declared prototypes.
    let counted = device.call("count GPUs", unsafe { (device.api.hipGetDeviceCount)(&raw mut count) });
    counted.map_err(Absence::Unfit)?;
    device.count = u32::try_from(count).unwrap_or(0);
    if device.count == 0 {
        let name = HipError::NO_DEVICE.name().unwrap_or_default();
        let error = Error::device(ErrorKind::HipDriverError, "count GPUs", HipError::NO_DEVICE.0, name);
        return Err(Absence::Unfit(error));
    }
    Ok(device)
}

#[cfg(feature = "emulation")]
fn no_emulation() -> &'static str {
    if hip_emu::is_of_parent() {
        "the emulated GPU was used before a fork, and like every GPU it does not serve the child: spawn it instead"
    } else {
        "the emulated GPU did not start; a HIP_EMU_* variable it cannot understand is the usual cause"
    }
}

#[cfg(not(feature = "emulation"))]
fn no_emulation() -> &'static str {
    "the emulated GPU is not built in"
}

#[cfg(feature = "emulation")]
fn built_in() -> Option<(HipApi, i32, bool, Option<Library>)> {
    let api = *hip_emu::api();
    let mut version = 0;
    // SAFETY: `version` is writable.
    unsafe { (api.hipRuntimeGetVersion)(&raw mut version) }.ok().ok()?;
    Some((api, version, true, None))
}

#[cfg(not(feature = "emulation"))]
fn built_in() -> Option<(HipApi, i32, bool, Option<Library>)> {
    None
}

/// Keeps a GPU current on this thread and puts the caller's back, also on the way out of an error.
struct OnGpu<'a> {
    hip: &'a Hip,
    before: Option<i32>,
}

impl Drop for OnGpu<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: a plain call; the number came from the runtime.
            let _ = unsafe { (self.hip.api.hipSetDevice)(before) };
        }
    }
}

/// While it lives, this thread's calls neither mind nor void captures of other streams, where the call permits.
struct Relaxed<'a> {
    hip: &'a Hip,
    before: Option<hip::StreamCaptureMode>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let (Some(mut before), Some(exchange)) =
            (self.before, self.hip.api.hipThreadExchangeStreamCaptureMode)
        {
            // SAFETY: `before` may be read and written.
            let _ = unsafe { exchange(&raw mut before) };
        }
    }
}

impl Hip {
    fn error(&self, op: &'static str, code: HipError) -> Error {
        let name: std::borrow::Cow<'static, str> = match code.name() {
            Some(name) => name.into(),
            None => self.name_of(code).into(),
        };
        Error::device(ErrorKind::HipDriverError, op, code.0, name)
    }

    fn name_of(&self, code: HipError) -> String {
        // SAFETY: any number may be asked for.
        let name = unsafe { (self.api.hipGetErrorName)(code) };
        if name.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: the runtime answers with a static NUL-terminated string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The result of a runtime call. A failure is taken off the thread's error record, where a host program that
    /// checks its own launches would otherwise find it.
    fn call(&self, op: &'static str, code: HipError) -> Result<()> {
        if code == HipError::SUCCESS {
            return Ok(());
        }
        // SAFETY: a plain call.
        let _ = unsafe { (self.api.hipGetLastError)() };
        Err(self.error(op, code))
    }

    fn check_ordinal(&self, op: &'static str, ordinal: u32) -> Result<()> {
        if ordinal < self.count {
            return Ok(());
        }
        let why = format!("there is no GPU {ordinal}; this process has {}", self.count);
        Err(Error::message(ErrorKind::DeviceNotFound, op, why))
    }

    fn on(&self, ordinal: u32) -> Result<OnGpu<'_>> {
        const OP: &str = "select GPU";
        // With one GPU the current one is always right.
        if self.count == 1 && ordinal == 0 {
            return Ok(OnGpu { hip: self, before: None });
        }
        let mut before = 0;
        // SAFETY: `before` is writable.
        self.call(OP, unsafe { (self.api.hipGetDevice)(&raw mut before) })?;
        if before == ordinal as i32 {
            return Ok(OnGpu { hip: self, before: None });
        }
        // SAFETY: a plain call; a number out of range gives an error.
        self.call(OP, unsafe { (self.api.hipSetDevice)(ordinal as i32) })?;
        Ok(OnGpu { hip: self, before: Some(before) })
    }

    /// What we allocate, pin, load or wait for has nothing to do with what the caller captures.
    fn relaxed(&self) -> Relaxed<'_> {
        let mut mode = hip::STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` may be read and written.
        let exchanged = self.api.hipThreadExchangeStreamCaptureMode.map(|f| unsafe { f(&raw mut mode) });
        Relaxed { hip: self, before: (exchanged == Some(HipError::SUCCESS)).then_some(mode) }
    }

    /// A copy in the order that the setting says, done when it returns.
    ///
    /// # Safety
    /// Both ranges are valid for the call.
    unsafe fn copy(
        &self,
        op: &'static str,
        ordinal: u32,
        to: *mut c_void,
        from: *const c_void,
        len: usize,
        kind: hip::MemcpyKind,
    ) -> Result<()> {
        if self.order == Order::Off {
            // SAFETY: as this function demands.
            return unsafe { self.copy_apart(op, ordinal, to, from, len, kind) };
        }
        self.await_device()?;
        if !self.sees_captures.load(Ordering::Relaxed) {
            // SAFETY: as this function demands.
            let code = unsafe { (self.api.hipMemcpy)(to, from, len, kind) };
            let copied = self.call(op, code);
            if code != HipError::STREAM_CAPTURE_IMPLICIT {
                return copied;
            }
            // A process that captures once will do so again.
            self.sees_captures.store(true, Ordering::Relaxed);
        }
        // No blocking copy is let pass, and each voids the captures; this way does neither.
        let _relaxed = self.relaxed();
        // SAFETY: as this function demands; the legacy default stream is always there.
        let [queued, waited] = unsafe { self.copy_on(std::ptr::null_mut(), op, to, from, len, kind) };
        queued.and(waited)
    }

    fn await_device(&self) -> Result<()> {
        if self.order == Order::Device {
            // SAFETY: a plain call.
            self.call("wait for the GPU", unsafe { (self.api.hipDeviceSynchronize)() })?;
        }
        Ok(())
    }

    fn export_fn(&self) -> Option<ExportFn> {
        *self.export.get_or_init(|| hip_load::lookup_export(&self.api, self.library))
    }

    fn find_nodes(&self) -> Vec<Option<u32>> {
        (0..self.count).map(|ordinal| near_node(&self.info(ordinal).ok()?.pci?)).collect()
    }

    fn info(&self, ordinal: u32) -> Result<DeviceInfo> {
        const OP: &str = "describe GPU";
        let mut name = [0; 256];
        let mut pci = [0; 64];
        let mut uuid = hip::Uuid { bytes: [0; 16] };
        let at = ordinal as i32;
        // SAFETY: the array is as long as said.
        self.call(OP, unsafe { (self.api.hipDeviceGetName)(name.as_mut_ptr(), name.len() as i32, at) })?;
        // SAFETY: the array is as long as said.
        let pci_known = unsafe { (self.api.hipDeviceGetPCIBusId)(pci.as_mut_ptr(), pci.len() as i32, at) };
        let pci_known = self.call(OP, pci_known).is_ok();
        // SAFETY: `uuid` is writable.
        let uuid_known = unsafe { (self.api.hipDeviceGetUuid)(&raw mut uuid, at) };
        let _ = self.call(OP, uuid_known);
        let name = text(&name);
        Ok(DeviceInfo {
            ordinal,
            emulation_note: emulation_note(&name).filter(|_| self.emulated),
            name,
            runtime: self.name(),
            runtime_version: version_text(self.version),
            emulated: self.emulated,
            uuid: uuid.bytes.map(|b| b as u8),
            pci: pci_known.then(|| text(&pci)),
        })
    }
}

/// `hipRuntimeGetVersion` counts major * 10^7 + minor * 10^5 + patch.
fn version_text(version: i32) -> String {
    format!("{}.{}", version / 10_000_000, version / 100_000 % 100)
}

impl Device for Hip {
    fn name(&self) -> &'static str {
        "hip"
    }

    fn is_emulated(&self) -> bool {
        self.emulated
    }

    fn locate(&self, at: DevPtr) -> Result<Option<Region>> {
        const OP: &str = "look up pointer";
        let mut found = hip::PointerAttributes::ZERO;
        // SAFETY: `found` is writable; the pointer is a number to the runtime.
        let code =
            unsafe { (self.api.hipPointerGetAttributes)(&raw mut found, std::ptr::without_provenance(at.0)) };
        if code == HipError::INVALID_VALUE {
            let _ = self.call(OP, code);
            return Err(Error::message(
                ErrorKind::InvalidValue,
                OP,
                format!("the GPU runtime does not know {:#x}", at.0),
            ));
        }
        self.call(OP, code)?;
        let kind = match found.memory_type {
            hip::MEMORY_TYPE_UNREGISTERED => return Ok(None),
            hip::MEMORY_TYPE_DEVICE if found.is_managed == 0 => MemoryKind::Device,
            hip::MEMORY_TYPE_DEVICE | hip::MEMORY_TYPE_MANAGED => MemoryKind::Managed,
            hip::MEMORY_TYPE_HOST => MemoryKind::Host,
            _ => MemoryKind::Other,
        };
        Ok(Some(Region { kind, ordinal: u32::try_from(found.device).unwrap_or(0) }))
    }

    fn allocation(&self, at: DevPtr) -> Result<(usize, usize)> {
        const OP: &str = "look up allocation";
        let (mut base, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: both are writable; the pointer is a number to the runtime.
        let code = unsafe {
            (self.api.hipMemGetAddressRange)(
                &raw mut base,
                &raw mut len,
                std::ptr::without_provenance_mut(at.0),
            )
        };
        if matches!(code, HipError::INVALID_VALUE | HipError::NOT_FOUND) {
            let _ = self.call(OP, code);
            return Err(Error::message(
                ErrorKind::InvalidValue,
                OP,
                format!("{:#x} lies in no allocation", at.0),
            ));
        }
        self.call(OP, code)?;
        Ok((base.addr(), len))
    }

    fn allocation_id(&self, at: DevPtr) -> Option<u64> {
        // 32 bits are written, by some versions 64.
        let mut id = 0_u64;
        let at = std::ptr::without_provenance_mut(at.0);
        let attribute = hip::POINTER_ATTRIBUTE_BUFFER_ID;
        // SAFETY: there is room for the id in either size; the pointer is a number to the runtime.
        let code = unsafe { (self.api.hipPointerGetAttribute)((&raw mut id).cast(), attribute, at) };
        self.call("look up allocation", code).ok().map(|()| id)
    }

    fn is_mapping(&self, at: DevPtr) -> bool {
        let (Some(retain), Some(release)) = (self.api.hipMemRetainAllocationHandle, self.api.hipMemRelease)
        else {
            return false;
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is writable; the pointer is a number to the runtime.
        let code = unsafe { retain(&raw mut handle, std::ptr::without_provenance_mut(at.0)) };
        if self.call("look up mapping", code).is_err() {
            return false;
        }
        // SAFETY: the handle was just retained.
        let _ = self.call("look up mapping", unsafe { release(handle) });
        true
    }

    fn alloc(&self, ordinal: u32, len: usize) -> Result<DevPtr> {
        self.check_ordinal("allocate", ordinal)?;
        let _on = self.on(ordinal)?;
        let _relaxed = self.relaxed();
        let mut at = std::ptr::null_mut();
        // SAFETY: `at` is writable.
        self.call("allocate", unsafe { (self.api.hipMalloc)(&raw mut at, len) })?;
        Ok(DevPtr::from(at))
    }

    fn free(&self, ordinal: u32, at: DevPtr) -> Result<()> {
        let _on = self.on(ordinal)?;
        let _relaxed = self.relaxed();
        // SAFETY: the caller gives an address of `alloc`, once.
        self.call("free", unsafe { (self.api.hipFree)(std::ptr::without_provenance_mut(at.0)) })
    }

    fn pin(&self, start: *mut u8, len: usize) -> Result<()> {
        let flags = hip::HOST_REGISTER_PORTABLE | hip::HOST_REGISTER_MAPPED;
        let _relaxed = self.relaxed();
        // SAFETY: the pool owns the range and keeps it mapped until it is unpinned.
        self.call("pin staging memory", unsafe { (self.api.hipHostRegister)(start.cast(), len, flags) })
    }

    fn unpin(&self, start: *mut u8) -> Result<()> {
        let _relaxed = self.relaxed();
        // SAFETY: the pool gives a range it pinned.
        self.call("unpin staging memory", unsafe { (self.api.hipHostUnregister)(start.cast()) })
    }

    fn node(&self, ordinal: u32) -> Option<u32> {
        if self.skip_topology {
            return None;
        }
        *self.nodes.get_or_init(|| self.find_nodes()).get(ordinal as usize)?
    }

    fn has_small_window(&self, ordinal: u32) -> bool {
        let look = |at| self.info(at).ok()?.pci.map(|pci| has_small_window(&pci));
        let all = || (0..self.count).map(|at| look(at).unwrap_or(false)).collect::<Vec<_>>();
        !self.skip_topology && self.small_windows.get_or_init(all).get(ordinal as usize) == Some(&true)
    }

    fn shares_memory(&self, ordinal: u32) -> bool {
        let all = self.shared.get_or_init(|| (0..self.count).map(|at| self.is_integrated(at)).collect());
        all.get(ordinal as usize).copied().unwrap_or(false)
    }

    fn settle(&self, ordinal: u32) -> Result<()> {
        let _on = self.on(ordinal)?;
        self.await_work()
    }

    fn upload(&self, to: &Span<'_>, from: &[u8]) -> Result<()> {
        assert_eq!(to.len(), from.len(), "both sides of a copy are equally long");
        let ordinal = to.place().gpu_or_first();
        let _on = self.on(ordinal)?;
        let mut done = 0;
        // The runtime refuses copies that pass from one mapped piece of memory to the next.
        while done < from.len() {
            let piece = to.slice(done, from.len() - done);
            let bytes = &from[done..done + piece.unbroken()];
            let target = std::ptr::without_provenance_mut(piece.start());
            let (source, kind) = (bytes.as_ptr().cast(), hip::MEMCPY_HOST_TO_DEVICE);
            // SAFETY: the span proves the device range, the slice the host range; the call returns when both are done with.
            unsafe { self.copy("copy to the GPU", ordinal, target, source, bytes.len(), kind) }?;
            done += bytes.len();
        }
        Ok(())
    }

    fn download(&self, from: &Span<'_>, to: &mut [u8]) -> Result<()> {
        assert_eq!(from.len(), to.len(), "both sides of a copy are equally long");
        let ordinal = from.place().gpu_or_first();
        let _on = self.on(ordinal)?;
        let mut done = 0;
        // As for uploads.
        while done < to.len() {
            let piece = from.slice(done, to.len() - done);
            let bytes = &mut to[done..done + piece.unbroken()];
            let source = std::ptr::without_provenance(piece.start());
            let (target, kind) = (bytes.as_mut_ptr().cast(), hip::MEMCPY_DEVICE_TO_HOST);
            // SAFETY: the span proves the device range, the slice the host range; the call returns when both are done with.
            unsafe { self.copy("copy from the GPU", ordinal, target, source, bytes.len(), kind) }?;
            done += bytes.len();
        }
        Ok(())
    }

    fn exports(&self) -> bool {
        self.export_fn().is_some()
    }

    fn export(&self, ordinal: u32, start: usize, len: usize) -> Result<Option<OwnedFd>> {
        let Some(export) = self.export_fn() else { return Ok(None) };
        let _on = self.on(ordinal)?;
        let mut fd: i32 = -1;
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: there is room for a descriptor; the range is a number to the runtime.
        let code = unsafe { export((&raw mut fd).cast(), at, len, hip::RANGE_HANDLE_DMA_BUF_FD, 0) };
        self.call("export GPU memory", code)?;
        // SAFETY: the runtime gave it to us to close.
        Ok((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn p2p(&self) -> Option<&dyn PeerToPeer> {
        self.amd_file().map(|_| self as &dyn PeerToPeer)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        self.api.hipModuleLaunchKernel.map(|_| self as &dyn Streams)
    }

    fn list(&self) -> Result<Vec<DeviceInfo>> {
        (0..self.count).map(|ordinal| self.info(ordinal)).collect()
    }
}

#[cfg(test)]
#[cfg(feature = "emulation")]
mod tests {
    use super::*;

    #[test]
    fn the_topology_can_be_left_alone() {
        for (skip_topology, node) in [(false, Some(3)), (true, None)] {
            let config = Config { device: DeviceChoice::Emulated, skip_topology, ..Config::default() };
            let device = Hip { nodes: OnceLock::from(vec![Some(3)]), ..find(&config).unwrap() };
            assert_eq!(device.node(0), node);
        }
    }
}
