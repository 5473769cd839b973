//! The engine: gives each due event to its machine and performs the machine's actions.

use annulus_core::{Action, Bound, Machine};

use crate::fault::Fault;
use crate::fault::Step;
use crate::host::{Binding, Birth, HostId, HostState, Listening, Waiting};
use crate::latency::normal;
use crate::observer::{Observer, Verdict, Violation};
use crate::queue::What;
use crate::sim::Sim;
use crate::trace::{Kind, Record};

/// A machine that asks this often in a row to be woken at one and the same moment will never stop asking.
const SPIN_MAX: u32 = 10_000;

/// The first port for sockets that are bound to any port.
pub(crate) const FIRST_FREE_PORT: u16 = 49_152;

impl<M: Machine> Sim<M> {
    /// Lets one thing happen.
    pub(crate) fn happen(&mut self, what: What, observer: &mut dyn Observer<M>) -> Verdict {
        self.stats.events += 1;
        match what {
            What::Wake(host) => self.wake(host, observer)?,
            What::Datagram(slot) => self.datagram_arrives(slot, observer)?,
            What::Start(host) => self.start(host, observer)?,
            What::Drain(host) => self.drain_waiting(host, observer)?,
            What::Segment(slot) => self.segment_arrives(slot),
            What::Pump(key) => self.pump_due(key, observer)?,
            What::Retransmit(key) => self.retransmit_due(key),
            What::Look(key) => self.look_due(key),
            What::Probe(key) => self.probe_due(key),
            What::Stored(slot) => self.store_answers(slot, observer)?,
            What::Step(slot) => {
                let step = self.steps.at_mut(slot).take();
                self.steps.release(slot);
                if let Some(step) = step {
                    self.take_step(step, observer)?;
                }
            }
        }
        self.take_injected(observer);
        Ok(())
    }

    /// Starts a host that has no machine.
    pub(crate) fn start(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        if self.hosts[id.index()].machine.is_some() || self.hosts[id.index()].is_dead() {
            return Ok(());
        }
        let (seed, address) = (self.host_rng.seed(), self.address(id));
        let host = &self.hosts[id.index()];
        let starts = host.life;
        let machine = (self.factory)(Birth { host: id, seed, address, addresses: host.addresses(), starts });
        let (bound, sockets, listeners) = self.bind(id, &machine)?;
        let host = &mut self.hosts[id.index()];
        if let Some(extra) = &mut host.extra {
            host.clock.jump(std::mem::take(&mut extra.wall_at_start));
        }
        host.life += 1;
        host.sockets = sockets;
        host.listeners = listeners;
        host.machine = Some(machine);
        host.loading = true;
        host.stopping = false;
        host.state = HostState::Loading;
        host.ops = 0;
        let life = host.life;
        self.stats.starts += 1;
        self.trace.note(self.now, Some(id), Kind::Start, || Record::Start { life });
        observer.on_start(self, id);
        let host = &mut self.hosts[id.index()];
        let now = host.clock.now(self.now);
        if let Some(machine) = &mut host.machine {
            machine.handle_start(now, &bound, &mut self.actions.outbox());
        }
        self.settle(id, observer)
    }

    /// Wakes a machine whose timer ran out.
    fn wake(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        let at = self.now;
        let host = &mut self.hosts[id.index()];
        if host.wake_at != at {
            self.stats.events -= 1; // Another wake-up took its place: this one means nothing any more.
            return Ok(());
        }
        host.wake_at = u64::MAX;
        if !host.is_free(at) {
            // A busy host is woken when it is free; one that is paused is when it is resumed.
            if let Some(extra) = host.extra.as_ref().filter(|extra| extra.busy_until > at) {
                host.wake_at = extra.busy_until;
                self.queue.push(host.wake_at, What::Wake(id));
            }
            return Ok(());
        }
        let Some(machine) = &mut host.machine else { return Ok(()) };
        let now = host.clock.now(at);
        let Some((due, timer)) = machine.poll_timeout() else { return Ok(()) };
        if due > now.mono {
            self.arm(id);
            return Ok(());
        }
        host.woken = if host.woken.0 == at { (at, host.woken.1 + 1) } else { (at, 0) };
        if host.woken.1 > SPIN_MAX {
            return Err(Violation::new(format!("{id} spins: its timer {timer} is due again and again")));
        }
        self.trace.note(at, Some(id), Kind::Wake, || Record::Wake { timer });
        machine.handle_timeout(now, &mut self.actions.outbox());
        self.settle(id, observer)
    }

    /// Performs the actions of a call, and updates the timers and queues that the call changed.
    pub(crate) fn settle(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        self.stats.calls += 1;
        if !self.actions.is_empty() {
            self.carry_out_all(id, observer)?;
        }
        let at = self.now;
        let host = &mut self.hosts[id.index()];
        let Some(machine) = &host.machine else { return Ok(()) };
        if host.stopping && machine.is_stopped() {
            return self.stopped(id, observer);
        }
        if host.loading && host.ops == 0 {
            host.loading = false;
            if host.state == HostState::Loading {
                host.state = HostState::Up;
            }
            self.queue_drain(id, at);
        }
        let host = &mut self.hosts[id.index()];
        if let Some(extra) =
            host.extra.as_mut().filter(|extra| extra.slow_micros > 0 || extra.stutter_micros > 0)
        {
            extra.busy_until = at + extra.slow_micros;
            if extra.stutter_micros > 0 {
                extra.busy_until += stutter(extra.stutter_micros, &mut self.host_rng);
            }
            let until = extra.busy_until;
            self.queue_drain(id, until);
        }
        self.arm(id);
        Ok(())
    }

    /// Puts a wake-up into the queue for when the machine wants one, unless an earlier one is there.
    #[inline]
    pub(crate) fn arm(&mut self, id: HostId) {
        let host = &mut self.hosts[id.index()];
        let Some((due, _)) = host.machine.as_ref().and_then(Machine::poll_timeout) else { return };
        let mut at = host.clock.when(due).max(self.now);
        if at < host.wake_at {
            let late = self.config.host.wake_late_max;
            if !late.is_zero() {
                at += self.host_rng.below(annulus_core::micros(late));
            }
            host.wake_at = at;
            self.queue.push(at, What::Wake(id));
        }
    }

    /// Carries out the actions in order. If the host crashes between two of them, the rest is never done.
    fn carry_out_all(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        let life = self.hosts[id.index()].life;
        let spare = self.spare_actions.take().unwrap_or_default();
        let mut actions = std::mem::replace(&mut self.actions, spare);
        let mut verdict = Ok(());
        while let Some(action) = actions.next() {
            if verdict.is_err() || self.is_over(id, life) {
                continue; // Taken all the same: an emptied queue keeps its memory.
            }
            verdict = self.carry_out(id, action, observer);
            self.take_injected(observer);
        }
        self.spare_actions = Some(actions);
        verdict
    }

    fn carry_out(&mut self, id: HostId, action: Action<'_, M>, observer: &mut dyn Observer<M>) -> Verdict {
        match action {
            Action::Send { socket, to, bytes } => self.send(id, socket, to, bytes, observer),
            Action::Broadcast { socket, bytes } => self.broadcast(id, socket, bytes, observer),
            Action::Open { stream, to, from } => self.open_stream(id, stream, to, from),
            Action::Write { stream, bytes } => {
                observer.on_write(self, id, stream, &bytes);
                self.write_stream(id, stream, &bytes)
            }
            Action::Read { stream, credit } => {
                self.read_stream(id, stream, credit);
                Ok(())
            }
            Action::Finish { stream } => {
                self.finish_stream(id, stream);
                Ok(())
            }
            Action::Watch { stream, watch } => {
                self.watch_stream(id, stream, watch);
                Ok(())
            }
            Action::Abort { stream } => {
                self.abort_stream(id, stream);
                Ok(())
            }
            Action::Store { op, request } => {
                self.store(id, op, request);
                Ok(())
            }
            Action::Event(event) => {
                self.stats.machine_events += 1;
                self.trace.note(self.now, Some(id), Kind::Event, || Record::Event {
                    event: serde_json::to_value(&event).unwrap_or_else(|_| format!("{event:?}").into()),
                });
                self.trace.hash().value(&event);
                observer.on_event(self, id, &event)
            }
            Action::Reply(request, reply) => {
                self.stats.replies += 1;
                self.trace.note(self.now, Some(id), Kind::Reply, || Record::Reply {
                    request: request.0,
                    reply: format!("{reply:?}"),
                });
                self.trace.hash().number(request.0);
                self.trace.printed(&reply);
                let verdict = observer.on_reply(self, id, request, &reply);
                if self.asked == Some(request) {
                    self.answer = Some(reply);
                }
                verdict
            }
        }
    }

    /// Performs the injected steps of observers: crashes now, all others right after the current event.
    #[inline]
    pub(crate) fn take_injected(&mut self, observer: &mut dyn Observer<M>) {
        if !self.injected.get_mut().is_empty() {
            self.inject_all(observer);
        }
    }

    #[cold]
    fn inject_all(&mut self, observer: &mut dyn Observer<M>) {
        for step in std::mem::take(self.injected.get_mut()) {
            match step {
                Step::Fault(Fault::Crash { host, power, disk }) => self.crash(host, power, disk, observer),
                step => self.after(core::time::Duration::ZERO, step),
            }
        }
    }

    /// Whether a life of a host has ended.
    pub(crate) fn is_over(&self, id: HostId, life: u32) -> bool {
        let host = &self.hosts[id.index()];
        host.life != life || host.machine.is_none()
    }

    /// Gives a host its queued inputs, as far as it can take them now.
    fn drain_waiting(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        if let Some(extra) = &mut self.hosts[id.index()].extra {
            extra.drain_queued = false;
        }
        loop {
            let at = self.now;
            let host = &mut self.hosts[id.index()];
            if !host.is_free(at) {
                // This may be a drain that an earlier life of the host was to have, and the flag kept off that of this one.
                let until = host.extra.as_ref().map_or(0, |extra| extra.busy_until);
                if until > at && host.is_free(until) {
                    self.queue_drain(id, until);
                }
                return Ok(());
            }
            let loading = host.loading;
            let Some(extra) = &mut host.extra else { return Ok(()) };
            if let Some(slot) = extra.stored.pop_front() {
                self.stored(slot, observer)?;
                continue;
            }
            if loading {
                return Ok(());
            }
            match extra.waiting.pop_front() {
                None => return Ok(()),
                Some(Waiting::Datagram(slot)) => {
                    extra.datagrams_waiting -= 1;
                    self.deliver(slot, observer)?;
                }
                Some(Waiting::Stop) => self.stop_machine(id, observer)?,
                Some(Waiting::Stream(key)) => self.pump(key, observer)?,
                Some(Waiting::Command(request, command)) => self.give(id, request, command, observer)?,
            }
        }
    }

    /// Schedules the delivery of a host's queued inputs at this time.
    pub(crate) fn queue_drain(&mut self, id: HostId, at: u64) {
        let Some(extra) = &mut self.hosts[id.index()].extra else { return };
        let waits = !extra.waiting.is_empty() || !extra.stored.is_empty();
        if waits && !extra.drain_queued {
            extra.drain_queued = true;
            self.queue.push(at, What::Drain(id));
        }
    }

    /// Lets something wait for a host. A host that cannot take it now takes it when that has changed.
    pub(crate) fn wait(&mut self, id: HostId, what: Waiting<M::Command>) {
        let host = &mut self.hosts[id.index()];
        let extra = host.extra();
        extra.waiting.push_back(what);
        let until = extra.busy_until;
        if host.is_free(until) && !host.loading {
            self.queue_drain(id, until.max(self.now));
        }
    }

    #[expect(clippy::type_complexity, reason = "three parts of one thing, used in one place")]
    fn bind(
        &mut self,
        id: HostId,
        machine: &M,
    ) -> Result<(Bound, Box<[Binding]>, Box<[Listening]>), Violation> {
        let endpoints = machine.endpoints();
        let boot_id = Some(self.hosts[id.index()].boot_id(id));
        let mut bound = Bound { confirms: self.config.stream.confirms, boot_id, ..Bound::default() };
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        for socket in endpoints.sockets {
            let addr = self.bind_address(id, socket.name, socket.bind)?;
            bound.sockets.push((socket.id, addr));
            sockets.push(Binding { id: socket.id, addr, broadcast: socket.broadcast.into() });
        }
        for listener in endpoints.listeners {
            let addr = self.bind_address(id, listener.name, listener.bind)?;
            bound.listeners.push((listener.id, addr));
            let streams_max = listener.streams_max;
            listeners.push(Listening { id: listener.id, addr, streams_max, streams: 0, untaken: 0 });
        }
        Ok((bound, sockets.into(), listeners.into()))
    }

    fn bind_address(
        &mut self,
        id: HostId,
        name: &str,
        mut bind: std::net::SocketAddr,
    ) -> Result<std::net::SocketAddr, Violation> {
        if !bind.ip().is_unspecified() && !self.has_address(id, bind.ip()) {
            return Err(Violation::new(format!("{id} cannot bind {name} to {bind}: it has no such address")));
        }
        if bind.port() == 0 {
            bind.set_port(self.free_port(id));
        }
        Ok(bind)
    }

    /// A port of a host that was not used for a long time.
    pub(crate) fn free_port(&mut self, id: HostId) -> u16 {
        let extra = self.hosts[id.index()].extra();
        extra.last_port = extra.last_port.checked_add(1).unwrap_or(0).max(FIRST_FREE_PORT);
        extra.last_port
    }

    /// Whether an address is one of a host's own.
    pub(crate) fn has_address(&self, id: HostId, ip: std::net::IpAddr) -> bool {
        ip == self.address(id) || self.hosts[id.index()].addresses().contains(&ip)
    }

    /// Whether a host was given another address instead of this one.
    pub(crate) fn has_lost(&self, id: HostId, ip: std::net::IpAddr) -> bool {
        self.has_moved && !ip.is_unspecified() && !self.has_address(id, ip)
    }

    /// The address a host sends from when it is bound to all of them, if it has one of the family.
    pub(crate) fn own_address(&self, id: HostId, v4: bool) -> Option<std::net::IpAddr> {
        let others = self.hosts[id.index()].addresses();
        if v4 { Some(self.address(id)) } else { others.iter().copied().find(std::net::IpAddr::is_ipv6) }
    }
}

/// A drawn delay with this median that is above a second once in a thousand times.
fn stutter(median_micros: u64, rng: &mut annulus_core::Rng) -> u64 {
    const SECOND_MICROS: f64 = 1_000_000.0;
    /// So many standard deviations above the mean is one in a thousand.
    const ONE_IN_1000: f64 = 3.09;
    let median = (median_micros as f64).clamp(1.0, SECOND_MICROS / 2.0);
    let sigma = libm::log(SECOND_MICROS / median) / ONE_IN_1000;
    (libm::exp(sigma * normal(rng)) * median).min(60.0 * SECOND_MICROS) as u64
}
