//! The sockets, listeners and store spaces that a machine declares.

use std::net::SocketAddr;

use crate::tag::{ListenerId, Service, SocketId, SpaceId};

/// Everything that a driver opens for a machine before it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Datagram sockets.
    pub sockets: Vec<Socket>,
    /// Stream listeners.
    pub listeners: Vec<Listener>,
    /// Spaces of keys in the store.
    pub spaces: Vec<Space>,
}

impl Endpoints {
    /// Adopts the declarations of an inner machine as `service`.
    pub fn adopt(&mut self, service: Service, inner: Self) {
        self.sockets.extend(inner.sockets.into_iter().map(|s| Socket { id: s.id.in_service(service), ..s }));
        self.listeners
            .extend(inner.listeners.into_iter().map(|l| Listener { id: l.id.in_service(service), ..l }));
        self.spaces.extend(inner.spaces.into_iter().map(|s| Space { id: s.id.in_service(service), ..s }));
    }
}

/// A datagram socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The name the machine uses in its actions.
    pub id: SocketId,
    /// Its name in errors and metrics: `ping/udp`.
    pub name: &'static str,
    /// The address to bind. Port 0 takes any free port; [`Bound`] has the real one.
    pub bind: SocketAddr,
    /// The targets of a broadcast: one datagram to each. If a target is a broadcast address, the driver also receives
    /// datagrams to it, beside other processes of the same machine (JA-22).
    pub broadcast: Vec<SocketAddr>,
}

/// A stream listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The name the driver uses in `Accepted`.
    pub id: ListenerId,
    /// Its name in errors and metrics: `ping/tcp`.
    pub name: &'static str,
    /// The address to bind. Port 0 takes any free port; [`Bound`] has the real one.
    pub bind: SocketAddr,
    /// How many accepted streams may be open at once; one more is reset and counted.
    pub streams_max: usize,
}

/// A space of keys in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The name the machine uses in its operations.
    pub id: SpaceId,
    /// Its name on disk, together with its service: never change it.
    pub name: &'static str,
}

/// The real addresses of the declared sockets and listeners, given to the machine when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Address of each socket.
    pub sockets: Vec<(SocketId, SocketAddr)>,
    /// Address of each listener.
    pub listeners: Vec<(ListenerId, SocketAddr)>,
    /// Whether the driver sees acknowledgements: without it no [`crate::StreamEvent::Confirmed`] ever comes, and
    /// [`crate::Watch::dead_after`] is left to keep-alive.
    pub confirms: bool,
    /// Identifies the boot of the system, if the driver knows it. Two processes with the same id share the clock of
    /// [`crate::Now::mono`], so each can use the times that the other stored.
    pub boot_id: Option<[u8; 16]>,
}

impl Bound {
    /// The address of this socket.
    #[must_use]
    pub fn socket(&self, id: SocketId) -> Option<SocketAddr> {
        self.sockets.iter().find(|(at, _)| *at == id).map(|(_, addr)| *addr)
    }

    /// The address of this listener.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listeners.iter().find(|(at, _)| *at == id).map(|(_, addr)| *addr)
    }

    /// The part of one service, with the ids of its machine.
    #[must_use]
    pub fn of(&self, service: Service) -> Self {
        let own = Service(0);
        Self {
            sockets: (self.sockets.iter().filter(|(id, _)| id.service() == service))
                .map(|(id, addr)| (id.in_service(own), *addr))
                .collect(),
            listeners: (self.listeners.iter().filter(|(id, _)| id.service() == service))
                .map(|(id, addr)| (id.in_service(own), *addr))
                .collect(),
            confirms: self.confirms,
            boot_id: self.boot_id,
        }
    }
}
