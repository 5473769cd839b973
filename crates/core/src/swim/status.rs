//! What is known of a node's life, as a join-semilattice: the order in which news arrives cannot matter.

use core::fmt;

use serde::Serialize;

/// How often a node has contradicted a update of its death. Only its owner raises it (SA-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// SA-7c: how far a receiver follows what others say, beyond what the node itself has proved.
    pub const UNPROVED_MAX: u32 = 8;
    /// SA-7c: how far a node follows, in one step, what others hold of it.
    pub const STEP_MAX: u32 = 16;
    /// SA-7c: up to here a node follows any number, as one that it may have had before it restarted.
    pub const FORMER_MAX: u32 = 1 << 24;
    /// No node is believed a number above this, so that it always has successors left.
    pub const FIRST_MAX: u32 = 1 << 31;

    /// The next one. At the end of numbers it stays: nobody gets there by steps of [`Incarnation::STEP_MAX`].
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether the owner of `own` does not follow to this number, whoever names it.
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

/// Membership status; a later one wins over an earlier one of the same incarnation (SA-3a).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// It answers, as far as is known.
    #[default]
    Alive = 0,
    /// Somebody's probe of it failed.
    Suspect = 1,
    /// Nobody disputed the suspicion in time.
    Dead = 2,
    /// It said goodbye.
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

/// Incarnation and state together, ordered so that what is greater is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Status {
    /// Of which life.
    pub incarnation: Incarnation,
    /// What became of it.
    pub state: State,
}

impl Status {
    /// Both at once.
    #[must_use]
    pub const fn new(incarnation: Incarnation, state: State) -> Self {
        Self { incarnation, state }
    }

    /// What is known once both are heard: the newer.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether `news` would change what is known. Only such news is passed on (S-82, SA-4).
    #[must_use]
    pub fn accepts(self, news: Self) -> bool {
        news > self
    }
}

/// The number an accused owner goes on with, or `None` if the news is no accusation (SA-5): `same` tells whether
/// an Alive describes us as we are.
#[must_use]
pub fn refutation(own: Incarnation, news: Status, same: bool) -> Option<Incarnation> {
    let accused = match news.state {
        State::Alive => news.incarnation > own || (news.incarnation == own && !same),
        State::Suspect | State::Dead | State::Left => news.incarnation >= own,
    };
    (accused && !news.incarnation.leaps_from(own)).then(|| own.max(news.incarnation).next())
}
