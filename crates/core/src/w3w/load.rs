//! INIT: reads the state from the store.

use core::time::Duration;

use super::Event;
use super::blocks::BlockIndex;
use super::disk::Pending;
use super::forward::LIFETIME_MAX;
use super::known_nodes::KnownNode;
use super::machine::{BOOK, FILES, INBOX, INDEX, KNOWN, LETTERS, Mesh, OUTBOX, Out, Parts, QUEUE, SEEN};
use super::mailboxes::remaining;
use super::message::Fingerprint;
use super::nid::Key;
use super::records::{Received, Sent, Waiting, number};
use super::timers::Timer;
use crate::store::StoreResult;
use crate::tag::SpaceId;
use crate::time::Now;

/// The spaces to read at the start, in this order: the index first, because the others pin its blocks.
const SPACES: [SpaceId; 9] = [INDEX, INBOX, OUTBOX, QUEUE, SEEN, KNOWN, FILES, LETTERS, BOOK];
/// How many entries are read at a time.
const PAGE_ENTRIES: u32 = 256;
/// The pause after a page that could not be read.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// The progress of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loading {
    space: usize,
    from: Vec<u8>,
}

impl Mesh {
    /// INIT 1 (M-29): begins to read.
    pub(super) fn load(&mut self, now: Now, out: Out<'_, '_>) {
        for node in &self.lower.env.config.known {
            self.peering.load_known(*node, now.wall.as_seconds());
        }
        self.loading = Some(Loading { space: 0, from: Vec::new() });
        self.load_next(out);
    }

    /// Reads the next page, or the same one again after a failure.
    pub(super) fn load_next(&mut self, out: Out<'_, '_>) {
        let Some(Loading { space, from }) = self.loading.clone() else { return };
        let op = self.lower.disk.begin(Pending::Load);
        out.page(op, SPACES[space], &from, &[], PAGE_ENTRIES);
    }

    /// Handles a page. One that cannot be read is read again until it can: without its queue and its numbers a node
    /// would lose letters, or deliver them twice (CU-1, CU-9).
    pub(super) fn loaded(&mut self, now: Now, result: StoreResult<'_>, out: Out<'_, '_>) {
        let Some(Loading { space, .. }) = self.loading else { return };
        let mut next = Loading { space: space + 1, from: Vec::new() };
        match result {
            StoreResult::Page { entries, more } => {
                for (key, value) in entries {
                    self.load_record(now, SPACES[space], (key, value), out);
                }
                if let (true, Some((last, _))) = (more, entries.last()) {
                    next = Loading { space, from: [last, &[0][..]].concat() };
                }
            }
            _ => return self.lower.env.timers.set(Timer::RetryStore, now.mono + RELOAD_PAUSE),
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
        let (nid, waiting) = (self.lower.env.own, self.forward.len());
        out.event(Event::Started { nid, waiting, known: self.peering.known().len() });
        let Parts { cx, peering, files, delivery } = &mut self.parts(now, out);
        delivery.start(cx);
        cx.forward.reconcile(&mut cx.low);
        peering.announce(cx);
        peering.maintain_now(cx);
        files.schedule(cx);
        cx.low.env.schedule_expiry();
    }

    fn load_record(&mut self, now: Now, space: SpaceId, (key, value): (&[u8], &[u8]), out: Out<'_, '_>) {
        let Parts { cx, delivery, peering, files } = &mut self.parts(now, out);
        let (seconds, expiry) = (now.wall.as_seconds(), cx.low.env.config.expiry);
        match space {
            INDEX => load_block(cx.low.blocks, now, key, value),
            INBOX => {
                if let Ok(line) = Received::from_bytes(key, value) {
                    if !line.is_file {
                        cx.low.blocks.pin(line.key);
                    }
                    cx.low.mailboxes.insert_inbox(line);
                }
            }
            OUTBOX => {
                if let Ok(line) = Sent::from_bytes(key, value) {
                    delivery.load_sent(&line);
                    let until = if line.until > 0 { line.until } else { line.sent_at + expiry.as_secs() };
                    let left = remaining(until, seconds, LIFETIME_MAX);
                    cx.low.mailboxes.insert_outbox(line, now.mono + left);
                }
            }
            QUEUE => {
                if let (Ok(id), Ok(record)) = (number(key), Waiting::from_bytes(value)) {
                    cx.forward.load(&mut cx.low, id, record);
                }
            }
            SEEN => {
                if let (Ok(seen), Ok(until)) = (key.try_into(), number(value)) {
                    let left = remaining(until, seconds, expiry);
                    delivery.load_seen(Fingerprint::from_bytes(seen), now.mono, now.mono + left);
                }
            }
            KNOWN => {
                if let (Ok(ip), Ok(seen_at)) = (<[u8; 4]>::try_from(key), number(value)) {
                    peering.load_known(KnownNode { ip: ip.into(), seen_at }, seconds);
                }
            }
            LETTERS => delivery.load_letter(key, value, now),
            BOOK => cx.low.book.load(key, value),
            _ => files.load(cx, key, value),
        }
    }
}

fn load_block(blocks: &mut BlockIndex, now: Now, key: &[u8], value: &[u8]) {
    if let (Ok(key), Some((bytes, stored_at))) = (key.try_into(), value.split_at_checked(8))
        && let (Ok(bytes), Ok(stored_at)) = (number(bytes), number(stored_at))
    {
        let age = Duration::from_secs(now.wall.as_seconds().saturating_sub(stored_at));
        blocks.insert(Key::from_bytes(key), bytes, age, now.mono);
    }
}
