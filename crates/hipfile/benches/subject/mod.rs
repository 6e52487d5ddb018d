//! What the benchmarks of batches and streams read from: a driver on the emulated GPU, a file whose pages are known to be
//! cached or not, and places in it. It times nothing.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hipfile::{Config, DeviceChoice, Driver, File, PageCache};

/// Rounds that count.
pub(crate) const ROUNDS: usize = 9;

/// A file to read from; it goes with the folder.
pub(crate) fn data() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, vec![7_u8; 128 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    (folder, path)
}

pub(crate) struct Subject {
    pub(crate) driver: Driver,
    pub(crate) file: Arc<File>,
    pub(crate) size: usize,
    plain: std::fs::File,
    pub(crate) cold: bool,
    /// Pieces of the file from which each round takes its own.
    pieces: usize,
}

impl Subject {
    /// Reads of `size` bytes by the staged engines.
    pub(crate) fn new(path: &std::path::Path, page_cache: PageCache, cold: bool, size: usize) -> Subject {
        let mut config = Config::from_env();
        config.device = DeviceChoice::Emulated;
        config.page_cache = page_cache;
        config.engines = Some(vec!["uring".to_owned(), "bounce".to_owned()]);
        let driver = Driver::open(config).unwrap();
        let plain = std::fs::File::open(path).unwrap();
        let pieces = plain.metadata().unwrap().len() as usize / size;
        let file = Arc::new(File::register(&driver, plain.try_clone().unwrap()).unwrap());
        Subject { driver, file, size, plain, cold, pieces }
    }

    /// Scattered over the file, so that nothing reads ahead.
    pub(crate) fn place(&self, n: usize) -> u64 {
        ((n * 7919 + 13) % self.pieces * self.size) as u64
    }

    /// Drops the file's pages, or has them all in.
    pub(crate) fn prepare(&self) {
        if self.cold {
            rustix::fs::fadvise(self.plain.as_fd(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        } else {
            std::io::copy(&mut &self.plain, &mut std::io::sink()).unwrap();
            std::io::Seek::rewind(&mut &self.plain).unwrap();
        }
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
