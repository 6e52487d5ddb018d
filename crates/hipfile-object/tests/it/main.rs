//! Objects through the library, from servers on this machine: an S3 server of other people's, a plain HTTP server that knows
//! ranges, a local folder; and through a proxy that drops requests.
#![allow(clippy::unwrap_used, reason = "a test's unwrap is an assertion")]
#![allow(clippy::print_stderr, reason = "seeds, skips and figures are said")]
#![allow(clippy::disallowed_methods, reason = "tests read the environment")]

mod http;
mod local;
mod proxy;
mod s3;
mod support;
