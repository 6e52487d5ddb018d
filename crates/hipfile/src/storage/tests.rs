//! Storage facts on made-up machines, on the running one, and on garbage.

use std::os::fd::AsFd;

use test_support::fake_root::FakeRoot;

use super::*;

const NVME: &str = "pci0000:00/0000:00:01.1/0000:01:00.0";

fn regular(dev: (u32, u32), mount_id: Option<u64>) -> Statx {
    Statx { mode: (libc::S_IFREG | 0o644) as u16, dev, mount_id, ..Statx::default() }
}

const EXT: Option<u32> = Some(0xEF53);
const XFS: Option<u32> = Some(0x5846_5342);

fn facts(root: &FakeRoot, magic: Option<u32>, dev: (u32, u32)) -> StorageFacts {
    StorageFacts::of_file(&regular(dev, None), magic, &Roots::under(root.path()))
}

#[test]
fn behaviour_104_local_nvme_with_xfs_or_ordered_ext4_is_direct() {
    let mut root = FakeRoot::new();
    let disk = root.nvme(0, "259:0", NVME);
    root.partition(&disk, "nvme0n1p1", "259:1");
    root.partition(&disk, "nvme0n1p2", "259:2");
    root.mount("259:1", "/a", "ext4", "/dev/nvme0n1p1", "rw");
    root.mount("259:2", "/b", "xfs", "/dev/nvme0n1p2", "rw,attr2");
    for (magic, minor, text) in [(EXT, 1, "ext4 (ordered)"), (XFS, 2, "xfs")] {
        let facts = facts(&root, magic, (259, minor));
        assert_eq!(facts.direct(false, false), Ok(()), "{facts:?}");
        assert_eq!(facts.fs_text(), text);
        assert_eq!(facts.backing.word(), "nvme");
        assert_eq!(facts.backing.controllers(), ["0000:01:00.0"]);
        assert_eq!(facts.unseen(), None);
        assert!(!facts.is_memory() && !facts.is_network() && !facts.prefers_buffered());
    }
}

#[test]
fn behaviour_104_the_journal_mode_counts() {
    for (options, in_force, expected) in [
        ("rw", None, Ok(())),
        ("rw,data=ordered", None, Ok(())),
        ("rw,data=journal", None, Err(Reason::JournalMode)),
        ("rw,data=writeback", None, Err(Reason::JournalMode)),
        ("rw,data=new", None, Err(Reason::JournalMode)),
        // tune2fs made it the default, so the mount table does not show it.
        ("rw", Some("rw\ndata=journal\n"), Err(Reason::JournalMode)),
        ("rw", Some("rw\ndata=ordered\n"), Ok(())),
    ] {
        let mut root = FakeRoot::new();
        root.nvme(0, "259:0", NVME);
        root.mount("259:0", "/a", "ext4", "/dev/nvme0n1", options);
        if let Some(text) = in_force {
            root.file("proc/fs/ext4/nvme0n1/options", text);
        }
        let facts = facts(&root, EXT, (259, 0));
        assert_eq!(facts.direct(false, false), expected, "{options} {in_force:?}");
        // The file system's rules hold whatever is below, and not where any file system may be tried.
        assert_eq!(facts.direct(false, true), expected);
        assert_eq!(facts.direct(true, false), Ok(()));
    }
}

#[test]
fn behaviour_99_stacks_without_a_direct_path_are_named() {
    let mut root = FakeRoot::new();
    let disk = root.nvme(0, "259:0", NVME);
    let other = root.nvme(1, "259:5", "pci0000:00/0000:00:01.2/0000:02:00.0");
    let lv = root.lvm(9, "vg9", "under", 1, &[&root.md(9, "raid0", &[&disk])]);
    let cases = [
        (root.md(0, "raid1", &[&disk, &other]), "9:0", "md", Err(Reason::BlockStackMd)),
        (
            root.dm(0, "luks", "CRYPT-LUKS2-1234-luks", &[&disk]),
            "252:0",
            "crypt",
            Err(Reason::BlockStackCrypt),
        ),
        (root.dm(1, "mpatha", "mpath-3600", &[&disk]), "252:1", "mpath", Err(Reason::BlockStackMultipath)),
        (
            root.dm(2, "mpatha1", "part1-mpath-3600", &["sys/devices/virtual/block/dm-1"]),
            "252:2",
            "mpath",
            Err(Reason::BlockStackMultipath),
        ),
        (root.dm(3, "odd", "", &[&disk]), "252:3", "dm", Err(Reason::BlockStackDm)),
        (root.dm(4, "verity", "CRYPT-VERITY-1-x", &[&disk]), "252:4", "dm", Err(Reason::BlockStackDm)),
        (root.lvm(5, "vg5", "small", 16, &[&disk]), "252:5", "lvm", Ok(())),
        (root.lvm(6, "vg6", "pieces", 17, &[&disk]), "252:6", "lvm", Err(Reason::LvmExtents)),
        (root.dm(7, "vg7-x", "LVM-abc", &[&disk, &other]), "252:7", "lvm", Ok(())),
        (root.dm(8, "vg8-luks", "CRYPT-LUKS1-9-x", &[&lv]), "252:8", "crypt", Err(Reason::BlockStackCrypt)),
        (lv.clone(), "252:9", "lvm", Err(Reason::BlockStackMd)),
        (root.loop_device(3, "/img"), "7:3", "loop", Err(Reason::BlockStackLoop)),
        (root.disk("vda", "254:0", "virtio"), "254:0", "virtio", Err(Reason::NotNvme)),
        (root.disk("sda", "8:0", "scsi"), "8:0", "scsi", Err(Reason::NotNvme)),
        (root.block("virtual/block/zram0", "253:0"), "253:0", "zram", Err(Reason::NotNvme)),
        (root.nvme_fabric(4, "259:10", "rdma"), "259:10", "nvme-rdma", Ok(())),
        (root.nvme_fabric(5, "259:11", "tcp"), "259:11", "nvme-tcp", Err(Reason::NvmeTcp)),
    ];
    for (_, number, word, expected) in &cases {
        root.mount(number, "/m", "xfs", "/dev/x", "rw");
        let (major, minor) = number.split_once(':').unwrap();
        let facts = facts(&root, XFS, (major.parse().unwrap(), minor.parse().unwrap()));
        assert_eq!(facts.backing.word(), *word, "{facts:#?}");
        assert_eq!(facts.direct(false, false), *expected, "{number} {facts:#?}");
        assert_eq!(facts.direct(true, false), *expected, "any file system changes nothing below it");
        assert_eq!(facts.direct(false, true), Ok(()));
        let unseen = if *number == "252:7" { Some("extents of the volume") } else { None };
        assert_eq!(facts.unseen(), unseen, "{facts:#?}");
    }
}

#[test]
fn behaviour_103_nvme_is_told_apart_by_transport_and_path() {
    let root = FakeRoot::new();
    root.nvme_multipath(2, "259:2", &[("pcie", NVME), ("pcie", "pci0000:80/0000:80:01.0/0000:81:00.0")]);
    root.nvme_multipath(
        6,
        "259:6",
        &[("rdma", "pci0000:00/0000:00:03.0"), ("tcp", "pci0000:00/0000:00:04.0")],
    );
    let facts = |minor| StorageFacts::of_block_device((259, minor), &Roots::under(root.path()));
    assert_eq!(facts(2).direct(false, false), Err(Reason::BlockStackMultipath));
    assert_eq!(facts(2).backing.word(), "nvme-mpath");
    assert_eq!(facts(2).backing.lines(), ["nvme2n1: nvme, pcie, multipath head, 0000:01:00.0"]);
    let BlockKind::Nvme { transport, .. } = facts(6).backing.top.unwrap().kind else { panic!("not NVMe") };
    assert_eq!(transport, NvmeTransport::Tcp, "the path that is not direct decides");
}

#[test]
fn raw_devices_go_by_their_own_number() {
    let root = FakeRoot::new();
    root.nvme(0, "259:0", NVME);
    let statx =
        Statx { mode: (libc::S_IFBLK | 0o600) as u16, dev: (0, 5), rdev: (259, 0), ..Statx::default() };
    // The node lies on devtmpfs, whose number is that of tmpfs.
    let facts = StorageFacts::of_file(&statx, Some(0x0102_1994), &Roots::under(root.path()));
    assert_eq!((facts.node, facts.fs, facts.device), (Node::Block, FsClass::Raw, Some((259, 0))));
    assert_eq!(facts.direct(false, false), Ok(()));
    assert!(!facts.is_memory() && !facts.prefers_buffered());
    let statx = Statx { mode: (libc::S_IFCHR | 0o600) as u16, ..statx };
    let facts = StorageFacts::of_file(&statx, None, &Roots::under(root.path()));
    assert_eq!(facts.direct(true, true), Err(Reason::FileType));
}

#[test]
fn behaviour_114_network_file_systems_go_through_the_page_cache() {
    for (fs, options) in
        [("nfs4", "rw,proto=rdma"), ("nfs", "rw,proto=tcp"), ("lustre", "rw"), ("cifs", "rw")]
    {
        let mut root = FakeRoot::new();
        root.mount("0:50", "/net", fs, "10.0.0.1:/fs", options);
        assert!(facts(&root, None, (0, 50)).prefers_buffered(), "{fs}");
    }
}

#[test]
fn behaviour_67_a_file_system_with_an_unknown_name_lacks_nothing() {
    let mut root = FakeRoot::new();
    root.mount("259:0", "/", "xfs2", "/dev/nvme0n1", "rw");
    let facts = facts(&root, None, (259, 0));
    assert_eq!((facts.fs, facts.prefers_buffered()), (FsClass::Other, false));
}

#[test]
fn network_file_systems_tell_their_transport() {
    for (fs, source, options, transport, plain, any) in [
        ("nfs4", "h:/x", "rw,proto=rdma,vers=4.2", Transport::Rdma, Err(Reason::FileSystem), Ok(())),
        ("nfs", "h:/x", "rw,proto=tcp6", Transport::Tcp, Err(Reason::NetworkTcp), Err(Reason::NetworkTcp)),
        ("nfs", "h:/x", "rw,proto=udp", Transport::Udp, Err(Reason::FileSystem), Err(Reason::NetworkTcp)),
        ("nfs4", "h:/x", "rw", Transport::Unknown, Err(Reason::FileSystem), Ok(())),
        ("lustre", "10.0.0.1@o2ib:/fs", "rw", Transport::Rdma, Err(Reason::FileSystem), Ok(())),
        ("cifs", "//h/x", "rw,rdma", Transport::Rdma, Err(Reason::FileSystem), Ok(())),
    ] {
        let mut root = FakeRoot::new();
        root.mount("0:50", "/net", fs, source, options);
        let facts = facts(&root, None, (0, 50));
        assert_eq!(facts.transport, Some(transport), "{fs} {options}");
        assert_eq!((facts.direct(false, false), facts.direct(true, false)), (plain, any), "{fs} {options}");
        assert!(facts.is_network() && facts.device.is_none());
    }
}

#[test]
fn behaviour_27_with_nothing_to_be_seen_the_number_of_statfs_still_tells() {
    let root = FakeRoot::new();
    let xfs = facts(&root, XFS, (259, 0));
    assert_eq!(
        (xfs.direct(false, false), xfs.unseen(), xfs.fs_type.as_str()),
        (Ok(()), Some("block devices"), "xfs")
    );
    let ext = facts(&root, EXT, (259, 0));
    assert_eq!((ext.direct(false, false), ext.journal), (Err(Reason::MountUnknown), None));
    assert_eq!(ext.direct(true, false), Ok(()));
    let nothing = facts(&root, None, (259, 0));
    assert_eq!((nothing.direct(false, false), nothing.fs), (Err(Reason::FileSystem), FsClass::Other));
    // ext3 is not ext4, and the table says so.
    let mut root = FakeRoot::new();
    root.mount("8:1", "/", "ext3", "/dev/sda1", "rw");
    assert_eq!(facts(&root, EXT, (8, 1)).direct(false, true), Err(Reason::FileSystem));
}

#[test]
fn behaviour_28_another_mount_of_the_device_or_path_prefix_does_not_confuse() {
    let mut root = FakeRoot::new();
    root.nvme(0, "259:0", NVME);
    root.mount("0:40", "/m/a", "tmpfs", "none", "rw");
    root.mount("259:0", "/m/ab", "ext4", "/dev/nvme0n1", "rw,data=ordered");
    root.mount("259:0", "/bind", "ext4", "/dev/nvme0n1", "rw,data=ordered");
    let of = |id| StorageFacts::of_file(&regular((259, 0), id), EXT, &Roots::under(root.path()));
    let point = |facts: StorageFacts| facts.mount.map(|m| m.mount_point.display().to_string());
    assert_eq!(of(Some(21)).fs_text(), "ext4 (ordered)");
    assert_eq!(point(of(Some(21))), Some("/m/ab".to_owned()));
    assert_eq!(point(of(Some(22))), Some("/bind".to_owned()));
    assert_eq!(point(of(None)), Some("/bind".to_owned()));
    // From another namespace: no mount of ours, and still all that matters.
    assert_eq!((point(of(Some(99))), of(Some(99)).direct(false, false)), (None, Ok(())));
}

#[test]
fn behaviour_28_and_97_real_files_are_told_by_descriptor() {
    let roots = Roots::real();
    let file = tempfile::NamedTempFile::new().unwrap();
    let named = StorageFacts::of_fd(file.as_file().as_fd(), &roots).unwrap();
    let (file, path) = file.into_parts();
    path.close().unwrap();
    let unlinked = StorageFacts::of_fd(file.as_fd(), &roots).unwrap();
    assert_eq!((&named.fs_type, &named.mount), (&unlinked.fs_type, &unlinked.mount));
    assert_eq!(named.node, Node::Regular);

    let memory = rustix::fs::memfd_create("facts", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memory = StorageFacts::of_fd(memory.as_fd(), &roots).unwrap();
    assert!(memory.is_memory() && memory.mount.is_none() && memory.device.is_none(), "{memory:?}");
    assert_eq!(memory.direct(false, true), Err(Reason::FileSystem));

    let null = std::fs::File::open("/dev/null").unwrap();
    let null = StorageFacts::of_fd(null.as_fd(), &roots).unwrap();
    assert_eq!(null.direct(true, true), Err(Reason::FileType));
}

#[test]
fn behaviour_160_circles_depth_and_width_are_bounded() {
    let mut root = FakeRoot::new();
    // Two volumes that consist of each other.
    let a = root.dm(0, "vg-a", "LVM-a", &["sys/devices/virtual/block/dm-1"]);
    root.dm(1, "vg-b", "LVM-b", &[&a]);
    // One that consists of itself many times over.
    let itself = "sys/devices/virtual/block/dm-2".to_owned();
    root.dm(2, "vg-c", "LVM-c", &[&itself]);
    for n in 0..1000 {
        root.link(&format!("{itself}/slaves/x{n}"), &itself);
    }
    for minor in 0..3 {
        root.mount(&format!("252:{minor}"), "/m", "xfs", "/dev/x", "rw");
        let facts = facts(&root, XFS, (252, minor));
        assert!(facts.unseen().is_some(), "{minor}");
        assert_eq!(facts.direct(false, false), Ok(()));
        assert!(facts.backing.lines().len() < 1000);
    }
}

#[test]
fn behaviour_160_garbage_and_huge_files_are_survived() {
    let garbage: Vec<u8> = (0..=255u8).cycle().take(1 << 20).collect();
    let root = FakeRoot::new();
    let disk = root.nvme(0, "259:0", NVME);
    let lv = root.lvm(1, "vg", "lv", 3, &[&disk]);
    let md = root.md(0, "raid0", &[&lv]);
    let lo = root.loop_device(0, "/x");
    root.partition(&disk, "nvme0n1p1", "259:1");
    for file in [
        format!("{disk}/device/transport"),
        format!("{disk}/device/address"),
        format!("{disk}/dev"),
        format!("{lv}/dm/name"),
        "etc/lvm/backup/vg".to_owned(),
        format!("{md}/md/level"),
        format!("{lo}/loop/backing_file"),
        "proc/self/mountinfo".to_owned(),
        "proc/fs/ext4/nvme0n1/options".to_owned(),
        format!("{lv}/dm/uuid"),
    ] {
        root.file(&file, &garbage);
        for number in [(259, 0), (259, 1), (252, 1), (9, 0), (7, 0)] {
            let facts = facts(&root, EXT, number);
            let _ = (facts.direct(true, false), facts.unseen(), facts.fs_text(), facts.backing.lines());
        }
    }
    // Folders and FIFOs where files belong, files where folders belong.
    let root = FakeRoot::new();
    let disk = root.nvme(0, "259:0", NVME);
    std::fs::remove_file(root.at(&format!("{disk}/device"))).unwrap();
    root.file(&format!("{disk}/device"), "no folder");
    root.folder("proc/self/mountinfo").file(&format!("{disk}/slaves"), "no folder");
    let facts = facts(&root, XFS, (259, 0));
    assert_eq!((facts.direct(false, false), facts.unseen()), (Ok(()), Some("NVMe transport")));
}
