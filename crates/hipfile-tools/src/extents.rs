//! Where a file holds data and where holes, asked of the file system step by step. Not a snapshot: the file may change meanwhile.

use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// A file whose holes can be asked for. Uses the descriptor's own offset, so the descriptor must be ours; the offset's value
/// is never relied on.
pub(crate) struct Extents<'a> {
    /// None: the size is no guide (0 in /proc), or the file system cannot tell: all is data up to the end that reading finds.
    mapped: Option<BorrowedFd<'a>>,
}

/// One step: `hole` bytes of nothing, then data up to `end`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Data from `start` (at or after the offset asked for) up to `end`, or up to the end of the file if that comes first.
    Data {
        /// First byte of data.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
    /// No data from the offset on; the file ends at `end`.
    End {
        /// The size of the file.
        end: u64,
    },
}

impl<'a> Extents<'a> {
    /// `size` is what fstat said.
    pub(crate) fn new(fd: BorrowedFd<'a>, size: u64) -> Self {
        Self { mapped: (size > 0).then_some(fd) }
    }

    /// Of what has no holes.
    pub(crate) fn all_data() -> Self {
        Self { mapped: None }
    }

    /// The next data at or after `offset`.
    pub(crate) fn step(&mut self, offset: u64) -> Result<Step, Errno> {
        if let Some(fd) = self.mapped {
            match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
                Ok(start) => {
                    // The file may have been cut between the two questions: then the reading will find its end.
                    let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
                    return Ok(Step::Data { start, end });
                }
                Err(Errno::NXIO) => {
                    let end = rustix::fs::seek(fd, SeekFrom::End(0))?.max(offset);
                    return Ok(Step::End { end });
                }
                Err(_) => self.mapped = None,
            }
        }
        Ok(Step::Data { start: offset, end: u64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn holes_and_data_alternate() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_at(b"x", 4 << 20).unwrap();
        let mut extents = Extents::new(file.as_fd(), 8 << 20);
        let Step::Data { start, end } = extents.step(0).unwrap() else { panic!("no data found") };
        assert!(start <= 4 << 20 && end > 4 << 20, "{start}..{end}");
        let after = extents.step(end).unwrap();
        // A file system without holes reports one run of data up to the end.
        assert_eq!(after, Step::End { end: 8 << 20 });
    }

    #[test]
    fn without_a_size_all_is_data() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Extents::new(file.as_fd(), 0).step(7).unwrap(), Step::Data { start: 7, end: u64::MAX });
    }
}
