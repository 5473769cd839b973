//! `annulus rtt`.

use super::rtt_text;
use crate::cli::client::{Client, escaped};
use crate::cli::output::Output;

/// Show the round-trip time to a member, or between two members.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus rtt blue          from the agent to blue
  annulus rtt blue green    between the two, estimated from their coordinates")]
pub(crate) struct Rtt {
    /// A member, by name or id.
    a: String,
    /// Another member [default: the agent itself].
    b: Option<String>,
}

impl Rtt {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let from = self.b.map_or_else(String::new, |b| format!("&from={}", escaped(&b)));
        let answer = client.get(&format!("/v1/rtt?to={}{from}", escaped(&self.a)))?;
        if output.json {
            output.json(&answer);
        } else {
            output.line(rtt_text(&answer["rtt_ms"]));
        }
        Ok(())
    }
}
