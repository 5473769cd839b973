//! A machine without a will: it does what commands say and tells all that happens to it.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use annulus_core::{
    Bound, Endpoints, Instant, Listener, ListenerId, Machine, Now, OpId, Outbox, Refusal, RequestId, Socket,
    SocketId, Space, SpaceId, StoreReply, StoreResult, StreamEvent, StreamId, VisitCounter,
};
use annulus_sim::{Config, Datagram, Fault, HostId, HostSpec, Observer, Passage, Sim, Verdict};
use serde::Serialize;

pub(crate) const PORT: u16 = 4000;
pub(crate) const SPACE: SpaceId = SpaceId::new(0);
const UDP: SocketId = SocketId::new(0);
const TCP: ListenerId = ListenerId::new(0);

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Send(SocketAddr, Vec<u8>),
    Broadcast(Vec<u8>),
    Open(StreamId, SocketAddr),
    OpenFrom(StreamId, SocketAddr, IpAddr),
    Write(StreamId, Vec<u8>),
    Read(StreamId, usize),
    Finish(StreamId),
    Abort(StreamId),
    Put(&'static str, &'static str, bool),
    Get(&'static str),
    Page(&'static str, &'static str, u32),
    Wake(Duration),
    Spin,
    Clock,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Heard(pub String);

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

pub(crate) struct Puppet {
    strings: Strings,
    bind: SocketAddr,
    timer: Option<Instant>,
    spins: bool,
    ops: u64,
    stopped: bool,
}

impl Puppet {
    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }
}

fn text(bytes: &[u8]) -> String {
    if bytes.len() > 16 { format!("{} B", bytes.len()) } else { String::from_utf8_lossy(bytes).into_owned() }
}

impl Machine for Puppet {
    type Command = Command;
    type Reply = Now;
    type Event = Heard;

    fn endpoints(&self) -> Endpoints {
        let bind = self.bind;
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "udp", bind, broadcast: self.strings.broadcast.clone() }],
            listeners: vec![Listener { id: TCP, name: "tcp", bind, streams_max: self.strings.streams_max }],
            spaces: vec![Space { id: SPACE, name: "things" }],
        }
    }

    fn handle_start(&mut self, _: Now, _: &Bound, out: &mut Outbox<'_, Self>) {
        for key in self.strings.load {
            let op = self.op();
            out.get(op, SPACE, key.as_bytes());
        }
    }

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        out.event(Heard(format!("{} from {}", text(bytes), from.ip())));
        if bytes == b"bad" { Err(Refusal::Reject("bad")) } else { Ok(()) }
    }

    fn handle_stream(
        &mut self,
        _: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        let what = match event {
            StreamEvent::Accepted { from, .. } => format!("accepted {}", from.ip()),
            StreamEvent::Connected { local } => format!("connected {}", local.ip()),
            StreamEvent::Data(bytes) => format!("data {}", text(bytes)),
            StreamEvent::Sent { bytes, fin } => format!("sent {bytes}{}", if fin { " fin" } else { "" }),
            StreamEvent::Finished => "finished".into(),
            StreamEvent::Closed(reason) => format!("closed {reason:?}"),
        };
        if matches!(event, StreamEvent::Accepted { .. } | StreamEvent::Connected { .. }) {
            out.read(stream, self.strings.credit);
        }
        out.event(Heard(format!("{stream} {what}")));
        Ok(())
    }

    fn handle_stored(&mut self, _: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {
        let result = match reply.result {
            StoreResult::Value(value) => format!("value {:?}", value.map(text)),
            StoreResult::Page { entries, more } => {
                let keys: Vec<String> = entries.iter().map(|(key, _)| text(key)).collect();
                format!("page {} more {more}", keys.join(","))
            }
            StoreResult::Written => "written".into(),
            StoreResult::Failed(fault) => format!("failed {fault:?}"),
        };
        out.event(Heard(format!("{} {result}", reply.op.local())));
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: &mut Outbox<'_, Self>) {
        match command {
            Command::Send(to, bytes) => out.send(UDP, to, &bytes),
            Command::Broadcast(bytes) => out.broadcast(UDP, &bytes),
            Command::Open(stream, to) => out.open(stream, to, None),
            Command::OpenFrom(stream, to, from) => out.open(stream, to, Some(from)),
            Command::Write(stream, bytes) => out.write(stream, &bytes),
            Command::Read(stream, credit) => out.read(stream, credit),
            Command::Finish(stream) => out.finish(stream),
            Command::Abort(stream) => out.abort(stream),
            Command::Put(key, value, durable) => {
                let op = self.op();
                out.put(op, SPACE, key.as_bytes(), value.as_bytes(), durable);
            }
            Command::Get(key) => {
                let op = self.op();
                out.get(op, SPACE, key.as_bytes());
            }
            Command::Page(from, until, entries_max) => {
                let op = self.op();
                out.page(op, SPACE, from.as_bytes(), until.as_bytes(), entries_max);
            }
            Command::Wake(after) => self.timer = Some(now.mono + after),
            Command::Spin => {
                self.timer = Some(now.mono);
                self.spins = true;
            }
            Command::Clock => out.reply(request, now),
        }
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if self.timer.is_some_and(|at| at <= now.mono) && !self.spins {
            self.timer = None;
            out.event(Heard("woken".into()));
        }
    }

    fn handle_stop(&mut self, _: Now, out: &mut Outbox<'_, Self>) {
        out.event(Heard("asked to stop".into()));
        self.stopped = self.strings.stops;
    }

    fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.timer.map(|at| (at, "puppet"))
    }

    fn counters(&self, _: VisitCounter<'_>) {}
}

/// What an observer does to datagrams.
type Hook = Box<dyn FnMut(Datagram<'_>) -> Passage>;
/// What an observer does when bytes were sent.
type SentHook = Box<dyn FnMut(&Sim<Puppet>, HostId, StreamId, u64)>;

/// Keeps what every host has heard.
#[derive(Default)]
pub(crate) struct Log {
    pub heard: Vec<(Duration, HostId, String)>,
    pub hook: Option<Hook>,
    pub sent_hook: Option<SentHook>,
}

impl Observer<Puppet> for Log {
    fn on_event(&mut self, sim: &Sim<Puppet>, host: HostId, event: &Heard) -> Verdict {
        self.heard.push((sim.elapsed(), host, event.0.clone()));
        Ok(())
    }

    fn on_datagram(&mut self, _: &Sim<Puppet>, datagram: Datagram<'_>) -> Passage {
        self.hook.as_mut().map_or(Passage::Pass, |hook| hook(datagram))
    }

    fn on_sent(&mut self, sim: &Sim<Puppet>, host: HostId, stream: StreamId, bytes: u64, _: bool) {
        if let Some(hook) = &mut self.sent_hook {
            hook(sim, host, stream, bytes);
        }
    }
}

/// A simulation of puppets and what they heard.
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
            strings: strings.clone(),
            timer: None,
            spins: false,
            ops: 0,
            stopped: false,
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

    pub(crate) fn tell(&mut self, number: u32, command: Command) {
        self.sim.command(host(number), command);
    }

    /// Sends a short text.
    pub(crate) fn send(&mut self, from: u32, to: u32, text: &str) {
        let to = self.addr(to);
        self.tell(from, Command::Send(to, text.into()));
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.sim.fault(fault);
    }

    pub(crate) fn run(&mut self, millis: u64) {
        self.sim.run_for(ms(millis), &mut self.log).unwrap();
    }

    /// What a host has heard since this was asked last, and all others with it.
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

    /// What the clocks of a host show, as its machine sees them.
    pub(crate) fn clock(&mut self, number: u32) -> Now {
        let asked = self.sim.ask(host(number), Command::Clock, ms(1000), &mut self.log);
        asked.unwrap().expect("a puppet answers at once")
    }
}
