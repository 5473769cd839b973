//! `annulus sim`: runs a scenario in the simulator. One file for each scenario, and one for what they share.

mod common;
mod members;
mod ping;
mod route;
mod token;
mod verdict;

use std::process::ExitCode;

use clap::Subcommand;

/// Run a scenario in the simulator: virtual time, every fault, one seed.
#[derive(clap::Args)]
pub(crate) struct Sim {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    Members(members::Members),
    Ping(ping::Ping),
    Route(route::Route),
    Token(token::Token),
}

impl Sim {
    /// Runs it, telling people or programs: 0 if nothing was violated, 1 if something was.
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        match self.scenario {
            Scenario::Members(members) => members.run(json),
            Scenario::Ping(ping) => ping.run(json),
            Scenario::Route(route) => route.run(json),
            Scenario::Token(token) => token.run(json),
        }
    }
}
