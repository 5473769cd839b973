//! `annulus sim`: runs a scenario in the simulator.

use std::process::ExitCode;

/// Run a scenario in the simulator.
#[derive(clap::Args)]
pub(crate) struct Sim {}

impl Sim {
    /// Runs it.
    pub(crate) fn run(self, _json: bool) -> anyhow::Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
