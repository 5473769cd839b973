//! One host: a machine, its clocks, its endpoints, and its queued inputs.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use annulus_core::{ListenerId, Machine, RequestId, SocketId, StreamId};
use serde::Serialize;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::queue::What;
use crate::stats::HostStats;
use crate::stream::EndKey;

/// A host of the simulation; hosts are numbered from 0 in the order they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostId(u32);

impl HostId {
    /// The host of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number, as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

/// The state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// It has no power: nothing answers.
    Off,
    /// Its process has ended: the kernel resets streams that come to it and drops datagrams.
    Down,
    /// Its machine reads its state from the store and gets nothing else yet.
    Loading,
    /// Its machine runs.
    Up,
    /// Its process is paused; the kernel goes on.
    Suspended,
    /// The whole machine is suspended: nothing answers.
    Asleep,
}

/// How a host is made.
#[derive(Clone, Debug, Default)]
pub struct HostSpec {
    /// Addresses beside the one every host has (10.x.y.z by its number). The first of a family is used to send.
    pub addresses: Vec<IpAddr>,
    /// The broadcast domain it is in.
    pub domain: u16,
    /// Whether it stays off until it is started by a fault or a step.
    pub off: bool,
}

/// The arguments of a machine's constructor, at every start.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    /// For which host.
    pub host: HostId,
    /// Decides everything the machine draws; another one at each start.
    pub seed: annulus_core::Seed,
    /// The host's own IPv4 address.
    pub address: IpAddr,
    /// Its other addresses.
    pub addresses: &'a [IpAddr],
    /// The number of earlier starts of this host.
    pub starts: u32,
}

/// A bound datagram socket.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) id: SocketId,
    pub(crate) addr: SocketAddr,
    pub(crate) broadcast: Box<[SocketAddr]>,
}

/// A bound listener.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) id: ListenerId,
    pub(crate) addr: SocketAddr,
    pub(crate) streams_max: usize,
    pub(crate) streams: usize,
    /// So many of these wait for the process to accept them.
    pub(crate) untaken: usize,
}

/// Something that waits for a host that cannot take it yet.
pub(crate) enum Waiting<C> {
    /// The datagram in this slot.
    Datagram(u32),
    /// An event of a stream.
    Stream(EndKey),
    /// A command.
    Command(RequestId, C),
    /// The wish that it stops.
    Stop,
}

/// State that few hosts need, allocated on demand.
pub(crate) struct Extra<C> {
    pub(crate) streams: BTreeMap<StreamId, EndKey>,
    pub(crate) accepted: u64,
    pub(crate) last_port: u16,
    /// Store answers wait apart: a machine that loads gets them and nothing else.
    pub(crate) stored: VecDeque<u32>,
    pub(crate) waiting: VecDeque<Waiting<C>>,
    pub(crate) datagrams_waiting: usize,
    pub(crate) slow_micros: u64,
    pub(crate) busy_until: u64,
    pub(crate) drain_queued: bool,
    pub(crate) line_free_at: u64,
    pub(crate) addresses: Vec<IpAddr>,
    /// The median of a drawn delay for each input.
    pub(crate) stutter_micros: u64,
    pub(crate) is_starved: bool,
    pub(crate) is_dead: bool,
    /// The address instead of the one that it has by its number.
    pub(crate) address: Option<IpAddr>,
    pub(crate) wall_at_start: i64,
    /// How often it was without power.
    pub(crate) boots: u32,
    /// Timers of its kernel and its driver that ran out while they could not act.
    pub(crate) stopped_timers: Vec<What>,
    pub(crate) asleep_since: u64,
    /// The life with the last slow sync, and when that sync ends.
    pub(crate) slow_sync: (u32, u64),
}

impl<C> Default for Extra<C> {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            accepted: 0,
            last_port: 0,
            stored: VecDeque::new(),
            waiting: VecDeque::new(),
            datagrams_waiting: 0,
            slow_micros: 0,
            busy_until: 0,
            drain_queued: false,
            line_free_at: 0,
            addresses: Vec::new(),
            stutter_micros: 0,
            is_starved: false,
            is_dead: false,
            address: None,
            wall_at_start: 0,
            boots: 0,
            stopped_timers: Vec::new(),
            asleep_since: 0,
            slow_sync: (0, 0),
        }
    }
}

/// One host.
pub(crate) struct Host<M: Machine> {
    pub(crate) machine: Option<M>,
    pub(crate) clock: Clock,
    /// The moment for which a wake-up is in the queue; `u64::MAX` if none is.
    pub(crate) wake_at: u64,
    /// The moment of the last wake-up, and how often in a row it was the same.
    pub(crate) woken: (u64, u32),
    /// Counts the runs of the process: inputs of an earlier run are dropped.
    pub(crate) life: u32,
    /// Store operations under way.
    pub(crate) ops: u32,
    pub(crate) domain: u16,
    pub(crate) state: HostState,
    /// Whether store requests of the start are unanswered.
    pub(crate) loading: bool,
    pub(crate) stopping: bool,
    pub(crate) sockets: Box<[Binding]>,
    pub(crate) listeners: Box<[Listening]>,
    pub(crate) disk: Option<Box<Disk>>,
    pub(crate) extra: Option<Box<Extra<M::Command>>>,
    pub(crate) stats: HostStats,
}

impl<M: Machine> Host<M> {
    pub(crate) fn new(clock: Clock, domain: u16) -> Self {
        Self {
            machine: None,
            clock,
            wake_at: u64::MAX,
            woken: (0, 0),
            life: 0,
            ops: 0,
            domain,
            state: HostState::Off,
            loading: false,
            stopping: false,
            sockets: Box::default(),
            listeners: Box::default(),
            disk: None,
            extra: None,
            stats: HostStats::default(),
        }
    }

    pub(crate) fn extra(&mut self) -> &mut Extra<M::Command> {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn disk(&mut self) -> &mut Disk {
        self.disk.get_or_insert_default()
    }

    /// Whether the kernel answers packets.
    pub(crate) fn answers(&self) -> bool {
        !matches!(self.state, HostState::Off | HostState::Asleep)
    }

    /// Whether the process runs and has finished its last input.
    #[inline]
    pub(crate) fn is_free(&self, at: u64) -> bool {
        matches!(self.state, HostState::Up | HostState::Loading)
            && self.extra.as_ref().is_none_or(|extra| extra.busy_until <= at)
    }

    /// Whether its machine can take something from outside now.
    #[inline]
    pub(crate) fn is_ready(&self, at: u64) -> bool {
        self.state == HostState::Up
            && self.extra.as_ref().is_none_or(|extra| extra.busy_until <= at && extra.waiting.is_empty())
    }

    pub(crate) fn addresses(&self) -> &[IpAddr] {
        self.extra.as_ref().map_or(&[], |extra| &extra.addresses)
    }

    /// Whether its system has no descriptors, ports and buffers.
    #[inline]
    pub(crate) fn is_starved(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.is_starved)
    }

    /// Whether it has gone for good.
    pub(crate) fn is_dead(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.is_dead)
    }

    /// Names its boot: another one each time it was without power.
    pub(crate) fn boot_id(&self, id: HostId) -> [u8; 16] {
        let boots = self.extra.as_ref().map_or(0, |extra| extra.boots);
        (u128::from(id.0) << 64 | u128::from(boots) << 1 | 1).to_be_bytes()
    }

    /// The end of a stream that its machine calls by this number.
    pub(crate) fn stream(&self, stream: StreamId) -> Option<EndKey> {
        self.extra.as_ref()?.streams.get(&stream).copied()
    }
}

/// Whether a socket bound to one address gets packets to another. All addresses of a family are covered by
/// its unspecified one; IPv6's covers IPv4 too, as on most systems.
pub(crate) fn covers(bound: SocketAddr, to: SocketAddr) -> bool {
    bound == to
        || (bound.port() == to.port() && bound.ip().is_unspecified() && (bound.is_ipv6() || to.is_ipv4()))
}
