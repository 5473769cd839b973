//! One turn of a driver: it serves every source on the list, then reports the results.

use std::task::Poll;

use annulus_core::{Machine, StreamEvent, StreamId};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::bind;
use crate::counters::Counters;
use crate::driver::{Driver, Phase};
use crate::handle::Ended;
use crate::port::Receipt;
use crate::ready::Token;
use crate::stream::{Report, Step};

/// Datagrams of one socket in one turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// Bytes of one stream in one turn.
const STREAM_BYTES_PER_TURN: usize = 256 * 1024;
/// Streams of one listener in one turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Commands in one turn.
const COMMANDS_PER_TURN: usize = 256;
/// Answers of the store in one turn.
const ANSWERS_PER_TURN: usize = 256;
/// Reports of streams in one turn.
const REPORTS_PER_TURN: usize = 256;

impl<M: Machine> Driver<M> {
    /// Gives one source its share.
    pub(crate) fn serve(&mut self, token: Token) {
        match (self.phase, token) {
            (Phase::Closing(_), Token::Store) => self.world.store.signal.clear(),
            (Phase::Closing(_), _) => {}
            (_, Token::Store) => self.serve_store(),
            (_, Token::Timer) => self.world.timer.serve(),
            (_, Token::Control) => self.serve_control(),
            (Phase::Born | Phase::Loading, token) => self.held.push(token),
            (_, Token::Commands) => self.serve_commands(),
            (_, Token::Port(index)) => self.serve_port(index),
            (_, Token::Listener(index)) => self.serve_listener(index),
            (_, Token::Stream(slot)) => self.serve_stream(slot),
        }
    }

    /// The end of a turn: reports, gates, timers, and whether it is over.
    pub(crate) fn settle(&mut self) {
        if self.phase == Phase::Loading && self.world.store.is_idle() {
            self.phase = Phase::Open;
            for token in std::mem::take(&mut self.held) {
                self.serve(token);
            }
        }
        let waits = self.waits_for_application();
        if !waits {
            self.world.streams.flush();
        }
        if matches!(self.phase, Phase::Open | Phase::Stopping) {
            self.report_streams();
        }
        if !matches!(self.phase, Phase::Closing(_)) {
            self.wish_for_end();
        }
        if !matches!(self.phase, Phase::Closing(_)) {
            self.time_out();
        }
        if waits {
            self.world.timer.signal.raise();
            return;
        }
        self.world.streams.flush();
        // Events that are left make another turn; while loading they wait.
        if matches!(self.phase, Phase::Open | Phase::Stopping) && self.world.streams.reports() > 0 {
            self.world.timer.signal.raise();
        }
    }

    /// Whether the writes of this turn wait for the end of the next one. Callers that got replies, and those that answer every
    /// event, may give new commands, which run before that turn; then more is written at once. Writes never wait twice.
    fn waits_for_application(&mut self) -> bool {
        let expected = self.app.take_commands_expected();
        self.is_late =
            expected && !self.is_late && self.phase == Phase::Open && self.world.streams.is_written();
        self.is_late
    }

    fn serve_port(&mut self, index: usize) {
        let port = self.world.ports.port(index);
        port.signal.clear();
        port.flush(&mut self.world.counters);
        for _ in 0..DATAGRAMS_PER_TURN {
            let port = self.world.ports.port(index);
            let (bytes, from) = match port.receive(&mut self.buffer, &mut self.world.counters) {
                Receipt::Datagram(bytes, from) => (bytes, from),
                Receipt::Nothing => return,
                Receipt::Error => continue,
            };
            if self.world.options.gate.as_ref().is_some_and(|gate| gate.is_cut_off(from.ip())) {
                continue;
            }
            let (id, now) = (port.id, self.world.clock.now());
            let bytes = &self.buffer[..bytes];
            if let Err(refusal) = self.machine.handle_datagram(now, id, from, bytes, &mut self.queue.outbox())
            {
                self.world.counters.datagrams_refused += 1;
                tracing::debug!(socket = %id, %from, %refusal, "datagram refused");
            }
            self.carry_out();
        }
        self.world.ports.port(index).signal.raise();
    }

    fn serve_listener(&mut self, index: usize) {
        self.world.listeners[index].signal.clear();
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = &mut self.world.listeners[index];
            let Poll::Ready(accepted) = listener.accept(self.world.clock.now().mono) else { return };
            match accepted {
                Ok((socket, from)) => self.admit(index, socket, from),
                Err(error) => {
                    self.world.counters.accept_errors += 1;
                    tracing::warn!(listener = %listener.id, %error, "cannot accept");
                }
            }
        }
        self.world.listeners[index].signal.raise();
    }

    fn admit(&mut self, index: usize, socket: TcpStream, from: std::net::SocketAddr) {
        let world = &mut self.world;
        let listener = &mut world.listeners[index];
        if listener.streams >= listener.streams_max {
            world.counters.streams_refused += 1;
            // If this fails the peer is gone already.
            let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
            return;
        }
        let tuned = if bind::INHERITED { Ok(()) } else { bind::tune(&socket, &world.options) };
        let local = listener.known.map_or_else(|| socket.local_addr(), Ok);
        let (Ok(()), Ok(local)) = (tuned, local) else {
            // It was reset before we looked at it: as if it had never come.
            world.counters.accept_errors += 1;
            return;
        };
        listener.streams += 1;
        world.counters.streams_accepted += 1;
        let listener = listener.id;
        let (slot, id) = world.streams.accept(index, listener, (socket, from.ip()), &world.ready);
        if let Some(stream) = world.streams.at(slot, id) {
            if let Some(gate) = &world.options.gate {
                stream.hold(gate, world.clock.now().mono);
            }
            stream.signal.raise();
        }
        self.deliver(id, StreamEvent::Accepted { listener, from, local });
    }

    fn serve_stream(&mut self, slot: usize) {
        let Some(id) = self.world.streams.name(slot) else { return };
        let Some(stream) = self.world.streams.at(slot, id) else { return };
        stream.signal.clear();
        if stream.is_connecting() && !self.serve_connect(slot, id) {
            return;
        }
        if let Some(stream) = self.world.streams.at(slot, id).filter(|stream| !stream.gathering) {
            // The kernel may take more by now. Bytes that were written in this turn wait for its end.
            stream.flush();
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        self.serve_reads(slot, id, &mut buffer);
        self.buffer = buffer;
        if let Some(stream) = self.world.streams.at(slot, id) {
            stream.poll_hangup();
            self.world.streams.note(slot);
        }
    }

    /// Whether the stream stands now.
    fn serve_connect(&mut self, slot: usize, id: StreamId) -> bool {
        let (options, streams) = (&self.world.options, &mut self.world.streams);
        let Some(stream) = streams.at(slot, id) else { return false };
        let connected = stream.poll_connect(|socket| {
            // If it fails the peer is gone already, and the first read or write will say so.
            let _ = bind::tune(socket, options);
        });
        stream.probe(options.keepalive);
        match connected {
            Poll::Pending => false,
            Poll::Ready(Some(local)) => {
                self.world.counters.streams_opened += 1;
                self.deliver(id, StreamEvent::Connected { local });
                true
            }
            Poll::Ready(None) => {
                self.world.counters.streams_failed += 1;
                self.world.streams.note(slot);
                false
            }
        }
    }

    fn serve_reads(&mut self, slot: usize, id: StreamId, buffer: &mut [u8]) {
        let mut share = STREAM_BYTES_PER_TURN;
        while let Some(stream) = self.world.streams.at(slot, id) {
            if share == 0 {
                stream.signal.raise();
                return;
            }
            match stream.read(buffer) {
                Step::Data(bytes) => {
                    share = share.saturating_sub(bytes);
                    self.world.counters.stream_bytes_received += bytes as u64;
                    self.deliver(id, StreamEvent::Data(&buffer[..bytes]));
                }
                Step::Finished => self.deliver(id, StreamEvent::Finished),
                Step::Idle => return,
            }
        }
    }

    fn serve_commands(&mut self) {
        self.app.signal.clear();
        for _ in 0..COMMANDS_PER_TURN {
            let Some((request, command)) = self.app.poll_command() else { return };
            self.world.counters.commands += 1;
            let now = self.world.clock.now();
            self.machine.handle_command(now, request, command, &mut self.queue.outbox());
            self.carry_out();
        }
        self.app.signal.raise();
    }

    fn serve_store(&mut self) {
        self.world.store.signal.clear();
        for _ in 0..ANSWERS_PER_TURN {
            let Some(answer) = self.world.store.poll_answer(&mut self.world.counters) else { return };
            let now = self.world.clock.now();
            self.machine.handle_stored(now, answer.as_reply(), &mut self.queue.outbox());
            self.carry_out();
        }
        self.world.store.signal.raise();
    }

    fn serve_control(&mut self) {
        self.app.control.clear();
        if let Some(gate) = &self.world.options.gate {
            self.world.streams.hold(gate, self.world.clock.now().mono);
        }
        while let Some(asks) = self.app.poll_counters() {
            let mut machine = Vec::new();
            self.machine.counters(&mut |counter| machine.push(counter));
            // The caller may not wait any more.
            let _ = asks.send(Counters { driver: self.world.counters, machine });
        }
    }

    /// Reports to the machine the bytes that the kernel took and the streams that are closed.
    fn report_streams(&mut self) {
        for _ in 0..REPORTS_PER_TURN.min(self.world.streams.reports()) {
            let Some((slot, id)) = self.world.streams.next_report() else { return };
            let now = self.world.clock.now().mono;
            let Some(report) = self.world.streams.at(slot, id).and_then(|stream| stream.report(now)) else {
                continue;
            };
            match report {
                Report::Sent { bytes, fin } => {
                    self.world.counters.stream_bytes_sent += bytes as u64;
                    self.deliver(id, StreamEvent::Sent { bytes, fin });
                    self.world.streams.note(slot);
                }
                Report::Confirmed(bytes) => {
                    self.deliver(id, StreamEvent::Confirmed { bytes });
                    self.world.streams.note(slot);
                }
                Report::Closed(reason) => {
                    if let Some(stream) = self.world.streams.remove(id) {
                        stream.listener.inspect(|index| self.world.listeners[*index].streams -= 1);
                    }
                    self.world.counters.closed(reason);
                    self.deliver(id, StreamEvent::Closed(reason));
                }
            }
        }
    }

    fn deliver(&mut self, id: StreamId, event: StreamEvent<'_>) {
        let now = self.world.clock.now();
        if let Err(refusal) = self.machine.handle_stream(now, id, event, &mut self.queue.outbox()) {
            self.world.counters.stream_refusals += 1;
            tracing::debug!(stream = %id, %refusal, "stream refused");
        }
        self.carry_out();
    }

    /// Begins to stop if the application wishes it, and ends when there is nothing left to do.
    fn wish_for_end(&mut self) {
        if self.app.wish.is_abort() {
            self.close(Ended::Aborted);
            return;
        }
        if !self.app.wish.is_stop() {
            return;
        }
        let now = self.world.clock.now();
        let stop_by = *self.stop_by.get_or_insert(now.mono + self.world.options.grace);
        if self.phase == Phase::Open {
            self.phase = Phase::Stopping;
            self.machine.handle_stop(now, &mut self.queue.outbox());
            self.carry_out();
        }
        let world = &self.world;
        let is_done = self.phase == Phase::Stopping
            && self.machine.is_stopped()
            && world.store.is_idle()
            && world.streams.reports() == 0
            && world.streams.are_flushed()
            && world.ports.are_flushed();
        if is_done {
            self.close(Ended::Stopped);
        } else if now.mono >= stop_by {
            self.close(Ended::GraceOver);
        }
    }

    /// Wakes the machine and resting listeners if it is time, and sets the timer for the next.
    fn time_out(&mut self) {
        let now = self.world.clock.now();
        if self.machine.poll_timeout().is_some_and(|(at, _)| at <= now.mono) {
            self.world.counters.timeouts += 1;
            self.machine.handle_timeout(now, &mut self.queue.outbox());
            self.carry_out();
            // It may have written to streams or be done with stopping: once more through the turn.
            self.world.timer.signal.raise();
        }
        self.world.streams.look(now.mono);
        let timeout = self.machine.poll_timeout().map(|(at, _)| at);
        let mut next = timeout.into_iter().chain(self.stop_by).chain(self.world.streams.next_look()).min();
        for listener in &self.world.listeners {
            match listener.resting {
                Some(until) if until <= now.mono => listener.signal.raise(),
                Some(until) => next = Some(next.map_or(until, |next| next.min(until))),
                None => {}
            }
        }
        self.world.timer.arm(next, &self.world.clock);
    }
}
