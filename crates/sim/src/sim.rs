//! The simulation: hosts, scheduled events, and the methods to observe and to interfere.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use annulus_core::{Instant, Machine, Now, Queue, RequestId, Rng, micros};

use crate::causes::Causes;
use crate::clock::Clock;
use crate::config::Config;
use crate::disk::Disk;
use crate::fault::{Fault, Step};
use crate::hash::TraceHash;
use crate::host::{Birth, Host, HostId, HostSpec, HostState};
use crate::latency::Place;
use crate::links::Links;
use crate::observer::{Observer, Verdict, Violation};
use crate::packet::Packet;
use crate::queue::{EventQueue, Slab, What};
use crate::stats::{HostStats, Stats};
use crate::storage::Answer;
use crate::stream::{Conn, Segment};
use crate::trace::{Record, Trace};

/// The broadcast address of the network all hosts are in; 255.255.255.255 means the same.
pub const NETWORK_BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 255);

/// Makes the machine of a host, at its first start and at every other.
pub(crate) type Factory<M> = Box<dyn FnMut(Birth<'_>) -> M>;

/// A world of hosts that each run a machine, in virtual time.
///
/// The seed decides everything: two simulations with the same seed, configuration, machines and steps have the same
/// [`Sim::trace_hash`].
pub struct Sim<M: Machine> {
    pub(crate) config: Config,
    pub(crate) now: u64,
    pub(crate) queue: EventQueue,
    /// The actions of the machine that was called last.
    pub(crate) actions: Box<Queue<M>>,
    /// An empty one, to take its place while that is carried out.
    pub(crate) spare_actions: Option<Box<Queue<M>>>,
    pub(crate) hosts: Vec<Host<M>>,
    pub(crate) places: Vec<Place>,
    pub(crate) domains: Vec<Vec<HostId>>,
    pub(crate) other_addresses: BTreeMap<IpAddr, Vec<HostId>>,
    /// Whether a host has ever got another address.
    pub(crate) has_moved: bool,
    pub(crate) links: Links,
    pub(crate) packets: Slab<Packet>,
    pub(crate) segments: Slab<Segment>,
    pub(crate) conns: Slab<Conn>,
    pub(crate) answers: Slab<Answer>,
    pub(crate) steps: Slab<Option<Step<M>>>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) network_rng: Rng,
    pub(crate) host_rng: Rng,
    pub(crate) disk_rng: Rng,
    pub(crate) factory: Factory<M>,
    pub(crate) causes: Causes,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
    pub(crate) injected: RefCell<Vec<Step<M>>>,
    pub(crate) asked: Option<RequestId>,
    pub(crate) answer: Option<M::Reply>,
    pub(crate) requests: u64,
}

/// The streams of random numbers under one seed: the draws of one part do not change those of another.
pub mod stream_of {
    /// Latency, loss and all else the network decides.
    pub const NETWORK: u64 = 1;
    /// Clocks and the seeds of machines.
    pub const HOSTS: u64 = 2;
    /// Disks: their latency and their losses.
    pub const DISKS: u64 = 3;
    /// Which faults happen, when and to whom.
    pub const FAULTS: u64 = 4;
    /// The random numbers of the scenario.
    pub const SCENARIO: u64 = 5;
    /// Which hosts get other addresses, and when.
    pub const MOVES: u64 = 6;
}

impl<M: Machine> Sim<M> {
    /// An empty world. `factory` makes the machine of a host each time the host starts.
    pub fn new(seed: u64, config: Config, factory: impl FnMut(Birth<'_>) -> M + 'static) -> Self {
        Self {
            config,
            now: 0,
            queue: EventQueue::default(),
            actions: Box::default(),
            spare_actions: None,
            hosts: Vec::new(),
            places: Vec::new(),
            domains: Vec::new(),
            other_addresses: BTreeMap::new(),
            has_moved: false,
            links: Links::default(),
            packets: Slab::default(),
            segments: Slab::default(),
            conns: Slab::default(),
            answers: Slab::default(),
            steps: Slab::default(),
            scratch: Vec::new(),
            network_rng: Rng::from_number(seed, stream_of::NETWORK),
            host_rng: Rng::from_number(seed, stream_of::HOSTS),
            disk_rng: Rng::from_number(seed, stream_of::DISKS),
            factory: Box::new(factory),
            causes: Causes::default(),
            trace: Trace::default(),
            stats: Stats::default(),
            injected: RefCell::default(),
            asked: None,
            answer: None,
            requests: 0,
        }
    }

    /// Adds a host that starts now.
    pub fn add_host(&mut self) -> HostId {
        self.add_host_with(HostSpec::default())
    }

    /// Adds a host.
    ///
    /// # Panics
    /// If there are more than 2^24 − 2 of them, as many as the addresses 10.x.y.z.
    pub fn add_host_with(&mut self, spec: HostSpec) -> HostId {
        assert!(self.hosts.len() < (1 << 24) - 2, "a host needs an address of its own in 10.0.0.0/8");
        let host = HostId::new(self.hosts.len() as u32);
        let start = self.host_rng.below(micros(self.config.host.clock_start_max));
        self.hosts.push(Host::new(Clock::new(self.now, start), spec.domain));
        if self.config.network.latency.has_places() {
            self.places.push(self.config.network.latency.place(&mut self.network_rng));
        }
        let domain = usize::from(spec.domain);
        if self.domains.len() <= domain {
            self.domains.resize(domain + 1, Vec::new());
        }
        self.domains[domain].push(host);
        for &address in &spec.addresses {
            self.other_addresses.entry(address).or_default().push(host);
        }
        if !spec.addresses.is_empty() {
            self.hosts[host.index()].extra().addresses = spec.addresses;
        }
        if !spec.off {
            self.queue.push(self.now, What::Start(host));
        }
        host
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// The first violation that the observer, or the simulation itself, has seen.
    pub fn run_for(&mut self, duration: Duration, observer: &mut dyn Observer<M>) -> Verdict {
        self.run_until(self.elapsed() + duration, observer)
    }

    /// Lets time pass until so much of it has passed since the beginning.
    ///
    /// # Errors
    /// The first violation that the observer, or the simulation itself, has seen.
    pub fn run_until(&mut self, elapsed: Duration, observer: &mut dyn Observer<M>) -> Verdict {
        let until = micros(elapsed);
        while self.step(until, observer)? {}
        self.now = self.now.max(until);
        Ok(())
    }

    /// Lets time pass until `condition` holds, which is looked at every `every`; false if `at_most` has passed
    /// first.
    ///
    /// # Errors
    /// The first violation that the observer, or the simulation itself, has seen.
    pub fn run_until_that<O: Observer<M>>(
        &mut self,
        at_most: Duration,
        every: Duration,
        observer: &mut O,
        mut condition: impl FnMut(&Self, &O) -> bool,
    ) -> Result<bool, Violation> {
        let end = self.elapsed() + at_most;
        loop {
            if condition(self, observer) {
                return Ok(true);
            }
            if self.elapsed() >= end {
                return Ok(false);
            }
            self.run_until((self.elapsed() + every).min(end), observer)?;
        }
    }

    /// Does one thing: takes the next from the queue. False if there is none up to `until`.
    fn step(&mut self, until: u64, observer: &mut dyn Observer<M>) -> Result<bool, Violation> {
        let Some((at, what)) = self.queue.pop(until) else { return Ok(false) };
        self.now = at;
        match self.happen(what, observer) {
            Ok(()) => Ok(true),
            Err(violation) => {
                self.trace.remark(at, None, || Record::Violation { text: &violation.text });
                let at = self.elapsed().as_secs_f64();
                Err(Violation::new(format!("at {at:.6} s: {violation}")))
            }
        }
    }

    /// Schedules a step after `delay`; right after the current event, if zero.
    pub fn after(&mut self, delay: Duration, step: impl Into<Step<M>>) {
        let slot = self.steps.claim();
        *self.steps.at_mut(slot) = Some(step.into());
        self.queue.push(self.now.saturating_add(micros(delay)), What::Step(slot));
    }

    /// Does something when so much time has passed since the beginning.
    pub fn at(&mut self, elapsed: Duration, step: impl Into<Step<M>>) {
        self.after(elapsed.saturating_sub(self.elapsed()), step);
    }

    /// Performs a step from within an observer: a crash at once, between two actions of a machine; any other right
    /// after the current event.
    pub fn inject(&self, step: impl Into<Step<M>>) {
        self.injected.borrow_mut().push(step.into());
    }

    /// Gives a machine a command now. A host that is down does not answer.
    pub fn command(&mut self, host: HostId, command: M::Command) -> RequestId {
        self.command_after(Duration::ZERO, host, command)
    }

    /// Gives a machine a command so much later.
    pub fn command_after(&mut self, delay: Duration, host: HostId, command: M::Command) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.after(delay, Step::Command(host, request, command));
        request
    }

    /// Gives a machine a command and lets time pass until it answers; `None` if it has not within `at_most`.
    ///
    /// # Errors
    /// The first violation that the observer, or the simulation itself, has seen.
    pub fn ask(
        &mut self,
        host: HostId,
        command: M::Command,
        at_most: Duration,
        observer: &mut dyn Observer<M>,
    ) -> Result<Option<M::Reply>, Violation> {
        self.asked = Some(self.command(host, command));
        self.answer = None;
        let until = self.now.saturating_add(micros(at_most));
        while self.answer.is_none() && self.step(until, observer)? {}
        self.asked = None;
        if self.answer.is_none() {
            self.now = self.now.max(until);
        }
        Ok(self.answer.take())
    }

    /// Requests a stop of a machine.
    pub fn stop(&mut self, host: HostId) {
        self.after(Duration::ZERO, Step::Stop(host));
    }

    /// Applies a fault, right after the current event.
    pub fn fault(&mut self, fault: Fault) {
        self.after(Duration::ZERO, fault);
    }

    /// Writes a line for everything that happens from now on, JSON or readable.
    pub fn trace_to(&mut self, writer: Box<dyn io::Write>, json: bool) {
        self.trace.add_writer(writer, json);
    }

    /// Flushes the writer of [`Sim::trace_to`].
    ///
    /// # Errors
    /// If a writer failed, now or before.
    pub fn finish_trace(&mut self) -> io::Result<()> {
        self.trace.finish()
    }

    /// The settings of the world, to change them.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The settings of the world.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The hash of everything that has happened.
    #[must_use]
    pub fn trace_hash(&self) -> TraceHash {
        self.trace.value()
    }

    /// Virtual time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    /// When something will happen next, if anything will.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.queue.next_at().map(Duration::from_micros)
    }

    /// The number of hosts, up or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// All hosts, up or not.
    pub fn hosts(&self) -> impl DoubleEndedIterator<Item = HostId> + use<M> {
        (0..self.hosts.len() as u32).map(HostId::new)
    }

    /// The machine of a host; `None` while it is off or down.
    #[must_use]
    pub fn machine(&self, host: HostId) -> Option<&M> {
        self.hosts[host.index()].machine.as_ref()
    }

    /// The machines of all hosts that have one at the moment.
    pub fn machines(&self) -> impl Iterator<Item = (HostId, &M)> {
        self.hosts()
            .zip(&self.hosts)
            .filter_map(|(id, host)| host.machine.as_ref().map(|machine| (id, machine)))
    }

    /// The state of a host.
    #[must_use]
    pub fn state(&self, host: HostId) -> HostState {
        self.hosts[host.index()].state
    }

    /// Whether a host has gone for good.
    #[must_use]
    pub fn is_dead(&self, host: HostId) -> bool {
        self.hosts[host.index()].is_dead()
    }

    /// The number of starts of a host.
    #[must_use]
    pub fn life(&self, host: HostId) -> u32 {
        self.hosts[host.index()].life
    }

    /// The disk of a host; `None` if nothing was ever written to it.
    #[must_use]
    pub fn disk(&self, host: HostId) -> Option<&Disk> {
        self.hosts[host.index()].disk.as_deref()
    }

    /// The clocks of a host.
    #[must_use]
    pub fn clock(&self, host: HostId) -> Now {
        self.hosts[host.index()].clock.now(self.now)
    }

    /// When, since the beginning, a host's monotonic clock shows (or showed) this.
    #[must_use]
    pub fn when(&self, host: HostId, local: Instant) -> Duration {
        Duration::from_micros(self.hosts[host.index()].clock.when(local))
    }

    /// The address of a host: by its number, unless [`Fault::Readdress`] gave it another.
    #[must_use]
    pub fn address(&self, host: HostId) -> IpAddr {
        let given = self.hosts.get(host.index()).and_then(|host| host.extra.as_ref()?.address);
        given.unwrap_or_else(|| address(host))
    }

    /// Whether a host has another address than the one by its number.
    #[must_use]
    pub fn has_moved(&self, host: HostId) -> bool {
        self.address(host) != address(host)
    }

    /// The host that has an address; the first, if several share it.
    #[must_use]
    pub fn host_at(&self, address: IpAddr) -> Option<HostId> {
        if let IpAddr::V4(v4) = address {
            let [10, a, b, c] = v4.octets() else { return self.other_at(address) };
            let number = u32::from_be_bytes([0, a, b, c]);
            return match number.checked_sub(1).map(HostId::new) {
                Some(host) if host.index() < self.hosts.len() && self.address(host) == address => Some(host),
                _ => self.other_at(address),
            };
        }
        self.other_at(address)
    }

    /// The latency from one host to another: the distance in models with places, the typical one in others.
    #[must_use]
    pub fn distance(&self, from: HostId, to: HostId) -> Duration {
        Duration::from_micros(self.config.network.latency.distance(self.place(from), self.place(to)))
    }

    /// Puts a host somewhere, in models of latency that have places.
    pub fn set_place(&mut self, host: HostId, place: [f64; 3]) {
        if let Some(known) = self.places.get_mut(host.index()) {
            *known = place;
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The counters of one host.
    #[must_use]
    pub fn host_stats(&self, host: HostId) -> &HostStats {
        &self.hosts[host.index()].stats
    }

    /// Whether packets of one host can reach another, by cuts and partitions.
    #[must_use]
    pub fn is_linked(&self, from: HostId, to: HostId) -> bool {
        self.links.pass(from, to)
    }

    pub(crate) fn place(&self, host: HostId) -> Place {
        self.places.get(host.index()).copied().unwrap_or_default()
    }

    fn other_at(&self, address: IpAddr) -> Option<HostId> {
        self.other_addresses.get(&address).and_then(|hosts| hosts.first().copied())
    }
}

/// The address that a host has by its number.
pub(crate) fn address(host: HostId) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + host.index() as u32))
}
