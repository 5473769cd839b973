//! Membership of the group: the record, the states of other voters, founding, recovery (TU-6 … TU-8, TU-19 … TU-22).
//!
//! | stage | the node | leaves it when |
//! |---|---|---|
//! | `Outsider` | is not listed; it only sends Asks | – |
//! | `NoRecord` | is listed and has no record | the founder offers one, or the others name this node in theirs |
//! | `Offering` | is the founder: offers its record to all others | all others have written it |
//! | `Written` | has written an offered record | a voter reports that the group is founded |
//! | `Recovering` | lost its record: rests, then reads the bounds of the others | enough intact voters have answered |
//! | `Founded` | votes, after its rest | – |
//! | `Halted` | must not vote | an operator decides |

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::config::{Config, Fault};
use super::disk::Write;
use super::effects::{Effects, Sending};
use super::heard::Heard;
use super::message::{Body, Group, Standing, State, VoterEntry};
use super::record::Record;
use super::recovery::Recovery;
use super::{Event, VoterStatus};
use crate::id::Id;
use crate::machine::Refusal;
use crate::rng::Rng;
use crate::time::{Instant, Now, micros};

/// How often a node that does not know the group queries the voters.
const READ_FAST: Duration = Duration::from_millis(500);
/// How often a node that knows the group does: the answers show which voters are up.
const READ_SLOW: Duration = Duration::from_secs(10);

/// The context of membership.
pub(super) struct Cx<'a> {
    pub(super) now: Now,
    pub(super) rng: &'a mut Rng,
    pub(super) effects: &'a mut Effects,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Loading,
    Outsider,
    NoRecord,
    /// The node will rest once the group is founded: it may have forgotten leases of another group.
    Offering {
        nonce: u64,
        replaces: Option<Group>,
        accepted: BTreeSet<SocketAddr>,
        written: bool,
        rest: Duration,
    },
    Written {
        answer: Option<(SocketAddr, u64)>,
        rest: Duration,
    },
    Recovering(Recovery),
    /// If the disk `refused` the record, it is written again with the next query.
    Founded {
        rest_until: Instant,
        written: bool,
        refused: Option<Write>,
    },
    Halted(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Membership {
    id: Id,
    own: SocketAddr,
    listed: Vec<SocketAddr>,
    lease: Duration,
    reads_before_rest: bool,
    start: u64,
    /// This voter's own record; it is on disk, or on its way there.
    record: Option<Record>,
    /// The record of the group that this node sends its Asks to.
    known: Option<Record>,
    stage: Stage,
    heard: Heard,
    read: Option<(u64, Instant)>,
    read_at: Option<Instant>,
}

impl Membership {
    pub(super) fn new(config: &Config, start: u64) -> Self {
        Self {
            id: config.id,
            own: config.own,
            listed: config.sorted_voters(),
            lease: config.lease,
            reads_before_rest: config.has(Fault::ReadsBeforeRest),
            start,
            record: None,
            known: None,
            stage: Stage::Loading,
            heard: Heard::default(),
            read: None,
            read_at: None,
        }
    }

    /// Starts with the record from disk. `rests` says whether leases may have been forgotten.
    pub(super) fn loaded(&mut self, cx: &mut Cx<'_>, record: Option<Record>, rests: bool) {
        let is_listed = self.listed.contains(&self.own);
        self.read_at = Some(cx.now.mono);
        self.record = record;
        self.stage = match &self.record {
            None if is_listed => Stage::NoRecord,
            None => Stage::Outsider,
            Some(record) if record.place_of(self.own).is_none() => {
                cx.effects.event(Event::VoterHalted { reason: "address_not_in_record" });
                Stage::Halted("address_not_in_record")
            }
            Some(record) if record.founded => {
                let rest = if rests { record.lease } else { Duration::ZERO };
                Stage::Founded { rest_until: cx.now.mono + rest, written: true, refused: None }
            }
            // The record may replace one by which this voter granted leases (TU-28).
            Some(record) if self.listed.first() == Some(&self.own) => {
                let rest = record.lease.max(self.lease);
                self.offering(cx, None, true, rest)
            }
            Some(record) => Stage::Written { answer: None, rest: record.lease.max(self.lease) },
        };
        if let (Stage::Founded { .. }, Some(record)) = (&self.stage, &self.record) {
            self.known = Some(record.clone());
            if !record.has_voters(&self.listed) {
                cx.effects.event(Event::VotersDiffer { at: self.own, group: record.group });
            }
        }
        self.evaluate(cx);
    }

    /// The record of the group that this node sends its Asks to.
    pub(super) fn known(&self) -> Option<&Record> {
        self.known.as_ref()
    }

    /// This voter's own record, if it may vote by it once it has rested.
    pub(super) fn voting_record(&self) -> Option<&Record> {
        match self.stage {
            Stage::Founded { written: true, .. } => self.record.as_ref(),
            _ => None,
        }
    }

    /// Until when this voter rests; none if it does not, or does not vote at all.
    pub(super) fn resting_until(&self, now: Instant) -> Option<Instant> {
        match self.stage {
            Stage::Founded { rest_until, .. } if now < rest_until => Some(rest_until),
            _ => None,
        }
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        match &self.stage {
            Stage::Outsider => Standing::Outsider,
            Stage::Loading | Stage::NoRecord => Standing::NoRecord,
            Stage::Offering { .. } | Stage::Written { .. } | Stage::Founded { written: false, .. } => {
                Standing::Founding
            }
            Stage::Recovering(_) => Standing::Recovering,
            Stage::Founded { rest_until, .. } if now < *rest_until => Standing::Resting,
            Stage::Founded { .. } => Standing::Voting,
            Stage::Halted(_) => Standing::Halted,
        }
    }

    /// The answer of this node to a Read.
    pub(super) fn state(&self, now: Instant, bound: u64, floor: u64) -> State {
        let (id, start, standing) = (self.id, self.start, self.standing(now));
        State { id, start, standing, bound, floor, record: self.record.clone(), lease: None }
    }

    /// The group and epoch that this node puts on its messages as a voter.
    pub(super) fn stamp(&self) -> (Group, u32) {
        self.record.as_ref().map_or_else(Default::default, |record| (record.group, record.epoch))
    }

    /// Notes that a voter answered.
    pub(super) fn heard_from(&mut self, now: Instant, from: SocketAddr) {
        if self.is_voter_addr(from) {
            self.heard.note(now, from);
        }
    }

    /// Handles the state of a voter. Returns whether the record for this node's Asks has changed.
    pub(super) fn on_state(
        &mut self,
        cx: &mut Cx<'_>,
        from: SocketAddr,
        nonce: u64,
        state: State,
    ) -> Result<bool, Refusal> {
        if !self.is_voter_addr(from) || from == self.own {
            return Err(Refusal::Reject("a state from a node that is no voter"));
        }
        if state.id == self.id && state.start != self.start && !matches!(self.stage, Stage::Halted(_)) {
            cx.effects.event(Event::VoterHalted { reason: "two_processes_with_one_id" });
            self.stage = Stage::Halted("two_processes_with_one_id");
        }
        self.note_bound(nonce, from, &state);
        let is_fresh = self.read.is_some_and(|(read, _)| read == nonce);
        self.heard.take(cx.now.mono, from, state, is_fresh);
        self.evaluate(cx);
        Ok(self.learn(cx))
    }

    /// Handles the offer of a founder (TU-8).
    pub(super) fn on_offer(
        &mut self,
        cx: &mut Cx<'_>,
        from: SocketAddr,
        nonce: u64,
        record: Record,
        replaces: Option<Group>,
        bound: u64,
    ) -> Result<(), Refusal> {
        if record.founded || record.place_of(self.own).is_none() || !record.has_voters(&self.listed) {
            return Err(Refusal::Reject("an offer to other voters"));
        }
        let own = self.record.as_ref().map(|own| own.group);
        let is_new = match &mut self.stage {
            // The offer of a founding that is over may come late: this voter has lost its disk since, and forgot its leases.
            Stage::NoRecord => self.heard.is_founding(from, record.group),
            Stage::Recovering(_) => replaces.is_some() && self.heard.is_founding(from, record.group),
            Stage::Written { answer, .. } if own == Some(record.group) => {
                if answer.is_none() {
                    self.accept(cx, from, nonce, bound);
                } else {
                    *answer = Some((from, nonce));
                }
                return Ok(());
            }
            Stage::Loading | Stage::Outsider | Stage::Halted(_) => false,
            _ => replaces.is_some() && replaces == own,
        };
        if !is_new {
            // A founder repeats its offer; its state is here by then.
            return Err(Refusal::Reject(
                "an offer to a voter that has a record, or of a founding that is over",
            ));
        }
        // A voter that leaves a group may have granted leases in it, whether it has its record or lost it (TU-28).
        let rest = if replaces.is_some() { self.rest_after(record.lease) } else { Duration::ZERO };
        self.stage = Stage::Written { answer: Some((from, nonce)), rest };
        self.record = Some(record.clone());
        cx.effects.write(Write::Record(Some(record), None));
        Ok(())
    }

    /// How long a voter rests that joins a new group: for the longest lease that it may have granted before.
    fn rest_after(&self, lease: Duration) -> Duration {
        let forgotten = if let Stage::Recovering(recovery) = &self.stage { recovery.lease() } else { lease };
        let records = self.record.iter().chain(&self.known).chain(self.heard.records());
        records.map(|record| record.lease).fold(lease.max(forgotten).max(self.lease), Duration::max)
    }

    /// Handles the message of a voter that it has written the offered record.
    pub(super) fn on_accepted(
        &mut self,
        cx: &mut Cx<'_>,
        from: SocketAddr,
        nonce: u64,
        bound: u64,
    ) -> Result<(), Refusal> {
        const UNMATCHED: Refusal = Refusal::Reject("an acceptance of no offer");
        let record = self.record.as_mut().ok_or(UNMATCHED)?;
        match &mut self.stage {
            Stage::Offering { nonce: offered, accepted, .. }
                if *offered == nonce && record.place_of(from).is_some() =>
            {
                accepted.insert(from);
                record.floor = record.floor.max(bound);
            }
            _ => return Err(UNMATCHED),
        }
        self.evaluate(cx);
        Ok(())
    }

    /// Handles the written record. Returns the floor that the voter must take.
    pub(super) fn record_written(&mut self, cx: &mut Cx<'_>, bound: u64) -> Option<u64> {
        let mut record = self.record.clone()?;
        match &mut self.stage {
            Stage::Offering { written, .. } => {
                *written = true;
                record.floor = record.floor.max(bound);
                self.record = Some(record.clone());
            }
            Stage::Written { answer, .. } => {
                if let Some((to, nonce)) = answer.take() {
                    self.accept(cx, to, nonce, bound);
                }
            }
            Stage::Founded { written, .. } if !*written => {
                *written = true;
                cx.effects.event(Event::VoterReady { group: record.group });
                self.tell_all(cx, bound);
            }
            _ => {}
        }
        self.evaluate(cx);
        self.learn(cx);
        Some(record.floor)
    }

    /// Handles a failed write of a record: it is tried again with the next query. The voter does not vote before that.
    pub(super) fn write_failed(&mut self, write: &Write) {
        match &mut self.stage {
            Stage::Offering { written: false, .. } | Stage::Written { answer: Some(_), .. } => {
                self.record = None;
                self.stage = Stage::NoRecord;
            }
            Stage::Founded { written: false, refused, .. } => *refused = Some(write.clone()),
            _ => {}
        }
    }

    /// Founds a new group for an operator (TU-28).
    pub(super) fn refound(&mut self, cx: &mut Cx<'_>, bound: u64) -> bool {
        if !self.listed.contains(&self.own) || matches!(self.stage, Stage::Loading) {
            return false;
        }
        let replaces = self.record.as_ref().or(self.known.as_ref()).map(|record| record.group);
        self.found(cx, replaces, bound);
        true
    }

    /// Treats this voter's disk as a copy or a backup, for an operator (TU-22).
    pub(super) fn renew(&mut self, cx: &mut Cx<'_>) -> bool {
        if !matches!(self.stage, Stage::Founded { .. } | Stage::Halted(_)) || self.record.is_none() {
            return false;
        }
        let lease = self.record.take().map_or(self.lease, |record| record.lease);
        self.stage = Stage::Recovering(Recovery::new(cx.now.mono, lease));
        self.read_at = Some(cx.now.mono);
        cx.effects.write(Write::Record(None, None));
        true
    }

    /// Queries the voters again when it is time, and repeats an offer.
    pub(super) fn poll(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.read_at.is_none_or(|at| now < at) {
            return;
        }
        let nonce = cx.rng.next_u64();
        self.read = Some((nonce, now));
        let is_settled = self.known.is_some()
            && matches!(
                self.stage,
                Stage::Founded { written: true, .. } | Stage::Outsider | Stage::Halted(_)
            );
        self.read_at = Some(now + if is_settled { READ_SLOW } else { READ_FAST });
        let (group, epoch) = self.stamp();
        for to in self.others() {
            let body = Body::Read { key: None };
            cx.effects.outgoing.push(Sending { to, group, epoch, nonce, body });
        }
        if let Stage::Founded { refused, .. } = &mut self.stage {
            refused.take().into_iter().for_each(|write| cx.effects.write(write));
        }
        self.send_offers(cx);
        self.evaluate(cx);
        self.learn(cx);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.read_at
    }

    /// All voters and their last known states.
    pub(super) fn status(&self, now: Instant) -> Vec<VoterStatus> {
        let addrs = match &self.known {
            Some(record) => record.voters.iter().map(|voter| voter.addr).collect(),
            None => self.listed.clone(),
        };
        let status = |addr: SocketAddr| {
            let state = self.heard.state(addr);
            let is_own = addr == self.own;
            let record =
                if is_own { self.record.as_ref() } else { state.and_then(|state| state.record.as_ref()) };
            let answered = if is_own { Some(now) } else { self.heard.at(addr) };
            VoterStatus {
                addr,
                id: if is_own { Some(self.id) } else { state.map(|state| state.id) },
                standing: if is_own { Some(self.standing(now)) } else { state.map(|state| state.standing) },
                group: record.map(|record| record.group),
                answered_micros_ago: answered.map(|at| micros(now.since(at))),
            }
        };
        addrs.into_iter().map(status).collect()
    }

    /// Why this node must not vote.
    pub(super) fn halted(&self) -> Option<&'static str> {
        if let Stage::Halted(reason) = self.stage { Some(reason) } else { None }
    }

    fn is_voter_addr(&self, addr: SocketAddr) -> bool {
        self.listed.contains(&addr)
            || self.known.as_ref().is_some_and(|record| record.place_of(addr).is_some())
    }

    /// All voters but this node.
    fn others(&self) -> Vec<SocketAddr> {
        let known = self.known.iter().chain(&self.record).flat_map(|record| &record.voters);
        let all = self.listed.iter().copied().chain(known.map(|voter| voter.addr));
        all.collect::<BTreeSet<_>>().into_iter().filter(|addr| *addr != self.own).collect()
    }

    /// Counts a bound that a recovering voter read after its rest (TU-21).
    fn note_bound(&mut self, nonce: u64, from: SocketAddr, state: &State) {
        let early = self.reads_before_rest;
        let Stage::Recovering(recovery) = &mut self.stage else { return };
        // The own configuration may have another lease than the group: it counts only when a group is founded.
        let record =
            state.record.as_ref().filter(|record| record.founded && record.place_of(self.own).is_some());
        record.into_iter().for_each(|record| recovery.take_lease(record.lease));
        let is_intact = matches!(state.standing, Standing::Voting | Standing::Resting);
        let is_fresh =
            self.read.is_some_and(|(read, sent)| read == nonce && (sent >= recovery.rest_until() || early));
        if is_intact && is_fresh && !(early && recovery.bounds().contains_key(&from)) {
            recovery.note_bound(from, state.bound);
        }
    }

    /// Takes the next step of founding or recovery if the known states allow it.
    fn evaluate(&mut self, cx: &mut Cx<'_>) {
        match &self.stage {
            Stage::NoRecord => {
                let lease = self.heard.founded_with(self.own).map(|(_, _, record)| record.lease).max();
                if let Some(lease) = lease {
                    self.stage = Stage::Recovering(Recovery::new(cx.now.mono, lease.max(self.lease)));
                    cx.effects.event(Event::VoterRecovering);
                } else if self.listed.first() == Some(&self.own) {
                    self.try_to_found(cx);
                }
            }
            Stage::Offering { accepted, written: true, .. } => {
                let mut others = self.listed.iter().filter(|addr| **addr != self.own);
                if others.all(|addr| accepted.contains(addr)) {
                    self.founded(cx);
                }
            }
            Stage::Written { answer: None, .. } => {
                let own = self.stamp().0;
                let founded = self.heard.founded_with(self.own).find(|(_, _, record)| record.group == own);
                if let Some(record) = founded.map(|(_, _, record)| record.clone()) {
                    self.record = Some(record);
                    self.founded(cx);
                }
            }
            Stage::Recovering(recovery) if cx.now.mono >= recovery.rest_until() => {
                let bounds = recovery.bounds().clone();
                self.try_to_recover(cx, &bounds);
            }
            _ => {}
        }
    }

    /// Founds the group once all others have reported that they have no record. If one has written an offer of a
    /// founder that lost its disk, that record is used.
    fn try_to_found(&mut self, cx: &mut Cx<'_>) {
        let others = self.others();
        let states: Vec<&State> = others.iter().filter_map(|addr| self.heard.state(*addr)).collect();
        let ready = |state: &&State| matches!(state.standing, Standing::NoRecord | Standing::Founding);
        if states.len() < others.len() || !states.iter().all(ready) {
            return;
        }
        let begun = states.iter().filter_map(|state| state.record.as_ref());
        let begun = begun
            .filter(|record| !record.founded && record.has_voters(&self.listed))
            .max_by_key(|record| record.group);
        if let Some(record) = begun.cloned() {
            self.record = Some(record.clone());
            self.stage = self.offering(cx, None, false, Duration::ZERO);
            cx.effects.write(Write::Record(Some(record), None));
        } else {
            self.found(cx, None, 0);
        }
    }

    fn found(&mut self, cx: &mut Cx<'_>, replaces: Option<Group>, bound: u64) {
        let mut group = [0; 16];
        group.copy_from_slice(&cx.rng.next_u128().to_be_bytes());
        let bounds = self.heard.states().map(|(_, state)| state.bound).max().unwrap_or(0).max(bound);
        let id_of = |addr: &SocketAddr| {
            if *addr == self.own {
                self.id
            } else {
                self.heard.state(*addr).map_or(Id::MIN, |state| state.id)
            }
        };
        let record = Record {
            group: Group(group),
            epoch: 1,
            founded: false,
            lease: self.lease,
            // TU-8: the one place where the wall clock matters; a group founded later starts higher.
            floor: cx.now.wall.as_micros().max(bounds),
            voters: self.listed.iter().map(|addr| VoterEntry { id: id_of(addr), addr: *addr }).collect(),
        };
        let rest = if replaces.is_some() { self.rest_after(record.lease) } else { Duration::ZERO };
        self.stage = self.offering(cx, replaces, false, rest);
        self.record = Some(record.clone());
        cx.effects.write(Write::Record(Some(record), None));
    }

    fn offering(&mut self, cx: &mut Cx<'_>, replaces: Option<Group>, written: bool, rest: Duration) -> Stage {
        self.read_at = Some(cx.now.mono);
        Stage::Offering { nonce: cx.rng.next_u64(), replaces, accepted: BTreeSet::new(), written, rest }
    }

    fn send_offers(&mut self, cx: &mut Cx<'_>) {
        let Stage::Offering { nonce, replaces, accepted, written: true, .. } = &self.stage else { return };
        let Some(record) = &self.record else { return };
        let (group, epoch) = self.stamp();
        for to in self.listed.iter().copied().filter(|addr| *addr != self.own && !accepted.contains(addr)) {
            let body = Body::Offer { record: Box::new(record.clone()), replaces: *replaces };
            cx.effects.outgoing.push(Sending { to, group, epoch, nonce: *nonce, body });
        }
    }

    fn accept(&self, cx: &mut Cx<'_>, to: SocketAddr, nonce: u64, bound: u64) {
        let (group, epoch) = self.stamp();
        cx.effects.outgoing.push(Sending { to, group, epoch, nonce, body: Body::Accepted { bound } });
    }

    /// Marks the record as founded: all voters have written it. A voter that may have granted leases before rests first.
    fn founded(&mut self, cx: &mut Cx<'_>) {
        let rest = match &self.stage {
            Stage::Offering { rest, .. } | Stage::Written { rest, .. } => *rest,
            _ => Duration::ZERO,
        };
        let Some(record) = &mut self.record else { return };
        record.founded = true;
        self.stage = Stage::Founded { rest_until: cx.now.mono + rest, written: false, refused: None };
        cx.effects.event(Event::GroupFounded { group: record.group });
        cx.effects.write(Write::Record(Some(record.clone()), None));
    }

    /// Votes again once enough intact voters have reported their bounds (TU-21).
    fn try_to_recover(&mut self, cx: &mut Cx<'_>, bounds: &BTreeMap<SocketAddr, u64>) {
        let newest = self.heard.founded_with(self.own).max_by_key(|(_, _, record)| record.epoch);
        let Some(record) = newest.map(|(_, _, record)| record.clone()) else { return };
        let read = bounds.iter().filter(|(addr, _)| record.place_of(**addr).is_some());
        if read.clone().count() < record.intact_needed() {
            return;
        }
        let floor = read.map(|(_, bound)| *bound).max().unwrap_or(0);
        self.stage = Stage::Founded { rest_until: cx.now.mono, written: false, refused: None };
        self.record = Some(Record { floor: record.floor.max(floor), ..record });
        let bound = floor.saturating_add(super::voter::RESERVE);
        cx.effects.write(Write::Record(self.record.clone(), Some(bound)));
    }

    /// Sends the state to all others without a request: they learn at once that the group is founded.
    fn tell_all(&self, cx: &mut Cx<'_>, bound: u64) {
        let (group, epoch) = self.stamp();
        let state = self.state(cx.now.mono, bound, self.record.as_ref().map_or(0, |record| record.floor));
        for to in self.others() {
            let body = Body::State(Box::new(state.clone()));
            cx.effects.outgoing.push(Sending { to, group, epoch, nonce: 0, body });
        }
    }

    /// Learns the record that a majority of its own voters have. Returns whether that changed anything.
    fn learn(&mut self, cx: &mut Cx<'_>) -> bool {
        let own = self.voting_record().map(|record| (self.own, record));
        let told: Vec<(SocketAddr, &Record)> = self
            .heard
            .states()
            .filter_map(|(addr, state)| Some((addr, state.record.as_ref()?)))
            .chain(own)
            .collect();
        let agreed = told.iter().map(|(_, record)| *record).filter(|record| record.founded).find(|record| {
            let same = told.iter().filter(|(addr, other)| {
                other.founded
                    && (other.group, other.epoch) == (record.group, record.epoch)
                    && record.place_of(*addr).is_some()
            });
            same.count() >= record.majority()
        });
        let Some(agreed) = agreed.cloned() else { return false };
        let stamp = |record: &Record| (record.group, record.epoch);
        if self.known.as_ref().is_some_and(|known| stamp(known) == stamp(&agreed)) {
            return false;
        }
        if !agreed.has_voters(&self.listed) || self.known.is_some() {
            cx.effects.event(Event::VotersDiffer { at: self.own, group: agreed.group });
        }
        self.known = Some(agreed);
        true
    }
}
