//! Store operations: from a machine to its disk and back.

use std::ops::RangeInclusive;

use annulus_core::{Machine, OpId, StoreFault, StoreOp, StoreReply, StoreResult, micros};
use core::time::Duration;

use crate::disk::DiskHealth;
use crate::host::HostId;
use crate::observer::{Observer, Verdict};
use crate::queue::What;
use crate::sim::Sim;
use crate::trace::{Kind, Record};

/// The answer of a disk to an operation, after its delay.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    host: Option<HostId>,
    life: u32,
    op: OpId,
    result: Outcome,
}

/// A [`StoreResult`] that owns its data.
#[derive(Debug, Default)]
enum Outcome {
    Value(Option<Vec<u8>>),
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    /// Which batch, and whether it is safe now.
    Written(u64, bool),
    Failed(StoreFault),
    #[default]
    Nothing,
}

impl<M: Machine> Sim<M> {
    /// A machine asks its store. Operations take effect in that order; the answers take their time.
    pub(crate) fn store(&mut self, id: HostId, op: OpId, request: StoreOp<'_>) {
        self.stats.store_ops += 1;
        self.trace.note(self.now, Some(id), Kind::Store, || Record::Store {
            op: op.to_string(),
            request: describe(request),
        });
        self.hash_request(request);
        let result = self.execute(id, request);
        if matches!(result, Outcome::Failed(_)) {
            self.stats.store_failures += 1;
        }
        let takes = match request {
            StoreOp::Get { .. } | StoreOp::Page { .. } => &self.config.disk.read,
            StoreOp::Write { durable: false, .. } => &self.config.disk.write,
            StoreOp::Write { durable: true, .. } => &self.config.disk.sync,
        };
        let range: RangeInclusive<Duration> = takes.clone();
        let mut takes = self.disk_rng.between(micros(*range.start()), micros(*range.end()));
        let tail = self.config.disk.sync_tail;
        if tail > 0.0 && matches!(request, StoreOp::Write { durable: true, .. }) && self.disk_rng.chance(tail)
        {
            takes += (1_000_000 * 30) >> self.disk_rng.below(12);
            let (host, ends) = (&mut self.hosts[id.index()], self.now + takes);
            let life = host.life;
            let slow = &mut host.extra().slow_sync;
            *slow = (life, if slow.0 == life { slow.1.max(ends) } else { ends });
        }
        let host = &mut self.hosts[id.index()];
        host.ops += 1;
        let life = host.life;
        let slot = self.answers.claim();
        *self.answers.at_mut(slot) = Answer { host: Some(id), life, op, result };
        self.queue.push(self.now + takes, What::Stored(slot));
    }

    /// When the slow syncs end that a host waits for (FA-11). Those that began before [`crate::Fault::Calm`] end as drawn.
    #[must_use]
    pub fn slow_sync_ends(&self, host: HostId) -> Duration {
        let host = &self.hosts[host.index()];
        let slow = host.extra.as_ref().map(|extra| extra.slow_sync).filter(|(life, _)| *life == host.life);
        Duration::from_micros(slow.map_or(0, |(_, ends)| ends))
    }

    /// A disk has finished an operation: a write is done, whether or not the host can get the reply now.
    pub(crate) fn store_answers(&mut self, slot: u32, observer: &mut dyn Observer<M>) -> Verdict {
        let answer = self.answers.at(slot);
        let Some(id) = answer.host.filter(|id| !self.is_over(*id, answer.life)) else {
            self.answers.release(slot);
            return Ok(());
        };
        let host = &mut self.hosts[id.index()];
        if let Outcome::Written(number, durable) = answer.result {
            let history = self.config.disk.history;
            host.disk().answered(number, durable, history);
        }
        if host.is_free(self.now) {
            return self.stored(slot, observer);
        }
        let extra = host.extra();
        extra.stored.push_back(slot);
        let until = extra.busy_until;
        if host.is_free(until) {
            self.queue_drain(id, until);
        }
        Ok(())
    }

    /// Gives a machine the result of an operation.
    pub(crate) fn stored(&mut self, slot: u32, observer: &mut dyn Observer<M>) -> Verdict {
        let answer = std::mem::take(self.answers.at_mut(slot));
        self.answers.release(slot);
        let Some(id) = answer.host.filter(|id| !self.is_over(*id, answer.life)) else { return Ok(()) };
        let result = match &answer.result {
            Outcome::Value(value) => StoreResult::Value(value.as_deref()),
            Outcome::Page(entries, more) => StoreResult::Page { entries, more: *more },
            Outcome::Written(..) => StoreResult::Written,
            Outcome::Failed(fault) => StoreResult::Failed(*fault),
            Outcome::Nothing => return Ok(()),
        };
        let op = answer.op;
        self.trace.note(self.now, Some(id), Kind::Stored, || Record::Stored {
            op: op.to_string(),
            result: format!("{result:?}"),
        });
        let host = &mut self.hosts[id.index()];
        host.ops -= 1;
        let now = host.clock.now(self.now);
        if let Some(machine) = &mut host.machine {
            machine.handle_stored(now, StoreReply { op, result }, &mut self.actions.outbox());
        }
        self.settle(id, observer)
    }

    fn execute(&mut self, id: HostId, request: StoreOp<'_>) -> Outcome {
        let config = &self.config.disk;
        let host = &mut self.hosts[id.index()];
        if host.ops >= config.ops_max {
            return Outcome::Failed(StoreFault::Busy);
        }
        let broken = host.disk.as_ref().is_some_and(|disk| disk.health == DiskHealth::Broken);
        match request {
            _ if broken => Outcome::Failed(StoreFault::Broken),
            StoreOp::Get { space, key } => {
                let value = host.disk.as_ref().and_then(|disk| disk.value(space, key));
                Outcome::Value(value.map(<[u8]>::to_vec))
            }
            StoreOp::Page { space, from, until, entries_max } => {
                let Some(disk) = &host.disk else { return Outcome::Page(Vec::new(), false) };
                let mut range = disk.range(space, from, until);
                let entries = range
                    .by_ref()
                    .take(entries_max as usize)
                    .map(|(key, value)| (key[2..].to_vec(), value.to_vec()))
                    .collect();
                Outcome::Page(entries, range.next().is_some())
            }
            StoreOp::Write { batch, durable } => {
                if config.failure > 0.0 && self.disk_rng.chance(config.failure) {
                    return Outcome::Failed(StoreFault::Broken);
                }
                if durable && host.disk().health == DiskHealth::SyncFails {
                    host.disk().health = DiskHealth::Good;
                    return Outcome::Failed(StoreFault::Broken);
                }
                match host.disk().write(batch, config.bytes_max) {
                    Ok(number) => Outcome::Written(number, durable),
                    Err(fault) => Outcome::Failed(fault),
                }
            }
        }
    }

    fn hash_request(&mut self, request: StoreOp<'_>) {
        let hash = self.trace.hash();
        match request {
            StoreOp::Get { key, .. } => hash.bytes(key),
            StoreOp::Page { from, until, .. } => {
                hash.bytes(from);
                hash.bytes(until);
            }
            StoreOp::Write { batch, durable } => {
                hash.number(u64::from(durable));
                for change in batch.iter() {
                    hash.bytes(change.key);
                    hash.bytes(change.value.as_deref().unwrap_or_default());
                }
            }
        }
    }
}

/// An operation for a line of the trace.
fn describe(request: StoreOp<'_>) -> String {
    use annulus_core::Hex;
    use core::fmt::Write as _;

    match request {
        StoreOp::Get { space, key } => format!("get {space} {}", Hex(key)),
        StoreOp::Page { space, from, until, entries_max } => {
            format!("page {space} {}..{} {entries_max}", Hex(from), Hex(until))
        }
        StoreOp::Write { batch, durable } => {
            let mut text = String::from(if durable { "write durably" } else { "write" });
            for change in batch.iter() {
                // Writing into a string cannot fail.
                let _ = match change.value {
                    Some(value) => write!(text, " {} {}={}", change.space, Hex(change.key), Hex(&value)),
                    None => write!(text, " {} {} deleted", change.space, Hex(change.key)),
                };
            }
            text
        }
    }
}
