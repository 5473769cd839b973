//! The agent: one node on real sockets, with an HTTP API for whoever talks to it.

mod data_dir;
mod http;
mod identity;
mod joining;
mod journal;
mod kept_port;
mod kept_tags;
mod known_nodes;
mod log;
mod mailbox;
mod metrics;
mod run;
mod services;
pub(crate) mod user_event;

pub(crate) use journal::Position;
pub(crate) use run::run;
pub(crate) use services::HOLD_MAX;
