//! An end of a copy that is an object of an object store, by the crate `hipfile-object`. In a build without the feature
//! `objects` there is none, and a URL is answered with how to get one that has it.

use std::path::Path;

/// As `hipfile-object` has them, which may not be in this build.
const SCHEMES: &[&str] = &["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https", "file"];

/// The URL, if it is one and no file name. `./s3://a` is a file name.
pub(super) fn url(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()).then_some(text)
}

#[cfg(feature = "objects")]
pub(super) use with::{Object, create, open};
#[cfg(not(feature = "objects"))]
pub(super) use without::{Object, create, open};

#[cfg(feature = "objects")]
mod with {
    use std::sync::OnceLock;

    use hipfile::{Driver, UserFs as _};
    use hipfile_object::{Error, Objects, Options};

    use crate::failure::{Failure, reason_of};

    /// An object that is read, or one that is written.
    #[derive(Clone)]
    pub(in crate::copy) struct Object(hipfile_object::Object);

    fn objects() -> Result<&'static Objects, Failure> {
        static OBJECTS: OnceLock<Objects> = OnceLock::new();
        if let Some(objects) = OBJECTS.get() {
            return Ok(objects);
        }
        let made = Objects::new(Options::default()).map_err(|error| Failure::new("object stores", error))?;
        Ok(OBJECTS.get_or_init(|| made))
    }

    fn failed(error: &Error) -> Failure {
        Failure::new(error.url(), error.why())
    }

    pub(in crate::copy) fn open(url: &str) -> Result<Object, Failure> {
        objects()?.open(url).map(Object).map_err(|error| failed(&error))
    }

    pub(in crate::copy) fn create(url: &str, size: Option<u64>) -> Result<Object, Failure> {
        objects()?.create(url, size).map(Object).map_err(|error| failed(&error))
    }

    impl Object {
        pub(in crate::copy) fn size(&self) -> u64 {
            self.0.size()
        }

        pub(in crate::copy) fn register(&self, driver: &Driver) -> Result<hipfile::File, Failure> {
            self.0.register(driver).map_err(|error| failed(&error))
        }

        pub(in crate::copy) fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
            self.0
                .read(into, offset)
                .map_err(|errno| self.failed(reason_of(rustix::io::Errno::from_raw_os_error(errno))))
        }

        pub(in crate::copy) fn write_zeros(&self, offset: u64, len: u64) -> Result<(), Failure> {
            self.0.write_zeros(offset, len).map_err(|error| failed(&error))
        }

        pub(in crate::copy) fn finish(&self) -> Result<(), Failure> {
            self.0.finish().map_err(|error| failed(&error))
        }

        pub(in crate::copy) fn discard(&self) {
            self.0.discard();
        }

        /// What the store said last is the reason, if it said anything.
        pub(in crate::copy) fn failed(&self, error: impl std::fmt::Display) -> Failure {
            match self.0.last_error() {
                Some(told) => failed(&told),
                None => Failure::new(self.0.url(), error),
            }
        }
    }
}

#[cfg(not(feature = "objects"))]
mod without {
    use hipfile::Driver;

    use crate::failure::Failure;

    #[derive(Clone, Copy)]
    enum Never {}

    /// There is none.
    #[derive(Clone)]
    pub(in crate::copy) struct Object(Never);

    fn none(url: &str) -> Failure {
        let why = "this hipfile was built without object stores: \
                   cargo build --release -p hipfile-tools --features objects makes one with them (docs/objects.md)";
        Failure::new(url, why)
    }

    pub(in crate::copy) fn open(url: &str) -> Result<Object, Failure> {
        Err(none(url))
    }

    pub(in crate::copy) fn create(url: &str, _: Option<u64>) -> Result<Object, Failure> {
        Err(none(url))
    }

    impl Object {
        pub(in crate::copy) fn size(&self) -> u64 {
            match self.0 {}
        }

        pub(in crate::copy) fn register(&self, _: &Driver) -> Result<hipfile::File, Failure> {
            match self.0 {}
        }

        pub(in crate::copy) fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize, Failure> {
            match self.0 {}
        }

        pub(in crate::copy) fn write_zeros(&self, _: u64, _: u64) -> Result<(), Failure> {
            match self.0 {}
        }

        pub(in crate::copy) fn finish(&self) -> Result<(), Failure> {
            match self.0 {}
        }

        pub(in crate::copy) fn discard(&self) {
            match self.0 {}
        }

        pub(in crate::copy) fn failed(&self, _: impl std::fmt::Display) -> Failure {
            match self.0 {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_file_names() {
        for text in ["s3://bucket/key", "S3://b/k", "https://host/key", "file:///key", "gs://b"] {
            assert_eq!(url(Path::new(text)), Some(text));
        }
        for text in ["s3:", "./s3://bucket/key", "/s3://b", "ftp://host/key", "a s3://b", ""] {
            assert_eq!(url(Path::new(text)), None);
        }
    }

    #[cfg(feature = "objects")]
    #[test]
    fn the_schemes_are_those_of_the_crate() {
        for scheme in SCHEMES {
            assert!(hipfile_object::is_url(&format!("{scheme}://x")));
        }
    }
}
