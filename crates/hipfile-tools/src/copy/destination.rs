//! Where the data is to go: found, and opened as what it must be: a replacement that takes the name later, or the file itself.
//! Nothing is moved here.
//!
//! Replaced means: a new file in the same directory, without a name where the file system has such files and else of a temporary
//! one, for its owner alone until it is complete, which then takes over attributes and name. So whoever opens the destination finds all of the old content or all of the new.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, MemfdFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attributes::Attributes;
use super::object;
use super::output::Output;
use super::seat::Seat;
use super::source::{Source, identity, kind_of, name_of};
use crate::failure::{Failure, note, reason_of};
use crate::{occupied, scratch};

/// The file as it was found. Nothing has been touched yet.
pub(super) struct Destination {
    /// As given; the name of the source is added for a directory.
    path: PathBuf,
    existing: Option<Stat>,
    /// Where a regular file has its name. None for what is no regular file, or is an open file of a process
    /// (`/dev/stdout`): it is used by the path as given.
    seat: Option<Seat>,
    /// What it is if it is no file.
    url: Option<String>,
}

/// Why there is no replacement.
enum Obstacle {
    /// The file itself can be written.
    InPlace(String),
    Fatal(Failure),
}

/// Follows links. None: there is no such file, or a link to one.
fn look(path: &Path) -> Result<Option<Stat>, Failure> {
    match rustix::fs::stat(path) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Failure::os(path, error)),
    }
}

/// The URL, with the source's name if it ends as a folder does.
fn in_folder(url: &str, source: &Source) -> Result<String, Failure> {
    let Some(name) = source.path.file_name().filter(|_| url.ends_with('/')) else {
        return Ok(url.to_owned());
    };
    let name = name.to_str().ok_or_else(|| {
        Failure::at(&source.path, "its name is not UTF-8, which an object's must be: give the object one")
    })?;
    // A name that came from a URL has its escapes already.
    let escape = object::url(&source.path).is_none();
    Ok(name.chars().fold(url.to_owned(), |mut url, c| {
        match c {
            // What ends a name, or is left out, where URLs are read.
            '%' | '?' | '#' | '\\' | ' ' if escape => url += &format!("%{:02X}", u32::from(c)),
            c if escape && c.is_ascii_control() => url += &format!("%{:02X}", u32::from(c)),
            _ => url.push(c),
        }
        url
    }))
}

/// The name that a file gets in a directory: of an object without the escapes of its URL, unless it would be no name then.
fn name_in_directory(source: &Source) -> Option<OsString> {
    let name = source.path.file_name()?;
    if object::url(&source.path).is_none() {
        return Some(name.to_owned());
    }
    let bytes = without_escapes(name.as_bytes());
    let is_name =
        !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.iter().any(|b| b"/\0".contains(b));
    Some(if is_name { OsString::from_vec(bytes) } else { name.to_owned() })
}

fn without_escapes(name: &[u8]) -> Vec<u8> {
    let digit = |at: usize| char::from(*name.get(at)?).to_digit(16);
    let (mut out, mut at) = (Vec::with_capacity(name.len()), 0);
    while at < name.len() {
        match (name[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

impl Destination {
    /// Finds out what `given` names. Refuses what cannot be written, and the source itself.
    pub(super) fn find(given: &Path, source: &Source) -> Result<Self, Failure> {
        if let Some(url) = object::url(given) {
            let url = in_folder(url, source)?;
            return Ok(Self { path: PathBuf::from(&url), existing: None, seat: None, url: Some(url) });
        }
        let mut path = given.to_owned();
        let mut existing = look(&path)?;
        if existing.as_ref().is_some_and(|stat| kind_of(stat) == FileType::Directory) {
            let name = name_in_directory(source);
            path.push(
                name.ok_or_else(|| Failure::at(&source.path, "it has no name to use in the directory"))?,
            );
            existing = look(&path)?;
        } else if [&b"/"[..], b"/."].iter().any(|end| given.as_os_str().as_bytes().ends_with(end)) {
            return Err(Failure::at(given, "there is no such directory"));
        }
        let mut destination = Self { path, existing, seat: None, url: None };
        if let Some(stat) = &destination.existing {
            destination.refuse(stat, source)?;
        }
        if destination.existing.is_none_or(|stat| kind_of(&stat) == FileType::RegularFile) {
            destination.seat = Seat::find(&destination.path)?;
        }
        Ok(destination)
    }

    fn refuse(&self, stat: &Stat, source: &Source) -> Result<(), Failure> {
        let both_devices =
            kind_of(stat) == FileType::BlockDevice && kind_of(&source.stat) == FileType::BlockDevice;
        if identity(stat) == identity(&source.stat) || (both_devices && stat.st_rdev == source.stat.st_rdev) {
            return Err(Failure::at(
                &self.path,
                format_args!("it is the same file as {}", source.path.display()),
            ));
        }
        match kind_of(stat) {
            kind @ (FileType::Directory | FileType::Socket | FileType::Unknown) => {
                Err(Failure::at(&self.path, format_args!("it is {}", name_of(kind))))
            }
            _ => Ok(()),
        }
    }

    /// Whether what was written can be read again.
    pub(super) fn can_be_read_back(&self) -> bool {
        self.existing
            .is_none_or(|stat| matches!(kind_of(&stat), FileType::RegularFile | FileType::BlockDevice))
    }

    /// Opens it for writing: the replacement where one is possible and wanted, else the file itself, and says so.
    /// Without `force` a block device that is in use or holds something is refused.
    pub(super) fn open(self, source: &Source, want_in_place: bool, force: bool) -> Result<Output, Failure> {
        if let Some(url) = &self.url {
            if want_in_place {
                return Err(Failure::new("--in-place", "an object is only ever replaced"));
            }
            let failed = |error| Failure::os(&self.path, error);
            let stands_for = rustix::fs::memfd_create("object", MemfdFlags::CLOEXEC).map_err(failed)?;
            let object = object::create(url, Some(source.size))?;
            return Ok(Output::object(self.path, stands_for, object));
        }
        let reason = match (&self.existing, &self.seat) {
            (_, Some(_)) if want_in_place => Some("--in-place".to_owned()),
            (Some(stat), Some(seat)) => {
                // Replacing needs rights on the directory only; a file that is protected from writing stays so.
                rustix::fs::accessat(&seat.dir, &seat.name, Access::WRITE_OK, AtFlags::EACCESS)
                    .map_err(|error| Failure::os(&self.path, error))?;
                seat.irreplaceable(stat)
            }
            (Some(stat), None) if kind_of(stat) == FileType::RegularFile => {
                Some("it is an open file".to_owned())
            }
            (Some(stat), None) => Some(format!("it is {}", name_of(kind_of(stat)))),
            (None, _) => None,
        };
        let reason = match reason {
            Some(reason) => reason,
            None => match self.open_replacement(source) {
                Ok(output) => return Ok(output),
                Err(Obstacle::Fatal(failure)) => return Err(failure),
                Err(Obstacle::InPlace(reason)) => reason,
            },
        };
        if !want_in_place {
            note(format_args!("{}: writing in place: {reason}", self.path.display()));
        }
        self.open_in_place(source, reason, force)
    }

    fn open_replacement(&self, source: &Source) -> Result<Output, Obstacle> {
        let Some(seat) = &self.seat else {
            return Err(Obstacle::Fatal(Failure::os(&self.path, Errno::NOENT)));
        };
        let lost = |what: String| Obstacle::InPlace(format!("a replacement could not keep {what}"));
        let attributes = match &self.existing {
            Some(stat) => Attributes::of_existing(&seat.path, stat).map_err(lost)?,
            None => Attributes::of_source(&source.path, &source.stat),
        };
        let kept = seat.duplicate().map_err(|error| Obstacle::Fatal(Failure::at(&self.path, error)))?;
        let (fd, temporary) = seat.create_temporary().map_err(|error| {
            let unwritable = matches!(error, Errno::ACCESS | Errno::PERM | Errno::ROFS);
            if unwritable && self.existing.is_some() {
                Obstacle::InPlace(format!("its directory cannot be written: {}", reason_of(error)))
            } else {
                let why = format_args!("a file cannot be created there: {}", reason_of(error));
                Obstacle::Fatal(Failure::at(&self.path, why))
            }
        })?;
        // The output owns the temporary file: when it is dropped for an error, the file goes too.
        let output = Output::replacement(kept, fd, temporary, attributes);
        output.give_attributes().map_err(lost)?;
        Ok(output)
    }

    fn open_in_place(self, source: &Source, reason: String, force: bool) -> Result<Output, Failure> {
        let failed = |error: Errno| Failure::os(&self.path, error);
        let output = match (self.existing, self.seat) {
            (Some(found), seat) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let open = |flags| rustix::fs::open(&self.path, flags, Mode::empty());
                let fd = match kind_of(&found) {
                    FileType::BlockDevice => open_device(&self.path, open, flags, force)?,
                    _ => open(flags).map_err(failed)?,
                };
                let stat = rustix::fs::fstat(&fd).map_err(failed)?;
                if identity(&found) != identity(&stat) {
                    return Err(Failure::at(&self.path, "another file took its name at this moment"));
                }
                let path = seat.map_or_else(|| self.path.clone(), |seat| seat.path);
                Output::existing(path, fd, kind_of(&stat), reason)
            }
            (None, Some(seat)) => {
                let attributes = Attributes::of_source(&source.path, &source.stat);
                let fd = scratch::create(&seat.dir, &seat.name, || {
                    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    rustix::fs::openat(&seat.dir, &seat.name, flags, Mode::RUSR | Mode::WUSR)
                })
                .map_err(failed)?;
                let output = Output::new_in_place(seat, fd, attributes, reason);
                output.give_attributes().map_err(|what| Failure::at(&self.path, what))?;
                output
            }
            (None, None) => return Err(failed(Errno::NOENT)),
        };
        output.refuse_too_small(source)?;
        Ok(output)
    }
}

/// Opens a block device for writing, unless it is in use or holds something; `force` overrides both, and says so.
fn open_device(
    path: &Path,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
    flags: OFlags,
    force: bool,
) -> Result<OwnedFd, Failure> {
    const IN_USE: &str = "it is mounted, or otherwise in use";
    // For a block device the flag means: not while it is mounted or otherwise in use.
    let fd = match open(flags | OFlags::EXCL) {
        Err(Errno::BUSY) if force => {
            note(format_args!("{}: written to although {IN_USE}", path.display()));
            open(flags)
        }
        Err(Errno::BUSY) => return Err(Failure::at(path, format_args!("{IN_USE}; --force overwrites it"))),
        result => result,
    }
    .map_err(|error| Failure::os(path, error))?;
    // The name may lead elsewhere by now: it is the number of the device that must be the same.
    let reader = open(OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY);
    let same = |reader: &OwnedFd| -> Result<bool, Errno> {
        Ok(rustix::fs::fstat(reader)?.st_rdev == rustix::fs::fstat(&fd)?.st_rdev)
    };
    let held =
        reader.and_then(|reader| if same(&reader)? { occupied::by(&reader) } else { Err(Errno::STALE) });
    match (held, force) {
        (Ok(None), _) => {}
        (Ok(Some(what)), true) => note(format_args!("{}: overwriting {what}", path.display())),
        (Ok(Some(what)), false) => {
            return Err(Failure::at(path, format_args!("it holds {what}; --force overwrites it")));
        }
        (Err(_), true) => {}
        (Err(error), false) => {
            let why =
                format_args!("what it holds cannot be read: {}; --force overwrites it", reason_of(error));
            return Err(Failure::at(path, why));
        }
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_urls_are_undone_once() {
        for (name, plain) in [
            (&b"a%20b"[..], &b"a b"[..]),
            (b"a%2520b", b"a%20b"),
            (b"%C3%bc", "\u{fc}".as_bytes()),
            (b"100%", b"100%"),
            (b"%zz%4", b"%zz%4"),
            (b"plain", b"plain"),
            (b"", b""),
        ] {
            assert_eq!(without_escapes(name), plain);
        }
    }
}
