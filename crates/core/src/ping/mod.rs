//! Ping: the smallest useful machine, and the template for a new protocol.
//!
//! A node sends every peer a [`Message::Ping`] at an interval, and the peer answers with a [`Message::Pong`]. So the
//! node knows which peers answer, and their round-trip times. Most pings are datagrams, some go over a stream. The
//! store keeps the number of answered pings. The machine thus uses every part of the contract once, in its simplest
//! form. `docs/spec/ping.md` has the clauses, numbered PI-n.
//!
//! # The files, the same in every protocol
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | this page, and the public types |
//! | `config.rs` | the settings, and the checks on them |
//! | `message.rs` | the messages and their meaning |
//! | `wire.rs` | the bytes of messages |
//! | `machine.rs` | the [`Machine`] implementation: matches and delegates |
//! | `probes.rs`, `peers.rs`, `exchanges.rs`, `count.rs` | the nouns of this protocol, which do the work |
//!
//! # The messages
//!
//! | message | over a datagram | over a stream |
//! |---|---|---|
//! | `Ping` | is answered with a `Pong` to its source | is the whole request: `Ping`, FIN |
//! | `Pong` | answers the ping of that number, if it is under way to that address | is the whole answer: `Pong`, FIN |
//!
//! # A driver in twenty lines
//!
//! ```
//! use annulus_core::ping::{Config, Event, Ping};
//! use annulus_core::{Action, Bound, Instant, Machine, Now, Queue, StoreReply, StoreResult, Wall};
//!
//! let peer = "127.0.0.2:7001".parse()?;
//! let config = Config { bind: "127.0.0.1:7001".parse()?, peers: vec![peer], ..Config::default() };
//! let mut ping = Ping::new(&config, [7; 32])?;
//! let mut queue = Queue::new();
//! let mut now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! ping.handle_start(now, &Bound::default(), &mut queue.outbox());
//! let mut sent = Vec::new();
//! while sent.is_empty() {
//!     // First carry out what it asked for …
//!     let mut replies = Vec::new();
//!     while let Some(action) = queue.next() {
//!         match action {
//!             Action::Send { to, bytes, .. } => sent.push((to, bytes.to_vec())),
//!             Action::Store { op, .. } => replies.push(op), // an empty store
//!             Action::Event(event) => println!("{event:?}"),
//!             _ => {}
//!         }
//!     }
//!     for op in replies {
//!         let reply = StoreReply { op, result: StoreResult::Value(None) };
//!         ping.handle_stored(now, reply, &mut queue.outbox());
//!     }
//!     // … then wait for its next timer.
//!     if let Some((at, _name)) = ping.poll_timeout() {
//!         now.mono = now.mono.max(at);
//!         ping.handle_timeout(now, &mut queue.outbox());
//!     }
//! }
//! assert_eq!(sent[0].0, peer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod count;
mod exchanges;
mod machine;
mod message;
mod peers;
mod probes;
mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use serde::Serialize;

pub use config::{Config, ConfigError, Fault};
pub use count::COUNT_KEY;
pub use machine::{Counters, Ping, SPACE, TCP, UDP};
pub use message::Message;
pub use peers::{PeerState, PeerStatus};
pub use wire::{MESSAGE_BYTES, decode, encode};

#[cfg(doc)]
use crate::Machine;
use crate::store::StoreFault;
use crate::time::micros;

/// A command of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Pings this address once, peer or not.
    Ping {
        /// The address.
        to: SocketAddr,
        /// The transport.
        via: Via,
    },
    /// Pings this address from now on.
    AddPeer(SocketAddr),
    /// No longer pings this address.
    RemovePeer(SocketAddr),
    /// Lists all peers.
    Peers,
    /// Reads the count of pings that were ever answered.
    Count,
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The ping was answered.
    Answered {
        /// The round-trip time in microseconds.
        rtt_micros: u64,
    },
    /// No answer came in time.
    Missed,
    /// The command is done.
    Done,
    /// There is no room: the most peers, or the most pings under way.
    Full,
    /// All peers, in the order they were added.
    Peers(Vec<PeerStatus>),
    /// How many pings were ever answered here.
    Count(u64),
    /// The node is stopping.
    Stopping,
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A ping was answered.
    PingAnswered {
        /// The peer.
        peer: SocketAddr,
        /// The number of the ping.
        sequence: u64,
        /// The transport.
        via: Via,
        /// The round-trip time in microseconds.
        rtt_micros: u64,
    },
    /// A ping was not answered in time.
    PingMissed {
        /// The peer.
        peer: SocketAddr,
        /// The number of the ping.
        sequence: u64,
        /// The transport.
        via: Via,
    },
    /// A peer answers.
    PeerAppeared {
        /// The peer.
        peer: SocketAddr,
    },
    /// A peer no longer answers.
    PeerVanished {
        /// The peer.
        peer: SocketAddr,
    },
    /// The count of answered pings was read from the store.
    CountLoaded {
        /// The count.
        count: u64,
    },
    /// The count of answered pings is durable.
    CountKept {
        /// The count.
        count: u64,
    },
    /// The count of answered pings could not be read or written.
    CountFailed {
        /// The cause.
        fault: StoreFault,
    },
}

/// The transport of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// In a datagram.
    Datagram,
    /// Over a stream of its own.
    Stream,
}

fn rtt_micros(rtt: core::time::Duration) -> u64 {
    micros(rtt)
}
