//! Protocols as pure state machines.
//!
//! Everything in this crate is a function of its inputs: no sockets, no clock, no threads, no async, no global
//! randomness. A protocol implements [`Machine`]; a driver runs it. `annulus-net` runs it on tokio with real sockets and
//! a real disk, `annulus-sim` in virtual time with injected faults. You can bring your own driver.
//!
//! Start with [`ping`], the smallest useful machine: it is the tutorial for writing another.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(not(feature = "tracing"))]
extern crate self as tracing;

mod chacha;
mod counters;
mod endpoint;
mod event_line;
mod id;
mod machine;
mod outbox;
mod payload;
mod rng;
#[cfg(not(feature = "tracing"))]
mod silent;
mod store;
mod stream;
mod tag;
mod time;
mod watch;

pub mod common;
pub mod contract;
pub mod jitterbug;
pub mod node;
pub mod pastry;
pub mod ping;
pub mod pool;
pub mod ring;
pub mod swim;
pub mod turns;
pub mod w3w;
pub mod wire;

pub use counters::{Counter, VisitCounter};
pub use endpoint::{Bound, Endpoints, Listener, Socket, Space};
pub use event_line::{EVENTS_VERSION, EventLine};
pub use id::{Base, Id, ParseIdError, Short, hash};
pub use machine::{Machine, Refusal};
pub use outbox::{Action, BatchWriter, Hex, Outbox, Queue};
pub use payload::Payload;
pub use rng::{Rng, Seed};
#[cfg(not(feature = "tracing"))]
pub(crate) use silent::{debug, trace};
pub use store::{Batch, Change, StoreFault, StoreOp, StoreReply, StoreResult};
pub use stream::{CloseReason, StreamEvent, Watch};
pub use tag::{ListenerId, OpId, RequestId, Service, SocketId, SpaceId, StreamId};
pub use time::{Instant, Now, Wall, micros};
pub use watch::{KeepAlive, Looked, Seen, Watched};
