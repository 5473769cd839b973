//! `annulus tags`.

use serde_json::{Map, Value, json};

use crate::cli::UsageError;
use crate::cli::client::Client;
use crate::cli::output::Output;

/// Show or change the tags of the agent.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus tags                      show them
  annulus tags role=db zone=north   set two
  annulus tags --remove zone        remove one")]
pub(crate) struct Tags {
    /// Tags to set, as KEY=VALUE.
    set: Vec<String>,
    /// A tag to remove. Repeatable.
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
}

impl Tags {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let set: Result<Map<String, Value>, UsageError> = self.set.iter().map(|tag| pair(tag)).collect();
        let tags = client.post("/v1/tags", &json!({ "set": set?, "remove": self.remove }))?;
        if output.json {
            output.json(&tags);
            return Ok(());
        }
        for (key, value) in tags.as_object().into_iter().flatten() {
            output.line(format!("{key}={}", value.as_str().unwrap_or_default()));
        }
        Ok(())
    }
}

pub(super) fn pair(tag: &str) -> Result<(String, Value), UsageError> {
    match tag.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err(UsageError(format!("{tag:?} is no tag: give KEY=VALUE, such as role=db"))),
    }
}
