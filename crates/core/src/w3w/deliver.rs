//! What is for us: saved, told once it is safe, and confirmed if its sender asked for that.
//!
//! A message that people read and that finds no room waits on the [doorstep](super::doorstep): until it is in the store it is
//! neither told nor confirmed. Receipts and what belongs to files are understood whether or not there is room for them.

use core::time::Duration;

use super::boxes::{Received, Sent, SentState};
use super::form::{Form, read_form};
use super::machine::{Mesh, Out};
use super::message::{Message, SeenKey};
use super::nid::{Key, Nid};
use super::room::Saving;
use super::save::Listing;
use super::{Event, Reply};
use crate::store::StoreFault;
use crate::tag::RequestId;
use crate::time::Now;

/// A message for us that is being saved.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) key: Key,
    /// Whether the block is written for the first time.
    pub(super) is_new: bool,
    /// Whether its block is kept at all.
    pub(super) is_shelved: bool,
    /// Whether it is a block of a file: then it need not be safe before the whole file is.
    pub(super) is_part: bool,
    pub(super) received: Option<Received>,
    /// What is thrown away to make room for it.
    pub(super) evicted: Vec<Key>,
    /// The message of ours that it confirms, as it is from then on: written together with it, and told after that.
    pub(super) confirms: Option<Sent>,
    /// If it is from ourselves: who waits for the answer, and its line in the outbox.
    pub(super) request: Option<(RequestId, Sent)>,
}

impl Mesh {
    /// SAVE of a message for us: it is told to the application once it is safe.
    pub(super) fn deliver(
        &mut self,
        now: Now,
        message: Message,
        key: Key,
        request: Option<(RequestId, Listing)>,
        out: Out<'_, '_>,
    ) {
        let (size, seconds) = (message.data().len(), now.wall.as_seconds());
        let form = read_form(message.data());
        let is_for_people = matches!(form, Form::Plain(_) | Form::Ask { .. });
        let is_part = matches!(form, Form::Block { .. });
        let confirms =
            self.confirmed_by(&form, message.sender).and_then(|number| self.post.begin_confirming(number));
        let is_new = !self.shelf.has(key);
        let room = self.room_for(key, size);
        let is_shelved = room.is_some();
        if !is_shelved && (is_for_people || is_part) {
            return match request {
                Some((request, _)) => {
                    self.received.forget(SeenKey::new(message.sender, message.recipient, key));
                    out.reply(request, Reply::QuotaFull);
                }
                None if is_for_people => self.wait_outside(now, message, key, out),
                // A block of a file that is not in the store has not come: it will be sent again.
                None => {
                    self.counters.unsaved += 1;
                    out.event(Event::StoreFailed { fault: StoreFault::Full });
                }
            };
        }
        let received = is_for_people.then(|| Received {
            number: self.post.allot_in(),
            from: message.sender,
            key,
            size: size as u64,
            received_at: seconds,
            is_file: false,
        });
        let evicted = room.unwrap_or_default();
        let request = request.map(|(request, listing)| {
            let sent = self.new_sent(now, self.own, key, listing);
            (request, Sent { state: SentState::Delivered, ..sent })
        });
        if is_shelved {
            self.shelf.add(key, size as u64, Duration::ZERO, now.mono);
            self.shelf.pin(key);
        }
        let is_new = is_new && is_shelved;
        let delivery =
            Delivery { message, key, is_new, is_shelved, is_part, received, evicted, confirms, request };
        self.delivering_bytes += delivery.message.body().len();
        let seen = SeenKey::new(delivery.message.sender, delivery.message.recipient, key);
        self.delivering.insert(seen);
        self.save(now, Saving::Deliver(Box::new(delivery)), out);
    }

    /// The store has answered.
    pub(super) fn delivered(
        &mut self,
        now: Now,
        delivery: Delivery,
        fault: Option<StoreFault>,
        out: Out<'_, '_>,
    ) {
        let Delivery { message, key, received, request, is_shelved, confirms, .. } = delivery;
        self.delivering.remove(&SeenKey::new(message.sender, message.recipient, key));
        if let (Some(fault), Some((request, _))) = (fault, request) {
            self.received.forget(SeenKey::new(message.sender, message.recipient, key));
            return out.reply(request, Reply::StoreFailed { fault });
        }
        if let Some(fault) = fault {
            self.counters.unsaved += 1;
            out.event(Event::StoreFailed { fault });
        }
        let is_kept = fault.is_none() && is_shelved;
        if let Some(sent) = confirms {
            self.confirmed(sent, fault, out);
        }
        match (read_form(message.data()), received) {
            (Form::Plain(_) | Form::Ask { .. }, Some(_)) if fault.is_some() => {
                self.doorstep.is_stuck = true;
                self.wait_outside(now, message.clone(), key, out);
            }
            (Form::Plain(_) | Form::Ask { .. }, Some(received)) => {
                self.for_people(now, &message, received, out);
            }
            (Form::Receipt { key: of, received_at }, _) => {
                self.receipt(message.sender, of, received_at, confirms.is_some(), out);
                if is_kept {
                    self.shelf.unpin(key);
                }
            }
            // A block that is not in the store has not come: it will be sent again.
            (Form::Block { .. }, _) if fault.is_some() => {}
            _ => {
                let is_part = self.file_message(now, &message, key, out);
                if is_kept && !is_part {
                    self.shelf.unpin(key);
                }
            }
        }
        if let Some((request, sent)) = request {
            let number = sent.number;
            self.put_sent(now, sent, out);
            out.reply(request, Reply::Sent { number, key });
        }
        self.remind(now);
        self.repay(now, out);
    }

    /// A message that people read: into the inbox, told, and confirmed if its sender asked for it.
    fn for_people(&mut self, now: Now, message: &Message, received: Received, out: Out<'_, '_>) {
        self.counters.messages_delivered += 1;
        self.doorstep.is_stuck = false;
        self.put_received(received, out);
        out.event(Event::MessageReceived { message: received, data: message.clone().into() });
        if matches!(read_form(message.data()), Form::Ask { .. }) && message.sender != self.own {
            let receipt = Form::Receipt { key: received.key, received_at: now.wall.as_seconds() };
            self.send_form(now, message.sender, &receipt, out);
        }
        self.knock(now);
    }

    /// A sender gives us again what we have: our receipt was lost, for we died before it was on its way. What is not safe
    /// yet is confirmed when it is.
    pub(super) fn confirm_again(
        &mut self,
        now: Now,
        message: &Message,
        key: Key,
        seen: SeenKey,
        out: Out<'_, '_>,
    ) {
        let is_asked = matches!(read_form(message.data()), Form::Ask { .. });
        if is_asked && !self.delivering.contains(&seen) && !self.doorstep.has(message.sender, key) {
            let receipt = Form::Receipt { key, received_at: now.wall.as_seconds() };
            self.send_form(now, message.sender, &receipt, out);
        }
    }

    /// Which message of ours this says to be safe at its recipient.
    fn confirmed_by(&self, form: &Form<'_>, from: Nid) -> Option<u64> {
        match form {
            Form::Receipt { key, .. } => self.post.answered_by(from, *key),
            Form::Progress(progress) if progress.is_complete => {
                self.files.outgoing.get(&(progress.file, from)).and_then(|outgoing| outgoing.number)
            }
            _ => None,
        }
    }

    /// What is known of a message of ours is on the disk: a receipt is not sent twice, so only then is it told.
    fn confirmed(&mut self, sent: Sent, fault: Option<StoreFault>, out: Out<'_, '_>) {
        self.post.end_confirming(sent.number);
        if fault.is_some() {
            // The disk does not take it. The one who waits is told all the same.
            self.set_sent_state(sent.number, SentState::Delivered, out);
        } else if self.post.set_state(sent.number, SentState::Delivered).is_some() {
            self.tell_sent_state(sent, out);
        }
    }

    fn receipt(&mut self, from: Nid, key: Key, received_at: u64, is_news: bool, out: Out<'_, '_>) {
        match self.post.answered_by(from, key) {
            Some(number) if is_news => {
                out.event(Event::MessageConfirmed { number, by: from, key, received_at });
            }
            Some(_) => {}
            None => self.counters.receipts_unmatched += 1,
        }
    }
}
