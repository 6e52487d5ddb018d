//! The entry: opens and creates objects, and keeps the threads that serve their connections. It reads and writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hipfile::FileId;
use object_store::{BackoffConfig, ObjectStoreExt as _, RetryConfig};
use rustix::io::Errno;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};
use crate::object::{Inner, Object};
use crate::place::{Patience, Place};
use crate::read::Reader;
use crate::wait::wait;
use crate::write::Writer;

/// How long one request may take, unless the setting `timeout` says otherwise; and how long a range that is read may stay out.
const LONG: Duration = Duration::from_secs(600);
const SILENCE: Duration = Duration::from_secs(30);

/// How objects are read and written. The defaults suit S3 from a machine in the same region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one request: of a range that is read, of a part that is written. 5 MiB is the least that S3 takes for a part;
    /// a large object whose size is told beforehand is written in larger ones, as there may be 10,000 of them. 8 MiB.
    pub part_len: usize,
    /// Requests under way at once for one object, 1 at least. As many parts are kept in memory at most that are read
    /// ahead, and as many that are being written. 8.
    pub parallel: usize,
    /// How often a request that failed is made again: one that was answered with a server's error, or whose connection broke.
    /// 10.
    pub retries: usize,
    /// After how long it is not made again, counted from the first time. 3 minutes, and for what is written 10 more: a store may
    /// take minutes to put a large object together, and until then does not answer.
    pub retry_for: Duration,
    /// How long the first wait before that is, about; each next one is twice as long, up to 15 s. 100 ms.
    pub first_wait: Duration,
    /// Settings of the stores that win over the environment: a name of `object_store`'s, such as `aws_endpoint`,
    /// `google_service_account`, `azure_storage_account_name` or `timeout`, and its value. A store leaves those of other stores
    /// aside. None.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            part_len: 8 << 20,
            parallel: 8,
            retries: 10,
            retry_for: Duration::from_secs(180),
            first_wait: Duration::from_millis(100),
            settings: Vec::new(),
        }
    }
}

impl Options {
    fn retry(&self, timeout: Duration) -> RetryConfig {
        let most = Duration::from_secs(15);
        RetryConfig {
            backoff: BackoffConfig { init_backoff: self.first_wait, max_backoff: most, base: 2.0 },
            max_retries: self.retries,
            retry_timeout: timeout,
        }
    }

    /// A range that is read comes at once, and goes on coming.
    fn to_read(&self) -> Patience {
        Patience { retry: self.retry(self.retry_for), most: LONG, silence: Some(SILENCE) }
    }

    /// Nothing comes back until a part is there, or until all parts are put together.
    fn to_write(&self) -> Patience {
        Patience { retry: self.retry(self.retry_for.saturating_add(LONG)), most: LONG, silence: None }
    }
}

/// What all objects of one [`Objects`] share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Left only when it is dropped.
    runtime: Option<Runtime>,
    pub(crate) handle: Handle,
    pub(crate) options: Options,
    /// Which object a registered file stands for.
    files: Mutex<HashMap<FileId, Weak<Inner>>>,
}

impl Shared {
    pub(crate) fn enter(&self, file: FileId, object: &Arc<Inner>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, object| object.strong_count() > 0);
        files.insert(file, Arc::downgrade(object));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting is not allowed on a thread of another runtime, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}

/// Opens objects. Two threads of its own serve their connections, with all signals blocked where the caller blocked them; they
/// end when it and the last of its objects are gone. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects(Arc<Shared>);

impl Objects {
    /// Starts the threads.
    ///
    /// # Errors
    /// An option is out of range, or the threads cannot be started.
    pub fn new(options: Options) -> Result<Objects> {
        let invalid = |why: String| Error::new("options", Errno::INVAL.raw_os_error(), why);
        if options.parallel == 0 || options.parallel > 1024 {
            return Err(invalid(format!("parallel is {}: the range is 1 to 1024", options.parallel)));
        }
        if !(64 << 10..=1 << 30).contains(&options.part_len) {
            return Err(invalid(format!("part_len is {}: the range is 64 KiB to 1 GiB", options.part_len)));
        }
        if let Some(name) = crate::place::unknown(&options.settings) {
            return Err(invalid(format!("{name}: no store has such a setting")));
        }
        use_ring();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("hipfile-object")
            .enable_all()
            .build()
            .map_err(|error| Error::new("threads", error.raw_os_error().unwrap_or(0), error))?;
        let handle = runtime.handle().clone();
        Ok(Objects(Arc::new(Shared { runtime: Some(runtime), handle, options, files: Mutex::default() })))
    }

    /// Opens an object for reading: asks for its size.
    ///
    /// # Errors
    /// There is no such object, it may not be read, or the store does not answer.
    pub fn open(&self, url: &str) -> Result<Object> {
        let place = self.place(url, &self.0.options.to_read())?;
        let head = wait(&self.0.handle, place.store.head(&place.path));
        let meta = head.map_err(|error| Error::store(url, error))?;
        let reader = Reader::new(&self.0, place, meta);
        Ok(Object::reading(&self.0, reader))
    }

    /// Begins to write an object. It appears, or replaces the one of that name, with [`Object::finish`]. `size` is how long it
    /// will be, if that is known: more than 80 GB need it.
    ///
    /// # Errors
    /// The URL names no object, or credentials are malformed. What a store refuses shows later.
    pub fn create(&self, url: &str, size: Option<u64>) -> Result<Object> {
        let place = self.place(url, &self.0.options.to_write())?;
        Ok(Object::writing(&self.0, Writer::new(&self.0, place, size)))
    }

    fn place(&self, url: &str, patience: &Patience) -> Result<Place> {
        Place::find(url, patience, &self.0.options.settings)
    }

    /// The object that a registered file stands for, for as long as somebody has it.
    pub fn of_file(&self, file: FileId) -> Option<Object> {
        let files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&file)?.upgrade().map(Object::from)
    }
}

/// TLS by ring, unless the process has chosen otherwise.
pub(crate) fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
