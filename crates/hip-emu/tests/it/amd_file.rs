//! Files read and written by the device itself: the kernel driver's rules.

use core::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use gpu_sys::hip::{AmdFileHandle, HipApi, HipError};
use hip_emu::amd_file::{hipAmdFileRead, hipAmdFileWrite};
use hip_emu::fault::{self, Fault, When};

use crate::support::*;

/// A file of this test's own, already without a name; its content is `pattern`.
fn file(len: usize) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())
        .expect("the temporary folder takes unnamed files");
    std::io::Write::write_all(&mut &file, &pattern(len)).unwrap();
    file
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 * 7 + at % 251) as u8).collect()
}

/// What a transfer gave: the HIP error, the bytes copied, the status; both zeroed before, as callers must.
type Given = (HipError, u64, i32);

fn transfer(is_write: bool, fd: i32, at: *mut c_void, size: u64, offset: i64) -> Given {
    let (mut copied, mut status) = (0, 0);
    let mut handle = AmdFileHandle { pad: [0; 8] };
    handle.fd = fd;
    let function = if is_write { hipAmdFileWrite } else { hipAmdFileRead };
    // SAFETY: the variables are valid, the device memory this test's own.
    let result = unsafe { function(handle, at, size, offset, &raw mut copied, &raw mut status) };
    (result, copied, status)
}

fn refused(errno: i32) -> Given {
    (HipError::UNKNOWN, 0, -errno)
}

#[test]
fn bytes_travel_both_ways() {
    let api = hip();
    let device = malloc(api, 64 << 10);
    let from = file(32 << 10);
    let given = transfer(false, from.as_raw_fd(), device.wrapping_byte_add(4096), 16 << 10, 8192);
    assert_eq!(given, (HipError::SUCCESS, 16 << 10, 0));
    assert!(read(api, device.wrapping_byte_add(4096), 16 << 10) == pattern(32 << 10)[8192..][..16 << 10]);
    let to = file(0);
    let given = transfer(true, to.as_raw_fd(), device.wrapping_byte_add(4096), 16 << 10, 4096);
    assert_eq!(given, (HipError::SUCCESS, 16 << 10, 0));
    let mut written = Vec::new();
    std::io::Seek::rewind(&mut &to).unwrap();
    (&to).read_to_end(&mut written).unwrap();
    assert!(written[..4096].iter().all(|byte| *byte == 0));
    assert!(written[4096..] == pattern(32 << 10)[8192..][..16 << 10]);
    free(api, device);
}

#[test]
fn what_the_kernel_refuses() {
    let api = hip();
    let device = malloc(api, 16 << 10);
    let host: *mut c_void = pinned(api, 8192).as_mut_ptr().cast();
    let file = file(16 << 10);
    let fd = file.as_raw_fd();
    for (fd, at, size, offset) in [
        (-1, device, 4096, 0),
        (fd, device, 4095, 0),
        (fd, device, 4096, 512),
        (fd, device, 4096, -4096),
        (fd, device.wrapping_byte_add(512), 4096, 0),
        (fd, host, 4096, 0),
    ] {
        assert_eq!(
            transfer(false, fd, at, size, offset),
            refused(libc::EINVAL),
            "{fd} {at:?} {size} {offset}"
        );
    }
    assert_eq!(transfer(false, 1_000_000, device, 4096, 0), refused(libc::EBADF));
    let read_only = File::open("/proc/self/exe").unwrap();
    assert_eq!(transfer(true, read_only.as_raw_fd(), device, 4096, 0), refused(libc::EBADF));
    let folder = File::open("/").unwrap();
    assert_eq!(transfer(false, folder.as_raw_fd(), device, 4096, 0), refused(libc::ENODEV));
    free(api, device);
}

#[test]
fn what_the_layers_above_the_kernel_refuse_has_no_status() {
    let api = hip();
    let device = malloc(api, 8192);
    let file = file(16 << 10);
    let mut plain = [0u8; 16];
    let plain: *mut c_void = plain.as_mut_ptr().cast();
    for (at, size) in [
        (core::ptr::null_mut(), 4096),
        (plain, 4096),
        (device, 12 << 10),
        (device.wrapping_byte_add(4096), 8192),
        (device.wrapping_byte_sub(4096), 4096),
    ] {
        assert_eq!(transfer(false, file.as_raw_fd(), at, size, 0), (HipError::UNKNOWN, 0, 0));
    }
    free(api, device);
}

#[test]
fn the_end_of_the_file() {
    let api = hip();
    let device = malloc(api, 16 << 10);
    let whole = file(8192);
    assert_eq!(transfer(false, whole.as_raw_fd(), device, 16 << 10, 0), (HipError::SUCCESS, 8192, 0));
    assert_eq!(transfer(false, whole.as_raw_fd(), device, 4096, 8192), (HipError::SUCCESS, 0, 0));
    let ragged = file(5000);
    assert_eq!(transfer(false, ragged.as_raw_fd(), device, 8192, 0), refused(libc::EIO));
    assert_eq!(transfer(false, ragged.as_raw_fd(), device, 4096, 0), (HipError::SUCCESS, 4096, 0));
    free(api, device);
}

#[test]
fn nothing_is_success_since_714() {
    hip();
    assert_eq!(transfer(false, -1, core::ptr::null_mut(), 0, 0), (HipError::SUCCESS, 0, 0));
    child_passes("amd_file::child_before_714", &[("HIP_EMU_VERSION", "7.2")]);
}

#[test]
#[ignore = "needs a runtime of another version: run by nothing_is_success_since_714"]
fn child_before_714() {
    assert_eq!(transfer(false, -1, core::ptr::null_mut(), 0, 0), (HipError::UNKNOWN, 0, 0));
}

#[test]
fn unknown_file_systems_have_no_device() {
    child_passes("amd_file::child_with_strict_file_systems", &[]);
}

#[test]
#[ignore = "needs the default options: run by unknown_file_systems_have_no_device"]
fn child_with_strict_file_systems() {
    let api = hip_emu::api();
    let device = malloc(api, 4096);
    // SAFETY: a valid name and no flags; the descriptor is this test's own.
    let memory = unsafe { libc::memfd_create(c"test".as_ptr(), 0) };
    assert!(memory >= 0);
    assert_eq!(transfer(true, memory, device, 4096, 0), refused(libc::ENODEV));
}

#[test]
fn a_direct_descriptor_works_too() {
    let api = hip();
    let device = malloc(api, 8192);
    let buffered = file(8192);
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", buffered.as_raw_fd()));
    match direct {
        Ok(direct) => {
            assert_eq!(transfer(false, direct.as_raw_fd(), device, 8192, 0), (HipError::SUCCESS, 8192, 0));
            assert!(read(api, device, 8192) == pattern(8192));
        }
        Err(error) => {
            eprintln!("SKIP: a_direct_descriptor_works_too: no O_DIRECT in the temporary folder: {error}")
        }
    }
    free(api, device);
}

#[test]
fn faults_reach_the_status() {
    let _turn = faults();
    let api = hip();
    let device = malloc(api, 16 << 10);
    let file = file(16 << 10);
    fault::inject("hipAmdFileRead", When::Nth(1), Fault::Status(libc::EREMOTEIO)).unwrap();
    fault::inject("hipAmdFileRead", When::Nth(2), Fault::Short(4096)).unwrap();
    fault::inject("hipAmdFileRead", When::Nth(3), HipError::INVALID_DEVICE).unwrap();
    let read_all = || transfer(false, file.as_raw_fd(), device, 16 << 10, 0);
    assert_eq!(read_all(), refused(libc::EREMOTEIO));
    assert_eq!(read_all(), (HipError::SUCCESS, 4096, 0));
    assert_eq!(read_all(), (HipError::INVALID_DEVICE, 0, 0));
    assert_eq!(read_all(), (HipError::SUCCESS, 16 << 10, 0));
    fault::clear();
    // None of this is anybody's last error.
    let _: &HipApi = api;
    ok!((api.hipGetLastError)());
    free(api, device);
}
