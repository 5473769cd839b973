//! INIT: reading what was kept.

use core::time::Duration;

use super::Event;
use super::boxes::{Received, Sent, SentState, Waiting, number};
use super::known::KnownNode;
use super::machine::{FILES, INBOX, INDEX, KNOWN, Mesh, OUTBOX, Out, QUEUE, SEEN};
use super::message::SeenKey;
use super::nid::Key;
use super::post::remaining;
use super::queue::Entry;
use super::save::{Loading, Pending};
use crate::store::StoreResult;
use crate::tag::SpaceId;
use crate::time::Now;

/// What is read at the start, in this order: the index first, because the others pin what is in it.
const SPACES: [SpaceId; 7] = [INDEX, INBOX, OUTBOX, QUEUE, SEEN, KNOWN, FILES];
/// How many entries are read at a time.
const PAGE_ENTRIES: u32 = 256;

impl Mesh {
    /// INIT 1 (M-29): begins to read.
    pub(super) fn load(&mut self, now: Now, out: Out<'_, '_>) {
        for node in self.config.known.clone() {
            self.known.merge(node, now.wall.as_seconds());
        }
        self.loading = Some(Loading { space: 0, from: Vec::new() });
        self.load_next(out);
    }

    fn load_next(&mut self, out: Out<'_, '_>) {
        let Some(Loading { space, from }) = self.loading.clone() else { return };
        let op = self.begin(Pending::Load);
        out.page(op, SPACES[space], &from, &[], PAGE_ENTRIES);
    }

    /// A page came. What cannot be read is left where it is and told; numbers then begin where no line can be.
    pub(super) fn loaded(&mut self, now: Now, result: StoreResult<'_>, out: Out<'_, '_>) {
        let Some(Loading { space, .. }) = self.loading else { return };
        let mut next = Loading { space: space + 1, from: Vec::new() };
        match result {
            StoreResult::Page { entries, more } => {
                for (key, value) in entries {
                    self.take_in(now, SPACES[space], key, value);
                }
                if let (true, Some((last, _))) = (more, entries.last()) {
                    next = Loading { space, from: [last, &[0][..]].concat() };
                }
            }
            _ => self.post.skip_to(now.wall.as_micros()),
        }
        if next.space < SPACES.len() {
            self.loading = Some(next);
            self.load_next(out);
        } else {
            self.loading = None;
            self.enter(now, out);
        }
    }

    /// Everything is read: NOUNCE.
    fn enter(&mut self, now: Now, out: Out<'_, '_>) {
        out.event(Event::Started {
            nid: self.own,
            waiting: self.queue.len(),
            known: self.known.list().len(),
        });
        self.announce(now, out);
        self.hurry_tending(now);
        self.plan_files(now);
        self.remind(now);
    }

    fn take_in(&mut self, now: Now, space: SpaceId, key: &[u8], value: &[u8]) {
        match space {
            INDEX => self.take_in_block(now, key, value),
            INBOX => {
                if let Ok(line) = Received::from_bytes(key, value) {
                    if !line.is_file {
                        self.shelf.pin(line.key);
                    }
                    self.post.put_in(line);
                }
            }
            OUTBOX => {
                if let Ok(line) = Sent::from_bytes(key, value) {
                    let until = line.sent_at + self.config.expiry.as_secs();
                    let left = remaining(until, now.wall.as_seconds(), self.config.expiry);
                    self.post.put_out(line, now.mono + left);
                }
            }
            QUEUE => {
                if let (Ok(line), Ok(waiting)) = (number(key), Waiting::from_bytes(value)) {
                    self.take_in_waiting(now, line, waiting);
                }
            }
            SEEN => {
                if let (Ok(seen), Ok(until)) = (key.try_into(), number(value)) {
                    let left = remaining(until, now.wall.as_seconds(), self.config.expiry);
                    self.received.add(SeenKey(seen), now.mono, now.mono + left);
                }
            }
            KNOWN => {
                if let (Ok(ip), Ok(seen_at)) = (<[u8; 4]>::try_from(key), number(value)) {
                    self.known.merge(KnownNode { ip: ip.into(), seen_at }, now.wall.as_seconds());
                }
            }
            _ => self.take_in_file(now, key, value),
        }
    }

    fn take_in_block(&mut self, now: Now, key: &[u8], value: &[u8]) {
        if let (Ok(key), Some((bytes, stored_at))) = (key.try_into(), value.split_at_checked(8))
            && let (Ok(bytes), Ok(stored_at)) = (number(bytes), number(stored_at))
        {
            let age = Duration::from_secs(now.wall.as_seconds().saturating_sub(stored_at));
            self.shelf.add(Key::from_bytes(key), bytes, age, now.mono);
        }
    }

    fn take_in_waiting(&mut self, now: Now, line: u64, waiting: Waiting) {
        let left = remaining(waiting.until, now.wall.as_seconds(), self.config.expiry);
        let until = now.mono + left;
        self.passed.add(SeenKey::new(waiting.sender, waiting.recipient, waiting.key), now.mono, until);
        self.shelf.pin(waiting.key);
        let is_handed = waiting
            .outbox
            .and_then(|number| self.post.state(number))
            .is_some_and(|state| state != SentState::Waiting);
        let entry = Entry {
            sender: waiting.sender,
            recipient: waiting.recipient,
            key: waiting.key,
            size: waiting.size as usize,
            from: None,
            until,
            until_seconds: waiting.until,
            outbox: waiting.outbox,
            message: None,
            is_stored: true,
            is_lined: true,
            is_settled: true,
            targets: Vec::new(),
            told: Vec::new(),
            is_handed,
            is_held: true,
            again: None,
        };
        self.queue.put(line, entry);
    }
}
