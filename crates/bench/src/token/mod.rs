//! Passes per second round a ring: driver and machine against a bare ring that sends the same bytes.
//!
//! Both have one thread for all nodes and a new connection for every hop, with TP1, TP3 and TP5. Neither has a pace or
//! a random drop. Both rings run alternately for a few seconds each, so that a noisy machine is noisy for both. Every
//! run has its own addresses, because the ports of the last one are not free yet.

mod bare;
mod ring;

use std::time::Duration;

use annulus_core::jitterbug::Ledger;

use crate::cpu::median;
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 9)]
    rounds: u8,
    /// Seconds of a round.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Nodes of a ring.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=50))]
    nodes: u8,
}

/// The number of bytes in the token.
pub(super) const DATA_BYTES: usize = 100;

/// The speed of a ring.
pub(super) struct Speed {
    /// Passes in a second.
    pub(super) passes: f64,
    /// CPU time of each, in microseconds.
    pub(super) cpu_micros: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let time = Duration::from_secs(args.seconds);
    let mut figures: [Vec<Speed>; 3] = Default::default();
    for round in 0..=args.rounds {
        let turns = [
            bare::speed(args.nodes, time)?,
            ring::speed(args.nodes, time, (round, 1), || ring::Hundred)?,
            ring::speed(args.nodes, time, (round, 2), Ledger::new)?,
        ];
        // The first round warms up.
        if round > 0 {
            figures.iter_mut().zip(turns).for_each(|(all, one)| all.push(one));
        }
    }
    let names = ["bare tokio", "driver + machine, 100 bytes", "driver + machine, shipped application"];
    let rows = names.iter().zip(&figures).map(|(name, speeds)| {
        let ratios = speeds.iter().zip(&figures[0]).map(|(own, bare)| own.passes / bare.passes);
        vec![
            (*name).to_owned(),
            format!("{:.0}", median(speeds.iter().map(|speed| speed.passes).collect())),
            format!("{:.1}", median(speeds.iter().map(|speed| speed.cpu_micros).collect())),
            format!("{:.2}", median(ratios.collect())),
        ]
    });
    Ok(Table {
        bench: "token",
        setup: format!(
            "{} rounds of {} s each, in turns; medians; {} nodes on one thread, {DATA_BYTES} bytes of data, no pace, no \
             random drop",
            args.rounds, args.seconds, args.nodes
        ),
        columns: vec!["ring", "passes/s", "CPU us/pass", "ratio"],
        rows: rows.collect(),
    })
}

/// Runs a ring on a thread of its own and a runtime of one thread.
fn alone<T: Send + 'static>(
    ring: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ring)
    });
    thread.join().map_err(|_| anyhow::anyhow!("the ring panicked"))?
}
