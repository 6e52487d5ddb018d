//! The header's group "File handles". What a descriptor must be like is decided in the core.

use std::sync::Arc;

use hipfile::FileId;

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard::{self, Failure};
use crate::user_fs::FsOps;

/// See `include/hipfile.h`.
///
/// # Safety
/// `fh` is NULL or points to a handle that may be written to. `descr` is NULL or points to a description whose `type` is
/// set, and `handle.fd` and `fs_ops` too if the type says that they are used. What `fs_ops` points to holds functions of the
/// prototypes that it states, each NULL or callable until the handle is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileHandleRegister(
    fh: *mut hipFileHandle_t,
    descr: *mut hipFileDescr_t,
) -> hipFileError_t {
    forward!(pfn_hipfile_handle_register(fh, descr))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileHandleDeregister(fh: hipFileHandle_t) {
    forward!(pfn_hipfile_handle_deregister(fh));
}

/// The id behind a handle. Any value may come in; one that was never given out is found unknown when it is looked up.
pub(crate) fn file_id(fh: hipFileHandle_t) -> FileId {
    FileId::from_raw(fh.addr() as u64)
}

pub(crate) unsafe extern "C" fn handle_register(
    fh: *mut hipFileHandle_t,
    descr: *mut hipFileDescr_t,
) -> hipFileError_t {
    guard::status(c"hipFileHandleRegister", || {
        if fh.is_null() {
            return Err(Failure::new(hipFileInvalidValue, "fh is NULL"));
        }
        if descr.is_null() {
            return Err(Failure::new(hipFileInvalidValue, "descr is NULL"));
        }
        // Field by field: with a descriptor inside, fs_ops may never have been set.
        // SAFETY: `descr` is not NULL, so it points to a description whose type is set.
        let kind = unsafe { (*descr).r#type };
        if ![hipFileHandleTypeOpaqueFD, hipFileHandleTypeUserspaceFS].contains(&kind) {
            let text = format!("handle type {} is not supported; 1 and 3 are", kind.0);
            return Err(Failure::new(hipFileIONotSupported, text));
        }
        // SAFETY: as above; copying a union asks for no member to be set.
        let handle = unsafe { (*descr).handle };
        // SAFETY: the type says that the descriptor is set.
        let fd = unsafe { handle.fd };
        let to_handle = |id: FileId| core::ptr::without_provenance_mut(id.as_raw() as usize);
        let value = if kind == hipFileHandleTypeUserspaceFS {
            // SAFETY: the type says that the functions are set.
            let ops = unsafe { (*descr).fs_ops };
            if fd < 0 || ops.is_null() {
                let text =
                    if fd < 0 { format!("descriptor {fd} is negative") } else { "fs_ops is NULL".to_owned() };
                return Err(Failure::new(hipFileInvalidValue, text));
            }
            // SAFETY: not NULL, so it points to a table of functions.
            let ops = Arc::new(FsOps::new(unsafe { ops.read() }));
            let fs = Arc::clone(&ops);
            let id = global::open_on_success(|driver| driver.register_user_file(fd, fs))?;
            // Not under the gate: the program's function may call us.
            ops.registered(to_handle(id));
            to_handle(id)
        } else {
            to_handle(global::open_on_success(|driver| driver.register_file(fd))?)
        };
        // SAFETY: `fh` is not NULL, so it points to a handle that may be written to.
        unsafe { fh.write(value) };
        Ok(())
    })
}

pub(crate) extern "C" fn handle_deregister(fh: hipFileHandle_t) {
    guard::value((), || {
        if let Some(driver) = global::current() {
            // Unknown, or in use: C is not told.
            let _ = driver.deregister_file(file_id(fh));
        }
    });
}
