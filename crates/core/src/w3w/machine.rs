//! The machine: matches what comes in and delegates to the nouns and to the states of the document.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::alarms::{Alarm, Alarms};
use super::config::{Announce, Config, ConfigError};
use super::counts::Counters;
use super::doorstep::Doorstep;
use super::files::Files;
use super::known::Known;
use super::links::Links;
use super::memory::{Limiter, Memory};
use super::message::{Here, SeenKey};
use super::nid::{Key, Nid};
use super::post::Post;
use super::queue::{Line, Queue};
use super::room::Room;
use super::routes::Ring;
use super::save::{Loading, Pending};
use super::shelf::Shelf;
use super::spare::Spare;
use super::wire::decode_here;
use super::{Command, Event, Reply};
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, OpId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener; with incrementing ports the others follow it.
pub const TCP: ListenerId = ListenerId::new(0);
/// DATA by its hash (M-52).
pub const BLOCKS: SpaceId = SpaceId::new(0);
/// What is in [`BLOCKS`]: length and age, so that a start need not read the blocks.
pub const INDEX: SpaceId = SpaceId::new(1);
/// What is for us.
pub const INBOX: SpaceId = SpaceId::new(2);
/// What we sent.
pub const OUTBOX: SpaceId = SpaceId::new(3);
/// What waits.
pub const QUEUE: SpaceId = SpaceId::new(4);
/// What was delivered here, so that it is not delivered again (MA-40b).
pub const SEEN: SpaceId = SpaceId::new(5);
/// The known nodes (M-2).
pub const KNOWN: SpaceId = SpaceId::new(6);
/// Files on their way, ours and those of others.
pub const FILES: SpaceId = SpaceId::new(7);

/// How long a handshake may take (MA-27), and a farewell.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the memory of introductions and of dropped peers lasts (MA-37).
pub(super) const HOLD_DOWN: Duration = Duration::from_secs(60);
/// The most callers that are let into a full ring when they call again.
const RESERVED_MAX: usize = 16;
/// The most pairs and peers remembered so.
const HOLD_DOWN_MAX: usize = 4096;

/// A node of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    pub(super) config: Config,
    pub(super) own: Nid,
    /// Where we are and accept connections: what our HERE says.
    pub(super) at: SocketAddrV4,
    pub(super) rng: Rng,
    pub(super) ring: Ring,
    pub(super) links: Links,
    pub(super) known: Known,
    pub(super) queue: Queue,
    pub(super) shelf: Shelf,
    pub(super) post: Post,
    pub(super) files: Files,
    /// Messages that went through here.
    pub(super) passed: Memory<SeenKey>,
    /// Messages that were for us; in the store too.
    pub(super) received: Memory<SeenKey>,
    /// Peers dropped by OPTIMIZE, not to be taken back through HERE for a while (MA-37).
    pub(super) held_off: Memory<Nid>,
    /// Nodes that refused us: a full ring does not ask them again for a while, unless they belong next to us.
    pub(super) refused_by: Memory<Nid>,
    /// Refused callers that belong next to us: the next time they are let in, full or not.
    pub(super) reserved: Memory<Nid>,
    /// Who was told of whom (MA-37).
    pub(super) introduced: Memory<(Nid, Nid)>,
    /// Files that are not wanted.
    pub(super) declined: Memory<Key>,
    /// Nodes we have heard of and did not connect to, nearest to us.
    pub(super) candidates: BTreeMap<Nid, SocketAddrV4>,
    /// Broken connections that are dialled once more.
    pub(super) redials: BTreeMap<Nid, Here>,
    pub(super) by_source: Limiter<Ipv4Addr>,
    pub(super) by_target: Limiter<Ipv4Addr>,
    pub(super) dial_limit: Limiter<()>,
    pub(super) room_limit: Limiter<()>,
    pub(super) alarms: Alarms,
    pub(super) spare: Spare,
    pub(super) announce_interval: Duration,
    pub(super) tend_interval: Duration,
    pub(super) ops: BTreeMap<OpId, Pending>,
    /// Lines of the queue whose message is being read from the store.
    pub(super) fetching: BTreeSet<Line>,
    pub(super) room: Room,
    pub(super) doorstep: Doorstep,
    pub(super) ops_begun: u64,
    pub(super) delivering_bytes: usize,
    /// Messages for us that are being saved.
    pub(super) delivering: BTreeSet<SeenKey>,
    /// The one peer that may send while memory is short.
    pub(super) favoured: Option<StreamId>,
    /// Whether credit was held back.
    pub(super) is_owing: bool,
    pub(super) loading: Option<Loading>,
    pub(super) is_stopping: bool,
    pub(super) counters: Counters,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Mesh>;

impl Mesh {
    /// INIT 2 and 3: a node with these settings and an empty ring; `seed` decides all it draws.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let own = Nid::from_uuid(config.uuid);
        let second = Duration::from_secs(1);
        Ok(Self {
            own,
            at: SocketAddrV4::new(config.own_ip(), config.bind.port()),
            rng: Rng::new(seed),
            ring: Ring::new(own),
            links: Links::default(),
            known: Known::new(config.known_max),
            queue: Queue::new(config.queue_max, config.queue_bytes_max),
            shelf: Shelf::new(config.quota_bytes, config.blocks_max, config.keep),
            post: Post::new(config.boxes_max),
            files: Files::default(),
            passed: Memory::new(config.seen_max),
            received: Memory::new(config.seen_max),
            held_off: Memory::new(HOLD_DOWN_MAX),
            refused_by: Memory::new(HOLD_DOWN_MAX),
            reserved: Memory::new(RESERVED_MAX),
            introduced: Memory::new(HOLD_DOWN_MAX),
            declined: Memory::new(HOLD_DOWN_MAX),
            candidates: BTreeMap::new(),
            redials: BTreeMap::new(),
            by_source: Limiter::new(16, second / 4, 1024),
            by_target: Limiter::new(4, 15 * second, 1024),
            dial_limit: Limiter::new(64, second / 32, 1),
            room_limit: Limiter::new(4, 5 * second, 1),
            alarms: Alarms::default(),
            spare: Spare::default(),
            announce_interval: Duration::ZERO,
            tend_interval: Duration::ZERO,
            ops: BTreeMap::new(),
            fetching: BTreeSet::new(),
            room: Room::default(),
            doorstep: Doorstep::default(),
            ops_begun: 0,
            delivering_bytes: 0,
            delivering: BTreeSet::new(),
            favoured: None,
            is_owing: false,
            loading: None,
            is_stopping: false,
            counters: Counters::default(),
            config: config.clone(),
        })
    }

    /// The own address in the mesh.
    #[must_use]
    pub fn nid(&self) -> Nid {
        self.own
    }

    /// The peers in the ring, ascending.
    #[must_use]
    pub fn peers(&self) -> Vec<super::Peer> {
        self.ring.peers()
    }

    /// The ring as the document draws it (M-9).
    #[must_use]
    pub fn ring_json(&self) -> String {
        self.ring.to_json()
    }

    /// What it has counted so far.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.counters
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// How many messages wait here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What this node says of itself.
    pub(super) fn here(&self) -> Here {
        Here { nid: self.own, at: self.at }
    }

    fn ring_alarm(&mut self, now: Now, alarm: Alarm, out: Out<'_, '_>) {
        match alarm {
            Alarm::Announce => self.announce(now, out),
            Alarm::Tend => self.tend(now, out),
            Alarm::Handshake(stream) => self.handshake_over(now, stream, out),
            Alarm::Stalled(stream) => self.stalled(now, stream, out),
            Alarm::Silent(stream) => self.silent(now, stream, out),
            Alarm::Redial(nid) => self.redial(now, nid, out),
            Alarm::Expire => self.expire(now, out),
            Alarm::KeepKnown => self.keep_known(out),
            Alarm::Files => self.push_files(now, out),
            Alarm::Room => self.try_again(now, out),
            Alarm::Door => self.open_door(now, out),
            Alarm::Again => self.offer_again(now, out),
            Alarm::Stop => self.abort_all(out),
        }
    }

    fn listeners(&self) -> Vec<Listener> {
        let extra = if let Announce::Incrementing { ports } = self.config.announce { ports } else { 0 };
        let listener = |offset: u16| Listener {
            id: ListenerId::new(offset.min(255)),
            name: "mesh/tcp",
            bind: SocketAddr::from((*self.config.bind.ip(), self.config.bind.port() + offset)),
            streams_max: self.config.streams_max,
        };
        (0..=extra.min(255)).map(listener).collect()
    }
}

impl Machine for Mesh {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let names = ["blocks", "index", "inbox", "outbox", "queue", "seen", "known", "files"];
        let spaces = [BLOCKS, INDEX, INBOX, OUTBOX, QUEUE, SEEN, KNOWN, FILES];
        Endpoints {
            sockets: vec![Socket {
                id: UDP,
                name: "mesh/udp",
                bind: SocketAddr::V4(self.config.bind),
                broadcast: Vec::new(),
            }],
            listeners: self.listeners(),
            spaces: spaces.into_iter().zip(names).map(|(id, name)| Space { id, name }).collect(),
        }
    }

    /// INIT 1 and 4 (M-29, M-32); the state NOUNCE follows when everything is read.
    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_>) {
        if let Some(addr) = bound.listener(TCP) {
            self.at.set_port(addr.port());
        }
        tracing::debug!(state = "INIT", nid = %self.own, at = %self.at);
        self.load(now, out);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        match decode_here(bytes) {
            Ok(here) => self.signal(now, from, here, out),
            Err(error) => {
                self.counters.malformed_datagrams += 1;
                Err(error.into())
            }
        }
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        match event {
            StreamEvent::Accepted { from, .. } => self.accepted(now, stream, from, out),
            StreamEvent::Connected { .. } => self.connected(stream),
            StreamEvent::Data(data) => self.data(now, stream, data, out)?,
            StreamEvent::Sent { bytes, .. } => self.sent(now, stream, bytes, out),
            StreamEvent::Finished => self.finished(now, stream, out),
            StreamEvent::Closed(_) => self.closed(now, stream, out),
        }
        Ok(())
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        self.stored(now, reply, out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        if self.is_stopping {
            out.reply(request, Reply::Stopping);
        } else {
            self.command(now, request, command, out);
        }
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(alarm) = self.alarms.take_due(now.mono) {
            self.ring_alarm(now, alarm, out);
        }
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.is_stopping {
            self.is_stopping = true;
            self.stop(now, out);
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopping && self.links.len() == 0 && self.ops.is_empty() && self.room.is_empty()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.alarms.next()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.counters.visit(visit);
    }
}
