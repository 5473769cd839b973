//! The `annulus` program: parses the command line and calls one file per verb.

mod agent;
mod cli;
mod config;
mod demo;
mod page;
mod replay;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
