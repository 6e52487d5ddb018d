//! How many pieces a logical volume consists of. The kernel tells its table only to privileged programs through
//! ioctls, and sysfs not at all; what LVM itself keeps in /etc/lvm/backup names the number, and root can read it. It
//! runs no command and gives no answer where that text has none.

use super::roots::Roots;

/// Largest metadata text that is looked at. A volume group's metadata area is a few MiB at most.
const METADATA: u64 = 16 << 20;

/// The number of extents (contiguous pieces, one line each in the kernel's table) of a logical volume, by the
/// device-mapper name, such as `vg0-data`, and the part of the uuid after `LVM-`.
pub(super) fn extents(roots: &Roots, dm_name: &str, uuid: &str) -> Option<u32> {
    let group = volume_group(dm_name)?;
    // The uuid is the volume group's 32 characters, the volume's 32, and for hidden layers a dash and a word.
    let volume = uuid.get(32..64)?;
    let text = roots.read(format!("etc/lvm/backup/{group}"), METADATA).ok()?;
    segment_count(&String::from_utf8_lossy(&text), volume)
}

/// The volume group in a device-mapper name, where a dash within a name is doubled.
fn volume_group(dm_name: &str) -> Option<String> {
    let mut group = String::new();
    let mut rest = dm_name.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '-' && rest.next_if_eq(&'-').is_none() {
            break;
        }
        group.push(c);
    }
    let sane = |c: char| c.is_ascii_alphanumeric() || "_+.-".contains(c);
    let usable = group.len() < dm_name.len() && !group.is_empty() && group.chars().all(sane);
    (usable && group != "." && group != "..").then_some(group)
}

/// The count after the volume's id and before the next id.
fn segment_count(metadata: &str, volume: &str) -> Option<u32> {
    let mut ours = false;
    for line in metadata.lines().map(str::trim) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = value.split('#').next().unwrap_or_default().trim();
        match name.trim() {
            "id" => ours = value.chars().filter(|c| !"\"-".contains(*c)).eq(volume.chars()),
            "segment_count" if ours => return value.parse().ok(),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"
contents = "Text Format Volume Group"
vg-0 {
	id = "Ef6s9w-DPHc-0Zka-H6ld-iGDY-2GMH-Fp2b9A"
	physical_volumes {
		pv0 {
			id = "aaaaaa-DPHc-0Zka-H6ld-iGDY-2GMH-Fp2b9A"
		}
	}
	logical_volumes {
		root {
			id = "bbbbbb-DPHc-0Zka-H6ld-iGDY-2GMH-Fp2b9A"
			segment_count = 1
		}
		data {
			id = "cccccc-DPHc-0Zka-H6ld-iGDY-2GMH-Fp2b9A"
			status = ["READ", "WRITE"]	# more
			segment_count = 17	# pieces
			segment1 {
				extent_count = 2
			}
		}
	}
}
"#;

    #[test]
    fn the_count_is_that_of_the_volume_with_the_id() {
        let id = |first: &str| format!("{first}DPHc0ZkaH6ldiGDY2GMHFp2b9A");
        assert_eq!(segment_count(METADATA, &id("cccccc")), Some(17));
        assert_eq!(segment_count(METADATA, &id("bbbbbb")), Some(1));
        assert_eq!(segment_count(METADATA, &id("aaaaaa")), None);
        assert_eq!(segment_count(METADATA, &id("dddddd")), None);
        assert_eq!(segment_count("id = \"x\"\nsegment_count = many", "x"), None);
        assert_eq!(segment_count("", ""), None);
    }

    #[test]
    fn names_of_groups_are_told_from_those_of_volumes() {
        for (name, group) in [
            ("vg0-root", Some("vg0")),
            ("my--vg-the--lv", Some("my-vg")),
            ("a---b", Some("a-")),
            ("lonely", None),
            ("-x", None),
            ("..-x", None),
            ("a/b-x", None),
            ("", None),
        ] {
            assert_eq!(volume_group(name).as_deref(), group, "{name}");
        }
    }

    #[test]
    fn behaviour_160_short_or_odd_uuids_are_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        for uuid in ["", "short", &"x".repeat(63), &"é".repeat(64), &"y".repeat(5000)] {
            assert_eq!(extents(&roots, "vg-lv", uuid), None);
        }
    }
}
