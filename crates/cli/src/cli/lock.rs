//! `annulus lock`: runs a command while this node has a name for itself.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::UsageError;
use super::client::{Client, is_refused};
use super::output::{Output, plain};

/// Run a command while this node holds a named lock.
///
/// A majority of the voters (token.voters) grants the turn and its fence number. The command finds the number in
/// ANNULUS_FENCE. It is greater than that of every earlier turn of the name. A guard process ends the command before
/// the turn ends, even if the agent and this program are stopped. It sends SIGTERM when 3/8 of the validity are left,
/// and SIGKILL at 1/8. SIGINT, SIGTERM and SIGHUP to this program go to the command, and SIGKILL follows after five
/// seconds or with a second signal.
///
/// The exit code is that of the command, or 128 + n if signal n ended it. It is 75 if the turn was lost, and 69 if too
/// few voters answered. It is 1 if the name is not free, and 127 if the command does not exist.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus lock billing -- ./run-billing
  annulus lock billing --try -- ./run-billing
  annulus lock billing --print")]
pub(crate) struct Lock {
    /// The name.
    name: String,
    /// Show the holder of the name, its fence and the number of waiters; run nothing.
    #[arg(long, conflicts_with_all = ["try_once", "wait", "command"])]
    print: bool,
    #[command(flatten)]
    how: How,
    /// The command and its arguments.
    #[arg(last = true, required_unless_present = "print")]
    command: Vec<String>,
}

/// How to wait for a turn, and how to run a command in it.
#[derive(clap::Args, Clone)]
pub(super) struct How {
    /// Exit with the conflict exit code if another client has the turn. A weak turn is tried for one loop of the token.
    #[arg(long = "try", id = "try_once", conflicts_with = "wait")]
    try_once: bool,
    /// How long to wait for the turn, up to 24h, which is the default.
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// The limit of the run time, from 1ms to 24h. The command must have ended by then [default: 60s for the token,
    /// 1h for a name].
    #[arg(long, value_name = "DURATION")]
    limit: Option<String>,
    /// Leave the command in the process group of this program, so that it can read from the terminal.
    #[arg(long)]
    pub(super) foreground: bool,
    /// The exit code if another client has the turn.
    #[arg(long, value_name = "CODE", default_value_t = 1)]
    pub(super) conflict_exit_code: u8,
}

/// The limit of a command if none is given.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// The default of `--wait`.
const WAIT: Duration = Duration::from_secs(24 * 60 * 60);

impl How {
    /// How long to wait; zero tries once.
    pub(super) fn wait(&self) -> Result<Duration, UsageError> {
        match &self.wait {
            _ if self.try_once => Ok(Duration::ZERO),
            Some(text) => super::token::duration("--wait", text),
            None => Ok(WAIT),
        }
    }

    /// The limit as it was given.
    pub(super) fn limit_text(&self) -> &str {
        self.limit.as_deref().unwrap_or("60s")
    }

    /// The limit of the run time; `default` without `--limit`.
    pub(super) fn limit(&self, default: Duration) -> Result<Duration, UsageError> {
        self.limit.as_ref().map_or(Ok(default), |text| super::token::duration("--limit", text))
    }
}

impl Lock {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        if self.print {
            print(&self.name, client, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (wait, limit) = (self.how.wait()?, self.how.limit(LIMIT)?);
        let run = super::token::Guarded {
            name: &self.name,
            command: &self.command,
            how: &self.how,
            wait,
            limit,
            weak: false,
        };
        run.run(None, client, output).map(ExitCode::from)
    }
}

fn print(name: &str, client: &Client, output: &Output) -> anyhow::Result<()> {
    let answer = client.post("/v1/turns/query", &json!({ "name": name }))?;
    if output.json {
        output.json(&answer);
        return Ok(());
    }
    let number = |key: &str| answer[key].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    let holder = plain(answer["holder"].as_str().unwrap_or("-"));
    output.line(format!("holder     {holder}"));
    output.line(format!("fence      {}", number("fence")));
    let left = Duration::from_millis(answer["left_ms"].as_u64().unwrap_or(0));
    output.line(format!("left       {}", humantime::format_duration(left)));
    output.line(format!("waiting    {}", number("waiting")));
    output.line(format!("voters     {} of {} answered", number("answered"), number("voters")));
    output.line("guarantee  exclusive");
    Ok(())
}

/// Whether the agent has no voters: then turns are weak.
pub(super) fn is_weak(error: &anyhow::Error) -> bool {
    is_refused(error, "no_voters")
}
