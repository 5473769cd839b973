//! The engine, fault by fault: each test checks the effect on a scripted machine.

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
