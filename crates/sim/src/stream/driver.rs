//! Actions in, events out: the part that a driver plays between a machine and the kernel.

use annulus_core::{CloseReason, Instant, Machine, StreamEvent, StreamId};

use super::{EndKey, Phase, SegmentKind};
use crate::host::{HostId, Waiting};
use crate::observer::{Observer, Verdict};
use crate::queue::What;
use crate::sim::Sim;
use crate::trace::{Bytes, Kind, Record};

/// The most that a driver reads at once.
const READ_MAX_BYTES: usize = 64 * 1024;

/// The next event of a stream for the machine.
#[derive(Clone, Copy, Debug)]
enum News {
    Opened,
    Sent { bytes: usize, fin: bool },
    Confirmed { bytes: usize },
    Data { length: usize },
    Finished,
    Closed(CloseReason),
}

impl<M: Machine> Sim<M> {
    /// A machine writes to a stream.
    pub(crate) fn write_stream(&mut self, id: HostId, stream: StreamId, bytes: &[u8]) -> Verdict {
        self.trace.note(self.now, Some(id), Kind::Write, || Record::Write {
            stream: stream.to_string(),
            bytes: Bytes(bytes),
        });
        self.trace.hash().bytes(bytes);
        let unsent_max = self.config.stream.unsent_max_bytes;
        let Some((key, end)) = self.held_end(id, stream) else { return Ok(()) };
        if end.finish {
            return Err(Self::breach(id, &format!("writes to stream {stream} after it has finished it")));
        }
        end.unsent.extend(bytes);
        self.take_and_transmit(key);
        if self.end(key).is_some_and(|end| end.unsent.len() > unsent_max) {
            self.stats.streams_overrun += 1;
            self.send_reset(key);
            self.fail(key, CloseReason::Overrun);
        }
        Ok(())
    }

    /// A machine allows more to be read.
    pub(crate) fn read_stream(&mut self, id: HostId, stream: StreamId, credit: usize) {
        let Some((key, end)) = self.held_end(id, stream) else { return };
        end.credit = end.credit.saturating_add(credit);
        self.queue_pump(key);
    }

    /// A machine ends its direction of a stream.
    pub(crate) fn finish_stream(&mut self, id: HostId, stream: StreamId) {
        self.trace.note(self.now, Some(id), Kind::Finish, || Record::Finish { stream: stream.to_string() });
        let Some((key, end)) = self.held_end(id, stream) else { return };
        end.finish = true;
        self.take_and_transmit(key);
    }

    /// A machine resets a stream.
    pub(crate) fn abort_stream(&mut self, id: HostId, stream: StreamId) {
        self.trace.note(self.now, Some(id), Kind::Abort, || Record::Abort { stream: stream.to_string() });
        let Some(key) = self.hosts[id.index()].stream(stream) else { return };
        match self.end(key).map(|end| end.phase) {
            None | Some(Phase::Gone) => {}
            Some(_) => self.abandon(key),
        }
        self.let_go(key);
    }

    /// Schedules the inputs that a stream has for its machine.
    pub(super) fn queue_pump(&mut self, key: EndKey) {
        let Some(end) = self.end_mut(key) else { return };
        if end.held && !end.pump_queued {
            end.pump_queued = true;
            self.queue.push(self.now, What::Pump(key));
        }
    }

    /// Gives a machine its pending stream events, as soon as it can take input.
    pub(crate) fn pump_due(&mut self, key: EndKey, observer: &mut dyn Observer<M>) -> Verdict {
        let Some(end) = self.end(key) else { return Ok(()) };
        let id = end.host;
        if self.hosts[id.index()].is_ready(self.now) {
            return self.pump(key, observer);
        }
        if self.hosts[id.index()].machine.is_some() {
            self.wait(id, Waiting::Stream(key));
        }
        Ok(())
    }

    /// Gives a machine all pending events of its stream, as long as it can take input.
    pub(crate) fn pump(&mut self, key: EndKey, observer: &mut dyn Observer<M>) -> Verdict {
        let Some(end) = self.end_mut(key) else { return Ok(()) };
        end.pump_queued = false;
        let id = end.host;
        let life = self.hosts[id.index()].life;
        if self.take(key) {
            self.transmit(key);
        }
        while let Some(news) = self.news(key) {
            let host = &self.hosts[id.index()];
            if !host.is_free(self.now) {
                if host.machine.is_some()
                    && let Some(end) = self.end_mut(key)
                {
                    end.pump_queued = true;
                    self.wait(id, Waiting::Stream(key));
                }
                return Ok(());
            }
            self.tell(key, news, observer)?;
            if self.is_over(id, life) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next event for the machine, if any.
    fn news(&mut self, key: EndKey) -> Option<News> {
        let odd = self.config.stream.odd_chunks;
        let end = self.end(key).filter(|end| end.held)?;
        if !end.is_reported && end.phase == Phase::Open {
            return Some(News::Opened);
        }
        let fin = end.fin_taken && !end.fin_reported;
        if end.is_reported && (end.taken_unreported > 0 || fin) {
            // Also before `Closed`: the driver knows what its system call returned.
            return Some(News::Sent { bytes: end.taken_unreported, fin });
        }
        if let Some(reason) = end.closed {
            return Some(News::Closed(reason));
        }
        if !end.is_reported {
            return None;
        }
        if end.confirmed_unreported > 0 {
            return Some(News::Confirmed { bytes: end.confirmed_unreported });
        }
        let readable = end.incoming.len().min(end.credit).min(READ_MAX_BYTES);
        if readable > 0 {
            let mut length = readable;
            if odd > 0.0 && readable > 1 && self.network_rng.chance(odd) {
                // Any order of magnitude: a byte, a line, a buffer.
                let shift = self.network_rng.below(u64::from(readable.ilog2()) + 1);
                length = self.network_rng.between(1, (readable >> shift) as u64) as usize;
            }
            return Some(News::Data { length });
        }
        let end = self.end(key)?;
        if end.incoming.is_empty() && end.fin_arrived && !end.finished_reported {
            return Some(News::Finished);
        }
        (end.finished_reported && end.fin_reported).then_some(News::Closed(CloseReason::Done))
    }

    fn tell(&mut self, key: EndKey, news: News, observer: &mut dyn Observer<M>) -> Verdict {
        match news {
            News::Opened => self.tell_opened(key, observer),
            News::Sent { bytes, fin } => self.tell_sent(key, bytes, fin, observer),
            News::Data { length } => self.tell_data(key, length, observer),
            News::Confirmed { bytes } => self.tell_confirmed(key, bytes, observer),
            News::Finished => {
                let Some(end) = self.end_mut(key) else { return Ok(()) };
                end.finished_reported = true;
                let (id, stream) = (end.host, end.stream);
                self.trace.note(self.now, Some(id), Kind::Finished, || Record::Finished {
                    stream: stream.to_string(),
                });
                self.call_stream(id, stream, StreamEvent::Finished, observer)
            }
            News::Closed(reason) => {
                let Some(end) = self.end(key) else { return Ok(()) };
                let (id, stream) = (end.host, end.stream);
                self.let_go(key);
                self.trace.note(self.now, Some(id), Kind::Closed, || Record::Closed {
                    stream: stream.to_string(),
                    reason,
                });
                self.trace.hash().number(reason as u64);
                observer.on_closed(self, id, stream, reason);
                self.call_stream(id, stream, StreamEvent::Closed(reason), observer)
            }
        }
    }

    fn tell_opened(&mut self, key: EndKey, observer: &mut dyn Observer<M>) -> Verdict {
        let Some(from) = self.end(key.peer()).map(|peer| peer.addr) else { return Ok(()) };
        let Some(end) = self.end_mut(key) else { return Ok(()) };
        end.is_reported = true;
        let (id, stream, local, listener) = (end.host, end.stream, end.addr, end.listener);
        let event = match listener {
            Some(listener) => {
                let listeners = &mut self.hosts[id.index()].listeners;
                if let Some(bound) = listeners.iter_mut().find(|bound| bound.id == listener) {
                    bound.untaken = bound.untaken.saturating_sub(1);
                }
                self.trace.note(self.now, Some(id), Kind::Accepted, || Record::Accepted {
                    stream: stream.to_string(),
                    from,
                });
                self.trace.address(from);
                StreamEvent::Accepted { listener, from, local }
            }
            None => {
                self.trace.note(self.now, Some(id), Kind::Connected, || Record::Connected {
                    stream: stream.to_string(),
                    local,
                });
                StreamEvent::Connected { local }
            }
        };
        self.call_stream(id, stream, event, observer)?;
        // Now the driver writes what the machine wrote before.
        if self.take(key) {
            self.transmit(key);
        }
        Ok(())
    }

    fn tell_sent(&mut self, key: EndKey, bytes: usize, fin: bool, observer: &mut dyn Observer<M>) -> Verdict {
        let now = self.now;
        let Some(end) = self.end_mut(key) else { return Ok(()) };
        end.taken_unreported = 0;
        end.fin_reported |= fin;
        if let Some(watched) = &mut end.watched {
            watched.sent(bytes, Instant::from_micros(now));
        }
        let (id, stream, total) = (end.host, end.stream, end.taken);
        self.trace.note(self.now, Some(id), Kind::Sent, || Record::Sent {
            stream: stream.to_string(),
            bytes,
            fin,
        });
        self.trace.hash().number((bytes as u64) << 1 | u64::from(fin));
        self.queue_look(key);
        observer.on_sent(self, id, stream, total, fin);
        self.take_injected(observer);
        self.call_stream(id, stream, StreamEvent::Sent { bytes, fin }, observer)
    }

    fn tell_confirmed(&mut self, key: EndKey, bytes: usize, observer: &mut dyn Observer<M>) -> Verdict {
        let Some(end) = self.end_mut(key) else { return Ok(()) };
        end.confirmed_unreported = 0;
        let (id, stream) = (end.host, end.stream);
        self.trace.note(self.now, Some(id), Kind::Confirmed, || Record::Confirmed {
            stream: stream.to_string(),
            bytes,
        });
        self.trace.hash().number(bytes as u64);
        self.call_stream(id, stream, StreamEvent::Confirmed { bytes }, observer)
    }

    fn tell_data(&mut self, key: EndKey, length: usize, observer: &mut dyn Observer<M>) -> Verdict {
        let (room, segment_bytes) =
            (self.config.stream.receive_buffer_bytes, self.config.stream.segment_bytes);
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        let Some(end) = self.end_mut(key) else { return Ok(()) };
        data.extend(end.incoming.drain(..length));
        end.credit -= length;
        end.read += length as u64;
        let (id, stream, total) = (end.host, end.stream, end.read);
        // A window that was all but closed is worth a word when it opens.
        let opened = end.own_edge(room).saturating_sub(end.edge_advertised) as usize;
        let was_closed = end.edge_advertised.saturating_sub(end.expected) < segment_bytes as u64;
        if was_closed && opened >= segment_bytes.min(room / 2).max(1) && end.phase == Phase::Open {
            self.send_control(key, SegmentKind::Plain);
        }
        self.trace.note(self.now, Some(id), Kind::Data, || Record::Data {
            stream: stream.to_string(),
            bytes: Bytes(&data),
        });
        self.trace.hash().bytes(&data);
        self.stats.stream_bytes_delivered += length as u64;
        self.hosts[id.index()].stats.stream_bytes_received += length as u64;
        observer.on_received(self, id, stream, total);
        self.take_injected(observer);
        let verdict = self.call_stream(id, stream, StreamEvent::Data(&data), observer);
        self.scratch = data;
        verdict
    }

    fn call_stream(
        &mut self,
        id: HostId,
        stream: StreamId,
        event: StreamEvent<'_>,
        observer: &mut dyn Observer<M>,
    ) -> Verdict {
        let host = &mut self.hosts[id.index()];
        let now = host.clock.now(self.now);
        let Some(machine) = &mut host.machine else { return Ok(()) };
        if let Err(refusal) = machine.handle_stream(now, stream, event, &mut self.actions.outbox()) {
            self.stats.refusals += 1;
            self.trace.remark(self.now, Some(id), || Record::Refused { why: refusal.to_string() });
        }
        self.settle(id, observer)
    }

    fn held_end(&mut self, id: HostId, stream: StreamId) -> Option<(EndKey, &mut super::End)> {
        let key = self.hosts[id.index()].stream(stream)?;
        let end = self.end_mut(key).filter(|end| end.held && end.closed.is_none())?;
        Some((key, end))
    }
}
