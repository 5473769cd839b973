//! Inquiries: a message of which there may be another copy is delivered only if nobody else has delivered it.
//!
//! A doubtful message (PA-36a) was sent another way because a node did not acknowledge it in time, and that node may have
//! passed it on to somebody who believed to own its key: the owner before we joined, a neighbour who took us for dead, a
//! node of a ring that has just met ours. Those are our neighbours, so they are asked. Whoever says "no" keeps to it: it
//! lets every later copy end. Whoever cannot be asked, because it is gone, may have delivered it: then the message ends as
//! "unknown". So does one that is older than the memory of who is asked.

use core::time::Duration;

use super::machine::{Out, Pastry};
use super::message::{Body, Copies, Envelope, Failure, Message, MessageId, Outcome, Testimony};
use super::passage::Fresh;
use super::relays::Passage;
use super::routing::{Avoid, Step};
use super::seats::Interest;
use crate::id::Id;
use crate::time::{Instant, Now, micros};

/// How many neighbours are asked: those closest to the key after us, who would deliver it if we were not there.
const ASKED: usize = 2;
/// How much a reckoned age may be too low, and a part of it: clocks differ.
const AGE_TOLERANCE: Duration = Duration::from_millis(100);
const AGE_DIVISOR: u32 = 8;

/// A message that waits for the word of our neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inquiry {
    passage: Passage,
    /// Who has not answered yet.
    asked: Vec<Id>,
    due: Instant,
}

/// All of them. There are few: only what is in doubt is here, and only for a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inquiries {
    list: Vec<Inquiry>,
}

impl Inquiries {
    fn position(&self, id: MessageId) -> Option<usize> {
        self.list.iter().position(|inquiry| inquiry.passage.envelope.id == id)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.list.iter().map(|inquiry| inquiry.due).min()
    }

    /// Takes out what is of this kind.
    pub(super) fn drain(&mut self, which: impl Fn(&Passage) -> bool) -> Vec<Passage> {
        self.list.extract_if(.., |inquiry| which(&inquiry.passage)).map(|inquiry| inquiry.passage).collect()
    }
}

impl Pastry {
    /// Whether a message that has arrived may have been delivered by another.
    pub(super) fn is_in_doubt(&self, passage: &Passage) -> bool {
        let envelope = &passage.envelope;
        envelope.copies == Copies::Doubtful
            && matches!(envelope.body, Body::App { .. })
            && !self.window.contains(envelope.id)
    }

    /// Asks our neighbours whether they delivered a message of which there may be another copy.
    pub(super) fn inquire(&mut self, now: Now, passage: Passage, out: Out<'_, '_>) {
        let (id, key) = (passage.envelope.id, passage.envelope.key);
        if self.inquiries.position(id).is_some() {
            // This copy is not needed: what becomes of the other will be told.
            return;
        }
        if self.cannot_know(now, &passage) {
            // If its origin should be our neighbour and is not, there are two rings, which should meet.
            self.learn(now, &[passage.envelope.origin], Interest::Gap);
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        if self.inquiries.list.len() >= self.config.relays_max {
            return self.end(now, &passage.envelope, Outcome::Failed { reason: Failure::Busy }, out);
        }
        let mut asked: Vec<Id> = self.leaf_set.members().collect();
        asked.sort_unstable_by_key(|id| key.distance(*id));
        asked.truncate(ASKED);
        if asked.is_empty() {
            return self.deliver(now, passage.envelope, out);
        }
        let age_micros = micros(passage.age(now.mono)).try_into().unwrap_or(u32::MAX);
        for &to in &asked {
            self.counters.inquiries_sent += 1;
            self.send_to(now, to, &Message::Inquire { id, key, age_micros }, out);
        }
        let due = now.mono + self.config.network_timeout;
        self.inquiries.list.push(Inquiry { passage, asked, due });
    }

    /// Whether it may have been delivered by somebody who cannot be asked: our former self, a node that is gone, or one
    /// that we should know and do not, as its origin shows; or by ourselves so long ago that it is forgotten.
    fn cannot_know(&self, now: Now, passage: &Passage) -> bool {
        let (id, age) = (passage.envelope.id, passage.age(now.mono));
        self.denied.contains(id)
            || self.is_forgotten(now, age, AGE_TOLERANCE)
            || self.is_unsettled(now, age)
            || self.should_know(passage)
            || self.departed.owned(passage.envelope.key, self.own.id, now.mono)
    }

    /// Whether the origin of a message, or a node that may have it, should be our neighbour and is not: then there are two
    /// rings, and the other has an owner of its own.
    fn should_know(&self, passage: &Passage) -> bool {
        let Envelope { origin, doubted, .. } = &passage.envelope;
        doubted.iter().chain([&origin.id]).any(|id| self.leaf_set.would_take(*id))
    }

    /// Whether we found our place, or met a neighbour, so short a time before a message of this age was sent that others
    /// may not have known us then, nor we them: rings that become one do so node by node.
    fn is_unsettled(&self, now: Now, age: Duration) -> bool {
        let settling = age.saturating_add(self.config.network_timeout * 2);
        let recent = |at: Instant| now.mono.since(at) < settling;
        let is_new = |id| self.peers.get(id).is_some_and(|peer| recent(peer.since));
        self.leaf_set.members().any(is_new) || self.joined.is_some_and(recent)
    }

    /// Whether a message of this age may have come before all that we remember.
    fn is_forgotten(&self, now: Now, age: Duration, tolerance: Duration) -> bool {
        let age = age.saturating_add(age / AGE_DIVISOR).saturating_add(tolerance);
        let memory = self.window.complete_since().max(Some(self.started));
        memory.is_some_and(|since| now.mono.since(since) <= age)
    }

    /// A neighbour asks whether we delivered a message. If not, we never will.
    pub(super) fn on_inquire(
        &mut self,
        now: Now,
        from: Id,
        (id, key, age): (MessageId, Id, Duration),
        out: Out<'_, '_>,
    ) {
        let testimony = if self.window.contains(id) {
            Testimony::Delivered
        } else {
            self.denied.insert(id, now.mono);
            let is_ours = self.tables().decide(key, Avoid::default()) == Step::Deliver;
            // It may have waited on its way here as long as the asker waits for us.
            let is_forgotten = self.is_forgotten(now, age, AGE_TOLERANCE + self.config.network_timeout);
            if is_ours || is_forgotten { Testimony::Perhaps } else { Testimony::No }
        };
        self.send_to(now, from, &Message::Testify { id, testimony }, out);
    }

    /// A neighbour tells whether it delivered a message.
    pub(super) fn on_testimony(
        &mut self,
        now: Now,
        from: Id,
        (id, testimony): (MessageId, Testimony),
        out: Out<'_, '_>,
    ) {
        let Some(at) = self.inquiries.position(id) else { return };
        let asked = &mut self.inquiries.list[at].asked;
        let Some(index) = asked.iter().position(|asked| *asked == from) else { return };
        asked.swap_remove(index);
        if testimony == Testimony::No && !asked.is_empty() {
            return;
        }
        let passage = self.inquiries.list.swap_remove(at).passage;
        match (testimony, self.contact(from)) {
            (Testimony::No, _) => self.conclude(now, passage, out),
            (Testimony::Delivered, Some(by)) => {
                self.counters.messages_repeated += 1;
                let envelope = &passage.envelope;
                let (outcome, hops) = (Outcome::Delivered { by }, envelope.hops);
                let receipt = Message::Receipt { id, outcome, hops, path: Vec::new() };
                self.give_receipt(now, envelope.origin, receipt, out);
            }
            _ => self.end(now, &passage.envelope, Outcome::Unknown, out),
        }
    }

    /// None of our neighbours delivered it, nor will they.
    fn conclude(&mut self, now: Now, passage: Passage, out: Out<'_, '_>) {
        if self.tables().decide(passage.envelope.key, Avoid::default()) != Step::Deliver {
            return self.step(now, passage, Fresh::No, out);
        }
        if self.is_in_doubt(&passage) && self.cannot_know(now, &passage) {
            return self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
        self.deliver(now, passage.envelope, out);
    }

    /// Whoever was asked did not answer in time.
    pub(super) fn expire_inquiries(&mut self, now: Now, out: Out<'_, '_>) {
        let expired = self.inquiries.list.extract_if(.., |inquiry| inquiry.due <= now.mono);
        let expired: Vec<Passage> = expired.map(|inquiry| inquiry.passage).collect();
        for passage in expired {
            self.end(now, &passage.envelope, Outcome::Unknown, out);
        }
    }
}
