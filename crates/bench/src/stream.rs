//! CPU time per byte echoed over a stream: driver and machine against a bare tokio loop.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::cpu::median;
use crate::server::{Kind, Server};
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Mebibytes in a round.
    #[arg(long, default_value_t = 64)]
    mebibytes: usize,
}

/// How the load generator writes.
#[derive(Clone, Copy)]
enum Pattern {
    /// As fast as it can, in pieces of this size, while another thread reads.
    Bulk(usize),
    /// A piece of this size, then its echo, then the next.
    Turns(usize),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let (bare, driver) = (Server::start(Kind::Bare)?, Server::start(Kind::Driver)?);
    let mut rows = Vec::new();
    let bulk = args.mebibytes * 1024 * 1024;
    for (name, pattern, bytes) in [
        ("bulk, 64 KiB writes", Pattern::Bulk(64 * 1024), bulk),
        ("bulk, 4 KiB writes", Pattern::Bulk(4 * 1024), bulk),
        ("in turns, 1 KiB", Pattern::Turns(1024), bulk / 4),
    ] {
        let (mut figures, mut ratios) = ((Vec::new(), Vec::new()), Vec::new());
        for round in 0..=args.rounds {
            let first = nanos_per_kib(&bare, pattern, bytes)?;
            let second = nanos_per_kib(&driver, pattern, bytes)?;
            if round > 0 {
                figures.0.push(first);
                figures.1.push(second);
                ratios.push(second / first);
            }
        }
        rows.push(vec![
            name.to_owned(),
            format!("{:.0}", median(figures.0)),
            format!("{:.0}", median(figures.1)),
            format!("{:.2}", median(ratios)),
        ]);
    }
    bare.stop()?;
    driver.stop()?;
    Ok(Table {
        bench: "stream",
        setup: format!(
            "{} rounds of {} MiB each (a quarter of it in turns), in turns; medians; buffers of 64 KiB, TCP_NODELAY",
            args.rounds, args.mebibytes
        ),
        columns: vec!["load", "bare tokio, CPU ns/KiB", "driver + machine, CPU ns/KiB", "ratio"],
        rows,
    })
}

/// CPU time of the server per KiB.
fn nanos_per_kib(server: &Server, pattern: Pattern, bytes: usize) -> anyhow::Result<f64> {
    let before = server.cpu()?;
    load(server.tcp, pattern, bytes)?;
    let used = server.cpu()? - before;
    Ok(used.as_nanos() as f64 / (bytes as f64 / 1024.0))
}

/// Sends so many bytes and reads as many back.
fn load(to: SocketAddr, pattern: Pattern, bytes: usize) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    match pattern {
        Pattern::Bulk(piece) => {
            let mut writer = stream.try_clone()?;
            let writes = std::thread::spawn(move || -> std::io::Result<()> {
                let piece = vec![7; piece];
                for _ in 0..bytes / piece.len() {
                    writer.write_all(&piece)?;
                }
                writer.shutdown(Shutdown::Write)
            });
            let (mut buffer, mut got) = (vec![0; 256 * 1024], 0);
            loop {
                match stream.read(&mut buffer)? {
                    0 => break,
                    read => got += read,
                }
            }
            writes.join().map_err(|_| anyhow::anyhow!("the load generator panicked"))??;
            anyhow::ensure!(got == bytes, "{got} of {bytes} bytes came back");
        }
        Pattern::Turns(piece) => {
            let (piece, mut back) = (vec![7; piece], vec![0; piece]);
            for _ in 0..bytes / piece.len() {
                stream.write_all(&piece)?;
                stream.read_exact(&mut back)?;
            }
        }
    }
    Ok(())
}
