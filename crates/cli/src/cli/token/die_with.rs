//! The small program between a guard and its command: it asks the system to kill the command when the guard ends.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Becomes a command that is killed when the process `parent` ends. It returns only if that cannot be: the error and the exit
/// code, as shells have it.
pub(super) fn become_guarded(parent: u32, command: &[String]) -> (anyhow::Error, u8) {
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    let ours = getppid().is_some_and(|pid| u32::try_from(pid.as_raw_pid()) == Ok(parent));
    if set.is_err() || !ours {
        return (anyhow::anyhow!("this is started by `annulus token run` and `annulus lock` only"), 126);
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    (
        anyhow::Error::from(error).context(format!("cannot run {:?}; check its name and PATH", command[0])),
        code,
    )
}
