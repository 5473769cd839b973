//! The scenarios: one file for each protocol.

pub mod ping;
