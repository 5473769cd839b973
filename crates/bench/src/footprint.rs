//! The size of the program and the memory of an idle agent, beside Serf's if it is installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long an agent is left alone before its memory is read.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// An agent that ends with the measurement.
struct Idle(Child);

impl Drop for Idle {
    fn drop(&mut self) {
        // If it has ended already there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let own = std::env::current_exe()?.with_file_name("annulus");
    ensure!(own.exists(), "{} is not there: build it with `cargo build --release`", own.display());
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let data = data.to_string_lossy();
    let agent = ["agent", "--bind", "127.99.0.1", "--set", "ping.peers=127.99.0.2:7001", "--data-dir", &data];
    let mut rows = vec![measure("annulus agent", &own, &agent, "127.99.0.1:7373", args)?];
    if let Some(serf) = installed("serf") {
        let agent = ["agent", "-bind=127.99.0.3", "-rpc-addr=127.99.0.3:7373", "-node=idle"];
        rows.push(measure("serf agent", &serf, &agent, "127.99.0.3:7373", args)?);
    }
    Ok(Table {
        bench: "footprint",
        setup: format!("an agent alone for {} s; memory as the system counts it", args.seconds),
        columns: vec!["program", "binary MB", "resident MB", "threads"],
        rows,
    })
}

/// Runs one agent, leaves it alone, and reads what it uses.
fn measure(
    name: &str,
    program: &Path,
    args: &[&str],
    listens: &str,
    bench: &Args,
) -> anyhow::Result<Vec<String>> {
    let child = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let idle = Idle(child.with_context(|| format!("cannot start {name}"))?);
    wait_for(listens.parse()?).with_context(|| format!("{name} did not start"))?;
    std::thread::sleep(Duration::from_secs(bench.seconds));
    let status = std::fs::read_to_string(format!("/proc/{}/status", idle.0.id()))?;
    let field = |field: &str| -> anyhow::Result<f64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(field)).context("the system does not tell")?;
        Ok(line.trim_start_matches(':').split_whitespace().next().unwrap_or_default().parse()?)
    };
    let bytes = std::fs::metadata(program)?.len() as f64;
    Ok(vec![
        name.into(),
        format!("{:.1}", bytes / 1e6),
        format!("{:.1}", field("VmRSS")? * 1024.0 / 1e6),
        format!("{:.0}", field("Threads")?),
    ])
}

fn wait_for(addr: SocketAddr) -> anyhow::Result<()> {
    let begin = Instant::now();
    while std::net::TcpStream::connect(addr).is_err() {
        ensure!(begin.elapsed() < Duration::from_secs(30), "nobody listens on {addr}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
