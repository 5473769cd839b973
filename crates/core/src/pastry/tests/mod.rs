//! The clauses of `docs/spec/pastry.md`, and the contract.

mod contract;
mod group;
mod joining;
mod lies;
mod members;
mod messages;
mod rings;
mod settling;
mod upkeep;

use super::*;
use crate::Id;

fn small() -> Config {
    let applications = vec![AppName::default()];
    Config { leaf_set_max: 8, neighbourhood_max: 8, applications, ..Config::default() }
}
