//! The routing decision: nanoseconds and allocations, with tables filled from 10 000 nodes.
//!
//! A program of its own, because it runs under an allocator that counts, and that would slow down the others.

#[path = "../table.rs"]
mod table;

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Instant as Clock;

use annulus_core::pastry::{
    Config, Contact, Generation, Message, Pastry, RingTag, SPACE, Step, TCP, TablesSent, Versions, encode,
};
use annulus_core::wire::Writer;
use annulus_core::{
    Action, Bound, Id, Instant, Machine, Now, Queue, Rng, StoreReply, StoreResult, StreamEvent, StreamId,
    Wall,
};
use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use table::Table;

#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[derive(Debug, Parser)]
#[command(version, about = "The routing decision: nanoseconds and allocations")]
struct Cli {
    /// Nodes that the tables are filled from.
    #[arg(long, default_value_t = 10_000)]
    nodes: u32,
    /// Decisions in a round.
    #[arg(long, default_value_t = 1_000_000)]
    decisions: usize,
    /// Rounds; the middle one counts.
    #[arg(long, default_value = "11")]
    rounds: NonZeroUsize,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    anyhow::ensure!(
        !cfg!(debug_assertions),
        "a debug build measures nothing: run it with `cargo run --release`"
    );
    let pastry = filled(cli.nodes)?;
    let mut rng = Rng::from_number(9, 0);
    let any: Vec<Id> = (0..4096).map(|_| Id::new(rng.next_u128())).collect();
    let covered = |key: &Id| pastry.leaf_set().covers(*key);
    let near: Vec<Id> = std::iter::repeat_with(|| {
        let offset = rng.next_u128() >> 13;
        Id::new(pastry.own().id.number().wrapping_add(offset).wrapping_sub(1 << 114))
    })
    .filter(covered)
    .take(4096)
    .collect();
    let mut rows = vec![
        vec!["Go, any key".into(), "6351".into(), "68".into()],
        vec!["Go, within the leaf set".into(), "5431".into(), "67".into()],
    ];
    for (name, keys) in [("annulus, any key", &any), ("annulus, within the leaf set", &near)] {
        let (nanos, allocations) = measure(&pastry, keys, &cli);
        rows.push(vec![name.into(), format!("{nanos:.1}"), allocations.to_string()]);
    }
    let table = Table {
        bench: "route, decision",
        setup: format!(
            "tables filled from {} nodes ({} cells, {} leaves); {} rounds of {} decisions; median; Go as it was measured \
             elsewhere",
            cli.nodes,
            pastry.routing_table().cells().len(),
            pastry.leaf_set().members().count(),
            cli.rounds,
            cli.decisions
        ),
        columns: vec!["decision", "ns", "allocations"],
        rows,
    };
    table.print(cli.json)
}

/// Nanoseconds of a decision, and how many allocations all of them made.
fn measure(pastry: &Pastry, keys: &[Id], cli: &Cli) -> (f64, usize) {
    let mut nanos = Vec::with_capacity(cli.rounds.get());
    let region = Region::new(COUNTED);
    for _ in 0..cli.rounds.get() {
        let start = Clock::now();
        let mut forwards = 0_u64;
        for turn in 0..cli.decisions {
            let step = pastry.decide(black_box(keys[turn % keys.len()]));
            forwards += u64::from(matches!(step, Step::Forward { .. }));
        }
        black_box(forwards);
        nanos.push(start.elapsed().as_nanos() as f64 / cli.decisions as f64);
    }
    let allocations = region.change().allocations;
    nanos.sort_by(f64::total_cmp);
    (nanos[nanos.len() / 2], allocations)
}

/// A node to which so many others have announced themselves.
fn filled(nodes: u32) -> anyhow::Result<Pastry> {
    let mut rng = Rng::from_number(10, 0);
    let config = Config { id: Id::new(rng.next_u128()), ..Config::default() };
    let ring = RingTag::new(&config.ring);
    let mut pastry = Pastry::new(config, [7; 32])?;
    let mut queue = Queue::new();
    let now = Now::new(Instant::from_micros(1), Wall::from_micros(1));
    pastry.handle_start(now, &Bound::default(), &mut queue.outbox());
    let mut op = None;
    while let Some(action) = queue.next() {
        if let Action::Store { op: asked, .. } = action {
            op = Some(asked);
        }
    }
    let op = op.ok_or_else(|| anyhow::anyhow!("it loads its incarnation from space {SPACE}"))?;
    let reply = StoreReply { op, result: StoreResult::Value(None) };
    pastry.handle_stored(now, reply, &mut queue.outbox());
    for number in 0..nodes {
        let ip = Ipv4Addr::from(0x0a00_0001 + number);
        let (id, addr) = (Id::new(rng.next_u128()), SocketAddr::from((ip, 22001)));
        let from = Contact { id, addr, generation: Generation(1) };
        let tables = TablesSent::default();
        let announce =
            Message::Announce { seen: None, wants_welcome: true, versions: Versions::default(), tables };
        let bytes = [frame(&Message::Hello { ring, from }), frame(&announce)].concat();
        let stream = StreamId::accepted(u64::from(number));
        let accepted = StreamEvent::Accepted { listener: TCP, from: addr, local: pastry.own().addr };
        for event in
            [accepted, StreamEvent::Data(&bytes), StreamEvent::Closed(annulus_core::CloseReason::Done)]
        {
            pastry.handle_stream(now, stream, event, &mut queue.outbox())?;
            while queue.next().is_some() {}
        }
    }
    Ok(pastry)
}

/// A message as it lies in a stream.
fn frame(message: &Message) -> Vec<u8> {
    let mut payload = Vec::new();
    encode(message, &mut Writer::new(&mut payload, 1 << 14));
    let mut frame = (payload.len() as u32).to_be_bytes().to_vec();
    frame.extend(payload);
    frame
}
