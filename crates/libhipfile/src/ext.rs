//! `include/hipfile_ext.h`: what this library adds. Not in the dispatch table, whose layout is not ours to extend.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use hipfile::{DevPtr, Driver, FileInfo, PageCache, Reason};

use crate::abi::*;
use crate::file::file_id;
use crate::global;
use crate::guard::{self, Failure};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no NUL"),
};

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtGetBuildInfo(info: *mut hipFileExtBuildInfo_t) -> hipFileError_t {
    guard::status(c"hipFileExtGetBuildInfo", || {
        let full = hipFileExtBuildInfo_t {
            size: size_of::<hipFileExtBuildInfo_t>(),
            name: c"hipfile (independent implementation)".as_ptr(),
            version: VERSION.as_ptr(),
            features: HIPFILE_EXT_FEATURE_SYNC_IO
                | HIPFILE_EXT_FEATURE_STREAM_IO
                | HIPFILE_EXT_FEATURE_BATCH_IO
                | HIPFILE_EXT_FEATURE_STATISTICS
                | HIPFILE_EXT_FEATURE_USERSPACE_FS,
            emulation_available: u32::from(hipfile::EMULATION_BUILT_IN),
            reserved: 0,
        };
        // SAFETY: the caller's promise is the one that `fill` asks for.
        unsafe { fill(info, full) }
    })
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtLastError(info: *mut hipFileExtErrorInfo_t) -> hipFileError_t {
    let answer = |err| hipFileError_t { err, hip_drv_err: hipSuccess };
    // A value, not a status: asking for the last error must not replace it.
    guard::value(answer(hipFileInternalError), || {
        // SAFETY: the caller's promise is the one that `last_error` asks for.
        match unsafe { last_error(info) } {
            Ok(()) => answer(hipFileSuccess),
            Err(failure) => failure.as_status(),
        }
    })
}

/// The calling thread's last failure.
///
/// # Safety
/// As [`fill`].
unsafe fn last_error(info: *mut hipFileExtErrorInfo_t) -> Result<(), Failure> {
    let filled = guard::with_last(|last| {
        let full = hipFileExtErrorInfo_t {
            size: size_of::<hipFileExtErrorInfo_t>(),
            err: last.status.err,
            hip_drv_err: last.status.hip_drv_err,
            os_error: last.os_error,
            function: last.function.as_ptr(),
            text: last.text().as_ptr(),
        };
        // SAFETY: as this function demands.
        unsafe { fill(info, full) }
    });
    filled.unwrap_or_else(|| Err(Failure::new(hipFileInternalError, "the thread is ending")))
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `bytes_p` is NULL or what was given to an operation that its stream has passed. `info` is NULL or points to a structure
/// whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtStreamError(
    bytes_p: *const isize,
    info: *mut hipFileExtErrorInfo_t,
) -> hipFileError_t {
    guard::status(c"hipFileExtStreamError", || {
        if bytes_p.is_null() || info.is_null() {
            return Err(Failure::new(hipFileInvalidValue, "a pointer is NULL"));
        }
        // SAFETY: not NULL, so it is the result variable of an operation, which nobody writes any more.
        if unsafe { bytes_p.read() } >= 0 {
            let none = hipFileExtErrorInfo_t {
                size: size_of::<hipFileExtErrorInfo_t>(),
                err: hipFileSuccess,
                hip_drv_err: hipSuccess,
                os_error: 0,
                function: c"".as_ptr(),
                text: c"".as_ptr(),
            };
            // SAFETY: the caller's promise is the one that `fill` asks for.
            return unsafe { fill(info, none) };
        }
        let Some((function, error)) = global::kept_failure(bytes_p.addr()) else {
            let text = "no failure of an operation with this result is kept";
            return Err(Failure::new(hipFileInvalidValue, text));
        };
        guard::retell(function, Failure::Core(error));
        // SAFETY: the caller's promise is the one that `last_error` asks for.
        unsafe { last_error(info) }
    })
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtHandleGetInfo(
    fh: hipFileHandle_t,
    info: *mut hipFileExtHandleInfo_t,
) -> hipFileError_t {
    guard::status(c"hipFileExtHandleGetInfo", || {
        let driver = global::current()
            .ok_or_else(|| Failure::new(hipFileHandleNotRegistered, "the driver is not open"))?;
        let known = driver.file_info(file_id(fh))?;
        // SAFETY: the caller's promise is the one that `fill` asks for.
        unsafe { fill(info, handle_info(&known)) }
    })
}

fn handle_info(known: &FileInfo) -> hipFileExtHandleInfo_t {
    let words = words();
    let engines: [_; HIPFILE_EXT_MAX_ENGINES] = core::array::from_fn(|n| {
        let name = hipfile::ENGINE_NAMES.get(n).copied().unwrap_or_default();
        let of = |side: &[hipfile::EngineStats]| {
            side.iter().find(|e| e.engine == name).map_or((0, 0, 0), |e| (e.operations, e.bytes, e.errors))
        };
        let (read, write) = (of(&known.stats.read), of(&known.stats.write));
        hipFileExtEngineCounters_t {
            name: words.engines.get(n).map_or(c"".as_ptr(), |name| name.as_ptr()),
            read_operations: read.0,
            read_bytes: read.1,
            read_errors: read.2,
            write_operations: write.0,
            write_bytes: write.1,
            write_errors: write.2,
        }
    });
    let reasons: [_; HIPFILE_EXT_MAX_REASONS] = core::array::from_fn(|n| {
        let of = |side: &[hipfile::ReasonStats]| {
            side.iter().find(|r| r.reason as usize == n).map_or((0, 0), |r| (r.operations, r.bytes))
        };
        let (read, write) = (of(&known.stats.read_staged), of(&known.stats.write_staged));
        let (word, text) = words.reason(n);
        hipFileExtReasonCounters_t {
            word,
            text,
            read_operations: read.0,
            read_bytes: read.1,
            write_operations: write.0,
            write_bytes: write.1,
        }
    });
    let engine = hipfile::ENGINE_NAMES.iter().position(|name| *name == known.engine);
    let (reason, reason_text) =
        known.reason.map_or((c"".as_ptr(), c"".as_ptr()), |reason| words.reason(reason as usize));
    let align = known.direct_align;
    let device = known.storage.device.unwrap_or_default();
    let path = known.path.as_deref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
    hipFileExtHandleInfo_t {
        size: size_of::<hipFileExtHandleInfo_t>(),
        engine: engine.and_then(|n| words.engines.get(n)).map_or(c"none".as_ptr(), |name| name.as_ptr()),
        reason,
        reason_text,
        file_system: chars(known.file_system.as_deref().unwrap_or_default().as_bytes()),
        path: chars(path),
        device_major: device.0,
        device_minor: device.1,
        memory_align: align.map_or(0, |a| a.mem),
        offset_align: align.map_or(0, |a| a.offset),
        read_offset_align: align.map_or(0, |a| a.read_offset),
        private_descriptors: known.private_descriptors as u32,
        page_cache: match known.page_cache {
            PageCache::Direct => hipFileExtPageCacheDirect,
            PageCache::Buffered => hipFileExtPageCacheBuffered,
            PageCache::NoCache => hipFileExtPageCacheNoCache,
            _ => hipFileExtPageCacheAuto,
        },
        engine_count: hipfile::ENGINE_NAMES.len() as u32,
        reason_count: Reason::ALL.len() as u32,
        emulated: u32::from(known.emulated),
        engines,
        reasons,
    }
}

/// As many bytes as fit, and a NUL.
fn chars<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(bytes).take(N - 1) {
        *to = *from as c_char;
    }
    out
}

/// Static texts with the NUL that C wants.
struct Words {
    engines: Vec<CString>,
    reasons: Vec<(CString, CString)>,
}

impl Words {
    fn reason(&self, number: usize) -> (*const c_char, *const c_char) {
        self.reasons
            .get(number)
            .map_or((c"".as_ptr(), c"".as_ptr()), |(word, text)| (word.as_ptr(), text.as_ptr()))
    }
}

fn words() -> &'static Words {
    static WORDS: OnceLock<Words> = OnceLock::new();
    WORDS.get_or_init(|| {
        let c = |text: &str| CString::new(text).unwrap_or_default();
        Words {
            engines: hipfile::ENGINE_NAMES.iter().map(|name| c(name)).collect(),
            reasons: Reason::ALL.iter().map(|reason| (c(reason.word()), c(reason.text()))).collect(),
        }
    })
}

/// See `include/hipfile_ext.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileExtHandleSetPageCache(
    fh: hipFileHandle_t,
    setting: hipFileExtPageCache_t,
) -> hipFileError_t {
    guard::status(c"hipFileExtHandleSetPageCache", || {
        let choices = [
            (hipFileExtPageCacheDefault, None),
            (hipFileExtPageCacheAuto, Some(PageCache::Auto)),
            (hipFileExtPageCacheDirect, Some(PageCache::Direct)),
            (hipFileExtPageCacheBuffered, Some(PageCache::Buffered)),
            (hipFileExtPageCacheNoCache, Some(PageCache::NoCache)),
        ];
        let Some((_, setting)) = choices.into_iter().find(|(number, _)| *number == setting) else {
            let text = format!("{} is no page cache setting", setting.0);
            return Err(Failure::new(hipFileInvalidValue, text));
        };
        let driver = global::current()
            .ok_or_else(|| Failure::new(hipFileHandleNotRegistered, "the driver is not open"))?;
        Ok(driver.set_page_cache(file_id(fh), setting)?)
    })
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtPoolGetInfo(info: *mut hipFileExtPoolInfo_t) -> hipFileError_t {
    guard::status(c"hipFileExtPoolGetInfo", || {
        let driver = global::current();
        let of = |get: fn(&Driver) -> usize| driver.as_ref().map_or(0, |driver| get(driver) as u64);
        let full = hipFileExtPoolInfo_t {
            size: size_of::<hipFileExtPoolInfo_t>(),
            held_bytes: of(|driver| driver.staging_bytes()),
            most_bytes: of(|driver| driver.staging_max()),
            block_size: of(|driver| driver.config().block_len),
        };
        // SAFETY: the caller's promise is the one that `fill` asks for.
        unsafe { fill(info, full) }
    })
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtBufGetInfo(
    buffer: *const c_void,
    length: usize,
    info: *mut hipFileExtBufInfo_t,
) -> hipFileError_t {
    guard::status(c"hipFileExtBufGetInfo", || {
        let driver = global::current()
            .ok_or_else(|| Failure::new(hipFileMemoryNotRegistered, "the driver is not open"))?;
        let found = driver.buffer_info(DevPtr::from(buffer), length)?;
        let full = hipFileExtBufInfo_t {
            size: size_of::<hipFileExtBufInfo_t>(),
            start: core::ptr::without_provenance(found.start.0),
            length: found.len as u64,
            gpu: found.gpu.map_or(-1, |ordinal| ordinal as c_int),
            emulated: found.emulated.into(),
            current: found.current.into(),
            reserved: 0,
            pieces: found.pieces as u64,
        };
        // SAFETY: the caller's promise is the one that `fill` asks for.
        unsafe { fill(info, full) }
    })
}

/// See `include/hipfile_ext.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileExtPoolTrim() -> hipFileError_t {
    guard::status(c"hipFileExtPoolTrim", || {
        if let Some(driver) = global::current() {
            driver.trim();
        }
        Ok(())
    })
}

/// See `include/hipfile_ext.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileExtHandleSetSerialized(fh: hipFileHandle_t, on: c_int) -> hipFileError_t {
    guard::status(c"hipFileExtHandleSetSerialized", || {
        let driver = global::current()
            .ok_or_else(|| Failure::new(hipFileHandleNotRegistered, "the driver is not open"))?;
        Ok(driver.set_serialized(file_id(fh), on != 0)?)
    })
}

/// Copies as much of `full` as the caller's structure holds, and sets its size to that.
///
/// # Safety
/// `to` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
unsafe fn fill<T: Copy>(to: *mut T, full: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::new(hipFileInvalidValue, "info is NULL"));
    }
    let size = to.cast::<usize>();
    // SAFETY: not NULL, so the first member may be read.
    let room = unsafe { size.read() };
    // Whole fields only: every field begins and ends at a multiple of eight, or shares eight bytes with another.
    if room < 2 * size_of::<usize>() {
        return Err(Failure::new(
            hipFileInvalidValue,
            format!("info->size is {room}, too small for any field"),
        ));
    }
    let n = room.min(size_of::<T>()) & !(size_of::<usize>() - 1);
    let from = (&raw const full).cast::<u8>();
    // SAFETY: `n` bytes lie within both structures, which do not overlap: one is a local variable.
    unsafe { from.copy_to_nonoverlapping(to.cast::<u8>(), n) };
    // SAFETY: the first member may be written to.
    unsafe { size.write(n) };
    Ok(())
}
