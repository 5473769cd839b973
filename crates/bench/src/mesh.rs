//! The mesh against its basis: durable blocks against the bare database, relaying against a bare relay, with custody and
//! without. Also its memory while a peer does not read.

mod blocks;
mod custody;
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

/// Letters of 64 KiB that a node gives to one fast peer without an answer: 8 MiB at most (CU-14).
const UNANSWERED_MAX: usize = 127;

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    let pairs = |ours: &mut dyn FnMut() -> anyhow::Result<f64>, bare: &dyn Fn() -> anyhow::Result<f64>| {
        (0..args.rounds).map(|_| Ok((bare()?, ours()?))).collect::<anyhow::Result<Vec<(f64, f64)>>>()
    };
    let blocks = pairs(&mut || blocks::mesh(args.blocks), &|| blocks::bare(args.blocks))?;
    rows.push(compared("durable 4 KB blocks per second, 128 at once; bare redb", &blocks));
    let bare = || relay::bare(args.mebibytes);
    let relayed = pairs(&mut || relay::mesh(args.mebibytes), &bare)?;
    rows.push(compared("MB/s of 64 KB messages through a node; bare tokio relay", &relayed));
    let mut shares = Vec::new();
    for (name, unanswered_max) in [
        ("MB/s of 64 KB letters in custody; bare tokio relay", usize::MAX),
        ("the same from a source with 127 letters unanswered", UNANSWERED_MAX),
    ] {
        let mut letters = || {
            let outcome = custody::mesh(args.mebibytes, unanswered_max)?;
            shares.push((outcome.letter_bytes as f64, outcome.ack_bytes as f64));
            Ok(outcome.rate)
        };
        let in_custody = pairs(&mut letters, &bare)?;
        rows.push(compared(name, &in_custody));
    }
    rows.push(compared("bytes of those letters, bytes of their verdicts", &shares));
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

/// A row: the medians of both, and the median of their ratios.
fn compared(name: &str, pairs: &[(f64, f64)]) -> Vec<String> {
    let middle = |value: fn(&(f64, f64)) -> f64| median(pairs.iter().map(value).collect());
    let (bare, ours, ratio) = (middle(|pair| pair.0), middle(|pair| pair.1), middle(|pair| pair.1 / pair.0));
    let decimals = if ratio < 0.01 { 4 } else { 2 };
    vec![name.to_owned(), format!("{bare:.0}"), format!("{ours:.0}"), format!("{ratio:.decimals$}")]
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
