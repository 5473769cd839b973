//! The forger: a member of the group that also sends packets in the name of others.

use core::time::Duration;
use std::net::SocketAddr;

use annulus_core::swim::{
    Command, Contents, Event, Head, Header, Incarnation, Message, NodeView, OwnContents, Range, Reply, Ring,
    Sequence, Summaries, Swim, UDP, encode,
};
use annulus_core::wire::Writer;
use annulus_core::{
    Bound, Endpoints, Id, Instant, Machine, Now, Outbox, Refusal, RequestId, Rng, Service, SocketId,
    StoreReply, StreamEvent, StreamId, VisitCounter,
};

use super::adversary::Lie;
use super::intruders::Flood;
use super::{addr_of, id_of};
use crate::host::HostId;

/// A member, an adversary, or a intruder.
#[derive(Clone, Debug)]
pub struct Actor {
    swim: Swim,
    role: Role,
}

/// The conduct of an actor.
#[derive(Clone, Debug)]
enum Role {
    /// That of a member.
    Honest,
    /// That, and it forges packets.
    Forger(Forger),
    /// It answers nothing; perhaps it sends Joins.
    Mute(Mute),
}

/// A host that answers nothing.
#[derive(Clone, Debug, Default)]
struct Mute {
    flood: Option<Flood>,
    next: Option<Instant>,
    until: Instant,
    traffic: Traffic,
}

/// The datagrams of a mute host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many it sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Bytes in those that reached it.
    pub received_bytes: u64,
}

impl Actor {
    pub(super) fn new(swim: Swim, forger: Option<Forger>) -> Self {
        Self { swim, role: forger.map_or(Role::Honest, Role::Forger) }
    }

    /// A host that answers nothing.
    pub(super) fn mute(swim: Swim, flood: Option<Flood>) -> Self {
        Self { swim, role: Role::Mute(Mute { flood, ..Mute::default() }) }
    }

    /// The member that it is.
    #[must_use]
    pub const fn swim(&self) -> &Swim {
        &self.swim
    }

    /// The datagrams that it sent and got, if it is mute.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        if let Role::Mute(mute) = &self.role { mute.traffic } else { Traffic::default() }
    }

    const fn is_mute(&self) -> bool {
        matches!(self.role, Role::Mute(_))
    }
}

/// Makes packets up, from two seconds after its start on.
#[derive(Clone, Debug)]
pub(super) struct Forger {
    rng: Rng,
    nodes: u32,
    lie: Lie,
    every: Duration,
    next: Option<Instant>,
    /// How long it forges; then it is a member like all others.
    lasts: Duration,
    until: Instant,
}

impl Forger {
    /// One of `nodes` that sends `rate` packets per second for some time.
    pub(super) fn new(rng: Rng, nodes: u32, lie: Lie, rate: u64, lasts: Duration) -> Self {
        let every = Duration::from_micros(1_000_000 / rate.max(1));
        Self { rng, nodes, lie, every, next: None, lasts, until: Instant::ZERO }
    }

    /// Sends one packet of lies.
    fn lie(&mut self, swim: &Swim, out: &mut Outbox<'_, Actor>) {
        let target = self.node();
        let contents: Vec<OwnContents> = (0..4).map(|_| self.contents()).collect();
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 1400);
        let head = Head { ring: Ring::new("annulus"), from: self.anyone(target) };
        head.write(&mut writer);
        for contents in &contents[..1 + self.rng.index(3)] {
            let message = self.message(swim, head.from, target, contents.borrow());
            encode(&message, &mut writer);
        }
        out.send(UDP, addr_of(target), &bytes);
    }

    /// One lie of the kind that is wanted.
    fn message<'a>(&mut self, swim: &Swim, from: Id, target: HostId, contents: Contents<'a>) -> Message<'a> {
        let about = match self.lie {
            Lie::Any => return self.anything(swim, from, target, contents),
            Lie::Refute => id_of(HostId::new(0)),
            Lie::Leap => id_of(target),
            Lie::Invent => Id::new(u128::from(self.rng.next_u64()) << 64 | 1),
            Lie::Move | Lie::Leave => id_of(self.node()),
        };
        let known = swim.members().member(about).map_or(0, |member| member.incarnation().0);
        let header = Header { from: about, sequence: Sequence(self.rng.next_u32()) };
        let next = Incarnation(known.saturating_add(1));
        match self.lie {
            Lie::Leap => Message::Suspect {
                header: Header { from, ..header },
                id: about,
                incarnation: Incarnation(known.saturating_add(65_536)),
            },
            Lie::Leave => Message::Dead { header, id: about, incarnation: Incarnation(known) },
            _ => Message::Alive { header, node: NodeView { id: about, contents }, incarnation: next },
        }
    }

    fn anything<'a>(&mut self, swim: &Swim, from: Id, target: HostId, contents: Contents<'a>) -> Message<'a> {
        let about = self.anyone(target);
        let known = swim.members().member(about).map_or(0, |member| member.incarnation().0);
        let steps = [0, 1, 2, 8, 16, 1 << 10, 1 << 16, (1 << 24) - 1, u32::MAX / 2, u32::MAX];
        let incarnation = Incarnation(known.saturating_add(steps[self.rng.index(steps.len())]));
        let said_by = self.anyone(target);
        let header = Header { from: said_by, sequence: Sequence(self.rng.next_u32()) };
        let own = Header { from, ..header };
        let node = NodeView { id: about, contents };
        let wall = annulus_core::Wall::default();
        match self.rng.index(12) {
            0 => {
                let (wants_coordinate, wants_alive) = (self.rng.chance(0.5), self.rng.chance(0.5));
                Message::Ping {
                    header: own,
                    to: id_of(target),
                    local_time: wall,
                    wants_coordinate,
                    wants_alive,
                }
            }
            1 => Message::Ack {
                header: own,
                local_time: wall,
                introduce: self.rng.chance(0.5),
                coordinate: None,
            },
            2 => {
                let to = id_of(target);
                Message::IndirectPing { header: own, to, target: about, wants_nack: true, contents }
            }
            3 => Message::IndirectAck { header: own },
            4 => Message::Join { header: Header { from: about, ..header }, node, incarnation },
            5 | 6 => Message::Alive { header: Header { from: about, ..header }, node, incarnation },
            7 | 8 => Message::Suspect { header, id: about, incarnation },
            9 => Message::Dead { header, id: about, incarnation },
            10 => Message::Dead { header: Header { from: about, ..header }, id: about, incarnation },
            _ => Message::Summary { header: own, range: Range::ALL, entries: Summaries::default() },
        }
    }

    /// Any node, the target among them, or one that does not exist.
    fn anyone(&mut self, target: HostId) -> Id {
        match self.rng.index(8) {
            0 => Id::new(u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64())),
            1 => id_of(target),
            _ => id_of(self.node()),
        }
    }

    fn node(&mut self) -> HostId {
        HostId::new(self.rng.below(u64::from(self.nodes)) as u32)
    }

    /// The address of any node, or an unused one.
    fn contents(&mut self) -> OwnContents {
        let port = 1 + self.rng.below(60_000) as u16;
        let nobody = SocketAddr::from(([10, 200, self.rng.next_u32() as u8, 1], port));
        if self.lie == Lie::Refute {
            return OwnContents::new(&[addr_of(HostId::new(0))], b"").expect("one address");
        }
        let addr = if self.rng.chance(0.7) { addr_of(self.node()) } else { nobody };
        let meta: &[u8] = if self.rng.chance(0.2) { b"lies" } else { b"" };
        OwnContents::new(&[addr], meta).expect("one address and little metadata")
    }
}

/// Runs the member inside with an outbox of its own.
macro_rules! inside {
    ($out:expr, |$inner:ident| $call:expr) => {
        $out.nested::<Swim, _>(Service(0), |event| event, |_, reply| Some(reply), |$inner| $call)
    };
}

impl Machine for Actor {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        self.swim.endpoints()
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: &mut Outbox<'_, Self>) {
        if !self.is_mute() {
            inside!(out, |inner| self.swim.handle_start(now, bound, inner));
        }
        let first = now.mono + Duration::from_secs(2);
        match &mut self.role {
            Role::Honest => {}
            Role::Forger(forger) => {
                forger.until = now.mono + forger.lasts;
                forger.next = Some(first).filter(|next| *next < forger.until);
            }
            Role::Mute(mute) => {
                if let Some(flood) = &mute.flood {
                    mute.until = now.mono + flood.lasts;
                    mute.next = Some(first).filter(|next| *next < mute.until);
                }
            }
        }
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        if let Role::Mute(mute) = &mut self.role {
            mute.traffic.received_bytes += bytes.len() as u64;
            return Ok(());
        }
        inside!(out, |inner| self.swim.handle_datagram(now, socket, from, bytes, inner))
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        inside!(out, |inner| self.swim.handle_stream(now, stream, event, inner))
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {
        inside!(out, |inner| self.swim.handle_stored(now, reply, inner));
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: &mut Outbox<'_, Self>) {
        inside!(out, |inner| self.swim.handle_command(now, request, command, inner));
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if !self.is_mute() {
            inside!(out, |inner| self.swim.handle_timeout(now, inner));
        }
        match &mut self.role {
            Role::Forger(forger) if forger.next.is_some_and(|at| at <= now.mono) => {
                forger.next = Some(now.mono + forger.every).filter(|next| *next < forger.until);
                forger.lie(&self.swim, out);
            }
            Role::Mute(mute) if mute.next.is_some_and(|at| at <= now.mono) => {
                let Some(flood) = &mut mute.flood else { return };
                mute.next = Some(now.mono + flood.every).filter(|next| *next < mute.until);
                let (to, bytes) = flood.next();
                mute.traffic.sent += 1;
                mute.traffic.sent_bytes += bytes.len() as u64;
                out.send(UDP, to, &bytes);
            }
            _ => {}
        }
    }

    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        inside!(out, |inner| self.swim.handle_stop(now, inner));
    }

    fn is_stopped(&self) -> bool {
        self.is_mute() || self.swim.is_stopped()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let (next, is_mute) = match &self.role {
            Role::Honest => (None, false),
            Role::Forger(forger) => (forger.next, false),
            Role::Mute(mute) => (mute.next, true),
        };
        let own = next.map(|at| (at, "adversary.send"));
        self.swim.poll_timeout().filter(|_| !is_mute).into_iter().chain(own).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.swim.counters(visit);
    }
}
