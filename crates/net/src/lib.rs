//! Machines on real sockets and a real disk: the tokio driver.
//!
//! [`spawn`] runs any [`annulus_core::Machine`] on a task of its own and returns a [`Handle`]. The handle gives commands and
//! gets replies; [`Events`] come out, [`Counters`] can be read, and [`Handle::stop`] stops the machine. The
//! machine is the same as in the simulator. The promises of a driver are in `annulus_core`'s `machine.rs`, `stream.rs` and
//! `store.rs`.
//!
//! ```
//! use annulus_core::ping::{Command, Config, Ping, Reply, UDP, Via};
//! use annulus_net::{Ended, Options, spawn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Two nodes of one machine, each on an address of its own.
//! let node = |address: &str, seed| -> Result<_, Box<dyn std::error::Error>> {
//!     let timeout = std::time::Duration::from_secs(10);
//!     let bind = address.parse()?;
//!     let config = Config { bind, timeout, interval: timeout, ..Config::default() };
//!     Ok(spawn(Ping::new(&config, [seed; 32])?, Options::default())?)
//! };
//! let (here, there) = (node("127.0.0.1:0", 1)?, node("127.0.0.2:0", 2)?);
//!
//! let to = there.bound().socket(UDP).expect("ping declares it");
//! let reply = here.command(Command::Ping { to, via: Via::Datagram }).await?;
//! assert!(matches!(reply, Reply::Answered { .. }));
//!
//! assert_eq!(here.counters().await?.driver.datagrams_sent, 1);
//! assert_eq!(there.stop().await, Ended::Stopped);
//! # Ok(()) }) }
//! ```
//!
//! # How it works
//!
//! | file | what it is |
//! |---|---|
//! | `driver.rs` | [`Driver`]: one future that owns the machine and everything around it |
//! | `serve.rs` | one turn of it: serves each ready source up to a limit, then reports the results to the machine |
//! | `ready.rs` | the list of ready sources, so that an idle source costs nothing |
//! | `port.rs`, `listener.rs`, `stream.rs`, `streams.rs` | datagrams, accepted connections, one stream, all streams |
//! | `transfer.rs` | connecting, reading and writing without waiting |
//! | `bind.rs` | sockets with the options that a machine relies on |
//! | `handle.rs`, `lane.rs`, `events.rs`, `app.rs` | the application's side, and the driver's side of it |
//! | `timer.rs`, `clock.rs` | when to wake the machine, and what time it is |
//! | `gate.rs` | faults for demos and tests: peers that are cut off, a driver that is suspended |
//! | `store/` | the database behind `StoreOp`, on a thread of its own |
//!
//! A datagram costs no allocation and no copy beyond the machine's own: it is received into one buffer, and the
//! answer is sent from the outbox. `docs/benchmarks.md` has the figures, `docs/store.md` why the database is redb.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

#[cfg(not(feature = "tracing"))]
extern crate self as tracing;

mod app;
mod bind;
mod chunks;
mod clock;
mod counters;
mod driver;
mod error;
mod events;
mod gate;
mod handle;
mod lane;
mod listener;
mod numbers;
mod options;
mod port;
mod ready;
mod serve;
#[cfg(not(feature = "tracing"))]
mod silent;
mod store;
mod stream;
mod streams;
mod timer;
mod transfer;

pub use annulus_core::KeepAlive;
pub use clock::monotonic;
pub use counters::{Counters, DriverCounters};
pub use driver::{Driver, spawn};
pub use error::{BindError, OpenError, Place};
pub use events::Events;
pub use gate::Gate;
pub use handle::{Ended, Handle, Pending, Stopped, TryCommandError};
pub use lane::Lane;
pub use options::Options;
#[cfg(not(feature = "tracing"))]
pub(crate) use silent::{debug, error, trace, warn};
pub use store::Store;
#[cfg(feature = "disk")]
pub use store::{MakeBackend, Part, StorageBackend};
