//! The process that becomes the command. The guard forks it while the request for the turn is under way, so that only its
//! `exec` is left when the turn comes.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use rustix::time::Timespec;

use super::{FAILED, Output, Start, since_boot};

/// The longest wait for `exec`.
const BEGIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The process, as the guard has it.
pub(super) struct Ready {
    pid: Pid,
    start: PipeWriter,
    /// It is closed when the process has become the command, or has ended.
    begun: PipeReader,
}

impl Ready {
    /// Makes the process. Its copy of the guard's connection must not outlive the guard, so it closes it.
    pub(super) fn fork(
        group: Option<Pid>,
        command: &[String],
        client: UnixStream,
    ) -> anyhow::Result<(Self, UnixStream)> {
        let (reader, start) = std::io::pipe().context("cannot start the command")?;
        let (begun, begins) = std::io::pipe().context("cannot start the command")?;
        let guard = getpid();
        let Some(pid) = annulus_sys::fork().context("cannot start the command")? else {
            drop((start, begun, client));
            // The kernel closes the end `begins` with `exec`.
            std::process::exit(become_command(guard, group, command, reader).into());
        };
        drop(begins);
        let pid = Pid::from_raw(pid).context("the command has no pid")?;
        if group.is_none() {
            // The child does the same. So the group exists before the guard sends a signal to it.
            let _ = setpgid(Some(pid), Some(pid));
        }
        Ok((Self { pid, start, begun }, client))
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the process become the command, and waits for that. The file of the command may be on a disk that hangs: then
    /// it waits for a moment, and never beyond the time of the timer.
    pub(super) fn go(mut self, start: &Start, timer: BorrowedFd<'_>) {
        // A process that was killed meanwhile is a command that has ended.
        let _ = self.start.write_all(&start.to_bytes());
        let mut fds =
            [PollFd::new(&self.begun, PollFlags::IN), PollFd::from_borrowed_fd(timer, PollFlags::IN)];
        // A signal ends the wait early, which harms nothing.
        let _ = poll(&mut fds, Some(&BEGIN));
    }
}

/// Waits for the start, and turns this process, a child of the guard, into the command. The kernel kills it when its guard
/// ends. It returns only if it cannot become the command, with an exit code as shells have it.
fn become_command(guard: Pid, group: Option<Pid>, command: &[String], mut reader: PipeReader) -> u8 {
    let own = if group.is_none() { setpgid(None, None) } else { Ok(()) };
    let prepared = own.and_then(|()| set_parent_process_death_signal(Some(Signal::KILL)));
    // A guard that ends without a start has no turn, and nothing runs.
    let Ok(start) = Start::read(&mut reader) else { return FAILED };
    // The process joins the group of the terminal only now: a signal from there would stop or end it while it waits.
    let prepared = prepared.and_then(|()| group.map_or(Ok(()), |group| setpgid(None, Some(group))));
    // A guard that ended before the death signal was set sends none.
    let is_guarded = getppid() == Some(guard) && start.keeping().is_valid(since_boot());
    let error = match (prepared, command) {
        (Err(error), _) => error.into(),
        (Ok(()), [program, args @ ..]) if is_guarded => {
            Command::new(program).args(args).envs(start.env()).exec()
        }
        (Ok(()), _) => std::io::Error::other("its guard or its turn has ended"),
    };
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    let context =
        format!("cannot run {:?}; check its name and PATH", command.first().map_or("", String::as_str));
    Output::new(false).error(&anyhow::Error::from(error).context(context));
    code
}
