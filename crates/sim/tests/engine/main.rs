//! The engine, fault by fault: each test says what the world does to a machine that does as it is told.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like a test")]

mod chatter;
mod datagrams;
mod determinism;
mod disks;
mod faults;
mod hosts;
mod ledger;
mod ping;
mod puppet;
mod streams;
mod watched;
