//! `annulus sim`: runs a scenario in the simulator. One file for each scenario, and one for their common flags.

mod common;
mod members;
mod mesh;
mod node;
mod ping;
mod route;
mod token;
mod turns;
mod verdict;

use std::process::ExitCode;

use clap::Subcommand;

/// Run a scenario in the simulator, in virtual time and with injected faults.
#[derive(clap::Args)]
pub(crate) struct Sim {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    Members(members::Members),
    Mesh(mesh::Mesh),
    Node(node::Node),
    Ping(ping::Ping),
    Token(token::Token),
    Turns(turns::Turns),
    Route(route::Route),
}

impl Sim {
    /// Runs it. The exit code is 1 if a checker found a violation, else 0.
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        match self.scenario {
            Scenario::Members(members) => members.run(json),
            Scenario::Mesh(mesh) => mesh.run(json),
            Scenario::Node(node) => node.run(json),
            Scenario::Ping(ping) => ping.run(json),
            Scenario::Token(token) => token.run(json),
            Scenario::Turns(turns) => turns.run(json),
            Scenario::Route(route) => route.run(json),
        }
    }
}
