//! A command in a turn: gets the turn, runs the command under a guard, keeps the turn, releases it.
//!
//! The same holds for both kinds of turn. [`Claim`] is the variable part: a [`Lease`] from the voters, or a [`Hold`] of
//! the token.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annulus::core::{Instant, micros};
use anyhow::Context as _;
use tokio::sync::mpsc;

use super::hold::Hold;
use super::lease::{Lease, Request};
use super::signals::Signals;
use super::started::{self, Guard};
use super::waiting::Waiting;
use crate::cli::client::{Client, is_refused};
use crate::cli::guard::{END, EXTEND, FRAME_BYTES, SIGNAL, Start, frame, kill_children};
use crate::cli::lock::How;
use crate::cli::output::Output;

/// The exit code of a command that lost its turn (EX_TEMPFAIL).
const LOST: u8 = 75;
/// The exit code if too few voters answered (EX_UNAVAILABLE).
const NO_MAJORITY: u8 = 69;
/// The pause of the client before it queries a silent agent again.
const RETRY: Duration = Duration::from_millis(200);

/// The time of a command to end after this program got a signal.
const GRACE: Duration = Duration::from_secs(5);

/// A turn of either kind, as its client uses it. All of it may block.
pub(super) trait Claim: Clone + Send + 'static {
    /// The variables that the command gets.
    fn env(&self) -> Vec<(&'static str, String)>;

    /// The rest of a turn that has just come.
    fn first(&self) -> anyhow::Result<Kept> {
        self.keep()
    }

    /// The interval between keeps.
    fn interval(&self) -> Duration;

    /// Queries the agent whether the turn is still valid.
    fn keep(&self) -> anyhow::Result<Kept>;

    /// Presents the turn to an agent that does not know it; none if that is of no use.
    fn resume(&self, _deadline: Instant) -> Option<anyhow::Result<Kept>> {
        None
    }

    /// Waits until the agent reports the end of the turn, and returns the reason; `None` without a reason.
    fn wait_for_loss(&self) -> Option<String>;

    /// A sentence about a loss for this reason.
    fn lost(&self, reason: &str) -> String;

    /// A sentence about a command that the guard stopped by its own clock.
    fn ran_out(&self, limit: Option<(Instant, Instant)>) -> String;

    /// Ends the turn.
    fn release(&self);
}

/// The answer to a question that was sent at `asked`: so much was left then.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) asked: Instant,
    pub(super) left: Duration,
    /// The times of TERM and KILL at the limit, if `left` does not include it.
    pub(super) limit: Option<(Instant, Instant)>,
}

/// A command to run in a turn.
pub(crate) struct Guarded<'a> {
    pub(crate) name: &'a str,
    pub(crate) command: &'a [String],
    pub(crate) how: &'a How,
    pub(crate) wait: Duration,
    pub(crate) limit: Duration,
    /// Whether the turn is a hold of the token, without voters.
    pub(crate) weak: bool,
}

/// The end of a turn.
enum Ended {
    /// The exit code.
    Code(u8),
    /// A signal ended this program: the exit code.
    Signal(u8),
}

/// Events while the command runs.
enum News {
    /// The turn is lost, for this reason.
    Lost(String),
    /// The agent does not know the turn any more.
    Gone(String),
    /// The guard has ended: whether the turn ended the command, and its exit code; none if it was killed.
    Ended(Option<[u8; 2]>),
}

impl Guarded<'_> {
    /// Runs it once, or again and again with this time between two turns; the exit code.
    pub(crate) fn run(
        &self,
        every: Option<Duration>,
        client: &Client,
        output: &Output,
    ) -> anyhow::Result<u8> {
        // The first request and guard need neither runtime nor threads: these start while the voters answer.
        let first = self.begin(client)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(self.turns(first, every, client, output));
        // A thread may wait for an agent that does not answer.
        runtime.shutdown_background();
        code
    }

    /// Sends the request for a turn, unless it is weak, and starts its guard.
    fn begin(&self, client: &Client) -> anyhow::Result<Begun> {
        let request = if self.weak { None } else { Some(Request::send(client, self)?) };
        let (request, guard) = Guard::start(self, request)?;
        Ok(Begun { request, guard })
    }

    async fn turns(
        &self,
        first: Begun,
        every: Option<Duration>,
        client: &Client,
        output: &Output,
    ) -> anyhow::Result<u8> {
        let mut signals = Signals::catch()?;
        let mut begun = first;
        loop {
            let ended = match begun.request {
                None => {
                    let acquire = Hold::acquire(client.clone(), self);
                    let asking = tokio::task::spawn_blocking(acquire);
                    let asking = async { asking.await.context("the question ended early")? };
                    self.turn(client, asking, None, begun.guard, &mut signals, output).await?
                }
                Some(request) => {
                    let id = request.id().to_owned();
                    let asking = Lease::acquire(request);
                    self.turn(client, asking, Some(&id), begun.guard, &mut signals, output).await?
                }
            };
            let code = match (ended, every) {
                (Ended::Signal(code), _) | (Ended::Code(code), None) => return Ok(code),
                (Ended::Code(_), Some(every)) => tokio::select! {
                    () = tokio::time::sleep(every) => None,
                    (_, code) = signals.next() => Some(code),
                },
            };
            if let Some(code) = code {
                return Ok(code);
            }
            begun = self.begin(client)?;
        }
    }

    async fn turn<C: Claim>(
        &self,
        client: &Client,
        asking: impl Future<Output = anyhow::Result<C>>,
        id: Option<&str>,
        guard: Guard,
        signals: &mut Signals,
        output: &Output,
    ) -> anyhow::Result<Ended> {
        let waiting = Waiting::tell(client, id, output);
        let got = tokio::select! {
            got = asking => got,
            // The connection ends here, and the wish with it.
            (_, code) = signals.next() => return Ok(Ended::Signal(code)),
        };
        drop(waiting);
        let code = match got {
            Ok(claim) => return run(client, &claim, guard, signals, output).await,
            Err(error) if is_refused(&error, "not_free") => {
                output.error(&error);
                self.how.conflict_exit_code
            }
            Err(error) if is_refused(&error, "no_majority") => {
                output.error(&error);
                NO_MAJORITY
            }
            Err(error) => return Err(error),
        };
        Ok(Ended::Code(code))
    }
}

/// A turn that was requested, and its guard. The request for a weak turn comes later.
struct Begun {
    request: Option<Request>,
    guard: Guard,
}

/// Runs the command under its guard until it ends or the turn does.
async fn run<C: Claim>(
    client: &Client,
    claim: &C,
    guard: Guard,
    signals: &mut Signals,
    output: &Output,
) -> anyhow::Result<Ended> {
    // The grant may have waited for us; what is left now counts from a question of ours (TU-34).
    let Ok(kept) = claim.first() else {
        output.error(&anyhow::anyhow!("the turn was over before the command began; try again"));
        return Ok(Ended::Code(LOST));
    };
    let mut env = claim.env();
    env.push(("ANNULUS_AGENT", client.addr().to_string()));
    let start = Start::new(kept.asked, kept.left, kept.limit, &env);
    let (guard, stream) = match guard.connect(&start) {
        Ok(started) => started,
        Err(error) => {
            claim.release();
            return Err(error);
        }
    };
    let (sender, mut news) = mpsc::channel(4);
    let is_over = Arc::new(AtomicBool::new(false));
    let deadline = kept.asked + kept.left;
    let keeper = Keeper { claim: claim.clone(), deadline, is_over: Arc::clone(&is_over) };
    keeper.keep_on(stream.try_clone()?, sender.clone());
    wait_for_loss(claim.clone(), sender.clone());
    listen(stream.try_clone()?, sender);
    let Heard { lost, gone, signalled, ended } = hear(&mut news, signals, &stream).await;
    if ended.is_none() {
        // TU-35: the guard was killed. The command died with it; this program is the next subreaper.
        while kill_children() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    started::wait(guard);
    is_over.store(true, Ordering::Relaxed);
    claim.release();
    if let Some(code) = signalled {
        return Ok(Ended::Signal(code));
    }
    let why = match (lost.or(gone), ended) {
        (Some(reason), _) => reason,
        (None, None) => {
            "the guard was killed, and the command with it; check its last step by its fence".to_owned()
        }
        (None, Some([0, code])) => return Ok(Ended::Code(code)),
        (None, Some(_)) => claim.ran_out(kept.limit),
    };
    output.error(&anyhow::anyhow!(why));
    Ok(Ended::Code(LOST))
}

/// The events until the guard ended.
#[derive(Default)]
struct Heard {
    lost: Option<String>,
    gone: Option<String>,
    signalled: Option<u8>,
    ended: Option<[u8; 2]>,
}

/// Handles events until the guard has ended, and sends it deadlines and signals.
async fn hear(news: &mut mpsc::Receiver<News>, signals: &mut Signals, guard: &UnixStream) -> Heard {
    let mut heard = Heard::default();
    let kill = rustix::process::Signal::KILL.as_raw().unsigned_abs().into();
    let mut kill_at = None;
    loop {
        let is_late = async {
            match kill_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            next = news.recv() => match next {
                Some(News::Ended(answer)) => {
                    heard.ended = answer;
                    return heard;
                }
                Some(News::Lost(reason)) => {
                    tell(guard, frame(END, 0, 0));
                    heard.lost.get_or_insert(reason);
                }
                Some(News::Gone(reason)) => {
                    tell(guard, frame(END, 0, 0));
                    heard.gone.get_or_insert(reason);
                }
                None => return heard,
            },
            (signal, code) = signals.next() => {
                // A second signal means: at once.
                let again = heard.signalled.replace(code).is_some();
                let signal = if again { kill } else { signal.unsigned_abs().into() };
                kill_at.get_or_insert(tokio::time::Instant::now() + GRACE);
                tell(guard, frame(SIGNAL, signal, 0));
            }
            () = is_late => {
                tell(guard, frame(SIGNAL, kill, 0));
                kill_at = Some(tokio::time::Instant::now() + GRACE);
            }
        }
    }
}

/// Keeps a turn until it is over, and presents it to an agent that was restarted.
struct Keeper<C> {
    claim: C,
    deadline: Instant,
    is_over: Arc<AtomicBool>,
}

impl<C: Claim> Keeper<C> {
    /// Keeps the turn on a thread of its own, and sends the guard every new deadline.
    fn keep_on(mut self, guard: UnixStream, news: mpsc::Sender<News>) {
        let interval = self.claim.interval();
        std::thread::spawn(move || {
            while !self.is_over.load(Ordering::Relaxed) {
                let kept = match self.claim.keep() {
                    Err(error) if is_refused(&error, "turn_lost") => {
                        self.claim.resume(self.deadline).unwrap_or(Err(error))
                    }
                    other => other,
                };
                match kept {
                    Ok(Kept { asked, left, .. }) => {
                        self.deadline = self.deadline.max(asked + left);
                        tell(&guard, frame(EXTEND, asked.as_micros(), micros(left)));
                        std::thread::sleep(interval);
                    }
                    Err(error) if is_refused(&error, "turn_lost") => {
                        // The send fails only after the command has ended.
                        let _ = news.blocking_send(News::Gone(self.claim.lost(&error.to_string())));
                        return;
                    }
                    // The agent may answer again within the validity, which the guard enforces.
                    Err(_) => std::thread::sleep(RETRY.min(interval)),
                }
            }
        });
    }
}

/// Waits for the end of the guard.
fn listen(mut guard: UnixStream, news: mpsc::Sender<News>) {
    std::thread::spawn(move || {
        use std::io::Read as _;
        let mut answer = [0; 2];
        let ended = guard.read_exact(&mut answer).is_ok().then_some(answer);
        // The send fails only while the program ends.
        let _ = news.blocking_send(News::Ended(ended));
    });
}

/// Waits for the loss of the turn, so that it is known at once.
fn wait_for_loss(claim: impl Claim, news: mpsc::Sender<News>) {
    std::thread::spawn(move || {
        if let Some(reason) = claim.wait_for_loss() {
            // The send fails only after the command has ended.
            let _ = news.blocking_send(News::Lost(reason));
        }
    });
}

/// Writes to the guard; one that has ended needs no word.
fn tell(guard: &UnixStream, frame: [u8; FRAME_BYTES]) {
    use std::io::Write as _;
    let _ = (&*guard).write_all(&frame);
}
