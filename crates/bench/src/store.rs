//! Durable writes: redb against fjall, each in a process of its own so that its memory can be measured.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cpu::{self, median};
use crate::table::Table;

/// The cache of the database, the same in both.
const CACHE_BYTES: usize = 1024 * 1024;
/// Values written with one sync.
const GROUP: usize = 8;
/// Keys in use; each is written several times.
const KEYS: usize = 256;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Run one engine in this process and print its results.
    #[arg(long, requires = "bytes", hide = true)]
    engine: Option<Engine>,
    /// The size of a value.
    #[arg(long, hide = true)]
    bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    Redb,
    Fjall,
}

/// The figures of one run.
#[derive(Debug, Deserialize, Serialize)]
struct Outcome {
    micros_median: f64,
    micros_p99: f64,
    mebibytes_per_second: f64,
    cpu_micros: f64,
    file_mebibytes: f64,
    resident_mebibytes: f64,
    peak_mebibytes: f64,
}

/// Compares them; `None` if this is the process of one.
pub(crate) fn run(args: &Args) -> anyhow::Result<Option<Table>> {
    if let (Some(engine), Some(bytes)) = (args.engine, args.bytes) {
        print(&measure(engine, bytes)?)?;
        return Ok(None);
    }
    let mut rows = Vec::new();
    for bytes in [200, 4096, 256 * 1024] {
        let engines = [Engine::Redb, Engine::Fjall];
        let mut outcomes = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (engine, outcomes) in engines.iter().zip(&mut outcomes) {
                outcomes.push(child(*engine, bytes)?);
            }
        }
        for (engine, outcomes) in engines.iter().zip(&outcomes) {
            let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
            rows.push(vec![
                bytes.to_string(),
                format!("{engine:?}").to_lowercase(),
                format!("{:.0}", middle(|o| o.micros_median)),
                format!("{:.0}", middle(|o| o.micros_p99)),
                format!("{:.2}", middle(|o| o.mebibytes_per_second)),
                format!("{:.0}", middle(|o| o.cpu_micros)),
                format!("{:.1}", middle(|o| o.file_mebibytes)),
                format!("{:.1}", middle(|o| o.resident_mebibytes)),
                format!("{:.1}", middle(|o| o.peak_mebibytes)),
            ]);
        }
    }
    Ok(Some(Table {
        bench: "store",
        setup: format!(
            "{} rounds, in turns, medians; groups of {GROUP} values over {KEYS} keys, one sync for each group; \
             cache {} MiB",
            args.rounds,
            CACHE_BYTES / 1024 / 1024
        ),
        columns: vec![
            "bytes",
            "engine",
            "us/group",
            "p99",
            "MiB/s",
            "CPU us/group",
            "files MiB",
            "RSS MiB",
            "peak MiB",
        ],
        rows,
    }))
}

fn child(engine: Engine, bytes: usize) -> anyhow::Result<Outcome> {
    let name = format!("{engine:?}").to_lowercase();
    let output = Command::new(std::env::current_exe()?)
        .args(["store", "--engine", &name, "--bytes", &bytes.to_string()])
        .output()?;
    anyhow::ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} said something else"))
}

#[expect(clippy::print_stdout, reason = "the other process reads it")]
fn print(outcome: &Outcome) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// A group of writes, made safe.
type Write<'a> = Box<dyn FnMut(&[(Vec<u8>, Vec<u8>)]) -> anyhow::Result<()> + 'a>;

fn measure(engine: Engine, bytes: usize) -> anyhow::Result<Outcome> {
    let directory = tempfile::tempdir_in(".")?;
    match engine {
        Engine::Redb => {
            let mut builder = redb::Database::builder();
            let database = builder.set_cache_size(CACHE_BYTES).create(directory.path().join("bench.redb"))?;
            let table = redb::TableDefinition::<&[u8], &[u8]>::new("0/bench");
            let write = |group: &[(Vec<u8>, Vec<u8>)]| {
                let transaction = database.begin_write()?;
                let mut open = transaction.open_table(table)?;
                for (key, value) in group {
                    open.insert(key.as_slice(), value.as_slice())?;
                }
                drop(open);
                Ok(transaction.commit()?)
            };
            drive(Box::new(write), bytes, directory.path())
        }
        Engine::Fjall => {
            let database = fjall::Database::builder(directory.path())
                .cache_size(CACHE_BYTES as u64)
                .worker_threads(1)
                .open()?;
            // The least that its documentation recommends; the default of 64 MiB would not be fair.
            let options = || fjall::KeyspaceCreateOptions::default().max_memtable_size(8 * 1024 * 1024);
            let space = database.keyspace("bench", options)?;
            let write = |group: &[(Vec<u8>, Vec<u8>)]| {
                let mut batch = database.batch().durability(Some(fjall::PersistMode::SyncData));
                for (key, value) in group {
                    batch.insert(&space, key.as_slice(), value.as_slice());
                }
                Ok(batch.commit()?)
            };
            drive(Box::new(write), bytes, directory.path())
        }
    }
}

fn drive(mut write: Write<'_>, bytes: usize, directory: &Path) -> anyhow::Result<Outcome> {
    // Enough for the memory to show; not so much that it takes all day.
    let groups = if bytes > 100_000 { 60 } else { 400 };
    let mut times = Vec::new();
    let (start, cpu) = (Instant::now(), cpu::of_process());
    for number in 0..groups {
        let group: Vec<_> = (0..GROUP)
            .map(|n| {
                let index = (number * GROUP + n) * 97 % KEYS;
                (format!("key {index:08}").into_bytes(), value(number * GROUP + n, bytes))
            })
            .collect();
        let before = Instant::now();
        write(&group)?;
        times.push(before.elapsed());
    }
    let (elapsed, cpu) = (start.elapsed(), cpu::of_process() - cpu);
    times.sort_unstable();
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let (resident, peak) = cpu::resident_kib()?;
    Ok(Outcome {
        micros_median: micros(times[times.len() / 2]),
        micros_p99: micros(times[times.len() * 99 / 100]),
        mebibytes_per_second: (groups * GROUP * bytes) as f64 / 1024.0 / 1024.0 / elapsed.as_secs_f64(),
        cpu_micros: micros(cpu) / groups as f64,
        file_mebibytes: size(directory)? as f64 / 1024.0 / 1024.0,
        resident_mebibytes: resident as f64 / 1024.0,
        peak_mebibytes: peak as f64 / 1024.0,
    })
}

/// Bytes that no engine can compress.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(bytes)
    .collect()
}

fn size(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { size(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}
