//! The mesh against its basis: durable blocks against the bare database, relaying against a bare relay. Also its
//! memory while a peer does not read.

mod blocks;
mod relay;

use crate::cpu::median;
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Blocks of 4 KB in a round.
    #[arg(long, default_value_t = 4000)]
    blocks: usize,
    /// Mebibytes relayed in a round.
    #[arg(long, default_value_t = 128)]
    mebibytes: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    let mut compare = |name: &str, pairs: Vec<(f64, f64)>| {
        let (bare, ours) = (pairs.iter().map(|pair| pair.0), pairs.iter().map(|pair| pair.1));
        rows.push(vec![
            name.to_owned(),
            format!("{:.0}", median(bare.collect())),
            format!("{:.0}", median(ours.collect())),
            format!("{:.2}", median(pairs.iter().map(|pair| pair.1 / pair.0).collect())),
        ]);
    };
    let mut pairs = Vec::new();
    for _ in 0..args.rounds {
        pairs.push((blocks::bare(args.blocks)?, blocks::mesh(args.blocks)?));
    }
    compare("durable 4 KB blocks per second, 128 at once; bare redb", pairs);
    let mut pairs = Vec::new();
    for _ in 0..args.rounds {
        pairs.push((relay::bare(args.mebibytes)?, relay::mesh(args.mebibytes)?));
    }
    compare("MB/s of 64 KB messages through a node; bare tokio relay", pairs);
    let (before, after) = relay::slow_reader(args.mebibytes)?;
    rows.push(vec![
        format!(
            "resident KiB after {} and after {} MiB to a peer that reads nothing",
            args.mebibytes / 3,
            args.mebibytes
        ),
        before.to_string(),
        after.to_string(),
        format!("{:.2}", after as f64 / before as f64),
    ]);
    Ok(Table {
        bench: "mesh",
        setup: format!(
            "{} rounds in turns, medians; {} blocks and {} MiB in each; stores on disk",
            args.rounds, args.blocks, args.mebibytes
        ),
        columns: vec!["what", "bare / before", "mesh / after", "ratio"],
        rows,
    })
}

/// Bytes that differ for every number.
fn noise(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}
