//! `annulus mesh send`.

use std::fs::File;
use std::io::Read;

use annulus_core::w3w::DATA_BYTES_MAX;
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::cli::client::Client;
use crate::cli::output::Output;

/// Send a message. It is safe in the agent's store when this ends, and travels on from there.
///
/// A message has at most 16777216 bytes. The same bytes to the same node within mesh.expiry count as one message, unless
/// a receipt is asked for.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh send db3 report.pdf --receipt
  echo hello | annulus mesh send 84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7")]
pub(super) struct Send {
    /// The address of a node (`annulus mesh status` shows it there), or its name if both run members and mesh.
    #[arg(value_name = "NID|NAME")]
    to: String,
    /// What to send; standard input if it is `-` or left out.
    #[arg(default_value = "-")]
    file: String,
    /// Ask the recipient to confirm it; `annulus mesh outbox` shows whether it did.
    #[arg(long)]
    receipt: bool,
}

impl Send {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let data = if self.file == "-" {
            read("standard input", std::io::stdin().lock())?
        } else {
            let file = File::open(&self.file)
                .with_context(|| format!("cannot read the file {}; check its name and owner", self.file))?;
            read(&self.file, file)?
        };
        let body = json!({ "to": self.to, "data_base64": STANDARD.encode(data), "receipt": self.receipt });
        let answer = client.post("/v1/mesh/messages", &body)?;
        let hash = answer["hash"].as_str().unwrap_or_default();
        output.done(&answer, &format!("message {} is on its way: {hash}", answer["number"]));
        Ok(())
    }
}

/// All of it, unless it is longer than a message may be: then only a byte more than that is read.
fn read(name: &str, from: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut data = Vec::new();
    from.take(DATA_BYTES_MAX as u64 + 1)
        .read_to_end(&mut data)
        .with_context(|| format!("cannot read the file {name}; check its name and owner"))?;
    if data.len() > DATA_BYTES_MAX {
        bail!(
            "{name} is longer than a message may be ({DATA_BYTES_MAX} bytes): split it, or send where to find it"
        );
    }
    Ok(data)
}
