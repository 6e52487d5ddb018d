//! A GPU runtime as the core sees it, and the list of those it knows. A device never sees a file or a registry.
//!
//! To add a runtime: its table in `gpu-sys`, a file here, one line in [`DEVICES`], one row in the behaviour suite.

mod cuda;
mod hip;
mod topology;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::buffer::{DevPtr, Span};
use crate::config::{Config, DeviceChoice};
use crate::error::{Error, ErrorKind, Result};
use crate::log;
use crate::notice;
use crate::reason::Reason;
#[cfg(test)]
#[cfg(feature = "emulation")]
pub(crate) use hip::passed_off_as_real;

/// What the runtime says a pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// Memory of one GPU.
    Device,
    /// Host memory the runtime knows.
    Host,
    /// Memory that moves between host and GPU.
    Managed,
    /// Arrays and whatever else has no plain address.
    Other,
}

/// An allocation around a pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) kind: MemoryKind,
    pub(crate) ordinal: u32,
}

/// One GPU, as reports show it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number in the runtime.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// `hip` or `cuda`.
    pub runtime: &'static str,
    /// The runtime's version, for instance `7.14`.
    pub runtime_version: String,
    /// Whether it is the emulated GPU.
    pub emulated: bool,
    /// What makes the emulation unlike a real GPU in this process, for instance a timed link.
    pub emulation_note: Option<String>,
    /// Sixteen bytes that name the GPU.
    pub uuid: [u8; 16],
    /// PCI address, for instance `0000:03:00.0`.
    pub pci: Option<String>,
}

/// A GPU runtime. All ranges it is given are proven; all errors are its own.
pub(crate) trait Device: Send + Sync + std::fmt::Debug {
    /// `hip` or `cuda`.
    fn name(&self) -> &'static str;

    /// Whether this is the emulation.
    fn is_emulated(&self) -> bool;

    /// What kind of memory a pointer is; `None` when the runtime does not know it.
    fn locate(&self, at: DevPtr) -> Result<Option<Region>>;

    /// Base and length of the device allocation around a pointer.
    fn allocation(&self, at: DevPtr) -> Result<(usize, usize)>;

    /// A number that names the device allocation around a pointer and no other of the process's life; `None` where there
    /// is no allocation, or no such number.
    fn allocation_id(&self, at: DevPtr) -> Option<u64>;

    /// Whether a pointer lies in memory that the virtual-memory API has mapped, of which [`Device::allocation`] tells one
    /// piece and others may follow.
    fn is_mapping(&self, _: DevPtr) -> bool {
        false
    }

    /// Device memory on one GPU.
    fn alloc(&self, ordinal: u32, len: usize) -> Result<DevPtr>;

    /// Gives memory of [`Device::alloc`] back.
    fn free(&self, ordinal: u32, at: DevPtr) -> Result<()>;

    /// Pins staging memory, so that copies from and to it go at the link's speed.
    fn pin(&self, start: *mut u8, len: usize) -> Result<()>;

    /// Undoes [`Device::pin`].
    fn unpin(&self, start: *mut u8) -> Result<()>;

    /// The memory node near a GPU; `None` on machines with one.
    fn node(&self, ordinal: u32) -> Option<u32>;

    /// Whether a GPU shares the processor's memory (an APU), so that the kernel may reach what is allocated on it.
    fn shares_memory(&self, _ordinal: u32) -> bool {
        false
    }

    /// Whether storage is known to reach only a part of a GPU's memory.
    fn has_small_window(&self, _ordinal: u32) -> bool {
        false
    }

    /// Waits for the work that a blocking copy would wait for, where none is made.
    fn settle(&self, _ordinal: u32) -> Result<()> {
        Ok(())
    }

    /// Copies host bytes to device memory, ordered as the runtime's blocking copies are; lengths must be equal.
    fn upload(&self, to: &Span<'_>, from: &[u8]) -> Result<()>;

    /// Up to so many bytes a copy out of memory that is not pinned is done as soon as one out of pinned memory.
    fn plain_max(&self) -> usize {
        0
    }

    /// As [`Device::upload`] for several at once, of the same GPU; all are done when it returns, or some when it fails.
    fn upload_many(&self, pieces: &[(Span<'_>, &[u8])]) -> Result<()> {
        pieces.iter().try_for_each(|(to, from)| self.upload(to, from))
    }

    /// Whether [`Device::upload_later`] leaves the caller time for something else.
    fn copies_later(&self) -> bool {
        false
    }

    /// As [`Device::upload`], but may return before it is done: then with what has to be waited for.
    ///
    /// # Safety
    /// The bytes stay as they are until that was waited for or dropped, and so does the span's memory.
    unsafe fn upload_later<'d>(
        &'d self,
        to: &Span<'_>,
        from: &[u8],
    ) -> Result<Option<Box<dyn UnderWay + 'd>>> {
        self.upload(to, from).map(|()| None)
    }

    /// Copies device memory to host bytes, ordered as the runtime's blocking copies are; lengths must be equal.
    fn download(&self, from: &Span<'_>, to: &mut [u8]) -> Result<()>;

    /// As [`Device::download`]; `meanwhile` is called once, and runs beside the copy where it can.
    fn download_beside(&self, from: &Span<'_>, to: &mut [u8], meanwhile: &mut dyn FnMut()) -> Result<()> {
        meanwhile();
        self.download(from, to)
    }

    /// Whether [`Device::export`] may give a descriptor.
    fn exports(&self) -> bool {
        false
    }

    /// A descriptor of a range of a GPU's memory for other drivers of the kernel (a dma-buf); start and length are whole pages.
    /// `None` where the runtime has none.
    fn export(&self, _ordinal: u32, _start: usize, _len: usize) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// File to GPU memory with no host copy, where the runtime has it.
    fn p2p(&self) -> Option<&dyn PeerToPeer> {
        None
    }

    /// The same by another library, where the runtime has one.
    fn direct_files(&self) -> Option<&dyn DirectFiles> {
        None
    }

    /// Work in the order of a caller's stream, where the runtime has what it takes.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }

    /// Its GPUs.
    fn list(&self) -> Result<Vec<DeviceInfo>>;
}

/// A copy under way. Dropped, it is waited for, and what it came to is not told.
pub(crate) trait UnderWay {
    /// Waits until it is done.
    fn wait(self: Box<Self>) -> Result<()>;
}

/// The power to move bytes between a file and GPU memory without the host. Short counts are passed on as they are;
/// errors are errnos where the driver gives one.
pub(crate) trait PeerToPeer: Send + Sync {
    /// From an O_DIRECT descriptor to GPU memory; offset, address and length aligned. Ordered as blocking copies are,
    /// unless a stream is `held` for it.
    fn read(&self, fd: BorrowedFd<'_>, to: &Span<'_>, file_offset: u64, held: bool) -> Result<usize>;

    /// From GPU memory to an O_DIRECT descriptor; otherwise the same.
    fn write(&self, fd: BorrowedFd<'_>, from: &Span<'_>, file_offset: u64, held: bool) -> Result<usize>;
}

/// The power to have a library move bytes between GPU memory and files that it was told of, without the host. Ordered as
/// blocking copies are, and never while a stream is held for it. Errors are errnos; EOPNOTSUPP where the library gives none.
pub(crate) trait DirectFiles: Send + Sync {
    /// Whether the machine has what it takes. Why not. It opens nothing, so it may be asked while a stream is held.
    fn could(&self) -> Result<(), Reason>;

    /// Whether it works. The first call finds out, which may take long. Why not.
    fn ready(&self) -> Result<(), Reason>;

    /// Tells it of an O_DIRECT descriptor, for transfers of any GPU; what it knows that by.
    fn know(&self, ordinal: u32, fd: BorrowedFd<'_>) -> Result<usize>;

    /// What it was told of is not used any more.
    fn forget(&self, known: usize);

    /// From a file to GPU memory; offset, address and length aligned. Fewer bytes at the end of the file.
    fn read(&self, known: usize, to: &Span<'_>, file_offset: u64) -> Result<usize>;

    /// From GPU memory to a file; otherwise the same.
    fn write(&self, known: usize, from: &Span<'_>, file_offset: u64) -> Result<usize>;
}

/// A stream's handle as the caller gave it: opaque, 0 for the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamPtr(pub usize);

/// Memory for the operations of streams, pinned and known to all GPUs of the runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    pub(crate) host: usize,
    /// The same memory as kernels know it.
    pub(crate) device: usize,
    pub(crate) len: usize,
}

/// What a late copy copies, in the memory it reads it from: destination, source, length; and where it says, when it begins,
/// that what came before it on its stream is done, and by which number. 0 for nowhere.
pub(crate) type LateWords = [std::sync::atomic::AtomicU64; 5];

/// Threads of a group of the late copy.
pub(crate) const LATE_THREADS: u32 = 1024;

/// Groups of threads for a late copy of at most `most` bytes. Where both addresses are aligned alike, two keep the link of an
/// NVIDIA H200 busy, and 16 take no longer; elsewhere a thread has less under way.
pub(crate) fn late_groups(most: usize) -> u32 {
    most.div_ceil(64 << 10).clamp(1, 16) as u32
}

/// A function that a stream calls on a thread of the runtime, where nothing of the runtime may be called.
pub(crate) type HostFn = unsafe extern "C" fn(*mut core::ffi::c_void);

/// The power to work in the order of a caller's stream. Nothing may be allocated, pinned or loaded while a stream is held:
/// it would wait for that stream. So what is needed is made ready beforehand.
pub(crate) trait Streams: Send + Sync {
    /// The GPU of a stream.
    fn gpu_of(&self, stream: StreamPtr) -> Result<u32>;

    /// A stream of a GPU that waits for no other.
    fn create(&self, gpu: u32) -> Result<StreamPtr>;

    /// Destroys a stream of [`Streams::create`] that has nothing to do.
    fn destroy(&self, stream: StreamPtr) -> Result<()>;

    /// Waits until the stream has nothing to do.
    fn synchronize(&self, stream: StreamPtr) -> Result<()>;

    /// Whether work given to the stream would be recorded instead of done.
    fn is_capturing(&self, stream: StreamPtr) -> Result<bool>;

    /// Whether the handle means a stream of the calling thread's own.
    fn is_per_thread(&self, stream: StreamPtr) -> bool;

    /// Whether the handle means the legacy default stream.
    fn is_legacy(&self, stream: StreamPtr) -> bool;

    /// Whether the stream has nothing before what is submitted next, nor waits for work of other streams by rule. `false`
    /// where that is not certain.
    fn is_idle(&self, stream: StreamPtr) -> bool;

    /// Whether the stream is done with all that it was given. `false` where that is not certain.
    fn is_drained(&self, stream: StreamPtr) -> bool;

    /// Loads the copy kernel for a GPU; an address that stays good for the life of the process.
    fn load_copy(&self, gpu: u32) -> Result<usize>;

    /// Whether streams can wait for a word of memory. Otherwise they are held by a function that does not return.
    fn can_wait(&self, gpu: u32) -> bool;

    /// Pinned memory, never given back; allocated on a GPU that is in use, for all of them.
    fn alloc_pinned(&self, gpu: u32, len: usize) -> Result<Pinned>;

    /// A word of zero that a stream can wait for, never given back. Its address.
    fn alloc_word(&self, gpu: u32) -> Result<usize>;

    /// Has the stream call a function when it gets there.
    ///
    /// # Safety
    /// The function may be called with `data` on any thread, once.
    unsafe fn call(
        &self,
        gpu: u32,
        stream: StreamPtr,
        function: HostFn,
        data: *mut core::ffi::c_void,
    ) -> Result<()>;

    /// Has the stream wait until the word of [`Streams::alloc_word`] is at least `value`.
    fn wait(&self, gpu: u32, stream: StreamPtr, word: usize, value: u64) -> Result<()>;

    /// Has the stream copy what the [`LateWords`] at `late` say when it gets there, at most `most` bytes.
    ///
    /// # Safety
    /// The words must then name memory that a GPU may copy between, and stay until the copy is done.
    unsafe fn copy(&self, gpu: u32, stream: StreamPtr, kernel: usize, late: usize, most: usize)
    -> Result<()>;
}

/// Why a runtime does not serve: it is not there, or it is there and unfit.
#[derive(Clone, Debug)]
pub(crate) enum Absence {
    /// Its library is not installed.
    NotThere(String),
    /// The library is there but cannot serve.
    Unfit(Error),
}

/// A runtime that can be looked for.
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    open: fn(&Config) -> Result<Arc<dyn Device>, Absence>,
    /// Whether the process has it already; loads nothing.
    is_loaded: fn(&Config) -> bool,
}

/// Every runtime, in the order in which a pointer is offered to them.
pub(crate) const DEVICES: &[Runtime] = &[
    Runtime { name: "hip", open: hip::open, is_loaded: hip::is_loaded },
    Runtime { name: "cuda", open: cuda::open, is_loaded: cuda::is_loaded },
];

/// The runtimes that serve this process.
#[derive(Debug)]
pub(crate) struct Devices {
    serving: Vec<Arc<dyn Device>>,
    /// What to answer when none serves.
    why_none: Error,
    /// The same as a reason.
    absence: Reason,
}

impl Devices {
    /// Looks for runtimes. Costly the first time; loads libraries.
    pub(crate) fn find(config: &Config) -> Devices {
        const OP: &str = "find a GPU runtime";
        let mut serving = Vec::new();
        let mut reasons = Vec::new();
        let mut unfit = None;
        let chosen = DEVICES.iter().filter(|runtime| match config.device {
            DeviceChoice::Auto => true,
            DeviceChoice::Hip | DeviceChoice::Emulated => runtime.name == "hip",
            DeviceChoice::Cuda | DeviceChoice::EmulatedCuda => runtime.name == "cuda",
        });
        // What is merely installed is not drawn into a process that uses another.
        let (in_use, installed): (Vec<_>, Vec<_>) = chosen.partition(|runtime| (runtime.is_loaded)(config));
        for runtimes in [in_use, installed] {
            if !serving.is_empty() {
                break;
            }
            for runtime in runtimes {
                match (runtime.open)(config) {
                    Ok(device) => {
                        if device.is_emulated() {
                            say_emulated(device.as_ref());
                        }
                        log::event!(
                            INFO,
                            "runtime found",
                            runtime = runtime.name,
                            emulated = device.is_emulated()
                        );
                        serving.push(device);
                    }
                    Err(Absence::NotThere(why)) => {
                        log::event!(DEBUG, "runtime is not there", runtime = runtime.name, why);
                        reasons.push(why);
                    }
                    Err(Absence::Unfit(error)) => {
                        log::event!(INFO, "runtime cannot serve", runtime = runtime.name, %error);
                        unfit.get_or_insert(error);
                    }
                }
            }
        }
        let no_gpu = unfit.as_ref().is_none_or(hip::means_no_gpu);
        if serving.is_empty() && no_gpu && config.emulated_without_gpu && config.device == DeviceChoice::Auto
        {
            // Whatever keeps the emulation from serving too, the reason to tell is why nothing real serves.
            serving.extend(hip::open(&Config { device: DeviceChoice::Emulated, ..config.clone() }));
            serving.iter().for_each(|device| say_emulated(device.as_ref()));
        }
        let absence = if unfit.is_some() { Reason::RuntimeUnfit } else { Reason::NoRuntime };
        let why_none = unfit.unwrap_or_else(|| {
            let why = if reasons.is_empty() {
                "the runtime asked for is not built into this library".to_owned()
            } else {
                format!("{}; HIPFILE_DEVICE=emulated serves without a GPU", reasons.join("; "))
            };
            Error::message(ErrorKind::PlatformNotSupported, OP, why)
        });
        if serving.is_empty() {
            log::event!(INFO, "no GPU runtime serves", error = %why_none);
        }
        Devices { serving, why_none, absence }
    }

    pub(crate) fn serving(&self) -> &[Arc<dyn Device>] {
        &self.serving
    }

    /// The runtime to allocate with.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn first(&self) -> Result<&Arc<dyn Device>> {
        self.serving.first().ok_or_else(|| self.why_none.clone())
    }

    /// Why nothing goes direct when no runtime serves.
    pub(crate) fn absence(&self) -> Reason {
        self.absence
    }

    /// The runtime that knows a pointer, and what it says of it. Of several the first that recognises it.
    ///
    /// # Errors
    /// Why there is no runtime, or the runtime's own error.
    pub(crate) fn locate(&self, at: DevPtr) -> Result<Option<(&Arc<dyn Device>, Region)>> {
        self.first()?;
        let mut failure = None;
        for device in &self.serving {
            match device.locate(at) {
                Ok(Some(region)) => return Ok(Some((device, region))),
                Ok(None) => {}
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }
}

/// One line per process: nobody may take an emulated GPU for a real one unawares.
fn say_emulated(device: &dyn Device) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let note = device
            .list()
            .ok()
            .and_then(|list| list.into_iter().find_map(|d| d.emulation_note))
            .map(|note| format!(" ({note})"))
            .unwrap_or_default();
        notice::line(format_args!("using the emulated GPU: no real GPU memory is involved{note}"));
    });
}
