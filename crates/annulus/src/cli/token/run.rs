//! `annulus token run`: runs a command only while the token is here.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::group::{Group, Outcome, Signal};
use crate::cli::UsageError;
use crate::cli::client::Client;

/// Wait for the token, run a command while it is here, then let it go on.
///
/// The command finds the number of its turn in ANNULUS_FENCE: it grows from turn to turn along one line of the token. It
/// runs in a process group of its own. If the token is lost while it runs (its limit is over, the agent ends), the group
/// gets SIGTERM, and after five seconds SIGKILL; SIGINT, SIGTERM and SIGHUP to this program do the same with that signal,
/// and a second one kills at once. Then the token goes on. If this program itself is killed, the agent lets the token go
/// on, and (on Linux) the command is killed with it.
///
/// The exit code is that of the command, 128 + n if signal n ended it or this program, 75 if the token was lost.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus token run -- sh -c 'echo my turn: $ANNULUS_FENCE'
  annulus token run --every 10s -- ./rotate-logs
  annulus token run --foreground -- vi /shared/file")]
pub(super) struct Run {
    /// Run it again and again, with at least so long between two turns.
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// How long the command may keep the token.
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
/// How long a command that is to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long the system may take to forget what was killed.
const BURIAL: Duration = Duration::from_secs(1);
/// How long an agent may take to confirm that a turn is over.
const RELEASE: Duration = Duration::from_secs(2);

impl Run {
    pub(super) fn run(self, client: &Client) -> anyhow::Result<ExitCode> {
        let parse = |text: &str| {
            humantime::parse_duration(text).map_err(|_| {
                UsageError(format!("{text:?} is no duration: give one with its unit, such as 10s"))
            })
        };
        let limit = parse(&self.limit)?;
        if limit.is_zero() {
            return Err(UsageError("--limit is zero: give the command time, such as 10s".into()).into());
        }
        let every = self.every.as_deref().map(parse).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.turns(client, limit, every))
    }

    async fn turns(
        &self,
        client: &Client,
        limit: Duration,
        every: Option<Duration>,
    ) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::catch()?;
        loop {
            let code = match self.turn(client, limit, &mut signals).await? {
                Ended::Command(code) => ExitCode::from(code),
                Ended::Signal(code) => return Ok(ExitCode::from(code)),
            };
            let Some(every) = every else { return Ok(code) };
            tokio::select! {
                () = sleep(every) => {}
                (_, code) = signals.next() => return Ok(ExitCode::from(code)),
            }
        }
    }

    /// One turn: hold, run, release.
    async fn turn(&self, client: &Client, limit: Duration, signals: &mut Signals) -> anyhow::Result<Ended> {
        let mut news = follow(client.clone(), limit);
        let held = tokio::select! {
            held = news.recv() => held.context("the agent ended before the token came")??,
            // The connection ends with this program, and with it the wish.
            (_, code) = signals.next() => return Ok(Ended::Signal(code)),
        };
        let fence = held["fence"].as_u64().context("the agent gave no number; check --agent")?;
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
            // Anything that comes now, also the end of the agent, is the end of the turn.
            _ = news.recv() => {
                stop(&mut group, Signal::TERM, signals).await?;
                return Ok(Ended::Command(LOST));
            }
            (signal, code) = signals.next() => {
                stop(&mut group, signal, signals).await?;
                Ended::Signal(code)
            }
        };
        release(client, &held, &mut news).await;
        Ok(ended)
    }
}

/// How a turn ended.
enum Ended {
    /// With the command, or because the token was lost: the exit code.
    Command(u8),
    /// We were told to end: the exit code.
    Signal(u8),
}

/// Holds the token by a connection, on a thread of its own: first comes the hold, then something when it is over. The
/// thread ends with the turn.
fn follow(client: Client, limit: Duration) -> mpsc::Receiver<anyhow::Result<Value>> {
    let (sender, news) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut events = match client
            .stream("/v1/token/turn", &json!({ "limit_ms": annulus_core::micros(limit).div_ceil(1000) }))
        {
            Ok(events) => events,
            Err(error) => return drop(sender.blocking_send(Err(error))),
        };
        while let Ok(Some(event)) = events.next() {
            let data = serde_json::from_str(&event.data).unwrap_or_default();
            if sender.blocking_send(Ok(data)).is_err() {
                return;
            }
        }
    });
    news
}

/// Lets the token go on, and waits until the agent has said so.
async fn release(client: &Client, held: &Value, news: &mut mpsc::Receiver<anyhow::Result<Value>>) {
    let (client, hold) = (client.clone(), held["hold"].clone());
    std::thread::spawn(move || {
        // If the hold has ended by itself just now there is nothing to release.
        let _ = client.post("/v1/token/release", &json!({ "hold": hold }));
    });
    // An agent that hangs must not hold us: the connection closes with this program.
    let _ = timeout(RELEASE, async { while news.recv().await.is_some() {} }).await;
}

/// Asks the command to end, then makes it.
async fn stop(group: &mut Group, signal: Signal, signals: &mut Signals) -> anyhow::Result<Outcome> {
    group.send(signal);
    tokio::select! {
        outcome = group.vanished() => return outcome,
        () = sleep(GRACE) => {}
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
