//! Keeping: how long a turn is valid, and when a command under it must end (TU-14, TU-33 … TU-36).
//!
//! These are rules without I/O. The asker, the command line, the guard and the simulator's runner all use them, so the
//! tested rule is the one in use.
//!
//! A lease of length L is valid for H = 0.8 L. The command gets TERM when 3/8 of H are left and
//! KILL when 1/8 is left. With L = 10 s these are 5 s and 7 s after the last renewal was sent.
//!
//! A weak turn is valid for the grace period P of its ring after the last answer of its agent, because no other node
//! makes a token earlier (TU-41). The command gets TERM after P/2 and KILL after 4/5 P (TU-42).

use core::time::Duration;

use crate::time::Instant;

/// A command that lost its turn gets KILL this long after TERM, or at the deadline if that is earlier.
pub const GRACE: Duration = Duration::from_secs(1);

/// The validity of a lease of this length, counted from when its Ask was sent (TU-14).
#[must_use]
pub fn validity(lease: Duration) -> Duration {
    lease * 4 / 5
}

/// The interval between renewals of a turn, and between a client's Keep commands (TU-16, TU-34).
#[must_use]
pub fn interval(lease: Duration) -> Duration {
    lease / 6
}

/// The signal of the guard to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The command should end.
    Term,
    /// The command is killed, with everything it started.
    Kill,
}

/// How long before the end of validity a command gets its signals, as parts of the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Margins {
    /// A lease: the voters grant the name to no other node before validity ends.
    Lease,
    /// The grace period of a ring.
    Grace,
}

impl Margins {
    fn term(self, span: Duration) -> Duration {
        match self {
            Self::Lease => span * 3 / 8,
            Self::Grace => span / 2,
        }
    }

    fn kill(self, span: Duration) -> Duration {
        match self {
            Self::Lease => span / 8,
            Self::Grace => span / 5,
        }
    }

    /// How long after TERM a command that lost its turn gets KILL. After its client is gone, the agent of a weak turn
    /// keeps the token for P/2, so half of that is enough for the command.
    fn grace(self, span: Duration) -> Duration {
        match self {
            Self::Lease => GRACE,
            Self::Grace => GRACE.min(span / 4),
        }
    }
}

/// The deadline of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The end of validity.
    ends: Instant,
    /// The span whose parts are the margins: the longest validity given at once so far.
    span: Duration,
    margins: Margins,
    /// When the command gets TERM and KILL because of its limit, whatever the agent answers.
    limit: Option<(Instant, Instant)>,
    /// When the turn was lost or the client went away, if it did.
    ended: Option<Instant>,
    told: Option<Signal>,
}

impl Keeping {
    /// A turn of which `left` was left when the request was sent at `asked`.
    #[must_use]
    pub fn new(asked: Instant, left: Duration) -> Self {
        Self { ends: asked + left, span: left, margins: Margins::Lease, limit: None, ended: None, told: None }
    }

    /// A weak turn whose agent confirmed at `asked` or later that it has the token, in a ring with this grace period.
    /// If the agent continues to confirm it, the command gets TERM and KILL at the times of its limit.
    #[must_use]
    pub fn weak(asked: Instant, grace: Duration, limit: (Instant, Instant)) -> Self {
        Self { margins: Margins::Grace, limit: Some(limit), ..Self::new(asked, grace) }
    }

    /// Takes the answer of the agent to a request sent at `asked`. The time left counts from the request, so an answer
    /// that waited in a buffer never lengthens a turn (TU-34). A command that is being ended stays so.
    pub fn extend(&mut self, asked: Instant, left: Duration) {
        if self.ended.is_none() && self.told.is_none() {
            self.ends = self.ends.max(asked + left);
            self.span = self.span.max(left);
        }
    }

    /// Ends the command now: the turn is lost, or its client is gone.
    pub fn end(&mut self, now: Instant) {
        self.ended.get_or_insert(now);
    }

    /// The signal that is due now and was not given yet.
    pub fn signal(&mut self, now: Instant) -> Option<Signal> {
        let due = if now >= self.kill_at() {
            Signal::Kill
        } else if now >= self.term_at() {
            Signal::Term
        } else {
            return None;
        };
        let is_new = self.told != Some(due) && self.told != Some(Signal::Kill);
        is_new.then(|| *self.told.insert(due))
    }

    /// When [`Keeping::signal`] next returns a signal.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        match self.told {
            None => Some(self.term_at()),
            Some(Signal::Term) => Some(self.kill_at()),
            Some(Signal::Kill) => None,
        }
    }

    /// The end of validity.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether the command may continue at this moment.
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        self.ended.is_none() && now < self.kill_at()
    }

    /// When the command gets TERM.
    #[must_use]
    pub fn term_at(&self) -> Instant {
        let by_deadline = self.ends - self.margins.term(self.span);
        let by_deadline = self.limit.map_or(by_deadline, |(term, _)| term.min(by_deadline));
        self.ended.map_or(by_deadline, |ended| ended.min(by_deadline))
    }

    /// When the command gets KILL.
    #[must_use]
    pub fn kill_at(&self) -> Instant {
        let by_deadline = self.ends - self.margins.kill(self.span);
        let by_deadline = self.limit.map_or(by_deadline, |(_, kill)| kill.min(by_deadline));
        let grace = self.margins.grace(self.span);
        self.ended.map_or(by_deadline, |ended| (ended + grace).min(by_deadline))
    }
}
