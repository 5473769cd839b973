//! SAVE and what it leads to: the store, in both directions.

use core::time::Duration;

use bytes::Bytes;

use super::alarms::Alarm;
use super::boxes::{Received, Sent, SentState, Waiting};
use super::config::Fault;
use super::form::{Form, read_form};
use super::machine::{BLOCKS, INBOX, INDEX, KNOWN, Mesh, OUTBOX, Out, QUEUE, SEEN};
use super::message::{Message, SeenKey};
use super::nid::{Key, Nid};
use super::queue::{Entry, Line};
use super::room::Saving;
use super::{Event, Reply};
use crate::outbox::BatchWriter;
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::tag::{OpId, RequestId};
use crate::time::Now;

/// What an operation of the store was for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    /// A page of what was kept, at the start.
    Load,
    /// A message in transit, or one for us, is saved.
    Save(Saving),
    /// A message of ours is saved.
    Own { line: Line, key: Key, is_new: bool, request: Option<(RequestId, u64)> },
    /// A message that waits is read again.
    Fetch(Line),
    /// The application wants a block.
    Read { request: RequestId, key: Key, is_part: bool },
    /// A file is whole and being made safe.
    FileSync(Received),
    /// Nothing waits for it.
    Other,
}

/// How a message of ours is listed in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) wants_receipt: bool,
    pub(super) is_file: bool,
    /// As people count it: of a file, all of it.
    pub(super) size: u64,
}

/// How far the start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loading {
    pub(super) space: usize,
    pub(super) from: Vec<u8>,
}

impl Mesh {
    pub(super) fn begin(&mut self, pending: Pending) -> OpId {
        self.ops_begun += 1;
        let op = OpId::new(self.ops_begun);
        self.ops.insert(op, pending);
        op
    }

    /// Makes room for a block; what is thrown away for it, or `None` if there is none to be made.
    pub(super) fn room_for(&mut self, key: Key, bytes: usize) -> Option<Vec<Key>> {
        if self.shelf.has(key) {
            return Some(Vec::new());
        }
        let evicted = self.shelf.make_room(bytes as u64)?;
        self.counters.blocks_evicted += evicted.len() as u64;
        Some(evicted)
    }

    /// A message in transit is saved before it is passed on (M-51, M-53, MA-49a); a full store does not stop it.
    pub(super) fn save_transit(&mut self, now: Now, line: Line, out: Out<'_, '_>) {
        let Some(entry) = self.queue.get(line) else { return };
        let (key, size, message) = (entry.key, entry.size, entry.message.clone());
        let is_new = !self.shelf.has(key);
        let (Some(evicted), Some(message)) = (self.room_for(key, size), message) else {
            return self.saved_transit(now, line, false, out);
        };
        self.shelf.add(key, size as u64, Duration::ZERO, now.mono);
        self.shelf.pin(key);
        self.save(now, Saving::Transit { line, key, is_new, message, evicted }, out);
    }

    fn saved_transit(&mut self, now: Now, line: Line, is_stored: bool, out: Out<'_, '_>) {
        if !is_stored {
            self.counters.unsaved += 1;
            while self.queue.memory_bytes() > self.config.memory_bytes_max
                && let Some(oldest) = self.queue.oldest_unsaved()
            {
                self.counters.queue_dropped += 1;
                self.forget_line(oldest, out);
            }
        }
        self.queue.settled(line, is_stored);
        self.route(now, line, out);
        self.remind(now);
        self.queue.shed(self.config.memory_bytes_max);
        self.repay(now, out);
    }

    /// A message of ours: safe before its sender is told so.
    pub(super) fn send_own(
        &mut self,
        now: Now,
        to: Nid,
        data: &[u8],
        listing: Option<Listing>,
        request: Option<RequestId>,
        out: Out<'_, '_>,
    ) -> Result<(), Reply> {
        if data.len() > self.config.data_bytes_max {
            return Err(Reply::TooLong { data_bytes_max: self.config.data_bytes_max });
        }
        let key = Key::of(data);
        let seen = SeenKey::new(self.own, to, key);
        if self.passed.has(seen, now.mono) || self.received.has(seen, now.mono) {
            return Err(Reply::Duplicate { key });
        }
        let message = Message::new(self.own, to, data);
        let block = message.shared_data();
        self.counters.messages_sent += 1;
        if to == self.own {
            // MA-44: no network between us and ourselves.
            self.received.add(seen, now.mono, now.mono + self.config.expiry);
            let request = request.zip(listing);
            self.deliver(now, message, key, request, out);
            return Ok(());
        }
        if !self.queue.has_room(data.len()) {
            return Err(Reply::QueueFull);
        }
        let is_new = !self.shelf.has(key);
        let Some(evicted) = self.room_for(key, data.len()) else { return Err(Reply::QuotaFull) };
        self.shelf.add(key, data.len() as u64, Duration::ZERO, now.mono);
        self.shelf.pin(key);
        self.passed.add(seen, now.mono, now.mono + self.config.expiry);
        let sent = listing.map(|listing| self.new_sent(now, to, key, listing));
        let mut entry = self.entry(now, message, key, None, sent.map(|line| line.number));
        entry.is_lined = true;
        let waiting = waiting_of(&entry);
        let line = self.queue.push(entry);
        let is_early = self.config.fault == Some(Fault::ReplyBeforeDurable);
        let number = sent.map_or(u64::MAX, |line| line.number);
        let request = request.map(|request| (request, number));
        let op = self.begin(Pending::Own { line, key, is_new, request });
        out.batch(op, listing.is_some() && !is_early, |batch| {
            forget_blocks(&evicted, batch);
            if is_new {
                put_block(key, block.clone(), now.wall.as_seconds(), batch);
            }
            batch.put(QUEUE, &line.to_be_bytes(), &waiting.to_bytes());
            if let Some(sent) = sent {
                batch.put(OUTBOX, &sent.number.to_be_bytes(), &sent.to_bytes());
            }
        });
        if let Some(sent) = sent {
            self.put_sent(now, sent, out);
        }
        self.remind(now);
        Ok(())
    }

    pub(super) fn new_sent(&mut self, now: Now, to: Nid, key: Key, listing: Listing) -> Sent {
        Sent {
            number: self.post.allot_out(),
            to,
            key,
            size: listing.size,
            sent_at: now.wall.as_seconds(),
            wants_receipt: listing.wants_receipt,
            is_file: listing.is_file,
            state: SentState::Waiting,
        }
    }

    pub(super) fn put_sent(&mut self, now: Now, sent: Sent, out: Out<'_, '_>) {
        if let Some(gone) = self.post.put_out(sent, now.mono + self.config.expiry) {
            let op = self.begin(Pending::Other);
            out.delete(op, OUTBOX, &gone.number.to_be_bytes(), false);
        }
    }

    fn saved_own(
        &mut self,
        now: Now,
        (line, key): (Line, Key),
        request: Option<(RequestId, u64)>,
        fault: Option<StoreFault>,
        out: Out<'_, '_>,
    ) {
        // Its line may be gone: it expired while the store was slow. It is told all the same.
        if let Some((request, number)) = request {
            out.reply(
                request,
                fault.map_or(Reply::Sent { number, key }, |fault| Reply::StoreFailed { fault }),
            );
        }
        let Some(entry) = self.queue.get(line) else { return };
        if fault.is_none() {
            self.queue.settled(line, true);
            return self.route(now, line, out);
        }
        // It is not safe, so its sender is not told that it was sent, and it is not sent.
        let (seen, outbox) = (SeenKey::new(self.own, entry.recipient, key), entry.outbox);
        self.passed.forget(seen);
        self.queue.remove(line);
        outbox.map(|number| self.post.remove_out(number));
    }

    /// Puts a line into the inbox; the oldest makes room if it must.
    pub(super) fn put_received(&mut self, received: Received, out: Out<'_, '_>) {
        let Some(gone) = self.post.put_in(received) else { return };
        if gone.is_file {
            self.drop_incoming(gone.key, out);
        } else {
            self.shelf.unpin(gone.key);
        }
        let op = self.begin(Pending::Other);
        out.delete(op, INBOX, &gone.number.to_be_bytes(), false);
    }

    /// A form of ours, not listed in the outbox; if it finds no room it is as good as lost on the way.
    pub(super) fn send_form(&mut self, now: Now, to: Nid, form: &Form<'_>, out: Out<'_, '_>) {
        let data = super::form::write_form(form);
        match self.send_own(now, to, &data, None, None, out) {
            Ok(()) => {}
            // A full store must not make us silent: what came is confirmed all the same.
            Err(Reply::QuotaFull) if to != self.own => self.send_unsaved(now, to, &data, out),
            Err(_) => self.counters.queue_dropped += 1,
        }
    }

    fn send_unsaved(&mut self, now: Now, to: Nid, data: &[u8], out: Out<'_, '_>) {
        let key = Key::of(data);
        self.passed.add(SeenKey::new(self.own, to, key), now.mono, now.mono + self.config.expiry);
        let entry = self.entry(now, Message::new(self.own, to, data), key, None, None);
        let line = self.queue.push(entry);
        self.saved_transit(now, line, false, out);
    }

    /// Notes what is known of a message of ours; true if it is news.
    pub(super) fn set_sent_state(&mut self, number: u64, state: SentState, out: Out<'_, '_>) -> bool {
        let Some(line) = self.post.set_state(number, state) else { return false };
        let op = self.begin(Pending::Other);
        out.put(op, OUTBOX, &number.to_be_bytes(), &line.to_bytes(), state == SentState::Delivered);
        self.tell_sent_state(line, out);
        true
    }

    pub(super) fn tell_sent_state(&mut self, sent: Sent, out: Out<'_, '_>) {
        let Sent { number, key, state, .. } = sent;
        out.event(Event::MessageStateChanged { number, key, state });
        if state == SentState::Delivered
            && let Some(line) = self.queue.line_of(number)
        {
            self.forget_line(line, out);
        }
    }

    /// A line that waits is written down, so that it survives a restart.
    pub(super) fn keep_line(&mut self, line: Line, out: Out<'_, '_>) {
        let Some(entry) = self.queue.get_mut(line) else { return };
        let is_waiting = entry.is_held || entry.targets.is_empty();
        if entry.is_lined || !entry.is_stored || !is_waiting {
            return;
        }
        entry.is_lined = true;
        let waiting = waiting_of(entry);
        let op = self.begin(Pending::Other);
        out.put(op, QUEUE, &line.to_be_bytes(), &waiting.to_bytes(), false);
    }

    /// Takes a line out of the queue.
    pub(super) fn forget_line(&mut self, line: Line, out: Out<'_, '_>) {
        let Some(entry) = self.queue.remove(line) else { return };
        if entry.is_stored || !entry.is_settled {
            self.shelf.unpin(entry.key);
        }
        if entry.is_lined {
            let op = self.begin(Pending::Other);
            out.delete(op, QUEUE, &line.to_be_bytes(), false);
        }
        if let Some(message) = entry.message {
            self.spare.give(message.frame);
        }
    }

    /// Reads a message that waits from the store again, once.
    pub(super) fn fetch(&mut self, line: Line, out: Out<'_, '_>) {
        if let Some(key) = self.queue.get(line).map(|entry| entry.key)
            && self.fetching.insert(line)
        {
            let op = self.begin(Pending::Fetch(line));
            out.get(op, BLOCKS, &key.to_bytes());
        }
    }

    fn fetched(&mut self, now: Now, line: Line, value: Option<&[u8]>, out: Out<'_, '_>) {
        let Some(entry) = self.queue.get(line) else { return };
        let key = entry.key;
        let Some(data) = value.filter(|data| Key::of(data) == key) else {
            self.corrupt(key, out);
            return self.forget_line(line, out);
        };
        let message = Message::new(entry.sender, entry.recipient, data);
        let targets = entry.targets.clone();
        self.queue.loaded(line, message);
        targets.into_iter().for_each(|stream| self.pump(now, stream, out));
    }

    /// A block that is not what its key says: it is not given out, and not kept.
    fn corrupt(&mut self, key: Key, out: Out<'_, '_>) {
        self.counters.blocks_corrupt += 1;
        self.shelf.remove(key);
        let op = self.begin(Pending::Other);
        out.batch(op, false, |batch| forget_blocks(&[key], batch));
        out.event(Event::BlockCorrupted { key });
    }

    fn read(&mut self, request: RequestId, key: Key, is_part: bool, value: Option<&[u8]>, out: Out<'_, '_>) {
        let reply = match value {
            None => Reply::NoSuchBlock,
            Some(data) if Key::of(data) != key => {
                self.corrupt(key, out);
                Reply::Corrupt { key }
            }
            Some(data) if is_part => match read_form(data) {
                Form::Block { bytes, .. } => Reply::Block(bytes.into()),
                _ => Reply::NoSuchBlock,
            },
            Some(data) => Reply::Block(data.into()),
        };
        out.reply(request, reply);
    }

    /// The store has answered.
    pub(super) fn stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let Some(pending) = self.ops.remove(&reply.op) else { return };
        if let Pending::Fetch(line) = &pending {
            self.fetching.remove(line);
        }
        let fault = if let StoreResult::Failed(fault) = reply.result { Some(fault) } else { None };
        let value = if let StoreResult::Value(value) = reply.result { value } else { None };
        if let (Pending::Save(saving), Some(StoreFault::Busy)) = (&pending, fault) {
            self.saved(saving);
            return self.save_later(now, saving.clone());
        }
        if let Some(fault) = fault {
            self.counters.store_failed += 1;
            if !matches!(pending, Pending::Save(Saving::Deliver(_))) {
                out.event(Event::StoreFailed { fault });
            }
        }
        match pending {
            Pending::Load => self.loaded(now, reply.result, out),
            Pending::Save(saving) => {
                self.saved(&saving);
                self.end_saving(now, saving, fault, out);
            }
            Pending::Own { line, key, is_new, request } => {
                self.unless_written(fault, key, is_new);
                self.saved_own(now, (line, key), request, fault, out);
            }
            Pending::Fetch(line) if fault.is_some() => self.fetch_later(now, line),
            Pending::Fetch(line) => self.fetched(now, line, value, out),
            Pending::Read { request, key, is_part } => match fault {
                Some(fault) => out.reply(request, Reply::StoreFailed { fault }),
                None => self.read(request, key, is_part, value, out),
            },
            Pending::FileSync(received) => self.file_synced(now, received, fault.is_none(), out),
            Pending::Other => {}
        }
        self.admit(now, out);
    }

    fn end_saving(&mut self, now: Now, saving: Saving, fault: Option<StoreFault>, out: Out<'_, '_>) {
        match saving {
            Saving::Transit { line, key, is_new, .. } => {
                self.unless_written(fault, key, is_new);
                self.saved_transit(now, line, fault.is_none(), out);
            }
            Saving::Deliver(delivery) => {
                self.delivering_bytes -= delivery.message.body().len();
                if delivery.is_shelved {
                    self.unless_written(fault, delivery.key, delivery.is_new);
                }
                self.delivered(now, *delivery, fault, out);
            }
        }
    }

    /// A block that could not be written is not on the shelf.
    fn unless_written(&mut self, fault: Option<StoreFault>, key: Key, is_new: bool) {
        if fault.is_some() {
            self.shelf.unpin(key);
            if is_new {
                self.shelf.remove(key);
            }
        }
    }

    /// We have had to do with a node (M-3).
    pub(super) fn met(&mut self, now: Now, ip: std::net::Ipv4Addr) {
        if self.known.met(ip, now.wall.as_seconds()) {
            self.alarms.set_by(Alarm::KeepKnown, now.mono + Duration::from_secs(1));
        }
    }

    /// Keeps the known nodes (M-2) and tells that the file is to be written.
    pub(super) fn keep_known(&mut self, out: Out<'_, '_>) {
        let list = self.known.list();
        let op = self.begin(Pending::Other);
        out.batch(op, false, |batch| {
            for node in &list {
                batch.put(KNOWN, &node.ip.octets(), &node.seen_at.to_be_bytes());
            }
        });
        out.event(Event::KnownNodesChanged { nodes: list.len() });
    }

    /// Sets the alarm for whatever is over next.
    pub(super) fn remind(&mut self, now: Now) {
        match self.next_expiry() {
            Some(at) if !self.is_stopping => self.alarms.set(Alarm::Expire, at.max(now.mono)),
            _ => self.alarms.clear(Alarm::Expire),
        }
    }

    /// Forgets everything whose time is over.
    pub(super) fn expire(&mut self, now: Now, out: Out<'_, '_>) {
        while self.passed.take_expired(now.mono).is_some() {}
        while self.held_off.take_expired(now.mono).is_some() {}
        while self.refused_by.take_expired(now.mono).is_some() {}
        while self.reserved.take_expired(now.mono).is_some() {}
        while self.introduced.take_expired(now.mono).is_some() {}
        self.forget_declined(now, out);
        let mut forgotten = Vec::new();
        while let Some(seen) = self.received.take_expired(now.mono) {
            forgotten.push(seen);
        }
        let mut blocks = Vec::new();
        while let Some(key) = self.shelf.take_expired(now.mono) {
            blocks.push(key);
        }
        if !forgotten.is_empty() || !blocks.is_empty() {
            let op = self.begin(Pending::Other);
            out.batch(op, false, |batch| {
                forgotten.iter().for_each(|seen| batch.delete(SEEN, &seen.0));
                forget_blocks(&blocks, batch);
            });
        }
        while let Some(line) = self.queue.expired(now.mono) {
            self.expire_line(line, out);
        }
        while let Some(number) = self.post.take_overdue(now.mono) {
            self.set_sent_state(number, SentState::Unknown, out);
        }
        self.remind(now);
    }

    fn expire_line(&mut self, line: Line, out: Out<'_, '_>) {
        self.counters.expired += 1;
        if let Some(entry) = self.queue.get(line)
            && let (Some(number), false) = (entry.outbox, entry.is_handed)
        {
            self.set_sent_state(number, SentState::Expired, out);
        }
        self.forget_line(line, out);
    }
}

/// How a line of the queue lies in the store.
fn waiting_of(entry: &Entry) -> Waiting {
    Waiting {
        sender: entry.sender,
        recipient: entry.recipient,
        key: entry.key,
        size: entry.size as u64,
        until: entry.until_seconds,
        outbox: entry.outbox,
    }
}

pub(super) fn put_block(key: Key, data: Bytes, seconds: u64, batch: &mut BatchWriter<'_>) {
    let mut about = [0; 16];
    about[..8].copy_from_slice(&(data.len() as u64).to_be_bytes());
    about[8..].copy_from_slice(&seconds.to_be_bytes());
    batch.put_shared(BLOCKS, &key.to_bytes(), data);
    batch.put(INDEX, &key.to_bytes(), &about);
}

pub(super) fn forget_blocks(keys: &[Key], batch: &mut BatchWriter<'_>) {
    for key in keys {
        batch.delete(BLOCKS, &key.to_bytes());
        batch.delete(INDEX, &key.to_bytes());
    }
}
