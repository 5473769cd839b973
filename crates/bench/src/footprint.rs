//! The footprint of an idle agent, as one of many members and with all services, beside Serf's if it is installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::table::Table;

/// The longest time for the members to know each other.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many members the measured agent has, itself among them.
    #[arg(long, default_value_t = 50)]
    members: u8,
    /// How long the agents are left alone, and then measured.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The program to measure [default: `annulus` beside this one].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Agents that end with the measurement.
struct Agents(Vec<Child>);

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &mut self.0 {
            // If it has ended already there is nothing to end.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// The program under test, and how its agents are started.
enum Side {
    Annulus,
    Serf,
}

impl Side {
    const fn name(&self) -> &'static str {
        match self {
            Self::Annulus => "annulus agent, all services",
            Self::Serf => "serf agent",
        }
    }

    fn ip(&self, number: u8) -> String {
        let block = if matches!(self, Self::Annulus) { 1 } else { 2 };
        format!("127.99.{block}.{number}")
    }

    /// The address at which an agent answers as soon as it is up.
    fn api(&self, number: u8) -> anyhow::Result<SocketAddr> {
        Ok(format!("{}:7373", self.ip(number)).parse()?)
    }

    fn start(&self, program: &Path, dir: &Path, number: u8) -> anyhow::Result<Child> {
        let (ip, seed) = (self.ip(number), self.ip(1));
        let mut command = Command::new(program);
        match self {
            Self::Annulus => {
                let (name, data) = (format!("agent{number}"), dir.join(number.to_string()));
                command.args(["agent", "--name", &name, "--bind", &ip, "--data-dir"]).arg(data);
                command.args(["--set", "token.udp_port=30991", "--join", &format!("{seed}:7946")]);
            }
            Self::Serf => {
                let (bind, rpc) = (format!("-bind={ip}"), format!("-rpc-addr={ip}:7373"));
                command.args(["agent", &bind, &rpc, &format!("-node=agent{number}")]);
                command.arg(format!("-snapshot={}", dir.join(number.to_string()).display()));
                if number > 1 {
                    command.arg(format!("-retry-join={seed}"));
                }
            }
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.with_context(|| format!("cannot start {}", self.name()))
    }

    /// How many live members the first agent lists.
    fn members(&self, program: &Path) -> anyhow::Result<usize> {
        let api = self.api(1)?.to_string();
        let listed = match self {
            Self::Annulus => Command::new(program).args(["members", "--agent", &api]).output()?,
            Self::Serf => {
                let rpc = format!("-rpc-addr={api}");
                Command::new(program).args(["members", "-status=alive", &rpc]).output()?
            }
        };
        Ok(String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.contains("agent")).count())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let own = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("annulus"),
    };
    ensure!(own.exists(), "{} is not there: build it with `cargo build --release`", own.display());
    let mut rows = vec![measure(&Side::Annulus, &own, args)?];
    if let Some(serf) = installed("serf") {
        rows.push(measure(&Side::Serf, &serf, args)?);
    }
    Ok(Table {
        bench: "footprint",
        setup: format!(
            "one of {} agents on loopback that nobody asks anything, {} s after all know each other; start: from the \
             start of the process until its API answers, alone on the machine",
            args.members, args.seconds
        ),
        columns: vec!["program", "binary MB", "start ms", "resident MB", "CPU %", "threads"],
        rows,
    })
}

/// Runs an idle group of agents, and reads the footprint of the first one.
fn measure(side: &Side, program: &Path, args: &Args) -> anyhow::Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let begin = Instant::now();
    let mut agents = Agents(vec![side.start(program, dir.path(), 1)?]);
    wait_for(side.api(1)?).with_context(|| format!("{} did not start", side.name()))?;
    let start = begin.elapsed();
    for number in 2..=args.members {
        agents.0.push(side.start(program, dir.path(), number)?);
        wait_for(side.api(number)?)?;
    }
    let begin = Instant::now();
    while side.members(program)? < usize::from(args.members) {
        ensure!(begin.elapsed() < TIMEOUT, "{}: not all members are known", side.name());
        std::thread::sleep(Duration::from_millis(500));
    }
    let idle = Duration::from_secs(args.seconds);
    std::thread::sleep(idle);
    let process = agents.0[0].id();
    let before = cpu(process)?;
    std::thread::sleep(idle);
    let used = cpu(process)?.saturating_sub(before);
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |field: &str| -> anyhow::Result<f64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(field)).context("the system does not tell")?;
        Ok(line.trim_start_matches(':').split_whitespace().next().unwrap_or_default().parse()?)
    };
    Ok(vec![
        side.name().into(),
        format!("{:.1}", std::fs::metadata(program)?.len() as f64 / 1e6),
        format!("{:.0}", start.as_secs_f64() * 1000.0),
        format!("{:.1}", field("VmRSS")? * 1024.0 / 1e6),
        format!("{:.2}", 100.0 * used.as_secs_f64() / idle.as_secs_f64()),
        format!("{:.0}", field("Threads")?),
    ])
}

/// The CPU time of all threads of a process so far, to the nanosecond.
fn cpu(process: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end while this reads.
        if let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) {
            nanos += text.split_whitespace().next().context("schedstat is empty")?.parse::<u64>()?;
        }
    }
    Ok(Duration::from_nanos(nanos))
}

fn wait_for(addr: SocketAddr) -> anyhow::Result<()> {
    let begin = Instant::now();
    while std::net::TcpStream::connect(addr).is_err() {
        ensure!(begin.elapsed() < Duration::from_secs(30), "nobody listens on {addr}");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
