//! `route` beside the method of the Go implementation: a JSON object on its own TCP connection for every hop.
//!
//! `loopback.rs` has our ring, `served.rs` our ring through the library with handlers, `framed.rs` the limit: bare frames
//! on open connections. `json.rs` has the stand-in for the
//! Go implementation's transport, `join.rs` the time of a join. The routing decision has a program of its own,
//! `--bin decision`, since it counts allocations.

mod framed;
mod join;
mod json;
mod loopback;
mod served;

use crate::cpu::median;
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Messages in a round of ours.
    #[arg(long, default_value_t = 40_000)]
    messages: usize,
    /// Messages in a round of the stand-in.
    #[arg(long, default_value_t = 4_000)]
    json_messages: usize,
    /// Only our messages, once: for a profiler.
    #[arg(long, hide = true)]
    profile: bool,
}

/// Nodes in the ring.
const NODES: usize = 16;
/// Nodes that send.
const SENDERS: usize = 8;
/// Messages that each of them has under way.
const UNDER_WAY: usize = 128;
/// Bytes of a message.
const PAYLOAD_BYTES: usize = 100;

pub(crate) fn run(args: &Args) -> anyhow::Result<Vec<Table>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ring = loopback::Ring::start(NODES).await?;
        if args.profile {
            let cpu = ring.messages(args.messages).await?;
            let nothing = || vec![f64::NAN];
            return Ok(vec![messages_table(args, &nothing(), &[vec![cpu], nothing(), nothing()])]);
        }
        let others = json::Ring::start(ring.ids()).await?;
        let bare = framed::Echo::start(ring.ids()).await?;
        let served = served::Ring::start(ring.ids()).await?;
        let (mut ours, mut handled, mut theirs, mut frames) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..=args.rounds {
            let our_cpu = ring.messages(args.messages).await?;
            let their_cpu = others.messages(args.json_messages).await?;
            let frame_cpu = bare.messages(args.messages).await?;
            let served_cpu = served.messages(args.messages).await?;
            if round > 0 {
                ours.push(our_cpu);
                handled.push(served_cpu);
                theirs.push(their_cpu);
                frames.push(frame_cpu);
            }
        }
        ring.stop().await;
        served.stop().await;
        let join = join::run(args.rounds * 3).await?;
        Ok(vec![messages_table(args, &theirs, &[ours, handled, frames]), join])
    })
}

/// From CPU nanoseconds per message: those of the stand-in, and those of our rings and of bare frames.
fn messages_table(args: &Args, theirs: &[f64], others: &[Vec<f64>; 3]) -> Table {
    let names = [
        "route: acknowledged, settled in the call that delivers",
        "route: acknowledged, settled by a handler of `serve`",
        "bare frames on kept connections, acknowledged",
    ];
    let times = |cpu: &[f64]| median(cpu.iter().zip(theirs).map(|(cpu, theirs)| theirs / cpu).collect());
    let row = |name: &str, nanos: f64, ratio: f64| {
        vec![
            name.to_owned(),
            format!("{:.2}", nanos / 1000.0),
            format!("{:.0}", 1e9 / nanos),
            format!("{ratio:.1}"),
        ]
    };
    let mut rows = vec![row("a JSON object on a connection of its own", median(theirs.to_vec()), 1.0)];
    rows.extend(names.iter().zip(others).map(|(name, cpu)| row(name, median(cpu.clone()), times(cpu))));
    Table {
        bench: "route, messages",
        setup: format!(
            "{NODES} nodes on loopback, {PAYLOAD_BYTES} bytes to random keys, {SENDERS} senders with {UNDER_WAY} under \
             way each; {} rounds in turns; medians; CPU of everything, both ends and the senders",
            args.rounds
        ),
        columns: vec!["transport", "CPU µs/message", "messages/CPU-second", "times"],
        rows,
    }
}
