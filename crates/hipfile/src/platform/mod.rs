//! Whether this machine can move bytes straight between storage and GPU memory: what there is, what is missing, and
//! what to do about it. It looks at text files below a root, so that any machine can be described; it changes nothing,
//! and needs no privileges, but says what it could not see without them.

mod container;
mod gpu;
mod kernel;
mod libraries;
mod nvidia;
mod pci;
mod reach;
mod volumes;

pub use container::Container;
pub use gpu::Gpu;
pub use kernel::Kernel;
pub use nvidia::Nvidia;
pub use pci::{PciDevice, PciLink, PeerPath, Window};
pub use reach::Reach;
pub use volumes::Volume;

use crate::config::Config;
use crate::storage::{FsClass, Roots};

/// Yes, no, or not to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Yes,
    /// It is not.
    No,
    /// It cannot be seen from here.
    Unknown,
}

/// One answer, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The answer.
    pub answer: Answer,
    /// What was seen.
    pub found: String,
    /// What to do; `None` when nothing need be done.
    pub advice: Option<String>,
}

impl Finding {
    fn yes(found: String) -> Finding {
        Finding { answer: Answer::Yes, found, advice: None }
    }

    fn no(found: String, advice: &str) -> Finding {
        Finding { answer: Answer::No, found, advice: Some(advice.to_owned()) }
    }

    fn unknown(found: String, advice: &str) -> Finding {
        Finding { answer: Answer::Unknown, found, advice: Some(advice.to_owned()) }
    }
}

/// Everything that direct access depends on, as far as this process can see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Platform {
    /// The kernel.
    pub kernel: Kernel,
    /// Whether the kernel lets PCI devices reach each other.
    pub p2pdma: Finding,
    /// Whether the HIP runtime has AMD's file functions.
    pub hip: Finding,
    /// Whether AMD's kernel driver can read files into GPU memory.
    pub amdgpu: Finding,
    /// The GPUs on the PCI bus.
    pub gpus: Vec<Gpu>,
    /// NVIDIA's software.
    pub nvidia: Nvidia,
    /// Whether io_uring may be used.
    pub io_uring: Finding,
    /// The container around the process.
    pub container: Container,
    /// Every mount.
    pub volumes: Vec<Volume>,
    /// What could not be seen, and what it would take.
    pub unseen: Vec<String>,
}

impl Platform {
    /// Looks. On the running system the HIP runtime is loaded into the process, as `config` says; with another root
    /// nothing is loaded.
    pub fn probe(config: &Config, roots: &Roots) -> Platform {
        let kernel = Kernel::probe(roots);
        let symbols = kernel::Symbols::read(roots);
        let p2pdma = kernel::p2pdma(&kernel, &symbols, roots);
        let volumes = volumes::all(roots);
        let unseen = unseen(&symbols, &volumes, roots);
        Platform {
            amdgpu: kernel::file_access(&symbols, roots),
            hip: libraries::hip(config, roots),
            gpus: gpu::all(roots),
            nvidia: Nvidia::probe(&p2pdma, roots),
            io_uring: container::io_uring(roots),
            container: Container::probe(roots),
            kernel,
            p2pdma,
            volumes,
            unseen,
        }
    }

    /// What people should know beyond the answers, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.kernel.is_wsl() {
            warnings.push(
                "this is Windows' Linux (WSL): its virtual disks and GPUs have no direct path".to_owned(),
            );
        }
        for gpu in &self.gpus {
            let name = format!("{} at {}", gpu.name, gpu.pci);
            if gpu.virtual_function {
                warnings.push(format!(
                    "{name} is a virtual function: it is served through host memory only; give the machine the whole GPU"
                ));
            }
            if gpu.integrated {
                warnings
                    .push(format!("{name} is part of the processor: only discrete GPUs have a direct path"));
            }
            if gpu.name.contains("GeForce") {
                warnings.push(format!(
                    "{name} is a consumer GPU: NVIDIA's libcufile serves it through host memory"
                ));
            }
            if let Some(window) = gpu.window.filter(Window::is_small) {
                warnings.push(small_window(&name, &window));
            }
            if gpu.lacks_root_port {
                warnings.push(format!(
                    "{name} has no PCI root port above it: in QEMU put it behind a pcie-root-port, it is slow otherwise"
                ));
            }
            if let Some(link) = gpu.link.as_ref().filter(|link| link.is_reduced()) {
                warnings.push(format!("{name} runs at {link}: see the slot, the riser, and power saving"));
            }
            let refused: Vec<&str> = gpu
                .peers
                .iter()
                .filter(|(_, path)| *path == PeerPath::Refused)
                .map(|(at, _)| at.as_str())
                .collect();
            if !refused.is_empty() {
                warnings.push(format!(
                    "{name} and NVMe {} hang off host bridges that the kernel does not know to pass peer traffic on: \
                     move them behind one switch",
                    refused.join(", ")
                ));
            }
            if gpu.iommu.as_deref().is_some_and(|mode| mode.starts_with("DMA")) {
                warnings.push(format!("{name} goes through the IOMMU: boot with iommu=pt for full speed"));
            }
        }
        warnings
    }
}

/// Whether NVIDIA's GPUDirect Storage can work on a machine, by P2PDMA (true) or by nvidia-fs. Loads nothing.
///
/// # Errors
/// What is missing.
pub(crate) fn gpudirect_storage(roots: &Roots, use_p2p: bool) -> Result<bool, String> {
    let kernel = Kernel::probe(roots);
    let p2pdma = kernel::p2pdma(&kernel, &kernel::Symbols::read(roots), roots);
    nvidia::gpudirect_storage(&Nvidia::probe(&p2pdma, roots), use_p2p)
}

fn small_window(name: &str, window: &Window) -> String {
    let mib = |bytes: u64| match bytes >> 20 {
        mib if mib >= 1024 && mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    };
    let of = match window.memory {
        Some(memory) => format!("{} of its {}", mib(window.reached), mib(memory)),
        None => format!("{} of its memory", mib(window.reached)),
    };
    let could = window.most.filter(|most| *most > window.reached);
    let could = could.map_or_else(String::new, |most| format!("; the GPU allows {}", mib(most)));
    format!(
        "{name} has a small BAR: storage and RDMA devices reach {of}, the rest goes through host memory; turn on \
         Resizable BAR and decoding above 4G in the firmware's settings{could}"
    )
}

fn unseen(symbols: &kernel::Symbols, volumes: &[Volume], roots: &Roots) -> Vec<String> {
    let mut unseen = Vec::new();
    if let kernel::Symbols::Hidden(why) = symbols {
        unseen.push(format!("whether amdgpu can read files: {why}"));
    }
    let mut lines = volumes.iter().flat_map(|volume| volume.storage.backing.lines());
    if lines.any(|line| line.ends_with("extents unknown")) {
        unseen.push("the extents of logical volumes: /etc/lvm/backup can be read by root only".to_owned());
    }
    if volumes.is_empty() {
        unseen.push("the mounts: /proc/self/mountinfo cannot be read".to_owned());
    }
    let local = |volume: &Volume| volume.storage.device.is_some() && volume.storage.fs != FsClass::Other;
    if volumes.iter().any(local) && !roots.exists("sys/dev/block") {
        unseen.push("block devices: /sys/dev/block is not there".to_owned());
    }
    unseen
}
