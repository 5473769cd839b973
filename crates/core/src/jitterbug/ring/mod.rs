//! The ring as this node knows it: the list of nodes, the add-set, penalties, the last known holder, and the loop time.

mod add_set;
mod duplicate_tokens;
mod list;
mod loops;
mod losses;
mod peers;
mod penalties;
mod reach;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use add_set::AddSet;
use duplicate_tokens::DuplicateTokens;
use loops::Loops;
use losses::Losses;
use peers::Peers;
use reach::Reach;

pub use list::NodeList;
pub use peers::PEERS_MAX;
pub use penalties::{Penalties, Penalty, THRESHOLD_MAX};

use super::Event;
use super::config::{Config, is_link_local};
use super::message::{HostId, NodeEntry, TokenId};
use crate::common::RateLimiter;
use crate::tag::StreamId;
use crate::time::{Instant, micros};

/// The most sources of TR1 that are rate-limited separately.
const SOURCES_MAX: usize = 4096;

/// The ring as this node knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ring {
    list: NodeList,
    add_set: AddSet,
    penalties: Penalties,
    /// Addresses that get TR1 beyond the broadcast domain.
    peers: Peers,
    tr1_limit: RateLimiter<IpAddr>,
    loops: Loops,
    duplicates: DuplicateTokens,
    losses: Losses,
    reach: Reach,
    /// The holder, while it is another node.
    holder: Holder,
    /// The last endpoint of another node with our host id.
    conflict: Option<SocketAddr>,
    /// The raised `renew_timeout` that was last reported.
    renew_reported: Duration,
}

/// The facts about the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holder {
    host: Option<HostId>,
    passed_to: Option<HostId>,
    /// Whether another holder was ever known, by a pass or an answer.
    is_known: bool,
}

/// The result of a TR1 from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remembered {
    /// It is in the list, in the add-set, or cannot be listed.
    Yes,
    /// The add-set is full.
    Full,
}

impl Ring {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            list: NodeList::new(),
            add_set: AddSet::new(config.add_set_max),
            penalties: Penalties::default(),
            peers: Peers::default(),
            tr1_limit: RateLimiter::new(config.tr1_per_second_max, config.tr1_interval(), SOURCES_MAX),
            loops: Loops::default(),
            duplicates: DuplicateTokens::default(),
            losses: Losses::new(config.renew_timeout),
            reach: Reach::default(),
            holder: Holder::default(),
            conflict: None,
            renew_reported: config.renew_timeout,
        }
    }

    /// Puts this node into its own add-set.
    pub(super) fn add_self(&mut self, own: NodeEntry) {
        self.add_set.remember(own, &self.list);
    }

    /// Whether one more TR1 from this source is accepted (JA-53).
    pub(super) fn allows_tr1(&mut self, now: Instant, from: IpAddr) -> bool {
        self.tr1_limit.admit(from, now)
    }

    /// Remembers a node for the list, in every state (JA-20), and that it is alive (JA-44a).
    ///
    /// A node that sends from another port than the ring's must send TR1 twice before it is remembered. Random bytes
    /// look like one TR1 now and then, but not like the same one again.
    pub(super) fn remember(&mut self, node: NodeEntry, is_ring_port: bool) -> Remembered {
        let listed = self.list.addr(node.host_id);
        if listed.is_some_and(|addr| addr.ip().to_canonical() == node.addr.ip()) {
            self.penalties.clear(node.host_id);
            self.peers.others_ask();
        }
        // JA-37: no node could dial it without its interface.
        if listed == Some(node.addr)
            || is_link_local(node.addr.ip())
            || !(is_ring_port || self.add_set.confirm(node))
            || self.add_set.remember(node, &self.list)
        {
            Remembered::Yes
        } else {
            Remembered::Full
        }
    }

    /// Notes that another node uses our host id. Returns the event, if it is new.
    pub(super) fn report_conflict(&mut self, at: SocketAddr) -> Option<Event> {
        (self.conflict.replace(at) != Some(at)).then_some(Event::DuplicateHostId { at })
    }

    /// Adds the waiting nodes to the list. Returns the changes as events.
    pub(super) fn grow(&mut self, config: &Config) -> Vec<Event> {
        let mut events = self.add_set.apply(&mut self.list, &mut self.penalties);
        let (renew_timeout, nodes) = (self.renew(config), self.list.len());
        // JA-28b: reported when it begins to matter, and then at every doubling.
        if renew_timeout > config.renew_timeout
            && (self.renew_reported == config.renew_timeout || renew_timeout >= 2 * self.renew_reported)
        {
            self.renew_reported = renew_timeout;
            events.push(Event::RenewRaised { renew_timeout_micros: micros(renew_timeout), nodes });
        }
        events
    }

    /// The successor: the next candidate that may be tried, after the first `seen` of this round (J-78 … J-84).
    pub(super) fn next_candidate(
        &mut self,
        now: Instant,
        own: HostId,
        seen: &mut usize,
    ) -> Option<NodeEntry> {
        while let Some(node) = self.list.candidate(own, *seen) {
            *seen += 1;
            if !self.leaves_out(&node, now) && self.penalties.allow(node.host_id) {
                return Some(node);
            }
        }
        None
    }

    /// Notes a pass on this stream to a candidate with this many tenures; `was_held` if an application held the token here.
    pub(super) fn passed(
        &mut self,
        now: Instant,
        to: HostId,
        stream: StreamId,
        was_held: bool,
        token: TokenId,
        tenures: Option<u64>,
    ) {
        if was_held {
            self.loops.held_until(now);
        }
        self.penalties.succeeded(to);
        self.holder = Holder { host: Some(to), passed_to: Some(to), is_known: true };
        self.losses.passed(now, to, stream, token, tenures);
    }

    /// Notes that a candidate ended the stream of its pass.
    pub(super) fn was_read(&mut self, stream: StreamId) {
        self.losses.was_read(stream);
    }

    /// Notes the TR1 of a node and the token id in it.
    pub(super) fn asked(&mut self, now: Instant, host: HostId, token: TokenId, config: &Config) {
        self.losses.asked(now, host, token, config.renew_timeout * 9 / 10);
    }

    /// Notes a failed pass to a candidate.
    pub(super) fn failed(&mut self, to: HostId) {
        self.penalties.failed(to);
    }

    /// Adopts the list of a token from that address; nodes missing in it wait to be added (JA-34). Returns the
    /// conflict, if the list has our host id at another endpoint.
    pub(super) fn adopt(&mut self, list: Option<NodeList>, from: IpAddr, own: NodeEntry) -> Option<Event> {
        if let Some(list) = list {
            let old = core::mem::replace(&mut self.list, list);
            self.add_set.retain_missing(&old, &self.list);
        }
        let conflict = self.check_own_entry(own);
        // JA-44: a node that brings a token is alive.
        let alive: Vec<_> = self.list.at_ip(from).collect();
        for host_id in alive {
            self.penalties.clear(host_id);
            self.losses.clear(host_id);
        }
        self.losses.clear_foreign(from);
        conflict
    }

    /// Puts this node into its own add-set, unless the list has it at its endpoint (JA-35, JA-36).
    fn check_own_entry(&mut self, own: NodeEntry) -> Option<Event> {
        let conflict = match self.list.addr(own.host_id) {
            Some(addr) if addr == own.addr => return None,
            Some(addr) if addr.ip() != own.addr.ip() => self.report_conflict(addr),
            _ => None,
        };
        self.add_set.remember(own, &self.list);
        conflict
    }

    /// Begins a tenure. Returns the duration of the loop, if it was slow; `was_held` if the token stayed here for a
    /// hold until now.
    pub(super) fn tenure_begins(
        &mut self,
        now: Instant,
        token: TokenId,
        slow: Duration,
        was_held: bool,
    ) -> Option<Duration> {
        if was_held {
            self.loops.held_until(now);
        }
        self.loops.begin(now, token, slow)
    }

    /// How long to keep a token that has just arrived, if the ring has a second one with a lower id.
    pub(super) fn duplicate_wait(
        &mut self,
        now: Instant,
        token: TokenId,
        config: &Config,
    ) -> Option<Duration> {
        let renew = self.renew(config);
        self.duplicates.came(token, now, renew)
    }

    /// Forgets the holder: this node is an orphan now, and sends TR1.
    pub(super) fn forget_holder(&mut self, now: Instant) {
        self.holder.host = None;
        self.loops.asks(now);
    }

    /// The receiver of the last pass, while its outcome is unknown.
    pub(super) fn awaited(&self) -> Option<HostId> {
        self.losses.awaited()
    }

    /// A token is here, perhaps one that this node restored; that candidate has led so often by now. Returns it with its
    /// losses, if it is left out from now on.
    pub(super) fn token_came(
        &mut self,
        now: Instant,
        token: TokenId,
        is_own: bool,
        tenures: Option<u64>,
    ) -> Option<(HostId, u32)> {
        self.losses.came(now, token, is_own, tenures)
    }

    /// Whether the last known holder is at this address.
    pub(super) fn holder_is_at(&self, ip: IpAddr) -> bool {
        let holder = self.holder.host.and_then(|host| self.list.addr(host));
        holder.is_some_and(|addr| addr.ip().to_canonical() == ip.to_canonical())
    }

    /// Whether this node was in a ring with others since it started.
    pub(super) fn has_others(&self) -> bool {
        self.list.len() > 1 || self.holder.is_known
    }

    /// A token from there has data of another application (JA-32c).
    pub(super) fn found_foreign(&mut self, now: Instant, from: IpAddr) {
        self.losses.found_foreign(now, from);
    }

    /// Whether the node at this address is one of another application.
    pub(super) fn is_foreign(&self, now: Instant, ip: IpAddr) -> bool {
        self.losses.is_foreign(now, ip)
    }

    /// Whether a node is left out of the round, because the token was lost after it or it is of another application.
    pub(super) fn leaves_out(&self, node: &NodeEntry, now: Instant) -> bool {
        self.losses.leaves_out(node.host_id, now) || self.is_foreign(now, node.addr.ip())
    }

    /// Notes that a node at this address answered as the holder.
    pub(super) fn heard_holder(&mut self, now: Instant, from: IpAddr) {
        self.holder.host = self.list.at_ip(from).next();
        self.holder.is_known = true;
        self.loops.heard_holder(now);
    }

    /// Membership cannot reach the node at this address.
    pub(super) fn reaches_no_more(&mut self, now: Instant, ip: IpAddr) {
        self.reach.lost(now, ip.to_canonical());
    }

    /// Membership reaches the node at this address.
    pub(super) fn reaches(&mut self, ip: IpAddr) {
        self.reach.regained(ip.to_canonical());
    }

    /// Whether this node has reached less than half of the ring for half of the grace period (TU-42).
    pub(super) fn is_cut_off(&self, now: Instant, config: &Config) -> bool {
        self.reach.is_minority(now, &self.list, config.grace(), config.renew_timeout * 6)
    }

    /// Replaces the addresses that get TR1 beyond the broadcast domain.
    pub(super) fn set_peers(&mut self, now: Instant, own: IpAddr, peers: Vec<IpAddr>) {
        self.peers.replace(now, own, peers);
    }

    /// The addresses that the next TR1 goes to, beside the broadcast.
    pub(super) fn next_peers(&mut self) -> impl Iterator<Item = IpAddr> + '_ {
        self.peers.turn()
    }

    /// Whether an address was named that is not in the ring, and it is time to look for it.
    pub(super) fn seeks_unlisted(&mut self, now: Instant, config: &Config) -> bool {
        let (time_to_join, pause) = (config.restore_time(), config.renew_timeout);
        config.seek_unlisted && self.peers.seeks(now, time_to_join, pause, &self.list)
    }

    /// How long a waiter waits now.
    pub(super) fn renew(&self, config: &Config) -> Duration {
        config.renew_for(self.list.len() + self.add_set.unlisted())
    }

    pub(super) fn list(&self) -> &NodeList {
        &self.list
    }

    pub(super) fn penalties(&self) -> &Penalties {
        &self.penalties
    }

    /// How many nodes wait to be added.
    pub(super) fn waiting(&self) -> usize {
        self.add_set.len()
    }

    pub(super) fn holder(&self) -> Option<HostId> {
        self.holder.host
    }

    pub(super) fn passed_to(&self) -> Option<HostId> {
        self.holder.passed_to
    }

    /// The mean duration of a loop.
    pub(super) fn loop_time(&self) -> Option<Duration> {
        self.loops.mean()
    }

    pub(super) fn availability(&self, now: Instant) -> f64 {
        self.loops.availability(now)
    }
}
