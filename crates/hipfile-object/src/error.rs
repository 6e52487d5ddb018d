//! The error of this crate: which object, why, and the errno by which the library knows it.

use std::fmt;
use std::sync::Arc;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done with an object. Displayed as `url: why`.
#[derive(Clone, Debug)]
pub struct Error {
    url: String,
    why: String,
    errno: i32,
    source: Option<Arc<object_store::Error>>,
}

impl Error {
    pub(crate) fn new(url: &str, errno: i32, why: impl fmt::Display) -> Error {
        Error { url: url.into(), why: why.to_string(), errno, source: None }
    }

    pub(crate) fn store(url: &str, error: object_store::Error) -> Error {
        Error { url: url.into(), why: why(&error), errno: errno(&error), source: Some(Arc::new(error)) }
    }

    /// Which object, as it was named.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The reason alone.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The errno that transfers answer with.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.why)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Whether asking once more may help.
pub(crate) fn is_transient(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. })
}

fn errno(error: &object_store::Error) -> i32 {
    use object_store::Error;
    use rustix::io::Errno;
    let errno = match error {
        Error::NotFound { .. } => Errno::NOENT,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::ACCESS,
        Error::AlreadyExists { .. } => Errno::EXIST,
        // It is another object by now.
        Error::Precondition { .. } | Error::NotModified { .. } => Errno::STALE,
        Error::NotSupported { .. } | Error::NotImplemented { .. } => Errno::OPNOTSUPP,
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => Errno::INVAL,
        _ => Errno::IO,
    };
    errno.raw_os_error()
}

/// In words that name the likely cause first; the store's own follow.
fn why(error: &object_store::Error) -> String {
    use object_store::Error;
    let said = error.to_string();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match error {
        Error::NotFound { .. } => format!("there is no such object ({said})"),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            format!("access is denied with the credentials at hand ({said})")
        }
        Error::Precondition { .. } => format!("it was replaced while it was read ({said})"),
        _ => said,
    }
}
