//! `members` against foca: instructions per ping, bytes on the wire, memory per member, all in memory.
//!
//! Callgrind counts the instructions. The bench runs itself under it twice for each figure, with few pings and with
//! many. The difference is the cost of the pings alone. So the figure is the same on a busy machine.

mod callgrind;
mod cluster;
mod ours;
mod peer;

use clap::ValueEnum;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::table::Table;

/// Counts every allocation of this program, for the memory per member.
#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes the cluster has of which the bytes are counted.
    #[arg(long, default_value_t = 100)]
    nodes: u32,
    /// How many seconds of virtual time the bytes are counted for.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Only answer so many pings, as this side: the run under callgrind.
    #[arg(long, value_enum, requires_all = ["members", "pings"], hide = true)]
    answer_as: Option<Side>,
    /// How many members the one that answers has.
    #[arg(long, hide = true)]
    members: Option<u32>,
    /// The number of pings.
    #[arg(long, hide = true)]
    pings: Option<u32>,
}

/// The implementation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// `annulus_core::swim`.
    Annulus,
    /// foca.
    Foca,
}

/// Memory is measured with so many members.
const MEMBERS: u32 = 10_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<Option<Table>> {
    if let (Some(side), Some(members), Some(pings)) = (args.answer_as, args.members, args.pings) {
        answer(side, members, pings);
        return Ok(None);
    }
    let mut rows = Vec::new();
    for members in [1_000, 10_000] {
        let ours = callgrind::per_ping(Side::Annulus, members)?;
        let theirs = callgrind::per_ping(Side::Foca, members)?;
        rows.push(row(
            &format!("instructions per ping answered, {members} members"),
            ours,
            Some(theirs),
            1.0,
        ));
    }
    for extras in [false, true] {
        let ours = ours::bytes_rate(args.nodes, args.seconds, extras)?;
        let theirs = cluster::bytes_rate(args.nodes, args.seconds, extras)?;
        let name = if extras { "all extras" } else { "the paper alone" };
        rows.push(row(&format!("bytes per node and second, {name}"), ours, Some(theirs), 1.5));
    }
    let (mut ours, mut theirs) = (f64::NAN, f64::NAN);
    for (figure, side) in [(&mut ours, Side::Annulus), (&mut theirs, Side::Foca)] {
        *figure = bytes_per_member(side, &[]);
    }
    rows.push(row("bytes of memory per member", ours, Some(theirs), f64::NAN));
    let meta = ours::agent_meta();
    let described = bytes_per_member(Side::Annulus, &meta);
    rows.push(row("the same, as agents describe themselves", described, None, f64::NAN));
    Ok(Some(Table {
        bench: "members",
        setup: format!(
            "bytes: {} nodes that know each other, nothing happens for {} s, probe period 1 s; memory: {MEMBERS} \
             members, each probed and heard, limit 256",
            args.nodes, args.seconds
        ),
        columns: vec!["figure", "annulus", "foca", "ratio", "limit"],
        rows,
    }))
}

fn row(name: &str, ours: f64, theirs: Option<f64>, limit: f64) -> Vec<String> {
    let number = |value: f64| format!("{value:.0}");
    vec![
        name.to_owned(),
        number(ours),
        theirs.map_or_else(|| "-".into(), number),
        theirs.map_or_else(|| "-".into(), |theirs| format!("{:.2}", ours / theirs)),
        if limit.is_nan() { "256 bytes".into() } else { format!("{limit:.1} times") },
    ]
}

/// The load that callgrind counts.
fn answer(side: Side, members: u32, pings: u32) {
    match side {
        Side::Annulus => ours::answer(members, pings),
        Side::Foca => peer::answer(members, pings),
    }
}

/// The allocated bytes per member of a node with this many members, after each has answered a probe.
fn bytes_per_member(side: Side, meta: &[u8]) -> f64 {
    let region = Region::new(COUNTED);
    let held = match side {
        Side::Annulus => ours::lived(MEMBERS, meta, || net(&region)),
        Side::Foca => peer::lived(MEMBERS, || net(&region)),
    };
    held as f64 / f64::from(MEMBERS)
}

/// Bytes that were allocated since the region began and are still.
fn net(region: &Region<'_, std::alloc::System>) -> usize {
    let stats = region.change();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}
