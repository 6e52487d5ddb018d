//! The emulated machine: one for the process, made at the first call, never unmade.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use gpu_sys::hip::HipError;

use crate::arena::Arena;
use crate::capture::{Captures, Graph};
use crate::event::Event;
use crate::fault;
use crate::handles::Handles;
use crate::link::TimedLink;
use crate::lock::{Sharded, lock};
use crate::module::Module;
use crate::options::Options;
use crate::queue::{Queue, Ticket};
use crate::ranges::{Allocation, Kind, Ranges};
use crate::stream::Stream;
use crate::sys;
use crate::thread;
use crate::virtual_memory::{self, Physical, Reserved, reserved_for};

/// The whole emulation.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) devices: Vec<Device>,
    pub(crate) ranges: Sharded<Ranges>,
    /// Device addresses of all devices.
    pub(crate) span: Range<usize>,
    /// Those of them that virtual memory has.
    pub(crate) reserved: Reserved,
    pub(crate) physical: Handles<Physical>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Module>,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) captures: Captures,
    next_buffer: AtomicU32,
    /// A byte that is 1 here and, because the kernel wipes its page, 0 in a forked child.
    alive: &'static AtomicU8,
}

/// One emulated GPU.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: usize,
    pub(crate) arena: Arena,
    pub(crate) queues: Vec<Queue>,
    /// The legacy default stream.
    pub(crate) null: Arc<Stream>,
    /// Streams that the legacy default stream waits for, and that wait for it.
    pub(crate) blocking: Mutex<Vec<Weak<Stream>>>,
    /// Work submitted and not done on those, the default stream included.
    pub(crate) blocking_pending: AtomicUsize,
    pub(crate) link: Option<TimedLink>,
    /// Peers that this device was told to access.
    pub(crate) peers: Mutex<Vec<usize>>,
    next_queue: AtomicUsize,
}

static STATE: OnceLock<Option<State>> = OnceLock::new();

/// Makes the emulated machine from these options instead of the environment's.
///
/// # Errors
/// The reason, when it exists already or cannot be made.
pub fn init(options: Options) -> Result<(), String> {
    let mut outcome = Err("the emulated GPU is in use already".to_owned());
    STATE.get_or_init(|| match State::new(options) {
        Ok(state) => {
            outcome = Ok(());
            Some(state)
        }
        Err(reason) => {
            outcome = Err(reason);
            None
        }
    });
    outcome
}

/// The emulated machine, made now if need be.
///
/// # Errors
/// hipErrorNotInitialized when it cannot be made (said once on stderr), or in a child forked after it was made.
pub(crate) fn get() -> Result<&'static State, HipError> {
    let state = STATE.get_or_init(|| match Options::from_env().and_then(State::new) {
        Ok(state) => Some(state),
        Err(reason) => {
            sys::report(&reason);
            None
        }
    });
    match state {
        Some(state) if state.alive.load(Ordering::Relaxed) == 1 => Ok(state),
        _ => Err(HipError::NOT_INITIALIZED),
    }
}

/// Whether the machine was made by a process of which this one is a fork.
pub(crate) fn is_of_parent() -> bool {
    matches!(STATE.get(), Some(Some(state)) if state.alive.load(Ordering::Relaxed) != 1)
}

impl State {
    fn new(options: Options) -> Result<State, String> {
        options.check()?;
        let no_space = || "no address space for the memory of the emulated GPUs".to_owned();
        let each = Arena::span(options.memory);
        let span = if options.devices == 0 {
            0..0
        } else {
            let len = each.checked_mul(options.devices).and_then(|len| len.checked_add(virtual_memory::ZONE));
            let len = len.ok_or_else(no_space)?;
            let base = sys::map(len, sys::HUGE, libc::PROT_NONE).ok_or_else(no_space)?;
            base..base + len
        };
        let zone = span.end - span.len().min(virtual_memory::ZONE)..span.end;
        let mut devices = Vec::with_capacity(options.devices);
        for ordinal in 0..options.devices {
            let arena = Arena::new(span.start + ordinal * each, options.memory, options.integrated)
                .ok_or_else(no_space)?;
            devices.push(Device {
                ordinal,
                arena,
                queues: (0..options.queues)
                    .map(|number| Queue::new(ordinal, number, options.queue_limit))
                    .collect(),
                null: Arc::new(Stream::null(ordinal)),
                blocking: Mutex::default(),
                blocking_pending: AtomicUsize::new(0),
                link: options.link.map(TimedLink::new),
                peers: Mutex::default(),
                next_queue: AtomicUsize::new(1),
            });
        }
        for rule in &options.faults {
            fault::add(*rule);
        }
        Ok(State {
            options,
            devices,
            ranges: Sharded::default(),
            span,
            reserved: Reserved::new(zone),
            physical: Handles::default(),
            streams: Handles::default(),
            events: Handles::default(),
            modules: Handles::default(),
            functions: Handles::default(),
            graphs: Handles::default(),
            captures: Captures::default(),
            next_buffer: AtomicU32::new(1),
            alive: alive_byte().ok_or_else(no_space)?,
        })
    }

    /// The device that is current on this thread.
    ///
    /// # Errors
    /// hipErrorNoDevice when there is none at all.
    pub(crate) fn current(&'static self) -> Result<&'static Device, HipError> {
        self.devices.get(thread::with(|thread| thread.device.get())).ok_or(HipError::NO_DEVICE)
    }

    /// The device of an ordinal that came from outside.
    ///
    /// # Errors
    /// hipErrorInvalidDevice when there is no such device.
    pub(crate) fn device(&'static self, ordinal: i32) -> Result<&'static Device, HipError> {
        usize::try_from(ordinal).ok().and_then(|at| self.devices.get(at)).ok_or(HipError::INVALID_DEVICE)
    }

    /// The number of the next allocation. HIP's are 32 bits wide.
    pub(crate) fn next_buffer(&self) -> u32 {
        self.next_buffer.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the runtime claims to be at least this version.
    pub(crate) fn is_at_least(&self, major: i32, minor: i32) -> bool {
        self.options.version >= major * 10_000_000 + minor * 100_000
    }

    /// Enters an allocation into the map.
    pub(crate) fn know(&self, allocation: Allocation) {
        self.ranges.write().insert(Arc::new(allocation));
    }

    /// The allocation that holds this address.
    pub(crate) fn find(&self, address: usize) -> Option<Arc<Allocation>> {
        self.ranges.read().find(address).cloned()
    }

    /// Takes an allocation out of the map and its memory back. Work on it must be done. False: somebody else did it.
    pub(crate) fn give_back(&self, allocation: &Arc<Allocation>) -> bool {
        if !self.ranges.write().remove(allocation) {
            return false;
        }
        allocation.settle();
        match allocation.kind {
            // The memory goes with its last handle and mapping.
            Kind::Device if allocation.physical.is_some() => {}
            // The memory is the exporter's.
            Kind::Device if allocation.imported.is_some() => {
                self.reserved.give_back(allocation.base, reserved_for(allocation.len));
            }
            Kind::Device => self.devices[allocation.device].arena.free(allocation.base),
            Kind::Host { mapping, mapping_len } | Kind::Managed { mapping, mapping_len } => {
                sys::unmap(mapping, mapping_len);
            }
            Kind::Registered => {}
        }
        true
    }

    /// Waits for all work submitted to any device so far.
    pub(crate) fn drain_all(&'static self) {
        for device in &self.devices {
            device.drain();
        }
    }
}

impl Device {
    /// Waits for all work submitted to this device so far, held streams included.
    pub(crate) fn drain(&'static self) {
        let tails: Vec<Ticket> =
            self.queues.iter().filter(|queue| !queue.is_idle()).map(Queue::tail).collect();
        for ticket in tails {
            ticket.wait();
        }
    }

    /// The queue of a new stream: each in turn. The legacy default stream has the first.
    pub(crate) fn assign_queue(&self) -> usize {
        self.next_queue.fetch_add(1, Ordering::Relaxed) % self.queues.len()
    }

    /// The streams, other than the default stream, that it is ordered against and that exist or have work.
    pub(crate) fn blocking_streams(&self) -> Vec<Arc<Stream>> {
        let mut listed = lock(&self.blocking);
        let streams: Vec<_> = listed.iter().filter_map(Weak::upgrade).collect();
        if streams.len() < listed.len() {
            listed.retain(|stream| stream.strong_count() > 0);
        }
        streams
    }
}

/// A byte of 1 on a page that a forked child finds zeroed. Without such pages (before Linux 4.14) the child finds the 1 too,
/// and must not use the emulation all the same.
fn alive_byte() -> Option<&'static AtomicU8> {
    let page = sys::map(sys::PAGE, sys::PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
    sys::advise(page, sys::PAGE, libc::MADV_WIPEONFORK);
    // SAFETY: the page is mapped for the rest of the process's life and holds nothing but this byte.
    let byte = unsafe { AtomicU8::from_ptr(page as *mut u8) };
    byte.store(1, Ordering::Relaxed);
    Some(byte)
}
