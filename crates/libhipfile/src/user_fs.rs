//! A C program's own file system (`hipFileFSOps_t`) as the core wants it. How it is called is decided in the core.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use hipfile::{Op, RemoteMemory, UserFs};

use crate::abi::*;
use crate::guard;

/// The functions of one registered file.
pub(crate) struct FsOps {
    /// A copy: the caller's table may go.
    table: hipFileFSOps_t,
    /// What the functions are given: the file's handle, from before the first call.
    handle: AtomicPtr<c_void>,
    name: OnceLock<String>,
}

impl core::fmt::Debug for FsOps {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FsOps").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FsOps {
    pub(crate) fn new(table: hipFileFSOps_t) -> FsOps {
        FsOps { table, handle: AtomicPtr::new(core::ptr::null_mut()), name: OnceLock::new() }
    }

    /// The file has this handle from now on, and its file system is asked for its type.
    pub(crate) fn registered(&self, handle: hipFileHandle_t) {
        self.handle.store(handle, Ordering::Release);
        let Some(fs_type) = self.table.fs_type else { return };
        // SAFETY: the caller registered a function of this prototype, which answers NULL or a static string.
        let name = unsafe { fs_type(handle) };
        if !name.is_null() {
            // SAFETY: not NULL, so it is a string.
            let name = unsafe { CStr::from_ptr(name) };
            self.name.get_or_init(|| name.to_string_lossy().into_owned());
        }
    }
}

/// A result of the program's: a count, or why there is none.
fn result(n: isize) -> Result<usize, i32> {
    match n {
        0.. => Ok(n as usize),
        -1 => {
            let errno = guard::errno();
            Err(if errno > 0 { errno } else { libc::EIO })
        }
        // As the kernel puts errors.
        -4095..=-2 => Err(-n as i32),
        _ => Err(libc::EIO),
    }
}

impl UserFs for FsOps {
    fn name(&self) -> String {
        self.name.get().cloned().unwrap_or_else(|| "userspace".to_owned())
    }

    fn serves(&self, op: Op) -> bool {
        match op {
            Op::Read => self.table.read.is_some(),
            Op::Write => self.table.write.is_some(),
        }
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, i32> {
        let read = self.table.read.ok_or(libc::ENOSYS)?;
        let (to, len) = (into.as_mut_ptr().cast(), into.len());
        let (handle, none) = (self.handle.load(Ordering::Acquire), core::ptr::null_mut());
        guard::set_errno(0);
        // SAFETY: the caller registered a function of this prototype; the memory is valid for the call.
        result(unsafe { read(handle, to, len, offset as hoff_t, none) })
    }

    fn write(&self, from: &[u8], offset: u64) -> Result<usize, i32> {
        let write = self.table.write.ok_or(libc::ENOSYS)?;
        let (from, len) = (from.as_ptr().cast(), from.len());
        let (handle, none) = (self.handle.load(Ordering::Acquire), core::ptr::null_mut());
        guard::set_errno(0);
        // SAFETY: the caller registered a function of this prototype; the memory is valid for the call.
        result(unsafe { write(handle, from, len, offset as hoff_t, none) })
    }

    fn rdma_devices(&self) -> Vec<IpAddr> {
        let Some(list) = self.table.getRDMADeviceList else { return Vec::new() };
        let mut first = core::ptr::null_mut();
        // SAFETY: the caller registered a function of this prototype; `first` is writable.
        let count = unsafe { list(self.handle.load(Ordering::Acquire), &raw mut first) };
        let count = if first.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        let mut next: *const u8 = first.cast();
        let mut address = || {
            // SAFETY: the function said that there are so many, one behind the other, each as long as one of its family.
            let (address, len) = unsafe { address_at(next) };
            // SAFETY: as above: the end of an entry lies within the array or right behind it.
            next = unsafe { next.add(len) };
            address
        };
        (0..count).filter_map(|_| address()).collect()
    }

    fn rdma_priority(&self, address: usize, len: usize, offset: u64, device: IpAddr) -> i32 {
        let Some(priority) = self.table.getRDMADevicePriority else { return 0 };
        let (handle, buffer) =
            (self.handle.load(Ordering::Acquire), core::ptr::without_provenance_mut(address));
        // SAFETY: the caller registered a function of this prototype; the address is a name for the memory, and the device's
        // address is there for the call.
        let ask =
            |device: *mut libc::sockaddr| unsafe { priority(handle, buffer, len, offset as hoff_t, device) };
        match device {
            IpAddr::V4(address) => {
                let mut address = sockaddr_v4(address);
                ask((&raw mut address).cast())
            }
            IpAddr::V6(address) => {
                let mut address = sockaddr_v6(address);
                ask((&raw mut address).cast())
            }
        }
    }

    fn read_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        let read = self.table.read.ok_or(libc::ENOSYS)?;
        let handle = self.handle.load(Ordering::Acquire);
        let buffer = core::ptr::without_provenance_mut(memory.address);
        // SAFETY: the caller registered a function of this prototype; the description is there for the call.
        described(memory, |info| unsafe { read(handle, buffer, len, offset as hoff_t, info) })
    }

    fn write_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        let write = self.table.write.ok_or(libc::ENOSYS)?;
        let handle = self.handle.load(Ordering::Acquire);
        let buffer = core::ptr::without_provenance(memory.address);
        // SAFETY: as above.
        described(memory, |info| unsafe { write(handle, buffer, len, offset as hoff_t, info) })
    }
}

/// The address of a device in an array of them, if it is of a known family, and how long its entry is. `struct sockaddr` has room
/// for an IPv4 address only, so one of IPv6 takes as much as a `struct sockaddr_in6`.
///
/// # Safety
/// An entry begins there, as long as its family has it.
unsafe fn address_at(at: *const u8) -> (Option<IpAddr>, usize) {
    // SAFETY: every kind of entry begins with the family.
    let family = unsafe { at.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one.
            let address = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            (Some(address.sin_addr.s_addr.to_ne_bytes().into()), size_of::<libc::sockaddr_in>())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            (Some(address.sin6_addr.s6_addr.into()), size_of::<libc::sockaddr_in6>())
        }
        _ => (None, size_of::<libc::sockaddr>()),
    }
}

fn sockaddr_v4(address: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    }
}

fn sockaddr_v6(address: Ipv6Addr) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: address.octets() },
        sin6_scope_id: 0,
    }
}

/// Gives a function the description of registered memory.
fn described(
    memory: &RemoteMemory,
    call: impl FnOnce(*mut hipFileRDMAInfo_t) -> isize,
) -> Result<usize, i32> {
    let text = CString::new(memory.description.as_str()).map_err(|_| libc::EINVAL)?;
    let mut info = hipFileRDMAInfo_t {
        version: memory.version,
        desc_len: memory.description.len() as c_int,
        desc_str: text.as_ptr(),
    };
    guard::set_errno(0);
    result(call(&raw mut info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_results_are_errors() {
        let after = |errno, n| {
            guard::set_errno(errno);
            result(n)
        };
        assert_eq!(after(0, 7), Ok(7));
        assert_eq!(after(libc::ENOSPC, 0), Ok(0));
        assert_eq!(after(libc::ENOSPC, -1), Err(libc::ENOSPC));
        assert_eq!(after(0, -1), Err(libc::EIO));
        assert_eq!(after(libc::ENOSPC, -13), Err(13));
        assert_eq!(after(0, -5008), Err(libc::EIO));
        assert_eq!(after(0, isize::MIN), Err(libc::EIO));
    }
}
