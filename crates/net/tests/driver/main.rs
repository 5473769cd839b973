//! The driver on real sockets, rule by rule.

mod datagrams;
mod life;
mod pings;
mod puppet;
mod storage;
mod streams;
mod streams_limits;
