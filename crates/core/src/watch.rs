//! Watched streams: when a driver reads the kernel's figures, and what follows from them.
//!
//! Both drivers use these rules; only the source of the figures differs. A look is cheap but not free. So the first
//! comes 5 ms after the kernel took bytes, later ones at doubled intervals of up to 100 ms, and none while everything
//! is acknowledged.

use core::time::Duration;

use crate::stream::Watch;
use crate::time::Instant;

/// The shortest time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// The longest.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// This many probes without an answer count as silence. One may be on its way, and one may be lost.
const PROBES_MAX: u32 = 3;

/// The keep-alive of an idle stream. With the defaults a dead peer is detected after about two minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer before the stream is `TimedOut`.
    pub probes: u32,
}

impl KeepAlive {
    /// Keep-alive that closes an idle stream after this long: half of it is silence, three probes are the rest. The
    /// system counts whole seconds.
    #[must_use]
    pub fn within(dead_after: Duration) -> Self {
        let seconds = dead_after.as_secs().max(2);
        let idle = seconds / 2;
        let interval = ((seconds - idle) / 3).max(1);
        let probes = u32::try_from((seconds - idle).div_ceil(interval)).unwrap_or(u32::MAX).min(127);
        Self { idle: Duration::from_secs(idle), interval: Duration::from_secs(interval), probes }
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 4 }
    }
}

/// The kernel's figures of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of this node that the peer's kernel has acknowledged since the stream was opened.
    pub acknowledged: u64,
    /// Time since the last acknowledgement of any kind came.
    pub silent_for: Duration,
    /// Whether segments are in flight. Bytes that wait for a window to open are not.
    pub in_flight: bool,
    /// Probes that the peer has not answered.
    pub probes: u32,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// How many more bytes are acknowledged: [`crate::StreamEvent::Confirmed`], if it is not zero.
    pub confirmed: usize,
    /// Whether the peer is dead by [`Watch::dead_after`].
    pub dead: bool,
}

/// The bookkeeping of one watched stream.
#[derive(Clone, Debug)]
pub struct Watched {
    watch: Watch,
    /// Bytes that the kernel took, as reported to the machine.
    sent: u64,
    /// Bytes that were acknowledged at the last look.
    acknowledged: u64,
    /// Acknowledged bytes that were reported to the machine.
    reported: u64,
    /// Since when bytes are unacknowledged.
    since: Instant,
    wait: Duration,
    next: Option<Instant>,
}

impl Watched {
    /// Begins to watch a stream of which the kernel has taken `sent` bytes so far. Bytes that the peer
    /// acknowledged before are confirmed at the first look.
    #[must_use]
    pub fn new(watch: Watch, sent: u64, now: Instant) -> Self {
        let next = (sent > 0).then(|| now + LOOK_MIN);
        Self { watch, sent, acknowledged: 0, reported: 0, since: now, wait: LOOK_MIN, next }
    }

    /// Changes the watch.
    pub fn change(&mut self, watch: Watch, now: Instant) {
        self.watch = watch;
        if self.acknowledged < self.sent {
            self.next = Some(now + LOOK_MIN);
        }
    }

    /// The watch that the machine requested.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Notes bytes that were reported to the machine as sent.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        if bytes > 0 && self.acknowledged == self.sent {
            self.since = now;
            self.wait = LOOK_MIN;
            self.next = Some(now + LOOK_MIN);
        }
        self.sent += bytes as u64;
    }

    /// When to look next; `None` while no new figures are needed.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Takes the kernel's figures.
    pub fn look(&mut self, seen: Seen, now: Instant) -> Looked {
        let acknowledged = seen.acknowledged.min(self.sent).max(self.acknowledged);
        if acknowledged > self.acknowledged {
            self.since = now;
            self.wait = LOOK_MIN;
        }
        self.acknowledged = acknowledged;
        let confirmed = if self.watch.confirm { (acknowledged - self.reported) as usize } else { 0 };
        self.reported += confirmed as u64;
        let is_open = acknowledged < self.sent;
        self.next = is_open.then(|| now + self.wait);
        self.wait = (self.wait * 2).min(LOOK_MAX);
        let silent_for = seen.silent_for.min(now.since(self.since));
        let asked = seen.in_flight || seen.probes >= PROBES_MAX;
        let dead = is_open && asked && self.watch.dead_after.is_some_and(|after| silent_for >= after);
        Looked { confirmed, dead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD_AFTER: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    fn watched() -> Watched {
        let watch = Watch { confirm: true, dead_after: Some(DEAD_AFTER) };
        let mut watched = Watched::new(watch, 0, at(0));
        assert_eq!(watched.due(), None);
        watched.sent(1000, at(10_000));
        watched
    }

    #[test]
    fn cu_19_confirmed_is_never_ahead_of_sent_and_adds_up() {
        let mut watched = watched();
        assert_eq!(watched.due(), Some(at(10_005)));
        let mut seen = Seen { acknowledged: 400, ..Seen::default() };
        assert_eq!(watched.look(seen, at(10_005)).confirmed, 400);
        seen.acknowledged = 1500;
        assert_eq!(watched.look(seen, at(10_010)).confirmed, 600, "the machine knows of 1000");
        assert_eq!(watched.due(), None, "all reported bytes are acknowledged");
        watched.sent(500, at(10_020));
        assert_eq!(watched.look(seen, at(10_025)).confirmed, 500);
    }

    #[test]
    fn cu_19_looks_become_rarer_up_to_a_tenth_of_a_second() {
        let mut watched = watched();
        let mut last = at(10_000);
        for millis in [5, 5, 10, 20, 40, 80, 100, 100] {
            let due = watched.due().unwrap();
            assert_eq!(due.since(last), Duration::from_millis(millis));
            watched.look(Seen { in_flight: true, ..Seen::default() }, due);
            last = due;
        }
    }

    #[test]
    fn cu_20_silence_counts_from_the_oldest_unacknowledged_byte() {
        let mut watched = watched();
        let silent = Seen { silent_for: Duration::from_secs(600), in_flight: true, ..Seen::default() };
        assert!(!watched.look(silent, at(12_999)).dead, "the stream was idle for long, which is no silence");
        assert!(watched.look(silent, at(13_000)).dead);
    }

    #[test]
    fn cu_20_a_peer_that_answers_or_only_does_not_read_is_not_dead() {
        let mut watched = watched();
        let answers = Seen { silent_for: Duration::from_millis(2_999), in_flight: true, ..Seen::default() };
        assert!(!watched.look(answers, at(60_000)).dead);
        let closed = Seen { silent_for: Duration::from_secs(50), in_flight: false, probes: 1, ..answers };
        assert!(!watched.look(closed, at(60_000)).dead, "a probe is on its way");
        assert!(watched.look(Seen { probes: 3, ..closed }, at(60_000)).dead);
    }

    #[test]
    fn without_confirm_nothing_is_reported_until_it_is_requested() {
        let mut watched = Watched::new(Watch { confirm: false, dead_after: None }, 100, at(0));
        let seen =
            Seen { acknowledged: 60, silent_for: Duration::from_secs(900), in_flight: true, probes: 9 };
        assert_eq!(watched.look(seen, at(5)), Looked { confirmed: 0, dead: false });
        watched.change(Watch { confirm: true, dead_after: None }, at(6));
        assert_eq!(watched.look(seen, at(11)).confirmed, 60);
    }

    #[test]
    fn cu_20_probes_of_an_idle_stream_end_it_in_time() {
        for (dead_after, idle, interval, probes) in
            [(1, 1, 1, 1), (3, 1, 1, 2), (10, 5, 1, 5), (60, 30, 10, 3)]
        {
            let keepalive = KeepAlive::within(Duration::from_secs(dead_after));
            let expected = (Duration::from_secs(idle), Duration::from_secs(interval), probes);
            assert_eq!((keepalive.idle, keepalive.interval, keepalive.probes), expected, "{dead_after} s");
        }
    }
}
