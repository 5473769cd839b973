//! The asker: the requests of this node's applications, and their turns (TU-13 … TU-17).
//!
//! A name has one stage at a time: it waits to send an Ask, an Ask is under way, or it is held. The Ask is for the
//! first request of the queue; the other requests of this node wait behind it.

use core::time::Duration;
use std::collections::BTreeMap;

use super::attempt::{Attempt, FIRST, Outcome, Renewed, Round, Turn};
use super::effects::{Effects, Sending};
use super::keeping::validity;
use super::message::{Answer, Body, Ended, Key, Verdict};
use super::name::{Name, Stage, Wish};
use super::numbers::Numbers;
use super::record::Record;
use super::releases::Releases;
use super::{Blocker, Event, Grant, Lock, LostReason, Reply, Resume, TurnId, TurnStatus};
use crate::id::Id;
use crate::machine::Refusal;
use crate::rng::Rng;
use crate::tag::RequestId;
use crate::time::{Instant, micros};

/// The interval at which a waiter repeats its Ask, and so stays in the queues of the voters (TU-17).
const REFRESH: Duration = Duration::from_secs(2);
/// The pause before an Ask is repeated to silent voters.
const RESEND: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// A request that does not wait makes this many tries if others send Asks at the same moment.
const TRIES: u32 = 3;

/// The context of the asker.
pub(super) struct Cx<'a> {
    pub(super) now: Instant,
    pub(super) id: Id,
    pub(super) record: Option<&'a Record>,
    pub(super) rng: &'a mut Rng,
    pub(super) effects: &'a mut Effects,
}

impl Cx<'_> {
    /// Sends to all voters of the record.
    fn send_all(&mut self, nonce: u64, body: &Body) {
        self.send_to(nonce, body, |_| true);
    }

    /// Sends to the voters at these places.
    fn send_to(&mut self, nonce: u64, body: &Body, wanted: impl Fn(usize) -> bool) {
        let Some(record) = self.record else { return };
        let voters = record.voters.iter().enumerate().filter(|(place, _)| wanted(*place));
        self.effects.outgoing.extend(voters.map(|(_, voter)| Sending {
            to: voter.addr,
            group: record.group,
            epoch: record.epoch,
            nonce,
            body: body.clone(),
        }));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asker {
    wishes_max: usize,
    names: BTreeMap<Key, Name>,
    nonces: BTreeMap<u64, Key>,
    releases: Releases,
    numbers: Numbers,
    rtt: Duration,
}

impl Asker {
    pub(super) fn new(wishes_max: usize) -> Self {
        Self {
            wishes_max,
            names: BTreeMap::new(),
            nonces: BTreeMap::new(),
            releases: Releases::default(),
            numbers: Numbers::default(),
            rtt: RESEND.0 / 2,
        }
    }

    /// Notes the floor of a voter.
    pub(super) fn saw_floor(&mut self, floor: u64) {
        self.numbers.saw_floor(floor);
    }

    /// Handles the request of an application for a turn. The same turn again is the same request (TU-39).
    pub(super) fn lock(&mut self, cx: &mut Cx<'_>, request: RequestId, lock: Lock) {
        let key = Key::of(&lock.name);
        if let Some(name) = self.names.get_mut(&key) {
            if let Stage::Held(turn) = &mut name.stage
                && turn.turn == lock.turn
                && turn.over(cx.now).is_none()
            {
                turn.keep(cx.now);
                let grant = Grant::of(cx.now, turn, &name.text);
                return cx.effects.reply(request, Reply::Granted(grant));
            }
            if let Some(wish) = name.wishes.iter_mut().find(|wish| wish.turn == lock.turn) {
                let old = core::mem::replace(&mut wish.request, request);
                return cx.effects.reply(old, Reply::Withdrawn);
            }
        }
        if self.find(lock.turn).is_some() || self.len() >= self.wishes_max {
            return cx.effects.reply(request, Reply::Full);
        }
        let is_try = lock.wait.is_zero();
        let wait = if is_try { validity(FIRST) } else { lock.wait };
        let wish = Wish {
            turn: lock.turn,
            request,
            since: cx.now,
            until: cx.now + wait,
            limit: lock.limit,
            is_try,
            attended: lock.attended,
            tries: 0,
        };
        let name = self.names.entry(key).or_insert_with(|| Name::new(lock.name, cx.now));
        if is_try && (matches!(name.stage, Stage::Held(_)) || !name.wishes.is_empty()) {
            return cx.effects.reply(request, Reply::NotFree(name.blocker(cx.now, cx.id)));
        }
        name.wishes.push_back(wish);
        self.advance(cx, key);
    }

    /// Resumes a turn from before this agent's start, if its deadline has not passed (TU-35).
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>, request: RequestId, resume: Resume) {
        let key = Key::of(&resume.name);
        let deadline = Instant::from_micros(resume.deadline_micros);
        let is_held = self.names.get(&key).is_some_and(|name| matches!(name.stage, Stage::Held(_)));
        let is_free = !is_held && !self.releases.has_ended(resume.turn);
        if cx.now >= deadline || !is_free || self.len() >= self.wishes_max || resume.session == 0 {
            return cx.effects.reply(request, Reply::Lost(LostReason::NoMajority));
        }
        self.release_attempt(cx, key);
        let limit = cx.now + Duration::from_micros(resume.limit_micros);
        let mut turn = Turn::new(resume.turn, resume.session, resume.fence, deadline, limit);
        turn.kept = Some(cx.now);
        let name = self.names.entry(key).or_insert_with(|| Name::new(resume.name, cx.now));
        cx.effects.reply(request, Reply::Granted(Grant::of(cx.now, &turn, &name.text)));
        name.stage = Stage::Held(turn);
        self.advance(cx, key);
    }

    /// Keeps a turn for its client, and replies how much is left (TU-34).
    pub(super) fn keep(&mut self, cx: &mut Cx<'_>, request: RequestId, turn: TurnId) {
        let reply = match self.held(turn) {
            Some((_, held)) => match held.over(cx.now) {
                None => {
                    held.keep(cx.now);
                    Reply::Kept {
                        left_micros: micros(held.until().since(cx.now)),
                        deadline_micros: held.until().as_micros(),
                    }
                }
                Some(reason) => Reply::Lost(reason),
            },
            None => Reply::Lost(LostReason::Unknown),
        };
        cx.effects.reply(request, reply);
    }

    /// Replies how much is left of a turn; this does not keep it.
    pub(super) fn check(&mut self, cx: &mut Cx<'_>, request: RequestId, turn: TurnId) {
        let held = self.held(turn).map(|(_, held)| (held.over(cx.now), held.until()));
        cx.effects.reply(
            request,
            match held {
                Some((None, until)) => Reply::Kept {
                    left_micros: micros(until.since(cx.now)),
                    deadline_micros: until.as_micros(),
                },
                Some((Some(reason), _)) => Reply::Lost(reason),
                None => Reply::Lost(LostReason::Unknown),
            },
        );
    }

    /// Ends a turn, or the wait for it.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>, request: Option<RequestId>, turn: TurnId) {
        let Some(key) = self.find(turn) else {
            if let Some(request) = request {
                cx.effects.reply(request, Reply::Lost(LostReason::Unknown));
            }
            return;
        };
        let name = self.names.get_mut(&key).expect("it was found");
        if let Stage::Held(held) = &name.stage
            && held.turn == turn
        {
            let (session, number) = (held.session, held.number);
            cx.effects.event(Event::TurnReleased { name: name.text.clone(), turn, fence: number });
            self.end_turn(cx, key);
            self.send_release(cx, Ended { key, number, session });
        } else if let Some(place) = name.wishes.iter().position(|wish| wish.turn == turn) {
            let wish = name.wishes.remove(place);
            if let Some(wish) = wish {
                cx.effects.reply(wish.request, Reply::Withdrawn);
            }
            if place == 0 {
                self.release_attempt(cx, key);
            }
        }
        if let Some(request) = request {
            cx.effects.reply(request, Reply::Released);
        }
        self.advance(cx, key);
    }

    /// Handles an answer of a voter.
    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_>,
        place: usize,
        nonce: u64,
        answer: &Answer,
    ) -> Result<(), Refusal> {
        const UNMATCHED: Refusal = Refusal::Reject("an answer to nothing under way");
        let key = *self.nonces.get(&nonce).ok_or(UNMATCHED)?;
        let record = cx.record.ok_or(UNMATCHED)?;
        let again_after = self.resend_after();
        let name = self.names.get_mut(&key).ok_or(UNMATCHED)?;
        let round = match &name.stage {
            Stage::Asking(attempt) => Some(&attempt.round).filter(|round| round.nonce == nonce),
            Stage::Held(turn) => turn.renewals.iter().find(|round| round.nonce == nonce),
            Stage::Waiting(_) => None,
        };
        let round = round.ok_or(UNMATCHED)?;
        if round.is_first_sending() && !round.answered.contains(place) {
            self.rtt = (self.rtt * 7 + cx.now.since(round.sent)) / 8;
        }
        self.numbers.saw_floor(answer.floor);
        self.numbers.saw(key, answer.top);
        match &mut name.stage {
            Stage::Asking(attempt) => {
                if let Verdict::Held { holder, number, left_ms } = answer.verdict {
                    let left = Duration::from_millis(u64::from(left_ms));
                    // A reservation has no number.
                    let fence = if number == 0 { answer.top } else { number };
                    let blocker = Blocker { by: holder, fence, left_micros: micros(left) };
                    name.blocker = Some((blocker, cx.now + left));
                }
                let outcome = attempt.note(cx.now, place, answer, record, again_after);
                name.answered = attempt.round.answered.len();
                match outcome {
                    Outcome::Open => {}
                    Outcome::Won => self.won(cx, key),
                    Outcome::Behind => self.ask_higher(cx, key),
                    Outcome::Lost => self.failed(cx, key),
                }
            }
            Stage::Held(turn) => match turn.note(cx.now, nonce, place, answer, record) {
                Renewed::Taken => self.lose(cx, key, LostReason::Taken),
                Renewed::Open | Renewed::Extended => {}
            },
            Stage::Waiting(_) => {}
        }
        self.advance(cx, key);
        Ok(())
    }

    /// Handles the message of a voter that a name is free for this node.
    pub(super) fn on_free(&mut self, cx: &mut Cx<'_>, place: usize, key: Key, top: u64) {
        self.numbers.saw(key, top);
        let after = cx.now + self.resend_after();
        match self.names.get_mut(&key) {
            Some(Name { stage: stage @ Stage::Waiting(_), wishes, .. }) if !wishes.is_empty() => {
                *stage = Stage::Waiting(cx.now);
                self.advance(cx, key);
            }
            Some(Name { stage: Stage::Asking(attempt), wishes, .. }) if !wishes.is_empty() => {
                let waited = wishes.front().map_or(Duration::ZERO, |wish| cx.now.since(wish.since));
                let ask = attempt.ask(key, cx.id, waited, true);
                attempt.round.reopen(place, after);
                cx.send_to(attempt.round.nonce, &Body::Ask(ask), |to| to == place);
            }
            // No request for it is left: the voter need not reserve it.
            _ => {
                let ended = Ended { key, number: 0, session: 0 };
                cx.send_all(0, &Body::Release(ended));
            }
        }
    }

    /// Handles the confirmation of a Release.
    pub(super) fn on_released(&mut self, cx: &Cx<'_>, place: usize, nonce: u64) -> Result<(), Refusal> {
        let voters = cx.record.map_or(0, |record| record.voters.len());
        let known = self.releases.confirmed(nonce, place, voters);
        if known { Ok(()) } else { Err(Refusal::Reject("a confirmation of nothing under way")) }
    }

    /// Sends the waiting Asks now: the record changed, or became known.
    pub(super) fn wake(&mut self, cx: &mut Cx<'_>) {
        let keys: Vec<Key> = self.names.keys().copied().collect();
        for key in keys {
            match self.names.get_mut(&key).map(|name| &mut name.stage) {
                Some(Stage::Waiting(at)) => *at = cx.now,
                Some(Stage::Held(turn)) => turn.renew_at = turn.renew_at.min(cx.now),
                _ => {}
            }
            self.advance(cx, key);
        }
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, cx: &mut Cx<'_>) {
        let due = |name: &Name| name.next().is_some_and(|at| at <= cx.now);
        let keys: Vec<Key> = self.names.iter().filter(|(_, name)| due(name)).map(|(key, _)| *key).collect();
        for key in keys {
            self.expire_wishes(cx, key);
            self.advance(cx, key);
        }
        for (nonce, ended, confirmed) in self.releases.due(cx.now, self.resend_after()) {
            cx.send_to(nonce, &Body::Release(ended), |place| !confirmed.contains(place));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let names = self.names.values().filter_map(Name::next);
        names.chain(self.releases.next()).filter(|at| *at != Instant::FAR).min()
    }

    /// Stops: ends all waits. Turns that clients keep are left to them; the others are released.
    pub(super) fn stop(&mut self, cx: &mut Cx<'_>) {
        let keys: Vec<Key> = self.names.keys().copied().collect();
        for key in keys {
            self.release_attempt(cx, key);
            let Some(name) = self.names.get_mut(&key) else { continue };
            for wish in name.wishes.drain(..) {
                cx.effects.reply(wish.request, Reply::Stopping);
            }
            if let Stage::Held(turn) = &name.stage
                && turn.kept.is_none()
            {
                let ended = Ended { key, number: turn.number, session: turn.session };
                let lost = Event::TurnLost {
                    name: name.text.clone(),
                    turn: turn.turn,
                    fence: turn.number,
                    reason: LostReason::Stopping,
                };
                cx.effects.event(lost);
                self.send_release(cx, ended);
            }
        }
        self.names.clear();
        self.nonces.clear();
        self.releases.clear();
    }

    /// The turns and waiting requests of this node.
    pub(super) fn status(&self, now: Instant, own: Id) -> Vec<TurnStatus> {
        self.names.values().flat_map(|name| name.status(now, own)).collect()
    }

    fn len(&self) -> usize {
        self.names
            .values()
            .map(|name| name.wishes.len() + usize::from(matches!(name.stage, Stage::Held(_))))
            .sum()
    }

    fn find(&self, turn: TurnId) -> Option<Key> {
        self.names.iter().find(|(_, name)| name.has(turn)).map(|(key, _)| *key)
    }

    fn held(&mut self, turn: TurnId) -> Option<(Key, &mut Turn)> {
        self.names.iter_mut().find_map(|(key, name)| match &mut name.stage {
            Stage::Held(held) if held.turn == turn => Some((*key, held)),
            _ => None,
        })
    }

    fn resend_after(&self) -> Duration {
        (self.rtt * 2).clamp(RESEND.0, RESEND.1)
    }

    fn nonce(&mut self, cx: &mut Cx<'_>, key: Key) -> u64 {
        let nonce = cx.rng.next_u64();
        self.nonces.insert(nonce, key);
        nonce
    }

    /// Does everything that is possible now for a name. A name without request or turn is forgotten.
    fn advance(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(name) = self.names.get_mut(&key) else { return };
        match &mut name.stage {
            Stage::Waiting(_) if name.wishes.is_empty() => {
                self.names.remove(&key);
            }
            Stage::Waiting(at) if *at <= cx.now => {
                if cx.record.is_some() {
                    self.start_attempt(cx, key);
                } else {
                    *at = cx.now + REFRESH;
                }
            }
            Stage::Waiting(_) => {}
            Stage::Asking(attempt) if cx.now >= attempt.ends() || attempt.is_split(cx.now) => {
                self.failed(cx, key);
            }
            Stage::Asking(attempt) if cx.now >= attempt.round.resend_at() => {
                if attempt.is_behind() {
                    self.ask_higher(cx, key);
                } else {
                    self.resend(cx, key);
                }
            }
            Stage::Asking(_) => {}
            Stage::Held(turn) => {
                if let Some(reason) = turn.over(cx.now) {
                    self.lose(cx, key, reason);
                } else if turn.renewal_due(cx.now) && cx.record.is_some() {
                    self.renew(cx, key);
                } else if cx.now >= turn.renew_at {
                    turn.rest();
                } else {
                    self.resend(cx, key);
                }
            }
        }
    }

    fn expire_wishes(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(name) = self.names.get_mut(&key) else { return };
        let need = cx.record.map_or(0, Record::majority);
        let first_before = name.wishes.front().map(|wish| wish.turn);
        let blocker = name.blocker(cx.now, cx.id);
        let is_held = matches!(name.stage, Stage::Held(_));
        let answered = name.answered;
        name.wishes.retain(|wish| {
            let waits = cx.now < wish.until;
            if !waits {
                let reply = match blocker {
                    Some(_) if is_held || answered >= need => Reply::NotFree(blocker),
                    _ if answered >= need && need > 0 => Reply::NotFree(None),
                    _ => Reply::NoMajority { have: answered, need },
                };
                cx.effects.reply(wish.request, reply);
            }
            waits
        });
        if name.wishes.front().map(|wish| wish.turn) != first_before {
            self.release_attempt(cx, key);
        }
    }

    /// Sends an Ask to all voters with a new session and the least number that can be granted (TU-13).
    fn start_attempt(&mut self, cx: &mut Cx<'_>, key: Key) {
        let session = cx.rng.next_u64().max(1);
        self.ask_as(cx, key, session);
    }

    /// Sends an Ask in the same session with a greater number: grants of another number are not counted with it.
    fn ask_higher(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(Name { stage: Stage::Asking(attempt), .. }) = self.names.get(&key) else { return };
        let (session, old, nonce) = (attempt.session, attempt.number, attempt.round.nonce);
        self.nonces.remove(&nonce);
        if self.numbers.next(key) <= old {
            return self.failed(cx, key);
        }
        self.ask_as(cx, key, session);
    }

    fn ask_as(&mut self, cx: &mut Cx<'_>, key: Key, session: u64) {
        let Some(record) = cx.record else { return };
        let nonce = self.nonce(cx, key);
        let (number, after) = (self.numbers.next(key), self.resend_after());
        let Some(name) = self.names.get_mut(&key) else { return };
        let Some(wish) = name.wishes.front_mut() else { return };
        wish.tries += 1;
        let round = Round::new(nonce, cx.now, after, record.voters.len());
        let attempt = Attempt::new(session, number, round, (!wish.is_try).then_some(cx.id));
        name.stage = Stage::Asking(attempt);
        let waited = cx.now.since(wish.since);
        cx.send_all(nonce, &Body::Ask(attempt.ask(key, cx.id, waited, !wish.is_try)));
    }

    fn won(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(name) = self.names.get_mut(&key) else { return };
        let Stage::Asking(attempt) = &name.stage else { return };
        let (attempt, Some(wish)) = (*attempt, name.wishes.pop_front()) else { return };
        self.nonces.remove(&attempt.round.nonce);
        self.numbers.saw(key, attempt.number);
        let limit = cx.now + wish.limit;
        let mut turn = Turn::new(wish.turn, attempt.session, attempt.number, attempt.ends(), limit);
        turn.kept = wish.attended.then_some(cx.now);
        name.failures = 0;
        name.blocker = None;
        let (text, fence) = (name.text.clone(), attempt.number);
        cx.effects.event(Event::TurnGranted { name: text, turn: wish.turn, fence });
        cx.effects.reply(wish.request, Reply::Granted(Grant::of(cx.now, &turn, &name.text)));
        name.stage = Stage::Held(turn);
    }

    /// Ends an attempt without a majority: releases its grants and retries later, with a new session (TU-17).
    fn failed(&mut self, cx: &mut Cx<'_>, key: Key) {
        let need = cx.record.map_or(0, Record::majority);
        self.release_attempt(cx, key);
        let rtt = self.rtt;
        let Some(name) = self.names.get_mut(&key) else { return };
        name.failures += 1;
        let backoff = rtt.max(Duration::from_millis(1)) * (1 << name.failures.min(7));
        let pause = rtt + cx.rng.duration_below(backoff.min(REFRESH));
        let blocked = name.blocker.filter(|(_, until)| *until > cx.now);
        // The grant of another asker whose attempt failed as well is released soon; a turn may last.
        let is_vote = blocked.is_some_and(|(blocker, _)| blocker.left_micros <= micros(FIRST));
        name.stage = Stage::Waiting(match blocked {
            Some((_, until)) if !is_vote => (cx.now + REFRESH).min(until + pause),
            _ => cx.now + pause.min(REFRESH),
        });
        let Some(wish) = name.wishes.front() else { return };
        if wish.is_try && (!is_vote || wish.tries >= TRIES) {
            let (request, answered) = (wish.request, name.answered);
            name.wishes.pop_front();
            let reply = match blocked {
                Some((blocker, until)) => Reply::NotFree(Some(blocker.at(cx.now, until))),
                None if answered >= need && need > 0 => Reply::NotFree(None),
                None => Reply::NoMajority { have: answered, need },
            };
            cx.effects.reply(request, reply);
            if let Stage::Waiting(at) = &mut name.stage {
                *at = cx.now;
            }
        }
    }

    /// Ends an attempt under way: later answers to it do not count (TU-17).
    fn release_attempt(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(name) = self.names.get_mut(&key) else { return };
        let Stage::Asking(attempt) = name.stage else { return };
        name.stage = Stage::Waiting(cx.now);
        self.nonces.remove(&attempt.round.nonce);
        self.send_release(cx, Ended { key, number: attempt.number, session: attempt.session });
    }

    fn send_release(&mut self, cx: &mut Cx<'_>, ended: Ended) {
        let nonce = cx.rng.next_u64();
        cx.send_all(nonce, &Body::Release(ended));
        self.releases.sent(nonce, ended, cx.now + self.resend_after());
    }

    fn renew(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(record) = cx.record else { return };
        let (nonce, after) = (self.nonce(cx, key), self.resend_after());
        let Some(Name { stage: Stage::Held(turn), .. }) = self.names.get_mut(&key) else { return };
        let old = turn.renewing(Round::new(nonce, cx.now, after, record.voters.len()), record.lease);
        if let Some(old) = old {
            self.nonces.remove(&old);
        }
        let ask = turn.ask(key, cx.id);
        cx.send_all(nonce, &Body::Ask(ask));
    }

    /// Repeats the Ask to voters that did not answer, with the same nonce.
    fn resend(&mut self, cx: &mut Cx<'_>, key: Key) {
        let after = self.resend_after();
        let Some(name) = self.names.get_mut(&key) else { return };
        let waited = name.wishes.front().map_or(Duration::ZERO, |wish| cx.now.since(wish.since));
        let queue = name.wishes.front().is_some_and(|wish| !wish.is_try);
        let (round, ask) = match &mut name.stage {
            Stage::Asking(attempt) => {
                let ask = attempt.ask(key, cx.id, waited, queue);
                (&mut attempt.round, ask)
            }
            Stage::Held(turn) => {
                let ask = turn.ask(key, cx.id);
                let Some(round) = turn.renewals.last_mut() else { return };
                (round, ask)
            }
            Stage::Waiting(_) => return,
        };
        if round.is_resend_due(cx.now, after) {
            cx.send_to(round.nonce, &Body::Ask(ask), |place| round.is_missing(place));
        }
    }

    /// Ends a turn without a Release: a command may still run, so its lease must expire (TU-36).
    fn lose(&mut self, cx: &mut Cx<'_>, key: Key, reason: LostReason) {
        if let Some(Name { stage: Stage::Held(turn), text, .. }) = self.names.get(&key) {
            let (turn, fence) = (turn.turn, turn.number);
            cx.effects.event(Event::TurnLost { name: text.clone(), turn, fence, reason });
            self.end_turn(cx, key);
            self.advance(cx, key);
        }
    }

    fn end_turn(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(name) = self.names.get_mut(&key) else { return };
        if let Stage::Held(turn) = core::mem::replace(&mut name.stage, Stage::Waiting(cx.now)) {
            self.releases.turn_ended(turn.turn);
            for round in turn.renewals {
                self.nonces.remove(&round.nonce);
            }
        }
    }
}
