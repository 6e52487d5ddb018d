//! The emulated run-time compiler as `libhiprtc.so`: the `rtc` functions of `hip-emu` under their C names, and nothing
//! else. It shares no state with the emulated `libamdhip64.so`: a compiled program carries all that the runtime needs.

use core::ffi::*;

use hip_emu::types::*;

/// Gives functions of `hip_emu::rtc` their C names.
macro_rules! export {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            /// HIP's function of that name.
            ///
            /// # Safety
            /// As HIP states it.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "a C name")]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                // SAFETY: the caller keeps HIP's rules, which are those of the emulated function.
                unsafe { hip_emu::rtc::$name($($arg),*) }
            }
        )*
    };
}

export! {
    fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> RtcResult;
    fn hiprtcGetErrorString(result: RtcResult) -> *const c_char;
    fn hiprtcCreateProgram(
        program: *mut RtcProgramPtr, source: *const c_char, name: *const c_char, headers: c_int,
        header_texts: *const *const c_char, header_names: *const *const c_char,
    ) -> RtcResult;
    fn hiprtcCompileProgram(program: RtcProgramPtr, count: c_int, options: *const *const c_char) -> RtcResult;
    fn hiprtcGetCodeSize(program: RtcProgramPtr, size: *mut usize) -> RtcResult;
    fn hiprtcGetCode(program: RtcProgramPtr, code: *mut c_char) -> RtcResult;
    fn hiprtcGetProgramLogSize(program: RtcProgramPtr, size: *mut usize) -> RtcResult;
    fn hiprtcGetProgramLog(program: RtcProgramPtr, log: *mut c_char) -> RtcResult;
    fn hiprtcDestroyProgram(program: *mut RtcProgramPtr) -> RtcResult;
}
