//! Reading an object: ranges asked for side by side, and ahead of whoever reads in order. It writes nothing.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::{Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore as _};

use crate::error::{Error, Result, is_transient};
use crate::objects::Shared;
use crate::place::Place;
use crate::wait::wait;

/// How often a range is asked for from where it broke off, beyond the retries of each request.
const ATTEMPTS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    source: Arc<Source>,
    ahead: Mutex<Ahead>,
}

/// The object, as it was when it was opened.
#[derive(Debug)]
struct Source {
    place: Place,
    size: u64,
    /// What names this content, if the store has such names.
    etag: Option<String>,
}

/// What is read before it is asked for.
#[derive(Debug, Default)]
struct Ahead {
    /// Where the next read begins if they come in order.
    expected: u64,
    /// How many reads in a row did.
    in_order: u32,
    /// How many pieces are to be ahead; it grows while they are used.
    depth: usize,
    /// Without a gap, in order.
    pieces: VecDeque<Arc<Piece>>,
}

#[derive(Debug)]
struct Piece {
    range: Range<u64>,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug)]
enum State {
    Coming,
    Here(Vec<u8>),
    /// Whoever wants it asks again, and learns why.
    Failed,
}

impl Piece {
    fn settle(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.settled.notify_all();
    }

    /// Copies from it what belongs at `offset`, once it is there. False: it will not be.
    fn copy(&self, into: &mut [u8], offset: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let coming = |state: &mut State| matches!(state, State::Coming);
        let state = self.settled.wait_while(state, coming).unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(offset - self.range.start).unwrap_or(usize::MAX);
        let State::Here(bytes) = &*state else { return false };
        let Some(bytes) = bytes.get(at..at.saturating_add(into.len())) else { return false };
        into.copy_from_slice(bytes);
        true
    }
}

impl Reader {
    pub(crate) fn new(shared: &Arc<Shared>, place: Place, meta: ObjectMeta) -> Reader {
        // A weak one names what is equivalent, not what is equal, and may not be asked for.
        let etag = meta.e_tag.filter(|etag| !etag.starts_with("W/"));
        let source = Arc::new(Source { place, size: meta.size, etag });
        Reader { shared: Arc::clone(shared), source, ahead: Mutex::default() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.source.place.url
    }

    pub(crate) fn size(&self) -> u64 {
        self.source.size
    }

    /// Reads at an offset: fewer bytes where a piece ends that was read ahead; 0 at the end of the object only.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let rest = self.source.size.saturating_sub(offset);
        let len = into.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(0);
        }
        let (piece, len) = self.look(offset, len);
        match piece {
            Some(piece) if piece.copy(&mut into[..len], offset) => Ok(len),
            _ => self.directly(&mut into[..len], offset),
        }
    }

    /// The piece that has the bytes at `offset` and how many of them; begins to read ahead of a reader in order.
    fn look(&self, offset: u64, len: usize) -> (Option<Arc<Piece>>, usize) {
        let most = self.shared.options.parallel;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.in_order = if offset == ahead.expected { ahead.in_order.saturating_add(1) } else { 0 };
        let find = |ahead: &Ahead| ahead.pieces.iter().find(|piece| piece.range.contains(&offset)).cloned();
        let mut found = find(&ahead);
        // Two in a row are a habit.
        if found.is_some() || ahead.in_order >= 2 {
            if found.is_none() {
                ahead.pieces.clear();
                ahead.depth = 1;
            }
            // One piece behind is kept for threads that share a transfer and are late.
            while ahead.pieces.len() > 1 && ahead.pieces[1].range.end <= offset {
                ahead.pieces.pop_front();
            }
            let mut next = ahead.pieces.back().map_or(offset, |piece| piece.range.end);
            let before = ahead.pieces.len();
            while next < self.source.size
                && ahead.pieces.iter().filter(|piece| piece.range.end > offset).count() < ahead.depth
            {
                let end = self.source.size.min(next + self.shared.options.part_len as u64);
                ahead.pieces.push_back(self.begin(next..end));
                next = end;
            }
            if ahead.pieces.len() > before {
                ahead.depth = (ahead.depth * 2).min(most);
            }
            found = found.or_else(|| find(&ahead));
        }
        let within = |piece: &Piece| usize::try_from(piece.range.end - offset).unwrap_or(usize::MAX);
        let len = found.as_deref().map_or(len, |piece| len.min(within(piece)));
        ahead.expected = offset + len as u64;
        (found, len)
    }

    fn begin(&self, range: Range<u64>) -> Arc<Piece> {
        let len = usize::try_from(range.end - range.start).unwrap_or(0);
        let piece = Arc::new(Piece {
            range: range.clone(),
            state: Mutex::new(State::Coming),
            settled: Condvar::new(),
        });
        let (source, theirs) = (Arc::clone(&self.source), Arc::clone(&piece));
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len).is_err() {
            piece.settle(State::Failed);
            return piece;
        }
        bytes.resize(len, 0);
        let first_wait = self.shared.options.first_wait;
        // Without a sound if it is never wanted: it ends when it is there.
        drop(self.shared.handle.spawn(async move {
            let fetched = source.fetch(&mut bytes, range.start, first_wait).await;
            theirs.settle(if fetched.is_ok() { State::Here(bytes) } else { State::Failed });
        }));
        piece
    }

    /// Ranges side by side, right into the caller's memory. An error after some bytes is the next call's.
    fn directly(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        const LEAST: usize = 256 << 10;
        let options = &self.shared.options;
        let even = into.len().div_ceil(options.parallel).max(LEAST).min(options.part_len);
        let (source, first_wait) = (&self.source, options.first_wait);
        let fetches = into.chunks_mut(even).enumerate().map(|(index, chunk)| async move {
            let from = offset + (index * even) as u64;
            source.fetch(chunk, from, first_wait).await.map(|()| chunk.len())
        });
        let ranges = futures_util::stream::iter(fetches).buffered(options.parallel);
        wait(&self.shared.handle, async {
            let mut ranges = std::pin::pin!(ranges);
            let mut done = 0;
            while let Some(fetched) = ranges.next().await {
                match fetched {
                    Ok(len) => done += len,
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(Error::store(&source.place.url, error)),
                }
            }
            Ok(done)
        })
    }
}

impl Source {
    /// Fills `into` from `from` on.
    async fn fetch(&self, into: &mut [u8], from: u64, first_wait: Duration) -> object_store::Result<()> {
        let (mut done, mut failed) = (0, 0);
        loop {
            let before = done;
            let error = match self.some(into, &mut done, from).await {
                Ok(()) if done == into.len() => return Ok(()),
                Ok(()) => broken("the answer was shorter than the range"),
                Err(error) => error,
            };
            failed = if done > before { 1 } else { failed + 1 };
            if failed >= ATTEMPTS || !is_transient(&error) {
                return Err(error);
            }
            tracing::debug!(object = self.place.url, error = %error, "a range is asked for again");
            tokio::time::sleep(first_wait * failed).await;
        }
    }

    /// One request for what is missing. Bytes that came before an error count.
    async fn some(&self, into: &mut [u8], done: &mut usize, from: u64) -> object_store::Result<()> {
        let range = from + *done as u64..from + into.len() as u64;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.etag.clone(),
            ..GetOptions::default()
        };
        let answer = self.place.store.get_opts(&self.place.path, options).await?;
        if answer.meta.size != self.size {
            let source = format!("it has {} bytes, and had {}", answer.meta.size, self.size).into();
            return Err(StoreError::Precondition { path: self.place.path.to_string(), source });
        }
        let mut stream = answer.into_stream();
        while let Some(bytes) = stream.next().await {
            let bytes = bytes?;
            let Some(place) = into.get_mut(*done..*done + bytes.len()) else {
                return Err(broken("the answer was longer than the range"));
            };
            place.copy_from_slice(&bytes);
            *done += bytes.len();
        }
        Ok(())
    }
}

fn broken(why: &str) -> StoreError {
    StoreError::Generic { store: "object", source: why.into() }
}
