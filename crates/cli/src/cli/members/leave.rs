//! `annulus leave` and `annulus force-leave`.

use serde_json::json;

use crate::cli::client::Client;
use crate::cli::output::Output;

/// Leave the group; the agent keeps running.
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

/// Mark a failed member as left.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus force-leave db3
  annulus force-leave db3 --prune")]
pub(crate) struct ForceLeave {
    /// The member: its name, its id, or the beginning of its id.
    member: String,
    /// Also forget the member: do not list, probe or store it.
    #[arg(long)]
    prune: bool,
}

impl ForceLeave {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer =
            client.post("/v1/force-leave", &json!({ "member": self.member, "prune": self.prune }))?;
        let what = if self.prune { "is forgotten" } else { "counts as left, unless it refutes" };
        output.done(&answer, &format!("{} {what}", self.member));
        Ok(())
    }
}
