//! Files to and from CUDA's memory past the host, by NVIDIA's libcufile where GPUDirect Storage works on this machine; never by its
//! compatibility mode, which stages as we do. Its numbers stop here.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use gpu_sys::cufile::{self, CufileApi, CufileDescr, CufileError, CufileHandle, CufileProps};

use super::Cuda;
use crate::buffer::{Place, Span};
use crate::config::Order;
use crate::device::DirectFiles;
use crate::error::{Error, Result};
use crate::log;
use crate::op::Op;
use crate::platform;
use crate::reason::Reason;
use crate::storage::Roots;
use crate::sys;

fn start(api: CufileApi, fresh: bool, by_p2pdma: bool) -> Result<CufileApi, String> {
    // How it is set up is for who has loaded it; what a library without this function is told, its configuration file says.
    if let (true, Some(set)) = (fresh, api.cuFileSetParameterBool) {
        let p2pdma = by_p2pdma.then_some((cufile::PARAM_USE_PCIP2PDMA, true));
        let compat = [(cufile::PARAM_ALLOW_COMPAT, false), (cufile::PARAM_FORCE_COMPAT, false)];
        for (parameter, value) in compat.into_iter().chain(p2pdma) {
            // SAFETY: a plain call, before the driver is opened. What it refuses shows in the properties.
            let _ = unsafe { set(parameter, value) };
        }
    }
    // SAFETY: a plain call; who opens it again is counted.
    said("cuFileDriverOpen", unsafe { (api.cuFileDriverOpen)() })?;
    let mut props = CufileProps::default();
    // SAFETY: `props` is writable, and has room for more than the library has.
    said("cuFileDriverGetProperties", unsafe { (api.cuFileDriverGetProperties)(&raw mut props) })?;
    if props.control_flags & cufile::ALLOWS_COMPAT != 0 {
        return Err(
            "its compatibility mode is allowed: set properties.allow_compat_mode to false in cufile.json"
                .to_owned(),
        );
    }
    if props.status_flags == 0 {
        return Err("libcufile reaches no kind of storage".to_owned());
    }
    Ok(api)
}

fn absent(why: String) -> Reason {
    log::event!(INFO, "libcufile does not serve", why);
    Reason::NoGds
}

fn said(what: &str, error: CufileError) -> Result<(), String> {
    match error {
        CufileError { err: 0, .. } => Ok(()),
        CufileError { err, cu_err } => Err(format!("{what} answers {err} (CUDA: {cu_err})")),
    }
}

fn number(handle: usize) -> CufileHandle {
    std::ptr::with_exposed_provenance_mut(handle)
}

impl Cuda {
    /// Asked before anything is loaded: the library starts threads, and most machines have no use for it.
    fn by_p2pdma(&self) -> Result<bool, Reason> {
        *self.files_by_p2pdma.get_or_init(|| {
            let found = match self.emulated {
                true => cufile::stand_in().map(|_| false),
                false => platform::gpudirect_storage(&Roots::real(), self.use_p2p),
            };
            found.map_err(absent)
        })
    }

    fn opened(&self) -> Result<&CufileApi, Reason> {
        let open = |by_p2pdma| {
            let (api, fresh) = if self.emulated { (cufile::stand_in()?, false) } else { cufile::load()? };
            start(api, fresh, by_p2pdma)
        };
        let opened = self.files.get_or_init(|| self.by_p2pdma().and_then(|by| open(by).map_err(absent)));
        opened.as_ref().map_err(|why| *why)
    }

    /// As blocking copies are ordered: the library knows nothing of what is queued.
    fn wait_before(&self, op: &'static str) -> Result<()> {
        match self.order {
            Order::Off => Ok(()),
            // SAFETY: a plain call.
            Order::Device => self.call(op, unsafe { (self.api.cuCtxSynchronize)() }),
            Order::Stream if self.default_stream_usable() => {
                // SAFETY: the legacy default stream is always there.
                self.call(op, unsafe { (self.api.cuStreamSynchronize)(std::ptr::null_mut()) })
            }
            Order::Stream => Ok(()),
        }
    }

    fn carry(&self, op: Op, known: usize, span: &Span<'_>, file_offset: u64) -> Result<usize> {
        let refused = |why: String| Error::os_because(op.name(), libc::EOPNOTSUPP, why);
        let api = self.opened().map_err(|reason| refused(reason.to_string()))?;
        let Place::Device { ordinal, .. } = span.place() else {
            return Err(refused(Reason::NotDeviceMemory.to_string()));
        };
        let _on = self.on(op.name(), *ordinal)?;
        let _relaxed = self.relaxed();
        self.wait_before(op.name())?;
        let (at, len, offset) =
            (std::ptr::with_exposed_provenance_mut(span.start()), span.len(), file_offset as i64);
        let moved = match op {
            // SAFETY: the handle is one of `know` that was not forgotten, the span is proven memory of this GPU.
            Op::Read => unsafe { (api.cuFileRead)(number(known), at, len, offset, 0) },
            // SAFETY: as above.
            Op::Write => unsafe { (api.cuFileWrite)(number(known), at, len, offset, 0) },
        };
        match moved {
            0.. if moved as usize <= len => Ok(moved as usize),
            -1 => Err(Error::os(
                op.name(),
                Some(sys::last_errno()).filter(|errno| *errno > 0).unwrap_or(libc::EIO),
            )),
            code => Err(refused(format!("libcufile answers {code}"))),
        }
    }
}

impl DirectFiles for Cuda {
    fn could(&self) -> Result<(), Reason> {
        self.by_p2pdma().map(drop)
    }

    fn ready(&self) -> Result<(), Reason> {
        self.opened().map(drop)
    }

    fn know(&self, ordinal: u32, fd: BorrowedFd<'_>) -> Result<usize> {
        const OP: &str = "make a file known to libcufile";
        let refused = |why: String| Error::os_because(OP, libc::EOPNOTSUPP, why);
        let api = self.opened().map_err(|reason| refused(reason.to_string()))?;
        let _on = self.on(OP, ordinal)?;
        let _relaxed = self.relaxed();
        let (mut handle, mut descr) = (std::ptr::null_mut(), CufileDescr::of(fd.as_raw_fd()));
        // SAFETY: both are writable; the descriptor stays open until the handle is forgotten, or is not used again.
        let code = unsafe { (api.cuFileHandleRegister)(&raw mut handle, &raw mut descr) };
        said("cuFileHandleRegister", code).map_err(refused)?;
        Ok(handle.expose_provenance())
    }

    fn forget(&self, known: usize) {
        let (Ok(api), Ok(_on)) = (self.opened(), self.on_any()) else { return };
        let _relaxed = self.relaxed();
        // SAFETY: the handle is one of `know`, given back once.
        unsafe { (api.cuFileHandleDeregister)(number(known)) };
    }

    fn read(&self, known: usize, to: &Span<'_>, file_offset: u64) -> Result<usize> {
        self.carry(Op::Read, known, to, file_offset)
    }

    fn write(&self, known: usize, from: &Span<'_>, file_offset: u64) -> Result<usize> {
        self.carry(Op::Write, known, from, file_offset)
    }
}
