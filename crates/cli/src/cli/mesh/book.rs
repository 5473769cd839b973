//! `annulus mesh book`.

use serde_json::{Value, json};

use super::{short, text, time};
use crate::cli::client::Client;
use crate::cli::output::{Output, plain};

/// Show the address book, or give a node a name. The agent keeps the book on disk.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh book
  annulus mesh book set blue 84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7 --letter")]
pub(super) struct Book {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Give a node a name.
    Set {
        /// The name.
        name: String,
        /// The address in the mesh, 64 hexadecimal digits.
        nid: String,
        /// The node understands letters (numbered, confirmed messages): it runs annulus.
        #[arg(long)]
        letter: bool,
    },
}

impl Book {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        if let Some(Verb::Set { name, nid, letter }) = self.verb {
            let answer =
                client.post("/v1/mesh/book", &json!({ "name": name, "nid": nid, "letters": letter }))?;
            output.done(&answer, &format!("{} is the name of {nid}", plain(&name)));
            return Ok(());
        }
        let row = |line: &Value| {
            let names = line["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let names: Vec<String> = names.map(|name| plain(name).into_owned()).collect();
            let letters = if line["knows_letters"] == true { "yes" } else { "no" };
            let (ip, presence) = (text(line, "ip"), text(line, "presence"));
            vec![
                names.join(", "),
                short(line, "nid"),
                ip,
                letters.to_owned(),
                presence,
                if line["last_seen"] == 0 { "-".to_owned() } else { time(&line["last_seen"]) },
            ]
        };
        let headings = ["NAMES", "NID", "IP", "LETTERS", "PRESENCE", "SEEN"];
        super::show(&client.get("/v1/mesh/book")?, &headings, row, output);
        Ok(())
    }
}
