//! The rules of the emulated GPU, one test for each: what a client of HIP would see. Every test works through the function
//! table or the functions it is made of.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod amd_file;
mod capture;
mod children;
mod copies;
mod cost;
mod devices;
mod dma_buf;
mod docs;
mod events;
mod faults;
mod host_memory;
mod ipc;
mod kernels;
mod memory;
mod pointers;
mod streams;
mod support;
mod timed_link;
mod virtual_memory;
mod wait_value;
