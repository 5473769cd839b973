//! The stages of a join (P-27 … P-38).
//!
//! ```text
//! Waiting ──► Seeking ──► Announcing ──► Active
//!    ▲           │             │
//!    └───────────┴─────────────┘  no node let this one in: again after a pause (PA-18)
//! ```
//!
//! *Seeking*: the join message is under way, and every node on its path sends state. The stage ends once every hop has
//! reported and every probe of a leaf candidate is decided. Its upper bound is twice the network timeout after the last
//! hop's report (P-35, PA-17). *Announcing*: this node announced itself to all nodes it knows. The stage ends once the
//! nearest leaf of each side knows this node (PA-27). Until it is *Active*, the node forwards messages but does not
//! deliver them (PA-19).

use core::time::Duration;
use std::net::SocketAddr;

use crate::pastry::message::MessageId;
use crate::rng::Rng;
use crate::time::Instant;

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The shortest pause.
const PAUSE_LEAST: Duration = Duration::from_secs(2);

/// For how many rounds this node lets another one bootstrap the ring.
const YIELDED_MAX: u32 = 3;

/// The stage of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Seeking,
    Announcing,
    Active,
}

/// The progress of one join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    stage: Stage,
    /// The join message under way; for an active node, one that searches a lost part of the ring (PA-42).
    message: Option<MessageId>,
    /// The address it was sent through.
    through: Option<SocketAddr>,
    /// One bit for each hop that reported.
    reported: u128,
    last_hop: Option<u8>,
    due: Option<Instant>,
    tries: u32,
    /// How many pauses there were since the backoff was reset.
    pauses: u32,
    /// A node of a ring that announced itself: the next to join through.
    invitation: Option<SocketAddr>,
    /// Whether the last try was through such a node. The next one is not, so that a node that announces itself again
    /// and again does not block the seeds.
    by_invitation: bool,
    /// Whether a node with precedence in bootstrapping has not joined either, in this round.
    yields: bool,
    /// For how many rounds the bootstrap was left to another node.
    yielded: u32,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Waiting,
            message: None,
            through: None,
            reported: 0,
            last_hop: None,
            due: None,
            tries: 0,
            pauses: 0,
            invitation: None,
            by_invitation: false,
            yields: false,
            yielded: 0,
        }
    }

    /// A new try with the knowledge of the last one.
    fn afresh(&self) -> Self {
        let &Self { tries, pauses, invitation, by_invitation, yields, yielded, .. } = self;
        Self { tries, pauses, invitation, by_invitation, yields, yielded, ..Self::new() }
    }

    /// Tries at `at`.
    pub(super) fn wait_until(&mut self, at: Instant) {
        *self = Self { due: Some(at), ..self.afresh() };
    }

    /// Tries again after a pause. The pause doubles each time, give or take a quarter.
    pub(super) fn back_off(&mut self, now: Instant, rng: &mut Rng) {
        let pause = PAUSE_LEAST.saturating_mul(1 << self.pauses.min(10)).min(PAUSE_MAX);
        let least = pause - pause / 4;
        self.pauses += 1;
        self.yields = false;
        self.wait_until(now + least + rng.duration_below(pause / 2));
    }

    /// Resets the pauses: a new node was named, or a node answered that has not joined itself.
    pub(super) fn reset_backoff(&mut self) {
        self.pauses = 0;
    }

    /// Joins through this node next, unless the last try was through such a node.
    pub(super) fn invite(&mut self, invitation: SocketAddr) {
        if !self.by_invitation {
            self.invitation = Some(invitation);
        }
    }

    pub(super) fn has_invitation(&self) -> bool {
        self.invitation.is_some()
    }

    pub(super) fn take_invitation(&mut self) -> Option<SocketAddr> {
        let invitation = self.invitation.take();
        self.by_invitation = invitation.is_some();
        invitation
    }

    /// Leaves the bootstrap to a node with precedence that has not joined either.
    pub(super) fn defer_bootstrap(&mut self) {
        self.yields = true;
    }

    /// Whether another node is to bootstrap the ring. This node waits a few rounds for that, and no more.
    pub(super) fn defers_bootstrap(&mut self) -> bool {
        let leaves = self.yields && self.yielded < YIELDED_MAX;
        self.yielded += u32::from(leaves);
        leaves
    }

    /// Notes that the join message was sent.
    pub(super) fn seek(&mut self, message: MessageId, through: SocketAddr, due: Instant) {
        let tries = self.tries + u32::from(!self.by_invitation);
        *self = Self {
            stage: Stage::Seeking,
            message: Some(message),
            through: Some(through),
            due: Some(due),
            tries,
            ..self.afresh()
        };
    }

    /// Notes that an active node sent a join message to find unknown nodes.
    pub(super) fn probe_ring(&mut self, message: MessageId, through: SocketAddr) {
        self.message = Some(message);
        self.through = Some(through);
    }

    /// Notes the report of a hop. Returns whether it belongs to the message under way. After the last hop's report, the
    /// others have until `stragglers_due`.
    pub(super) fn report(
        &mut self,
        message: MessageId,
        hop: u8,
        last: bool,
        stragglers_due: Instant,
    ) -> bool {
        if self.message != Some(message) {
            return false;
        }
        if self.stage == Stage::Seeking {
            self.reported |= 1u128.checked_shl(u32::from(hop)).unwrap_or(0);
            if last && self.last_hop.is_none() {
                self.last_hop = Some(hop);
                self.due = Some(stragglers_due);
            }
        }
        true
    }

    pub(super) fn announce(&mut self, due: Instant) {
        self.stage = Stage::Announcing;
        self.due = Some(due);
    }

    pub(super) fn activate(&mut self) {
        *self = Self { stage: Stage::Active, ..Self::new() };
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// Whether this node is joining through this address.
    pub(super) fn is_through(&self, addr: SocketAddr) -> bool {
        self.stage == Stage::Seeking && self.last_hop.is_none() && self.through == Some(addr)
    }

    /// Whether the last hop has reported.
    pub(super) fn has_arrived(&self) -> bool {
        self.last_hop.is_some()
    }

    /// Whether every hop up to the last has reported.
    pub(super) fn is_complete(&self) -> bool {
        self.last_hop.is_some_and(|last| {
            let all = u128::MAX >> (127 - u32::from(last).min(127));
            self.reported & all == all
        })
    }

    /// How often it was tried.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_complete_when_every_hop_has_reported() {
        let mut join = Progress::new();
        join.seek(MessageId(1), ([127, 0, 0, 1], 1).into(), Instant::ZERO);
        let due = Instant::from_micros(9);
        assert!(join.report(MessageId(1), 2, true, due) && !join.is_complete());
        assert_eq!(join.deadline(), Some(due));
        assert!(join.report(MessageId(1), 0, false, due) && !join.is_complete());
        assert!(!join.report(MessageId(2), 1, false, due), "of another join");
        assert!(join.report(MessageId(1), 1, false, due) && join.is_complete());
    }

    #[test]
    fn the_backoff_doubles_up_to_a_minute() {
        let mut rng = Rng::from_number(1, 0);
        let mut join = Progress::new();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            join.seek(MessageId(1), ([127, 0, 0, 1], 1).into(), Instant::ZERO);
            join.back_off(Instant::ZERO, &mut rng);
            pauses.push(join.deadline().unwrap().as_micros() / 1_000_000);
        }
        assert!((1..=2).contains(&pauses[0]) && (3..=5).contains(&pauses[1]), "{pauses:?}");
        assert!(pauses[5..].iter().all(|pause| (45..=75).contains(pause)), "{pauses:?}");
        join.reset_backoff();
        join.back_off(Instant::ZERO, &mut rng);
        assert!(join.deadline().is_some_and(|at| at.as_micros() < 3_000_000), "after a reset it begins anew");
    }

    #[test]
    fn a_node_that_announces_itself_is_tried_every_second_time() {
        let (somebody, seed) = (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 2], 1).into());
        let mut join = Progress::new();
        for _ in 0..3 {
            join.invite(somebody);
            assert_eq!(join.take_invitation(), Some(somebody));
            join.seek(MessageId(1), somebody, Instant::ZERO);
            join.invite(somebody);
            assert_eq!(join.take_invitation(), None);
            join.seek(MessageId(1), seed, Instant::ZERO);
        }
        assert_eq!(join.tries(), 3, "those of the seeds count");
    }
}
