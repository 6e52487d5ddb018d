//! A checked request that owns what it needs, so that it can leave the thread that made it. It checks nothing and moves
//! no byte.

use std::any::Any;
use std::sync::Arc;

use crate::buffer::BufferRecord;
use crate::error::Result;
use crate::file::FileRecord;
use crate::op::Op;
use crate::ticket::{Ending, Ticket};
use crate::transfer::{Cache, Transfer};
use crate::usage::Hold;

/// What requests work on: in use for as long as one of them exists. Requests that follow each other share it, for each count
/// that two threads write costs both of them a tenth of a microsecond.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The driver, which is none of this module's business but must be there.
    pub(crate) driver: Arc<dyn Any + Send + Sync>,
    pub(crate) file: Hold<FileRecord>,
    pub(crate) buffer: Hold<BufferRecord>,
    /// Whether the file's storage is near: nothing but a broken device keeps a read waiting.
    pub(crate) local: bool,
}

/// A checked request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) ends: Arc<Ends>,
    /// Where in the buffer; checked to lie inside.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) file_offset: u64,
}

/// What requests have in common that go the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    op: Op,
    /// The records, by their addresses.
    file: usize,
    buffer: usize,
    len: usize,
    /// How the places in the file and in the memory are aligned.
    within: [usize; 2],
}

/// What places are aligned to at most, but for files of large blocks.
const ALIGN: usize = 4096;

/// A request to be carried out later, and whom to tell.
#[derive(Debug)]
pub(crate) struct Queued {
    request: Request,
    /// When it was handed in, by the clock of the statistics.
    pub(crate) since: u64,
    /// When a queue was given it, if that time is taken.
    pub(crate) began: Option<u64>,
    /// Whether an engine's queue had it and could not carry it.
    pub(crate) plain: bool,
    /// Last, so that a lost piece lets go of file and memory before it tells.
    ticket: Ticket,
}

impl Queued {
    pub(crate) fn new(request: Request, ticket: Ticket, since: u64) -> Queued {
        Queued { request, since, began: None, plain: false, ticket }
    }

    pub(crate) fn len(&self) -> usize {
        self.request.len
    }

    pub(crate) fn tag(&self) -> u64 {
        self.ticket.tag()
    }

    /// Whether its file's storage is near.
    pub(crate) fn is_local(&self) -> bool {
        self.request.ends.local
    }

    pub(crate) fn file(&self) -> &FileRecord {
        &self.request.ends.file
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.request.ends.driver
    }

    /// Its direction.
    pub(crate) fn op(&self) -> Op {
        self.request.op
    }

    /// Whether its [`Kind`] says how its places are aligned for whatever wants them to be.
    pub(crate) fn is_fine(&self) -> bool {
        let align = self.request.ends.file.direct_align();
        align.is_none_or(|align| align.of_offsets(self.request.op).max(align.mem) as usize <= ALIGN)
    }

    /// All that its way depends on, but for what is in the page cache; if it [is fine](Queued::is_fine).
    pub(crate) fn kind(&self) -> Kind {
        let Request { op, ends, offset, len, file_offset } = &self.request;
        let Ends { file, buffer, .. } = &**ends;
        Kind {
            op: *op,
            file: std::ptr::from_ref::<FileRecord>(file).addr(),
            buffer: std::ptr::from_ref::<BufferRecord>(buffer).addr(),
            len: *len,
            within: [*file_offset as usize % ALIGN, offset % ALIGN],
        }
    }

    /// The transfer itself; `None` only for a range that was never checked.
    pub(crate) fn transfer(&self) -> Option<Transfer<'_>> {
        let Request { op, ends, offset, len, file_offset } = &self.request;
        let span = ends.buffer.span(*offset, *len)?;
        Some(Transfer { watch: Some(&self.ticket), ..Transfer::new(*op, &ends.file, span, *file_offset) })
    }

    /// Tells that an engine was given it.
    pub(crate) fn reached(&self, engine: u8) {
        self.ticket.reached(engine);
    }

    /// Lets go of file and memory, then tells.
    pub(crate) fn tell(self, ending: Ending) {
        self.let_go().0.complete(ending);
    }

    /// Lets go of file and memory. The ticket is still to tell; with it comes the length.
    pub(crate) fn let_go(self) -> (Ticket, usize) {
        let Queued { request, ticket, .. } = self;
        (ticket, request.len)
    }

    /// As [`Queued::tell`], for one that ran.
    pub(crate) fn done(self, result: Result<usize>) {
        self.tell(Ending::Done(result));
    }
}

/// Hands out work to whoever carries it, and takes it back.
pub(crate) trait Source {
    /// The next piece, if there is one now.
    fn next(&mut self) -> Option<(Queued, Cache)>;

    /// A piece that was moved wholly.
    fn moved(&mut self, piece: Queued);

    /// Those that were moved may be told of together: more is not to be had at once.
    fn landed(&mut self) {}

    /// Who asks is about to wait for storage, perhaps for long, and has no room meanwhile for the piece that it was given last.
    fn waits(&mut self, last: Option<Queued>);

    /// A piece that was not, for whatever reason: it is to be carried out in the ordinary way. What part of it moved
    /// does no harm.
    fn again(&mut self, piece: Queued);
}
