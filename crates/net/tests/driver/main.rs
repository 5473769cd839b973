//! The driver on real sockets, rule by rule.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, but clippy knows only functions marked so"
)]

mod datagrams;
mod gate;
mod lanes;
mod life;
mod pings;
mod puppet;
mod storage;
mod streams;
mod streams_limits;
mod watched;
