//! The line on the terminal while a command waits for its turn: it names the holder.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::cli::client::Client;
use crate::cli::output::{Output, plain};

/// The interval between queries for the holder.
const LOOK: Duration = Duration::from_secs(1);

/// Lines about a wait; they end when this is dropped.
pub(super) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Prints the holder, if standard error is a terminal: that of the request `turn`, or else of the token.
    pub(super) fn tell(client: &Client, turn: Option<&str>, output: &Output) -> Self {
        let is_over = Arc::new(AtomicBool::new(!std::io::stderr().is_terminal()));
        if !is_over.load(Ordering::Relaxed) {
            let (client, turn) = (client.clone(), turn.map(str::to_owned));
            let (output, flag) = (Output::new(output.json), Arc::clone(&is_over));
            std::thread::spawn(move || look(&client, turn.as_deref(), &output, &flag));
        }
        Self(is_over)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn look(client: &Client, turn: Option<&str>, output: &Output, is_over: &AtomicBool) {
    let mut said = String::new();
    loop {
        std::thread::sleep(LOOK);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // The agent queries the voters once it has the token.
        let wish = turn.and_then(|turn| wish(client, turn));
        let text = match wish {
            Some(wish) => for_name(client, &wish),
            None => for_token(client),
        };
        if let Some(text) = text.filter(|text| *text != said && !is_over.load(Ordering::Relaxed)) {
            output.note(&text);
            said = text;
        }
    }
}

/// The request, as the agent shows it; `is_here` if another client of the agent has the name.
struct Wish {
    shown: Value,
    is_here: bool,
}

fn wish(client: &Client, turn: &str) -> Option<Wish> {
    let status = client.get("/v1/turns").ok()?;
    let turns = status["turns"].as_array()?;
    let shown = turns.iter().find(|wish| wish["turn"] == turn)?.clone();
    let is_here = turns.iter().any(|turn| turn["name"] == shown["name"] && turn["fence"].is_u64());
    Some(Wish { shown, is_here })
}

/// The node that has the name of a wish.
fn for_name(client: &Client, wish: &Wish) -> Option<String> {
    let Wish { shown: wish, is_here } = wish;
    let what = match wish["name"].as_str()? {
        "" => "the turn of the ring".to_owned(),
        name => format!("{:?}", plain(name)),
    };
    Some(match wish["waits_for"]["by"].as_str() {
        Some(by) => {
            let members = client.get("/v1/members").unwrap_or_default();
            let mut all = members.as_array().into_iter().flatten();
            let name = all.find(|member| member["id"] == by).and_then(|member| member["name"].as_str());
            let by = if *is_here { "another client of this agent" } else { name.unwrap_or(by) };
            let by = plain(by).into_owned();
            format!("waiting for {what}: {by} has it with fence {}", wish["waits_for"]["fence"])
        }
        None => format!("waiting for {what}: too few voters answer, see `annulus voters`"),
    })
}

/// The node that has the token.
fn for_token(client: &Client) -> Option<String> {
    let token = client.get("/v1/token").ok()?;
    let mut nodes = token["nodes"].as_array()?.iter();
    let addr = nodes.find(|node| node["host_id"] == token["holder"]).and_then(|node| node["addr"].as_str());
    Some(match token["holder_name"].as_str().or(addr) {
        Some(holder) => {
            format!("waiting for the token: {} has it, as far as this agent knows", plain(holder))
        }
        None => "waiting for the token: nobody is known to have it".to_owned(),
    })
}
