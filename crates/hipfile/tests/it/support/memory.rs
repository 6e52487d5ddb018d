//! Memory of every kind that programs hand over, each with neighbours in front and behind that hold other bytes. Only what
//! the emulated GPU has under HIP's functions.

use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use gpu_sys::hip::{self, HipError};
use hip_emu::ipc::{hipIpcCloseMemHandle, hipIpcGetMemHandle, hipIpcOpenMemHandle};
use hip_emu::types::{
    IpcMemHandle, MEM_ACCESS_READ_WRITE, MEM_ALLOCATION_PINNED, MEM_HANDLE_NONE, MEM_LOCATION_DEVICE,
    MemAccessDesc, MemAllocationFlags, MemAllocationProp, MemLocation,
};
pub(crate) use hip_emu::virtual_memory::GRANULARITY;
use hip_emu::virtual_memory::{
    hipMemAddressFree, hipMemAddressReserve, hipMemCreate, hipMemMap, hipMemRelease, hipMemSetAccess,
    hipMemUnmap,
};
use hipfile::DevPtr;

/// Bytes in front of the usable ones and behind them, at least.
const GUARD: usize = 4096;

/// What kind of memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From hipMalloc.
    Device,
    /// From hipMallocAsync.
    Pool,
    /// Pieces of 2 MiB mapped side by side; the usable bytes begin just before the first border.
    Mapped,
    /// Another allocation's, by way of hipIpcOpenMemHandle.
    Imported,
    /// From hipMallocManaged.
    Managed,
    /// From hipHostMalloc.
    Pinned,
    /// The process's own, aligned to pages.
    Plain,
    /// The process's own, at an odd address.
    Odd,
    /// A file of the kernel's memory, mapped and shared.
    Shared,
}

impl Kind {
    pub(crate) const ALL: &[Kind] = &[
        Kind::Device,
        Kind::Pool,
        Kind::Mapped,
        Kind::Imported,
        Kind::Managed,
        Kind::Pinned,
        Kind::Plain,
        Kind::Odd,
        Kind::Shared,
    ];

    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::Device | Kind::Pool | Kind::Mapped | Kind::Imported)
    }
}

/// Memory of a kind. What it must hold is known.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) kind: Kind,
    start: usize,
    /// Of everything, the guards included.
    len: usize,
    /// Where the usable bytes begin.
    front: usize,
    /// Keeps the process's own memory.
    _own: Vec<u8>,
    /// Whose memory it is, if it is imported.
    original: usize,
    model: Vec<u8>,
}

fn ok(code: HipError) {
    assert_eq!(code, HipError::SUCCESS);
}

impl Memory {
    /// So many usable bytes, filled by the pattern of this number.
    pub(crate) fn new(kind: Kind, usable: usize, pattern: u8) -> Memory {
        let api = hip_emu::api();
        let (mut at, mut len, mut front) = (null_mut(), usable + 2 * GUARD, GUARD);
        let (mut own, mut original) = (Vec::new(), 0);
        match kind {
            // SAFETY: `at` is writable.
            Kind::Device => ok(unsafe { (api.hipMalloc)(&raw mut at, len) }),
            // SAFETY: `at` is writable.
            Kind::Pool => ok(unsafe { hip_emu::memory::hipMallocAsync(&raw mut at, len, null_mut()) }),
            Kind::Mapped => {
                front = GRANULARITY - 5000;
                len = (front + usable + GUARD).next_multiple_of(GRANULARITY);
                at = std::ptr::without_provenance_mut(map(len));
            }
            Kind::Imported => {
                // SAFETY: `at` is writable.
                ok(unsafe { (api.hipMalloc)(&raw mut at, len) });
                original = at.addr();
                at = std::ptr::without_provenance_mut(import(original));
            }
            // SAFETY: `at` is writable.
            Kind::Managed => ok(unsafe { api.hipMallocManaged.unwrap()(&raw mut at, len, 1) }),
            // SAFETY: `at` is writable.
            Kind::Pinned => ok(unsafe { (api.hipHostMalloc)(&raw mut at, len, 0) }),
            Kind::Plain | Kind::Odd => {
                own = vec![0_u8; len + 8192];
                let odd = if kind == Kind::Odd { 4097 } else { 0 };
                let base = own.as_mut_ptr();
                at = base.wrapping_add(base.align_offset(4096) + odd).cast();
                at.expose_provenance();
            }
            Kind::Shared => {
                let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
                rustix::fs::ftruncate(&file, len as u64).unwrap();
                let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
                // SAFETY: a new mapping, nowhere in particular, which outlives the descriptor.
                at = unsafe { libc::mmap(null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
                assert_ne!(at, libc::MAP_FAILED);
                at.expose_provenance();
            }
        }
        let model = (0..len).map(|n| (n % 251) as u8 ^ pattern).collect::<Vec<_>>();
        let memory = Memory { kind, start: at.addr(), len, front, _own: own, original, model };
        memory.put(0, &memory.model);
        memory
    }

    /// The address of the first usable byte.
    pub(crate) fn ptr(&self) -> DevPtr {
        DevPtr(self.start + self.front)
    }

    /// Copies, piece by piece where it is made of pieces.
    fn copy(&self, at: usize, len: usize, one: impl Fn(usize, usize, usize)) {
        let mut done = 0;
        while done < len {
            let place = self.start + at + done;
            let unbroken = match self.kind {
                Kind::Mapped => GRANULARITY - place % GRANULARITY,
                _ => len,
            };
            let n = unbroken.min(len - done);
            one(place, done, n);
            done += n;
        }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.copy(at, bytes.len(), |to, from, n| {
            let (to, from) =
                (std::ptr::with_exposed_provenance_mut(to), bytes[from..from + n].as_ptr().cast());
            // SAFETY: the target lies in this memory; nobody uses it now.
            ok(unsafe { (hip_emu::api().hipMemcpy)(to, from, n, hip::MEMCPY_DEFAULT) });
        });
    }

    fn get(&self, at: usize, len: usize) -> Vec<u8> {
        let out = std::cell::RefCell::new(vec![0; len]);
        self.copy(at, len, |from, to, n| {
            let to = out.borrow_mut()[to..to + n].as_mut_ptr().cast();
            let from = std::ptr::with_exposed_provenance(from);
            // SAFETY: the source lies in this memory; nobody writes to it now.
            ok(unsafe { (hip_emu::api().hipMemcpy)(to, from, n, hip::MEMCPY_DEFAULT) });
        });
        out.into_inner()
    }

    /// What all of it holds now, guards included.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.get(0, self.len)
    }

    /// What the usable bytes hold from `at` on, as far as is known.
    pub(crate) fn known(&self, at: usize, len: usize) -> &[u8] {
        &self.model[self.front + at..][..len]
    }

    /// Puts other bytes there.
    pub(crate) fn fill(&mut self, at: usize, bytes: &[u8]) {
        self.put(self.front + at, bytes);
        self.expect(at, bytes);
    }

    /// These bytes are expected there from now on.
    pub(crate) fn expect(&mut self, at: usize, bytes: &[u8]) {
        self.model[self.front + at..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Compares all of it, guards included.
    pub(crate) fn check(&self, what: &str) {
        let now = self.get(0, self.len);
        if let Some(bad) = (0..now.len()).find(|n| now[*n] != self.model[*n]) {
            let at = bad as i64 - self.front as i64;
            panic!("{what}: byte {at} of {:?} memory is {} and not {}", self.kind, now[bad], self.model[bad]);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (api, at) = (hip_emu::api(), std::ptr::with_exposed_provenance_mut(self.start));
        let _ = match self.kind {
            // SAFETY: allocated so, and used no more.
            Kind::Device | Kind::Pool | Kind::Managed => unsafe { (api.hipFree)(at) },
            // SAFETY: as above.
            Kind::Pinned => unsafe { (api.hipHostFree)(at) },
            Kind::Mapped => unmap(self.start, self.len),
            Kind::Imported => {
                close(self.start);
                // SAFETY: allocated so, and used no more.
                unsafe { (api.hipFree)(std::ptr::without_provenance_mut(self.original)) }
            }
            Kind::Shared => {
                // SAFETY: mapped so, and used no more.
                unsafe { libc::munmap(at, self.len) };
                HipError::SUCCESS
            }
            Kind::Plain | Kind::Odd => HipError::SUCCESS,
        };
    }
}

/// Another address of an allocation, as another process would get it.
pub(crate) fn import(original: usize) -> usize {
    let (mut handle, mut at) = (IpcMemHandle { reserved: [0; 64] }, null_mut());
    // SAFETY: `handle` is writable.
    ok(unsafe { hipIpcGetMemHandle(&raw mut handle, std::ptr::without_provenance_mut(original)) });
    // SAFETY: `at` is writable.
    ok(unsafe { hipIpcOpenMemHandle(&raw mut at, handle, 0) });
    at.expose_provenance()
}

/// Undoes [`import`].
pub(crate) fn close(at: usize) {
    // SAFETY: nobody uses it any more.
    ok(unsafe { hipIpcCloseMemHandle(std::ptr::with_exposed_provenance_mut(at)) });
}

/// Maps memory of the first GPU in pieces of [`GRANULARITY`] side by side.
pub(crate) fn map(len: usize) -> usize {
    let location = MemLocation { kind: MEM_LOCATION_DEVICE, id: 0 };
    let prop = MemAllocationProp {
        kind: MEM_ALLOCATION_PINNED,
        handle_types: MEM_HANDLE_NONE,
        location,
        win32_handle_meta_data: null_mut(),
        flags: MemAllocationFlags { compression_type: 0, gpu_direct_rdma_capable: 0, usage: 0 },
    };
    let mut at = null_mut();
    // SAFETY: `at` is writable.
    ok(unsafe { hipMemAddressReserve(&raw mut at, len, 0, null_mut(), 0) });
    for offset in (0..len).step_by(GRANULARITY) {
        let mut handle = null_mut();
        // SAFETY: both are valid for the call.
        ok(unsafe { hipMemCreate(&raw mut handle, GRANULARITY, &raw const prop, 0) });
        // SAFETY: the addresses were just reserved.
        ok(unsafe { hipMemMap(at.wrapping_byte_add(offset), GRANULARITY, 0, handle, 0) });
        // SAFETY: the handle was just made.
        ok(unsafe { hipMemRelease(handle) });
    }
    let desc = MemAccessDesc { location, flags: MEM_ACCESS_READ_WRITE };
    // SAFETY: all of it was just mapped.
    ok(unsafe { hipMemSetAccess(at, len, &raw const desc, 1) });
    at.expose_provenance()
}

/// Undoes [`map`].
pub(crate) fn unmap(at: usize, len: usize) -> HipError {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: nobody uses it any more.
    ok(unsafe { hipMemUnmap(at, len) });
    // SAFETY: as above.
    unsafe { hipMemAddressFree(at, len) }
}
