//! The ring's own turn, with voters (TU-29, TU-30). A request for the name `""` waits for the token, then sends an Ask
//! to the voters. The ring decides the order, the voters decide about the turn.
//!
//! | stage | leaves it |
//! |---|---|
//! | waits for the token | when the token is held here, or its wait is over |
//! | awaits the voters | with the turn; if another node still has it, the token is passed and the request waits for the next loop |
//! | has the turn | when the turn is released or lost: only then is the token released |

use core::time::Duration;

use crate::jitterbug::{self, Set};
use crate::tag::RequestId;
use crate::time::{Instant, Now};
use crate::turns::{self, Group, Lock, TurnId};

/// The timer of the next request whose wait is over.
pub(super) const TIMER: &str = "node.ring_turn";
/// Requests from this number on are of this part, and so are the keys of its holds.
const OWN: u64 = 1 << 63;
/// How long beyond a lease the token stays here while the voters answer that another node has the turn.
const VOTERS_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AwaitsToken,
    AsksVoters,
    HasTurn,
}

#[derive(Clone, Debug, PartialEq)]
struct Wish {
    key: u64,
    /// The request of the application.
    request: RequestId,
    lock: Lock,
    /// When its wait is over.
    until: Instant,
    stage: Stage,
}

/// An effect for the node to apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// Gives `token` a command with this request; without one its reply is dropped.
    Token(Option<RequestId>, jitterbug::Command<Set>),
    /// Requests the turn from the voters.
    Ask(u64),
    /// The voters refused: retries, or gives the application this reply.
    Retry(u64, turns::Reply),
    /// Replies to the application.
    Reply(RequestId, turns::Reply),
}

/// All requests; `token` bounds their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RingTurns {
    /// The group that was reported to `token`.
    group: Option<Group>,
    /// The length of its leases.
    lease: Duration,
    keys: u64,
    wishes: Vec<Wish>,
    effects: Vec<Effect>,
}

impl RingTurns {
    /// Whether a request is of this part.
    pub(super) fn owns(request: RequestId) -> bool {
        request.0 >= OWN && request.0 < u64::MAX
    }

    /// Whether this group, whose leases have this length, must be reported to `token`.
    pub(super) fn declares(&mut self, group: Option<Group>, lease: Duration) -> bool {
        self.lease = lease;
        core::mem::replace(&mut self.group, group) != group
    }

    /// Takes a command for `turns`. Returns it if it does not concern the ring.
    pub(super) fn intercept(
        &mut self,
        now: Now,
        request: RequestId,
        command: turns::Command,
    ) -> Option<turns::Command> {
        match command {
            // A single try does not wait for the ring.
            turns::Command::Lock(lock)
                if lock.name.is_empty() && !lock.wait.is_zero() && !self.has_turn(lock.turn) =>
            {
                self.wish(now, request, lock);
                None
            }
            turns::Command::Release(turn) if self.withdraw(request, turn) => None,
            command => Some(command),
        }
    }

    /// Handles a reply of `token` to a request of this part.
    pub(super) fn on_token_reply(&mut self, request: RequestId, reply: &jitterbug::Reply) {
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.key == request.0) else { return };
        match reply {
            jitterbug::Reply::Held { .. } if wish.stage == Stage::AwaitsToken => {
                wish.stage = Stage::AsksVoters;
                self.effects.push(Effect::Ask(wish.key));
            }
            jitterbug::Reply::Refused(_) => self.end(request.0, turns::Reply::Full),
            jitterbug::Reply::Stopping => self.end(request.0, turns::Reply::Stopping),
            _ => {}
        }
    }

    /// Handles a reply of `turns` to a request of this part.
    pub(super) fn on_turns_reply(&mut self, request: RequestId, reply: turns::Reply) {
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.key == request.0) else { return };
        match reply {
            turns::Reply::Granted(_) => {
                wish.stage = Stage::HasTurn;
                self.effects.push(Effect::Reply(wish.request, reply));
            }
            turns::Reply::NotFree(_) | turns::Reply::NoMajority { .. } => {
                self.effects.push(Effect::Retry(wish.key, reply));
            }
            other => self.end(request.0, other),
        }
    }

    /// Handles an event of `turns`: the end of a turn releases the token.
    pub(super) fn on_turns_event(&mut self, event: &turns::Event) {
        let (turns::Event::TurnReleased { turn, .. } | turns::Event::TurnLost { turn, .. }) = event else {
            return;
        };
        let ended = |wish: &Wish| wish.lock.turn == *turn && wish.stage == Stage::HasTurn;
        if let Some(place) = self.wishes.iter().position(ended) {
            let wish = self.wishes.remove(place);
            self.release_token(wish.key);
        }
    }

    /// Ends the requests whose wait for the token is over.
    pub(super) fn expire(&mut self, now: Now) {
        let over = |wish: &&Wish| wish.stage == Stage::AwaitsToken && wish.until <= now.mono;
        while let Some(key) = self.wishes.iter().find(over).map(|wish| wish.key) {
            self.end(key, turns::Reply::NotFree(None));
        }
    }

    /// The effects so far.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// The command to the voters for a request, with its number.
    pub(super) fn question(&self, now: Now, key: u64) -> Option<(RequestId, turns::Command)> {
        let wish = self.wishes.iter().find(|wish| wish.key == key)?;
        let wait = (self.lease + VOTERS_WAIT).min(wish.until.since(now.mono)).max(Duration::from_millis(1));
        Some((RequestId(key), turns::Command::Lock(Lock { wait, ..wish.lock.clone() })))
    }

    /// Handles a refusal of the voters: the token is passed, and the request waits for it again while it has time.
    pub(super) fn retry(&mut self, now: Now, key: u64, reply: turns::Reply) {
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.key == key) else { return };
        if wish.until <= now.mono {
            return self.end(key, reply);
        }
        wish.stage = Stage::AwaitsToken;
        let limit = wish.lock.limit;
        self.release_token(key);
        self.ask_token(key, limit);
    }

    /// When the next wait is over.
    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let waiting = self.wishes.iter().filter(|wish| wish.stage == Stage::AwaitsToken);
        waiting.map(|wish| wish.until).min().map(|at| (at, TIMER))
    }

    fn wish(&mut self, now: Now, request: RequestId, lock: Lock) {
        // A repeated request is the same request.
        if let Some(wish) = self.wishes.iter_mut().find(|wish| wish.lock.turn == lock.turn) {
            let before = core::mem::replace(&mut wish.request, request);
            return self.effects.push(Effect::Reply(before, turns::Reply::Withdrawn));
        }
        let key = OWN + self.keys;
        self.keys += 1;
        let (until, limit) = (now.mono + lock.wait, lock.limit);
        self.wishes.push(Wish { key, request, lock, until, stage: Stage::AwaitsToken });
        self.ask_token(key, limit);
    }

    /// Whether the voters have granted the turn: `turns` handles it from then on.
    fn has_turn(&self, turn: TurnId) -> bool {
        self.wishes.iter().any(|wish| wish.lock.turn == turn && wish.stage == Stage::HasTurn)
    }

    /// Ends a request that still waits for the token. Returns whether there was one. The voters do not know of it yet.
    fn withdraw(&mut self, request: RequestId, turn: TurnId) -> bool {
        let waits = |wish: &&Wish| wish.lock.turn == turn && wish.stage == Stage::AwaitsToken;
        let Some(key) = self.wishes.iter().find(waits).map(|wish| wish.key) else { return false };
        self.end(key, turns::Reply::Withdrawn);
        self.effects.push(Effect::Reply(request, turns::Reply::Released));
        true
    }

    fn end(&mut self, key: u64, reply: turns::Reply) {
        if let Some(place) = self.wishes.iter().position(|wish| wish.key == key) {
            let wish = self.wishes.remove(place);
            self.effects.push(Effect::Reply(wish.request, reply));
            self.release_token(key);
        }
    }

    /// Holds the token for as long as the turn may last, plus the time of the request to the voters.
    fn ask_token(&mut self, key: u64, limit: Duration) {
        let limit = limit.saturating_add(self.lease + VOTERS_WAIT);
        self.effects.push(Effect::Token(Some(RequestId(key)), jitterbug::Command::HoldAs { key, limit }));
    }

    fn release_token(&mut self, key: u64) {
        self.effects.push(Effect::Token(None, jitterbug::Command::Withdraw { key }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    fn at(seconds: u64) -> Now {
        Now::new(Instant::from_micros(seconds * 1_000_000), Wall::default())
    }

    fn lock(turn: u128) -> turns::Command {
        turns::Command::Lock(Lock {
            name: String::new(),
            turn: TurnId(turn),
            wait: Duration::from_secs(60),
            limit: Duration::from_secs(30),
            attended: true,
        })
    }

    fn granted(turn: u128) -> turns::Reply {
        turns::Reply::Granted(turns::Grant {
            name: String::new(),
            turn: TurnId(turn),
            fence: 7,
            session: 1,
            deadline_micros: 1,
            left_micros: 1,
        })
    }

    fn held(ring: &mut RingTurns) {
        ring.on_token_reply(RequestId(OWN), &jitterbug::Reply::Held { fence: 3, hold: RequestId(OWN) });
    }

    /// A request number 5 whose token is here.
    fn asking() -> RingTurns {
        let mut ring = RingTurns::default();
        assert!(ring.declares(Some(Group([1; 16])), Duration::from_secs(20)));
        assert_eq!(ring.intercept(at(0), RequestId(5), lock(9)), None);
        let asks = ring.take_effects();
        assert!(
            matches!(
                asks[..],
                [Effect::Token(Some(RequestId(OWN)), jitterbug::Command::HoldAs { key: OWN, .. })]
            ),
            "{asks:?}"
        );
        held(&mut ring);
        assert_eq!(ring.take_effects(), [Effect::Ask(OWN)]);
        ring
    }

    const RELEASES: Effect = Effect::Token(None, jitterbug::Command::Withdraw { key: OWN });

    #[test]
    fn tu_29_a_request_waits_for_the_token_and_then_goes_to_the_voters() {
        let mut ring = asking();
        let Some((request, turns::Command::Lock(asked))) = ring.question(at(1), OWN) else {
            panic!("it asks")
        };
        let wait = Duration::from_secs(21);
        assert_eq!(
            (request, asked.wait, asked.turn),
            (RequestId(OWN), wait, TurnId(9)),
            "a lease and a second"
        );
        ring.on_turns_reply(request, granted(9));
        assert_eq!(ring.take_effects(), [Effect::Reply(RequestId(5), granted(9))]);
    }

    #[test]
    fn tu_29_while_another_node_has_the_turn_the_token_is_passed_and_the_request_waits() {
        let mut ring = asking();
        ring.on_turns_reply(RequestId(OWN), turns::Reply::NotFree(None));
        assert_eq!(ring.take_effects(), [Effect::Retry(OWN, turns::Reply::NotFree(None))]);
        ring.retry(at(12), OWN, turns::Reply::NotFree(None));
        let again = ring.take_effects();
        assert!(again[0] == RELEASES && matches!(again[1], Effect::Token(Some(_), _)), "{again:?}");
        held(&mut ring);
        assert_eq!(ring.take_effects(), [Effect::Ask(OWN)]);
        ring.retry(at(60), OWN, turns::Reply::NotFree(None));
        assert_eq!(
            ring.take_effects(),
            [Effect::Reply(RequestId(5), turns::Reply::NotFree(None)), RELEASES],
            "its wait is over"
        );
    }

    #[test]
    fn tu_30_the_token_is_released_with_the_turn_and_not_before() {
        let mut ring = asking();
        ring.on_turns_reply(RequestId(OWN), granted(9));
        ring.take_effects();
        assert_eq!(ring.intercept(at(2), RequestId(6), lock(9)), Some(lock(9)), "`turns` answers a repeat");
        ring.on_token_reply(RequestId(OWN), &jitterbug::Reply::NotHeld);
        assert_eq!(ring.take_effects(), [], "the turn depends on the lease alone");
        let over = turns::Event::TurnReleased { name: String::new(), turn: TurnId(9), fence: 7 };
        ring.on_turns_event(&over);
        assert_eq!(ring.take_effects(), [RELEASES]);
        assert_eq!(ring.poll_timeout(), None);
    }

    #[test]
    fn a_request_that_waits_for_the_token_is_withdrawn_or_times_out() {
        let mut ring = RingTurns::default();
        assert_eq!(ring.intercept(at(0), RequestId(5), lock(9)), None);
        assert_eq!(ring.intercept(at(0), RequestId(6), lock(10)), None);
        ring.take_effects();
        assert_eq!(ring.intercept(at(1), RequestId(7), turns::Command::Release(TurnId(9))), None);
        let replies = [
            Effect::Reply(RequestId(5), turns::Reply::Withdrawn),
            RELEASES,
            Effect::Reply(RequestId(7), turns::Reply::Released),
        ];
        assert_eq!(ring.take_effects(), replies);
        assert_eq!(ring.poll_timeout().map(|(when, _)| when), Some(at(60).mono));
        ring.expire(at(60));
        assert_eq!(ring.take_effects()[0], Effect::Reply(RequestId(6), turns::Reply::NotFree(None)));
        let other = turns::Command::Release(TurnId(11));
        assert_eq!(ring.intercept(at(61), RequestId(8), other.clone()), Some(other), "not of the ring");
    }
}
