//! What the mount table says, parsed as untrusted text. It reads no file and decides nothing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's id, as statx and fdinfo report it.
    pub id: u64,
    /// Device number of the file system.
    pub dev: (u32, u32),
    /// Where it is mounted, as the reader of the table sees it.
    pub mount_point: PathBuf,
    /// The file system's type, for instance `ext4`.
    pub fs_type: String,
    /// What is mounted, for instance a block device.
    pub source: String,
    /// Options of this mount, then those of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// Value of a `name=value` option of the file system or mount.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|o| o.strip_prefix(name)?.strip_prefix('='))
    }
}

/// How ext4 journals data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalMode {
    /// Data reaches the disk before its metadata is committed; the default.
    Ordered,
    /// Data goes through the journal, and never direct.
    Journal,
    /// Data and metadata reach the disk in any order.
    Writeback,
    /// A mode not known here.
    Other,
}

impl JournalMode {
    /// From the value of the mount option `data`.
    pub fn of_option(value: &str) -> JournalMode {
        match value {
            "ordered" => JournalMode::Ordered,
            "journal" => JournalMode::Journal,
            "writeback" => JournalMode::Writeback,
            _ => JournalMode::Other,
        }
    }

    /// The value of the mount option `data`.
    pub const fn name(self) -> &'static str {
        match self {
            JournalMode::Ordered => "ordered",
            JournalMode::Journal => "journal",
            JournalMode::Writeback => "writeback",
            JournalMode::Other => "unknown",
        }
    }
}

/// What carries a network file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// RDMA.
    Rdma,
    /// The mount table does not say.
    Unknown,
}

impl Transport {
    /// As NFS has it in its options, SMB in a word among them, and Lustre in the name of the server's network.
    pub fn of_mount(mount: &Mount) -> Transport {
        match mount.fs_type.as_str() {
            "nfs" | "nfs4" => match mount.option("proto") {
                Some("tcp" | "tcp6") => Transport::Tcp,
                Some("udp" | "udp6") => Transport::Udp,
                Some("rdma" | "rdma6") => Transport::Rdma,
                _ => Transport::Unknown,
            },
            "cifs" | "smb3" if mount.options.iter().any(|o| o == "rdma") => Transport::Rdma,
            "cifs" | "smb3" | "ceph" => Transport::Tcp,
            "lustre" if mount.source.contains("@tcp") => Transport::Tcp,
            "lustre" if mount.source.contains("@o2ib") => Transport::Rdma,
            _ => Transport::Unknown,
        }
    }

    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Rdma => "rdma",
            Transport::Unknown => "unknown",
        }
    }
}

/// The lines that speak of a file: the very mount it was opened through, and any mount of its file system. The
/// options that matter here belong to the file system, so that the second serves where the first is not in the table
/// (a file handed over from another mount namespace) or its id is not known (kernels before 5.8).
pub(crate) fn find(text: &[u8], id: Option<u64>, dev: (u32, u32)) -> (Option<Mount>, Option<Mount>) {
    let (id_text, dev_text) = (id.map(|id| id.to_string()), format!("{}:{}", dev.0, dev.1));
    let (mut very, mut same) = (None, None);
    for line in text.split(|b| *b == b'\n') {
        // Machines full of containers have thousands of mounts: only the lines asked for are taken apart.
        let mut fields = line.split(|b| *b == b' ');
        let is_very =
            fields.next().is_some_and(|field| id_text.as_ref().is_some_and(|id| field == id.as_bytes()));
        if !is_very && fields.nth(1) != Some(dev_text.as_bytes()) {
            continue;
        }
        let Some(mount) = parse_line(line) else { continue };
        // The last one is the one on top.
        if is_very {
            very = Some(mount);
        } else {
            same = Some(mount);
        }
    }
    match (very, same, id) {
        (Some(very), ..) => (Some(very.clone()), Some(very)),
        (None, Some(same), None) => (Some(same.clone()), Some(same)),
        (None, same, _) => (None, same),
    }
}

/// Parses a whole mountinfo text (format: proc_pid_mountinfo(5)); lines that do not fit are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ').filter(|f| !f.is_empty());
    let id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let dev = fields.next()?;
    let colon = dev.iter().position(|b| *b == b':')?;
    let dev = (number(&dev[..colon])?, number(&dev[colon + 1..])?);
    let _root = fields.next()?;
    let mount_point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let mount_options = text(fields.next()?);
    // Optional fields end at a lone dash.
    fields.by_ref().find(|f| *f == b"-")?;
    let fs_type = text(fields.next()?);
    let source = text(fields.next().unwrap_or_default());
    let super_options = text(fields.next().unwrap_or_default());
    let options = mount_options
        .split(',')
        .chain(super_options.split(','))
        .filter(|o| !o.is_empty())
        .map(str::to_owned)
        .collect();
    Some(Mount { id, dev, mount_point, fs_type, source, options })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    // parse() takes a plus sign, which no kernel writes.
    if !field.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = rest {
            out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,data=journal
35 22 0:31 / /m/a\\040b rw - tmpfs none rw,size=1k
not a line
36 22 0:32 / /dash/- rw - nfs4 host:/x rw,vers=4.2,proto=rdma
37 22 x:1 / /bad rw - ext4 /dev/x rw
38 22 8:1 / /none rw shared:7 ext4 /dev/x rw
39 22 8:1 /sub /short ro - overlay
";

    #[test]
    fn parses_good_lines_and_leaves_out_bad_ones() {
        let mounts = parse(TABLE.as_bytes());
        assert_eq!(mounts.iter().map(|m| m.id).collect::<Vec<_>>(), [22, 35, 36, 39]);
        assert_eq!(mounts[0].option("data"), Some("journal"));
        assert_eq!(mounts[0].dev, (254, 0));
        assert_eq!(mounts[1].mount_point, PathBuf::from("/m/a b"));
        assert_eq!((mounts[1].fs_type.as_str(), mounts[1].option("data")), ("tmpfs", None));
        assert_eq!(mounts[2].option("proto"), Some("rdma"));
        assert_eq!(mounts[3].fs_type, "overlay");
    }

    #[test]
    fn behaviour_28_the_id_decides_then_the_device() {
        let table = b"\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:40 / /m/a rw - tmpfs none rw
3 1 8:1 /x /m/ab rw - ext4 /dev/sda1 rw,data=journal
4 1 8:1 /y /bind rw - ext4 /dev/sda1 rw,data=journal
";
        let ids = |id, dev| {
            let (very, same) = find(table, id, dev);
            (very.map(|m| m.id), same.map(|m| m.id))
        };
        assert_eq!(ids(Some(3), (8, 1)), (Some(3), Some(3)));
        assert_eq!(ids(Some(1), (8, 1)), (Some(1), Some(1)));
        assert_eq!(ids(None, (8, 1)), (Some(4), Some(4)));
        assert_eq!(ids(None, (9, 9)), (None, None));
        // Another namespace's mount: the file system's options are known, the mount is not.
        assert_eq!(ids(Some(77), (8, 1)), (None, Some(4)));
    }

    #[test]
    fn any_bytes_are_survived() {
        for text in
            [&b""[..], b"\n\n", b"\xff\xfe 1 1:1", b"1 1 1:1 / \\0 rw - x y z", b"1 1 1:1 / \\999 a - b"]
        {
            assert!(parse(text).len() <= 1, "{text:?}");
        }
    }
}
