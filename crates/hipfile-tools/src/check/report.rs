//! What `check` says of a machine, as data: the form of `--json`, and what the text is made from. Fields are only ever added;
//! a change of meaning raises `schema_version`.

use std::collections::BTreeSet;

use hipfile::platform::{Answer, Finding, PeerPath, Platform, Volume};
use hipfile::storage::{FsKind, Roots};
use hipfile::{Config, Reason};
use serde::Serialize;

use super::o_direct::ODirect;
use super::{is_emulated, o_direct};

const NVIDIA_FS: &str = "nvidia-fs";
const NVIDIA_P2PDMA: &str = "P2PDMA (dma-buf)";

/// The whole answer.
#[derive(Serialize)]
pub(super) struct Report {
    schema_version: u32,
    /// Whether every component is there.
    pub(super) ready: bool,
    pub(super) system: String,
    /// The four that count, in AMD's order.
    pub(super) components: Vec<Component>,
    pub(super) volumes: Vec<VolumeRow>,
    pub(super) gpus: Vec<GpuRow>,
    pub(super) nvidia: Vec<Component>,
    /// What helps, and is not needed.
    pub(super) other: Vec<Component>,
    pub(super) container: Option<ContainerRow>,
    pub(super) warnings: Vec<String>,
    /// What could not be seen, and why.
    pub(super) unseen: Vec<String>,
    /// Whether the emulated GPU was asked for, which makes the block devices below a file system irrelevant.
    pub(super) emulated: bool,
}

/// One thing that direct access needs.
#[derive(Serialize)]
pub(super) struct Component {
    pub(super) name: &'static str,
    /// null: it cannot be seen.
    pub(super) ok: Option<bool>,
    pub(super) found: String,
    /// What to do; null when nothing.
    pub(super) advice: Option<String>,
}

/// One mount.
#[derive(Serialize)]
pub(super) struct VolumeRow {
    pub(super) mountpoint: String,
    pub(super) fstype: String,
    pub(super) device: String,
    pub(super) backing: String,
    /// The block devices from the top down.
    pub(super) stack: Vec<String>,
    pub(super) o_direct: &'static str,
    /// `yes`, `no`, or `unknown`.
    pub(super) hipfile: &'static str,
    pub(super) reason: Option<&'static str>,
    pub(super) text: Option<&'static str>,
    pub(super) advice: Option<&'static str>,
    /// What could not be seen, for `unknown`.
    pub(super) unseen: Option<&'static str>,
    /// Whether people keep data on it; the others are shown only when asked for.
    pub(super) for_data: bool,
}

/// Through what other devices reach a GPU's memory, in bytes.
#[derive(Serialize)]
pub(super) struct WindowRow {
    pub(super) reached: u64,
    pub(super) memory: Option<u64>,
    pub(super) most: Option<u64>,
    pub(super) small: bool,
}

#[derive(Serialize)]
pub(super) struct GpuRow {
    pub(super) pci: String,
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) virtual_function: bool,
    pub(super) integrated: bool,
    pub(super) link: Option<String>,
    pub(super) link_reduced: bool,
    pub(super) window: Option<WindowRow>,
    pub(super) root_port: bool,
    pub(super) iommu: Option<String>,
    /// The local NVMe drives, and how they are reached.
    pub(super) peers: Vec<PeerRow>,
}

#[derive(Serialize)]
pub(super) struct PeerRow {
    pub(super) nvme: String,
    pub(super) path: &'static str,
}

#[derive(Serialize)]
pub(super) struct ContainerRow {
    pub(super) sign: String,
    pub(super) missing: Vec<MissingRow>,
}

#[derive(Serialize)]
pub(super) struct MissingRow {
    pub(super) path: String,
    pub(super) give: String,
}

impl Report {
    pub(super) fn gather(config: &Config, roots: &Roots) -> Report {
        let platform = Platform::probe(config, roots);
        let emulated = is_emulated(config);
        let volumes = volumes(&platform, config, roots);
        let mut components = vec![
            component("Kernel P2PDMA support", &platform.p2pdma),
            component("HIP runtime", &platform.hip),
            component("amdgpu", &platform.amdgpu),
        ];
        components.push(capable_volume(&volumes));
        let nvidia = &platform.nvidia;
        let nvidia = vec![
            component("driver", &nvidia.driver),
            component("open kernel module", &nvidia.open_module),
            component(NVIDIA_FS, &nvidia.nvidia_fs),
            component(NVIDIA_P2PDMA, &nvidia.p2pdma),
            component("libcufile", &nvidia.cufile),
        ];
        Report {
            schema_version: 1,
            ready: components.iter().all(|component| component.ok == Some(true)),
            system: platform.kernel.to_string(),
            components,
            volumes,
            gpus: gpus(&platform),
            nvidia,
            other: vec![component("io_uring", &platform.io_uring)],
            container: platform.container.sign.as_ref().map(|sign| ContainerRow {
                sign: sign.clone(),
                missing: platform
                    .container
                    .missing
                    .iter()
                    .map(|(path, give)| MissingRow { path: path.clone(), give: give.clone() })
                    .collect(),
            }),
            warnings: platform.warnings(),
            unseen: platform.unseen,
            emulated,
        }
    }

    /// The components that are not there, or cannot be seen to be.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.components.iter().filter(|component| component.ok != Some(true)).map(|c| c.name).collect()
    }

    /// What NVIDIA's GPUs lack, with what to do. Of the two ways to storage one is enough.
    pub(super) fn missing_of_nvidia(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let is_way = |component: &&Component| [NVIDIA_FS, NVIDIA_P2PDMA].contains(&component.name);
        let has_way = self.nvidia.iter().filter(is_way).any(|component| component.ok == Some(true));
        self.nvidia
            .iter()
            .filter(move |component| component.ok != Some(true) && !(has_way && is_way(component)))
            .filter_map(|component| Some((component.name, component.advice.as_deref()?)))
    }

    /// Whether NVIDIA's software or GPUs are of interest here.
    pub(super) fn has_nvidia(&self) -> bool {
        self.nvidia.first().is_some_and(|driver| driver.ok == Some(true))
            || self.gpus.iter().any(|gpu| gpu.name.contains("NVIDIA"))
    }
}

fn component(name: &'static str, finding: &Finding) -> Component {
    let ok = match finding.answer {
        Answer::Yes => Some(true),
        Answer::No => Some(false),
        Answer::Unknown => None,
    };
    Component { name, ok, found: finding.found.clone(), advice: finding.advice.clone() }
}

fn capable_volume(volumes: &[VolumeRow]) -> Component {
    const NAME: &str = "hipFile-capable volume";
    let capable: Vec<&str> =
        volumes.iter().filter(|row| row.hipfile == "yes").map(|row| row.mountpoint.as_str()).collect();
    if let Some(first) = capable.first() {
        let more = capable.len() - 1;
        let found = if more == 0 { (*first).to_owned() } else { format!("{first} and {more} more") };
        return Component { name: NAME, ok: Some(true), found, advice: None };
    }
    let mounts_with = |unseen: &str| {
        let with = volumes.iter().filter(|row| row.for_data && row.unseen == Some(unseen));
        with.map(|row| row.mountpoint.as_str()).collect::<Vec<_>>().join(", ")
    };
    let unseen: BTreeSet<&str> =
        volumes.iter().filter(|row| row.for_data).filter_map(|row| row.unseen).collect();
    if !unseen.is_empty() {
        let found: Vec<String> =
            unseen.into_iter().map(|what| format!("{what} not seen ({})", mounts_with(what))).collect();
        let advice = "run as root; in a container also give it /sys/dev/block and /sys/devices".to_owned();
        return Component { name: NAME, ok: None, found: found.join("; "), advice: Some(advice) };
    }
    let reasons: BTreeSet<&str> =
        volumes.iter().filter(|row| row.for_data).filter_map(|row| row.reason).collect();
    let found = match reasons.is_empty() {
        false => reasons.into_iter().collect::<Vec<_>>().join(", "),
        true => "no volume is mounted that files could be on".to_owned(),
    };
    let advice = "mount an ext4 (data=ordered) or xfs file system on a local NVMe drive".to_owned();
    Component { name: NAME, ok: Some(false), found, advice: Some(advice) }
}

fn volumes(platform: &Platform, config: &Config, roots: &Roots) -> Vec<VolumeRow> {
    platform
        .volumes
        .iter()
        .filter(|volume| volume.storage.fs.kind() != FsKind::Pseudo)
        .filter_map(|volume| {
            let probed = if roots.is_real() { o_direct::probe(volume)? } else { ODirect::Unverified };
            Some(row(volume, probed, config))
        })
        .collect()
}

fn row(volume: &Volume, o_direct: ODirect, config: &Config) -> VolumeRow {
    let storage = &volume.storage;
    let emulated = is_emulated(config);
    let direct = storage.direct(config.unsupported_file_systems, emulated);
    let unseen = storage.unseen().filter(|_| !emulated);
    let (hipfile, reason) = match (direct, o_direct) {
        (Err(reason), _) => ("no", Some(reason)),
        (Ok(()), ODirect::No) => ("no", Some(Reason::NoDirectIo)),
        (Ok(()), _) if unseen.is_some() => ("unknown", None),
        (Ok(()), _) => ("yes", None),
    };
    VolumeRow {
        mountpoint: volume.mount.mount_point.to_string_lossy().into_owned(),
        fstype: storage.fs_text(),
        device: volume.mount.source.clone(),
        backing: match (storage.device, storage.fs.kind()) {
            (Some(_), _) => storage.backing.word().to_owned(),
            (None, FsKind::Local) => "unknown".to_owned(),
            (None, _) => "-".to_owned(),
        },
        stack: storage.backing.lines(),
        o_direct: o_direct.word(),
        hipfile,
        reason: reason.map(Reason::word),
        text: reason.map(Reason::text),
        advice: reason.map(Reason::advice),
        unseen: unseen.filter(|_| hipfile == "unknown"),
        for_data: volume.is_for_data(),
    }
}

fn gpus(platform: &Platform) -> Vec<GpuRow> {
    let path = |path: &PeerPath| match path {
        PeerPath::Switch => "switch",
        PeerPath::HostBridge => "host-bridge",
        PeerPath::Refused => "refused",
        _ => "unknown",
    };
    platform
        .gpus
        .iter()
        .map(|gpu| GpuRow {
            pci: gpu.pci.clone(),
            name: gpu.name.clone(),
            driver: gpu.driver.clone(),
            virtual_function: gpu.virtual_function,
            integrated: gpu.integrated,
            link: gpu.link.as_ref().map(ToString::to_string),
            link_reduced: gpu.link.as_ref().is_some_and(|link| link.is_reduced()),
            window: gpu.window.map(|window| WindowRow {
                reached: window.reached,
                memory: window.memory,
                most: window.most,
                small: window.is_small(),
            }),
            root_port: !gpu.lacks_root_port,
            iommu: gpu.iommu.clone(),
            peers: gpu
                .peers
                .iter()
                .map(|(nvme, way)| PeerRow { nvme: nvme.clone(), path: path(way) })
                .collect(),
        })
        .collect()
}
