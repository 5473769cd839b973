//! Instructions, as callgrind counts them.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use clap::ValueEnum;

use super::Side;

/// Pings of the shorter and of the longer run.
const PINGS: (u32, u32) = (2_000, 6_000);

/// Instructions from a ping that comes in to the answer that goes out.
pub(super) fn per_ping(side: Side, members: u32) -> anyhow::Result<f64> {
    let few = instructions(side, members, PINGS.0)?;
    let many = instructions(side, members, PINGS.1)?;
    Ok((many as f64 - few as f64) / f64::from(PINGS.1 - PINGS.0))
}

fn instructions(side: Side, members: u32, pings: u32) -> anyhow::Result<u64> {
    let name = side.to_possible_value().context("every side has a name")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["members", "--answer-as", name.get_name()])
        .args(["--members", &members.to_string(), "--pings", &pings.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("valgrind counts the instructions and is not there: install the package `valgrind`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed:\n{said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let collected = collected.and_then(|(_, number)| number.trim().parse().ok());
    collected.with_context(|| format!("callgrind told no count:\n{said}"))
}
