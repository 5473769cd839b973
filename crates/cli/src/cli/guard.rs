//! The guard: the process between `annulus lock` or `annulus token run` and its command that ends the command in time
//! (TU-33, TU-42).
//!
//! It is one thread. It holds a timer on the clock that counts sleep, set by the last deadline that came from the client.
//! Agent and client may be stopped for any time: the guard sends TERM and KILL by its own clock. It is a child subreaper, so
//! descendants that left the command's group still become its children when their parents end.
//!
//! The client starts it while the request for the turn is under way, so that the command need not wait for it. It is a copy
//! of the client, which still has one thread then. For a later turn of `token run --every` the client has more, and the
//! guard is the program started anew. The first message, [`Start`], has the deadline. A guard whose client ends before that
//! message runs nothing.

mod ready;
mod start;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

use annulus::core::Instant;
use annulus::core::turns::keeping::{self, Keeping};
use anyhow::Context as _;
use clap::Parser as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, setpgid, setsid, test_kill_process_group, wait,
};
use rustix::thread::set_name;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::output::Output;
use ready::Ready;
pub(super) use start::Start;

/// The first argument of the guard.
pub(super) const VERB: &str = "guard";

/// Runs the guard if this process is one. It starts with every command, so it is no verb of the command line: to parse all
/// verbs takes a millisecond.
pub(super) fn run_if_started() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != VERB {
        return None;
    }
    let guard = Guard::try_parse_from(std::env::args_os().skip(1)).map_err(anyhow::Error::from);
    Some(guard.and_then(Guard::run).unwrap_or_else(|error| failed(&error)).into())
}

/// Run a command until its turn is over; `annulus lock` and `annulus token run` start it.
#[derive(clap::Parser)]
#[command(name = VERB)]
struct Guard {
    /// The socket of the client.
    socket: String,
    /// The process group of the terminal, if the command stays in it.
    #[arg(long)]
    group: Option<i32>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// A frame from the client to the guard: a kind and two numbers.
pub(super) const FRAME_BYTES: usize = 17;

/// So much is left of the turn, counted from a moment.
pub(super) const EXTEND: u8 = 1;
/// The turn is lost.
pub(super) const END: u8 = 2;
/// Send this signal to the command.
pub(super) const SIGNAL: u8 = 3;

/// A frame as it travels.
pub(super) fn frame(kind: u8, first: u64, second: u64) -> [u8; FRAME_BYTES] {
    let mut bytes = [kind; FRAME_BYTES];
    bytes[1..9].copy_from_slice(&first.to_be_bytes());
    bytes[9..].copy_from_slice(&second.to_be_bytes());
    bytes
}

/// Now on the clock that counts sleep.
pub(super) fn since_boot() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    Instant::from_micros(time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000)
}

/// The interval of checks for the end of the last process of a group.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The exit code if the guard itself fails.
const FAILED: u8 = 70;

impl Guard {
    fn run(self) -> anyhow::Result<u8> {
        let name = SocketAddr::from_abstract_name(self.socket.as_bytes())?;
        let client = UnixStream::connect_addr(&name)
            .context("the guard is started by `annulus lock` and `annulus token run` only")?;
        guard(client, self.group.and_then(Pid::from_raw), &self.command)
    }
}

/// Makes a guard from a copy of this process, which need not be loaded again. `client` is what the guard must not keep, such as
/// connections: it closes them. The group is that of the terminal, if the command is to be in it.
///
/// # Errors
/// If this process has several threads.
pub(super) fn fork<T>(client: T, group: Option<Pid>, command: &[String]) -> Result<(T, Pid, UnixStream), T> {
    let Ok((own, other)) = UnixStream::pair() else { return Err(client) };
    match annulus_sys::fork() {
        Ok(None) => {
            drop((client, own));
            let code = guard(other, group, command);
            std::process::exit(code.unwrap_or_else(|error| failed(&error)).into());
        }
        Ok(Some(pid)) => match Pid::from_raw(pid) {
            Some(pid) => Ok((client, pid, own)),
            None => Err(client),
        },
        Err(_) => Err(client),
    }
}

fn failed(error: &anyhow::Error) -> u8 {
    Output::new(false).error(error);
    1
}

/// Guards a command for the client at the other end of this connection; the exit code.
fn guard(client: UnixStream, group: Option<Pid>, command: &[String]) -> anyhow::Result<u8> {
    // A signal to all processes of the client's name is not for its guard.
    set_name(c"annulus-guard").context("cannot take a name")?;
    set_child_subreaper(Some(getpid())).context("cannot become a subreaper")?;
    match group {
        // A signal of the terminal is for the command and the client.
        Some(_) => setpgid(None, None).context("cannot leave the group")?,
        None => drop(setsid().context("cannot leave the session")?),
    }
    let (ready, mut client) = Ready::fork(group, command, client)?;
    let pid = ready.pid();
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut running = Running { pid, in_group: group.is_none(), code: None };
    let Ok(start) = Start::read(&mut client) else {
        // The turn did not come, or its client is gone.
        running.kill_all();
        return Ok(0);
    };
    let keeping = start.keeping();
    if !keeping.is_valid(since_boot()) {
        // The guard was started too late: nothing may begin any more.
        running.kill_all();
        client.write_all(&[u8::from(true), FAILED])?;
        return Ok(FAILED);
    }
    set_timer(timer.as_fd(), keeping.next())?;
    ready.go(&start, timer.as_fd());
    // A guard that waits for its pages to be read from a disk may be late; without the right to lock them it can be. To lock
    // them takes milliseconds, so the command begins first.
    let _ = mlockall(MlockAllFlags::CURRENT);
    let was_ended = guard_command(&mut client, timer.as_fd(), ended.as_fd(), keeping, &mut running)?;
    let code = running.code.unwrap_or(FAILED);
    // A client that is gone needs no answer.
    let _ = client.write_all(&[u8::from(was_ended), code]);
    Ok(code)
}

/// Waits for the end of the command, of the client, or of the turn. Returns whether the turn ended first.
fn guard_command(
    client: &mut UnixStream,
    timer: rustix::fd::BorrowedFd<'_>,
    ended: rustix::fd::BorrowedFd<'_>,
    mut keeping: Keeping,
    running: &mut Running,
) -> anyhow::Result<bool> {
    let (mut has_client, mut was_ended) = (true, false);
    loop {
        match keeping.signal(since_boot()) {
            Some(keeping::Signal::Term) => {
                was_ended = true;
                running.send(Signal::TERM);
            }
            Some(keeping::Signal::Kill) => {
                running.kill_all();
                return Ok(true);
            }
            None => {}
        }
        let has_children = running.reap();
        // A turn that is over ends every descendant, also one that has left the group of a command that obeyed TERM.
        if running.is_over() && !(was_ended && has_children) {
            return Ok(was_ended);
        }
        set_timer(timer, keeping.next())?;
        let socket = client.as_fd();
        let mut fds = [
            PollFd::from_borrowed_fd(timer, PollFlags::IN),
            PollFd::from_borrowed_fd(ended, PollFlags::IN),
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
        ];
        // The command has ended, but its group has not. The kernel does not report the end of a group, so this polls.
        let has_ended = running.code.is_some();
        if has_ended {
            fds[1] = PollFd::from_borrowed_fd(timer, PollFlags::IN);
        }
        let watched = if has_client { &mut fds[..] } else { &mut fds[..2] };
        match poll(watched, has_ended.then_some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if has_client && !fds[2].revents().is_empty() {
            let mut frame = [0; FRAME_BYTES];
            if client.read_exact(&mut frame).is_ok() {
                if heed(&frame, &mut keeping, running) {
                    running.kill_all();
                    return Ok(was_ended);
                }
            } else {
                // TU-35: the client is gone and no longer keeps the turn.
                has_client = false;
                keeping.end(since_boot());
            }
        }
    }
}

/// Handles a frame of the client; returns whether it is to kill the command.
fn heed(frame: &[u8; FRAME_BYTES], keeping: &mut Keeping, running: &Running) -> bool {
    let number = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap_or_default());
    match frame[0] {
        EXTEND => keeping.extend(Instant::from_micros(number(1)), Duration::from_micros(number(9))),
        END => keeping.end(since_boot()),
        SIGNAL => {
            let signal = i32::try_from(number(1)).ok().and_then(Signal::from_named_raw);
            signal.into_iter().for_each(|signal| running.send(signal));
            return signal == Some(Signal::KILL);
        }
        _ => {}
    }
    false
}

fn set_timer(timer: rustix::fd::BorrowedFd<'_>, at: Option<Instant>) -> anyhow::Result<()> {
    // A timer at zero is off; one in the past fires at once.
    let micros = at.map_or(0, |at| at.as_micros().max(1));
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Timespec { tv_sec: (micros / 1_000_000) as i64, tv_nsec: (micros % 1_000_000) as i64 * 1000 };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: value })?;
    Ok(())
}

/// The command and its descendants.
struct Running {
    pid: Pid,
    in_group: bool,
    code: Option<u8>,
}

impl Running {
    fn send(&self, signal: Signal) {
        // A process that has ended already needs no signal.
        let _ =
            if self.in_group { kill_process_group(self.pid, signal) } else { kill_process(self.pid, signal) };
    }

    /// Collects children that have ended.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    let signal = status.terminating_signal().map(|signal| 128 + signal);
                    let code = status.exit_status().or(signal).and_then(|code| u8::try_from(code).ok());
                    self.code = Some(code.unwrap_or(FAILED));
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Whether the command has ended, with everything that stayed in its group.
    fn is_over(&self) -> bool {
        self.code.is_some() && !(self.in_group && test_kill_process_group(self.pid).is_ok())
    }

    /// Kills the group and every descendant, until none is left.
    fn kill_all(&mut self) {
        loop {
            self.send(Signal::KILL);
            self.reap();
            if !kill_children() {
                return;
            }
            // A killed process takes a moment to end.
            let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 500_000 }));
        }
    }
}

/// Kills all children of this process and collects those that have ended. Orphans of the command become children of its
/// subreaper. Returns whether any is left.
pub(super) fn kill_children() -> bool {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let children = std::fs::read_to_string(path).unwrap_or_default();
    for pid in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        // A process that has ended already needs no signal.
        let _ = kill_process(pid, Signal::KILL);
    }
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
