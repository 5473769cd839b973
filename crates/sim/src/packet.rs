//! Datagrams: from a machine through the network to another.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use annulus_core::{Machine, SocketId, micros};

use crate::fault::{Block, Traffic};
use crate::host::{Binding, HostId, Waiting, covers};
use crate::observer::{Datagram, DatagramFate, Observer, Verdict, Violation};
use crate::queue::What;
use crate::sim::{NETWORK_BROADCAST, Sim};
use crate::trace::{Bytes, Kind, Record};

/// A datagram under way.
#[derive(Debug)]
pub(crate) struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    host: HostId,
    bytes: Vec<u8>,
}

impl Default for Packet {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self { from: nowhere, to: nowhere, host: HostId::new(0), bytes: Vec::new() }
    }
}

/// Why something did not get through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// By chance.
    Chance,
    /// By a cut or a partition.
    Cut,
    /// By a full queue before the line.
    Backlog,
    /// By a filter that rejects it.
    Rejected,
    /// By a path that takes only smaller ones.
    Oversize,
}

/// The latency of a packet from a host to itself.
const LOOPBACK_MICROS: u64 = 20;

impl<M: Machine> Sim<M> {
    /// A machine sends a datagram.
    pub(crate) fn send(
        &mut self,
        id: HostId,
        socket: SocketId,
        to: SocketAddr,
        bytes: &[u8],
        observer: &mut dyn Observer<M>,
    ) -> Verdict {
        let from = self.source(id, socket, to)?;
        if self.hosts[id.index()].is_starved() || self.has_lost(id, from.ip()) {
            self.stats.datagrams_shed += 1;
            return Ok(());
        }
        let slot = self.packets.claim();
        let packet = self.packets.at_mut(slot);
        packet.bytes.clear();
        packet.bytes.extend_from_slice(bytes);
        self.launch(id, slot, from, to, observer);
        Ok(())
    }

    /// A machine sends a datagram to every broadcast target of a socket.
    pub(crate) fn broadcast(
        &mut self,
        id: HostId,
        socket: SocketId,
        bytes: &[u8],
        observer: &mut dyn Observer<M>,
    ) -> Verdict {
        let targets = match self.hosts[id.index()].sockets.iter().find(|binding| binding.id == socket) {
            Some(binding) => binding.broadcast.clone(),
            None => {
                return Err(Violation::new(format!(
                    "{id} broadcasts from {socket}, which it did not declare"
                )));
            }
        };
        for &to in &targets {
            self.send(id, socket, to, bytes, observer)?;
        }
        Ok(())
    }

    /// A datagram arrives at a host.
    pub(crate) fn datagram_arrives(&mut self, slot: u32, observer: &mut dyn Observer<M>) -> Verdict {
        let id = self.packets.at(slot).host;
        let host = &mut self.hosts[id.index()];
        if host.is_ready(self.now) {
            return self.deliver(slot, observer);
        }
        if !host.answers() || host.machine.is_none() {
            self.lose(slot, "nobody there");
            self.stats.datagrams_unreachable += 1;
            return Ok(());
        }
        let waiting_max = self.config.host.waiting_max;
        let extra = host.extra();
        if extra.datagrams_waiting >= waiting_max {
            self.lose(slot, "too many wait");
            self.stats.datagrams_shed += 1;
            return Ok(());
        }
        extra.datagrams_waiting += 1;
        self.wait(id, Waiting::Datagram(slot));
        Ok(())
    }

    /// Gives a datagram to the machine it is for.
    pub(crate) fn deliver(&mut self, slot: u32, observer: &mut dyn Observer<M>) -> Verdict {
        let packet = self.packets.at(slot);
        let (id, from, to) = (packet.host, packet.from, packet.to);
        let is_for_another = !is_broadcast(to.ip()) && self.has_lost(id, to.ip());
        let host = &mut self.hosts[id.index()];
        let socket = host
            .sockets
            .iter()
            .filter(|_| !is_for_another)
            .find(|binding| receives(binding, to))
            .map(|binding| binding.id);
        let (Some(socket), Some(machine)) = (socket, host.machine.as_mut()) else {
            self.lose(slot, "nobody has this port");
            self.stats.datagrams_unreachable += 1;
            return Ok(());
        };
        host.stats.datagrams_received += 1;
        self.stats.datagrams_delivered += 1;
        let bytes = packet.bytes.as_slice();
        self.trace.note(self.now, Some(id), Kind::Receive, || Record::Receive {
            from,
            to,
            bytes: Bytes(bytes),
        });
        self.trace.address(from);
        self.trace.hash().number(bytes.len() as u64);
        let now = host.clock.now(self.now);
        let taken = machine.handle_datagram(now, socket, from, bytes, &mut self.actions.outbox());
        self.packets.release(slot);
        if let Err(refusal) = taken {
            self.stats.refusals += 1;
            self.trace.remark(self.now, Some(id), || Record::Refused { why: refusal.to_string() });
        }
        self.settle(id, observer)
    }

    /// When something of so many bytes arrives that one host sends to another now.
    pub(crate) fn travel(
        &mut self,
        from: HostId,
        to: HostId,
        bytes: usize,
        traffic: Traffic,
    ) -> Result<u64, Loss> {
        if from == to {
            return Ok(self.now + LOOPBACK_MICROS);
        }
        if !self.links.pass(from, to) {
            return Err(Loss::Cut);
        }
        let mut delay = 0;
        if let Some(path) = self.links.path(from, to) {
            match path.block(traffic) {
                Some(Block::Drop) => return Err(Loss::Cut),
                Some(Block::Reject) => return Err(Loss::Rejected),
                None => {}
            }
            if path.mtu_bytes.is_some_and(|most| bytes > most) {
                return Err(Loss::Oversize);
            }
            delay = path.delay_micros;
        }
        let departs = self.departs(from, bytes)? + delay;
        let network = &self.config.network;
        let rng = &mut self.network_rng;
        if network.loss > 0.0 && rng.chance(network.loss) {
            return Err(Loss::Chance);
        }
        let (from, to) = if network.latency.has_places() {
            let place = |host: HostId| self.places.get(host.index()).copied().unwrap_or_default();
            (place(from), place(to))
        } else {
            Default::default()
        };
        let mut arrives = departs + network.latency.micros(from, to, rng);
        if !network.jitter.is_zero() {
            arrives += rng.below(micros(network.jitter));
        }
        Ok(arrives)
    }

    /// When the line of a host has taken so many more bytes.
    fn departs(&mut self, from: HostId, bytes: usize) -> Result<u64, Loss> {
        let Some(bandwidth) = self.config.network.bandwidth else { return Ok(self.now) };
        let backlog_max = micros(self.config.network.backlog_max);
        let extra = self.hosts[from.index()].extra();
        let starts = extra.line_free_at.max(self.now);
        if starts - self.now > backlog_max {
            return Err(Loss::Backlog);
        }
        extra.line_free_at = starts + (bytes as u64 * 1_000_000).div_ceil(bandwidth.max(1));
        Ok(extra.line_free_at)
    }

    fn source(&self, id: HostId, socket: SocketId, to: SocketAddr) -> Result<SocketAddr, Violation> {
        let sockets = &self.hosts[id.index()].sockets;
        let Some(binding) = sockets.iter().find(|binding| binding.id == socket) else {
            return Err(Violation::new(format!("{id} sends from {socket}, which it did not declare")));
        };
        let mut from = binding.addr;
        if from.ip().is_unspecified()
            && let Some(own) = self.own_address(id, to.is_ipv4())
        {
            from.set_ip(own);
        }
        Ok(from)
    }

    /// Sends the packet of a slot, to one host or to a whole broadcast domain.
    fn launch(
        &mut self,
        id: HostId,
        slot: u32,
        from: SocketAddr,
        to: SocketAddr,
        observer: &mut dyn Observer<M>,
    ) {
        let mut bytes = std::mem::take(&mut self.packets.at_mut(slot).bytes);
        let fate = observer.on_datagram(self, Datagram { host: id, from, to, bytes: &mut bytes });
        self.trace.note(self.now, Some(id), Kind::Send, || Record::Send { from, to, bytes: Bytes(&bytes) });
        self.trace.address(to);
        self.trace.hash().bytes(&bytes);
        let length = bytes.len();
        let packet = self.packets.at_mut(slot);
        *packet = Packet { from, to, host: id, bytes };
        if fate == DatagramFate::Drop {
            self.count_sent(id, length);
            self.stats.datagrams_dropped += 1;
            self.lose(slot, "dropped by the scenario");
        } else if length > self.config.network.mtu_bytes {
            self.count_sent(id, length);
            self.stats.datagrams_oversize += 1;
            self.lose(slot, "above the MTU");
        } else if is_broadcast(to.ip()) {
            self.launch_to_domain(id, slot, to);
        } else {
            self.count_sent(id, length);
            // A socket of one family cannot send to the other.
            let sendable = from.is_ipv4() == to.is_ipv4() && !from.ip().is_unspecified();
            match self.receiver(to).filter(|_| sendable) {
                Some(host) => {
                    self.packets.at_mut(slot).host = host;
                    self.route(id, slot);
                }
                None => {
                    self.stats.datagrams_unreachable += 1;
                    self.lose(slot, "no such address");
                }
            }
        }
    }

    /// One copy for each host of the sender's domain that listens, the sender itself included.
    fn launch_to_domain(&mut self, id: HostId, slot: u32, to: SocketAddr) {
        let domain = usize::from(self.hosts[id.index()].domain);
        for index in 0..self.domains[domain].len() {
            let host = self.domains[domain][index];
            if self.hosts[host.index()].sockets.iter().any(|binding| receives(binding, to)) {
                self.count_sent(id, self.packets.at(slot).bytes.len());
                let copy = self.copy(slot);
                self.packets.at_mut(copy).host = host;
                self.route(id, copy);
            }
        }
        self.packets.release(slot);
    }

    /// Puts one datagram on its way to its host, or loses it, or sends it twice.
    fn route(&mut self, id: HostId, slot: u32) {
        let packet = self.packets.at(slot);
        let (host, length) = (packet.host, packet.bytes.len());
        let mut arrives = match self.travel(id, host, length, Traffic::Datagrams) {
            Ok(arrives) => arrives,
            Err(loss) => return self.lose_by(slot, loss),
        };
        let (duplicate, reorder) = (self.config.network.duplicate, self.config.network.reorder);
        if reorder > 0.0 && self.network_rng.chance(reorder) {
            self.stats.datagrams_reordered += 1;
            arrives += self.network_rng.below(micros(self.config.network.reorder_by));
        }
        let stray = self.config.network.stray;
        if stray > 0.0 && self.network_rng.chance(stray) {
            self.stats.datagrams_reordered += 1;
            arrives += self.network_rng.below(micros(self.config.network.stray_by));
        }
        self.queue.push(arrives, What::Datagram(slot));
        if duplicate > 0.0
            && self.network_rng.chance(duplicate)
            && let Ok(arrives) = self.travel(id, host, length, Traffic::Datagrams)
        {
            self.stats.datagrams_duplicated += 1;
            let copy = self.copy(slot);
            self.queue.push(arrives, What::Datagram(copy));
        }
    }

    fn copy(&mut self, slot: u32) -> u32 {
        let copy = self.packets.claim();
        let packet = self.packets.at(slot);
        let (from, to, host, bytes) = (packet.from, packet.to, packet.host, packet.bytes.clone());
        *self.packets.at_mut(copy) = Packet { from, to, host, bytes };
        copy
    }

    /// The host that gets packets to an address; if several share it, the one with the port.
    fn receiver(&self, to: SocketAddr) -> Option<HostId> {
        let first = self.host_at(to.ip())?;
        match self.other_addresses.get(&to.ip()) {
            Some(hosts) if hosts.len() > 1 => {
                let has_port =
                    |id: &&HostId| self.hosts[id.index()].sockets.iter().any(|binding| receives(binding, to));
                hosts.iter().find(has_port).copied().or(Some(first))
            }
            _ => Some(first),
        }
    }

    fn count_sent(&mut self, id: HostId, length: usize) {
        self.stats.datagrams_sent += 1;
        self.stats.datagram_bytes_sent += length as u64;
        let stats = &mut self.hosts[id.index()].stats;
        stats.datagrams_sent += 1;
        stats.datagram_bytes_sent += length as u64;
    }

    fn lose_by(&mut self, slot: u32, loss: Loss) {
        match loss {
            Loss::Chance => {
                self.stats.datagrams_lost += 1;
                self.lose(slot, "by chance");
            }
            Loss::Oversize => {
                self.stats.datagrams_oversize += 1;
                self.lose(slot, "above the MTU of the path");
            }
            Loss::Cut | Loss::Rejected => {
                self.stats.datagrams_cut += 1;
                self.lose(slot, "cut");
            }
            Loss::Backlog => {
                self.stats.datagrams_shed += 1;
                self.lose(slot, "the line is full");
            }
        }
    }

    fn lose(&mut self, slot: u32, why: &'static str) {
        let packet = self.packets.at(slot);
        let (host, to) = (packet.host, packet.to);
        self.trace.remark(self.now, Some(host), || Record::Lost { to, why });
        self.packets.release(slot);
    }
}

/// Whether an address is a broadcast address.
pub(crate) fn is_broadcast(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::BROADCAST) || ip == IpAddr::V4(NETWORK_BROADCAST)
}

/// Whether a socket gets packets to an address. A broadcast reaches sockets with that broadcast target and sockets
/// bound to all addresses, as on a real system.
fn receives(binding: &Binding, to: SocketAddr) -> bool {
    if is_broadcast(to.ip()) {
        return binding.broadcast.contains(&to)
            || (binding.addr.ip().is_unspecified() && binding.addr.port() == to.port());
    }
    covers(binding.addr, to)
}
