//! The verbs of RDMA devices, by libibverbs: as much as registers memory and names a device. It opens the library and calls
//! nothing in it.
//!
//! Prototypes and layouts are those of `infiniband/verbs.h`, whose ABI has been stable since rdma-core 34 (`ibv_reg_dmabuf_mr`).

use core::ffi::{c_char, c_int, c_void};

use crate::library::Library;
use crate::table::function_table;

/// Opaque types.
macro_rules! opaque {
    ($($name:ident $c:literal),*) => { $(
        #[doc = concat!("`struct ", $c, "`: opaque.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _private: [u8; 0],
        }
    )* };
}

opaque! { Device "ibv_device", Context "ibv_context", Domain "ibv_pd" }

/// `struct ibv_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// The device it was registered with.
    pub context: *mut Context,
    /// The protection domain it is in.
    pub pd: *mut Domain,
    /// Where it begins.
    pub addr: *mut c_void,
    /// Its bytes.
    pub length: usize,
    /// The kernel's number.
    pub handle: u32,
    /// For the device's own work requests.
    pub lkey: u32,
    /// For work requests of others.
    pub rkey: u32,
}

/// `union ibv_gid`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// In network order.
    pub raw: [u8; 16],
}

/// `struct ibv_gid_entry`: an entry of a port's table of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Which entry.
    pub gid_index: u32,
    /// Of which port.
    pub port_num: u32,
    /// `enum ibv_gid_type`.
    pub gid_type: u32,
    /// The network interface it belongs to; 0 for none.
    pub ndev_ifindex: u32,
}

// The union also has two 64-bit words.
const _: () = assert!(size_of::<Gid>() == 16 && size_of::<Region>() == 48 && size_of::<GidEntry>() == 32);

/// `IBV_GID_TYPE_IB`.
pub const GID_TYPE_IB: u32 = 0;
/// `IBV_GID_TYPE_ROCE_V1`.
pub const GID_TYPE_ROCE_V1: u32 = 1;
/// `IBV_GID_TYPE_ROCE_V2`.
pub const GID_TYPE_ROCE_V2: u32 = 2;

/// `IBV_ACCESS_LOCAL_WRITE`.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_WRITE`.
pub const ACCESS_REMOTE_WRITE: c_int = 2;
/// `IBV_ACCESS_REMOTE_READ`.
pub const ACCESS_REMOTE_READ: c_int = 4;
/// `IBV_ACCESS_RELAXED_ORDERING`: devices that do not know it leave it aside.
pub const ACCESS_RELAXED_ORDERING: c_int = 1 << 20;

function_table! {
    /// The functions that are used.
    pub struct VerbsApi;
    required {
        fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device;
        fn ibv_free_device_list(list: *mut *mut Device) -> ();
        fn ibv_get_device_name(device: *mut Device) -> *const c_char;
        fn ibv_open_device(device: *mut Device) -> *mut Context;
        fn ibv_close_device(context: *mut Context) -> c_int;
        fn ibv_query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut Gid) -> c_int;
        fn ibv_alloc_pd(context: *mut Context) -> *mut Domain;
        fn ibv_dealloc_pd(pd: *mut Domain) -> c_int;
        fn ibv_reg_dmabuf_mr(
            pd: *mut Domain, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int,
        ) -> *mut Region;
        fn ibv_dereg_mr(region: *mut Region) -> c_int;
    }
    optional {
        /// What `ibv_query_gid_ex` of the header calls, of rdma-core 32 and newer; the last argument is the entry's size.
        fn _ibv_query_gid_ex(
            context: *mut Context, port: u32, index: u32, entry: *mut GidEntry, flags: u32, size: usize,
        ) -> c_int;
    }
}

/// The functions of libibverbs, the process's own or the installed one.
///
/// # Errors
/// It is not there, or too old to register memory of other devices.
pub fn load() -> Result<VerbsApi, String> {
    const NAME: &core::ffi::CStr = c"libibverbs.so.1";
    let library = match Library::already_loaded(NAME) {
        Some(library) => library,
        None => Library::open(NAME)?,
    };
    // SAFETY: the library of this name has these prototypes for as long as its number stays 1, and is never closed.
    unsafe { VerbsApi::from_resolver(|name| library.symbol(name)) }
        .map_err(|missing| format!("libibverbs.so.1 has no {missing}; rdma-core 34 or newer has"))
}
