//! The agent: one node on real sockets, with an HTTP API.

mod application;
pub(crate) mod http;
mod joining;
pub(crate) mod journal;
mod log;
mod mailbox;
mod metrics;
mod run;
pub(crate) mod services;

pub(crate) use journal::{Journal, Position};
pub(crate) use log::errors as log_errors;
pub(crate) use run::{Agent, listen, run};
pub(crate) use services::HOLD_MAX;
