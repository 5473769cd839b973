//! Health: the round-trip estimate of a connection, and whether it still answers.
//!
//! The timer of a connection starts with the first message that the peer must answer, and stops with any bytes of the
//! peer. A connection that is silent for q = clamp(4 · srtt + 100 ms, 200 ms, 2 s) is unresponsive. One that is
//! unresponsive for 2 q is dead.

use core::time::Duration;

use crate::time::Instant;

const QUIET_MIN: Duration = Duration::from_millis(200);
const QUIET_MAX: Duration = Duration::from_secs(2);
const QUIET_BASE: Duration = Duration::from_millis(100);

/// The meaning of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Silent for q.
    Unresponsive,
    /// Unresponsive for 2 q.
    Dead,
}

/// The health of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    srtt: Option<Duration>,
    /// When bytes of the peer last arrived.
    heard: Instant,
    /// The first write since then that the peer must answer.
    unanswered: Option<Instant>,
    /// Bytes written since then.
    unanswered_bytes: usize,
    unresponsive: Option<Instant>,
    ping: Option<(u32, Instant)>,
    /// Whether the timer was restarted because this node checked late.
    is_extended: bool,
}

impl Health {
    /// The health of a new connection, with the estimate of an earlier one to the same peer.
    pub(super) fn new(now: Instant, srtt: Option<Duration>) -> Self {
        Self {
            srtt,
            heard: now,
            unanswered: None,
            unanswered_bytes: 0,
            unresponsive: None,
            ping: None,
            is_extended: false,
        }
    }

    /// Notes a written message; `answered` if the peer must answer it, which starts the timer.
    pub(super) fn wrote(&mut self, now: Instant, bytes: usize, answered: bool) {
        self.unanswered_bytes = self.unanswered_bytes.saturating_add(bytes);
        if answered {
            self.unanswered.get_or_insert(now);
        }
    }

    /// Restarts the timer: the kernel takes a long message piece by piece.
    pub(super) fn progressed(&mut self, now: Instant) {
        if self.unanswered.is_some() && self.unresponsive.is_none() {
            self.unanswered = Some(now);
        }
    }

    /// Notes bytes of the peer. Returns whether the connection was unresponsive.
    pub(super) fn on_heard(&mut self, now: Instant) -> bool {
        let was_unresponsive = self.unresponsive.is_some();
        if was_unresponsive && let Some(since) = self.unanswered {
            // A late answer is a lower bound of the round trip.
            self.sample(now.since(since));
        }
        self.heard = now;
        self.unanswered = None;
        self.unanswered_bytes = 0;
        self.unresponsive = None;
        self.is_extended = false;
        was_unresponsive
    }

    /// Adds a round-trip sample.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.srtt = Some(match self.srtt {
            None => rtt,
            // It grows faster than it shrinks: a wrong verdict costs more than a late one.
            Some(srtt) if rtt > srtt => (srtt + rtt) / 2,
            Some(srtt) => (srtt * 7 + rtt) / 8,
        });
    }

    /// Marks the connection as unresponsive. Returns whether that is new.
    pub(super) fn mark_unresponsive(&mut self, now: Instant) -> bool {
        let is_new = self.unresponsive.is_none();
        if is_new {
            self.unresponsive = Some(now);
            self.unanswered.get_or_insert(now);
        }
        is_new
    }

    /// Notes that a ping was written.
    pub(super) fn pinged(&mut self, now: Instant, nonce: u32) {
        self.ping = Some((nonce, now));
    }

    /// Handles a pong. Returns its round trip. One that answers no ping under way on this connection is ignored.
    pub(super) fn on_pong(&mut self, now: Instant, nonce: u32) -> Option<Duration> {
        let (_, sent) = self.ping.take_if(|(asked, _)| *asked == nonce)?;
        let rtt = now.since(sent);
        self.sample(rtt);
        Some(rtt)
    }

    /// The state of the timer now; `None` if it has not expired. A timer that is checked late is restarted, once: the
    /// answer may be in the kernel.
    pub(super) fn silence(&mut self, now: Instant) -> Option<Silence> {
        let due = self.deadline().filter(|due| *due <= now)?;
        if self.extend(now, due) {
            self.unanswered = Some(now);
            self.unresponsive = self.unresponsive.map(|_| now);
            return None;
        }
        Some(if self.unresponsive.is_some() { Silence::Dead } else { Silence::Unresponsive })
    }

    /// Whether a deadline is checked late, for the first time since bytes of the peer arrived.
    pub(super) fn extend(&mut self, now: Instant, due: Instant) -> bool {
        let is_late = !self.is_extended && now.since(due) > self.quiet_max() / 2;
        self.is_extended |= is_late;
        is_late
    }

    /// When the timer expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match (self.unresponsive, self.unanswered) {
            (Some(since), _) => Some(since + self.quiet_max() * 2),
            // A long message takes longer: one megabyte per second is assumed.
            (None, Some(since)) => {
                Some(since + self.quiet_max() + Duration::from_micros(self.unanswered_bytes as u64))
            }
            (None, None) => None,
        }
    }

    /// q, the longest silence of a healthy connection.
    pub(super) fn quiet_max(&self) -> Duration {
        self.srtt.map_or(QUIET_MAX, |srtt| (srtt * 4 + QUIET_BASE).clamp(QUIET_MIN, QUIET_MAX))
    }

    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    pub(super) fn is_unresponsive(&self) -> bool {
        self.unresponsive.is_some()
    }

    /// Whether the peer owes an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.unanswered.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u32) -> Instant {
        Instant::ZERO + MS * millis
    }

    #[test]
    fn pl_2_q_follows_the_round_trip_within_its_bounds() {
        let mut health = Health::new(at(0), None);
        assert_eq!(health.quiet_max(), QUIET_MAX, "never measured");
        health.sample(MS);
        assert_eq!(health.quiet_max(), QUIET_MIN);
        let mut far = Health::new(at(0), Some(100 * MS));
        assert_eq!(far.quiet_max(), 500 * MS);
        far.sample(2000 * MS);
        assert_eq!(far.quiet_max(), QUIET_MAX);
        let before = far.srtt();
        far.sample(MS);
        assert!(far.srtt() < before && far.srtt() > before.map(|srtt| srtt / 2), "it shrinks slowly");
    }

    #[test]
    fn pl_3_silence_makes_unresponsive_then_dead() {
        let mut health = Health::new(at(0), Some(MS));
        health.wrote(at(0), 10, false);
        assert!(health.deadline().is_none(), "nothing is owed");
        health.wrote(at(10), 1000, true);
        assert!(health.deadline().is_some());
        health.wrote(at(20), 10, true);
        assert_eq!(health.silence(at(210)), None, "bytes take their time");
        assert_eq!(health.silence(at(212)), Some(Silence::Unresponsive));
        assert!(health.mark_unresponsive(at(212)) && !health.mark_unresponsive(at(300)));
        assert_eq!(health.silence(at(611)), None);
        assert_eq!(health.silence(at(612)), Some(Silence::Dead));
        assert!(health.on_heard(at(613)) && !health.is_unresponsive());
        assert!(health.srtt() > Some(100 * MS), "a late answer counts");
    }

    #[test]
    fn pl_3_a_timer_that_is_checked_late_restarts_once() {
        let mut health = Health::new(at(0), Some(MS));
        health.wrote(at(0), 0, true);
        assert_eq!(health.silence(at(5000)), None, "this node was paused");
        assert_eq!(health.deadline(), Some(at(5200)));
        assert_eq!(health.silence(at(9000)), Some(Silence::Unresponsive));
    }

    #[test]
    fn pl_1_a_pong_counts_only_for_the_ping_of_its_nonce() {
        let mut health = Health::new(at(0), None);
        health.on_pong(at(1), 0);
        health.pinged(at(1), 7);
        health.on_pong(at(2), 8);
        assert_eq!(health.srtt(), None);
        health.on_pong(at(4), 7);
        health.on_pong(at(900), 7);
        assert_eq!(health.srtt(), Some(3 * MS));
    }
}
