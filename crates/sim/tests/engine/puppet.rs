//! A simulation of puppets, and their reports.

use core::time::Duration;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use annulus_core::contract::puppet::{Do, GARBAGE, Puppet, SPACE, Saw};
use annulus_core::{Now, StreamId};
use annulus_sim::{Config, Datagram, DatagramFate, Fault, HostId, HostSpec, Observer, Sim, Verdict};

pub(crate) const PORT: u16 = 4000;

/// How puppets are made.
#[derive(Clone, Debug)]
pub(crate) struct Strings {
    pub any_address: bool,
    /// All addresses of both families.
    pub any_family: bool,
    pub broadcast: Vec<SocketAddr>,
    pub streams_max: usize,
    /// Asked from the store at the start, one after the other.
    pub load: &'static [&'static str],
    /// Granted to every stream at once.
    pub credit: usize,
    pub stops: bool,
}

impl Default for Strings {
    fn default() -> Self {
        let broadcast = vec![SocketAddr::from((Ipv4Addr::BROADCAST, PORT))];
        Self {
            any_address: false,
            any_family: false,
            broadcast,
            streams_max: 100,
            load: &[],
            credit: 1 << 30,
            stops: true,
        }
    }
}

/// A hook for datagrams.
type Hook = Box<dyn FnMut(Datagram<'_>) -> DatagramFate>;
/// A hook for sent bytes.
type SentHook = Box<dyn FnMut(&Sim<Puppet>, HostId, StreamId, u64)>;

/// Keeps the inputs of every host.
#[derive(Default)]
pub(crate) struct Log {
    pub heard: Vec<(Duration, HostId, String)>,
    pub hook: Option<Hook>,
    pub sent_hook: Option<SentHook>,
}

impl Observer<Puppet> for Log {
    fn on_event(&mut self, sim: &Sim<Puppet>, host: HostId, event: &Saw) -> Verdict {
        if !matches!(event, Saw::Start | Saw::Command) {
            self.heard.push((sim.elapsed(), host, event.to_string()));
        }
        Ok(())
    }

    fn on_datagram(&mut self, _: &Sim<Puppet>, datagram: Datagram<'_>) -> DatagramFate {
        self.hook.as_mut().map_or(DatagramFate::Pass, |hook| hook(datagram))
    }

    fn on_sent(&mut self, sim: &Sim<Puppet>, host: HostId, stream: StreamId, bytes: u64, _: bool) {
        if let Some(hook) = &mut self.sent_hook {
            hook(sim, host, stream, bytes);
        }
    }
}

/// A simulation of puppets and their inputs.
pub(crate) struct World {
    pub sim: Sim<Puppet>,
    pub log: Log,
}

pub(crate) fn host(number: u32) -> HostId {
    HostId::new(number)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The first stream that a puppet opens.
pub(crate) fn out(n: u64) -> StreamId {
    StreamId::opened(n)
}

/// The first stream that a puppet accepts.
pub(crate) fn inn(n: u64) -> StreamId {
    StreamId::accepted(n)
}

impl World {
    pub(crate) fn new(hosts: u32, config: Config) -> Self {
        Self::with(1, hosts, config, Strings::default())
    }

    pub(crate) fn with(seed: u64, hosts: u32, config: Config, strings: Strings) -> Self {
        Self::of(seed, (0..hosts).map(|_| HostSpec::default()).collect(), config, strings)
    }

    pub(crate) fn of(seed: u64, hosts: Vec<HostSpec>, config: Config, strings: Strings) -> Self {
        let sim = Sim::new(seed, config, move |birth| Puppet {
            bind: match (strings.any_family, strings.any_address) {
                (true, _) => (Ipv6Addr::UNSPECIFIED, PORT).into(),
                (false, true) => (Ipv4Addr::UNSPECIFIED, PORT).into(),
                (false, false) => (birth.address, PORT).into(),
            },
            broadcast: strings.broadcast.clone(),
            streams_max: strings.streams_max,
            credit: strings.credit,
            at_start: strings.load.iter().map(|key| Do::Get(key)).collect(),
            refuses_to_stop: !strings.stops,
            has_store: true,
            ..Puppet::default()
        });
        let mut world = Self { sim, log: Log::default() };
        for spec in hosts {
            world.sim.add_host_with(spec);
        }
        world.run(1);
        world.log.heard.clear();
        world
    }

    /// Where a host is bound.
    pub(crate) fn addr(&self, number: u32) -> SocketAddr {
        SocketAddr::new(self.sim.address(host(number)), PORT)
    }

    pub(crate) fn tell(&mut self, number: u32, what: Do) {
        self.sim.command(host(number), vec![what]);
    }

    /// Sends a short text.
    pub(crate) fn send(&mut self, from: u32, to: u32, text: &str) {
        let to = self.addr(to);
        self.tell(from, Do::Send(to, text.into()));
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.sim.fault(fault);
    }

    pub(crate) fn run(&mut self, millis: u64) {
        self.sim.run_for(ms(millis), &mut self.log).unwrap();
    }

    /// The inputs of a host since the last call.
    pub(crate) fn heard(&mut self, number: u32) -> Vec<String> {
        let mut own = Vec::new();
        self.log.heard.retain(|(_, host, text)| {
            let is_own = host.index() == number as usize;
            if is_own {
                own.push(text.clone());
            }
            !is_own
        });
        own
    }

    /// The clocks of a host, as its machine sees them.
    pub(crate) fn clock(&mut self, number: u32) -> Now {
        let asked = self.sim.ask(host(number), Vec::new(), ms(1000), &mut self.log);
        asked.unwrap().expect("a puppet answers at once").now
    }
}
