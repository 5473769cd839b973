//! Sending: messages of this node, as letters to nodes that know them and as plain DATA to all others (CU-6).

use core::time::Duration;

use super::Delivery;
use crate::tag::RequestId;
use crate::w3w::env::Cx;
use crate::w3w::form::{Form, Letter};
use crate::w3w::mailboxes::Listing;
use crate::w3w::message::{Message, SeenKey};
use crate::w3w::nid::{Key, Nid};
use crate::w3w::{BookEntry, Reply};

/// The send options of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::w3w) struct SendOptions {
    /// Whether a plain message requests a receipt.
    pub(in crate::w3w) receipt: bool,
    /// Whether the user says that the recipient knows letters.
    pub(in crate::w3w) letter: bool,
    pub(in crate::w3w) lifetime: Option<Duration>,
}

impl Delivery {
    /// Sends a message of the application.
    ///
    /// # Errors
    /// The reply, if the message is too long, a duplicate, or finds no room.
    pub(in crate::w3w) fn send_user_message(
        &mut self,
        cx: &mut Cx<'_, '_>,
        request: RequestId,
        to: Nid,
        payload: &[u8],
        options: SendOptions,
    ) -> Result<(), Reply> {
        let lifetime = options.lifetime.unwrap_or(cx.low.env.config.expiry);
        if cx.low.mailboxes.is_outbox_full() {
            return Err(Reply::QueueFull);
        }
        let is_letter = to != cx.low.env.own && (options.letter || cx.low.book.knows_letters(to));
        let is_noted = |entry: &BookEntry| entry.is_written_to && (entry.knows_letters || !options.letter);
        if !cx.low.book.get(to).is_some_and(is_noted) {
            cx.low.note_about(to, |entry| {
                entry.is_written_to = true;
                entry.knows_letters |= options.letter;
            });
        }
        if !is_letter {
            let nonce = if options.receipt { cx.low.env.rng.next_u64() } else { 0 };
            let form = if options.receipt { Form::Ask { nonce, payload } } else { Form::Plain(payload) };
            let message = Message::of_form(cx.low.env.own, to, &form);
            let size = message.data().len() as u64;
            let listing =
                Listing { wants_receipt: options.receipt, is_file: false, size, letter: None, lifetime };
            return self.send(cx, message, Some(listing), Some(request)).map(drop);
        }
        let (epoch, number, least) = self.letters.allot(to);
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let letter = Letter { epoch, number, least, attempt: 0, lifetime: seconds, payload };
        let message = Message::of_form(cx.low.env.own, to, &Form::Letter(letter));
        let listing = Listing {
            wants_receipt: false,
            is_file: false,
            size: payload.len() as u64,
            letter: Some((epoch, number)),
            lifetime,
        };
        if let Some(outbox) = self.send(cx, message, Some(listing), Some(request))? {
            self.letters.opened((to, epoch, number), outbox);
        }
        Ok(())
    }

    /// Sends a message to another node or to this one; returns its number in the outbox.
    ///
    /// # Errors
    /// The reply, if the message is too long, a duplicate, or finds no room.
    pub(in crate::w3w) fn send(
        &mut self,
        cx: &mut Cx<'_, '_>,
        message: Message,
        listing: Option<Listing>,
        request: Option<RequestId>,
    ) -> Result<Option<u64>, Reply> {
        if message.data().len() > cx.low.env.config.data_bytes_max {
            return Err(Reply::TooLong { data_bytes_max: cx.low.env.config.data_bytes_max });
        }
        let (key, to) = (Key::of(message.data()), message.recipient);
        let (seen, now) = (SeenKey::new(cx.low.env.own, to, key), cx.low.now.mono);
        if cx.forward.has_seen(seen, now) || self.received.contains(seen, now) {
            return Err(Reply::Duplicate { key });
        }
        cx.low.env.counters.messages_sent += 1;
        if to == cx.low.env.own {
            // MA-44: a message to this node needs no network.
            self.note_seen(cx, seen, true);
            self.deliver(cx, None, message, (key, seen), Vec::new(), request.zip(listing));
            return Ok(None);
        }
        cx.forward.enqueue(&mut cx.low, message, (key, seen), listing, request)
    }

    /// Sends a form that is not listed in the outbox; without room it counts as lost.
    pub(in crate::w3w) fn send_form(&mut self, cx: &mut Cx<'_, '_>, to: Nid, form: &Form<'_>) {
        let message = Message::of_form(cx.low.env.own, to, form);
        match self.send(cx, message.clone(), None, None) {
            Ok(_) => {}
            // With a full store the node must still send receipts.
            Err(Reply::QuotaFull) if to != cx.low.env.own => {
                let key = Key::of(message.data());
                cx.forward.enqueue_unsaved(&mut cx.low, message, key);
            }
            Err(_) => cx.low.env.counters.queue_dropped += 1,
        }
    }
}
