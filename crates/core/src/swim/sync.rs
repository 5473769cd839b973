//! Anti-entropy, memberlist's push-pull by hashes: two nodes compare hashes of ranges of ids and send only what differs.
//!
//! One node sends the hash of its whole table. A node with another hash answers with the hashes of the sixteenths, and
//! so on, until a range is small enough to list. Then each node sends the records that it knows better. Equal tables
//! cost one small packet; k differing members cost about k times the depth of the tree.

use core::time::Duration;
use std::net::SocketAddr;

use super::config::Config;
use super::machine::Out;
use super::members::{Members, Slot};
use super::message::{Header, Message};
use super::packet::Packet;
use super::packets::Packets;
use super::records::softened;
use super::sequence::Sequence;
use super::tree::{Range, fingerprint};
use super::wire::{ENTRY_BYTES, Hashes, Ids, Summaries};
use crate::id::Id;
use crate::rng::Rng;
use crate::time::Instant;

/// A range with at most this many members is listed instead of divided.
const LISTED_MAX: usize = 24;
/// Ids requested at once.
const WANTED_MAX: usize = 64;
/// The most packets in answer to one packet of a table comparison.
const PACKETS_MAX: usize = 4;
/// Packets of table comparisons that are answered in one period.
const ANSWERS_MAX: u32 = 64;

/// The table comparisons of one node: when it begins one, and which it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AntiEntropy {
    /// Time between two comparisons that this node begins; zero is none.
    interval: Duration,
    /// Whether members must send from a known address.
    verify: bool,
    next: Option<Instant>,
    answers_left: u32,
    begun: u64,
    refused: u64,
}

/// The state that a comparison reads and writes.
pub(super) struct Cx<'a, 'b, 'c> {
    pub(super) id: Id,
    pub(super) members: &'a Members,
    pub(super) packets: &'a mut Packets,
    pub(super) out: Out<'b, 'c>,
}

impl Cx<'_, '_, '_> {
    const fn header(&self) -> Header {
        Header { from: self.id, sequence: Sequence(0) }
    }
}

impl AntiEntropy {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            interval: config.settings.sync_interval,
            verify: config.settings.verify,
            next: None,
            answers_left: ANSWERS_MAX,
            begun: 0,
            refused: 0,
        }
    }

    /// The first one comes within an interval.
    pub(super) fn begin(&mut self, now: Instant, rng: &mut Rng) {
        self.next = (!self.interval.is_zero()).then(|| now + rng.duration_below(self.interval));
    }

    pub(super) const fn stop(&mut self) {
        self.next = None;
    }

    /// Begins a new period with a new budget of answers.
    pub(super) const fn new_period(&mut self) {
        self.answers_left = ANSWERS_MAX;
    }

    pub(super) const fn forget_counts(&mut self) {
        (self.begun, self.refused) = (0, 0);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|at| at <= now)
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// How many comparisons were begun, and how many packets of others were refused.
    pub(super) const fn counted(&self) -> (u64, u64) {
        (self.begun, self.refused)
    }

    /// Begins a comparison with a member, if there is any.
    pub(super) fn start(&mut self, now: Instant, with: Option<SocketAddr>, cx: &mut Cx<'_, '_, '_>) {
        self.next = Some(now + self.interval);
        let Some(addr) = with else { return };
        self.begun += 1;
        let hash = cx.members.hash(Range::ALL).to_be_bytes();
        let digest = Message::Digest { header: cx.header(), range: Range::ALL, hashes: Hashes(&hash) };
        cx.packets.send(addr, &[digest], cx.members.live(), cx.out);
    }

    /// Handles the hashes of another node: goes one level down where they differ.
    pub(super) fn on_digest(
        &mut self,
        packet: &Packet,
        range: Range,
        hashes: Hashes<'_>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        if !self.admits(packet, cx.members) {
            return;
        }
        let mut differing = Vec::new();
        if hashes.iter().len() == 1 {
            let hash = hashes.iter().next().filter(|hash| *hash != cx.members.hash(range));
            differing.extend(hash.map(|_| range));
        } else {
            let own = cx.members.child_hashes(range);
            let children = hashes.iter().zip(own).enumerate().filter(|(_, (theirs, ours))| theirs != ours);
            differing.extend(children.filter_map(|(child, _)| range.child(child)));
        }
        let bodies: Vec<(Range, (bool, Vec<u8>))> =
            differing.into_iter().map(|range| (range, answer_bytes(cx.members, range))).collect();
        let header = cx.header();
        let messages = bodies.iter().map(|(range, (listed, bytes))| {
            let range = *range;
            if *listed {
                Message::Summary { header, range, entries: Summaries(bytes) }
            } else {
                Message::Digest { header, range, hashes: Hashes(bytes) }
            }
        });
        cx.packets.send_all(packet.addr, messages, PACKETS_MAX, cx.out);
    }

    /// Handles a list of another node: sends the records that are newer here, and requests those that are newer there.
    pub(super) fn on_summary(
        &mut self,
        packet: &Packet,
        range: Range,
        entries: Summaries<'_>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        if !self.admits(packet, cx.members) {
            return;
        }
        let (members, me) = (cx.members, cx.id);
        let mut better: Vec<Slot> = Vec::new();
        let mut wanted = Vec::new();
        for (id, theirs, contents) in entries.iter().take(4 * LISTED_MAX) {
            let Some(slot) = members.find(id) else {
                wanted.push(id);
                continue;
            };
            let member = members.get(slot);
            let (ours, differs) = (member.status(), fingerprint(member.contents()) != contents);
            if ours > theirs || (ours == theirs && differs) {
                better.push(slot);
            }
            if ours < theirs || (ours == theirs && differs) {
                wanted.push(id);
            }
        }
        let listed: Vec<Id> = entries.iter().map(|(id, _, _)| id).collect();
        let unlisted = members.range(range).filter(|(_, member)| member.state().is_live());
        better.extend(unlisted.filter(|(_, member)| !listed.contains(&member.id())).map(|(slot, _)| slot));
        let records = better.iter().flat_map(|slot| softened(members.get(*slot), me));
        cx.packets.send_all(packet.addr, records, PACKETS_MAX, cx.out);
        if !wanted.is_empty() {
            let bytes: Vec<u8> = wanted.iter().take(WANTED_MAX).flat_map(|id| id.to_bytes()).collect();
            let want = Message::Want { header: cx.header(), ids: Ids(&bytes) };
            cx.packets.send_all(packet.addr, core::iter::once(want), 1, cx.out);
        }
    }

    /// Handles a request for records.
    pub(super) fn on_want(&mut self, packet: &Packet, ids: Ids<'_>, cx: &mut Cx<'_, '_, '_>) {
        if !self.admits(packet, cx.members) {
            return;
        }
        let (members, me) = (cx.members, cx.id);
        let wanted = ids.iter().take(WANTED_MAX).filter_map(|id| members.member(id));
        let records = wanted.flat_map(|member| softened(member, me));
        cx.packets.send_all(packet.addr, records, PACKETS_MAX, cx.out);
    }

    /// Whether this packet is answered. Only members compare tables: other nodes join first.
    fn admits(&mut self, packet: &Packet, members: &Members) -> bool {
        let member = members.member(packet.sender).filter(|member| member.state().is_live());
        let is_there = |addr: SocketAddr| {
            member.is_some_and(|member| member.contents().addrs().any(|known| known == addr))
        };
        let is_known =
            if self.verify { is_there(packet.addr) && self.answers_left > 0 } else { member.is_some() };
        self.answers_left -= u32::from(is_known && self.verify);
        self.refused += u64::from(!is_known);
        is_known
    }
}

/// Either the members of a range, or the hashes of its children.
fn answer_bytes(members: &Members, range: Range) -> (bool, Vec<u8>) {
    if members.count(range) > LISTED_MAX && range.child(0).is_some() {
        let hashes = members.child_hashes(range);
        return (false, hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect());
    }
    let live = members.range(range).filter(|(_, member)| member.state().is_live());
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
