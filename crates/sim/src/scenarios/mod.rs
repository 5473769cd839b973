//! Scenarios: one file for each protocol, and for what is measured of it.

pub mod members;
pub mod members_measure;
pub mod members_truth;
pub mod mesh;
pub mod ping;
pub mod route;
pub mod token;
