//! Messages for this node: whether they are new, answered at once, or have room.

use core::time::Duration;

use super::Delivery;
use crate::store::StoreFault;
use crate::tag::RequestId;
use crate::time::Now;
use crate::w3w::disk::{LetterRecord, PendingDelivery, PendingWrite};
use crate::w3w::env::Cx;
use crate::w3w::form::{Form, Letter, Receipts, RefusalReason, Verdict, read_form};
use crate::w3w::forward::LIFETIME_MAX;
use crate::w3w::letters::{Arrival, Span, single_key};
use crate::w3w::machine::LETTERS;
use crate::w3w::mailboxes::Listing;
use crate::w3w::message::{Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::records::{Received, Sent, SentState};
use crate::w3w::{Event, Reply};

impl Delivery {
    /// Handles a message for this node from a peer. `confirmed` are the outbox lines that it confirms.
    pub(in crate::w3w) fn receive(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Nid,
        message: Message,
        key: Key,
        confirmed: Vec<u64>,
    ) {
        let seen = SeenKey::new(message.sender, message.recipient, key);
        let form = read_form(message.data());
        if let Form::Letter(letter) = form {
            return self.receive_letter(cx, from, &message, (key, seen), letter);
        }
        let is_user_message = matches!(form, Form::Plain(_) | Form::Ask { .. });
        if is_user_message && !self.received.has_room_for(seen) {
            // CU-22: a message that cannot be remembered as seen could be delivered twice.
            cx.low.env.counters.messages_unsaved += 1;
            self.answer(cx, [from], seen, false);
            let size = message.data().len() as u64;
            let deferred = Event::MessageDeferred { from: message.sender, key, size, is_waiting: false };
            return cx.low.out.event(deferred);
        }
        let is_new = self.note_seen(cx, seen, is_user_message);
        cx.low.env.schedule_expiry();
        if is_new || cx.low.env.config.forgets_seen() {
            return self.deliver(cx, Some(from), message, (key, seen), confirmed, None);
        }
        cx.low.env.counters.duplicates_dropped += 1;
        if let Some(waiting) = self.storing.get_mut(&seen) {
            waiting.insert(from);
            return;
        }
        let is_deferred = self.deferred.contains(message.sender, key);
        self.answer(cx, [from], seen, !is_deferred);
        if from == message.sender && matches!(form, Form::Ask { .. }) && !is_deferred {
            // The sender retransmits the message: the receipt was lost.
            let receipt = Form::Receipt { key, received_at: cx.low.now.wall.as_seconds() };
            self.send_form(cx, message.sender, &receipt);
        }
    }

    /// Handles a letter (CU-9).
    fn receive_letter(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Nid,
        message: &Message,
        (key, seen): (Key, SeenKey),
        letter: Letter<'_>,
    ) {
        let sender = message.sender;
        let id = (sender, letter.epoch, letter.number);
        cx.low.note_letters(sender, None);
        let arrival = self.letters.arrived(id, letter.least);
        match arrival {
            Arrival::Known if !cx.low.env.config.forgets_numbers() => {
                cx.low.env.counters.duplicates_dropped += 1;
                self.answer(cx, [from], seen, true);
                self.owe_receipt(cx, sender, letter.epoch);
            }
            // Another attempt of it is being stored. Its bytes differ, so the peer must give this one again.
            Arrival::Storing => match self.storing.get_mut(&seen) {
                Some(waiting) => drop(waiting.insert(from)),
                None => self.answer(cx, [from], seen, false),
            },
            Arrival::Full => self.answer(cx, [from], seen, false),
            Arrival::New | Arrival::Known => {
                let size = message.data().len() as u64;
                if size > cx.low.env.config.quota_bytes {
                    return self.refuse_letter(cx, from, message, seen, letter);
                }
                let span = span_of(cx.low.now, &letter);
                let has_room = cx.low.blocks.has_room_for(key, size) && !cx.low.mailboxes.is_inbox_full();
                let evicted =
                    has_room.then(|| self.letters.storing(id, letter.least, cx.low.now.mono, span)).flatten();
                let Some(evicted) = evicted else {
                    cx.low.env.counters.messages_unsaved += 1;
                    self.answer(cx, [from], seen, false);
                    let deferred = Event::MessageDeferred { from: sender, key, size, is_waiting: false };
                    return cx.low.out.event(deferred);
                };
                evicted.iter().for_each(|key| cx.low.delete(LETTERS, key));
                self.deliver(cx, Some(from), message.clone(), (key, seen), Vec::new(), None);
            }
        }
    }

    /// Refuses a letter that this node can never take.
    fn refuse_letter(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Nid,
        message: &Message,
        seen: SeenKey,
        letter: Letter<'_>,
    ) {
        self.answer(cx, [from], seen, true);
        let (nonce, reason) = (cx.low.env.rng.next_u64(), RefusalReason::TooLong);
        let Letter { epoch, number, .. } = letter;
        self.send_form(cx, message.sender, &Form::Refusal { nonce, epoch, number, reason });
    }

    /// The outbox lines that a receipt confirms. Notes whether the recipient lost its store (CU-10).
    pub(in crate::w3w) fn covered(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Nid,
        receipts: &Receipts,
    ) -> Vec<u64> {
        let known = cx.low.book.get(from).and_then(|entry| entry.mailbox);
        cx.low.note_letters(from, Some(receipts.mailbox));
        if known.is_some_and(|mailbox| mailbox != receipts.mailbox) {
            cx.low.out.event(Event::RecipientLostStore { nid: from });
        }
        self.letters.covered(from, receipts)
    }

    /// Handles a refusal by the recipient of a letter.
    pub(in crate::w3w) fn on_refusal(
        &mut self,
        cx: &mut Cx<'_, '_>,
        (from, epoch, number): (Nid, u64, u64),
        reason: RefusalReason,
    ) {
        let letter = (from, epoch, number);
        let Some(outbox) = self.letters.outbox_of(letter) else { return };
        let low = &mut cx.low;
        low.mailboxes.update(low.disk, outbox, |line| line.refusal = Some(reason), low.out);
        low.mailboxes.set_state(low.disk, outbox, SentState::Refused, low.out);
        cx.forward.drop_own(low, outbox);
        self.close_letter(cx, letter, outbox);
    }

    /// Stores a message for this node.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Option<Nid>,
        message: Message,
        (key, seen): (Key, SeenKey),
        confirmed: Vec<u64>,
        request: Option<(RequestId, Listing)>,
    ) {
        let (size, seconds) = (message.data().len(), cx.low.now.wall.as_seconds());
        let form = read_form(message.data());
        let is_user_message = matches!(form, Form::Plain(_) | Form::Ask { .. } | Form::Letter(_));
        let is_part = matches!(form, Form::Block { .. });
        let letter = letter_record(cx.low.now, message.sender, &form);
        let is_inbox_full = is_user_message && cx.low.mailboxes.is_inbox_full();
        let claim =
            |cx: &mut Cx<'_, '_>| cx.low.blocks.claim(&mut cx.low.env.counters, key, size, cx.low.now.mono);
        let claimed = if is_inbox_full { None } else { claim(cx) };
        let is_stored = claimed.is_some();
        let (is_new, evicted) = claimed.map_or_else(Default::default, |block| (block.is_new, block.evicted));
        if !is_stored && (is_user_message || is_part) {
            return self.no_room(
                cx,
                from,
                message,
                (key, seen),
                is_user_message,
                request.map(|(request, _)| request),
            );
        }
        let received = is_user_message.then(|| Received {
            number: cx.low.mailboxes.allot_in(),
            from: message.sender,
            key,
            size: user_size(&form, size),
            received_at: seconds,
            is_file: false,
        });
        let confirms: Vec<Sent> = confirmed
            .into_iter()
            .filter_map(|number| cx.low.mailboxes.begin_confirming(number, seconds))
            .collect();
        let request = request.map(|(request, listing)| {
            let sent = cx.low.mailboxes.new_sent(cx.low.now, cx.low.env.own, key, listing);
            (request, Sent { state: SentState::Delivered, delivered_at: Some(seconds), ..sent })
        });
        cx.low.env.memory.delivering += message.body().len();
        self.storing.entry(seen).or_default();
        let delivery = PendingDelivery {
            message,
            key,
            seen,
            is_new,
            is_stored,
            is_part,
            received,
            evicted,
            confirms,
            letter,
            from,
            request,
        };
        let low = &mut cx.low;
        low.disk.write(low.env, low.now, PendingWrite::Deliver(Box::new(delivery)), low.out);
    }

    /// Handles a message that the store has no room for.
    fn no_room(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Option<Nid>,
        message: Message,
        (key, seen): (Key, SeenKey),
        is_user_message: bool,
        request: Option<RequestId>,
    ) {
        if let Some(request) = request {
            self.received.remove(seen);
            return cx.low.out.reply(request, Reply::QuotaFull);
        }
        if !is_user_message {
            // A block of a file that is not stored counts as lost: it will be sent again.
            cx.low.env.counters.messages_unsaved += 1;
            return cx.low.out.event(Event::StoreFailed { fault: StoreFault::Full });
        }
        let custodian = from.filter(|from| cx.low.custody.speaks_to(*from));
        let Some(custodian) = custodian else { return self.defer(cx, message, key) };
        // The peer keeps the message.
        self.received.remove(seen);
        if let Form::Letter(letter) = read_form(message.data()) {
            self.letters.stored((message.sender, letter.epoch, letter.number), false);
        }
        cx.low.env.counters.messages_unsaved += 1;
        cx.low.custody.answer(custodian, seen, Verdict::Full, cx.low.now.mono);
        cx.low.env.schedule_custody();
        let size = message.data().len() as u64;
        let deferred = Event::MessageDeferred { from: message.sender, key, size, is_waiting: false };
        cx.low.out.event(deferred);
    }
}

/// The record of a received letter.
fn letter_record(now: Now, sender: Nid, form: &Form<'_>) -> Option<LetterRecord> {
    let Form::Letter(letter) = form else { return None };
    let Letter { epoch, number, .. } = *letter;
    let (key, value) = (single_key(sender, epoch, number), span_of(now, letter).to_bytes());
    Some(LetterRecord { epoch, number, key, value })
}

/// When a letter arrived, and when its lifetime ends.
fn span_of(now: Now, letter: &Letter<'_>) -> Span {
    Span::new(now, Duration::from_secs(letter.lifetime.into()).min(LIFETIME_MAX))
}

/// The size of the payload, as shown to the user.
fn user_size(form: &Form<'_>, size: usize) -> u64 {
    if let Form::Letter(letter) = form { letter.payload.len() as u64 } else { size as u64 }
}
