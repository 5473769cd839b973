//! `annulus mesh`: messages that reach people who are away.

mod boxes;
mod send;
mod upload;

use serde_json::{Value, json};

use super::client::Client;
use super::output::{Output, plain};

/// Send messages, read them, and see who carries them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus mesh status
  echo hello | annulus mesh send db3
  annulus mesh inbox --watch")]
pub(crate) struct Mesh {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Send(send::Send),
    Inbox(boxes::Inbox),
    Outbox(boxes::Outbox),
    Read(boxes::Read),
    Get(boxes::Get),
    /// Show the files under way, and those that have come.
    #[command(after_help = "Example:\n  annulus mesh files")]
    Files,
    /// Give up a file: one that is being sent, is coming, or has come.
    ///
    /// A file that is coming is not taken again while its sender goes on offering it, and for as long as mesh.expiry after that.
    /// Its sender learns nothing and gives up in time.
    #[command(after_help = "Example:\n  annulus mesh drop 84a5b2397ee07585")]
    Drop {
        /// As `annulus mesh files` shows it; the first 8 digits or more are enough if no other file begins so.
        file: String,
    },
    /// Show the nodes that this one is connected to.
    #[command(after_help = "Example:\n  annulus mesh peers")]
    Peers,
    /// Show the nodes to ask when the network is entered again.
    #[command(after_help = "Example:\n  annulus mesh known")]
    Known,
    /// Throw away everything in the store that nobody waits for.
    #[command(after_help = "Example:\n  annulus mesh gc")]
    Gc,
    /// Show the address of the agent in the mesh, and how it is.
    #[command(after_help = "Example:\n  annulus mesh status")]
    Status,
}

impl Mesh {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        match self.verb.unwrap_or(Verb::Status) {
            Verb::Send(verb) => verb.run(client, output),
            Verb::Inbox(verb) => verb.run(client, output),
            Verb::Outbox(verb) => verb.run(client, output),
            Verb::Read(verb) => verb.run(client, output),
            Verb::Get(verb) => verb.run(client, output),
            Verb::Files => files(client, output),
            Verb::Drop { file } => drop_file(&file, client, output),
            Verb::Peers => peers(client, output),
            Verb::Known => known(client, output),
            Verb::Gc => gc(client, output),
            Verb::Status => status(client, output),
        }
    }
}

fn status(client: &Client, output: &Output) -> anyhow::Result<()> {
    let status = client.get("/v1/mesh")?;
    if output.json {
        output.json(&status);
        return Ok(());
    }
    output.line(format!("nid      {}", text(&status, "nid")));
    output.line(format!("at       {}", text(&status, "at")));
    output.line(format!("peers    {}, {} nodes known", status["peers"], status["known"]));
    output.line(format!("inbox    {}", status["inbox"]));
    output.line(format!("outbox   {}", status["outbox"]));
    output.line(format!("waiting  {}", status["waiting"]));
    output.line(format!(
        "store    {} blocks, {} of {} bytes",
        status["blocks"], status["bytes"], status["quota_bytes"]
    ));
    if status["kept_out"].as_u64().unwrap_or_default() > 0 {
        output.line(format!(
            "kept out {} messages for this node: the store is full; make room with `annulus mesh read N --remove`, or \
             raise mesh.quota",
            status["kept_out"]
        ));
    }
    Ok(())
}

fn peers(client: &Client, output: &Output) -> anyhow::Result<()> {
    let row = |peer: &Value| {
        vec![text(peer, "nid"), text(peer, "ip"), peer["port"].to_string(), text(peer, "direction")]
    };
    show(&client.get("/v1/mesh/peers")?, &["NID", "IP", "PORT", "DIRECTION"], row, output);
    Ok(())
}

fn files(client: &Client, output: &Output) -> anyhow::Result<()> {
    let row = |file: &Value| {
        let way = if file["is_outgoing"] == true { "out" } else { "in" };
        let part = format!("{} of {} blocks", file["done"], file["blocks"]);
        let size = file["size"].to_string();
        vec![
            short(file, "file"),
            way.to_owned(),
            short(file, "peer"),
            size,
            part,
            plain(&text(file, "name")).into_owned(),
        ]
    };
    show(&client.get("/v1/mesh/files")?, &["FILE", "WAY", "PEER", "SIZE", "DONE", "NAME"], row, output);
    Ok(())
}

fn drop_file(file: &str, client: &Client, output: &Output) -> anyhow::Result<()> {
    let answer = client.post("/v1/mesh/files/drop", &json!({ "file": file }))?;
    output.done(&answer, &format!("gave up {}", text(&answer, "file")));
    Ok(())
}

fn known(client: &Client, output: &Output) -> anyhow::Result<()> {
    let row = |node: &Value| vec![text(node, "ip"), time(&node["seen_at"])];
    show(&client.get("/v1/mesh/known")?, &["IP", "SEEN"], row, output);
    Ok(())
}

fn gc(client: &Client, output: &Output) -> anyhow::Result<()> {
    let answer = client.post("/v1/mesh/gc", &json!({}))?;
    output.done(&answer, &format!("threw away {} blocks, {} bytes", answer["blocks"], answer["bytes"]));
    Ok(())
}

/// A list as a table, or as the agent gave it.
fn show(list: &Value, headings: &[&str], row: impl Fn(&Value) -> Vec<String>, output: &Output) {
    if output.json {
        output.json(list);
        return;
    }
    let rows: Vec<Vec<String>> = list.as_array().into_iter().flatten().map(row).collect();
    output.table(headings, &rows);
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// As much of an address or a hash as people can tell apart.
fn short(value: &Value, key: &str) -> String {
    text(value, key).chars().take(16).collect()
}

/// Seconds since 1970 as a date, UTC.
fn time(seconds: &Value) -> String {
    let at = std::time::Duration::from_secs(seconds.as_u64().unwrap_or_default());
    // A time that no calendar has is shown as the number it is.
    std::time::UNIX_EPOCH
        .checked_add(at)
        .filter(|_| at.as_secs() < 250_000_000_000)
        .map_or_else(|| seconds.to_string(), |at| humantime::format_rfc3339_seconds(at).to_string())
}
