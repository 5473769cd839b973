//! Delivery: messages for this node are stored, reported once they are on disk, and confirmed if the sender requested
//! it.
//!
//! | message | no room | stored | arrives again |
//! |---|---|---|---|
//! | letter | verdict `full`, or nothing to a foreign peer: its sender has it | receipt, verdict `delivered` | receipt again |
//! | plain, from a peer that speaks custody | verdict `full` | verdict `delivered` | verdict `delivered` |
//! | plain, from a foreign peer | [deferred](deferred) | reported | dropped |
//!
//! The node processes receipts and messages of files whether or not there is room for them.

mod deferred;
mod inbound;
mod received;
mod send;

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::disk::{Disk, Pending, PendingDelivery};
use super::env::Cx;
use super::form::{Form, Verdict, read_form};
use super::forward::LIFETIME_MAX;
use super::letters::Letters;
use super::machine::{LETTERS, OUTBOX};
use super::message::{Fingerprint, LetterId, Message, SeenKey};
use super::nid::{Key, Nid};
use super::records::{Received, Sent, SentState};
use super::timers::Timer;
use super::{Event, Reply};
use crate::store::StoreFault;
use crate::tag::RequestId;
use crate::time::{Instant, Now};

use deferred::DeferredDeliveries;
use received::ReceivedSet;
pub(super) use send::SendOptions;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delivery {
    /// Plain messages that were for this node; also in the store.
    received: ReceivedSet,
    letters: Letters,
    /// Messages for this node that are being stored, and the peers that gave them again meanwhile.
    storing: BTreeMap<SeenKey, BTreeSet<Nid>>,
    deferred: DeferredDeliveries,
    /// Closed letters whose final state is not on disk yet, with their numbers in the outbox.
    unclosed: BTreeMap<LetterId, u64>,
}

/// A stored message that belongs to a file. The files part decides whether its block stays pinned.
pub(super) struct FileForm {
    pub(super) message: Message,
    pub(super) key: Key,
    /// Whether the block is stored and pinned.
    pub(super) is_pinned: bool,
}

impl Delivery {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            received: ReceivedSet::new(config.seen_max),
            letters: Letters::default(),
            storing: BTreeMap::new(),
            deferred: DeferredDeliveries::default(),
            unclosed: BTreeMap::new(),
        }
    }

    /// Draws the epoch of this start, stores the number of the mailbox if it is new, and sends receipts that may have
    /// been lost.
    pub(super) fn start(&mut self, cx: &mut Cx<'_, '_>) {
        if let Some(mailbox) = self.letters.start(&mut cx.low.env.rng) {
            let op = cx.low.disk.begin(Pending::Other);
            cx.low.out.put(op, LETTERS, MAILBOX_KEY, &mailbox.to_be_bytes(), true);
        }
        if self.letters.owe_again(cx.low.now.mono) {
            cx.low.env.timers.set_earlier(Timer::Receipts, cx.low.now.mono);
        }
    }

    /// Remembers a message as seen. Returns whether it is new.
    pub(super) fn note_seen(&mut self, cx: &Cx<'_, '_>, seen: SeenKey, is_user_message: bool) -> bool {
        let now = cx.low.now.mono;
        self.received.insert(seen, now, now + cx.low.env.config.seen_for(is_user_message))
    }

    /// Remembers a message that was delivered before the restart.
    pub(super) fn load_seen(&mut self, seen: Fingerprint, now: Instant, until: Instant) {
        self.received.load(seen, now, until);
    }

    /// Loads a record of [`LETTERS`].
    pub(super) fn load_letter(&mut self, key: &[u8], value: &[u8], now: Now) {
        match (key, value.first_chunk::<8>()) {
            (MAILBOX_KEY, Some(mailbox)) => self.letters.set_mailbox(u64::from_be_bytes(*mailbox)),
            _ => self.letters.load(key, value, now, LIFETIME_MAX),
        }
    }

    /// Loads a line of the outbox: an open letter keeps its number.
    pub(super) fn load_sent(&mut self, line: &Sent) {
        if let Some((epoch, number)) = line.letter.filter(|_| line.state.is_open()) {
            self.letters.opened((line.to, epoch, number), line.number);
        }
    }

    /// Closes a letter of this node. Its number counts as open until its final state is on disk. Otherwise a restart
    /// could find it open although `least` has passed it, and take a receipt of later letters for its own.
    pub(super) fn close_letter(&mut self, cx: &mut Cx<'_, '_>, letter: LetterId, number: u64) {
        let low = &mut cx.low;
        let Some(line) = low.mailboxes.sent(number) else { return self.letters.closed(letter) };
        let op = low.disk.begin(Pending::Close { letter, number });
        low.out.put(op, OUTBOX, &number.to_be_bytes(), &line.to_bytes(), true);
    }

    /// Handles the store's reply about the final state of a letter.
    pub(super) fn on_closed(&mut self, cx: &mut Cx<'_, '_>, letter: LetterId, number: u64, is_stored: bool) {
        if is_stored {
            self.letters.closed(letter);
        } else {
            self.unclosed.insert(letter, number);
            Disk::retry_later(cx.low.env, cx.low.now);
        }
    }

    /// Writes final states again that could not be written.
    pub(super) fn retry_closing(&mut self, cx: &mut Cx<'_, '_>) {
        for (letter, number) in core::mem::take(&mut self.unclosed) {
            self.close_letter(cx, letter, number);
        }
    }

    /// The disk did not take the last state of a message of this node. If its lifetime ended meanwhile, the queue has let
    /// go of it, and its state says so only now.
    pub(super) fn reopen(&mut self, cx: &mut Cx<'_, '_>, number: u64) {
        let low = &mut cx.low;
        low.mailboxes.abandon_closing(number);
        if cx.forward.has_own(number) {
            return;
        }
        let line = low.mailboxes.set_state(low.disk, number, SentState::Unconfirmed, low.out);
        if let Some((to, (epoch, letter))) = line.and_then(|line| Some((line.to, line.letter?))) {
            self.close_letter(cx, (to, epoch, letter), number);
        }
    }

    /// Forgets delivered messages whose time is over and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Fingerprint> {
        core::iter::from_fn(|| self.received.pop_expired(now)).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.received.next_deadline()
    }

    pub(super) fn seen(&self) -> usize {
        self.received.len()
    }

    /// Handles the store's reply. Returns a message that belongs to a file.
    pub(super) fn on_stored(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: PendingDelivery,
        fault: Option<StoreFault>,
    ) -> Option<FileForm> {
        let PendingDelivery {
            message,
            key,
            seen,
            received,
            request,
            is_stored,
            confirms,
            is_new,
            letter,
            from,
            ..
        } = delivery;
        cx.low.env.memory.delivering -= message.body().len();
        if fault.is_some() && is_stored {
            cx.low.blocks.write_failed(key, is_new);
        }
        let waiting = self.storing.remove(&seen).unwrap_or_default();
        self.answer(cx, from.into_iter().chain(waiting), seen, fault.is_none());
        if let Some(letter) = letter {
            self.letters.stored((message.sender, letter.epoch, letter.number), fault.is_none());
        }
        if let (Some(fault), Some((request, _))) = (fault, request) {
            self.received.remove(seen);
            cx.low.out.reply(request, Reply::StoreFailed { fault });
            return None;
        }
        if let Some(fault) = fault {
            cx.low.env.counters.messages_unsaved += 1;
            cx.low.out.event(Event::StoreFailed { fault });
        }
        let (is_pinned, is_news) = (fault.is_none() && is_stored, !confirms.is_empty());
        for sent in confirms {
            self.on_confirmed(cx, sent, fault);
        }
        let mut file_form = None;
        match (read_form(message.data()), received) {
            (Form::Letter(_), _) if fault.is_some() => {}
            (Form::Letter(letter), Some(received)) => {
                self.report(cx, &message, received);
                self.owe_receipt(cx, message.sender, letter.epoch);
            }
            (Form::Plain(_) | Form::Ask { .. }, Some(_)) if fault.is_some() => {
                self.received.remove(seen);
                if from.is_none_or(|from| !cx.low.custody.speaks_to(from)) {
                    self.deferred.set_stuck(true);
                    self.note_seen(cx, seen, true);
                    self.defer(cx, message.clone(), key);
                }
            }
            (Form::Plain(_) | Form::Ask { .. }, Some(received)) => self.report(cx, &message, received),
            (Form::Receipt { key: of, received_at }, _) => {
                on_receipt(cx, message.sender, of, received_at, is_news);
                unpin(cx, key, is_pinned);
            }
            (Form::Receipts(_) | Form::Refusal { .. } | Form::Custody(_), _) => unpin(cx, key, is_pinned),
            // A block that is not stored counts as lost: it will be sent again.
            (Form::Block { .. }, _) if fault.is_some() => {}
            _ => file_form = Some(FileForm { message: message.clone(), key, is_pinned }),
        }
        request.inspect(|(request, sent)| reply_sent(cx, *request, *sent));
        file_form
    }

    /// Answers the peers that gave a message.
    fn answer(
        &mut self,
        cx: &mut Cx<'_, '_>,
        peers: impl IntoIterator<Item = Nid>,
        seen: SeenKey,
        is_delivered: bool,
    ) {
        let verdict = if is_delivered { Verdict::Delivered } else { Verdict::Full };
        for nid in peers {
            cx.low.custody.answer(nid, seen, verdict, cx.low.now.mono);
        }
        cx.low.env.schedule_custody();
    }

    /// Puts a user message into the inbox, reports it, and confirms it if the sender requested it.
    fn report(&mut self, cx: &mut Cx<'_, '_>, message: &Message, received: Received) {
        cx.low.env.counters.messages_delivered += 1;
        self.deferred.set_stuck(false);
        cx.low.mailboxes.insert_inbox(received);
        cx.low.out.event(Event::MessageReceived { message: received, data: message.clone().into() });
        if matches!(read_form(message.data()), Form::Ask { .. }) && message.sender != cx.low.env.own {
            let receipt = Form::Receipt { key: received.key, received_at: cx.low.now.wall.as_seconds() };
            self.send_form(cx, message.sender, &receipt);
        }
        self.wake_deferred(cx);
    }

    /// Reports a confirmed message, once its state is on disk.
    fn on_confirmed(&mut self, cx: &mut Cx<'_, '_>, sent: Sent, fault: Option<StoreFault>) {
        let low = &mut cx.low;
        if fault.is_some() && sent.letter.is_some() {
            // The letter stays open: it is sent again, and its recipient confirms it again. A state that is not on disk would
            // be another one after a restart.
            return self.reopen(cx, sent.number);
        }
        low.mailboxes.end_confirming(&sent);
        let is_news = if fault.is_some() {
            // The state cannot be written. The application gets it even so.
            low.mailboxes.set_state(low.disk, sent.number, SentState::Delivered, low.out).is_some()
        } else {
            let is_news = low.mailboxes.note_state(sent.number, SentState::Delivered).is_some();
            if is_news {
                low.out.event(sent.state_changed());
            }
            is_news
        };
        if let Some((epoch, number)) = sent.letter {
            self.letters.closed((sent.to, epoch, number));
            if is_news {
                let received_at = sent.delivered_at.unwrap_or_default();
                let confirmed =
                    Event::MessageConfirmed { number: sent.number, by: sent.to, key: sent.key, received_at };
                low.out.event(confirmed);
            }
        }
        if is_news {
            cx.forward.drop_own(low, sent.number);
        }
    }

    fn owe_receipt(&mut self, cx: &mut Cx<'_, '_>, from: Nid, epoch: u64) {
        let at = self.letters.owe(from, epoch, cx.low.now.mono);
        cx.low.env.timers.set_earlier(Timer::Receipts, at);
    }

    /// Sends the receipts that are due, and replaces records of single letters by cumulative ones.
    pub(super) fn send_receipts(&mut self, cx: &mut Cx<'_, '_>) {
        let now = cx.low.now;
        for (to, receipts) in self.letters.take_receipts(now.mono, &mut cx.low.env.rng) {
            if let Some(compaction) = self.letters.compact(to, receipts.epoch) {
                let op = cx.low.disk.begin(Pending::Other);
                cx.low.out.batch(op, false, |batch| {
                    batch.put(LETTERS, &compaction.key, &compaction.value);
                    compaction.replaced.iter().for_each(|key| batch.delete(LETTERS, key));
                });
            }
            self.send_form(cx, to, &Form::Receipts(receipts));
        }
        if let Some(at) = self.letters.next_receipt() {
            cx.low.env.timers.set_earlier(Timer::Receipts, at);
        }
    }
}

/// A message from this node to itself is in the inbox, so its sender gets the reply.
fn reply_sent(cx: &mut Cx<'_, '_>, request: RequestId, sent: Sent) {
    let (low, Sent { number, key, until, .. }) = (&mut cx.low, sent);
    low.mailboxes.append_outbox(low.disk, sent, low.now.mono + low.env.config.expiry, low.out);
    low.out.reply(request, Reply::Sent { number, key, until, is_letter: false });
}

/// The key of the mailbox's number in [`LETTERS`].
const MAILBOX_KEY: &[u8] = b"mailbox";

fn unpin(cx: &mut Cx<'_, '_>, key: Key, is_pinned: bool) {
    if is_pinned {
        cx.low.blocks.unpin(key);
    }
}

fn on_receipt(cx: &mut Cx<'_, '_>, from: Nid, key: Key, received_at: u64, is_news: bool) {
    match cx.low.mailboxes.answered_by(from, key) {
        Some(number) if is_news => {
            cx.low.out.event(Event::MessageConfirmed { number, by: from, key, received_at });
        }
        Some(_) => {}
        None => cx.low.env.counters.receipts_unmatched += 1,
    }
}
