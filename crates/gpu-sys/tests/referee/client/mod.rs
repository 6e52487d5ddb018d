//! The emulated runtime under a foreign client: every call here goes through the bindings, which load the libraries by
//! themselves. What is expected is what HIP documents.

mod devices;
mod memory;
mod modules;
mod streams;

use core::ffi::c_void;
use std::process::Command;

use cubecl_hip_sys::hipError_t;
use gpu_sys::hip::HipError;

/// Set in the process that runs a test's body.
const CHILD: &str = "REFEREE_CHILD";

/// Calls a function of the bindings; the code it returns.
macro_rules! hip {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the tests pass null, pointers to variables of the right type, handles and addresses that the runtime
        // gave, and sizes within them.
        unsafe { cubecl_hip_sys::$function($($argument),*) }
    }};
}
pub(crate) use hip;

/// Calls a function of the bindings, which must succeed.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::client::success(stringify!($function), $crate::client::hip!($function($($argument),*)))
    };
}
pub(crate) use ok;

#[track_caller]
pub(crate) fn success(function: &str, code: hipError_t) {
    assert_eq!(HipError(code), HipError::SUCCESS, "{function}");
}

/// Runs the test of this path, as the harness names it, in a process whose bindings find the emulation.
#[expect(clippy::disallowed_methods, reason = "the process learns from its parent that it is the child")]
pub(crate) fn in_client(test: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        assert!(cubecl_hip_sys::is_available(), "the bindings find no runtime");
        return body();
    }
    let emulation = test_support::emulation();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(CHILD, "1").env("ROCM_PATH", &emulation.lib).env_remove("HIP_PATH");
    command.env("HIP_EMU_MEMORY", "1G").envs(settings.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the client ended with {}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "no test is named {test}\n{text}");
}

/// Device memory that is freed at the end of the test.
pub(crate) struct DeviceMemory {
    pub(crate) at: *mut c_void,
    pub(crate) len: usize,
}

impl DeviceMemory {
    pub(crate) fn new(len: usize) -> Self {
        let mut at = core::ptr::null_mut();
        ok!(hipMalloc(&raw mut at, len));
        assert!(!at.is_null());
        DeviceMemory { at, len }
    }

    /// The address `offset` bytes inside.
    pub(crate) fn plus(&self, offset: usize) -> *mut c_void {
        assert!(offset <= self.len);
        self.at.wrapping_byte_add(offset)
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        let kind = cubecl_hip_sys::hipMemcpyKind_hipMemcpyHostToDevice;
        ok!(hipMemcpy(self.at, bytes.as_ptr().cast(), bytes.len(), kind));
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xEE; self.len];
        let kind = cubecl_hip_sys::hipMemcpyKind_hipMemcpyDeviceToHost;
        ok!(hipMemcpy(bytes.as_mut_ptr().cast(), self.at, self.len, kind));
        bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ok!(hipFree(self.at));
        }
    }
}

/// Bytes that differ from page to page and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 4096) as u8 ^ seed).collect()
}
