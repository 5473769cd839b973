//! `annulus token run`: runs a command only while the token is here.

use std::process::ExitCode;
use std::time::Duration;

use super::Guarded;
use crate::cli::UsageError;
use crate::cli::client::Client;
use crate::cli::lock::{How, is_weak};
use crate::cli::output::Output;

/// Wait for the token, run a command while this node holds it, then pass it on.
///
/// The command finds the fence number of its turn in ANNULUS_FENCE. The number grows from turn to turn. A guard process
/// ends the command in time, even if the agent and this program are stopped. With voters (token.voters) it works as for
/// `annulus lock`.
///
/// Without voters the turn is weak. The guard sends SIGTERM if the agent is silent for a quarter of token.renew_timeout,
/// and SIGKILL after two fifths. It sends SIGTERM five seconds before the limit, or a quarter of the
/// limit before if that is less, and SIGKILL shortly before the limit. If the token is lost, SIGTERM comes at once and
/// SIGKILL within a second.
///
/// SIGINT, SIGTERM and SIGHUP to this program go to the command. SIGKILL follows after five seconds, or at once with a
/// second signal. If this program is killed, the guard ends the command, and then the agent passes the token on.
///
/// The exit code is that of the command. It is 128 + n if signal n ended the command or this program, and 75 if the turn
/// was lost. Then a line on standard error gives the reason. It is 1 if the turn did not come within --wait, and 127 if
/// the command does not exist.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token run -- sh -c 'echo my turn: $ANNULUS_FENCE'
  annulus token run --every 10s -- ./rotate-logs
  annulus token run --foreground -- vi /shared/file")]
pub(super) struct Run {
    /// Repeat the command, with at least this time between two turns.
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    #[command(flatten)]
    how: How,
    /// Do not warn that the turn is weak. A turn is weak if the agent has no voters.
    #[arg(long)]
    weak: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The limit of a command if none is given.
const LIMIT: Duration = Duration::from_secs(60);
/// TU-44: the one honest line.
const WEAK: &str = "weak turn: two commands can run at once if the network splits or a machine sleeps; set token.voters \
                    (docs/token.md)";

impl Run {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        let limit = self.how.limit(LIMIT)?;
        let every = self.every.as_deref().map(|text| match humantime::parse_duration(text) {
            Ok(every) => Ok(every),
            Err(_) => {
                Err(UsageError(format!("{text:?} is no duration: give one with its unit, such as 10s")))
            }
        });
        let every = every.transpose()?;
        let wait = self.how.wait()?;
        let weak = match client.get("/v1/voters") {
            Ok(_) => false,
            Err(error) if is_weak(&error) => true,
            Err(error) => return Err(error),
        };
        if weak && !self.weak {
            output.note(WEAK);
        }
        let run = Guarded { name: "", command: &self.command, how: &self.how, wait, limit, weak };
        run.run(every, client, output).map(ExitCode::from)
    }
}
