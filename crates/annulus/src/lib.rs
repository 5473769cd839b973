//! Membership, routing by key, exclusive turns and store-and-forward messages for a group of nodes, without a server.
//!
//! # Simulate your own application
//!
//! A protocol here is a machine without I/O: bytes, commands and time go in, actions come out. So the code that runs on
//! the wire also runs in a simulator, in virtual time and with injected faults. One seed repeats a run exactly. That
//! holds for the four services, and for yours. This one spreads the greatest number over fifty hosts that lose one
//! datagram in ten:
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use annulus::core::{Bound, Endpoints, Instant, Machine, Now, Outbox, Refusal, RequestId, Socket, SocketId};
//! use annulus_sim::{Config, NetworkConfig, Sim};
//!
//! const UDP: SocketId = SocketId::new(0);
//! const SECOND: Duration = Duration::from_secs(1);
//!
//! struct Greatest { bind: SocketAddr, next: SocketAddr, number: u8, send_at: Instant }
//!
//! impl Machine for Greatest {
//!     type Command = ();
//!     type Reply = ();
//!     type Event = ();
//!
//!     fn endpoints(&self) -> Endpoints {
//!         let socket = Socket { id: UDP, name: "greatest/udp", bind: self.bind, broadcast: Vec::new() };
//!         Endpoints { sockets: vec![socket], ..Endpoints::default() }
//!     }
//!     fn handle_start(&mut self, now: Now, _: &Bound, _: &mut Outbox<'_, Self>) { self.send_at = now.mono }
//!     fn handle_datagram(&mut self, _: Now, _: SocketId, _: SocketAddr, bytes: &[u8], _: &mut Outbox<'_, Self>)
//!         -> Result<(), Refusal>
//!     {
//!         let [number] = bytes else { return Err(Refusal::Reject("no number")) };
//!         self.number = self.number.max(*number);
//!         Ok(())
//!     }
//!     fn handle_command(&mut self, _: Now, request: RequestId, (): (), out: &mut Outbox<'_, Self>) {
//!         out.reply(request, ());
//!     }
//!     fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
//!         if now.mono >= self.send_at {
//!             self.send_at = now.mono + SECOND;
//!             out.send(UDP, self.next, &[self.number]);
//!         }
//!     }
//!     fn poll_timeout(&self) -> Option<(Instant, &'static str)> { Some((self.send_at, "greatest.send")) }
//! }
//!
//! let run = |seed| -> Result<_, annulus_sim::Violation> {
//!     let config = Config { network: NetworkConfig { loss: 0.1, ..NetworkConfig::default() }, ..Config::default() };
//!     let mut sim = Sim::new(seed, config, |birth| {
//!         let number = birth.host.index() as u8;
//!         let next = SocketAddr::from(([10, 0, 0, 1 + (number + 1) % 50], 7001));
//!         Greatest { bind: (birth.address, 7001).into(), next, number, send_at: Instant::ZERO }
//!     });
//!     for _ in 0..50 {
//!         sim.add_host();
//!     }
//!     sim.run_for(120 * SECOND, &mut ())?;
//!     assert!(sim.machines().all(|(_, machine)| machine.number == 49));
//!     Ok(sim.trace_hash())
//! };
//! assert_eq!(run(7)?, run(7)?, "the same seed is the same run");
//! # Ok::<(), annulus_sim::Violation>(())
//! ```
//!
//! The crate `annulus-sim` has the faults (crashes, partitions, pauses, clock drift, lost writes and disks),
//! scenarios and checkers. [`book::simulate`] goes on from here.
//!
//! # Embed a node
//!
//! [`Node::builder`] describes a node, [`Builder::start`] runs it, and [`Node::joined`] waits until it is in its group,
//! or returns the reason why it is not. Each service has a handle that is cheap to clone:
//!
//! | handle | for |
//! |---|---|
//! | [`Node::members`]: [`MemberList`] | the members, their changes, broadcasts, messages to one member |
//! | [`Node::route`]: [`Router`] | the owner of a key: send to it, ask it, handle messages for own keys |
//! | [`Node::token`]: [`Token`] | turns in the order of a ring, and values that travel with the token |
//! | [`Node::locks`]: [`Locks`] | named locks that a majority of voters grants, with fences |
//! | [`Node::mesh`]: [`Mesh`] | messages and files to nodes that may be offline |
//! | [`Node::companion`]: [`CompanionHandle`] | a protocol of your own beside them |
//!
//! [`MemberList`], [`Router`] and [`Locks`] can also run alone. The examples each solve something: `work_queue`, `cron`,
//! `cache`, `chat`, `presence`, `own_protocol`. `all_four` has everything in one program.
//!
//! # The chapters
//!
//! | chapter | for |
//! |---|---|
//! | [`book::simulate`] | faults and checkers for an application of your own |
//! | [`book::embed`] | a program with all four services, what handles promise, the features of this crate |
//! | [`book::drive`] | an event loop of your own instead of tokio |
//! | [`book::promised`] | what each service promises, and what it does not |

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(not(feature = "tracing"))]
extern crate self as tracing;

pub mod book;
mod channel;
mod companion;
mod data_dir;
mod identity;
mod known_nodes;
mod locks;
mod member;
mod member_list;
mod member_mail;
mod mesh;
mod node;
mod router;
#[cfg(not(feature = "tracing"))]
mod silent;
mod start;
mod tags_file;
mod token;
mod token_port;
mod turn;

pub use annulus_core as core;
pub use annulus_core::node::services;
pub use annulus_net as net;
pub use annulus_net::Options;
pub use channel::{ServiceEvent, ServiceEvents, ServiceMachine};
pub use companion::{CompanionError, CompanionEvents, CompanionHandle};
pub use data_dir::{DataDir, DataDirError, Problem as DataDirProblem};
pub use identity::Identity;
pub use locks::{Locking, Locks, LocksError};
pub use member::{Member, MemberEvent, MemberEvents};
pub use member_list::{MemberList, MembersError};
pub use member_mail::{MemberMessage, MemberMessages, MemberRef};
pub use mesh::{FileSending, Letter, Mesh, MeshError, MeshInbox, Recipient, Sent, payload_of};
pub use node::{Builder, JoinError, Node, broadcast_of};
pub use router::{
    Answer, Arrival, Delivered, Inbox, Limits, Request, RouteError, Router, SendOptions, Serve, Server,
};
#[cfg(not(feature = "tracing"))]
pub(crate) use silent::{debug, warn};
pub use start::StartError;
pub use token::{Token, TokenError, TokenWatch};
pub use turn::{LostReason, Turn};
