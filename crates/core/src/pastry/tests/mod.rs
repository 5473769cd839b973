//! The clauses of `docs/spec/pastry.md`, and the contract.

mod clocks;
mod contract;
mod doubts;
mod group;
mod joining;
mod lies;
mod members;
mod messages;
mod rings;
mod upkeep;

use super::*;
use crate::Id;

fn small() -> Config {
    Config { leaf_set_max: 8, neighbourhood_max: 8, ..Config::default() }
}
