//! The engine, fault by fault: each test says what the world does to a machine that does as it is told.

mod datagrams;
mod determinism;
mod disks;
mod hosts;
mod ping;
mod puppet;
mod streams;
