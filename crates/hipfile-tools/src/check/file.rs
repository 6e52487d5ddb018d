//! `check PATH`: one file, registered as any program's and read by one aligned block, so that what is said is what happens.

use std::os::fd::OwnedFd;
use std::path::Path;

use hipfile::storage::{FsKind, Node, StorageFacts};
use hipfile::{Buffer, Config, Driver, FileInfo, Reason};
use rustix::fs::{FileType, Mode, OFlags};
use serde::Serialize;

use super::o_direct;
use crate::failure::Failure;

/// Most bytes of the trial read.
const TRIAL: u64 = 64 << 10;
/// The unit that the direct path takes at the least.
const UNIT: u64 = 4096;

/// The whole answer. Fields are only ever added; a change of meaning raises `schema_version`.
#[derive(Serialize)]
pub(super) struct FileReport {
    schema_version: u32,
    pub(super) path: String,
    /// Whether it is a directory, and the answer is for new files in it.
    pub(super) directory: bool,
    pub(super) direct: bool,
    pub(super) reason: Option<&'static str>,
    pub(super) text: Option<&'static str>,
    pub(super) advice: Option<&'static str>,
    /// Why the storage below has no direct path, whatever GPU there is; null when it has one.
    pub(super) storage: Option<StorageReason>,
    /// What carried the trial read, or would carry one; null without a GPU.
    pub(super) engine: Option<&'static str>,
    /// Why there was no trial read, or what it came to.
    pub(super) trial: Option<String>,
    pub(super) gpu: Option<String>,
    pub(super) emulated: bool,
    pub(super) fstype: String,
    pub(super) mountpoint: Option<String>,
    pub(super) device: Option<String>,
    pub(super) backing: String,
    pub(super) stack: Vec<String>,
    /// Alignments of direct I/O in bytes; null when the file has none.
    pub(super) align: Option<Align>,
}

#[derive(Serialize)]
pub(super) struct StorageReason {
    pub(super) reason: &'static str,
    pub(super) text: &'static str,
    pub(super) advice: &'static str,
}

#[derive(Serialize)]
pub(super) struct Align {
    pub(super) memory: u32,
    pub(super) offset: u32,
    pub(super) read_offset: u32,
}

/// What the trial showed.
#[derive(Default)]
struct Trial {
    engine: Option<&'static str>,
    reason: Option<Reason>,
    said: Option<String>,
    failed: bool,
    gpu: Option<String>,
    emulated: bool,
}

impl FileReport {
    /// Why it is not direct, on one line.
    pub(super) fn why(&self) -> String {
        match (self.reason, self.text) {
            (Some(word), Some(text)) => format!("{text} [{word}]"),
            _ => self.trial.clone().unwrap_or_default(),
        }
    }
}

pub(super) fn check(path: &Path, gpu: u32) -> Result<FileReport, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Failure::os(path, error))?;
    let stat = rustix::fs::fstat(&fd).map_err(|error| Failure::os(path, error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return describe(path, fd, gpu, false);
    }
    let (_, answer) = o_direct::with_file(&fd, |file| describe(path, file, gpu, true))
        .map_err(|error| Failure::os(path, error).and("no file can be made there to answer for"))?;
    answer
}

fn describe(path: &Path, fd: OwnedFd, gpu: u32, directory: bool) -> Result<FileReport, Failure> {
    let config = Config::from_env();
    let size = size(&fd);
    let fail = |error: hipfile::Error| Failure::at(path, error);
    let driver = Driver::open(config.clone()).map_err(fail)?;
    let file = hipfile::File::register(&driver, fd).map_err(fail)?;
    let info = file.info().map_err(fail)?;
    let mut trial = run_trial(&driver, &file, &info, size, gpu)?;
    let storage = by_the_rules(&info, config.unsupported_file_systems, trial.emulated);
    // Without a trial the choice that one would have met answers.
    if trial.engine.is_none() && !trial.failed {
        trial.engine = trial.gpu.is_some().then_some(info.engine);
        trial.reason = trial.reason.or(info.reason);
    }
    Ok(report(path, directory, &info, trial, storage))
}

fn size(fd: &OwnedFd) -> u64 {
    let Ok(stat) = rustix::fs::fstat(fd) else { return 0 };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_size as u64,
        // A block device has its size at its end. The descriptor is ours alone.
        FileType::BlockDevice => rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).unwrap_or(0),
        _ => 0,
    }
}

fn run_trial(
    driver: &Driver,
    file: &hipfile::File,
    info: &FileInfo,
    size: u64,
    gpu: u32,
) -> Result<Trial, Failure> {
    let devices = match driver.devices() {
        Ok(devices) => devices,
        // No runtime, or one that cannot serve: the handle tells which, the error what is wrong with it.
        Err(error) => {
            let said = Some(error.to_string());
            return Ok(Trial { reason: info.reason, said, ..Trial::default() });
        }
    };
    let count = devices.len();
    let Some(device) = devices.into_iter().find(|device| device.ordinal == gpu) else {
        return Err(Failure::new("--gpu", format_args!("there is no GPU {gpu}; this process has {count}")));
    };
    let mut trial = Trial { gpu: Some(device.name), emulated: device.emulated, ..Trial::default() };
    let unit = info.direct_align.map_or(UNIT, |align| {
        UNIT.max(align.mem.into()).max(align.offset.into()).max(align.read_offset.into())
    });
    let len = size.min(TRIAL.max(unit)) / unit * unit;
    if len == 0 {
        trial.said = Some(format!("the file is shorter than one unit of direct access ({unit} bytes)"));
        return Ok(trial);
    }
    let read = Buffer::alloc(driver, gpu, len as usize)
        .and_then(|mut buffer| file.read_at(&mut buffer, 0..len as usize, 0));
    match read {
        Ok(n) => trial.said = Some(format!("read {n} bytes at 0")),
        Err(error) => {
            trial.said = Some(error.to_string());
            trial.failed = true;
        }
    }
    if let Ok(info) = file.info() {
        trial.reason = info.stats.read_staged.first().map(|staged| staged.reason);
        let most = info.stats.read.iter().filter(|engine| engine.bytes > 0).max_by_key(|engine| engine.bytes);
        trial.engine = most.map(|engine| engine.engine);
    }
    Ok(trial)
}

fn by_the_rules(info: &FileInfo, any_file_system: bool, emulated: bool) -> Option<Reason> {
    let storage = info.storage.direct(any_file_system, emulated);
    storage.err().or_else(|| info.direct_align.is_none().then_some(Reason::NoDirectIo))
}

fn report(path: &Path, directory: bool, info: &FileInfo, trial: Trial, below: Option<Reason>) -> FileReport {
    let storage: &StorageFacts = &info.storage;
    let mount = storage.mount.as_ref();
    FileReport {
        schema_version: 1,
        path: path.to_string_lossy().into_owned(),
        directory,
        direct: trial.reason.is_none() && !trial.failed,
        reason: trial.reason.map(Reason::word),
        text: trial.reason.map(Reason::text),
        advice: trial.reason.map(Reason::advice),
        storage: below.map(|reason| StorageReason {
            reason: reason.word(),
            text: reason.text(),
            advice: reason.advice(),
        }),
        engine: trial.engine,
        trial: trial.said,
        gpu: trial.gpu,
        emulated: trial.emulated,
        fstype: match storage.node {
            Node::Regular => storage.fs_text(),
            Node::Block => "block device".to_owned(),
            _ => "device".to_owned(),
        },
        mountpoint: mount.map(|mount| mount.mount_point.to_string_lossy().into_owned()),
        device: mount.map(|mount| mount.source.clone()),
        backing: match (storage.device, storage.fs.kind()) {
            (Some(_), _) => storage.backing.word().to_owned(),
            (None, FsKind::Local) => "unknown".to_owned(),
            (None, _) => "-".to_owned(),
        },
        stack: storage.backing.lines(),
        align: info.direct_align.map(|align| Align {
            memory: align.mem,
            offset: align.offset,
            read_offset: align.read_offset,
        }),
    }
}
