//! One attempt to get a name, and one turn: the grants of voters, and until when they count (TU-13 … TU-16).

use core::time::Duration;

use super::keeping::{interval, validity};
use super::message::{Answer, Ask, Verdict};
use super::record::{Record, milliseconds};
use super::{LostReason, TurnId};
use crate::id::Id;
use crate::time::Instant;

/// The length of the first lease: grants to an asker that dies block a name no longer than this (TU-15).
pub(super) const FIRST: Duration = Duration::from_secs(2);

/// The most renewals of a turn that await answers.
const RENEWALS_MAX: usize = 4;

/// Places of voters in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Voters(u8);

impl Voters {
    pub(super) fn insert(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.0 &= !(1 << place);
    }

    pub(super) fn contains(self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// A request to all voters with one nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) nonce: u64,
    pub(super) sent: Instant,
    pub(super) granted: Voters,
    pub(super) held: Voters,
    pub(super) answered: Voters,
    /// Voters that answered, and may have another answer by now.
    again: Voters,
    resend_at: Instant,
    resends: u32,
    voters: usize,
}

impl Round {
    pub(super) fn new(nonce: u64, now: Instant, resend_after: Duration, voters: usize) -> Self {
        Self {
            voters,
            nonce,
            sent: now,
            granted: Voters::default(),
            held: Voters::default(),
            answered: Voters::default(),
            again: Voters::default(),
            resend_at: now + resend_after,
            resends: 0,
        }
    }

    pub(super) fn note(&mut self, place: usize, answer: &Answer) {
        self.answered.insert(place);
        self.again.remove(place);
        self.held.remove(place);
        match answer.verdict {
            Verdict::Granted => self.granted.insert(place),
            Verdict::Held { .. } => self.held.insert(place),
            _ => {}
        }
        if self.answered.len() >= self.voters && self.again.len() == 0 {
            self.resend_at = Instant::FAR;
        }
    }

    /// A voter has another answer now: the request is repeated to it.
    pub(super) fn reopen(&mut self, place: usize, resend_at: Instant) {
        self.answered.remove(place);
        self.held.remove(place);
        (self.resends, self.resend_at) = (self.resends.max(1), resend_at);
    }

    /// The request is repeated to a voter that refused it.
    fn ask_again(&mut self, place: usize, at: Instant) {
        self.again.insert(place);
        self.resend_at = self.resend_at.min(at);
    }

    /// Whether the request is to be repeated to a voter.
    pub(super) fn is_missing(&self, place: usize) -> bool {
        !self.answered.contains(place) || self.again.contains(place)
    }

    /// When the request is repeated to the silent voters.
    pub(super) fn resend_at(&self) -> Instant {
        self.resend_at
    }

    /// Whether the request is to be repeated to the silent voters now; the next interval is longer.
    pub(super) fn is_resend_due(&mut self, now: Instant, after: Duration) -> bool {
        let due = now >= self.resend_at;
        if due {
            self.resends += 1;
            self.resend_at = now + after * 2u32.pow(self.resends.min(4));
        }
        due
    }

    /// Whether the request was sent only once, so that its answers measure a round trip.
    pub(super) fn is_first_sending(&self) -> bool {
        self.resends == 0
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answers are missing.
    Open,
    /// A majority granted.
    Won,
    /// The number is too low at a voter: an Ask with a greater one must follow.
    Behind,
    /// A majority is no longer possible.
    Lost,
}

/// A try to get a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) session: u64,
    pub(super) number: u64,
    pub(super) round: Round,
    behind: bool,
    /// This node, if the request waits: its attempt then outlasts later ones.
    waiter: Option<Id>,
    /// Voters that refused it for a turn, or for an attempt that comes first.
    yields: Voters,
}

impl Attempt {
    pub(super) fn new(session: u64, number: u64, round: Round, waiter: Option<Id>) -> Self {
        Self { session, number, round, behind: false, waiter, yields: Voters::default() }
    }

    /// Notes an answer. Grants that arrive after the validity they would give do not count (TU-14).
    pub(super) fn note(
        &mut self,
        now: Instant,
        place: usize,
        answer: &Answer,
        record: &Record,
        again_after: Duration,
    ) -> Outcome {
        if now >= self.ends() {
            return Outcome::Lost;
        }
        self.round.note(place, answer);
        self.yields.remove(place);
        if self.comes_after(answer.verdict) {
            self.yields.insert(place);
        }
        let outlasts = self.outlasts();
        if outlasts {
            let held = self.round.held;
            let places = (0..record.voters.len()).filter(|place| held.contains(*place));
            places.for_each(|place| self.round.ask_again(place, now + again_after));
        }
        self.behind |= answer.verdict == Verdict::Behind;
        let missing = record.voters.len() - self.round.answered.len();
        if self.round.granted.len() >= record.majority() {
            Outcome::Won
        } else if self.round.granted.len() + missing >= record.majority() {
            Outcome::Open
        } else if self.behind {
            Outcome::Behind
        } else if outlasts {
            Outcome::Open
        } else {
            Outcome::Lost
        }
    }

    /// Whether the attempt keeps its grants although voters refused it: the attempts that have those voters come after
    /// it, so they are released (TU-17). The first of all attempts with grants is never released for another.
    fn outlasts(&self) -> bool {
        let Round { granted, held, .. } = self.round;
        self.waiter.is_some() && granted.len() > 0 && held.len() > 0 && self.yields.len() == 0
    }

    /// Whether a voter refused this attempt for a turn, or for an attempt with a lower number. Ids decide between equal
    /// numbers. A voter that only reserves the name (number 0) grants it to an attempt soon.
    fn comes_after(&self, verdict: Verdict) -> bool {
        let (Verdict::Held { holder, number, left_ms }, Some(own)) = (verdict, self.waiter) else {
            return false;
        };
        let is_first = number != 0 && holder != own && (number, holder) < (self.number, own);
        left_ms > milliseconds(FIRST) || is_first
    }

    /// Whether a voter found the number too low.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whether a voter refused and another stays silent, though the Ask to it was repeated. The grants of this attempt
    /// then only block other askers, which may need them for a majority (TU-17).
    pub(super) fn is_split(&self, now: Instant) -> bool {
        let is_last = !self.round.is_first_sending() || self.yields.len() > 0;
        is_last
            && now >= self.round.resend_at()
            && self.round.held.len() > 0
            && !self.behind
            && !self.outlasts()
    }

    /// The end of the validity that this attempt can give.
    pub(super) fn ends(&self) -> Instant {
        self.round.sent + validity(FIRST)
    }

    pub(super) fn ask(&self, key: super::Key, holder: Id, waited: Duration, queue: bool) -> Ask {
        Ask {
            key,
            number: self.number,
            holder,
            session: self.session,
            length_ms: milliseconds(FIRST),
            waited_ms: milliseconds(waited),
            renew: false,
            queue,
        }
    }
}

/// A turn of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) turn: TurnId,
    pub(super) session: u64,
    pub(super) number: u64,
    /// The end of validity by the last renewal that got a majority.
    until: Instant,
    /// The end by the limit.
    pub(super) limit: Instant,
    /// Whether a client in another process must keep it, and when it last did.
    pub(super) kept: Option<Instant>,
    pub(super) renewals: Vec<Round>,
    pub(super) renew_at: Instant,
    lease: Duration,
}

impl Turn {
    /// A turn that is valid until `until`; its first renewal is due at once (TU-15).
    pub(super) fn new(turn: TurnId, session: u64, number: u64, until: Instant, limit: Instant) -> Self {
        Self {
            turn,
            session,
            number,
            until,
            limit,
            kept: None,
            renewals: Vec::new(),
            renew_at: Instant::ZERO,
            lease: FIRST,
        }
    }

    /// The end of validity.
    pub(super) fn until(&self) -> Instant {
        self.until.min(self.limit)
    }

    /// Why the turn is over, if it is: its lease has expired for its holder, or its limit has passed (TU-16).
    pub(super) fn over(&self, now: Instant) -> Option<LostReason> {
        if now >= self.limit {
            Some(LostReason::Limit)
        } else if now >= self.until {
            Some(if self.is_attended(now) { LostReason::NoMajority } else { LostReason::Unattended })
        } else {
            None
        }
    }

    /// Whether the client has kept the turn lately, or need not keep it (TU-39).
    pub(super) fn is_attended(&self, now: Instant) -> bool {
        self.kept.is_none_or(|kept| now.since(kept) < validity(self.lease.max(FIRST)))
    }

    /// Whether a renewal is due. A holder whose deadline has passed never renews.
    pub(super) fn renewal_due(&self, now: Instant) -> bool {
        now >= self.renew_at && self.over(now).is_none() && self.is_attended(now)
    }

    /// Begins a renewal with this round.
    pub(super) fn renewing(&mut self, round: Round, lease: Duration) -> Option<u64> {
        self.lease = lease;
        self.renew_at = round.sent + interval(lease);
        self.renewals.push(round);
        (self.renewals.len() > RENEWALS_MAX).then(|| self.renewals.remove(0).nonce)
    }

    /// Notes an answer to a renewal; a majority of refusals means that another node has the name.
    pub(super) fn note(
        &mut self,
        now: Instant,
        nonce: u64,
        place: usize,
        answer: &Answer,
        record: &Record,
    ) -> Renewed {
        let (over, lease) = (self.over(now), self.lease);
        let Some(round) = self.renewals.iter_mut().find(|round| round.nonce == nonce) else {
            return Renewed::Open;
        };
        if over.is_some() {
            return Renewed::Open;
        }
        round.note(place, answer);
        if round.held.len() >= record.majority() {
            return Renewed::Taken;
        }
        let until = round.sent + validity(lease);
        if round.granted.len() >= record.majority() && now < until && until > self.until {
            self.until = until;
            return Renewed::Extended;
        }
        Renewed::Open
    }

    pub(super) fn ask(&self, key: super::Key, holder: Id) -> Ask {
        Ask {
            key,
            number: self.number,
            holder,
            session: self.session,
            length_ms: milliseconds(self.lease),
            waited_ms: 0,
            renew: true,
            queue: false,
        }
    }

    /// Stops renewing until the client keeps the turn again.
    pub(super) fn rest(&mut self) {
        self.renew_at = Instant::FAR;
    }

    /// Notes that the client keeps the turn.
    pub(super) fn keep(&mut self, now: Instant) {
        if self.kept.is_some() {
            self.kept = Some(now);
            if self.renew_at == Instant::FAR {
                self.renew_at = now;
            }
        }
    }

    /// When the next action for it is due.
    pub(super) fn next(&self) -> Instant {
        let resend = self.renewals.last().map_or(Instant::FAR, Round::resend_at);
        resend.min(self.renew_at).min(self.until())
    }
}

/// The effect of an answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// Nothing yet.
    Open,
    /// The turn is valid for longer.
    Extended,
    /// A majority answers that another node has the name.
    Taken,
}
