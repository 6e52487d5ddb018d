//! A machine that is made up: files and links of /proc, /sys and /run with any content. What lies under a file, and the report
//! of `check`, come of it without a panic and in bounded time.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use hipfile::storage::{Roots, StorageFacts};

/// Where something is that is looked at.
const PLACES: &[&str] = &[
    "proc/self/mountinfo",
    "proc/thread-self/mountinfo",
    "proc/version",
    "proc/config.gz",
    "proc/modules",
    "proc/1/cgroup",
    "proc/kallsyms",
    "proc/cmdline",
    "proc/fs/ext4/sda1/options",
    "sys/dev/block/8:1",
    "sys/block/dm-0/dm/name",
    "sys/block/dm-0/dm/uuid",
    "sys/block/md0/md/level",
    "sys/block/sda/queue/dma_alignment",
    "sys/block/sda/device/transport",
    "sys/bus/pci/devices/0000:03:00.0/numa_node",
    "sys/bus/pci/devices/0000:03:00.0/class",
    "sys/class/kfd/kfd/topology/nodes/0/properties",
    "sys/module/amdgpu/version",
    "sys/module/nvidia_fs/version",
    "run/udev/data/b8:1",
    "etc/lvm/backup/vg",
    "sys/devices/system/node/online",
];

pub(crate) fn run(input: &[u8]) {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    let base = BASE.get_or_init(|| crate::scratch("machine"));
    let _ = std::fs::remove_dir_all(base);
    // Pieces: a place, a length, so many bytes; a place above the list is a link to another.
    let mut rest = input;
    while let [place, len, more @ ..] = rest {
        let (bytes, after) = more.split_at(more.len().min(usize::from(*len)));
        let path = base.join(PLACES[usize::from(*place) % PLACES.len()]);
        let _ = path.parent().map(std::fs::create_dir_all);
        if usize::from(*place) >= PLACES.len() * 2 {
            let to = bytes.first().map_or(0, |to| usize::from(*to) % PLACES.len());
            let _ = std::os::unix::fs::symlink(base.join(PLACES[to]), &path);
        } else {
            let _ = std::fs::write(&path, bytes);
        }
        rest = after;
    }
    let roots = Roots::under(base);
    for known in [c"/dev/null", c"/proc/self/exe"] {
        let file =
            std::fs::File::open(known.to_str().unwrap_or_default()).expect("a file that is always there");
        if let Ok(facts) = StorageFacts::of_fd(file.as_fd(), &roots) {
            let _ = (facts.fs_text(), facts.direct(true, false), facts.unseen(), format!("{facts:?}"));
        }
    }
    hipfile::fuzz_hooks::describe(&roots);
    let _ = std::fs::remove_dir_all(base);
}
