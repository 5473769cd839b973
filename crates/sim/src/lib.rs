//! A deterministic simulator for machines: virtual time, a network with every fault, one seed.
//!
//! A [`Sim`] runs any [`Machine`](annulus_core::Machine) on any number of hosts. What happens is ordered by time and
//! by the order in which it was caused; the seed decides all that is left to chance; so a run can be repeated to the
//! last bit, and its [trace hash](Sim::trace_hash) shows that it was.

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
mod links;
mod observer;
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

pub use conditions::{Conditions, FaultPlan};
pub use config::{Config, DiskConfig, HostConfig, NetworkConfig, StreamConfig};
pub use disk::{Disk, DiskFate, DiskHealth};
pub use fault::{Fault, Step};
pub use hash::TraceHash;
pub use host::{Birth, HostId, HostSpec, HostState};
pub use latency::Latency;
pub use observer::{Datagram, Observer, Passage, Verdict, Violation};
pub use runs::run_many;
pub use scenario::{Checker, Lines, Report, Scenario, Setup, run};
pub use sim::{NETWORK_BROADCAST, Sim, stream_of};
pub use stats::{HostStats, Stats};
