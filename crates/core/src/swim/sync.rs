//! Anti-entropy: two nodes compare hashes of ranges of ids and tell each other only what differs.
//!
//! One sends the hash of everything. Who finds it different answers with the hashes of the sixteenths, and so on
//! down, until a range has so few members that they are listed; then each tells the other what it knows better. If
//! nothing differs it is one small packet; if k members differ it is about k times the depth of the tree.

use super::inbox::Packet;
use super::machine::{Out, Swim};
use super::member::Member;
use super::members::Slot;
use super::message::Message;
use super::rumours::{accusation, record};
use super::sequence::Sequence;
use super::standing::{Standing, State};
use super::tree::{Range, fingerprint};
use super::wire::{ENTRY_BYTES, Hashes, Ids, Summaries};
use crate::id::Id;
use crate::time::Now;

/// A range with so few members is listed instead of divided.
const LISTED_MAX: usize = 24;
/// Ids asked for at once.
const WANTED_MAX: usize = 64;

impl Swim {
    /// Compares with a random member.
    pub(super) fn start_sync(&mut self, out: Out<'_, '_>) {
        let Some(slot) = self.selection.pick(&mut self.rng) else { return };
        self.counters.syncs += 1;
        let hash = self.members.hash(Range::ALL).to_be_bytes();
        let header = self.header(Sequence::default());
        let digest = Message::Digest { header, range: Range::ALL, hashes: Hashes(&hash) };
        self.mail.send(self.members.get(slot).addr(), &[digest], self.members.live(), out);
    }

    /// Hashes of somebody else: where ours are others, one step down.
    pub(super) fn digest(&mut self, packet: &Packet, range: Range, hashes: Hashes<'_>, out: Out<'_, '_>) {
        if !self.may_sync(packet) {
            return;
        }
        let mut differing = Vec::new();
        if hashes.iter().len() == 1 {
            differing
                .extend(hashes.iter().next().filter(|hash| *hash != self.members.hash(range)).map(|_| range));
        } else {
            let own = self.members.child_hashes(range);
            let children = hashes.iter().zip(own).enumerate().filter(|(_, (theirs, ours))| theirs != ours);
            differing.extend(children.filter_map(|(child, _)| range.child(child)));
        }
        let mut bodies = Vec::new();
        for range in differing {
            bodies.push((range, self.answer_bytes(range)));
        }
        let header = self.header(Sequence::default());
        let messages = bodies.iter().map(|(range, (listed, bytes))| {
            let range = *range;
            if *listed {
                Message::Summary { header, range, entries: Summaries(bytes) }
            } else {
                Message::Digest { header, range, hashes: Hashes(bytes) }
            }
        });
        self.mail.send_all(packet.addr, messages, self.sync_packets_max, out);
    }

    /// A list of somebody else: it hears what we know better, and we ask for what it knows better.
    pub(super) fn summary(
        &mut self,
        now: Now,
        packet: &Packet,
        range: Range,
        entries: Summaries<'_>,
        out: Out<'_, '_>,
    ) {
        if !self.may_sync(packet) {
            return;
        }
        let mut better: Vec<Slot> = Vec::new();
        let mut wanted = Vec::new();
        for (id, theirs, told) in entries.iter().take(4 * LISTED_MAX) {
            let Some(slot) = self.members.find(id) else {
                wanted.push(id);
                continue;
            };
            let member = self.members.get(slot);
            let (ours, differs) = (member.standing(), fingerprint(member.contents()) != told);
            if ours > theirs || (ours == theirs && differs) {
                better.push(slot);
            }
            if ours < theirs || (ours == theirs && differs) {
                wanted.push(id);
            }
        }
        let listed: Vec<Id> = entries.iter().map(|(id, _, _)| id).collect();
        let unlisted = self.members.range(range).filter(|(_, member)| member.state().is_live());
        better.extend(unlisted.filter(|(_, member)| !listed.contains(&member.id())).map(|(slot, _)| slot));
        let (members, me) = (&self.members, self.id);
        let told = better.iter().flat_map(|slot| softened(members.get(*slot), me));
        self.mail.send_all(packet.addr, told, self.sync_packets_max, out);
        if !wanted.is_empty() {
            let bytes: Vec<u8> = wanted.iter().take(WANTED_MAX).flat_map(|id| id.to_bytes()).collect();
            let header = self.header(Sequence::default());
            let want = Message::Want { header, ids: Ids(&bytes) };
            self.mail.send_all(packet.addr, core::iter::once(want), 1, out);
        }
        let _ = now;
    }

    /// Somebody asks for records.
    pub(super) fn want(&mut self, packet: &Packet, ids: Ids<'_>, out: Out<'_, '_>) {
        if !self.may_sync(packet) {
            return;
        }
        let (members, me) = (&self.members, self.id);
        let wanted = ids.iter().take(WANTED_MAX).filter_map(|id| members.member(id));
        let told = wanted.flat_map(|member| softened(member, me));
        self.mail.send_all(packet.addr, told, self.sync_packets_max, out);
    }

    /// Either the members of a range, or the hashes of its children.
    fn answer_bytes(&self, range: Range) -> (bool, Vec<u8>) {
        if self.members.count(range) > LISTED_MAX && range.child(0).is_some() {
            let hashes = self.members.child_hashes(range);
            return (false, hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect());
        }
        let live = self.members.range(range).filter(|(_, member)| member.state().is_live());
        let mut bytes = Vec::new();
        for (_, member) in live.take(LISTED_MAX) {
            bytes.extend_from_slice(&member.id().to_bytes());
            bytes.extend_from_slice(&member.incarnation().0.to_be_bytes());
            bytes.push(member.state() as u8);
            bytes.extend_from_slice(&fingerprint(member.contents()).to_be_bytes());
        }
        debug_assert!(bytes.len() <= LISTED_MAX * ENTRY_BYTES, "at most so many are listed");
        (true, bytes)
    }

    /// Only members compare tables with us: a stranger joins first.
    fn may_sync(&mut self, packet: &Packet) -> bool {
        let known = self.members.member(packet.sender).is_some_and(|member| member.state().is_live());
        self.counters.syncs_refused += u64::from(!known);
        known
    }
}

/// What is known of a member, but a death as a suspicion: the other side of a healed partition shall not bury the
/// living, and who is really dead does not dispute it.
fn softened(member: &Member, me: Id) -> impl Iterator<Item = Message<'_>> {
    let (id, standing) = (member.id(), member.standing());
    let soft = (standing.state == State::Dead)
        .then(|| accusation(id, Standing { state: State::Suspect, ..standing }, me))
        .flatten();
    let plain = soft.is_none().then(|| record(member, me));
    soft.into_iter().chain(plain.into_iter().flatten())
}
