//! What the benchmarks measure with and against, where that needs unsafe code: memory of two kinds, a plain io_uring reader
//! and writer, and the page cache's own word on a file. It measures nothing and knows no GPU.

mod cache;
mod memory;
mod ring;

pub use cache::{CacheStat, cachestat};
pub use memory::{FreshPages, HugePages};
pub use ring::{Completion, Direction, Lanes, Request};
