//! A deterministic simulator for machines: virtual time, a network with faults, one seed.
//!
//! A [`Sim`] runs any [`Machine`](annulus_core::Machine) on any number of hosts. Events are ordered by time, then by the
//! order in which they were caused. The seed decides every random choice. So a run can be repeated exactly, and equal
//! [trace hashes](Sim::trace_hash) show it.
//!
//! ```
//! use core::time::Duration;
//! use annulus_core::ping::{Command, Config, Ping, Reply, Via};
//! use annulus_sim::{Fault, HostId, Sim};
//!
//! // A world, and how the machine of a host is made each time it starts.
//! let mut sim = Sim::new(7, annulus_sim::Config::default(), |birth| {
//!     let config = Config { bind: (birth.address, 7001).into(), ..Config::default() };
//!     Ping::new(&config, birth.seed).expect("the defaults go together")
//! });
//! let (first, second) = (sim.add_host(), sim.add_host());
//!
//! // Interfere, ask, let time pass. `()` watches nothing; an `Observer` sees everything.
//! let ping = Command::Ping { to: (sim.address(second), 7001).into(), via: Via::Stream };
//! let reply = sim.ask(first, ping.clone(), Duration::from_secs(1), &mut ())?;
//! // A stream takes two round trips of 2 ms: the handshake, then ping and pong.
//! assert_eq!(reply, Some(Reply::Answered { rtt_micros: 4_000 }));
//! sim.fault(Fault::Cut { from: second, to: first });
//! let reply = sim.ask(first, ping, Duration::from_secs(1), &mut ())?;
//! assert_eq!(reply, Some(Reply::Missed));
//! # Ok::<(), annulus_sim::Violation>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | make a world | [`Sim::new`], [`Config`], [`Sim::add_host_with`] |
//! | let time pass | [`Sim::run_for`], [`Sim::run_until_that`], [`Sim::ask`] |
//! | do something to it, now or later | [`Sim::fault`], [`Sim::at`], [`Fault`], [`Step`] |
//! | look at it | [`Sim::machines`], [`Sim::disk`], [`Sim::clock`], [`Sim::stats`], [`Sim::host_stats`] |
//! | see everything as it happens | [`Observer`] |
//! | interfere at a condition | [`Sim::inject`] from within an [`Observer`] |
//! | drop or alter chosen datagrams | [`Observer::on_datagram`] |
//! | record excuses, times of promises and situations | [`Ledger`], [`Excuse`], [`Promise`], [`Sim::causes`] |
//! | test a protocol | [`Scenario`], [`Checker`], [`run`], [`run_many`], [`Conditions`] |
//! | read what happened | [`Sim::trace_to`] |
//!
//! `docs/simulator.md` explains how to write a scenario and lists the faults.

mod aim;
mod causes;
mod clock;
mod conditions;
mod config;
mod control;
mod disk;
mod engine;
mod errors;
mod fault;
mod hash;
mod host;
mod latency;
mod ledger;
mod links;
mod observer;
mod outside;
mod packet;
mod queue;
mod runs;
mod scenario;
pub mod scenarios;
mod sim;
mod stats;
mod storage;
mod stream;
mod trace;

/// The greatest share of runs for each excuse, as [`Books::complaints`] reads it.
pub const EXCUSES: &str = include_str!("../excuses.txt");

pub use aim::Aim;
pub use causes::{Cause, Trouble};
pub use conditions::{Conditions, FaultModel, FaultPlan, MorePlan};
pub use config::{Config, DiskConfig, HostConfig, NetworkConfig, StreamConfig};
pub use disk::{Disk, DiskFate, DiskHealth};
pub use fault::{Block, Call, Fault, Step, Traffic};
pub use hash::TraceHash;
pub use host::{Birth, HostId, HostSpec, HostState};
pub use latency::Latency;
pub use ledger::{Books, Entries, Excuse, Kept, Ledger, Promise, Used};
pub use observer::{Datagram, DatagramFate, Observer, Verdict, Violation};
pub use outside::App;
pub use runs::{run_many, run_seeds};
pub use scenario::{Checker, Lines, Report, Scenario, Setup, run};
pub use sim::{NETWORK_BROADCAST, Sim, stream_of};
pub use stats::{HostStats, Stats};
