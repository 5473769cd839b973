//! Keeping: how long a turn is valid, and when what runs under it must end (TU-14, TU-33 … TU-36).
//!
//! These are rules without I/O. The asker, the command line, the guard and the simulator's runner all use them: the
//! rule that is tested is the rule that runs.
//!
//! A span H = 0.8 · length of validity is cut in eighths. The command gets TERM at 3/8 of H before the end of validity and
//! KILL at 1/8 before it. With a lease of 10 s these are 5 s and 7 s after the last renewal was sent.
//!
//! A weak turn is valid for the grace period P of its ring after the last sign of life of its agent, because no other
//! node makes a token earlier (TU-41). The command gets TERM after P/2 and KILL after 4/5 P (TU-42).

use core::time::Duration;

use crate::time::Instant;

/// A command that lost its turn gets KILL so long after TERM, or at the deadline if that is earlier.
pub const GRACE: Duration = Duration::from_secs(1);

/// The validity that a lease of this length gives, counted from when it was asked for (TU-14).
#[must_use]
pub fn validity(lease: Duration) -> Duration {
    lease * 4 / 5
}

/// How often a turn is renewed, and how often a client asks its agent to keep it (TU-16, TU-34).
#[must_use]
pub fn interval(lease: Duration) -> Duration {
    lease / 6
}

/// What the guard is to send to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ask the command to end.
    Term,
    /// End it, with everything it started.
    Kill,
}

/// How long before the end of validity a command gets its signals, as parts of the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Margins {
    /// A lease: the voters give the name to nobody else before validity ends.
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

    /// How long after TERM a command that lost its turn gets KILL. The agent of a weak turn whose client is gone keeps the
    /// token for P/2, so half of that is enough for the command.
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
    /// The span whose parts are the margins: the longest validity that was ever given at once.
    span: Duration,
    margins: Margins,
    /// When the command gets TERM and KILL because of its limit, whatever the agent says.
    limit: Option<(Instant, Instant)>,
    /// When the turn was lost or the client went away, if it did.
    ended: Option<Instant>,
    told: Option<Signal>,
}

impl Keeping {
    /// A turn of which `left` was left when it was asked for at `asked`.
    #[must_use]
    pub fn new(asked: Instant, left: Duration) -> Self {
        Self { ends: asked + left, span: left, margins: Margins::Lease, limit: None, ended: None, told: None }
    }

    /// A weak turn whose agent said at `asked` or later that it has the token, in a ring with this grace period. The
    /// command gets TERM and KILL at the moments of its limit, if the agent goes on to say so.
    #[must_use]
    pub fn weak(asked: Instant, grace: Duration, limit: (Instant, Instant)) -> Self {
        Self { margins: Margins::Grace, limit: Some(limit), ..Self::new(asked, grace) }
    }

    /// The agent answered a question that was sent at `asked`: so much is left. It counts from the question, so an answer
    /// that waited in a buffer never lengthens a turn (TU-34). A command that is being ended stays so.
    pub fn extend(&mut self, asked: Instant, left: Duration) {
        if self.ended.is_none() && self.told.is_none() {
            self.ends = self.ends.max(asked + left);
            self.span = self.span.max(left);
        }
    }

    /// The turn is lost, or nobody keeps it any more: the command ends now.
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

    /// When [`Keeping::signal`] has something to say.
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

    /// Whether the command may go on at this moment.
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
