//! The machine's disk: the start from its content, and the effects of a write (TU-11, TU-19).

use core::time::Duration;

use super::Event;
use super::asker::Asker;
use super::disk::{Found, Write};
use super::machine::{Life, Turns};
use super::message::Standing;
use crate::store::StoreFault;
use crate::time::{Instant, Now};
use crate::wire::{Reader, Writer};

/// The longest snapshot of leases: 16 384 of them.
const SNAPSHOT_BYTES_MAX: usize = 2 << 20;

/// The pause before a start repeats what the disk refused.
const RETRY: Duration = Duration::from_millis(500);

impl Turns {
    /// Handles the end of reading. A snapshot is erased before the voter answers anything (TU-19).
    pub(super) fn on_loaded(&mut self, now: Now, found: Found) {
        if let Some(fault) = found.refused {
            // The disk may recover: only then does this node know whether it has a record.
            self.effects.event(Event::StoreFailed { fault });
            self.retry_at = Some(now.mono + RETRY);
        } else if found.broken {
            // A voter that cannot read its bound must not vote, and must not found another group.
            self.effects.event(Event::VoterHalted { reason: "disk_not_readable" });
            self.life = Life::Stopping;
        } else if found.snapshot.is_some() {
            self.life = Life::Erasing;
            self.found = Some(found);
            self.effects.write(Write::EraseSnapshot);
        } else {
            self.begin(now, found, false);
        }
    }

    /// Erases the snapshot again if the disk refused that. Returns whether the disk must be read again.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        if self.retry_at.take_if(|at| *at <= now).is_none() {
            return false;
        }
        if self.life == Life::Erasing {
            self.effects.write(Write::EraseSnapshot);
        }
        self.life == Life::Loading
    }

    /// Starts with the content of the disk.
    fn begin(&mut self, now: Now, found: Found, snapshot_erased: bool) {
        self.life = Life::Running;
        let snapshot = found.snapshot.as_deref().filter(|_| snapshot_erased);
        let restored = snapshot.is_some_and(|bytes| self.restore(now, bytes));
        self.voter.bound_written(found.bound);
        // TU-11: a disk that lost a sync or was restored from a backup must not grant a number again.
        let floor = found.record.as_ref().map_or(0, |record| record.floor.max(now.wall.as_micros()));
        self.voter.raise_floor(found.bound.max(floor));
        if found.record.is_some() {
            let floor = self.voter.floor();
            self.reserve_bound(floor);
        }
        self.with_membership(now, |membership, cx| membership.loaded(cx, found.record, !restored));
    }

    /// Restores the leases of a stop in good order, if that was in this boot.
    fn restore(&mut self, now: Now, bytes: &[u8]) -> bool {
        let mut reader = Reader::new(bytes);
        let boot_id = reader.array::<16>().ok();
        let taken = reader.u64().map(Instant::from_micros);
        let same_boot = boot_id.is_some() && boot_id == self.boot_id && taken.is_ok_and(|at| at <= now.mono);
        let restored = same_boot && self.voter.restore_leases(now.mono, &mut reader).is_ok();
        if !restored {
            self.voter.forget_leases();
        }
        restored
    }

    pub(super) fn on_written(&mut self, now: Now, write: Write) {
        match write {
            Write::Bound(bound) => {
                self.voter.bound_written(bound);
                for (from, nonce, ask) in core::mem::take(&mut self.waiting) {
                    // An Ask that can no longer be granted is answered or dropped like any other.
                    let _ = self.on_ask(now, from, nonce, ask);
                }
            }
            Write::Record(record, bound) => {
                if let Some(bound) = bound {
                    self.voter.bound_written(bound);
                }
                if record.is_none() {
                    self.voter.forget_leases();
                }
                let bound = self.voter.told_bound();
                let floor = self.with_membership(now, |membership, cx| membership.record_written(cx, bound));
                if let Some(floor) = floor.filter(|_| record.is_some()) {
                    self.voter.raise_floor(floor);
                    self.reserve_bound(floor);
                }
                self.with_asker(now, Asker::wake);
            }
            Write::EraseSnapshot => {
                if let Some(found) = self.found.take() {
                    self.begin(now, found, true);
                }
            }
            Write::Snapshot(_) => {}
        }
    }

    pub(super) fn on_write_failed(&mut self, now: Instant, fault: StoreFault, write: &Write) {
        self.counters.writes_failed += 1;
        self.effects.event(Event::StoreFailed { fault });
        match write {
            Write::Record(..) => self.membership.write_failed(write),
            Write::Bound(_) => self.waiting.clear(),
            // A snapshot that stays could be used again after a later crash: the voter does not answer before.
            Write::EraseSnapshot => self.retry_at = Some(now + RETRY),
            Write::Snapshot(_) => {}
        }
    }

    pub(super) fn snapshot(&self, now: Now) -> Option<Vec<u8>> {
        let boot_id = self.boot_id?;
        if self.membership.standing(now.mono) != Standing::Voting {
            return None;
        }
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, SNAPSHOT_BYTES_MAX);
        writer.bytes(&boot_id);
        writer.u64(now.mono.as_micros());
        self.voter.encode_leases(now.mono, &mut writer);
        writer.finish().ok()?;
        Some(bytes)
    }
}
