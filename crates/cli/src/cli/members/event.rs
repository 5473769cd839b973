//! `annulus event`.

use serde_json::json;

use crate::cli::UsageError;
use crate::cli::client::Client;
use crate::cli::output::Output;
use annulus::core::swim::{EVENT_NAME_BYTES_MAX as NAME_BYTES_MAX, UserEvent};

/// Send an event to every member; `annulus monitor` prints it there.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus event deploy 'version 7'")]
pub(crate) struct Event {
    /// The name of the event.
    name: String,
    /// The payload.
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
