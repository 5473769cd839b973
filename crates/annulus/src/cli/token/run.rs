//! `annulus token run`: runs a command only while the token is here.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::group::{Group, Outcome, Signal};
use crate::cli::UsageError;
use crate::cli::client::Client;
use crate::cli::output::Output;

/// Wait for the token, run a command while it is here, then let it go on.
///
/// The command finds the number of its turn in ANNULUS_FENCE: it grows from turn to turn along one line of the token. It
/// runs in a process group of its own. Five seconds before its limit is over, or a quarter of the limit if that is less, the
/// group gets SIGTERM, and shortly before the limit SIGKILL, so that it has ended when the next turn begins. If the token is
/// lost while it runs (the agent ends or stands still so long that the ring goes on without it), the group gets SIGTERM, and
/// after five seconds SIGKILL; SIGINT, SIGTERM and SIGHUP to this program do the same with that signal, within the limit, and
/// a second one kills at once. If this program itself is killed, the agent lets the token go on, and (on Linux) the command is
/// killed with it.
///
/// The exit code is that of the command, 128 + n if signal n ended it or this program, 75 if the token was lost; then a line on
/// standard error says how.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token run -- sh -c 'echo my turn: $ANNULUS_FENCE'
  annulus token run --every 10s -- ./rotate-logs
  annulus token run --foreground -- vi /shared/file")]
pub(super) struct Run {
    /// Run it again and again, with at least so long between two turns.
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// How long the command may keep the token, its end included: 1ms to 24h.
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    limit: String,
    /// Leave the command in our process group, so that it can read from the terminal; what it starts itself is not
    /// stopped with it then.
    #[arg(long)]
    foreground: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The exit code of a command that lost the token: try again later (EX_TEMPFAIL).
const LOST: u8 = 75;
/// How long an agent may be silent if it does not say: that of the longest timers that are usual.
const SILENCE_MS: u64 = 10_000;
/// How long a command that is to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// The part of the limit that a command may need to end, at most: it must have ended when the limit is over.
const ENDING: u32 = 4;
/// The part of that which is left to kill it, and to tell the agent.
const KILLING: u32 = 5;
/// How long the system may take to forget what was killed.
const BURIAL: Duration = Duration::from_secs(1);
/// How long an agent may take to confirm that a turn is over.
const RELEASE: Duration = Duration::from_secs(2);

impl Run {
    pub(super) fn run(self, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
        let limit = super::duration("--limit", &self.limit)?;
        let every = self.every.as_deref().map(|text| match humantime::parse_duration(text) {
            Ok(every) => Ok(every),
            Err(_) => {
                Err(UsageError(format!("{text:?} is no duration: give one with its unit, such as 10s")))
            }
        });
        let every = every.transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.turns(client, output, limit, every))
    }

    async fn turns(
        &self,
        client: &Client,
        output: &Output,
        limit: Duration,
        every: Option<Duration>,
    ) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::catch()?;
        loop {
            let code = match self.turn(client, limit, &mut signals).await? {
                Ended::Command(code) => ExitCode::from(code),
                Ended::Lost(why) => {
                    output.error(&anyhow::anyhow!("{}", self.told(why)));
                    ExitCode::from(LOST)
                }
                Ended::Signal(code) => return Ok(ExitCode::from(code)),
            };
            let Some(every) = every else { return Ok(code) };
            tokio::select! {
                () = sleep(every) => {}
                (_, code) = signals.next() => return Ok(ExitCode::from(code)),
            }
        }
    }

    /// Why a command was stopped, and what to do.
    fn told(&self, why: Lost) -> String {
        match why {
            Lost::Limit => format!(
                "the limit of {} is over: the command was stopped; give it more time with --limit",
                self.limit
            ),
            Lost::Elsewhere => String::from(
                "the token was lost: the agent stood still and the ring went on; the command was stopped, and what it did last \
                 must be checked by its fence",
            ),
            Lost::Gone => String::from(
                "the agent went away: the command was stopped; start the agent again and repeat the command",
            ),
            Lost::Silent(silence) => format!(
                "the agent has said nothing for {}: the command was stopped, for the ring may have gone on; look why the agent \
                 stands still",
                humantime::format_duration(silence)
            ),
        }
    }

    /// One turn: hold, run, release.
    async fn turn(&self, client: &Client, limit: Duration, signals: &mut Signals) -> anyhow::Result<Ended> {
        let mut news = follow(client.clone(), limit);
        let held = tokio::select! {
            held = news.recv() => match held.context("the agent ended before the token came; start it again and retry")? {
                News::Held(held) => held,
                News::Failed(error) => return Err(error),
                _ => anyhow::bail!("the agent tells of no hold; check --agent"),
            },
            // The connection ends with this program, and with it the wish.
            (_, code) = signals.next() => return Ok(Ended::Signal(code)),
        };
        let fence = held["fence"].as_u64().context("the agent gave no number; check --agent")?;
        let silence = Duration::from_millis(held["silence_ms"].as_u64().unwrap_or(SILENCE_MS));
        let end = End::of(limit);
        let mut group = match Group::start(&self.command, fence, self.foreground) {
            Ok(group) => group,
            Err(error) => {
                release(client, &held, &mut news).await;
                return Err(error)
                    .with_context(|| format!("cannot run {:?}; check its name and PATH", self.command[0]));
            }
        };
        let ended = tokio::select! {
            outcome = group.ended() => Ended::Command(outcome?.code()),
            why = end_of(&mut news, silence) => {
                // What was lost is lost; but a limit that is over all the same is over.
                let kill_at = if matches!(why, Lost::Limit) { Instant::now() } else { Instant::now() + GRACE };
                stop(&mut group, Signal::TERM, kill_at, signals).await?;
                return Ok(Ended::Lost(why));
            }
            () = sleep_until(end.ask_at) => {
                stop(&mut group, Signal::TERM, end.kill_at, signals).await?;
                Ended::Lost(Lost::Limit)
            }
            (signal, code) = signals.next() => {
                stop(&mut group, signal, end.kill_at.min(Instant::now() + GRACE), signals).await?;
                Ended::Signal(code)
            }
        };
        release(client, &held, &mut news).await;
        Ok(ended)
    }
}

/// When a command is asked to end, and when it is killed: before the limit is over and the next turn begins.
struct End {
    ask_at: Instant,
    kill_at: Instant,
}

impl End {
    /// For a turn that has begun now.
    fn of(limit: Duration) -> Self {
        let grace = GRACE.min(limit / ENDING);
        let now = Instant::now();
        Self { ask_at: now + limit - grace, kill_at: now + limit - grace / KILLING }
    }
}

/// How a turn ended.
enum Ended {
    /// With the command: the exit code.
    Command(u8),
    /// The token was lost.
    Lost(Lost),
    /// We were told to end: the exit code.
    Signal(u8),
}

/// Why the token was lost.
#[derive(Clone, Copy)]
enum Lost {
    /// The limit is over.
    Limit,
    /// The ring went on without us.
    Elsewhere,
    /// The agent has ended, or its connection has.
    Gone,
    /// The agent is there, but stands still.
    Silent(Duration),
}

/// What is heard of a turn.
enum News {
    Held(Value),
    Alive,
    Ended(Lost),
    Failed(anyhow::Error),
}

/// Waits for the end of a turn. Who hears nothing for so long must expect that the ring has gone on.
async fn end_of(news: &mut mpsc::Receiver<News>, silence: Duration) -> Lost {
    loop {
        match timeout(silence, news.recv()).await {
            Ok(Some(News::Ended(why))) => return why,
            Ok(Some(News::Failed(_)) | None) => return Lost::Gone,
            Ok(Some(News::Held(_) | News::Alive)) => {}
            Err(_) => return Lost::Silent(silence),
        }
    }
}

/// Holds the token by a connection, on a thread of its own: first comes the hold, then signs of life, then why it is over.
/// The thread ends with the turn.
fn follow(client: Client, limit: Duration) -> mpsc::Receiver<News> {
    let (sender, news) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut events = match client
            .stream("/v1/token/turn", &json!({ "limit_ms": annulus_core::micros(limit).div_ceil(1000) }))
        {
            Ok(events) => events,
            Err(error) => return drop(sender.blocking_send(News::Failed(error))),
        };
        while let Ok(Some(event)) = events.next() {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let news = match event.kind.as_str() {
                "held" => News::Held(data),
                "ended" => News::Ended(match data["reason"].as_str() {
                    Some("limit") => Lost::Limit,
                    Some("stalled" | "merged") => Lost::Elsewhere,
                    _ => Lost::Gone,
                }),
                _ => News::Alive,
            };
            if sender.blocking_send(news).is_err() {
                return;
            }
        }
    });
    news
}

/// Lets the token go on, and waits until the agent has said so.
async fn release(client: &Client, held: &Value, news: &mut mpsc::Receiver<News>) {
    let (client, hold) = (client.clone(), held["hold"].clone());
    std::thread::spawn(move || {
        // If the hold has ended by itself just now there is nothing to release.
        let _ = client.post("/v1/token/release", &json!({ "hold": hold }));
    });
    // An agent that hangs must not hold us: the connection closes with this program.
    let _ = timeout(RELEASE, async { while news.recv().await.is_some() {} }).await;
}

/// Asks the command to end, then makes it.
async fn stop(
    group: &mut Group,
    signal: Signal,
    kill_at: Instant,
    signals: &mut Signals,
) -> anyhow::Result<Outcome> {
    group.send(signal);
    tokio::select! {
        outcome = group.vanished() => return outcome,
        () = sleep_until(kill_at) => {}
        _ = signals.next() => {}
    }
    group.send(Signal::KILL);
    let outcome = group.ended().await;
    // What was killed is gone, but who is to bury it may be slow.
    let _ = timeout(BURIAL, group.vanished()).await;
    outcome
}

/// The signals that mean: come to an end.
struct Signals {
    interrupt: Caught,
    terminate: Caught,
    hang_up: Caught,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// The next one, and the exit code that tells of it.
    async fn next(&mut self) -> (Signal, u8) {
        let signal = tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        };
        (signal, super::group::code_of(signal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_before_its_limit_is_over() {
        let seconds = |limit: f64| {
            let (begin, limit) = (Instant::now(), Duration::from_secs_f64(limit));
            let end = End::of(limit);
            let left = |at: Instant| (limit.saturating_sub(at - begin)).as_secs_f64();
            (left(end.ask_at).ceil(), left(end.kill_at).ceil())
        };
        assert_eq!(seconds(3600.0), (5.0, 1.0));
        assert_eq!(seconds(60.0), (5.0, 1.0));
        assert_eq!(seconds(8.0), (2.0, 1.0), "a quarter, if that is less");
        let short = End::of(Duration::from_millis(1));
        assert!(short.ask_at < short.kill_at);
    }
}
