//! The timers of a node, ordered by when they ring.

use std::collections::{BTreeMap, BTreeSet};

use crate::tag::StreamId;
use crate::time::Instant;

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// NOUNCE: say HERE to the known nodes.
    Announce,
    /// Introduce our neighbours to each other, and ourselves to somebody new.
    Tend,
    /// A handshake, or the farewell of a connection, has lasted long enough.
    Handshake(StreamId),
    /// A peer has not read for too long (MA-48).
    Stalled(StreamId),
    /// The one peer that may send while memory is short does not.
    Silent(StreamId),
    /// A broken connection is dialled once more (MA-30).
    Redial(super::nid::Nid),
    /// The oldest entry of the queue or of a memory expires.
    Expire,
    /// The known nodes have changed and are to be kept.
    KeepKnown,
    /// A file on its way needs a push.
    Files,
    /// The store was busy: what is to be saved is tried again.
    Room,
    /// Messages for us wait for room.
    Door,
    /// A message of ours is offered again.
    Again,
    /// The node is stopping and has waited long enough for its last bytes.
    Stop,
}

impl Alarm {
    const fn name(self) -> &'static str {
        match self {
            Self::Announce => "mesh.announce",
            Self::Tend => "mesh.tend",
            Self::Handshake(_) => "mesh.handshake",
            Self::Stalled(_) => "mesh.stalled",
            Self::Silent(_) => "mesh.silent",
            Self::Redial(_) => "mesh.redial",
            Self::Expire => "mesh.expire",
            Self::KeepKnown => "mesh.keep_known",
            Self::Files => "mesh.files",
            Self::Room => "mesh.room",
            Self::Door => "mesh.door",
            Self::Again => "mesh.again",
            Self::Stop => "mesh.stop",
        }
    }
}

/// Each alarm is set at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    at: BTreeMap<Alarm, Instant>,
    order: BTreeSet<(Instant, Alarm)>,
}

impl Alarms {
    /// Sets an alarm anew.
    pub(super) fn set(&mut self, alarm: Alarm, at: Instant) {
        self.clear(alarm);
        self.at.insert(alarm, at);
        self.order.insert((at, alarm));
    }

    /// Sets an alarm unless it rings earlier anyway.
    pub(super) fn set_by(&mut self, alarm: Alarm, at: Instant) {
        if self.at.get(&alarm).is_none_or(|set| at < *set) {
            self.set(alarm, at);
        }
    }

    pub(super) fn clear(&mut self, alarm: Alarm) {
        if let Some(at) = self.at.remove(&alarm) {
            self.order.remove(&(at, alarm));
        }
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::default();
    }

    /// Takes the next alarm that has rung.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Alarm> {
        let &(at, alarm) = self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(alarm);
        Some(alarm)
    }

    pub(super) fn next(&self) -> Option<(Instant, &'static str)> {
        self.order.first().map(|(at, alarm)| (*at, alarm.name()))
    }
}
