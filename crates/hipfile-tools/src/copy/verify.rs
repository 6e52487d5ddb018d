//! Compares both ends by their hashes, read without the GPU and its library: files by plain system calls.

use std::path::Path;

use rustix::fs::Advice;
use twox_hash::XxHash3_128;

use super::output::Output;
use super::source::{Plain, Source};
use crate::extents::Step;
use crate::failure::Failure;
use crate::progress::Progress;

const PIECE: usize = 1 << 20;

/// Hashes the first `size` bytes of both ends and returns the hash they share, as `xxh128:` and 32 hexadecimal digits (what
/// `xxh128sum` prints).
pub(super) fn compare(source: &Source, output: &Output, size: u64) -> Result<String, Failure> {
    // The pages are clean after the sync; dropping them makes the next read come from the storage. A hint, as all advice.
    let _ = rustix::fs::fadvise(output.as_fd(), 0, None, Advice::DontNeed);
    let ends = [(source.reopen()?, source.path.as_path()), (output.reopen()?, output.path())];
    let mut progress = Progress::new("verify", size);
    let [ours, theirs] = hash_both(&ends, size, |bytes| progress.advance(bytes))?;
    if ours != theirs {
        let why = format!("verification failed: it has {}, the source has {}", show(theirs), show(ours));
        return Err(Failure::at(output.path(), why));
    }
    progress.finish();
    Ok(show(ours))
}

fn show(hash: u128) -> String {
    format!("xxh128:{hash:032x}")
}

fn hash_both(
    [first, second]: &[(Plain, &Path); 2],
    size: u64,
    progress: impl FnMut(u64),
) -> Result<[u128; 2], Failure> {
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new()
            .name("hipfile-verify".into())
            .spawn_scoped(scope, || hash(&first.0, first.1, size, |_| ()))
            .map_err(|error| Failure::new("verifying thread", error))?;
        let mine = hash(&second.0, second.1, size, progress)?;
        let other = other.join().map_err(|_| Failure::at(first.1, "the verifying thread panicked"))??;
        Ok([other, mine])
    })
}

/// The hash of the first `size` bytes. Holes count as the zeros that they are, without being read.
fn hash(file: &Plain, path: &Path, size: u64, mut progress: impl FnMut(u64)) -> Result<u128, Failure> {
    let zeros = vec![0; PIECE];
    let mut piece = vec![0; PIECE];
    let mut hasher = XxHash3_128::new();
    let mut extents = file.extents(size);
    let mut offset = 0;
    while offset < size {
        let step = extents.step(offset).map_err(|error| Failure::os(path, error))?;
        let (data, end) = match step {
            Step::Data { start, end } => (start.min(size), end.min(size)),
            Step::End { end } if end < size => return Err(ends_early(path, end, size)),
            Step::End { .. } => (size, size),
        };
        while offset < data {
            let len = PIECE.min(usize::try_from(data - offset).unwrap_or(PIECE));
            hasher.write(&zeros[..len]);
            offset += len as u64;
            progress(len as u64);
        }
        while offset < end {
            let len = PIECE.min(usize::try_from(end - offset).unwrap_or(PIECE));
            match file.read_at(path, &mut piece[..len], offset)? {
                0 => return Err(ends_early(path, offset, size)),
                read => {
                    hasher.write(&piece[..read]);
                    offset += read as u64;
                    progress(read as u64);
                }
            }
        }
    }
    Ok(hasher.finish_128())
}

fn ends_early(path: &Path, end: u64, size: u64) -> Failure {
    Failure::at(path, format_args!("verification failed: it ended after {end} of {size} bytes"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn file(content: &[u8]) -> Plain {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        Plain::File(file)
    }

    fn hash_of(file: &Plain, size: u64) -> Result<u128, Failure> {
        hash(file, Path::new("f"), size, |_| ())
    }

    #[test]
    fn the_hash_is_that_of_the_content() {
        let content: Vec<u8> =
            (0..3 * PIECE as u32 + 17).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, content.len()] {
            let hashed = hash_of(&file(&content), len as u64).unwrap();
            assert_eq!(hashed, XxHash3_128::oneshot(&content[..len]), "{len}");
        }
    }

    #[test]
    fn a_hole_hashes_as_zeros() {
        let sparse = tempfile::tempfile().unwrap();
        sparse.set_len(5 * PIECE as u64).unwrap();
        sparse.write_all_at(b"middle", 2 * PIECE as u64 + 5).unwrap();
        let mut dense = vec![0; 5 * PIECE];
        dense[2 * PIECE + 5..][..6].copy_from_slice(b"middle");
        assert_eq!(hash_of(&Plain::File(sparse), 5 * PIECE as u64).unwrap(), XxHash3_128::oneshot(&dense));
    }

    #[test]
    fn one_flipped_bit_and_a_missing_end_are_seen() {
        let mut content = vec![7; PIECE + 100];
        let good = file(&content);
        content[PIECE + 50] ^= 1;
        let bad = file(&content);
        let ends = [(good, Path::new("a")), (bad, Path::new("b"))];
        let [a, b] = hash_both(&ends, content.len() as u64, |_| ()).unwrap();
        assert_ne!(a, b);
        let failure = hash_of(&ends[0].0, content.len() as u64 + 1).unwrap_err();
        assert!(failure.to_string().contains("ended after"), "{failure}");
    }
}
