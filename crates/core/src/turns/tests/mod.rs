//! The clauses of `docs/spec/turns.md`, and the contract.

mod available;
mod bars;
mod clauses;
mod contract;
mod founding;
mod histories;
mod keeping;
mod model;
mod query;
mod vectors;
mod world;

use core::time::Duration;

use super::*;
use crate::rng::Rng;
