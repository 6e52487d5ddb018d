//! The error of this crate: which object, why, and the errno by which the library knows it.

use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;

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
        let errno = if lacks_credentials(&error) { Errno::ACCESS.raw_os_error() } else { errno(&error) };
        Error { url: url.into(), why: why(&error), errno, source: Some(Arc::new(error)) }
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

/// Whether it was the cloud's service for machines that was asked in vain, as happens where nothing else is set.
fn lacks_credentials(error: &object_store::Error) -> bool {
    let said = error.to_string();
    ["://169.254.169.254/", "://metadata.google.internal/", "://metadata/"].iter().any(|at| said.contains(at))
}

fn errno(error: &object_store::Error) -> i32 {
    use object_store::Error;
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
        _ if lacks_credentials(error) => {
            format!(
                "no credentials are set in the environment, and this machine has none of its own ({said})"
            )
        }
        Error::NotFound { .. } => format!("there is no such object ({said})"),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            format!("access is denied with the credentials at hand ({said})")
        }
        Error::Precondition { .. } => format!("it was replaced while it was read ({said})"),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_credentials_are_told_as_such() {
        let error = |at: &str| {
            let source = format!("Error performing PUT {at} in 5s, after 10 retries").into();
            Error::store("s3://b/k", object_store::Error::Generic { store: "S3", source })
        };
        let none = error("http://169.254.169.254/latest/api/token");
        assert_eq!(none.errno(), Errno::ACCESS.raw_os_error());
        assert!(
            none.to_string().starts_with("s3://b/k: no credentials are set in the environment"),
            "{none}"
        );
        let other = error("http://127.0.0.1:9000/b/k");
        assert_eq!(other.errno(), Errno::IO.raw_os_error());
        assert!(!other.to_string().contains("credentials"));
    }
}
