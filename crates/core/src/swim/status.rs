//! The status of a node as a join-semilattice: the order in which updates arrive cannot matter.

use core::fmt;

use serde::Serialize;

/// How often a node has refuted an accusation. Only the node itself raises it (SA-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// SA-7c: how far a receiver follows claims of others, beyond what the node itself has proved.
    pub const UNPROVED_MAX: u32 = 8;
    /// SA-7c: how far a node follows, in one step, the claims of others about itself.
    pub const STEP_MAX: u32 = 16;
    /// SA-7c: up to here a node follows any incarnation, since it may have had it before a restart.
    pub const FORMER_MAX: u32 = 1 << 24;
    /// No node accepts an incarnation above this one, so that every node has successors left.
    pub const FIRST_MAX: u32 = 1 << 31;

    /// The next one. The last number stays: no node reaches it by steps of [`Incarnation::STEP_MAX`].
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether the owner of `own` does not follow to this number, whichever node names it.
    #[must_use]
    pub const fn leaps_from(self, own: Self) -> bool {
        self.0 > Self::FORMER_MAX && self.0.saturating_sub(own.0) > Self::STEP_MAX
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The membership state; a later one wins over an earlier one of the same incarnation (SA-3a).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// It answers its probes, as far as is known.
    #[default]
    Alive = 0,
    /// A probe of it failed.
    Suspect = 1,
    /// It did not refute the suspicion in time.
    Dead = 2,
    /// It left.
    Left = 3,
}

impl State {
    /// The state with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Alive,
            1 => Self::Suspect,
            2 => Self::Dead,
            3 => Self::Left,
            _ => return None,
        })
    }

    /// Whether a node in this state counts as a member: alive, or not yet proved dead (SA-57).
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Alive | Self::Suspect)
    }
}

/// Incarnation and state together; the greater is the newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Status {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The state in that incarnation.
    pub state: State,
}

impl Status {
    /// A status of both.
    #[must_use]
    pub const fn new(incarnation: Incarnation, state: State) -> Self {
        Self { incarnation, state }
    }

    /// The newer of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether `news` would change the status. Only such updates are forwarded (S-82, SA-4).
    #[must_use]
    pub fn accepts(self, news: Self) -> bool {
        news > self
    }
}

/// The new incarnation of an accused node, or `None` if the update is no accusation (SA-5). `same` says whether an
/// Alive describes the node correctly.
#[must_use]
pub fn refutation(own: Incarnation, news: Status, same: bool) -> Option<Incarnation> {
    let accused = match news.state {
        State::Alive => news.incarnation > own || (news.incarnation == own && !same),
        State::Suspect | State::Dead | State::Left => news.incarnation >= own,
    };
    (accused && !news.incarnation.leaps_from(own)).then(|| own.max(news.incarnation).next())
}
