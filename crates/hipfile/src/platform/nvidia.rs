//! NVIDIA's driver and its two ways to storage: the module nvidia-fs, and P2PDMA in the kernel. From text files only.

use super::{Finding, libraries};
use crate::storage::Roots;

/// What there is of NVIDIA's software.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Nvidia {
    /// The kernel driver, with its version.
    pub driver: Finding,
    /// Whether it is the open kernel module, which direct storage access needs.
    pub open_module: Finding,
    /// The module nvidia-fs.
    pub nvidia_fs: Finding,
    /// P2PDMA without nvidia-fs: dma-buf in the open module, and the kernel's P2PDMA.
    pub p2pdma: Finding,
    /// The library libcufile.
    pub cufile: Finding,
}

impl Nvidia {
    /// `kernel` is whether the kernel has P2PDMA.
    pub(super) fn probe(kernel: &Finding, roots: &Roots) -> Nvidia {
        let version = roots.line("proc/driver/nvidia/version");
        let open = version.as_deref().map(|line| line.contains("Open Kernel Module"));
        let no_driver = || "NVIDIA's driver is not loaded".to_owned();
        let driver = match version.as_deref() {
            Some(line) => Finding::yes(format!("driver {}", number(line).unwrap_or("of unknown version"))),
            None => Finding::no(no_driver(), "install NVIDIA's driver, or in a container give it the GPU"),
        };
        let open_module = match open {
            Some(true) => Finding::yes("the open kernel module".to_owned()),
            Some(false) => Finding::no(
                "the proprietary kernel module".to_owned(),
                "install the driver's open kernel module (nvidia-open)",
            ),
            None => Finding::no(no_driver(), "install NVIDIA's driver with the open kernel module"),
        };
        let nvidia_fs = match roots.line("proc/driver/nvidia-fs/version") {
            Some(line) => Finding::yes(line),
            None if roots.exists("proc/driver/nvidia-fs") => Finding::yes("loaded".to_owned()),
            None => Finding::no(
                "nvidia-fs is not loaded".to_owned(),
                "install nvidia-fs and load it: modprobe nvidia-fs",
            ),
        };
        let p2pdma = p2pdma(open, kernel, roots);
        Nvidia { driver, open_module, nvidia_fs, p2pdma, cufile: libraries::cufile(roots) }
    }
}

/// Whether GPUDirect Storage can work on this machine: by P2PDMA, or by nvidia-fs.
///
/// # Errors
/// What is missing.
pub(super) fn gpudirect_storage(nvidia: &Nvidia, use_p2p: bool) -> Result<bool, String> {
    if nvidia.nvidia_fs.answer.is_yes() {
        return Ok(false);
    }
    if use_p2p && nvidia.p2pdma.answer.is_yes() {
        return Ok(true);
    }
    Err(format!("{}, and by P2PDMA: {}", nvidia.nvidia_fs.found, nvidia.p2pdma.found))
}

fn p2pdma(open: Option<bool>, kernel: &Finding, roots: &Roots) -> Finding {
    if open != Some(true) {
        return Finding::no(
            "it needs the open kernel module".to_owned(),
            "install the driver's open kernel module",
        );
    }
    if !kernel.answer.is_yes() {
        let advice = kernel.advice.as_deref().unwrap_or("boot a kernel with CONFIG_PCI_P2PDMA=y");
        return Finding {
            answer: kernel.answer,
            found: kernel.found.clone(),
            advice: Some(advice.to_owned()),
        };
    }
    // The driver lists its parameters as it understood them; sysfs may show them empty.
    let parameters = roots.read("proc/driver/nvidia/params", 64 << 10).unwrap_or_default();
    let set = |name: &str| {
        let text = String::from_utf8_lossy(&parameters).to_ascii_lowercase();
        text.lines().any(|line| line.starts_with("registrydwords:") && line.contains(name))
    };
    match set("rmforcestaticbar1=1") {
        true => Finding::yes(
            "the kernel has P2PDMA, and the driver maps all GPU memory (RMForceStaticBar1)".to_owned(),
        ),
        false => Finding::no(
            "the driver does not map all GPU memory for peers".to_owned(),
            "set the module option NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1\", or use nvidia-fs",
        ),
    }
}

/// The first word that looks like `580.126.09`.
fn number(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    #[test]
    fn both_flavours_of_the_driver_are_told_apart() {
        let yes = Finding::yes(String::new());
        for (line, open, version) in [
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build",
                true,
                "580.126.09",
            ),
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", false, "535.183.01"),
        ] {
            let root = FakeRoot::new();
            root.file("proc/driver/nvidia/version", line);
            let facts = Nvidia::probe(&yes, &Roots::under(root.path()));
            assert_eq!(facts.open_module.answer.is_yes(), open);
            assert_eq!(facts.driver.found, format!("driver {version}"));
            assert!(!facts.p2pdma.answer.is_yes() && !facts.nvidia_fs.answer.is_yes());
            let why = gpudirect_storage(&facts, true).unwrap_err();
            assert!(why.contains("nvidia-fs is not loaded") && why.contains("P2PDMA"), "{why}");
            root.file("proc/driver/nvidia/params", "RegistryDwords: \"RMForceStaticBar1=1;\"\n");
            let facts = Nvidia::probe(&yes, &Roots::under(root.path()));
            assert_eq!(gpudirect_storage(&facts, true).is_ok_and(|by_p2pdma| by_p2pdma), open);
            assert!(gpudirect_storage(&facts, false).is_err(), "P2PDMA is switched off");
            root.file("proc/driver/nvidia-fs/version", "version: 2.26\n");
            let facts = Nvidia::probe(&yes, &Roots::under(root.path()));
            assert_eq!(facts.p2pdma.answer.is_yes(), open);
            assert_eq!(facts.nvidia_fs.found, "version: 2.26");
            assert_eq!(gpudirect_storage(&facts, false), Ok(false), "nvidia-fs comes first");
        }
    }
}
