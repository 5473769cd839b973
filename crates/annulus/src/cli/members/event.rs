//! `annulus event`.

use serde_json::json;

use crate::agent::user_event::{NAME_BYTES_MAX, UserEvent};
use crate::cli::UsageError;
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
        if !UserEvent::is_name(&self.name) {
            let bytes = self.name.len();
            return Err(UsageError(format!(
                "{:?} ({bytes} bytes) is no name of an event: give 1 to {NAME_BYTES_MAX} bytes without control \
                 characters",
                self.name.chars().take(40).collect::<String>()
            ))
            .into());
        }
        let answer = client.post("/v1/events", &json!({ "name": self.name, "payload": self.payload }))?;
        output.done(&answer, &format!("{} is on its way", self.name));
        Ok(())
    }
}
