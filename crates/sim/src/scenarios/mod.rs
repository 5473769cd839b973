//! Scenarios: one file or folder for each protocol.

pub mod members;
pub mod mesh;
pub mod node;
pub mod ping;
pub mod route;
pub mod token;
pub mod turns;
