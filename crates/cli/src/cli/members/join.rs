//! `annulus join`.

use serde_json::json;

use crate::cli::addr::look_up;
use crate::cli::client::Client;
use crate::cli::output::Output;

/// Join a group through any of its members.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus join 10.0.0.7:7946")]
pub(crate) struct Join {
    /// The members address of a node, as IP:PORT or NAME:PORT.
    #[arg(required = true, value_name = "ADDR")]
    addrs: Vec<String>,
}

impl Join {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/join", &json!({ "addrs": look_up(&self.addrs)? }))?;
        if output.json {
            output.json(&answer);
            return Ok(());
        }
        let list = |key: &str| answer[key].as_array().into_iter().flatten().filter_map(|addr| addr.as_str());
        list("joined").for_each(|addr| output.line(format!("joined through {addr}")));
        list("failed").for_each(|addr| output.line(format!("no answer from {addr}")));
        Ok(())
    }
}
