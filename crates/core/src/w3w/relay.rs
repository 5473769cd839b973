//! RECEIVE and SEND: a message is for us, or it is passed on.

use super::alarms::Alarm;
use super::config::{Fault, Forward};
use super::machine::{Mesh, Out};
use super::message::{Message, SeenKey};
use super::nid::{Key, Nid};
use super::queue::{Entry, Line};
use super::{Event, SentState};
use crate::ring::{clockwise, closer};
use crate::tag::StreamId;
use crate::time::Now;
use core::time::Duration;

/// A peer that has taken nothing for so long is given up (MA-48).
const STALL: Duration = Duration::from_secs(30);

impl Mesh {
    /// RECEIVE (M-47): a message came over a connection.
    pub(super) fn receive(&mut self, now: Now, from: Nid, message: Message, key: Key, out: Out<'_, '_>) {
        tracing::trace!(state = "RECEIVE", nid = %self.own, from = %from, recipient = %message.recipient);
        self.counters.messages_received += 1;
        if let Some(ip) = self.ring.get(from).map(|route| *route.at.ip()) {
            self.met(now, ip);
        }
        let seen = SeenKey::new(message.sender, message.recipient, key);
        let is_ours = message.recipient == self.own;
        let memory = if is_ours { &mut self.received } else { &mut self.passed };
        let is_new = memory.add(seen, now.mono, now.mono + self.config.expiry)
            || self.config.fault == Some(Fault::ForgetSeen);
        self.remind(now);
        if !is_new {
            self.counters.duplicates += 1;
            if is_ours && from == message.sender {
                self.confirm_again(now, &message, key, seen, out);
            }
        } else if is_ours {
            self.deliver(now, message, key, None, out);
        } else {
            self.accept_transit(now, from, message, key, out);
        }
    }

    /// A message for somebody else: into the queue first, whatever happens next (MA-45).
    fn accept_transit(&mut self, now: Now, from: Nid, message: Message, key: Key, out: Out<'_, '_>) {
        let size = message.data().len();
        while !self.queue.has_room(size) {
            let Some(oldest) = self.queue.oldest_transit() else {
                self.counters.queue_dropped += 1;
                return;
            };
            self.counters.queue_dropped += 1;
            self.forget_line(oldest, out);
        }
        let entry = self.entry(now, message, key, Some(from), None);
        let line = self.queue.push(entry);
        self.save_transit(now, line, out);
    }

    pub(super) fn entry(
        &self,
        now: Now,
        message: Message,
        key: Key,
        from: Option<Nid>,
        outbox: Option<u64>,
    ) -> Entry {
        let expiry = if from.is_some() { self.config.transit_expiry() } else { self.config.expiry };
        Entry {
            sender: message.sender,
            recipient: message.recipient,
            key,
            size: message.data().len(),
            from,
            until: now.mono + expiry,
            until_seconds: now.wall.as_seconds() + expiry.as_secs(),
            outbox,
            message: Some(message),
            is_stored: false,
            is_lined: false,
            is_settled: false,
            targets: Vec::new(),
            told: Vec::new(),
            is_handed: false,
            is_held: false,
            again: None,
        }
    }

    /// SEND (M-48, M-49): finds the peers for a message and gives it to those that have not had it from us.
    pub(super) fn route(&mut self, now: Now, line: Line, out: Out<'_, '_>) {
        let Some(entry) = self.queue.get(line) else { return };
        if !entry.is_settled {
            return;
        }
        let (recipient, from) = (entry.recipient, entry.from);
        let is_held = entry.is_held || self.has_custody(recipient);
        // What only waits for its receipt has had its way through the others.
        let is_over = entry.again.is_some() && self.ring.get(recipient).is_none();
        let targets: Vec<(Nid, StreamId)> =
            (self.targets(recipient, from, entry.is_own(self.own)).into_iter())
                .filter(|_| !is_over)
                .filter(|nid| !entry.told.contains(nid))
                .filter_map(|nid| self.ring.get(nid).map(|route| (nid, route.stream)))
                .collect();
        let passed_on = Event::MessagePassedOn {
            sender: entry.sender,
            recipient,
            key: entry.key,
            from,
            to: targets.iter().map(|(nid, _)| *nid).collect(),
        };
        let Some(entry) = self.queue.get_mut(line) else { return };
        entry.is_held = is_held;
        for (nid, stream) in &targets {
            entry.tell(*nid);
            entry.targets.push(*stream);
        }
        if !targets.is_empty() {
            tracing::trace!(state = "SEND", nid = %self.own, recipient = %recipient);
            out.event(passed_on);
        }
        for (_, stream) in &targets {
            if let Some(link) = self.links.get_mut(*stream) {
                link.backlog.push_back(line);
            }
            self.pump(now, *stream, out);
        }
        self.keep_line(line, out);
    }

    /// To whom a message goes from here (M-48, MA-43, MA-60).
    fn targets(&self, recipient: Nid, from: Option<Nid>, is_own: bool) -> Vec<Nid> {
        if self.ring.get(recipient).is_some() {
            return if from == Some(recipient) { Vec::new() } else { vec![recipient] };
        }
        let Some((younger, older)) = self.ring.around(recipient, from) else { return Vec::new() };
        if is_own || self.config.forward == Forward::Both {
            return if younger == older { vec![younger] } else { vec![younger, older] };
        }
        let nearer = if closer(recipient, younger, older) { younger } else { older };
        if closer(recipient, nearer, self.own) {
            return vec![nearer];
        }
        // Nobody is nearer than we are: we are next to the recipient, and whoever is on its other side is to have
        // the message too, so that one of us may die before the recipient comes (MA-45b).
        let Some((younger, older)) = self.ring.around(recipient, None) else { return Vec::new() };
        let we_are_younger = clockwise(younger, self.own) < clockwise(younger, recipient);
        let opposite = if we_are_younger { older } else { younger };
        if from == Some(opposite) { Vec::new() } else { vec![opposite] }
    }

    /// MA-45b: whether we are next to an absent recipient, as far as we know.
    fn has_custody(&self, recipient: Nid) -> bool {
        if self.ring.get(recipient).is_some() {
            return false;
        }
        let Some((younger, older)) = self.ring.around(recipient, None) else { return true };
        younger == older || clockwise(younger, self.own) < clockwise(younger, older)
    }

    /// The ring has a new peer: whatever waits may have a way now (MA-45).
    pub(super) fn retry(&mut self, now: Now, out: Out<'_, '_>) {
        let lines: Vec<Line> = self.queue.lines().map(|(line, _)| line).collect();
        for line in lines {
            self.route(now, line, out);
        }
    }

    /// Writes to a connection what waits for it, as long as it takes more.
    pub(super) fn pump(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        let unsent_bytes_max = self.config.unsent_bytes_max;
        while let Some(link) = self.links.get_mut(stream) {
            let room = link.room(unsent_bytes_max);
            if room == 0 {
                return self.queue.shed(self.config.memory_bytes_max);
            }
            if let Some((line, message, written)) = link.part.take() {
                let was_idle = !link.is_writing();
                let frame_bytes = message.frame.len();
                let until = frame_bytes.min(written + room);
                out.write_shared(stream, message.frame.slice(written..until));
                link.wrote((until == frame_bytes).then_some(line), until - written);
                if until == frame_bytes {
                    self.counters.messages_written += 1;
                } else {
                    link.part = Some((line, message, until));
                }
                if was_idle {
                    self.alarms.set(Alarm::Stalled(stream), now.mono + STALL);
                }
                continue;
            }
            let Some(&line) = link.backlog.front() else { return };
            match self.queue.get(line).map(|entry| &entry.message) {
                None => drop(link.backlog.pop_front()),
                Some(None) => return self.fetch(line, out),
                Some(Some(message)) => {
                    link.part = Some((line, message.clone(), 0));
                    link.backlog.pop_front();
                }
            }
        }
    }

    /// The kernel has taken more of what we wrote.
    pub(super) fn sent(&mut self, now: Now, stream: StreamId, bytes: usize, out: Out<'_, '_>) {
        let Some(link) = self.links.get_mut(stream) else { return };
        let done = link.sent(bytes);
        if link.is_writing() {
            self.alarms.set(Alarm::Stalled(stream), now.mono + STALL);
        } else {
            self.alarms.clear(Alarm::Stalled(stream));
        }
        let to = match link.role {
            super::links::Role::Up { nid, .. } | super::links::Role::Leaving { nid } => Some(nid),
            _ => None,
        };
        for line in done {
            self.handed(now, stream, line, to, out);
        }
        self.pump(now, stream, out);
        self.repay(now, out);
    }

    /// SEND 3 (M-50): a connection has taken a message. It leaves the queue, unless we have custody of it.
    fn handed(&mut self, now: Now, stream: StreamId, line: Line, to: Option<Nid>, out: Out<'_, '_>) {
        let Some(entry) = self.queue.get_mut(line) else { return };
        entry.targets.retain(|target| *target != stream);
        let is_first = !core::mem::replace(&mut entry.is_handed, true);
        let is_over = to == Some(entry.recipient) || (!entry.is_held && entry.targets.is_empty());
        let (outbox, is_idle) = (entry.outbox, entry.targets.is_empty());
        if is_first && let Some(number) = outbox {
            self.set_sent_state(number, SentState::HandedOn, out);
        }
        if is_over && !self.keep_for_receipt(now, line) {
            self.forget_line(line, out);
        } else if is_idle {
            self.queue.unload(line);
        }
    }

    /// A connection is gone: what it has not taken is ours again, and may go another way (MF-9).
    pub(super) fn take_back(
        &mut self,
        now: Now,
        stream: StreamId,
        nid: Nid,
        lines: Vec<Line>,
        out: Out<'_, '_>,
    ) {
        for line in lines {
            if let Some(entry) = self.queue.get_mut(line) {
                entry.targets.retain(|target| *target != stream);
                entry.told.retain(|told| *told != nid);
                self.route(now, line, out);
            }
        }
    }
}
