//! The `annulus` program: parses the command line and hands over to one file per verb.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
