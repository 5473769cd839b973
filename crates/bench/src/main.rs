//! Side-by-side runs against peers. Each bench is one file with a `run`; results are kept in `docs/benchmarks.md`.
//!
//! Both sides run in turns in one process, so that a noisy machine is noisy for both. Each is measured in CPU time of its
//! own thread, so that the load generator does not count. Absolute figures are always printed: a
//! ratio against a slow baseline is worth nothing.

mod cpu;
mod datagram;
mod echo;
mod footprint;
mod members;
mod mesh;
mod route;
mod serf;
mod server;
mod store;
mod stream;
mod table;
mod token;
mod turns;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Side-by-side runs: the driver against bare tokio, one store against another, route against JSON"
)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// CPU time per datagram echoed: driver and machine against bare tokio.
    Datagram(datagram::Args),
    /// CPU time per byte echoed over a stream: driver and machine against bare tokio.
    Stream(stream::Args),
    /// Durable writes: redb against fjall.
    Store(store::Args),
    /// Passes of a token per second: driver and machine against bare tokio.
    Token(token::Args),
    /// Exclusive turns: acquire and release, beside etcd's locks if it is installed.
    Turns(turns::Args),
    /// Routed messages and joins on loopback, against a JSON object on a TCP connection of its own.
    Route(route::Args),
    /// Durable blocks against bare redb, relaying against bare tokio, memory beside a slow reader.
    Mesh(mesh::Args),
    /// Size, start, memory and CPU of an idle agent with 50 members, beside Serf's.
    Footprint(footprint::Args),
    /// How soon a killed agent is dead and an event everywhere: real agents against Serf's, in turns.
    Serf(serf::Args),
    /// Instructions per ping, bytes on the wire, memory per member: `members` against foca.
    Members(members::Args),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    anyhow::ensure!(
        !cfg!(debug_assertions) || matches!(cli.bench, Bench::Serf(_) | Bench::Footprint(_)),
        "a debug build measures nothing: run it with `cargo run --release`"
    );
    // A bench that ran itself under another program has printed its results already.
    let tables = match cli.bench {
        Bench::Datagram(args) => vec![datagram::run(&args)?],
        Bench::Stream(args) => vec![stream::run(&args)?],
        Bench::Store(args) => store::run(&args)?.into_iter().collect(),
        Bench::Token(args) => vec![token::run(&args)?],
        Bench::Turns(args) => turns::run(&args)?,
        Bench::Route(args) => route::run(&args)?,
        Bench::Mesh(args) => vec![mesh::run(&args)?],
        Bench::Footprint(args) => vec![footprint::run(&args)?],
        Bench::Serf(args) => vec![serf::run(&args)?],
        Bench::Members(args) => members::run(&args)?.into_iter().collect(),
    };
    tables.iter().try_for_each(|table| table.print(cli.json))
}
