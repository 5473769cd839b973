//! A datagram port: one bound socket, and the datagrams that wait for the system to take them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use annulus_core::{Socket, SocketId};
use tokio::net::UdpSocket;

use crate::bind;
use crate::counters::DriverCounters;
use crate::error::{BindError, Place, is_oversize};
use crate::ready::{Ready, Signal, Token};

/// All datagram ports of a driver: one for each declared socket, and one more for each broadcast address that such
/// a socket listens to.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    ports: Vec<Port>,
    declared: Vec<(SocketId, usize)>,
}

impl Ports {
    /// Binds one declared socket, and a second one for broadcasts if needed; returns the bound address.
    pub(crate) fn bind(
        &mut self,
        socket: &Socket,
        waiting_max: usize,
        ready: &Arc<Ready>,
    ) -> Result<SocketAddr, BindError> {
        let failed = |address| {
            move |error| BindError::new(Place { name: socket.name, address, protocol: "udp" }, error)
        };
        let unicast = bind::unicast(socket.bind).map_err(failed(socket.bind))?;
        let local = unicast.local_addr().map_err(failed(socket.bind))?;
        self.declared.push((socket.id, self.ports.len()));
        let mut port = Port::new(socket.id, unicast, self.signal(ready));
        port.waiting_max = waiting_max;
        port.targets.clone_from(&socket.broadcast);
        self.ports.push(port);
        for &target in &socket.broadcast {
            // A socket bound to every address receives broadcasts already; a second one would duplicate them.
            if !local.ip().is_unspecified() && bind::is_broadcast(target) {
                let socket = bind::broadcast(target).map_err(failed(target))?;
                let port = Port::new(self.ports[self.ports.len() - 1].id, socket, self.signal(ready));
                self.ports.push(port);
            }
        }
        Ok(local)
    }

    /// The port of this token.
    pub(crate) fn port(&mut self, index: usize) -> &mut Port {
        &mut self.ports[index]
    }

    /// The port that a declared socket sends from.
    pub(crate) fn of(&mut self, id: SocketId) -> Option<&mut Port> {
        let (_, index) = self.declared.iter().find(|(declared, _)| *declared == id)?;
        Some(&mut self.ports[*index])
    }

    /// Whether everything was handed to the system.
    pub(crate) fn are_flushed(&self) -> bool {
        self.ports.iter().all(|port| port.waiting.is_empty())
    }

    /// Lists every port, so that each is served once.
    pub(crate) fn raise(&self) {
        self.ports.iter().for_each(|port| port.signal.raise());
    }

    fn signal(&self, ready: &Arc<Ready>) -> Signal {
        Signal::new(ready, Token::Port(self.ports.len()))
    }
}

/// One bound socket.
#[derive(Debug)]
pub(crate) struct Port {
    /// The id that the machine gave it.
    pub(crate) id: SocketId,
    /// Its waker.
    pub(crate) signal: Signal,
    socket: UdpSocket,
    targets: Vec<SocketAddr>,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting_max: usize,
}

impl Port {
    fn new(id: SocketId, socket: UdpSocket, signal: Signal) -> Self {
        Self { id, signal, socket, targets: Vec::new(), waiting: VecDeque::new(), waiting_max: 0 }
    }

    /// The next datagram, into `buffer`. After [`Receipt::Nothing`] the signal is raised for the next one.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], counters: &mut DriverCounters) -> Receipt {
        loop {
            match self.socket.try_recv_from(buffer) {
                Ok((bytes, from)) => {
                    counters.datagrams_received += 1;
                    counters.datagram_bytes_received += bytes as u64;
                    return Receipt::Datagram(bytes, from);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.socket.poll_recv_ready(&mut self.signal.context()).is_pending() {
                        return Receipt::Nothing;
                    }
                }
                Err(error) => {
                    // An ICMP error of an earlier datagram: it concerns some peer, not this socket.
                    counters.datagram_receive_errors += 1;
                    tracing::trace!(socket = %self.id, %error, "receive error");
                    return Receipt::Error;
                }
            }
        }
    }

    /// Sends a datagram, or keeps it while the system takes none.
    pub(crate) fn send(&mut self, to: SocketAddr, bytes: &[u8], counters: &mut DriverCounters) {
        if self.waiting.is_empty() && self.try_send(to, bytes, counters) {
            return;
        }
        if self.waiting.len() >= self.waiting_max {
            counters.datagrams_shed += 1;
            return;
        }
        self.waiting.push_back((to, bytes.to_vec()));
        if self.waiting.len() == 1 {
            self.flush(counters);
        }
    }

    /// Sends a datagram to every broadcast target.
    pub(crate) fn broadcast(&mut self, bytes: &[u8], counters: &mut DriverCounters) {
        for index in 0..self.targets.len() {
            self.send(self.targets[index], bytes, counters);
        }
    }

    /// Sends queued datagrams as far as the kernel takes them; the signal is raised when it takes more.
    pub(crate) fn flush(&mut self, counters: &mut DriverCounters) {
        while let Some((to, bytes)) = self.waiting.pop_front() {
            if self.try_send(to, &bytes, counters) {
                continue;
            }
            self.waiting.push_front((to, bytes));
            if self.socket.poll_send_ready(&mut self.signal.context()).is_pending() {
                return;
            }
        }
    }

    /// Whether this datagram is done with: sent, or impossible to send.
    fn try_send(&self, to: SocketAddr, bytes: &[u8], counters: &mut DriverCounters) -> bool {
        let mut sent = self.socket.try_send_to(bytes, to);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // The error of an earlier datagram, reported at this one; now it is gone.
            sent = self.socket.try_send_to(bytes, to);
        }
        match sent {
            Ok(_) => {
                counters.datagrams_sent += 1;
                counters.datagram_bytes_sent += bytes.len() as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if is_oversize(&error) => counters.datagrams_oversize += 1,
            Err(error) => {
                counters.datagrams_failed += 1;
                tracing::trace!(socket = %self.id, %to, %error, "send error");
            }
        }
        true
    }
}

/// The result of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// A datagram: its length and its sender.
    Datagram(usize, SocketAddr),
    /// None is there.
    Nothing,
    /// The socket returned an error; there may be datagrams behind it.
    Error,
}
