//! `annulus info`: the identity of the agent.

use super::client::Client;
use super::output::{Output, plain};

/// Show name, id, services and addresses of the agent.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus info --agent 127.0.0.2:7373 --json")]
pub(crate) struct Info {}

impl Info {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let info = client.get("/v1/info")?;
        if output.json {
            output.json(&info);
            return Ok(());
        }
        let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
        output.line(format!("name     {}", plain(&text("name"))));
        output.line(format!("id       {}", text("id")));
        output.line(format!("nid      {}", text("nid")));
        output.line(format!("version  {}", text("version")));
        output.line(format!("uptime   {:.0} s", info["uptime_seconds"].as_f64().unwrap_or_default()));
        output.line(format!("http     {}", text("http")));
        for service in info["services"].as_array().into_iter().flatten() {
            let addresses = service["addresses"].as_array().into_iter().flatten().map(|at| {
                format!(
                    "{}/{}",
                    at["addr"].as_str().unwrap_or_default(),
                    at["transport"].as_str().unwrap_or_default()
                )
            });
            let name = service["name"].as_str().unwrap_or_default();
            output.line(format!("{name:<8} {}", addresses.collect::<Vec<_>>().join(" ")));
        }
        Ok(())
    }
}
