//! The scenarios: one file for each protocol.

pub mod ping;
pub mod route;
