//! Coming into a group, letting others in, and finding those again who were lost.

use std::net::SocketAddr;

use super::Event;
use super::addr::Addr;
use super::inbox::Packet;
use super::joins::{JoinTurn, TRANSFER_PACKETS, Transfer};
use super::keeper::{self, PAGE_ENTRIES};
use super::machine::{Out, SPACE, Swim};
use super::members::Slot;
use super::message::{Message, NodeView};
use super::past::PastMember;
use super::rumours::{accusation, record};
use super::standing::State;
use crate::id::Id;
use crate::store::{StoreReply, StoreResult};
use crate::time::Now;

/// How often a Join is sent if nobody answers (SA-11).
const JOIN_TIMES: u32 = 3;
/// How many of the kept members are joined through at the start.
const REJOINED: usize = 3;

impl Swim {
    /// Begins to join an address; false if it is our own, or under way, or one too many.
    pub(super) fn join(&mut self, now: Now, addr: SocketAddr, out: Out<'_, '_>) -> bool {
        let own = self.own_contents.borrow().addrs().any(|own| own == addr);
        if own || !self.joins.add(addr, JOIN_TIMES - 1, now.mono + self.settings.probe_interval) {
            return false;
        }
        self.send_join(addr, None, out);
        true
    }

    /// Sends what waited, and gives up on what waited long enough.
    pub(super) fn join_again(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(turn) = self.joins.pop_due(now.mono, self.settings.probe_interval) {
            match turn {
                JoinTurn::Again(addr) => self.send_join(addr, None, out),
                JoinTurn::GivenUp(addr) => out.event(Event::JoinFailed { addr }),
            }
        }
    }

    /// Somebody wants to know us. The one it asked tells it everything (SA-9, SA-10).
    pub(super) fn answer_join(
        &mut self,
        now: Now,
        packet: &Packet,
        node: NodeView<'_>,
        news: bool,
        out: Out<'_, '_>,
    ) {
        if packet.sender == node.id {
            self.counters.joins_answered += 1;
            let alive = self.own_alive();
            let alive = alive.message(&self.own_contents);
            self.mail.send_all(packet.addr, core::iter::once(alive), 1, out);
            // The table only goes to where the node says it is: nobody has it sent to somebody else.
            if node.contents.addrs().any(|addr| addr == packet.addr) {
                self.transfers.add(packet.addr, now.mono);
                self.transfer(now, out);
            }
        } else if news && self.settings.everyone_answers {
            let delay = self.rng.duration_below(self.settings.probe_interval);
            self.greetings.set(node.id, now.mono + delay);
        }
    }

    /// Greets a node whose Join we heard of through others.
    pub(super) fn greet(&mut self, id: Id, out: Out<'_, '_>) {
        let Some(addr) = self.members.member(id).map(super::Member::addr) else { return };
        let alive = self.own_alive();
        let alive = alive.message(&self.own_contents);
        self.mail.send_all(addr, core::iter::once(alive), 1, out);
    }

    /// Goes on with the tables on their way.
    pub(super) fn transfer(&mut self, now: Now, out: Out<'_, '_>) {
        for transfer in self.transfers.take_due(now.mono) {
            // So many records that not all of them fit: what is left begins where the last that fitted ends.
            let per_burst = TRANSFER_PACKETS * self.mail.packet_bytes_max / 32;
            let live = self.members.from(transfer.from).filter(|(_, member)| member.state().is_live());
            let slots: Vec<Slot> = live.take(per_burst).map(|(slot, _)| slot).collect();
            let (members, suspicions, me) = (&self.members, &self.suspicions, self.id);
            let told = |slot: &Slot| record(members.get(*slot), suspicions.accuser(*slot).unwrap_or(me));
            let told: Vec<Message<'_>> = slots.iter().flat_map(told).collect();
            let last = slots.last().map(|slot| self.members.get(*slot).id());
            let sent = self.mail.send_all(transfer.to, told.iter().copied(), TRANSFER_PACKETS, out);
            let next = match told.get(sent).and_then(Message::subject) {
                Some(unsent) => Some(unsent.number()),
                None if slots.len() == per_burst => last.and_then(|last| last.number().checked_add(1)),
                None => None,
            };
            if let Some(from) = next.filter(|_| sent > 0) {
                self.transfers.put_back(Transfer { from, ..transfer }, now.mono);
            }
        }
    }

    /// Asks a past member whether it is back (SA-33a); a node that is alone asks its seeds, too.
    pub(super) fn retry(&mut self, now: Now, out: Out<'_, '_>) {
        self.next_retry = Some(now.mono + self.settings.retry_interval);
        if self.members.live() <= 1 {
            let seeds = self.seeds.clone();
            for seed in seeds {
                self.join(now, seed, out);
            }
        }
        if let Some((id, member)) = self.past.next() {
            self.counters.retries += 1;
            self.send_join(member.addr.socket(), Some((id, member)), out);
        }
    }

    /// What the store had to say.
    pub(super) fn stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let reading = self.keeper.is_reading(reply.op);
        match reply.result {
            StoreResult::Page { entries, more } if reading => {
                let mut room = true;
                for (key, value) in entries {
                    match keeper::decode(key, value) {
                        Some((id, addr)) if id != self.id => {
                            room = self.keeper.loaded(id);
                            self.past.add(id, PastMember { addr, standing: None });
                        }
                        Some(_) => {}
                        None => self.counters.kept_unreadable += 1,
                    }
                }
                let last = entries.last().map(|(key, _)| [key.as_slice(), &[0]].concat());
                match last.filter(|_| more && room) {
                    Some(after) => self.read_kept(now, &after, out),
                    None => self.begin(now, out),
                }
            }
            StoreResult::Failed(fault) => {
                out.event(Event::StoreFailed { fault });
                self.keeper.written(reply.op);
                if reading {
                    self.begin(now, out);
                }
            }
            StoreResult::Written => self.keeper.written(reply.op),
            StoreResult::Page { .. } | StoreResult::Value(_) => {}
        }
    }

    /// Asks for the next kept members, or goes on without if none are kept.
    pub(super) fn read_kept(&mut self, now: Now, from: &[u8], out: Out<'_, '_>) {
        match self.keeper.read() {
            Some(op) => out.page(op, SPACE, from, &[], PAGE_ENTRIES),
            None => self.begin(now, out),
        }
    }

    /// Writes what changed among the known members.
    pub(super) fn keep(&mut self, now: Now, out: Out<'_, '_>) {
        let Some((op, ids)) = self.keeper.due(now.mono) else { return };
        let (members, past, keeper) = (&self.members, &self.past, &mut self.keeper);
        // Durable: it is one write in some seconds, and after a crash it is the only way back to the group.
        out.batch(op, true, |batch| {
            for id in ids {
                let member = members.member(id).filter(|member| member.state() != State::Left);
                let addr: Option<Addr> = member
                    .map(|member| member.contents().addr())
                    .or_else(|| past.get(id).filter(|past| !is_left(past)).map(|past| past.addr));
                match addr.filter(|_| keeper.decided(id, addr.is_some())) {
                    Some(addr) => batch.put(SPACE, &id.to_bytes(), &keeper::encode(addr)),
                    None => batch.delete(SPACE, &id.to_bytes()),
                }
            }
        });
    }

    /// Everything is read: the first period, the first joins.
    pub(super) fn begin(&mut self, now: Now, out: Out<'_, '_>) {
        self.running = true;
        self.next_tick = None;
        self.next_tick = Some(self.first_tick(now.mono));
        let settings = &self.settings;
        let (sync, retry) = (settings.sync_interval, settings.retry_interval);
        self.next_sync = (!sync.is_zero()).then(|| now.mono + self.rng.duration_below(sync));
        self.next_retry = (!retry.is_zero()).then(|| now.mono + self.rng.duration_below(retry));
        for seed in self.seeds.clone() {
            self.join(now, seed, out);
        }
        let mut kept: Vec<SocketAddr> = self.past.iter().map(|(_, addr)| addr).collect();
        self.rng.shuffle(&mut kept);
        for addr in kept.into_iter().take(REJOINED) {
            self.join(now, addr, out);
        }
    }

    /// A Join, and to a past member what is held against it, so that both hear of the other at once.
    fn send_join(&mut self, to: SocketAddr, past: Option<(Id, PastMember)>, out: Out<'_, '_>) {
        let join = self.own_alive();
        let join = join.join(&self.own_contents);
        let held = past.and_then(|(id, past)| past.standing.and_then(|ended| accusation(id, ended, self.id)));
        self.mail.send_all(to, core::iter::once(join).chain(held), 2, out);
    }
}

fn is_left(past: &PastMember) -> bool {
    past.standing.is_some_and(|standing| standing.state == State::Left)
}
