//! CUDA behind the device seam, by its driver API. CUDA's own numbers stop here.
//!
//! Everything is done in primary contexts, the ones that CUDA's runtime uses too. They are retained when a GPU is first
//! used, and never released.

mod context;
mod copy;
mod direct;
mod stream;

use std::ffi::{CStr, c_void};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use gpu_sys::cuda::{self, CudaApi, CudaError};
use gpu_sys::cuda_load::{self, LoadError};
use gpu_sys::cufile::CufileApi;

use super::topology::{emulation_note, has_small_window, near_node, text};
use super::{Absence, Device, DeviceInfo, DirectFiles, MemoryKind, Region, Streams, UnderWay};
use crate::buffer::{DevPtr, Span};
use crate::config::{Config, DeviceChoice, Order};
use crate::error::{Error, ErrorKind, Result};
use crate::reason::Reason;
use copy::{Channel, Mark, Side};

#[derive(Debug)]
struct Cuda {
    api: CudaApi,
    version: i32,
    emulated: bool,
    gpus: Vec<Gpu>,
    order: Order,
    /// Whether nothing is asked about the machine's topology.
    skip_topology: bool,
    /// Whether streams are held without memory operations.
    bypass_memops: bool,
    /// Whether peers may reach GPU memory without nvidia-fs.
    use_p2p: bool,
    /// Whether the machine has what it takes to reach files past the host, by P2PDMA or not, once that was looked for; and
    /// NVIDIA's library for it, once that was opened.
    files_by_p2pdma: OnceLock<Result<bool, Reason>>,
    files: OnceLock<Result<CufileApi, Reason>>,
    /// Words that streams can wait for and nobody has yet.
    words: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Gpu {
    device: cuda::CudaDevice,
    /// Its primary context, as a number, from its first use on.
    context: OnceLock<usize>,
    /// The memory node near it, looked up at first use.
    node: OnceLock<Option<u32>>,
    /// Whether storage reaches only a part of its memory, looked up when direct access first fails.
    small_window: OnceLock<bool>,
    /// Streams of our own that copy nothing now.
    channels: Mutex<Vec<Channel>>,
    /// Whether it writes words in the order of a stream, looked up when that is first wanted.
    tells: OnceLock<bool>,
    /// Words that it writes behind small copies, those that none waits for now.
    marks: Mutex<Vec<Mark>>,
}

/// Finds the driver: the process's own, else the installed one.
pub(super) fn open(config: &Config) -> Result<Arc<dyn Device>, Absence> {
    if config.device == DeviceChoice::EmulatedCuda {
        return built_in(config);
    }
    let loaded = cuda_load::load(false).map_err(|error| match error {
        LoadError::NotFound(_) => Absence::NotThere(error.to_string()),
        _ => Absence::Unfit(Error::message(ErrorKind::PlatformNotSupported, "open CUDA", error.to_string())),
    })?;
    start(loaded.api, loaded.version, false, config)
        .map(|device| Arc::new(device) as _)
        .map_err(Absence::Unfit)
}

/// Whether the process has the driver already. Loads nothing.
pub(super) fn is_loaded(_config: &Config) -> bool {
    cuda_load::is_loaded()
}

#[cfg(feature = "emulation")]
fn built_in(config: &Config) -> Result<Arc<dyn Device>, Absence> {
    let started = start(*hip_emu::cuda::api(), hip_emu::cuda::VERSION, true, config);
    started.map(|device| Arc::new(device) as _).map_err(Absence::Unfit)
}

#[cfg(not(feature = "emulation"))]
fn built_in(_config: &Config) -> Result<Arc<dyn Device>, Absence> {
    Err(Absence::NotThere("the emulated GPU is not built in".to_owned()))
}

fn start(api: CudaApi, version: i32, emulated: bool, config: &Config) -> Result<Cuda> {
    const OP: &str = "count GPUs";
    let mut device = Cuda {
        api,
        version,
        emulated,
        gpus: Vec::new(),
        order: config.order,
        skip_topology: config.skip_topology,
        bypass_memops: config.bypass_memops,
        use_p2p: config.use_p2p,
        files_by_p2pdma: OnceLock::new(),
        files: OnceLock::new(),
        words: Mutex::default(),
    };
    // SAFETY: a plain call; starting it twice is allowed. It makes no context.
    device.call("start CUDA", unsafe { (api.cuInit)(0) })?;
    let mut count = 0;
    // SAFETY: `count` is writable.
    device.call(OP, unsafe { (api.cuDeviceGetCount)(&raw mut count) })?;
    for ordinal in 0..count {
        let mut handle = 0;
        // SAFETY: `handle` is writable.
        device.call(OP, unsafe { (api.cuDeviceGet)(&raw mut handle, ordinal) })?;
        device.gpus.push(Gpu {
            device: handle,
            context: OnceLock::new(),
            node: OnceLock::new(),
            small_window: OnceLock::new(),
            channels: Mutex::default(),
            tells: OnceLock::new(),
            marks: Mutex::default(),
        });
    }
    if device.gpus.is_empty() {
        device.call(OP, CudaError::NO_DEVICE)?;
    }
    Ok(device)
}

impl Cuda {
    fn error(&self, op: &'static str, code: CudaError) -> Error {
        let name: std::borrow::Cow<'static, str> = match code.name() {
            Some(name) => name.into(),
            None => self.name_of(code).into(),
        };
        Error::device(ErrorKind::HipDriverError, op, code.0, name)
    }

    fn name_of(&self, code: CudaError) -> String {
        let mut name = std::ptr::null();
        // SAFETY: `name` is writable; any number may be asked for.
        let _ = unsafe { (self.api.cuGetErrorName)(code, &raw mut name) };
        if name.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: the driver answers with a static NUL-terminated string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The result of a driver call. The driver keeps no record of a thread's last error, CUDA's runtime has its own.
    fn call(&self, op: &'static str, code: CudaError) -> Result<()> {
        if code == CudaError::SUCCESS { Ok(()) } else { Err(self.error(op, code)) }
    }

    fn gpu(&self, op: &'static str, ordinal: u32) -> Result<&Gpu> {
        self.gpus.get(ordinal as usize).ok_or_else(|| {
            let why = format!("there is no GPU {ordinal}; this process has {}", self.gpus.len());
            Error::message(ErrorKind::DeviceNotFound, op, why)
        })
    }

    /// Asks for facts about an address. Each is left as it is when CUDA does not know the address.
    ///
    /// # Safety
    /// Each place has room for what its attribute is said to be.
    unsafe fn ask<const N: usize>(
        &self,
        op: &'static str,
        at: DevPtr,
        mut attributes: [cuda::PointerAttribute; N],
        mut places: [*mut c_void; N],
    ) -> Result<()> {
        let count = N as u32;
        let mut ask = || {
            let (attributes, places) = (attributes.as_mut_ptr(), places.as_mut_ptr());
            // SAFETY: both arrays have as many elements as said; the rest is the caller's promise.
            unsafe { (self.api.cuPointerGetAttributes)(count, attributes, places, at.0 as u64) }
        };
        let code = match ask() {
            // On a thread without a context.
            CudaError::INVALID_CONTEXT => match self.on_any() {
                Ok(_on) => ask(),
                // No context anywhere, so no memory of one.
                Err(_) => CudaError::SUCCESS,
            },
            code => code,
        };
        self.call(op, code)
    }

    fn info(&self, ordinal: u32) -> Result<DeviceInfo> {
        const OP: &str = "describe GPU";
        let device = self.gpu(OP, ordinal)?.device;
        let mut name = [0; 256];
        let mut pci = [0; 64];
        let mut uuid = cuda::Uuid { bytes: [0; 16] };
        // SAFETY: the array is as long as said.
        self.call(OP, unsafe { (self.api.cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32, device) })?;
        // SAFETY: the array is as long as said.
        let pci_known = unsafe { (self.api.cuDeviceGetPCIBusId)(pci.as_mut_ptr(), pci.len() as i32, device) };
        // SAFETY: `uuid` is writable. Without one it stays zero.
        let _ = unsafe { (self.api.cuDeviceGetUuid_v2)(&raw mut uuid, device) };
        let name = text(&name);
        Ok(DeviceInfo {
            ordinal,
            emulation_note: emulation_note(&name).filter(|_| self.emulated),
            name,
            runtime: self.name(),
            runtime_version: version_text(self.version),
            emulated: self.emulated,
            uuid: uuid.bytes.map(|b| b as u8),
            pci: (pci_known == CudaError::SUCCESS).then(|| text(&pci)),
        })
    }
}

/// `cuDriverGetVersion` counts major * 1000 + minor * 10.
fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl Device for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn is_emulated(&self) -> bool {
        self.emulated
    }

    fn locate(&self, at: DevPtr) -> Result<Option<Region>> {
        let (mut kind, mut ordinal): (cuda::MemoryType, i32) = (0, -1);
        // Longer than a truth is said to be by anybody.
        let mut managed = 0_u64;
        let attributes = [
            cuda::POINTER_ATTRIBUTE_MEMORY_TYPE,
            cuda::POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            cuda::POINTER_ATTRIBUTE_IS_MANAGED,
        ];
        let places = [(&raw mut kind).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
        // SAFETY: an unsigned int, an int and a truth.
        unsafe { self.ask("look up pointer", at, attributes, places) }?;
        let kind = match kind {
            0 => return Ok(None),
            cuda::MEMORY_TYPE_DEVICE if managed == 0 => MemoryKind::Device,
            cuda::MEMORY_TYPE_DEVICE | cuda::MEMORY_TYPE_UNIFIED => MemoryKind::Managed,
            cuda::MEMORY_TYPE_HOST if managed == 0 => MemoryKind::Host,
            cuda::MEMORY_TYPE_HOST => MemoryKind::Managed,
            _ => MemoryKind::Other,
        };
        let ordinal = u32::try_from(ordinal).unwrap_or(0);
        if kind == MemoryKind::Device {
            // What is pinned for it from now on is pinned in its context.
            self.context("look up pointer", ordinal)?;
        }
        Ok(Some(Region { kind, ordinal }))
    }

    fn allocation(&self, at: DevPtr) -> Result<(usize, usize)> {
        const OP: &str = "look up allocation";
        let (mut base, mut len): (cuda::DevicePtr, usize) = (0, 0);
        // Not cuMemGetAddressRange: of reserved addresses it tells the one mapping around the address, and memory that
        // grows by mapping piece after piece is one range to its owner.
        let attributes = [cuda::POINTER_ATTRIBUTE_RANGE_START_ADDR, cuda::POINTER_ATTRIBUTE_RANGE_SIZE];
        let places = [(&raw mut base).cast(), (&raw mut len).cast()];
        // SAFETY: a device address and a size_t.
        unsafe { self.ask(OP, at, attributes, places) }?;
        if len == 0 {
            let why = format!("{:#x} lies in no allocation", at.0);
            return Err(Error::message(ErrorKind::InvalidValue, OP, why));
        }
        Ok((base as usize, len))
    }

    fn allocation_id(&self, at: DevPtr) -> Option<u64> {
        let mut id = 0_u64;
        // SAFETY: the id is an unsigned long long.
        unsafe {
            self.ask("look up allocation", at, [cuda::POINTER_ATTRIBUTE_BUFFER_ID], [(&raw mut id).cast()])
        }
        .ok()?;
        // Of memory that it does not know the driver says 0.
        (id != 0).then_some(id)
    }

    fn alloc(&self, ordinal: u32, len: usize) -> Result<DevPtr> {
        let _on = self.on("allocate", ordinal)?;
        let _relaxed = self.relaxed();
        let mut at = 0;
        // SAFETY: `at` is writable.
        self.call("allocate", unsafe { (self.api.cuMemAlloc_v2)(&raw mut at, len) })?;
        Ok(DevPtr(at as usize))
    }

    fn free(&self, ordinal: u32, at: DevPtr) -> Result<()> {
        let _on = self.on("free", ordinal)?;
        let _relaxed = self.relaxed();
        // SAFETY: the caller gives an address of `alloc`, once.
        self.call("free", unsafe { (self.api.cuMemFree_v2)(at.0 as u64) })
    }

    fn pin(&self, start: *mut u8, len: usize) -> Result<()> {
        const OP: &str = "pin staging memory";
        // For all contexts, but it belongs to one and goes with it: never to one that the caller made.
        let _on = self.on_any()?;
        let _relaxed = self.relaxed();
        let flags = cuda::MEM_HOST_REGISTER_PORTABLE | cuda::MEM_HOST_REGISTER_DEVICE_MAP;
        // SAFETY: the pool owns the range and keeps it mapped until it is unpinned.
        self.call(OP, unsafe { (self.api.cuMemHostRegister_v2)(start.cast(), len, flags) })
    }

    fn unpin(&self, start: *mut u8) -> Result<()> {
        const OP: &str = "unpin staging memory";
        let _on = self.on_any()?;
        let _relaxed = self.relaxed();
        // SAFETY: the pool gives a range it pinned.
        self.call(OP, unsafe { (self.api.cuMemHostUnregister)(start.cast()) })
    }

    fn node(&self, ordinal: u32) -> Option<u32> {
        if self.skip_topology {
            return None;
        }
        let gpu = self.gpus.get(ordinal as usize)?;
        *gpu.node.get_or_init(|| near_node(&self.info(ordinal).ok()?.pci?))
    }

    fn has_small_window(&self, ordinal: u32) -> bool {
        let look = || self.info(ordinal).ok()?.pci.map(|pci| has_small_window(&pci));
        let gpu = self.gpus.get(ordinal as usize).filter(|_| !self.skip_topology);
        gpu.is_some_and(|gpu| *gpu.small_window.get_or_init(|| look().unwrap_or(false)))
    }

    fn upload(&self, to: &Span<'_>, from: &[u8]) -> Result<()> {
        assert_eq!(to.len(), from.len(), "both sides of a copy are equally long");
        let ordinal = to.place().gpu_or_first();
        // SAFETY: the span proves the device range, the slice the host range; the call returns when both are done with.
        unsafe {
            self.copy(
                "copy to the GPU",
                ordinal,
                to.start(),
                Side::Source(from.as_ptr()),
                from.len(),
                &mut || {},
            )
        }
    }

    fn plain_max(&self) -> usize {
        copy::PLAIN
    }

    fn upload_many(&self, pieces: &[(Span<'_>, &[u8])]) -> Result<()> {
        match pieces {
            [] => Ok(()),
            [(to, from)] => self.upload(to, from),
            [(first, _), ..] => {
                let alike = pieces.iter().all(|(to, from)| to.len() == from.len());
                assert!(alike, "both sides of a copy are equally long");
                let ordinal = first.place().gpu_or_first();
                // SAFETY: the spans prove the device ranges, the slices the host ranges; all is waited for here.
                Box::new(unsafe { self.uploading(ordinal, pieces) }?).wait()
            }
        }
    }

    fn copies_later(&self) -> bool {
        true
    }

    unsafe fn upload_later<'d>(
        &'d self,
        to: &Span<'_>,
        from: &[u8],
    ) -> Result<Option<Box<dyn UnderWay + 'd>>> {
        assert_eq!(to.len(), from.len(), "both sides of a copy are equally long");
        if to.len() <= copy::SMALL {
            return self.upload(to, from).map(|()| None);
        }
        // SAFETY: the span proves the device range, the slice the host range; that they stay is the caller's promise.
        let uploading = unsafe { self.uploading(to.place().gpu_or_first(), &[(*to, from)]) }?;
        Ok(Some(Box::new(uploading)))
    }

    fn download(&self, from: &Span<'_>, to: &mut [u8]) -> Result<()> {
        self.download_beside(from, to, &mut || {})
    }

    fn download_beside(&self, from: &Span<'_>, to: &mut [u8], meanwhile: &mut dyn FnMut()) -> Result<()> {
        assert_eq!(from.len(), to.len(), "both sides of a copy are equally long");
        let ordinal = from.place().gpu_or_first();
        let (at, len) = (from.start(), to.len());
        // SAFETY: the span proves the device range, the slice the host range; the call returns when both are done with.
        unsafe { self.copy("copy from the GPU", ordinal, at, Side::Target(to.as_mut_ptr()), len, meanwhile) }
    }

    fn exports(&self) -> bool {
        self.api.cuMemGetHandleForAddressRange.is_some()
    }

    fn export(&self, ordinal: u32, start: usize, len: usize) -> Result<Option<OwnedFd>> {
        const OP: &str = "export GPU memory";
        let Some(export) = self.api.cuMemGetHandleForAddressRange else { return Ok(None) };
        let mut supported = 0;
        let device = self.gpu(OP, ordinal)?.device;
        // SAFETY: `supported` is writable.
        let asked = unsafe {
            (self.api.cuDeviceGetAttribute)(&raw mut supported, cuda::ATTRIBUTE_DMA_BUF_SUPPORTED, device)
        };
        if asked != CudaError::SUCCESS || supported == 0 {
            return Ok(None);
        }
        let _on = self.on(OP, ordinal)?;
        let (mut fd, kind): (i32, _) = (-1, cuda::MEM_RANGE_HANDLE_DMA_BUF_FD);
        // SAFETY: there is room for a descriptor; the range is a number to the driver.
        let code = unsafe { export((&raw mut fd).cast(), start as cuda::DevicePtr, len, kind, 0) };
        self.call(OP, code)?;
        // SAFETY: the driver gave it to us to close.
        Ok((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn direct_files(&self) -> Option<&dyn DirectFiles> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn list(&self) -> Result<Vec<DeviceInfo>> {
        (0..self.gpus.len() as u32).map(|ordinal| self.info(ordinal)).collect()
    }
}
