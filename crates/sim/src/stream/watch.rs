//! Watched and idle streams: reads of the kernel state, keep-alive probes, and the effect of a suspended machine on
//! both.

use annulus_core::{CloseReason, Instant, KeepAlive, Machine, StreamId, Watch, Watched, micros};

use super::{EndKey, Phase, SegmentKind};
use crate::host::{HostId, HostState};
use crate::queue::What;
use crate::sim::Sim;
use crate::trace::{Kind, Record};

impl<M: Machine> Sim<M> {
    /// A machine wants a stream watched.
    pub(crate) fn watch_stream(&mut self, id: HostId, stream: StreamId, watch: Watch) {
        self.trace
            .note(self.now, Some(id), Kind::Watch, || Record::Watch { stream: stream.to_string(), watch });
        if !self.config.stream.confirms {
            return;
        }
        let now = Instant::from_micros(self.now);
        let Some(key) = self.hosts[id.index()].stream(stream) else { return };
        let Some(end) = self.end_mut(key).filter(|end| end.held && end.closed.is_none()) else { return };
        let reported = end.taken - end.taken_unreported as u64;
        match &mut end.watched {
            Some(watched) => watched.change(watch, now),
            None => end.watched = Some(Box::new(Watched::new(watch, reported, now))),
        }
        self.queue_look(key);
        // The probes of an idle stream may now be due sooner.
        self.queue_probe(key);
    }

    /// Sees to it that the kernel of a watched stream is looked at.
    pub(super) fn queue_look(&mut self, key: EndKey) {
        let Some(end) = self.end_mut(key) else { return };
        let Some(due) = end.watched.as_ref().and_then(|watched| watched.due()) else { return };
        if !end.look_queued {
            end.look_queued = true;
            self.queue.push(due.as_micros().max(self.now), What::Look(key));
        }
    }

    /// A driver reads the kernel state of a watched stream.
    pub(crate) fn look_due(&mut self, key: EndKey) {
        let now = self.now;
        let Some(end) = self.end_mut(key) else { return };
        let id = end.host;
        if matches!(self.hosts[id.index()].state, HostState::Suspended | HostState::Asleep) {
            return self.stop_timer(id, What::Look(key));
        }
        let Some(end) = self.end_mut(key) else { return };
        end.look_queued = false;
        let seen = end.seen(now);
        let Some(watched) = &mut end.watched else { return };
        if watched.due().is_none_or(|due| due.as_micros() > now) {
            return self.queue_look(key);
        }
        let looked = watched.look(seen, Instant::from_micros(now));
        end.confirmed_unreported += looked.confirmed;
        if looked.confirmed > 0 {
            self.queue_pump(key);
        }
        if looked.dead {
            self.stats.streams_timed_out += 1;
            self.send_reset(key);
            self.fail(key, CloseReason::TimedOut);
            return self.free_if_over(key);
        }
        self.queue_look(key);
    }

    /// How an end is probed while it is idle.
    fn keepalive(&self, key: EndKey) -> Option<KeepAlive> {
        let watched = self.end(key)?.watched.as_ref();
        watched
            .and_then(|watched| watched.watch().dead_after)
            .map(KeepAlive::within)
            .or(self.config.stream.keepalive)
    }

    /// Sets the keep-alive timer of an end that stands.
    pub(super) fn queue_probe(&mut self, key: EndKey) {
        if let Some(keepalive) = self.keepalive(key) {
            self.set_probe(key, self.now + micros(keepalive.idle));
        }
    }

    fn set_probe(&mut self, key: EndKey, at: u64) {
        let Some(end) = self.end_mut(key) else { return };
        end.probe_at = at;
        self.queue.push(at, What::Probe(key));
    }

    /// The keep-alive timer of an end may have run out. Only the last that was set counts if several are in the queue.
    pub(crate) fn probe_due(&mut self, key: EndKey) {
        let (now, orphan) = (self.now, micros(self.config.stream.orphan_timeout));
        let Some(keepalive) = self.keepalive(key) else { return };
        let (idle, interval) = (micros(keepalive.idle), micros(keepalive.interval));
        let Some(end) = self.end(key).filter(|end| end.phase == Phase::Open && end.probe_at <= now) else {
            return;
        };
        let id = end.host;
        if self.hosts[id.index()].state == HostState::Asleep {
            return self.stop_timer(id, What::Probe(key));
        }
        let Some(end) = self.end_mut(key) else { return };
        let quiet = now.saturating_sub(end.heard_at);
        if !end.held && end.is_confirmed() && quiet >= orphan {
            end.forget();
            return self.free_if_over(key);
        }
        let due = idle + u64::from(end.probes) * interval;
        if !end.is_confirmed() {
            return self.set_probe(key, now + idle);
        }
        if quiet < due {
            return self.set_probe(key, now + (due - quiet));
        }
        if end.probes >= keepalive.probes {
            self.stats.streams_timed_out += 1;
            self.send_reset(key);
            self.fail(key, CloseReason::TimedOut);
            return self.free_if_over(key);
        }
        end.probes += 1;
        self.send_control(key, SegmentKind::Probe);
        self.set_probe(key, now + interval);
    }

    /// Keeps a timer that ran out while the host could not act on it.
    pub(super) fn stop_timer(&mut self, id: HostId, what: What) {
        self.hosts[id.index()].extra().stopped_timers.push(what);
    }

    /// Timers that ran out meanwhile are due now.
    pub(crate) fn restart_timers(&mut self, id: HostId) {
        let Some(extra) = &mut self.hosts[id.index()].extra else { return };
        for what in std::mem::take(&mut extra.stopped_timers) {
            self.queue.push(self.now, what);
        }
    }

    /// The timers of a kernel do not count the sleep of its machine.
    pub(crate) fn shift_streams(&mut self, id: HostId) {
        let Some(extra) = &self.hosts[id.index()].extra else { return };
        let asleep_for = self.now - extra.asleep_since;
        for key in extra.streams.values().copied().collect::<Vec<_>>() {
            if let Some(end) = self.end_mut(key) {
                end.silent_since += asleep_for;
                end.heard_at += asleep_for;
                end.retransmit_at += asleep_for;
            }
        }
    }
}
