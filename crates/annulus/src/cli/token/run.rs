//! `annulus token run`: runs a command only while the token is here.

use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::cli::UsageError;
use crate::cli::client::Client;

/// Wait for the token, run a command while it is here, then let it go on.
///
/// The command finds the number of its turn in ANNULUS_FENCE: it grows from turn to turn along one line of the token. If
/// the token is lost while the command runs (its limit is over, the agent ends), the command gets SIGTERM, and after five
/// seconds SIGKILL. The exit code is that of the command, or 75 if it was stopped so.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token run -- sh -c 'echo my turn: $ANNULUS_FENCE'
  annulus token run --every 10s -- ./rotate-logs")]
pub(super) struct Run {
    /// Run it again and again, with at least so long between two turns.
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// How long the command may keep the token.
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    limit: String,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The exit code of a command that lost the token: try again later (EX_TEMPFAIL).
const LOST: u8 = 75;
/// How long a command that lost the token may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// How often is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

impl Run {
    pub(super) fn run(self, client: &Client) -> anyhow::Result<ExitCode> {
        let parse = |text: &str| {
            humantime::parse_duration(text).map_err(|_| {
                UsageError(format!("{text:?} is no duration: give one with its unit, such as 10s"))
            })
        };
        let limit = parse(&self.limit)?;
        let every = self.every.as_deref().map(parse).transpose()?;
        loop {
            let code = turn(client, limit, &self.command)?;
            let Some(every) = every else { return Ok(code) };
            std::thread::sleep(every);
        }
    }
}

/// One turn: hold, run, release.
fn turn(client: &Client, limit: Duration, command: &[String]) -> anyhow::Result<ExitCode> {
    let mut events = client.events(None)?;
    let held = client.post("/v1/token/hold", &json!({ "limit_ms": annulus_core::micros(limit) / 1000 }))?;
    let fence = held["fence"].as_u64().context("the agent gave no number; check --agent")?;
    let mut runner = Command::new(&command[0]);
    runner.args(&command[1..]).env("ANNULUS_FENCE", fence.to_string());
    let child = match runner.spawn() {
        Ok(child) => Arc::new(Mutex::new(child)),
        Err(error) => {
            client.post("/v1/token/release", &json!({ "hold": held["hold"] }))?;
            return Err(error)
                .with_context(|| format!("cannot run {:?}; check its name and PATH", command[0]));
        }
    };
    let lost = Arc::new(AtomicBool::new(false));
    let (watched, told) = (Arc::clone(&child), Arc::clone(&lost));
    // It ends with the process: when the command has ended nobody needs it.
    std::thread::spawn(move || {
        while let Ok(Some(event)) = events.next() {
            let event: Value = serde_json::from_str(&event.data).unwrap_or_default();
            if event["event"] == "token_lost" && event["fence"] == fence {
                break;
            }
        }
        told.store(true, Ordering::Release);
        stop(&watched);
    });
    let code = wait(&child)?;
    if lost.load(Ordering::Acquire) {
        return Ok(ExitCode::from(LOST));
    }
    // If the hold has ended by itself just now there is nothing to release.
    let _ = client.post("/v1/token/release", &json!({ "hold": held["hold"] }));
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(1)).unwrap_or(1)))
}

fn wait(child: &Mutex<Child>) -> anyhow::Result<Option<i32>> {
    loop {
        let ended = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
        if let Some(status) = ended {
            return Ok(status.code());
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks the command to end, then makes it.
fn stop(child: &Mutex<Child>) {
    let lock = || child.lock().unwrap_or_else(PoisonError::into_inner);
    let id = lock().id().to_string();
    // A command that has ended already needs no signal.
    let _ = Command::new("kill").args(["-TERM", &id]).status();
    let begin = std::time::Instant::now();
    while begin.elapsed() < GRACE {
        if !matches!(lock().try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    let _ = lock().kill();
}
