//! `annulus send` and `annulus ask`: a message to the owner of a key.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::text;
use crate::cli::client::Client;
use crate::cli::output::Output;

/// What both verbs take.
#[derive(clap::Args)]
struct Letter {
    /// 32 hexadecimal digits, or any text: then its hash.
    key: String,
    /// What to say.
    message: String,
    /// For the application of this name.
    #[arg(long, value_name = "NAME", default_value = "")]
    app: String,
    /// Try so often again, by another way, if nothing is heard of it.
    #[arg(long, value_name = "N")]
    retries: Option<u8>,
}

impl Letter {
    fn body(&self) -> Value {
        json!({
            "key": self.key,
            "payload_base64": BASE64_STANDARD.encode(&self.message),
            "app": self.app,
            "retries": self.retries,
        })
    }
}

/// Send a message to the owner of a key.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus send photos/2026/cat.jpg 'keep this one'")]
pub(crate) struct Send {
    #[command(flatten)]
    letter: Letter,
}

impl Send {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/messages", &self.letter.body())?;
        let (to, addr) = (text(&answer, "delivered_to"), text(&answer, "addr"));
        output.done(&answer, &format!("delivered to {to} at {addr}, hops: {}", answer["hops"]));
        Ok(())
    }
}

/// Ask the owner of a key, and print its answer.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus ask photos/2026/cat.jpg 'are you there?'")]
pub(crate) struct Ask {
    #[command(flatten)]
    letter: Letter,
}

impl Ask {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        let answer = client.post("/v1/ask", &self.letter.body())?;
        let payload = BASE64_STANDARD.decode(text(&answer, "payload_base64")).unwrap_or_default();
        output.done(&answer, &String::from_utf8_lossy(&payload));
        Ok(())
    }
}
