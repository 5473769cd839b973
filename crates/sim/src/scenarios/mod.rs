//! The scenarios: one file for each protocol.

pub mod mesh;
pub mod ping;
