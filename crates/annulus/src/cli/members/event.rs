//! `annulus event`.

use serde_json::json;

use crate::cli::client::Client;
use crate::cli::output::Output;

/// Tell every member something; `annulus monitor` shows it there.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus event deploy 'version 7'")]
pub(crate) struct Event {
    /// What it is called.
    name: String,
    /// What it carries.
    #[arg(default_value = "")]
    payload: String,
}

impl Event {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/events", &json!({ "name": self.name, "payload": self.payload }))?;
        output.done(&answer, &format!("{} is on its way", self.name));
        Ok(())
    }
}
