//! Places at which tracers can listen: statically defined probes as SystemTap, bpftrace and perf know them. One that nobody
//! listens to is one instruction that does nothing; a note beside the code says where it is. It measures nothing.
//!
//! Each probe is in one function that is not inlined: a copy of it that the linker drops would leave its note behind, and with
//! that a place that does not exist.

use crate::op::Op;

/// A probe of the provider `hipfile` with arguments of eight bytes.
#[cfg(target_arch = "x86_64")]
macro_rules! probe {
    ($name:literal, $arguments:literal, $($value:expr),*) => {
        // SAFETY: a single instruction without effect; the rest goes into sections that are never executed.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", @note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, _.stapsdt.base, 0",
                ".asciz \"hipfile\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $arguments, "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                $(in(reg) $value,)*
                options(att_syntax, nomem, nostack, preserves_flags)
            );
        }
    };
}

/// Elsewhere there are none.
#[cfg(not(target_arch = "x86_64"))]
macro_rules! probe {
    ($name:literal, $arguments:literal, $($value:expr),*) => { $(let _ = $value;)* };
}

/// A transfer begins: 0 for a read and 1 for a write, the caller's descriptor, where in the file, bytes, the number of the GPU
/// or -1.
#[inline(never)]
pub(crate) fn transfer_begin(op: Op, fd: i32, file_offset: u64, len: usize, gpu: Option<u32>) {
    let gpu = gpu.map_or(-1, i64::from);
    probe!(
        "transfer_begin",
        "8@{0} -8@{1} 8@{2} 8@{3} -8@{4}",
        op as u64,
        i64::from(fd),
        file_offset,
        len as u64,
        gpu
    );
}

/// It has ended: 0 for a read and 1 for a write, the caller's descriptor, where in the file, bytes moved or less than 0 for a
/// failure, bytes that went direct.
#[inline(never)]
pub(crate) fn transfer_end(op: Op, fd: i32, file_offset: u64, moved: i64, direct: usize) {
    probe!(
        "transfer_end",
        "8@{0} -8@{1} 8@{2} -8@{3} 8@{4}",
        op as u64,
        i64::from(fd),
        file_offset,
        moved,
        direct as u64
    );
}
