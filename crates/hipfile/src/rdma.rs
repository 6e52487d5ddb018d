//! RDMA devices of this machine, GPU memory registered with them, and its description for file systems that write into it and
//! read from it. Registered memory stays registered with a device until its registration here ends. It moves no byte, and
//! knows no file.

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
/// The flag of a registration (`HIPFILE_RDMA_RELAXED_ORDERING`) that lets a device write in another order.
const RELAXED_ORDERING: i32 = 2;

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
    entry: Entry,
    context: *mut verbs::Context,
    /// The protection domain.
    pd: *mut verbs::Domain,
}

/// An entry of a port's table of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    index: i32,
    /// What packets to and from it are; `None` where libibverbs does not say.
    kind: Option<u32>,
}

impl Entry {
    /// Of several entries with one address the one whose packets pass routers: RoCE v2 before what is not told, v1 last. An
    /// InfiniBand port has one kind only.
    fn rank(self) -> u8 {
        match self.kind {
            Some(verbs::GID_TYPE_ROCE_V1) => 2,
            Some(_) => 0,
            None => 1,
        }
    }

    /// The first of the best.
    fn best(entries: impl Iterator<Item = Entry>) -> Option<Entry> {
        entries.min_by_key(|entry| entry.rank())
    }

    fn kind_name(self) -> Option<&'static str> {
        match self.kind? {
            verbs::GID_TYPE_IB => Some("ib"),
            verbs::GID_TYPE_ROCE_V1 => Some("roce-v1"),
            verbs::GID_TYPE_ROCE_V2 => Some("roce-v2"),
            _ => None,
        }
    }
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
    let place = |port: u8| {
        let gid = |at: i32| {
            let mut gid = verbs::Gid { raw: [0; 16] };
            // SAFETY: the context is open, `gid` is writable.
            let code = unsafe { (verbs.ibv_query_gid)(context, port, at, &raw mut gid) };
            (code == 0).then_some((at, gid.raw))
        };
        // A table ends where it cannot be asked any more.
        let same = (0..ENTRIES).map_while(gid).filter(|(_, gid)| *gid == wanted);
        // SAFETY: the context is open.
        let kind = |(index, _)| Entry { index, kind: unsafe { kind_of(verbs, context, port, index) } };
        Some((port, Entry::best(same.map(kind))?))
    };
    if let Some((port, entry)) = (1..=PORTS).filter_map(place).min_by_key(|(_, entry)| entry.rank()) {
        // SAFETY: the context is open, and stays so.
        let pd = unsafe { (verbs.ibv_alloc_pd)(context) };
        if !pd.is_null() {
            return Some(Nic { verbs: *verbs, name, port, gid: wanted, entry, context, pd });
        }
    }
    // SAFETY: the context is not used any more.
    unsafe { (verbs.ibv_close_device)(context) };
    None
}

/// Of what kind an entry of a port's table is.
///
/// # Safety
/// The context is open.
unsafe fn kind_of(verbs: &VerbsApi, context: *mut verbs::Context, port: u8, index: i32) -> Option<u32> {
    let ask = verbs._ibv_query_gid_ex?;
    let mut entry = verbs::GidEntry {
        gid: verbs::Gid { raw: [0; 16] },
        gid_index: 0,
        port_num: 0,
        gid_type: 0,
        ndev_ifindex: 0,
    };
    let (port, index, len) = (port.into(), u32::try_from(index).ok()?, size_of::<verbs::GidEntry>());
    // SAFETY: the context is open, `entry` is writable and as long as is said.
    let code = unsafe { ask(context, port, index, &raw mut entry, 0, len) };
    (code == 0).then_some(entry.gid_type)
}

/// Memory that a device may reach until this is dropped.
#[derive(Debug)]
pub(crate) struct Region {
    nic: Arc<Nic>,
    region: *mut verbs::Region,
    rkey: u32,
}

// SAFETY: libibverbs may be called from any thread; a region is given back by its last owner.
unsafe impl Send for Region {}
// SAFETY: nothing of it changes.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once, and nobody who was told of it uses it still: the calls and the registration it was made for
        // are over.
        unsafe { (self.nic.verbs.ibv_dereg_mr)(self.region) };
    }
}

/// A range that a device reaches, for one call.
#[derive(Debug)]
pub(crate) struct Reached {
    /// Keeps it reached.
    _region: Arc<Region>,
    pub(crate) memory: RemoteMemory,
}

impl Nic {
    /// Lets the device reach memory of a GPU. All of a registered piece is made known to the device when it is first wanted, and
    /// stays so; where that does not work, and for memory that is not registered, only what is wanted is, for this call. `None`
    /// where the runtime exports none.
    ///
    /// # Errors
    /// The runtime's, or the errno that the device's driver gives: often that its window is too small.
    pub(crate) fn reach(self: &Arc<Self>, op: Op, span: &Span<'_>) -> Result<Option<Reached>> {
        const BOTH: i32 = verbs::ACCESS_LOCAL_WRITE | verbs::ACCESS_REMOTE_WRITE | verbs::ACCESS_REMOTE_READ;
        if let Some(kept) = span.kept() {
            let whole = span.whole_piece();
            let relaxed = match kept.flags() & RELAXED_ORDERING {
                0 => 0,
                _ => verbs::ACCESS_RELAXED_ORDERING,
            };
            let key = (Arc::as_ptr(self).addr(), whole.start());
            let known = kept.get(key, || match self.register(op, &whole, BOTH | relaxed) {
                Ok(region) => region.map(Arc::new),
                Err(error) => {
                    log::event!(DEBUG, "a registration is not known to an RDMA device as a whole", %error);
                    None
                }
            });
            if let Some(region) = &*known {
                return Ok(Some(self.reached(span, Arc::clone(region))));
            }
        }
        let access = match op {
            Op::Read => verbs::ACCESS_LOCAL_WRITE | verbs::ACCESS_REMOTE_WRITE,
            Op::Write => verbs::ACCESS_REMOTE_READ,
        };
        Ok(self.register(op, span, access)?.map(|region| self.reached(span, Arc::new(region))))
    }

    fn register(self: &Arc<Self>, op: Op, span: &Span<'_>, access: i32) -> Result<Option<Region>> {
        let Place::Device { device, .. } = span.place() else { return Ok(None) };
        // Whole pages are exported, whatever part of them is wanted.
        let start = span.start() / PAGE * PAGE;
        let end = (span.start() + span.len()).next_multiple_of(PAGE);
        let Some(fd) = device.export(span.place().gpu_or_first(), start, end - start)? else {
            return Ok(None);
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
        Ok(Some(Region { nic: Arc::clone(self), region, rkey }))
    }

    fn reached(&self, span: &Span<'_>, region: Arc<Region>) -> Reached {
        let gid: String = self.gid.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut description = format!(
            "hipfile-rdma/{VERSION} device={} port={} gid={gid} pd={:#x} addr={:#x} len={} rkey={:#x} gid_index={}",
            self.name,
            self.port,
            self.pd.addr(),
            span.start(),
            span.len(),
            region.rkey,
            self.entry.index,
        );
        if let Some(kind) = self.entry.kind_name() {
            description.push_str(" gid_type=");
            description.push_str(kind);
        }
        Reached {
            _region: region,
            memory: RemoteMemory { version: VERSION, description, address: span.start() },
        }
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

    #[test]
    fn of_entries_with_one_address_roce_v2_is_taken() {
        let entry = |index, kind| Entry { index, kind };
        let v1 = entry(2, Some(verbs::GID_TYPE_ROCE_V1));
        let v2 = entry(3, Some(verbs::GID_TYPE_ROCE_V2));
        let best = |entries: &[Entry]| Entry::best(entries.iter().copied());
        assert_eq!(best(&[v1, v2, entry(5, Some(verbs::GID_TYPE_ROCE_V2))]), Some(v2));
        assert_eq!(best(&[v1]), Some(v1), "better than none");
        assert_eq!(best(&[entry(0, None), entry(1, None)]), Some(entry(0, None)));
        assert_eq!(best(&[]), None);
        assert_eq!(entry(0, Some(verbs::GID_TYPE_IB)).kind_name(), Some("ib"));
        assert_eq!(entry(0, Some(99)).kind_name(), None);
    }
}
