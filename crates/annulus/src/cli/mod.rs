//! The command line: one file per verb.

mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Know who is alive, find who owns a key, take turns and reach each other, with no server.
#[derive(Parser)]
#[command(name = "annulus", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Sim(sim::Sim),
}

/// Runs the program: 0 if all went well, 2 if it was called wrongly (clap's own code), 1 for the rest.
pub(crate) fn run() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Sim(sim) => sim.run(),
    };
    outcome.unwrap_or_else(|error| {
        report(&error);
        ExitCode::FAILURE
    })
}

/// One line, the chain of causes behind colons, never a backtrace.
#[expect(clippy::print_stderr, reason = "this is where the program talks to its user")]
fn report(error: &anyhow::Error) {
    eprintln!("annulus: {error:#}");
}
