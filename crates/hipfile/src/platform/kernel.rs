//! The kernel: who it is, how it was configured, which functions it has, and what AMD's driver in it says. From text
//! files only; it asks no device.

use std::path::{Path, PathBuf};

use super::{Answer, Finding};
use crate::storage::Roots;

/// Largest texts that are looked at, in bytes: a kernel's configuration, its list of functions.
const CONFIG: u64 = 16 << 20;
const SYMBOLS: u64 = 64 << 20;
/// From this build of AMD's driver package on, the driver itself says whether it has P2PDMA.
const FIRST_BUILD_THAT_TELLS: u64 = 2_327_937;
/// Bit of a GPU's `capability` in the driver's topology: files can be read into its memory.
const CAPABILITY_FILE_ACCESS: u64 = 0x40;

/// Which kernel runs, as uname prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// `Linux`.
    pub sysname: String,
    /// The machine's name.
    pub nodename: String,
    /// For instance `6.8.0-45-generic`; empty where it cannot be read.
    pub release: String,
    /// When and how it was built.
    pub version: String,
    /// The processor's architecture.
    pub machine: String,
}

impl Kernel {
    pub(super) fn probe(roots: &Roots) -> Kernel {
        let read = |name: &str| roots.line(format!("proc/sys/kernel/{name}")).unwrap_or_default();
        let machine = match read("arch") {
            // Kernels before 6.1 do not say; this program runs on the machine itself.
            none if none.is_empty() && roots.is_real() => std::env::consts::ARCH.to_owned(),
            arch => arch,
        };
        Kernel {
            sysname: read("ostype"),
            nodename: read("hostname"),
            release: read("osrelease"),
            version: read("version"),
            machine,
        }
    }

    /// Whether it is Microsoft's, under Windows.
    pub fn is_wsl(&self) -> bool {
        self.release.to_ascii_lowercase().contains("microsoft")
    }
}

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kernel { sysname, nodename, release, version, machine } = self;
        let known: Vec<&str> = [sysname, nodename, release, version, machine]
            .into_iter()
            .map(String::as_str)
            .filter(|t| !t.is_empty())
            .collect();
        f.write_str(&known.join(" "))
    }
}

/// The names of the kernel's functions.
pub(super) enum Symbols {
    Listed(Vec<u8>),
    /// There is no list, or not for us: why.
    Hidden(String),
}

impl Symbols {
    pub(super) fn read(roots: &Roots) -> Symbols {
        match roots.read("proc/kallsyms", SYMBOLS) {
            Ok(text) if text.is_empty() => Symbols::Hidden("/proc/kallsyms is empty".to_owned()),
            Ok(text) => Symbols::Listed(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Symbols::Hidden("/proc/kallsyms is not there".to_owned())
            }
            Err(error) => Symbols::Hidden(format!("/proc/kallsyms: {error}")),
        }
    }

    /// Whether a function of this name is there; `None` when that cannot be seen. Lines: address, type, name, and
    /// for modules a tab and their name.
    fn has(&self, name: &str) -> Option<bool> {
        let Symbols::Listed(text) = self else { return None };
        Some(text.split(|b| *b == b'\n').any(|line| {
            let mut fields = line.split(|b| b.is_ascii_whitespace()).filter(|field| !field.is_empty());
            fields.nth(2) == Some(name.as_bytes())
        }))
    }
}

/// Whether the kernel has P2PDMA. What a new driver says of its GPUs counts most, then the kernel's configuration.
pub(super) fn p2pdma(kernel: &Kernel, symbols: &Symbols, roots: &Roots) -> Finding {
    const ADVICE: &str =
        "boot a kernel with CONFIG_PCI_P2PDMA=y (on Ubuntu 22.04: the HWE kernel, 6.8 or newer)";
    let configured = config_value(kernel, "CONFIG_PCI_P2PDMA", roots);
    if let Some(build) = driver_build(kernel, roots).filter(|build| *build >= FIRST_BUILD_THAT_TELLS) {
        let gpus: Vec<u64> = topology(roots).map(|gpu| gpu.get("capability")).collect();
        return match gpus.iter().any(|capability| capability & CAPABILITY_FILE_ACCESS != 0) {
            true => Finding::yes(format!("amdgpu-dkms build {build} says so of its GPUs")),
            false if gpus.is_empty() => Finding::no(
                format!("amdgpu-dkms build {build} is installed, but its topology has no GPU"),
                "load the driver (modprobe amdgpu), or in a container give it /dev/kfd and /dev/dri",
            ),
            false => {
                let found = format!("amdgpu-dkms build {build} says that its GPUs lack it");
                match configured {
                    Some((_, Some(value))) if value == "y" => Finding::no(
                        found,
                        "use a discrete GPU as a whole: the kernel has it, so the GPU is integrated or a virtual function",
                    ),
                    _ => Finding::no(found, ADVICE),
                }
            }
        };
    }
    match configured {
        Some((source, Some(value))) if value == "y" => {
            Finding::yes(format!("CONFIG_PCI_P2PDMA=y in {}", source.display()))
        }
        Some((source, Some(value))) => {
            Finding::no(format!("CONFIG_PCI_P2PDMA={value} in {}", source.display()), ADVICE)
        }
        Some((source, None)) => Finding::no(format!("CONFIG_PCI_P2PDMA is not set in {}", source.display()), ADVICE),
        None => match symbols.has("pci_p2pdma_distance_many") {
            Some(true) => Finding::yes("the kernel lists pci_p2pdma_distance_many".to_owned()),
            Some(false) => Finding::no("the kernel lists no pci_p2pdma_distance_many".to_owned(), ADVICE),
            None => Finding::unknown(
                "no kernel configuration can be read (/boot, /lib/modules, /proc/config.gz), and no list of its functions"
                    .to_owned(),
                "run as root, or outside of the container",
            ),
        },
    }
}

/// Whether the amdgpu driver in the kernel can read files into GPU memory.
pub(super) fn file_access(symbols: &Symbols, roots: &Roots) -> Finding {
    const FUNCTION: &str = "kfd_ais_rw_file";
    match symbols.has(FUNCTION) {
        Some(true) => Finding::yes(format!("the kernel lists {FUNCTION}")),
        _ if !roots.exists("sys/module/amdgpu") && roots.exists("sys/module") => Finding::no(
            "the amdgpu driver is not loaded".to_owned(),
            "install amdgpu-dkms and load it: modprobe amdgpu",
        ),
        Some(false) => Finding::no(
            format!("the amdgpu driver has no {FUNCTION}"),
            "install amdgpu-dkms 30.20.1 or newer (ROCm 7.2), and reboot",
        ),
        None => {
            let Symbols::Hidden(why) = symbols else { return Finding::unknown(String::new(), "") };
            Finding::unknown(why.clone(), "run as root: the kernel's list of functions is hidden")
        }
    }
}

/// The build number of AMD's driver package: what follows the first dash of its version, as in
/// `6.14.14-2328000.24.04`. The one built for the running kernel goes first.
fn driver_build(kernel: &Kernel, roots: &Roots) -> Option<u64> {
    const FOLDER: &str = "var/lib/dkms/amdgpu";
    let mut builds: Vec<(bool, u64)> = roots
        .list(FOLDER, 64)
        .iter()
        .filter_map(|version| {
            let build = version.to_str()?.split_once('-')?.1;
            let digits = build.find(|c: char| !c.is_ascii_digit()).unwrap_or(build.len());
            let path = Path::new(FOLDER).join(version);
            let current = !kernel.release.is_empty() && roots.exists(path.join(&kernel.release));
            Some((!current, build[..digits].parse().ok()?))
        })
        .collect();
    builds.sort_by_key(|(other, _)| *other);
    builds.first().map(|(_, build)| *build)
}

/// One GPU in the topology of AMD's driver: `name value` lines.
pub(super) struct TopologyNode {
    text: String,
}

impl TopologyNode {
    /// A property's number; 0 where it is missing, as the driver has it.
    pub(super) fn get(&self, name: &str) -> u64 {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
            .unwrap_or(0)
    }
}

/// The GPUs in the driver's topology; CPUs are left out.
pub(super) fn topology(roots: &Roots) -> impl Iterator<Item = TopologyNode> {
    const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
    roots
        .list(NODES, 1024)
        .into_iter()
        .filter_map(move |node| {
            let text = roots.read(Path::new(NODES).join(node).join("properties"), 64 << 10).ok()?;
            Some(TopologyNode { text: String::from_utf8_lossy(&text).into_owned() })
        })
        .filter(|node| node.get("simd_count") != 0)
}

/// The value of an option in the first configuration that can be read and names it; `None` inside for "is not set".
/// The outer `None`: no configuration can be read.
fn config_value(kernel: &Kernel, option: &str, roots: &Roots) -> Option<(PathBuf, Option<String>)> {
    let release = &kernel.release;
    let mut silent = None;
    for path in [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/build/.config"),
        format!("/lib/modules/{release}/config"),
        "/proc/config.gz".to_owned(),
    ] {
        let Ok(bytes) = roots.read(&path, CONFIG) else { continue };
        let bytes = if path.ends_with(".gz") { gunzip(&bytes).unwrap_or_default() } else { bytes };
        let text = String::from_utf8_lossy(&bytes);
        if let Some(value) = text.lines().find_map(|line| line.strip_prefix(option)?.strip_prefix('=')) {
            return Some((path.into(), Some(value.trim().to_owned())));
        }
        if !text.is_empty() {
            silent.get_or_insert(PathBuf::from(path));
        }
    }
    Some((silent?, None))
}

/// The first member of a gzip file (RFC 1952); `None` for anything else.
fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const HEADER_SUM: u8 = 2;
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = bytes else { return None };
    let mut rest = rest;
    if flags & EXTRA != 0 {
        let len = usize::from(*rest.first()?) | usize::from(*rest.get(1)?) << 8;
        rest = rest.get(2 + len..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            rest = rest.get(rest.iter().position(|b| *b == 0)? + 1..)?;
        }
    }
    if flags & HEADER_SUM != 0 {
        rest = rest.get(2..)?;
    }
    miniz_oxide::inflate::decompress_to_vec_with_limit(rest, CONFIG as usize).ok()
}

impl Answer {
    /// Whether it is yes; what is not known counts as no.
    pub const fn is_yes(self) -> bool {
        matches!(self, Answer::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'CONFIG_PCI_P2PDMA=y\n' | gzip -n`, and the same with a file name in the header.
    const GZIPPED: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x73, 0xf6, 0xf7, 0x73, 0xf3, 0x74, 0x8f, 0x0f, 0x70, 0xf6, 0x8c,
        0x0f, 0x30, 0x0a, 0x70, 0xf1, 0x75, 0xb4, 0xad, 0xe4, 0x02, 0x00, 0x2d, 0xad, 0x3a, 0x09, 0x14, 0, 0,
        0,
    ];

    #[test]
    fn gzip_headers_are_skipped_and_garbage_is_refused() {
        assert!(gunzip(b"").is_none());
        assert!(gunzip(b"\x1f\x8b\x08\x04\0\0\0\0\0\0").is_none());
        assert!(gunzip(b"\x1f\x8b\x08\x08\0\0\0\0\0\0no end").is_none());
        assert!(gunzip(b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage garbage").is_none());
        let text = gunzip(GZIPPED).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(text.as_deref(), Some("CONFIG_PCI_P2PDMA=y\n"));
        let mut named = GZIPPED.to_vec();
        named[3] = 8;
        named.splice(10..10, *b"config\0");
        assert_eq!(gunzip(&named), gunzip(GZIPPED));
    }

    #[test]
    fn the_running_kernel_s_configuration_is_read_where_it_is_shown() {
        let roots = Roots::real();
        let kernel = Kernel::probe(&roots);
        assert_eq!(kernel.sysname, "Linux");
        match config_value(&kernel, "CONFIG_PROC_FS", &roots) {
            Some((_, value)) => assert_eq!(value.as_deref(), Some("y")),
            None => eprintln!("SKIP: kernel configuration: none can be read"),
        }
    }

    #[test]
    fn symbols_are_whole_words() {
        let symbols = Symbols::Listed(
            b"00 T kfd_ais_rw_file_more\t[amdgpu]\n00 t kfd_ais_rw_file\t[amdgpu]\n".to_vec(),
        );
        assert_eq!(symbols.has("kfd_ais_rw_file"), Some(true));
        assert_eq!(symbols.has("kfd_ais_rw"), Some(false));
        assert_eq!(Symbols::Hidden(String::new()).has("x"), None);
    }
}
