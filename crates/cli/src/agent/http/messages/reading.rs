//! The mailbox as JSON, piece by piece: a client that reads slowly, or not at all, holds one message and one piece.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::sync::OwnedSemaphorePermit;

use super::{Api, Names, shown};
use crate::agent::mailbox::{Letter, Mailbox};

/// Bytes of a payload that are written at once: a multiple of three, so that their texts in base64 make up one.
const PIECE_BYTES: usize = 48 * 1024;

/// The end of a message: its last field is a text.
const END: &str = "\"}";

/// One client's way through the messages that were there when it came. Those that made room for others before their turn
/// are left out.
pub(super) struct Reading<M = Api> {
    mailbox: M,
    names: Arc<Names>,
    next: u64,
    end: u64,
    /// The message that is being written, and how much of its payload is.
    open: Option<(Arc<Letter>, usize)>,
    /// The character before the next message: it opens or continues the list.
    sign: char,
    is_done: bool,
    _turn: OwnedSemaphorePermit,
}

impl AsRef<Mailbox> for Api {
    fn as_ref(&self) -> &Mailbox {
        &self.mailbox
    }
}

impl<M: AsRef<Mailbox>> Reading<M> {
    pub(super) fn new(mailbox: M, names: Arc<Names>, turn: OwnedSemaphorePermit) -> Self {
        let numbers = mailbox.as_ref().numbers();
        Self {
            mailbox,
            names,
            next: numbers.start,
            end: numbers.end,
            open: None,
            sign: '[',
            is_done: false,
            _turn: turn,
        }
    }

    /// Writes a little more.
    fn write(&mut self, text: &mut String) {
        if let Some((letter, from)) = self.open.take() {
            let to = letter.payload.len().min(from + PIECE_BYTES);
            BASE64_STANDARD.encode_string(&letter.payload[from..to], text);
            if to < letter.payload.len() {
                self.open = Some((letter, to));
            } else {
                text.push_str(END);
            }
            return;
        }
        let next = self.mailbox.as_ref().from(self.next).filter(|(number, ..)| *number < self.end);
        let Some((number, letter, is_read)) = next else {
            text.push_str(if self.sign == '[' { "[]" } else { "]" });
            self.is_done = true;
            return;
        };
        text.push(self.sign);
        let head = serde_json::to_string(&shown(&letter, &self.names, is_read)).unwrap_or_default();
        text.push_str(head.strip_suffix(END).unwrap_or(&head));
        (self.sign, self.next, self.open) = (',', number + 1, Some((letter, 0)));
    }
}

impl<M: AsRef<Mailbox>> Iterator for Reading<M> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        while !self.is_done && text.len() < PIECE_BYTES {
            self.write(&mut text);
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use annulus::core::pastry::MessageId;
    use serde_json::Value;

    use super::*;
    use crate::agent::mailbox::tests::letter;

    async fn push(mailbox: &Mailbox, id: u128, bytes: usize) {
        mailbox.keep(vec![letter(id, bytes)]).await.expect("there is room");
    }

    async fn reading(mailbox: &Arc<Mailbox>) -> Reading<Arc<Mailbox>> {
        let turn = mailbox.reader().await.expect("nobody else reads");
        Reading::new(Arc::clone(mailbox), Arc::default(), turn)
    }

    fn sizes(text: &str) -> Vec<usize> {
        let read: Vec<Value> = serde_json::from_str(text).expect("it is JSON");
        assert!(read.iter().all(|message| message["app"] == "a \"name\"" && message["at_micros"] == 7));
        let payloads = read.iter().map(|message| message["payload_base64"].as_str().expect("it is text"));
        let bytes = payloads.map(|text| BASE64_STANDARD.decode(text).expect("it is base64"));
        bytes
            .inspect(|bytes| assert!(bytes.iter().enumerate().all(|(at, byte)| at as u8 == *byte)))
            .map(|bytes| bytes.len())
            .collect()
    }

    #[tokio::test]
    async fn the_pieces_are_one_list() {
        let mailbox = Arc::new(Mailbox::open(None, 100).expect("it needs no disk"));
        assert_eq!(reading(&mailbox).await.collect::<String>(), "[]");
        let given = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2, 5];
        for (id, bytes) in given.iter().enumerate() {
            push(&mailbox, id as u128, *bytes).await;
        }
        let pieces: Vec<String> = reading(&mailbox).await.collect();
        assert!(pieces.iter().all(|piece| piece.len() < 3 * PIECE_BYTES), "none is long");
        assert_eq!(sizes(&pieces.concat()), given);
    }

    #[tokio::test]
    async fn messages_evicted_or_added_during_a_read_are_left_out() {
        let mailbox = Arc::new(Mailbox::open(None, 3).expect("it needs no disk"));
        for id in 0..3 {
            push(&mailbox, id, 2 * PIECE_BYTES + id as usize).await;
        }
        let mut reading = reading(&mailbox).await;
        let first = reading.next().expect("there is a first piece");
        // The first is being written, it and the second make room.
        mailbox.read(&[MessageId(0), MessageId(1)]).await;
        for id in 3..5 {
            push(&mailbox, id, 9).await;
        }
        let rest: String = reading.collect();
        assert_eq!(sizes(&(first + &rest)), [2 * PIECE_BYTES, 2 * PIECE_BYTES + 2]);
    }
}
