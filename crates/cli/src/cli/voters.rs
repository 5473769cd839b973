//! `annulus voters` and `annulus turn`: the voters of exclusive turns, and a check for scripts.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::UsageError;
use super::client::{Client, is_refused};
use super::output::{BAD, DIM, GOOD, Output};

/// Show the voters of exclusive turns, or repair them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus voters
  annulus voters renew
  annulus voters refound --ended-everywhere")]
pub(crate) struct Voters {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Discard the state of this voter and read that of the others. Use it after the data directory was copied or
    /// restored.
    Renew,
    /// Found a new group after a permanent loss of a majority of the voters.
    ///
    /// The new group does not know the turns of the old one. A command that still runs under an old turn can overlap a
    /// new one.
    Refound {
        /// Confirm that no machine runs a command under a turn of the old group.
        #[arg(long)]
        ended_everywhere: bool,
    },
}

impl Voters {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<()> {
        match self.verb {
            None => show(client, output),
            Some(Verb::Renew) => {
                let answer = client.post("/v1/voters/renew", &json!({}))?;
                output.done(&answer, "this voter rests for one lease, reads the others, and votes again");
                Ok(())
            }
            Some(Verb::Refound { ended_everywhere: false }) => {
                let text = "a new group does not know the turns of the old one: end all commands under turns on all machines, \
                            then say --ended-everywhere";
                Err(UsageError(text.to_owned()).into())
            }
            Some(Verb::Refound { ended_everywhere: true }) => {
                let answer = client.post("/v1/voters/refound", &json!({ "ended_everywhere": true }))?;
                output.done(
                    &answer,
                    "the new group votes one lease after all voters in token.voters have accepted it",
                );
                Ok(())
            }
        }
    }
}

fn show(client: &Client, output: &Output) -> anyhow::Result<()> {
    let status = client.get("/v1/voters")?;
    if output.json {
        output.json(&status);
        return Ok(());
    }
    output.line(format!(
        "group      {}",
        status["group"].as_str().unwrap_or("not founded yet, or not known here")
    ));
    let lease = Duration::from_micros(status["lease_micros"].as_u64().unwrap_or(0));
    output.line(format!("lease      {}", humantime::format_duration(lease)));
    output.line(format!("majority   {}", status["majority"]));
    output.line(format!("this node  {}", status["standing"].as_str().unwrap_or("-")));
    if let Some(reason) = status["halted"].as_str() {
        output.line(format!("{BAD}halted     {reason}{BAD:#}"));
    }
    output.line("guarantee  exclusive");
    let rows = status["voters"].as_array().into_iter().flatten().map(|voter| {
        let standing = voter["standing"].as_str().unwrap_or("-");
        let style = if standing == "voting" { GOOD } else { DIM };
        let ago = voter["answered_micros_ago"].as_u64().map(|ago| Duration::from_millis(ago / 1000));
        vec![
            voter["addr"].as_str().unwrap_or("-").to_owned(),
            format!("{style}{standing}{style:#}"),
            ago.map_or_else(|| "never".to_owned(), |ago| format!("{} ago", humantime::format_duration(ago))),
        ]
    });
    output.table(&["VOTER", "STANDING", "ANSWERED"], &rows.collect::<Vec<_>>());
    Ok(())
}

/// Check, from within a command, whether its turn is still valid.
#[derive(clap::Args)]
#[command(after_help = "Example, in a script under `annulus lock`:\n  annulus turn check && mv new current")]
pub(crate) struct TurnVerb {
    #[command(subcommand)]
    verb: TurnVerbs,
}

#[derive(clap::Subcommand)]
enum TurnVerbs {
    /// Print how many milliseconds of the turn are left; exit with 75 if it is over.
    Check {
        /// The turn.
        #[arg(env = "ANNULUS_TURN", required_unless_present = "hold")]
        turn: Option<String>,
        /// The number of the hold, for a weak turn.
        #[arg(long, env = "ANNULUS_HOLD", conflicts_with = "turn")]
        hold: Option<u64>,
    },
}

/// The exit code of a turn that is over.
const LOST: u8 = 75;

impl TurnVerb {
    pub(crate) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        let TurnVerbs::Check { turn, hold } = self.verb;
        let answer = match hold {
            Some(hold) => client.post("/v1/token/keep", &json!({ "hold": hold })),
            None => client
                .get(&format!("/v1/turns/{}", super::client::escaped(turn.as_deref().unwrap_or_default()))),
        };
        match answer {
            Ok(answer) => {
                if output.json {
                    output.json(&answer);
                } else {
                    output.line(answer["left_ms"].to_string());
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) if is_refused(&error, "turn_lost") => {
                output.error(&error);
                Ok(ExitCode::from(LOST))
            }
            Err(error) => Err(error),
        }
    }
}
