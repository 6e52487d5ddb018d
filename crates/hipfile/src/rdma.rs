//! RDMA devices of this machine, GPU memory registered with them, and its description for file systems that write into it and
//! read from it. It moves no byte, and knows no file.

use std::collections::HashMap;
use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

use gpu_sys::verbs::{self, VerbsApi};

use crate::buffer::{Place, Span};
use crate::error::{Error, Result};
use crate::log;
use crate::op::Op;
use crate::sync::{Mutex, PoisonError};
use crate::user_fs::RemoteMemory;

/// The version of the description (docs/rdma.md).
pub(crate) const VERSION: i32 = 1;

/// What is exported is whole pages.
const PAGE: usize = 4096;
/// Ports that are looked at, and entries of each one's table of addresses.
const PORTS: u8 = 4;
const ENTRIES: i32 = 256;

/// The RDMA devices, looked for when they are first wanted.
#[derive(Debug, Default)]
pub(crate) struct Rdma {
    verbs: OnceLock<Option<VerbsApi>>,
    /// By the address that was asked for; `None`: no device here has it.
    nics: Mutex<HashMap<IpAddr, Option<Arc<Nic>>>>,
}

/// One port of an RDMA device, open until the driver is gone.
#[derive(Debug)]
pub(crate) struct Nic {
    verbs: VerbsApi,
    name: String,
    port: u8,
    gid: [u8; 16],
    context: *mut verbs::Context,
    /// The protection domain.
    pd: *mut verbs::Domain,
}

impl Drop for Nic {
    fn drop(&mut self) {
        // SAFETY: no registration is left: each holds this. A file system's own queue pairs make it fail, and all stays.
        if unsafe { (self.verbs.ibv_dealloc_pd)(self.pd) } == 0 {
            // SAFETY: nothing of the device is used any more.
            unsafe { (self.verbs.ibv_close_device)(self.context) };
        }
    }
}

// SAFETY: libibverbs may be called from any thread, for the same objects too; the domain is given back by the last owner.
unsafe impl Send for Nic {}
// SAFETY: as for Send.
unsafe impl Sync for Nic {}

/// The address as a table of an RDMA device has it.
fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Rdma {
    /// The device that has this address.
    pub(crate) fn nic(&self, address: IpAddr) -> Option<Arc<Nic>> {
        let verbs = (*self.verbs.get_or_init(load))?;
        let mut nics = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
        nics.entry(address).or_insert_with(|| find(&verbs, gid_of(address)).map(Arc::new)).clone()
    }
}

fn load() -> Option<VerbsApi> {
    match verbs::load() {
        Ok(verbs) => Some(verbs),
        Err(why) => {
            log::event!(INFO, "no RDMA", why);
            None
        }
    }
}

fn find(verbs: &VerbsApi, wanted: [u8; 16]) -> Option<Nic> {
    let mut count = 0;
    // SAFETY: `count` is writable.
    let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return None;
    }
    let mut found = None;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has that many entries.
        let entry = unsafe { list.add(at) };
        // SAFETY: as above.
        let device = unsafe { entry.read() };
        found = open(verbs, device, wanted);
        if found.is_some() {
            break;
        }
    }
    // SAFETY: the list is not used any more; an open device does not need it.
    unsafe { (verbs.ibv_free_device_list)(list) };
    found
}

/// The port of a device that has the address.
fn open(verbs: &VerbsApi, device: *mut verbs::Device, wanted: [u8; 16]) -> Option<Nic> {
    // SAFETY: an entry of the list.
    let name = unsafe { (verbs.ibv_get_device_name)(device) };
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so it is a string; copied at once.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    // SAFETY: an entry of the list.
    let context = unsafe { (verbs.ibv_open_device)(device) };
    if context.is_null() {
        return None;
    }
    let has = |port: u8| {
        let entry = |at: i32| {
            let mut gid = verbs::Gid { raw: [0; 16] };
            // SAFETY: the context is open, `gid` is writable.
            let code = unsafe { (verbs.ibv_query_gid)(context, port, at, &raw mut gid) };
            (code == 0).then_some(gid.raw)
        };
        // A table ends where it cannot be asked any more.
        (0..ENTRIES).map_while(entry).any(|gid| gid == wanted)
    };
    if let Some(port) = (1..=PORTS).find(|port| has(*port)) {
        // SAFETY: the context is open, and stays so.
        let pd = unsafe { (verbs.ibv_alloc_pd)(context) };
        if !pd.is_null() {
            return Some(Nic { verbs: *verbs, name, port, gid: wanted, context, pd });
        }
    }
    // SAFETY: the context is not used any more.
    unsafe { (verbs.ibv_close_device)(context) };
    None
}

/// Memory that a device may reach until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    nic: Arc<Nic>,
    region: *mut verbs::Region,
    pub(crate) memory: RemoteMemory,
}

impl Nic {
    /// Registers memory of a GPU with the device. `None` where its runtime exports none.
    ///
    /// # Errors
    /// The runtime's, or the errno that the device's driver gives: often that its window is too small.
    pub(crate) fn register(self: &Arc<Self>, op: Op, span: &Span<'_>) -> Result<Option<Registered>> {
        let Place::Device { device, .. } = span.place() else { return Ok(None) };
        // Whole pages are exported, whatever part of them is wanted.
        let start = span.start() / PAGE * PAGE;
        let end = (span.start() + span.len()).next_multiple_of(PAGE);
        let Some(fd) = device.export(span.place().gpu_or_first(), start, end - start)? else {
            return Ok(None);
        };
        let access = match op {
            Op::Read => verbs::ACCESS_LOCAL_WRITE | verbs::ACCESS_REMOTE_WRITE,
            Op::Write => verbs::ACCESS_REMOTE_READ,
        };
        let (offset, iova) = ((span.start() - start) as u64, span.start() as u64);
        crate::sys::clear_errno();
        // SAFETY: the domain is open; the descriptor is of memory that the registration keeps.
        let region = unsafe {
            (self.verbs.ibv_reg_dmabuf_mr)(self.pd, offset, span.len(), iova, fd.as_raw_fd(), access)
        };
        if region.is_null() {
            let errno = std::io::Error::last_os_error().raw_os_error().filter(|errno| *errno != 0);
            let why = format!("{} could not register {} bytes of GPU memory", self.name, span.len());
            return Err(Error::os_because(op.name(), errno.unwrap_or(libc::EIO), why));
        }
        // SAFETY: a region that was just registered.
        let rkey = unsafe { (*region).rkey };
        let description = self.describe(span, rkey);
        let memory = RemoteMemory { version: VERSION, description, address: span.start() };
        Ok(Some(Registered { nic: Arc::clone(self), region, memory }))
    }

    fn describe(&self, span: &Span<'_>, rkey: u32) -> String {
        let gid: String = self.gid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "hipfile-rdma/{VERSION} device={} port={} gid={gid} pd={:#x} addr={:#x} len={} rkey={rkey:#x}",
            self.name,
            self.port,
            self.pd.addr(),
            span.start(),
            span.len(),
        )
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once, and nobody was told of it who still uses it: the call it was made for is over.
        unsafe { (self.nic.verbs.ibv_dereg_mr)(self.region) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_as_devices_list_them() {
        let v4 = gid_of("10.1.2.3".parse().unwrap());
        assert_eq!(v4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        let v6 = gid_of("fe80::1".parse().unwrap());
        assert_eq!((v6[0], v6[1], v6[15]), (0xfe, 0x80, 1));
    }
}
