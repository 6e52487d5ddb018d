//! A folder, files in it, the command run in it, and what came of it.

use std::fs::{self, File};
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;
use tempfile::TempDir;

pub(crate) const HIPFILE: &str = env!("CARGO_BIN_EXE_hipfile");
/// A user that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

/// Says that a case did not run here, where people and `cargo xtask` look for it.
pub(crate) fn skip(what: &str, reason: &str) {
    eprintln!("SKIP: {what}: {}", reason.lines().next().unwrap_or_default());
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Bytes that differ at every offset one could confuse with another.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A folder for one test, removed with it.
pub(crate) struct Lab {
    dir: TempDir,
}

impl Lab {
    /// On the file system of the build folder: a real one, with holes and extended attributes, as a rule.
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// Where every user may go, with a copy of the command: the build folder may be closed to them.
    pub(crate) fn for_all_users() -> Self {
        let lab = Self { dir: TempDir::new().unwrap() };
        lab.chmod(".", 0o755);
        // Not copied by this process: a child that another test starts meanwhile would inherit the open copy, and a
        // program that is open for writing cannot be run.
        let copied = Command::new("cp").arg(HIPFILE).arg(lab.path("hipfile")).status().unwrap();
        assert!(copied.success());
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    /// A file with holes: `len` bytes, and data at the offsets given.
    pub(crate) fn write_sparse(&self, name: &str, len: u64, data: &[(u64, &[u8])]) {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(len).unwrap();
        for (offset, bytes) in data {
            file.write_all_at(bytes, *offset).unwrap();
        }
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn stat(&self, name: &str) -> fs::Metadata {
        fs::symlink_metadata(self.path(name)).unwrap()
    }

    pub(crate) fn inode(&self, name: &str) -> u64 {
        self.stat(name).ino()
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        self.stat(name).mode() & 0o7777
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn mkdir(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
    }

    pub(crate) fn symlink(&self, target: &str, name: &str) {
        std::os::unix::fs::symlink(target, self.path(name)).unwrap();
    }

    pub(crate) fn hard_link(&self, old: &str, name: &str) {
        fs::hard_link(self.path(old), self.path(name)).unwrap();
    }

    pub(crate) fn mkfifo(&self, name: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mkfifoat(rustix::fs::CWD, self.path(name), mode).unwrap();
    }

    /// Names of unfinished copies.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.into_string().ok()).filter(|name| name.contains(".hipfile-")).collect()
    }

    /// The new file that a copy writes to beside its destination: where /proc has it, since it need not have a name.
    pub(crate) fn unfinished(&self, process: u32) -> Option<PathBuf> {
        let entries = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let is_one = |link: PathBuf| {
            let name = link.to_string_lossy().into_owned();
            link.starts_with(self.dir.path()) && (name.ends_with(" (deleted)") || name.contains(".hipfile-"))
        };
        let mut paths = entries.flatten().map(|entry| entry.path());
        paths.find(|path| fs::read_link(path).is_ok_and(is_one))
    }

    /// `hipfile copy` with these arguments, not started yet.
    pub(crate) fn copy(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(Path::new(HIPFILE));
        command.arg("copy").args(arguments);
        command
    }

    /// A program that runs in this folder and knows of nothing but the emulated GPU.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HIPFILE_DEVICE", "emulated")
            .env("HIP_EMU_MEMORY", "512M");
        command
    }

    /// Runs `hipfile copy` and expects success.
    pub(crate) fn copies(&self, arguments: &[&str]) -> Run {
        let run = run(&mut self.copy(arguments));
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        run
    }

    /// Runs `hipfile copy` and expects it to fail with one line that holds `words`.
    pub(crate) fn fails(&self, arguments: &[&str], words: &[&str]) -> Run {
        let run = run(&mut self.copy(arguments));
        run.failed_with(words);
        assert_eq!(self.leftovers(), Vec::<String>::new());
        run
    }
}

/// What a finished command left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    /// The lines on standard error that come from the tool, not from the library.
    pub(crate) fn said(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| !line.starts_with("hipfile: using the emulated GPU")).collect()
    }

    /// Status 1, and as the last thing one line in the form of every error, holding all the words.
    pub(crate) fn failed_with(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        let said = self.said();
        let last = said.last().expect("a failure says why");
        assert!(last.starts_with("hipfile: copy: ") || last.starts_with("aiscp: "), "{last}");
        for word in words {
            assert!(last.contains(word), "{word:?} is missing in: {last}");
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

pub(crate) fn run(command: &mut Command) -> Run {
    command.stdin(Stdio::null()).output().unwrap().into()
}

/// Makes the command run as someone without privileges: as us, unless we are root.
pub(crate) fn unprivileged(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

/// Lets copies to and from the GPU fail: `which` as the emulation reads it (`3`, `3+`, `*`), counted over both directions.
/// Only the engine that makes such copies serves, so that no other can take over.
pub(crate) fn faulty<'a>(command: &'a mut Command, which: &str) -> &'a mut Command {
    let rules = ["hipMemcpy", "hipMemcpyAsync"].map(|function| format!("{function}:{which}:hipErrorUnknown"));
    command.env("HIPFILE_ENGINES", "bounce").env("HIP_EMU_FAULT", rules.join(","))
}

/// A copy slowed down by a link that carries 20 MB/s, so that it can be met half-way. Such a link moves no bytes.
pub(crate) fn slow(command: &mut Command) -> &mut Command {
    command.env("HIP_EMU_LINK", "0.02").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Waits for a condition that a running copy brings about.
pub(crate) fn wait_until(child: &mut Child, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not come");
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("the copy ended with {status} before {what}: {said}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Compares the files without holding them in memory; what is a hole in both is not read.
pub(crate) fn same_content(a: &Path, b: &Path) -> bool {
    let (a, b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let same_size = a.metadata().unwrap().len() == b.metadata().unwrap().len();
    same_size && [data_of(&a), data_of(&b)].concat().into_iter().all(|range| same_range(&a, &b, range))
}

/// The ranges of a file that are not holes.
fn data_of(file: &File) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut offset = 0;
    loop {
        match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => {
                offset = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
                ranges.push(start..offset);
            }
            Err(rustix::io::Errno::NXIO) => return ranges,
            Err(error) => panic!("where the data is: {error}"),
        }
    }
}

fn same_range(a: &File, b: &File, range: Range<u64>) -> bool {
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = range.start;
    while offset < range.end {
        let piece = usize::try_from((range.end - offset).min(1 << 20)).unwrap();
        a.read_exact_at(&mut left[..piece], offset).unwrap();
        b.read_exact_at(&mut right[..piece], offset).unwrap();
        if left[..piece] != right[..piece] {
            return false;
        }
        offset += piece as u64;
    }
    true
}
