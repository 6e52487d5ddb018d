//! Builds what is packaged: by zig's linker against an old glibc, without a path of this machine in it; then looks at what came
//! out. It packs nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{cargo, cmd};
use crate::layout;
use crate::python::from_pypi;

/// The oldest glibc that the packages run with: that of RHEL 8 and of Debian 10.
pub(crate) const GLIBC: (u32, u32) = (2, 28);
const ZIG: &str = "ziglang==0.17.1 cargo-zigbuild==0.24.1";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What is linked, by the names that cargo gives it.
pub(super) const PROGRAMS: [&str; 4] = ["hipfile", "libhipfile_c.so", "libamdhip64.so", "libhiprtc.so"];
const ARCHIVE: &str = "libhipfile_c.a";

/// The folder of programs with zig and cargo-zigbuild; made once.
///
/// # Errors
/// There is no Python, or the packages cannot be had.
fn zig() -> Result<PathBuf, String> {
    from_pypi(ZIG).map(|home| home.join("bin"))
}

/// `PATH` with zig and cargo-zigbuild first.
///
/// # Errors
/// As of fetching them.
pub(crate) fn path_with_zig() -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(zig()?).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|e| format!("PATH: {e}"))
}

/// What the compiler is told so that no path of this machine is in what it makes. The identity is given later, by what is shipped:
/// symbols are not the same wherever they are built, since zig's own start files name the folder.
pub(crate) fn flags() -> String {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let home = home.unwrap_or_else(|_| "/.cargo".to_owned());
    let root = layout::root().display();
    format!(
        "--remap-path-prefix={root}=hipfile --remap-path-prefix={home}/registry/src=registry \
         -Clink-arg=-Wl,--build-id=0x{NO_ID} -Clink-arg=-Wl,-z,relro,-z,now,-z,noexecstack"
    )
}

const NO_ID: &str = "0000000000000000000000000000000000000000";

/// Builds everything; the folder where it is.
pub(super) fn all(epoch: &str) -> Result<PathBuf, String> {
    let (major, minor) = GLIBC;
    let target = layout::target().join("portable");
    cargo()
        .words("zigbuild --release --locked --package libhipfile --package hipfile-tools")
        .words("--package hip-emu-so --package hip-emu-rtc-so --target")
        .arg(format!("{TARGET}.{major}.{minor}"))
        .arg("--target-dir")
        .arg(&target)
        .env("PATH", path_with_zig()?)
        .env("RUSTFLAGS", flags())
        .env("SOURCE_DATE_EPOCH", epoch)
        .run()?;
    Ok(target.join(TARGET).join("release"))
}

/// Copies what was built without the symbols that only debuggers need; those go to `symbols`, named by identity as debuggers look for
/// them.
pub(super) fn split_symbols(built: &Path, to: &Path, symbols: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    for program in PROGRAMS {
        let (whole, stripped) = (built.join(program), to.join(program));
        cmd("objcopy").arg("--strip-unneeded").arg(&whole).arg(&stripped).run()?;
        let sum = cmd("sha1sum").arg(&stripped).output()?;
        let (id, _) = sum.split_once(' ').ok_or(format!("sha1sum says {sum:?}"))?;
        let note = to.with_extension("note");
        fs::write(&note, identity(id)?).map_err(|e| format!("{}: {e}", note.display()))?;
        let identified = || {
            let section = format!(".note.gnu.build-id={}", note.display());
            cmd("objcopy").arg("--update-section").arg(section)
        };
        identified().arg(&stripped).run()?;
        let (start, rest) = id.split_at(2);
        let folder = symbols.join("lib/debug/.build-id").join(start);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let debug = folder.join(format!("{rest}.debug"));
        cmd("objcopy").words("--only-keep-debug --compress-debug-sections").arg(&whole).arg(&debug).run()?;
        identified().arg(&debug).run()?;
        fs::remove_file(&note).map_err(|e| format!("{}: {e}", note.display()))?;
    }
    cmd("objcopy")
        .words("--strip-debug --enable-deterministic-archives")
        .arg(built.join(ARCHIVE))
        .arg(to.join(ARCHIVE))
        .run()?;
    Ok(to.to_owned())
}

/// The note that tells a program's identity, given as hexadecimal digits.
fn identity(id: &str) -> Result<Vec<u8>, String> {
    let digit = |at: usize| id.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> =
        (0..id.len()).step_by(2).map(digit).collect::<Option<_>>().ok_or(format!("{id:?} is no hash"))?;
    // The lengths of name and identity, and the type, in the order of x86-64.
    let mut note: Vec<u8> = [4, bytes.len() as u32, 3].into_iter().flat_map(u32::to_le_bytes).collect();
    note.extend(b"GNU\0");
    note.extend(bytes);
    Ok(note)
}

/// What must hold for each program that is shipped.
pub(super) fn check(built: &Path) -> Result<(), String> {
    let root = layout::root().display().to_string();
    for program in PROGRAMS {
        let path = built.join(program);
        let newest = newest_glibc(&cmd("objdump").arg("-T").arg(&path).output()?);
        if newest > Some(GLIBC) {
            return Err(format!("{program} needs glibc {newest:?}, and {GLIBC:?} is to do"));
        }
        let dynamic = cmd("readelf").arg("-dlW").arg(&path).output()?;
        hardened(&dynamic).map_err(|lacks| format!("{program}: {lacks}"))?;
        if fs::read(&path).is_ok_and(|bytes| contains(&bytes, root.as_bytes())) {
            return Err(format!("{program} names the folder {root}"));
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.first().is_some_and(|first| {
        let places = bytes.iter().enumerate().filter(|(_, byte)| *byte == first);
        places.into_iter().any(|(at, _)| bytes[at..].starts_with(part))
    })
}

/// The newest version of glibc that a table of dynamic symbols asks for.
fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut parts = rest[..end].split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max()
}

/// Whether tables that are written once are closed then, and the stack is no code.
fn hardened(dynamic: &str) -> Result<(), &'static str> {
    let has = |word: &str| dynamic.contains(word);
    if !has("GNU_RELRO") {
        Err("no RELRO")
    } else if !(has("BIND_NOW")
        || dynamic.lines().any(|line| line.contains("FLAGS_1") && line.contains("NOW")))
    {
        Err("symbols are bound late")
    } else if dynamic.lines().any(|line| line.contains("GNU_STACK") && line.contains("RWE")) {
        Err("an executable stack")
    } else if has("TEXTREL") {
        Err("code that is written to when it is loaded")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found() {
        let table =
            "0 DF *UND* 0 (GLIBC_2.2.5) free\n0 DF *UND* 0 (GLIBC_2.28) statx\n0 DF *UND* 0 (GLIBC_2.9) x";
        assert_eq!(newest_glibc(table), Some((2, 28)));
        assert_eq!(newest_glibc("nothing"), None);
    }

    #[test]
    fn what_is_not_hardened_is_said() {
        let good = "GNU_STACK 0 RW 0x10\nGNU_RELRO\nFLAGS BIND_NOW";
        assert_eq!(hardened(good), Ok(()));
        assert_eq!(hardened(&good.replace("RELRO", "")), Err("no RELRO"));
        assert_eq!(hardened(&good.replace("BIND_NOW", "")), Err("symbols are bound late"));
        assert_eq!(hardened(&good.replace(" RW ", " RWE ")), Err("an executable stack"));
    }

    #[test]
    fn an_identity_is_a_note() {
        let note = identity("00ff10").expect("a note");
        assert_eq!(note, [4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0, 255, 16]);
        assert!(identity("xy").is_err() && identity("123").is_err());
    }

    #[test]
    fn a_part_is_found_anywhere() {
        assert!(contains(b"a folder/some/x", b"/some/x") && !contains(b"/some/", b"/some/x"));
    }
}
