//! Fuzz targets.
//!
//! A target is a plain function that takes any bytes, gives them to a machine as a peer could, and panics if a
//! promise is broken. `fuzz/run TARGET` lets libFuzzer search for such bytes, guided by coverage. Its findings are
//! kept in `fuzz/corpus/TARGET` and replayed by `cargo test --workspace` for ever. There a short slice of
//! random mutations runs as well, so that a target that panics at once cannot be committed.

mod mutate;
mod targets;
mod world;

pub use mutate::Mutator;
pub use targets::{TARGETS, Target};
