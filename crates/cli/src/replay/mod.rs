//! A recorded simulation for the page: hosts, events and faults of a trace that `annulus sim … --trace FILE` wrote.

mod http;
mod line;
mod trace;

pub(crate) use http::app;
pub(crate) use trace::{Trace, TraceError};
