//! A guard that has started and waits for its first message.

use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgrp, getpid, kill_process, pidfd_open, set_child_subreaper,
    waitpid,
};

use super::guarded::Guarded;
use crate::cli::guard::{self, Start, VERB, kill_children};

/// The guard, until its turn came.
pub(super) struct Guard {
    pid: Option<Pid>,
    connection: Connection,
}

/// The connection to the guard.
enum Connection {
    /// It came with the guard.
    Open(UnixStream),
    /// The guard will call.
    Listening(UnixListener),
}

impl Guard {
    /// Starts it as a copy of this process, or if that has threads as a program. The guard closes its copy of `client`.
    pub(super) fn start<T>(run: &Guarded<'_>, client: T) -> anyhow::Result<(T, Self)> {
        set_child_subreaper(Some(getpid())).context("cannot become a subreaper")?;
        let group = run.how.foreground.then(getpgrp);
        match guard::fork(client, group, run.command) {
            Ok((client, pid, stream)) => {
                Ok((client, Self { pid: Some(pid), connection: Connection::Open(stream) }))
            }
            Err(client) => Ok((client, Self::spawn(run, group)?)),
        }
    }

    fn spawn(run: &Guarded<'_>, group: Option<Pid>) -> anyhow::Result<Self> {
        let socket = format!("annulus-guard-{}", uuid::Uuid::new_v4());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(socket.as_bytes())?)?;
        let mut guard = Command::new("/proc/self/exe");
        guard.args([VERB, &socket]);
        if let Some(group) = group {
            guard.arg(format!("--group={}", group.as_raw_nonzero()));
            guard.process_group(0);
        }
        guard.arg("--").args(run.command);
        let child = guard.spawn().context("cannot start the guard")?;
        let pid = Pid::from_child(&child);
        Ok(Self { pid: Some(pid), connection: Connection::Listening(listener) })
    }

    /// Lets the guard start the command; its process and the connection to it.
    pub(super) fn connect(mut self, start: &Start) -> anyhow::Result<(Pid, UnixStream)> {
        let pid = self.pid.context("the guard was started")?;
        let mut stream = match &self.connection {
            Connection::Open(stream) => stream.try_clone()?,
            Connection::Listening(listener) => accept(listener, pid)?,
        };
        stream.write_all(&start.to_bytes()).context("the guard does not answer")?;
        self.pid = None;
        Ok((pid, stream))
    }
}

/// Waits for the call of the guard. A guard that ends before it has called never will.
fn accept(listener: &UnixListener, guard: Pid) -> anyhow::Result<UnixStream> {
    let ended = pidfd_open(guard, PidfdFlags::empty())?;
    let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
    while let Err(error) = poll(&mut fds, None) {
        anyhow::ensure!(error == Errno::INTR, "the guard does not answer: {error}");
    }
    anyhow::ensure!(!fds[0].revents().is_empty(), "the guard ended before its command began; try again");
    let (stream, _) = listener.accept().context("the guard does not answer")?;
    Ok(stream)
}

/// Waits for the end of a guard that has reported it.
pub(super) fn wait(guard: Pid) {
    while let Err(Errno::INTR) = waitpid(Some(guard), WaitOptions::empty()) {}
}

impl Drop for Guard {
    /// Ends a guard whose turn did not come, and the process that would have become the command.
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // It may have ended already.
            let _ = kill_process(pid, Signal::KILL);
            wait(pid);
            while kill_children() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}
