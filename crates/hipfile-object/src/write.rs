//! Writing an object: parts are gathered, and sent in order and side by side as soon as they are full. It reads nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::objects::Shared;
use crate::place::Place;
use crate::wait::wait;

/// S3, and whoever follows it, takes no more.
const MOST_PARTS: u64 = 10_000;
/// What is written by one PUT where a store has no parts, and so is kept in memory.
const ONE_PUT: u64 = 256 << 20;
/// How long whoever gives up waits for the store to forget the parts.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    place: Place,
    part_len: usize,
    state: Mutex<State>,
    /// One permit for each part that may be under way.
    room: Arc<Semaphore>,
    /// The first part that was not taken.
    lost: Arc<Mutex<Option<Error>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Parts that were begun and not sent, by number.
    parts: BTreeMap<u64, Part>,
    /// The number of the first part that was not sent.
    next: u64,
    /// The byte after the last that was written.
    end: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    closed: bool,
}

#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    /// What was written of it: apart, in order.
    filled: Vec<Range<usize>>,
}

impl Part {
    fn new(len: usize) -> Option<Part> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        Some(Part { bytes, filled: Vec::new() })
    }

    fn put(&mut self, at: usize, from: &[u8]) {
        self.bytes[at..at + from.len()].copy_from_slice(from);
        let mut new = at..at + from.len();
        self.filled.retain(|old| {
            let apart = old.end < new.start || new.end < old.start;
            if !apart {
                new = new.start.min(old.start)..new.end.max(old.end);
            }
            apart
        });
        let place = self.filled.partition_point(|old| old.end < new.start);
        self.filled.insert(place, new);
    }

    fn is_full(&self) -> bool {
        matches!(&self.filled[..], [all] if all.len() == self.bytes.len())
    }
}

impl Writer {
    pub(crate) fn new(shared: &Arc<Shared>, place: Place, size: Option<u64>) -> Writer {
        let options = &shared.options;
        let least = match (place.takes_parts, size) {
            (true, Some(size)) => size.div_ceil(MOST_PARTS).next_multiple_of(1 << 20),
            (true, None) => 0,
            // All of it in the one part there is.
            (false, size) => size.unwrap_or(0).min(ONE_PUT),
        };
        let part_len = options.part_len.max(usize::try_from(least).unwrap_or(usize::MAX));
        Writer {
            shared: Arc::clone(shared),
            place,
            part_len,
            state: Mutex::default(),
            room: Arc::new(Semaphore::new(options.parallel)),
            lost: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.place.url
    }

    pub(crate) fn size(&self) -> u64 {
        self.state().end
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, errno: Errno, why: impl std::fmt::Display) -> Error {
        Error::new(&self.place.url, errno.raw_os_error(), why)
    }

    fn check(&self, state: &State) -> Result<()> {
        if let Some(error) = &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.clone());
        }
        if state.closed {
            return Err(self.error(Errno::BADF, "it is finished, or was given up"));
        }
        Ok(())
    }

    /// Takes bytes, all of them. It waits while as many parts are under way as may be.
    pub(crate) fn write(&self, mut from: &[u8], mut offset: u64) -> Result<usize> {
        let (len, part_len) = (from.len(), self.part_len as u64);
        let mut state = self.state();
        self.check(&state)?;
        while !from.is_empty() {
            let (number, at) = (offset / part_len, (offset % part_len) as usize);
            if number < state.next {
                let why =
                    format_args!("byte {offset} was sent already: objects are written from start to end");
                return Err(self.error(Errno::SPIPE, why));
            }
            if number >= state.next + 2 * self.shared.options.parallel as u64
                && !state.parts.contains_key(&number)
            {
                let why = format_args!("byte {offset} is too far beyond what is not written yet");
                return Err(self.error(Errno::NOBUFS, why));
            }
            if number >= MOST_PARTS {
                let why = format_args!("byte {offset} would be in part {number}; 10,000 are the most");
                return Err(self.error(Errno::FBIG, why));
            }
            let part = match state.parts.entry(number) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let part = Part::new(self.part_len);
                    entry.insert(part.ok_or_else(|| self.error(Errno::NOMEM, "no memory for a part"))?)
                }
            };
            let now = from.len().min(self.part_len - at);
            part.put(at, &from[..now]);
            (from, offset) = (&from[now..], offset + now as u64);
            state.end = state.end.max(offset);
            // The last part may still grow, so the first one alone is not sent: it may be all there is.
            while state.next + 1 < state.end.div_ceil(part_len)
                && state.parts.get(&state.next).is_some_and(Part::is_full)
            {
                self.send(&mut state)?;
            }
        }
        Ok(len)
    }

    pub(crate) fn write_zeros(&self, mut offset: u64, len: u64) -> Result<()> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let end = offset.saturating_add(len);
        while offset < end {
            let now = ZEROS.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            offset += self.write(&ZEROS[..now], offset)? as u64;
        }
        Ok(())
    }

    /// Hands the next part over, zeros where nothing was written, cut at the end. Waits for room.
    fn send(&self, state: &mut State) -> Result<()> {
        let url = &self.place.url;
        if !self.place.takes_parts {
            let why = format_args!(
                "it is longer than {} bytes, and a plain HTTP server takes an object in one piece only, whose size must \
                 be told beforehand and be {ONE_PUT} bytes at most",
                self.part_len
            );
            return Err(self.error(Errno::FBIG, why));
        }
        let upload = match &mut state.upload {
            Some(upload) => upload,
            none => {
                let begun = self.place.store.put_multipart(&self.place.path);
                let begun = wait(&self.shared.handle, begun).map_err(|error| Error::store(url, error))?;
                none.insert(begun)
            }
        };
        let room = wait(&self.shared.handle, Arc::clone(&self.room).acquire_owned());
        let room = room.map_err(|_| self.error(Errno::BADF, "it is finished"))?;
        let bytes = take(&mut state.parts, state.next, self.part_len, state.end)
            .ok_or_else(|| self.error(Errno::NOMEM, "no memory for a part"))?;
        let _inside = self.shared.handle.enter();
        let sent = upload.put_part(bytes);
        state.next += 1;
        let (lost, url) = (Arc::clone(&self.lost), url.clone());
        drop(self.shared.handle.spawn(async move {
            if let Err(error) = sent.await {
                lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Error::store(&url, error));
            }
            drop(room);
        }));
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<()> {
        let mut state = self.state();
        self.check(&state)?;
        let finished = self.put_together(&mut state);
        if finished.is_err() {
            self.forget(&mut state);
        }
        state.closed = true;
        finished
    }

    fn put_together(&self, state: &mut State) -> Result<()> {
        let (handle, url) = (&self.shared.handle, &self.place.url);
        let stored = |error| Error::store(url, error);
        if state.end <= self.part_len as u64 {
            let bytes = take(&mut state.parts, 0, self.part_len, state.end)
                .ok_or_else(|| self.error(Errno::NOMEM, "no memory for a part"))?;
            return wait(handle, self.place.store.put(&self.place.path, bytes)).map(drop).map_err(stored);
        }
        while state.next < state.end.div_ceil(self.part_len as u64) {
            self.send(state)?;
        }
        self.wait_for_parts();
        self.check(state)?;
        match &mut state.upload {
            Some(upload) => wait(handle, complete(&self.place, upload.as_mut(), state.end)).map_err(stored),
            None => Err(self.error(Errno::IO, "nothing was sent")),
        }
    }

    fn wait_for_parts(&self) {
        let all = u32::try_from(self.shared.options.parallel).unwrap_or(u32::MAX);
        let _ = wait(&self.shared.handle, self.room.acquire_many(all));
    }

    pub(crate) fn discard(&self) {
        let mut state = self.state();
        if !state.closed {
            state.closed = true;
            self.forget(&mut state);
        }
    }

    /// Has the store forget the parts. What it cannot be told, a rule of the bucket must.
    fn forget(&self, state: &mut State) {
        state.parts.clear();
        let Some(mut upload) = state.upload.take() else { return };
        let told = wait(&self.shared.handle, async {
            tokio::time::timeout(PATIENCE, async {
                let all = u32::try_from(self.shared.options.parallel).unwrap_or(u32::MAX);
                // A part that arrives later would stay.
                let _ = self.room.acquire_many(all).await;
                upload.abort().await
            })
            .await
        });
        match told {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(object = self.url(), error = %error, "parts may be left"),
            Err(_) => tracing::warn!(object = self.url(), "parts may be left: the store does not answer"),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Has the store put the parts together. Where the answer is lost the store may know nothing of them when it is asked again: then
/// an object of this length that was not there before is ours.
async fn complete(place: &Place, upload: &mut dyn MultipartUpload, len: u64) -> object_store::Result<()> {
    let tag = || async {
        match place.store.head(&place.path).await {
            Ok(meta) => Ok(Some((meta.size, meta.e_tag))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let before = tag().await;
    let Err(error) = upload.complete().await else { return Ok(()) };
    match (before, tag().await) {
        (Ok(before), Ok(Some((size, Some(tag)))))
            if size == len && before != Some((size, Some(tag.clone()))) =>
        {
            tracing::info!(object = place.url, error = %error, "the parts were put together all the same");
            Ok(())
        }
        _ => Err(error),
    }
}

/// The bytes of a part.
fn take(parts: &mut BTreeMap<u64, Part>, number: u64, part_len: usize, end: u64) -> Option<PutPayload> {
    let len = end.saturating_sub(number * part_len as u64).min(part_len as u64) as usize;
    let mut bytes = match parts.remove(&number) {
        Some(part) => part.bytes,
        None => Part::new(len)?.bytes,
    };
    bytes.truncate(len);
    Some(bytes.into())
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some have one")]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_full_when_every_byte_was_written() {
        let mut part = Part::new(10).unwrap();
        for (at, len, filled) in [
            (2, 3, vec![2..5]),
            (7, 1, vec![2..5, 7..8]),
            (0, 1, vec![0..1, 2..5, 7..8]),
            (5, 2, vec![0..1, 2..8]),
            (3, 2, vec![0..1, 2..8]),
            (1, 1, vec![0..8]),
        ] {
            part.put(at, &vec![7; len]);
            assert_eq!(part.filled, filled);
            assert!(!part.is_full());
        }
        part.put(6, &[7; 4]);
        assert!(part.is_full());
        assert_eq!(part.bytes, [7; 10]);
    }

    #[test]
    fn what_was_not_written_is_zeros_and_the_last_part_is_short() {
        let mut parts = BTreeMap::new();
        let mut part = Part::new(10).unwrap();
        part.put(2, b"abc");
        parts.insert(1, part);
        let bytes = |payload: PutPayload| payload.into_iter().flatten().collect::<Vec<u8>>();
        assert_eq!(bytes(take(&mut parts, 0, 10, 15).unwrap()), [0; 10]);
        assert_eq!(bytes(take(&mut parts, 1, 10, 15).unwrap()), *b"\0\0abc");
        assert_eq!(bytes(take(&mut parts, 2, 10, 15).unwrap()), b"");
    }
}
