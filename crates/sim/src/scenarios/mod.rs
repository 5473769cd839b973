//! Scenarios: one file for each protocol, and for what is measured of it.

pub mod members;
pub mod members_measure;
pub mod ping;
pub mod route;
pub mod token;
