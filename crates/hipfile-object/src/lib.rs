//! Objects of S3, GCS, Azure, HTTP servers and local folders as files of the library: a userspace file system over the crate
//! `object_store`. It moves bytes between objects and host memory; what moves them to a GPU is the core.
//!
//! ```no_run
//! use hipfile::{Buffer, Config, Driver};
//! use hipfile_object::{Objects, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let driver = Driver::open(Config::from_env())?;
//! let objects = Objects::new(Options::default())?;
//! let object = objects.open("s3://models/llama/weights.bin")?;
//! let file = object.register(&driver)?;
//! let mut buffer = Buffer::alloc(&driver, 0, 64 << 20)?;
//! let read = file.read_at(&mut buffer, 0..64 << 20, 0)?;
//!
//! let copy = objects.create("gs://backup/head.bin", Some(read as u64))?;
//! copy.register(&driver)?.write_at(&buffer, 0..read, 0)?;
//! copy.finish()?; // until here there is no such object
//! # Ok(())
//! # }
//! ```
//!
//! Credentials, regions and endpoints come from the environment by the conventions of `object_store` (`AWS_ACCESS_KEY_ID`,
//! `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and so on), or from the machine's own identity
//! in a cloud. What is asked again after a failure, and for how long, is in [`Options`].
#![forbid(unsafe_code)]

mod error;
mod object;
mod objects;
mod place;
mod read;
mod wait;
mod write;

pub use error::{Error, Result};
pub use object::Object;
pub use objects::{Objects, Options};
pub use place::is_url;
