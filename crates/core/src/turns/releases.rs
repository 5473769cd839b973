//! Releases under way: repeated a few times until every voter has confirmed. It also has the turns that ended here,
//! which must not be resumed.

use core::time::Duration;
use std::collections::VecDeque;

use super::TurnId;
use super::attempt::Voters;
use super::message::Ended;
use crate::time::Instant;

/// How often a Release is repeated. A voter that receives none of them keeps the lease until it expires.
const REPEATS: u32 = 3;
/// The most Releases that await confirmations; one more is sent only once.
const RELEASES_MAX: usize = 256;
/// The most ended turns that are remembered; beyond that the oldest is forgotten.
const ENDED_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Release {
    nonce: u64,
    ended: Ended,
    confirmed: Voters,
    again_at: Instant,
    repeats: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Releases {
    all: VecDeque<Release>,
    ended: VecDeque<TurnId>,
}

impl Releases {
    /// Notes a Release that was sent.
    pub(super) fn sent(&mut self, nonce: u64, ended: Ended, again_at: Instant) {
        if self.all.len() < RELEASES_MAX {
            let confirmed = Voters::default();
            self.all.push_back(Release { nonce, ended, confirmed, again_at, repeats: 0 });
        }
    }

    /// Notes that a turn of this node is over.
    pub(super) fn turn_ended(&mut self, turn: TurnId) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(turn);
    }

    /// Whether a turn ended since this node started.
    pub(super) fn has_ended(&self, turn: TurnId) -> bool {
        self.ended.contains(&turn)
    }

    /// Notes the confirmation of a voter; `voters` is their number.
    pub(super) fn confirmed(&mut self, nonce: u64, place: usize, voters: usize) -> bool {
        let Some(at) = self.all.iter().position(|release| release.nonce == nonce) else { return false };
        self.all[at].confirmed.insert(place);
        if self.all[at].confirmed.len() >= voters {
            self.all.remove(at);
        }
        true
    }

    /// The Releases to repeat now, with the voters that have confirmed.
    pub(super) fn due(&mut self, now: Instant, after: Duration) -> Vec<(u64, Ended, Voters)> {
        let mut due = Vec::new();
        self.all.retain_mut(|release| {
            if now < release.again_at {
                return true;
            }
            release.repeats += 1;
            release.again_at = now + after * 2;
            due.push((release.nonce, release.ended, release.confirmed));
            release.repeats < REPEATS
        });
        due
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.all.iter().map(|release| release.again_at).min()
    }
}
