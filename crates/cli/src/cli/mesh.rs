//! `annulus mesh`: messages to nodes that may be offline.

mod book;
mod boxes;
mod send;
mod shown;
mod upload;

use std::process::ExitCode;

use serde_json::{Value, json};

use super::client::Client;
use super::output::{Output, plain};

/// Send and read messages, and show the state of the mesh.
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
    /// Cancel a message that has not been delivered.
    ///
    /// The cancellation is certain only if the message never left this node. Otherwise another node may still deliver
    /// it.
    #[command(after_help = "Example:\n  annulus mesh cancel 17")]
    Cancel {
        /// Its number in the outbox.
        number: u64,
    },
    Book(book::Book),
    Read(boxes::Read),
    Get(boxes::Get),
    /// Show outgoing, incoming and received files.
    #[command(after_help = "Example:\n  annulus mesh files")]
    Files,
    /// Drop an outgoing, incoming or received file.
    ///
    /// This node refuses an incoming file while its sender offers it, and for mesh.expiry after that. The sender gets
    /// no notice: its transfer times out.
    #[command(after_help = "Example:\n  annulus mesh drop 84a5b2397ee07585")]
    Drop {
        /// The file, as `annulus mesh files` shows it; a unique prefix of at least 8 digits is enough.
        file: String,
    },
    /// Show the nodes that this one is connected to.
    #[command(after_help = "Example:\n  annulus mesh peers")]
    Peers,
    /// Show the known nodes, which this node contacts when it joins the mesh again.
    #[command(after_help = "Example:\n  annulus mesh known")]
    Known,
    /// Delete stored blocks that no inbox line, queue entry or file refers to.
    #[command(after_help = "Example:\n  annulus mesh gc")]
    Gc,
    /// Show the mesh address (NID) of the agent, its peers and the use of its store.
    #[command(after_help = "Example:\n  annulus mesh status")]
    Status,
}

impl Mesh {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        match self.verb.unwrap_or(Verb::Status) {
            Verb::Send(verb) => return verb.run(client, output),
            Verb::Cancel { number } => cancel(number, client, output),
            Verb::Book(verb) => verb.run(client, output),
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
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

fn cancel(number: u64, client: &Client, output: &Output) -> anyhow::Result<()> {
    let answer = client.post("/v1/mesh/outbox/cancel", &json!({ "number": number }))?;
    let text = if answer["is_certain"] == true {
        format!("message {number} is withdrawn: it never left this node")
    } else {
        format!("message {number} is withdrawn here; another node may have it and deliver it")
    };
    output.done(&answer, &text);
    Ok(())
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
    if status["deferred"].as_u64().unwrap_or_default() > 0 {
        output.line(format!(
            "deferred {} messages for this node: the store is full; make room with `annulus mesh read N --remove`, or \
             raise mesh.quota",
            status["deferred"]
        ));
    }
    Ok(())
}

fn peers(client: &Client, output: &Output) -> anyhow::Result<()> {
    let row = |peer: &Value| {
        vec![
            peer["name"].as_str().map_or_else(|| "-".into(), |name| plain(name).into_owned()),
            text(peer, "nid"),
            text(peer, "ip"),
            peer["port"].to_string(),
            text(peer, "direction"),
        ]
    };
    show(&client.get("/v1/mesh/peers")?, &["NAME", "NID", "IP", "PORT", "DIRECTION"], row, output);
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

/// The first digits of an address or a hash.
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
