//! The one error type of the crate: what kind, doing what, why. It knows no C number; the C edge translates kinds.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_kinds {
    ($($(#[$meta:meta])* $name:ident: $text:literal,)*) => {
        /// What went wrong, as a fieldless kind.
        ///
        /// Apart from [`ErrorKind::Io`] the names are those of the C header without their `hipFile` prefix, so
        /// that translation is mechanical.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$meta])* #[doc = $text] $name,)*
        }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name),*];

            /// The variant's name, for instance `"InvalidValue"`.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorKind::$name => stringify!($name),)* }
            }

            /// A short text in plain words.
            pub const fn text(self) -> &'static str {
                match self { $(ErrorKind::$name => $text,)* }
            }
        }
    };
}

error_kinds! {
    Io: "the operating system refused the operation",
    DriverNotInitialized: "the driver is not open",
    DriverInvalidProps: "a driver property is invalid",
    DriverUnsupportedLimit: "a driver limit is out of range",
    DriverVersionMismatch: "library and driver versions do not match",
    DriverVersionReadError: "the driver version could not be read",
    DriverClosing: "the driver is closed or closing",
    PlatformNotSupported: "no GPU runtime serves this process",
    IONotSupported: "this kind of I/O is not supported",
    DeviceNotSupported: "the GPU is not supported",
    DriverError: "the storage driver reported an error",
    HipDriverError: "the GPU runtime reported an error",
    HipPointerInvalid: "the pointer is not a valid GPU pointer",
    HipMemoryTypeInvalid: "the memory is not of a supported type",
    HipPointerRangeError: "the range leaves its allocation",
    HipContextMismatch: "the GPU context does not match",
    InvalidMappingSize: "the mapping has an invalid size",
    InvalidMappingRange: "the mapping has an invalid range",
    InvalidFileType: "this type of file cannot be used",
    InvalidFileOpenFlag: "the file was opened with an unusable flag",
    DIONotSet: "direct I/O is not set on the file",
    InvalidValue: "an argument is invalid",
    MemoryAlreadyRegistered: "the memory is already registered",
    MemoryNotRegistered: "the memory is not registered",
    PermissionDenied: "permission denied",
    DriverAlreadyOpen: "the driver is already open",
    HandleNotRegistered: "the file handle is not registered",
    HandleAlreadyRegistered: "the descriptor is already registered",
    DeviceNotFound: "the GPU was not found",
    InternalError: "internal error",
    GetNewFDFailed: "no new file descriptor could be had",
    DriverSetupError: "the driver could not be set up",
    IODisabled: "I/O is disabled by configuration",
    BatchSubmitFailed: "the batch could not be submitted",
    GPUMemoryPinningFailed: "GPU memory could not be pinned",
    BatchFull: "the batch has no room for the request",
    AsyncNotSupported: "asynchronous I/O is not supported here",
}

/// The cause beneath an [`Error`].
#[derive(Clone, Debug)]
enum Source {
    None,
    Os(i32, Option<Cow<'static, str>>),
    Device { code: u32, name: Cow<'static, str> },
    Message(Cow<'static, str>),
}

/// Where an I/O error happened. Attached on the failing path only, so it may allocate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) path: Option<PathBuf>,
    pub(crate) fd: Option<i32>,
    pub(crate) file_offset: i64,
    pub(crate) len: usize,
    pub(crate) buffer: usize,
    pub(crate) engine: Option<&'static str>,
}

/// Why an operation failed. Cheap to clone; `Display` is one line, and `Debug`, which a `main` that returns it prints, is that line
/// and its [`ErrorKind`].
#[derive(Clone)]
pub struct Error {
    /// Elsewhere, so that a result fits into registers where nothing fails.
    told: Box<Told>,
}

#[derive(Clone, Debug)]
struct Told {
    kind: ErrorKind,
    op: &'static str,
    source: Source,
    context: Option<Arc<Context>>,
    /// Which entry of a list is at fault.
    entry: Option<usize>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.told.kind)
    }
}

impl Error {
    #[cold]
    fn with(kind: ErrorKind, op: &'static str, source: Source) -> Error {
        Error { told: Box::new(Told { kind, op, source, context: None, entry: None }) }
    }

    pub(crate) fn new(kind: ErrorKind, op: &'static str) -> Error {
        Error::with(kind, op, Source::None)
    }

    pub(crate) fn message(kind: ErrorKind, op: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
        Error::with(kind, op, Source::Message(message.into()))
    }

    pub(crate) fn os(op: &'static str, errno: i32) -> Error {
        Error::with(ErrorKind::Io, op, Source::Os(errno, None))
    }

    /// An errno that would puzzle without its reason.
    pub(crate) fn os_because(op: &'static str, errno: i32, why: impl Into<Cow<'static, str>>) -> Error {
        Error::with(ErrorKind::Io, op, Source::Os(errno, Some(why.into())))
    }

    pub(crate) fn errno(op: &'static str, errno: rustix::io::Errno) -> Error {
        Error::os(op, errno.raw_os_error())
    }

    pub(crate) fn device(
        kind: ErrorKind,
        op: &'static str,
        code: u32,
        name: impl Into<Cow<'static, str>>,
    ) -> Error {
        Error::with(kind, op, Source::Device { code, name: name.into() })
    }

    pub(crate) fn with_context(mut self, context: Context) -> Error {
        self.told.context = Some(Arc::new(context));
        self
    }

    /// The same of a transfer of so many bytes, of which it was a part.
    pub(crate) fn of_len(mut self, len: usize) -> Error {
        if let Some(context) = &mut self.told.context {
            Arc::make_mut(context).len = len;
        }
        self
    }

    pub(crate) fn of_entry(mut self, entry: usize) -> Error {
        self.told.entry = Some(entry);
        self
    }

    /// The same cause, as another kind.
    pub(crate) fn into_kind(mut self, kind: ErrorKind) -> Error {
        self.told.kind = kind;
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.told.kind
    }

    /// The operation that failed, in one word.
    pub fn operation(&self) -> &'static str {
        self.told.op
    }

    /// Which entry of a list that was handed over is at fault, from 0.
    pub fn entry(&self) -> Option<usize> {
        self.told.entry
    }

    /// The errno beneath, when an operating system call failed.
    pub fn os_error(&self) -> Option<i32> {
        match self.told.source {
            Source::Os(errno, _) => Some(errno),
            _ => None,
        }
    }

    /// The GPU runtime's own code, when its call failed.
    pub fn device_code(&self) -> Option<i32> {
        match self.told.source {
            Source::Device { code, .. } => Some(code as i32),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.told.op)?;
        if let Some(entry) = self.told.entry {
            write!(f, "entry {entry}: ")?;
        }
        if let Some(c) = &self.told.context {
            match (&c.path, c.fd) {
                (Some(path), Some(fd)) => write!(f, "{} (fd {fd})", path.display())?,
                (None, Some(fd)) => write!(f, "fd {fd}")?,
                (Some(path), None) => write!(f, "{}", path.display())?,
                (None, None) => write!(f, "unknown file")?,
            }
            write!(f, ", offset {}, size {}, buffer {:#x}", c.file_offset, c.len, c.buffer)?;
            if let Some(engine) = c.engine {
                write!(f, ", engine {engine}")?;
            }
            write!(f, ": ")?;
        }
        match &self.told.source {
            Source::None => write!(f, "{}", self.told.kind.text()),
            Source::Os(errno, why) => {
                if let Some(name) = errno_name(*errno) {
                    write!(f, "{name}: ")?;
                }
                match why {
                    Some(why) => write!(f, "{why}"),
                    None => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
                }
            }
            Source::Device { code, name } => write!(f, "{}: {name} ({code})", self.told.kind.text()),
            Source::Message(message) => write!(f, "{}: {message}", self.told.kind.text()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        match error.os_error() {
            Some(errno) if error.told.context.is_none() => std::io::Error::from_raw_os_error(errno),
            Some(errno) => std::io::Error::new(std::io::Error::from_raw_os_error(errno).kind(), error),
            None => std::io::Error::other(error),
        }
    }
}

/// The symbolic name of an errno that file I/O can meet.
pub(crate) fn errno_name(errno: i32) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident),*) => { match errno { $(libc::$name => Some(stringify!($name)),)* _ => None } };
    }
    names!(
        EPERM, ENOENT, ESRCH, EINTR, EIO, ENXIO, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, ENODEV,
        EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ETXTBSY, EFBIG, ENOSPC, ESPIPE, EROFS, EPIPE, ENOSYS,
        EOPNOTSUPP, EOVERFLOW, EDQUOT, ESTALE, EREMOTEIO, ETIMEDOUT, ECANCELED, ENODATA
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_88_an_io_error_names_all_it_knows() {
        let error = Error::os("read", libc::EIO).with_context(Context {
            path: Some("/data/model.bin".into()),
            fd: Some(7),
            file_offset: 4096,
            len: 512,
            buffer: 0x7000,
            engine: Some("bounce"),
        });
        let text = error.to_string();
        for part in ["read", "/data/model.bin", "fd 7", "offset 4096", "size 512", "0x7000", "bounce", "EIO"]
        {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(!text.contains('\n'));
        assert_eq!(
            format!("{error:?}"),
            format!("{text} (InternalError)").replace("InternalError", &format!("{:?}", error.kind()))
        );
    }

    #[test]
    fn a_result_fits_into_two_registers() {
        assert_eq!(size_of::<Result<usize>>(), 2 * size_of::<usize>());
    }

    #[test]
    fn kinds_have_distinct_names_and_texts() {
        let mut names: Vec<_> = ErrorKind::ALL.iter().map(|k| k.name()).collect();
        let mut texts: Vec<_> = ErrorKind::ALL.iter().map(|k| k.text()).collect();
        names.sort_unstable();
        names.dedup();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!((names.len(), texts.len()), (ErrorKind::ALL.len(), ErrorKind::ALL.len()));
        assert_eq!(ErrorKind::ALL.len(), 37);
    }
}
