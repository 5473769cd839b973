//! `annulus leave` and `annulus force-leave`.

use serde_json::json;

use crate::cli::client::Client;
use crate::cli::output::Output;

/// Say goodbye to the group; the agent goes on without it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus leave")]
pub(crate) struct Leave {}

impl Leave {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/leave", &json!({}))?;
        output.done(&answer, "left the group");
        Ok(())
    }
}

/// Take a member that will not come back for one that left.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus force-leave db3")]
pub(crate) struct ForceLeave {
    /// Its name, its id, or how its id begins.
    member: String,
}

impl ForceLeave {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/force-leave", &json!({ "member": self.member }))?;
        output.done(&answer, &format!("{} counts as left, unless it contradicts", self.member));
        Ok(())
    }
}
