//! `annulus version`: the versions of the program and of its protocols.

use serde_json::json;

use super::output::Output;

/// The protocol of each service on the wire.
const SPEAKS: &[(&str, &str)] =
    &[("members", "annulus v1"), ("token", "jitterbug"), ("route", "annulus v1"), ("mesh", "w3w")];

/// Print the versions of the program and of its protocols.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus version --json")]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self, output: &Output) {
        let version = env!("CARGO_PKG_VERSION");
        if output.json {
            let speaks: serde_json::Map<_, _> =
                SPEAKS.iter().map(|(service, speaks)| ((*service).to_owned(), json!(speaks))).collect();
            output.json(&json!({
                "version": version,
                "events": annulus::core::EVENTS_VERSION,
                "speaks": speaks,
            }));
        } else {
            let speaks: Vec<String> =
                SPEAKS.iter().map(|(service, speaks)| format!("{service} {speaks}")).collect();
            let events = annulus::core::EVENTS_VERSION;
            output.line(format!("annulus {version} (events v{events}; speaks {})", speaks.join(", ")));
        }
    }
}
