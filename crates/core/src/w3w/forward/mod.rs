//! Forwarding: SEND of the document. The queue, the choice of the next peers, and the writing to connections.
//!
//! A message stays in the queue until another node has custody (CU-11):
//!
//! | message | it leaves the queue |
//! |---|---|
//! | letter of this node | with its receipt, a refusal, or the end of its lifetime |
//! | in transit, or plain of this node | when the next peer answers `held` or `delivered`; 60 s after a foreign kernel has it |
//! | next to an absent recipient (MA-45b) | when the recipient answers `delivered`, or with the end of its lifetime |
//! | part of a file | when the own kernel has taken it |

mod lifetime;
mod paths;
mod queue;
mod quotas;
mod retransmit;
mod verdicts;
mod write;

use core::time::Duration;
use std::collections::BTreeSet;

use super::blocks::Claimed;
use super::config::{Config, Forward as Policy};
use super::disk::{Disk, Pending, PendingTransit, PendingWrite, delete_blocks, put_block};
use super::env::Low;
use super::form::{Form, Verdict, needs_custody, read_form};
use super::machine::{BLOCKS, OUTBOX, QUEUE};
use super::mailboxes::Listing;
use super::message::{EntryId, Fingerprint, Message, SeenKey};
use super::nid::{Key, Nid};
use super::{Event, Reply, Why};
use crate::common::{ExpiringSet, Timers};
use crate::ring::{clockwise, closer};
use crate::store::StoreFault;
use crate::tag::{RequestId, StreamId};
use crate::time::Instant;

use queue::{Block, Entry, Envelope, Progress, Queue, Storage, Upstream};

/// The longest lifetime of a letter (CU-22).
pub(super) const LIFETIME_MAX: Duration = Duration::from_secs(365 * 86_400);
/// The most messages of others that are remembered as seen.
const PASSED_MAX: usize = 100_000;
/// How long after the first time a plain message may be given again (CU-16).
const REGIVE: Duration = Duration::from_secs(300);

/// The peers that get a message, and their connections: two at most (M-48).
type Targets = [Option<(Nid, StreamId)>; 2];

/// Messages in transit and messages of this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Forward {
    queue: Queue,
    /// Messages that this node forwarded.
    passed: ExpiringSet<Fingerprint>,
    /// Entries whose message is being read from the store.
    fetching: BTreeSet<EntryId>,
    /// Entries whose message could not be read.
    unread: BTreeSet<EntryId>,
    /// Messages that were accepted a second time: the third time the answer is `unable` (CU-12).
    retaken: ExpiringSet<Fingerprint>,
    /// When refused entries are tried again.
    retries: Timers<EntryId>,
    /// When letters without a receipt are sent again, and the interval after that (CU-18).
    resends: Timers<EntryId>,
}

impl Forward {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            queue: Queue::new(config.queue_max, config.queue_bytes_max),
            passed: ExpiringSet::new(PASSED_MAX.min(config.seen_max)),
            fetching: BTreeSet::new(),
            unread: BTreeSet::new(),
            retaken: ExpiringSet::new(PASSED_MAX.min(config.seen_max)),
            retries: Timers::default(),
            resends: Timers::default(),
        }
    }

    /// Remembers a message as seen. Returns whether it is new.
    pub(super) fn note_seen(&mut self, low: &mut Low<'_, '_>, seen: SeenKey) -> bool {
        self.passed.insert(seen.fingerprint(), low.now.mono, low.now.mono + low.env.config.expiry)
    }

    pub(super) fn has_seen(&self, seen: SeenKey, now: Instant) -> bool {
        self.passed.contains(seen.fingerprint(), now)
    }

    /// Queues a message for another node (MA-45). A peer that speaks custody gets a verdict.
    pub(super) fn accept(
        &mut self,
        low: &mut Low<'_, '_>,
        from: Nid,
        message: Message,
        (key, seen): (Key, SeenKey),
    ) {
        let size = message.data().len();
        if let Form::Receipts(receipts) = read_form(message.data()) {
            // CU-17: these letters have arrived.
            for id in self.queue.covered(message.recipient, message.sender, &receipts) {
                self.drop_entry(low, id);
            }
        }
        let is_promised = needs_custody(message.data()) && low.custody.speaks_to(from);
        let quota = low.env.config.quota_bytes;
        if is_promised && !self.queue.quotas().has_held_room(quota, from, message.sender, size) {
            return self.refuse(low, from, seen);
        }
        while !self.queue.has_room(size) {
            low.env.counters.queue_dropped += 1;
            let Some(oldest) = self.queue.oldest_droppable() else {
                if is_promised {
                    self.refuse(low, from, seen);
                }
                return;
            };
            self.drop_entry(low, oldest);
        }
        let mut entry = new_entry(low, message, (key, seen), Some(from), None);
        entry.upstream.awaiting.extend(is_promised.then_some(from));
        let id = self.queue.push(&mut low.env.memory, entry);
        self.store_transit(low, id);
    }

    /// Refuses a message without room: the peer keeps it.
    fn refuse(&mut self, low: &mut Low<'_, '_>, from: Nid, seen: SeenKey) {
        low.env.counters.verdicts_full += 1;
        self.passed.remove(seen.fingerprint());
        low.custody.answer(from, seen, Verdict::Full, low.now.mono);
        low.env.schedule_custody();
    }

    /// Stores a message in transit before it is forwarded (M-51, M-53, MA-49a). Without an owed verdict it is forwarded
    /// even if the store is full.
    fn store_transit(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(entry) = self.queue.get(id) else { return };
        let (key, size, message) = (entry.envelope.key, entry.envelope.size, entry.storage.message.clone());
        let record = (!entry.upstream.awaiting.is_empty()).then(|| entry.record());
        let claimed = low.blocks.claim(&mut low.env.counters, key, size, low.now.mono);
        let (Some(Claimed { is_new, evicted }), Some(message)) = (claimed, message) else {
            return self.on_stored(low, id, false, false);
        };
        let transit = PendingTransit { entry: id, key, is_new, message, evicted, record };
        low.disk.write(low.env, low.now, PendingWrite::Transit(Box::new(transit)), low.out);
    }

    /// Handles the store's reply about a message in transit.
    pub(super) fn on_stored(
        &mut self,
        low: &mut Low<'_, '_>,
        id: EntryId,
        has_record: bool,
        is_stored: bool,
    ) {
        let memory_bytes_max = low.env.config.memory_bytes_max;
        let is_promised = self.queue.get(id).is_some_and(|entry| !entry.upstream.awaiting.is_empty());
        if !is_stored && is_promised {
            // Its peer keeps it, so it is not forwarded from memory.
            self.queue.set_block(id, Block::MemoryOnly);
            self.drop_entry(low, id);
            return low.release_credit();
        }
        if !is_stored {
            low.env.counters.messages_unsaved += 1;
            while low.env.memory.queued > memory_bytes_max
                && let Some(oldest) = self.queue.oldest_unsaved()
            {
                low.env.counters.queue_dropped += 1;
                self.drop_entry(low, oldest);
            }
        }
        self.queue.set_block(id, if is_stored { Block::Stored } else { Block::MemoryOnly });
        if is_promised && has_record {
            self.on_promised(low, id, true);
        } else if is_promised {
            self.sync_record(low, id);
        }
        self.route(low, id);
        low.env.schedule_expiry();
        self.queue.shed(&mut low.env.memory, memory_bytes_max);
        low.release_credit();
    }

    /// Queues a message of this node for another one. Returns its number in the outbox. It is on disk before the sender
    /// gets its reply.
    ///
    /// # Errors
    /// The reply, if the queue or the quota is full.
    pub(super) fn enqueue(
        &mut self,
        low: &mut Low<'_, '_>,
        message: Message,
        (key, seen): (Key, SeenKey),
        listing: Option<Listing>,
        request: Option<RequestId>,
    ) -> Result<Option<u64>, Reply> {
        let (size, to) = (message.data().len(), message.recipient);
        if !self.queue.has_room(size) {
            return Err(Reply::QueueFull);
        }
        if listing.is_some() && !self.queue.quotas().has_own_room(low.env.config.quota_bytes, to, size) {
            return Err(Reply::RecipientQuotaFull(to));
        }
        let claimed = low.blocks.claim(&mut low.env.counters, key, size, low.now.mono);
        let Some(Claimed { is_new, evicted }) = claimed else { return Err(Reply::QuotaFull) };
        self.note_seen(low, seen);
        let sent = listing.map(|listing| low.mailboxes.new_sent(low.now, to, key, listing));
        let block = message.shared_data();
        let mut entry = new_entry(low, message, (key, seen), None, sent.map(|line| line.number));
        (entry.storage.is_listed, entry.storage.is_durable) = (true, listing.is_some());
        if let Some(listing) = listing {
            entry.until = low.now.mono + listing.lifetime;
            entry.until_seconds = low.now.wall.as_seconds() + listing.lifetime.as_secs();
        }
        let record = entry.record();
        let is_letter = entry.is_own_letter();
        let id = self.queue.push(&mut low.env.memory, entry);
        if is_letter {
            self.schedule_resend(low, id, retransmit::RESEND_FIRST);
        }
        let number = sent.map_or(u64::MAX, |line| line.number);
        let request = request.map(|request| (request, number));
        let op = low.disk.begin(Pending::Own { entry: id, key, is_new, request });
        let is_durable = listing.is_some() && !low.env.config.replies_before_durable();
        low.out.batch(op, is_durable, |batch| {
            delete_blocks(&evicted, batch);
            if is_new {
                put_block(key, block.clone(), low.now.wall.as_seconds(), batch);
            }
            batch.put(QUEUE, &id.to_be_bytes(), &record.to_bytes());
            if let Some(sent) = sent {
                batch.put(OUTBOX, &sent.number.to_be_bytes(), &sent.to_bytes());
            }
        });
        if let Some(sent) = sent {
            let until = low.now.mono + listing.map_or(low.env.config.expiry, |listing| listing.lifetime);
            low.mailboxes.append_outbox(low.disk, sent, until, low.out);
        }
        low.env.schedule_expiry();
        Ok(sent.map(|sent| sent.number))
    }

    /// Queues a message of this node that the store has no room for.
    pub(super) fn enqueue_unsaved(&mut self, low: &mut Low<'_, '_>, message: Message, key: Key) {
        let seen = SeenKey::new(message.sender, message.recipient, key);
        self.note_seen(low, seen);
        let entry = new_entry(low, message, (key, seen), None, None);
        let id = self.queue.push(&mut low.env.memory, entry);
        self.on_stored(low, id, false, false);
    }

    /// Handles the store's reply about a message of this node.
    pub(super) fn on_own_stored(
        &mut self,
        low: &mut Low<'_, '_>,
        (id, key): (EntryId, Key),
        request: Option<(RequestId, u64)>,
        fault: Option<StoreFault>,
    ) {
        // The entry may have expired while the store was slow. The request gets its reply even so.
        if let Some((request, number)) = request {
            let failed = |fault| Reply::StoreFailed { fault };
            let sent = low.mailboxes.sent(number);
            let (until, is_letter) = sent.map_or((0, false), |sent| (sent.until, sent.letter.is_some()));
            low.out.reply(request, fault.map_or(Reply::Sent { number, key, until, is_letter }, failed));
        }
        let Some(entry) = self.queue.get(id) else { return };
        if fault.is_none() {
            self.queue.set_block(id, Block::Stored);
            return self.route(low, id);
        }
        // It is not on disk, so the sender gets an error and the message is not sent.
        let (seen, outbox) = (entry.envelope.seen, entry.outbox);
        self.passed.remove(seen.fingerprint());
        self.queue.remove(&mut low.env.memory, id);
        outbox.map(|number| low.mailboxes.remove_out(number));
    }

    /// Finds the peers for a message (M-48, M-49) and gives it to those that have not had it from this node.
    fn route(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(entry) = self.queue.get(id) else { return };
        if entry.storage.block == Block::Writing {
            return;
        }
        let in_custody = entry.in_custody || is_custodian(low, entry);
        let targets = self.choose(low, entry, in_custody);
        let Some(entry) = self.queue.get_mut(id) else { return };
        entry.in_custody = in_custody;
        let (Envelope { sender, recipient, key, .. }, from) = (entry.envelope, entry.upstream.from);
        targets.iter().flatten().for_each(|(nid, stream)| entry.paths.add(*nid, *stream));
        let to: Vec<Nid> = targets.iter().flatten().map(|(nid, _)| *nid).collect();
        if !to.is_empty() {
            tracing::trace!(state = "SEND", nid = %low.env.own, recipient = %recipient);
            low.out.event(Event::MessageForwarded { sender, recipient, key, from, to });
        }
        for (_, stream) in targets.into_iter().flatten() {
            if let Some(link) = low.links.get_mut(stream) {
                link.writes_mut().enqueue(id);
            }
            self.pump(low, stream);
        }
        self.list(low, id);
    }

    /// The peers that get an entry now.
    fn choose(&self, low: &Low<'_, '_>, entry: &Entry, in_custody: bool) -> Targets {
        let (recipient, from) = (entry.envelope.recipient, entry.upstream.from);
        // Another node has it, or the relays had it: only the recipient itself may get it again.
        let is_over = entry.retransmit().is_some()
            || !entry.paths.is_idle()
            || (entry.paths.is_placed() && entry.outbox.is_some());
        if is_over && low.ring.get(recipient).is_none() {
            return Targets::default();
        }
        // A recipient without room is tried again later: no other node could deliver the message now.
        if low.ring.get(recipient).is_some() && entry.paths.is_refused_by(recipient) {
            return Targets::default();
        }
        let usable =
            |nid: Nid| !entry.paths.was_sent_to(nid) && Some(nid) != from && nid != entry.envelope.sender;
        let with_stream = |nid: Nid| low.ring.get(nid).map(|route| (nid, route.stream));
        let next: Targets =
            next_peers(low, entry).map(|nid| nid.filter(|nid| usable(*nid)).and_then(with_stream));
        // CU-14: a peer whose verdict is overdue gets nothing while there is another one.
        let is_ready = |(_, stream): &(Nid, StreamId)| !low.custody.is_overdue(*stream, low.now.mono);
        let ready = next.map(|target| target.filter(is_ready));
        if ready != Targets::default() || in_custody || entry.paths.is_placed() || !entry.paths.is_idle() {
            return ready;
        }
        let others = low.ring.iter().map(|(nid, route)| (nid, route.stream));
        let others = others.filter(|(nid, _)| usable(*nid)).filter(is_ready);
        let nearest = others.reduce(|one, other| if closer(recipient, one.0, other.0) { one } else { other });
        nearest.map_or(next, |nearest| [Some(nearest), None])
    }

    /// Routes all queued messages again: the ring has a new peer (MA-45).
    pub(super) fn retry_all(&mut self, low: &mut Low<'_, '_>) {
        let ids: Vec<EntryId> = self.queue.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.route(low, id);
        }
    }

    /// Handles a closed connection: messages that its peer has not answered take another path at once (MF-9, CU-15).
    pub(super) fn requeue(&mut self, low: &mut Low<'_, '_>, stream: StreamId, nid: Nid, ids: Vec<EntryId>) {
        for id in ids {
            let Some(entry) = self.queue.get_mut(id) else { continue };
            entry.paths.on_closed(stream, nid);
            // CU-16: a plain message is given a second time only within five minutes of the first.
            let is_late = entry.paths.first_given().is_some_and(|at| at + REGIVE <= low.now.mono);
            if is_late && entry.envelope.letter.is_none() && entry.paths.is_idle() && !entry.in_custody {
                self.finish(low, id);
            } else {
                self.route(low, id);
            }
        }
    }

    /// Writes the record of a waiting entry, so that it survives a restart.
    fn list(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(entry) = self.queue.get_mut(id) else { return };
        let is_waiting = entry.in_custody || entry.paths.is_idle();
        if entry.storage.is_listed || entry.storage.block != Block::Stored || !is_waiting {
            return;
        }
        entry.storage.is_listed = true;
        let record = entry.record();
        let op = low.disk.begin(Pending::Other);
        low.out.put(op, QUEUE, &id.to_be_bytes(), &record.to_bytes(), false);
    }

    fn drop_entry(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let Some(entry) = self.queue.remove(&mut low.env.memory, id) else { return };
        self.retries.cancel(id);
        self.resends.cancel(id);
        entry.paths.streams().for_each(|stream| low.custody.forget(stream, id));
        for from in &entry.upstream.awaiting {
            self.passed.remove(entry.envelope.seen.fingerprint());
            low.custody.answer(*from, entry.envelope.seen, Verdict::Full, low.now.mono);
            low.env.schedule_custody();
        }
        let key = entry.envelope.key;
        // CU-11: only custody needed the block of another node's letter. The place of a deleted block is used again, and a
        // sync of such a place is many times faster than one of a file that grows.
        let is_over = entry.is_letter_of_others() && entry.storage.block == Block::Stored;
        let is_deleted = match entry.storage.block {
            Block::MemoryOnly => false,
            _ if is_over => low.blocks.release(key),
            _ => {
                low.blocks.unpin(key);
                false
            }
        };
        if is_deleted || entry.storage.is_listed {
            let op = low.disk.begin(Pending::Other);
            low.out.batch(op, false, |batch| {
                if is_deleted {
                    delete_blocks(&[key], batch);
                }
                if entry.storage.is_listed {
                    batch.delete(QUEUE, &id.to_be_bytes());
                }
            });
        }
        if let Some(message) = entry.storage.message {
            low.links.recycle(message.frame);
        }
    }

    /// Removes a stored message from memory; its buffer is used again.
    fn unload(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        if let Some(message) = self.queue.unload(&mut low.env.memory, id) {
            low.links.recycle(message.frame);
        }
    }

    /// Removes the message of this outbox line, which is delivered or ended.
    pub(super) fn drop_own(&mut self, low: &mut Low<'_, '_>, number: u64) {
        if let Some(id) = self.queue.id_of(number) {
            self.drop_entry(low, id);
        }
    }

    /// Whether the message of this outbox line is queued.
    pub(super) fn has_own(&self, number: u64) -> bool {
        self.queue.id_of(number).is_some()
    }

    /// Withdraws a message of this node; true if it certainly never left (CU-23).
    pub(super) fn cancel(&mut self, low: &mut Low<'_, '_>, number: u64) -> bool {
        let entry = self.queue.id_of(number).and_then(|id| self.queue.get(id));
        let never_left = entry.is_some_and(|entry| entry.progress == Progress::Queued);
        self.drop_own(low, number);
        never_left
    }

    /// Why a message of this node waits.
    pub(super) fn why(&self, low: &Low<'_, '_>, number: u64) -> Option<Why> {
        let entry = self.queue.id_of(number).and_then(|id| self.queue.get(id))?;
        Some(if low.ring.len() == 0 {
            Why::NoPeer
        } else if entry.paths.is_refused() && entry.paths.is_idle() {
            Why::PeersFull
        } else if low.ring.get(entry.envelope.recipient).is_none() {
            Why::RecipientAway
        } else {
            Why::BeingSent
        })
    }

    /// Reads a queued message from the store again, once.
    fn fetch(&mut self, low: &mut Low<'_, '_>, id: EntryId) {
        let is_away = |entry: &&Entry| entry.storage.message.is_none();
        if let Some(key) = self.queue.get(id).filter(is_away).map(|entry| entry.envelope.key)
            && self.fetching.insert(id)
        {
            let op = low.disk.begin(Pending::Fetch(id));
            low.out.get(op, BLOCKS, &key.to_bytes());
        }
    }

    /// Handles the store's reply to a fetch. A failed read says nothing about the block, so it is tried again.
    pub(super) fn on_fetched(
        &mut self,
        low: &mut Low<'_, '_>,
        id: EntryId,
        value: Option<&[u8]>,
        fault: Option<StoreFault>,
    ) {
        self.fetching.remove(&id);
        if fault.is_some() {
            self.unread.insert(id);
            return Disk::retry_later(low.env, low.now);
        }
        let Some(entry) = self.queue.get(id) else { return };
        let key = entry.envelope.key;
        let Some(data) = value.filter(|data| Key::of(data) == key) else {
            low.blocks.delete_corrupt(&mut low.env.counters, low.disk, key, low.out);
            self.end_own(low, id);
            return self.drop_entry(low, id);
        };
        let message = Message::new(entry.envelope.sender, entry.envelope.recipient, data);
        let (targets, is_resend_due) = (entry.paths.targets().to_vec(), entry.is_resend_due);
        self.queue.loaded(&mut low.env.memory, id, message);
        if is_resend_due {
            self.resend(low, id);
        }
        targets.into_iter().for_each(|stream| self.pump(low, stream));
    }

    /// Repeats fetches: the store was busy or failed, and may have recovered.
    pub(super) fn retry_fetches(&mut self, low: &mut Low<'_, '_>) {
        for id in core::mem::take(&mut self.unread) {
            self.fetch(low, id);
        }
    }

    /// Whether a message waits for this recipient.
    pub(super) fn waits_for(&self, nid: Nid) -> bool {
        self.queue.iter().any(|(_, entry)| entry.envelope.recipient == nid)
    }

    /// How many messages are queued.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many messages are remembered as seen.
    pub(super) fn seen(&self) -> usize {
        self.passed.len()
    }
}

fn new_entry(
    low: &Low<'_, '_>,
    message: Message,
    (key, seen): (Key, SeenKey),
    from: Option<Nid>,
    outbox: Option<u64>,
) -> Entry {
    let (config, form) = (&low.env.config, read_form(message.data()));
    let letter = if let Form::Letter(letter) = form { Some(letter) } else { None };
    let expiry = match letter {
        // CU-17: a relay holds a letter for its lifetime.
        Some(letter) if from.is_some() => Duration::from_secs(letter.lifetime.into()).min(LIFETIME_MAX),
        None if from.is_some() => config.transit_expiry(),
        _ => config.expiry,
    };
    let envelope = Envelope {
        sender: message.sender,
        recipient: message.recipient,
        key,
        seen,
        size: message.data().len(),
        letter: letter.map(|letter| (letter.epoch, letter.number)),
    };
    let storage =
        Storage { message: Some(message), block: Block::Writing, is_listed: false, is_durable: false };
    Entry {
        upstream: Upstream { from, ..Upstream::default() },
        storage,
        until: low.now.mono + expiry,
        until_seconds: low.now.wall.as_seconds() + expiry.as_secs(),
        outbox,
        ..Entry::new(envelope)
    }
}

/// The peers that a message goes to from here (M-48, MA-43, MA-60). It never goes to its sender, whose copy is not one
/// more: in a circle the relays would let go of it.
fn next_peers(low: &Low<'_, '_>, entry: &Entry) -> [Option<Nid>; 2] {
    let Envelope { recipient, sender, .. } = entry.envelope;
    if low.ring.get(recipient).is_some() {
        return [Some(recipient).filter(|nid| entry.upstream.from != Some(*nid)), None];
    }
    let is_to_both = entry.is_own(low.env.own) || low.env.config.forward == Policy::Both;
    let from = entry.upstream.from.unwrap_or(sender);
    // By the letter of the document nobody takes the sender's place: the flood would only grow.
    let except = if is_to_both { [from; 2] } else { [sender, from] };
    let Some((younger, older)) = low.ring.around(recipient, &except) else { return [None; 2] };
    if is_to_both {
        return [Some(younger), Some(older).filter(|older| *older != younger)];
    }
    let nearer = if closer(recipient, younger, older) { younger } else { older };
    if closer(recipient, nearer, low.env.own) {
        return [Some(nearer), None];
    }
    // This node is next to the recipient. The node on the other side gets the message too, so that one of them may
    // die before the recipient comes (MA-45b).
    let Some((younger, older)) = low.ring.around(recipient, &[sender]) else { return [None; 2] };
    let we_are_younger = clockwise(younger, low.env.own) < clockwise(younger, recipient);
    let opposite = if we_are_younger { older } else { younger };
    [Some(opposite).filter(|nid| entry.upstream.from != Some(*nid)), None]
}

/// MA-45b: whether this node is next to an absent recipient, as far as it knows, the sender left out.
fn is_custodian(low: &Low<'_, '_>, entry: &Entry) -> bool {
    if low.ring.get(entry.envelope.recipient).is_some() {
        return false;
    }
    let Some((younger, older)) = low.ring.around(entry.envelope.recipient, &[entry.envelope.sender]) else {
        return true;
    };
    younger == older || clockwise(younger, low.env.own) < clockwise(younger, older)
}
