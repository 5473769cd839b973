//! `annulus version`: which program this is and what it speaks.

use serde_json::json;

use super::output::Output;

/// Print the version of the program and of what it speaks.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus version --json")]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self, output: &Output) {
        let version = env!("CARGO_PKG_VERSION");
        if output.json {
            output.json(&json!({ "version": version, "events": annulus_core::EVENTS_VERSION, "ping": 1 }));
        } else {
            output.line(format!("annulus {version} (events v{}, ping v1)", annulus_core::EVENTS_VERSION));
        }
    }
}
