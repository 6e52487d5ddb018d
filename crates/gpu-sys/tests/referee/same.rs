//! What it means that a type of ours and one of the bindings are the same to a C compiler. Only the compiler looks at
//! this file: a bound that does not hold stops the build.

use core::ffi::c_void;

use cubecl_hip_sys as theirs;
use gpu_sys::hip;
use hip_emu::types as emu;

/// `Ours: Same<Theirs>`: equal in size, alignment and register class, pointing to types that are the same.
#[diagnostic::on_unimplemented(message = "`{Self}` is not what HIP's headers declare: `{Theirs}`")]
pub(crate) trait Same<Theirs: ?Sized> {}

macro_rules! same {
    ($($ours:ty = $theirs:ty;)*) => { $(impl Same<$theirs> for $ours {})* };
}

same! {
    // One byte of text or of anything: C leaves the sign of char open.
    i8 = i8;
    u8 = u8;
    i32 = i32;
    u32 = u32;
    i64 = i64;
    u64 = u64;
    usize = usize;
    f32 = f32;
    c_void = c_void;
    // Transparent numbers; layouts of the structures are compared in types.rs.
    hip::HipError = theirs::hipError_t;
    emu::RtcResult = theirs::hiprtcResult;
    hip::StreamOpaque = theirs::ihipStream_t;
    hip::EventOpaque = theirs::ihipEvent_t;
    hip::AllocationOpaque = theirs::ihipMemGenericAllocationHandle;
    hip::ModuleOpaque = theirs::ihipModule_t;
    hip::FunctionOpaque = theirs::ihipModuleSymbol_t;
    emu::GraphOpaque = theirs::ihipGraph;
    emu::RtcProgramOpaque = theirs::_hiprtcProgram;
    hip::PointerAttributes = theirs::hipPointerAttribute_t;
    hip::Uuid = theirs::hipUUID;
    // Single bits, which nobody here reads.
    [u8; 4] = theirs::hipDeviceArch_t;
    u16 = u16;
    emu::IpcMemHandle = theirs::hipIpcMemHandle_st;
    emu::MemLocation = theirs::hipMemLocation;
    emu::MemAccessDesc = theirs::hipMemAccessDesc;
    emu::MemAllocationProp = theirs::hipMemAllocationProp;
    emu::DeviceProperties = theirs::hipDeviceProp_tR0600;
}

impl<A: Same<B>, B> Same<*mut B> for *mut A {}
impl<A: Same<B>, B> Same<*const B> for *const A {}
// We may promise not to write where HIP's headers forgot to; never the other way round.
impl<A: Same<B>, B> Same<*mut B> for *const A {}
impl<A: Same<B>, B, const N: usize> Same<[B; N]> for [A; N] {}
impl<A, B> Same<Option<B>> for Option<A> where A: Same<B> {}

macro_rules! same_functions {
    ($(($($ours:ident)*) ($($theirs:ident)*);)*) => {
        $(
            impl<$($ours: Same<$theirs>, $theirs,)* R: Same<S>, S>
                Same<unsafe extern "C" fn($($theirs),*) -> S> for unsafe extern "C" fn($($ours),*) -> R {}
        )*
    };
}

same_functions! {
    () ();
    (A) (B);
    (A A1) (B B1);
    (A A1 A2) (B B1 B2);
    (A A1 A2 A3) (B B1 B2 B3);
    (A A1 A2 A3 A4) (B B1 B2 B3 B4);
    (A A1 A2 A3 A4 A5) (B B1 B2 B3 B4 B5);
    (A A1 A2 A3 A4 A5 A6 A7 A8 A9 A10) (B B1 B2 B3 B4 B5 B6 B7 B8 B9 B10);
}

impl Same<()> for () {}

/// Holds when it compiles.
pub(crate) const fn same<Ours: Same<Theirs>, Theirs>(_ours: &Ours, _theirs: &Theirs) {}
