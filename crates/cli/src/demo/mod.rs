//! The demo: several agents in one process, on loopback addresses, with load, faults and a page.

mod cluster;
mod digest;
mod events;
mod http;
mod load;
mod member;
mod screen;
mod script;
mod view;

pub(crate) use cluster::Cluster;
pub(crate) use http::app;
pub(crate) use load::run as run_load;
pub(crate) use screen::{Screen, Wish};
pub(crate) use script::Script;
