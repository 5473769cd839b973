//! A command and all it starts: one process group, which ends as one.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, kill_process, kill_process_group, test_kill_process_group};
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};
use tokio::time::sleep;

pub(super) use rustix::process::Signal;

/// How often is looked whether the last process of a group has ended: nobody tells us of those that are not our children.
const LOOK: Duration = Duration::from_millis(20);

/// The exit code of something that ended by a signal, as shells have it.
pub(super) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// How a command ended.
pub(super) struct Outcome(ExitStatus);

impl Outcome {
    /// The exit code that tells of it.
    pub(super) fn code(&self) -> u8 {
        let signal = self.0.signal().map(|signal| 128 + signal);
        self.0.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}

/// A running command.
pub(super) struct Group {
    child: Child,
    pid: Pid,
    ended: Caught,
    foreground: bool,
}

impl Group {
    /// Starts it, in a group of its own unless it is to stay in ours.
    pub(super) fn start(command: &[String], fence: u64, foreground: bool) -> std::io::Result<Self> {
        // Before the start: the end of a quick command must not be missed.
        let ended = signal(SignalKind::child())?;
        let mut runner = guarded(command);
        runner.env("ANNULUS_FENCE", fence.to_string());
        if !foreground {
            runner.process_group(0);
        }
        let child = runner.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid, ended, foreground })
    }

    /// Sends a signal to all of it; who has ended already needs none.
    pub(super) fn send(&self, signal: Signal) {
        let _ = if self.foreground {
            kill_process(self.pid, signal)
        } else {
            kill_process_group(self.pid, signal)
        };
    }

    /// Waits for the command itself.
    pub(super) async fn ended(&mut self) -> anyhow::Result<Outcome> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Outcome(status));
            }
            self.ended.recv().await;
        }
    }

    /// Waits for the command and for everything it started that stayed in its group.
    pub(super) async fn vanished(&mut self) -> anyhow::Result<Outcome> {
        let outcome = self.ended().await?;
        while !self.foreground && test_kill_process_group(self.pid).is_ok() {
            sleep(LOOK).await;
        }
        Ok(outcome)
    }
}

/// The command, by way of a small program that makes it die with us.
#[cfg(target_os = "linux")]
fn guarded(command: &[String]) -> Command {
    // Not by its name: the file may have been replaced meanwhile.
    let mut runner = Command::new("/proc/self/exe");
    runner.args(["token", "die-with", &std::process::id().to_string(), "--"]).args(command);
    runner
}

#[cfg(not(target_os = "linux"))]
fn guarded(command: &[String]) -> Command {
    let mut runner = Command::new(&command[0]);
    runner.args(&command[1..]);
    runner
}

/// Becomes a command that is killed when the process `parent` ends. It returns only if that cannot be.
#[cfg(target_os = "linux")]
pub(super) fn become_guarded(parent: u32, command: &[String]) -> anyhow::Error {
    use rustix::process::{getppid, set_parent_process_death_signal};
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    let ours = getppid().is_some_and(|pid| u32::try_from(pid.as_raw_pid()) == Ok(parent));
    if set.is_err() || !ours {
        return anyhow::anyhow!("this is started by `annulus token run` only");
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    anyhow::Error::from(error).context(format!("cannot run {:?}; check its name and PATH", command[0]))
}
