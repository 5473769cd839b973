//! CPU time per datagram echoed: driver and machine against a bare tokio loop.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;

use crate::cpu::median;
use crate::server::{Kind, Server};
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of each; the middle one counts.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Datagrams in a round.
    #[arg(long, default_value_t = 20_000)]
    datagrams: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Table> {
    let (bare, driver) = (Server::start(Kind::Bare)?, Server::start(Kind::Driver)?);
    let mut rows = Vec::new();
    // One under way: every datagram wakes the server. Thirty-two: it finds several when it wakes.
    for (bytes, under_way) in [(64, 1), (64, 32), (1200, 1), (1200, 32)] {
        let (mut figures, mut ratios) = ((Vec::new(), Vec::new()), Vec::new());
        for round in 0..=args.rounds {
            let first = nanos(&bare, args.datagrams, bytes, under_way)?;
            let second = nanos(&driver, args.datagrams, bytes, under_way)?;
            if round > 0 {
                figures.0.push(first);
                figures.1.push(second);
                ratios.push(second / first);
            }
        }
        rows.push(vec![
            bytes.to_string(),
            under_way.to_string(),
            format!("{:.0}", median(figures.0)),
            format!("{:.0}", median(figures.1)),
            format!("{:.2}", median(ratios)),
        ]);
    }
    bare.stop()?;
    driver.stop()?;
    Ok(Table {
        bench: "datagram",
        setup: format!("{} rounds of {} datagrams each, in turns; medians", args.rounds, args.datagrams),
        columns: vec!["bytes", "under way", "bare tokio, CPU ns", "driver + machine, CPU ns", "ratio"],
        rows,
    })
}

/// CPU time of the server per datagram.
fn nanos(server: &Server, datagrams: usize, bytes: usize, under_way: usize) -> anyhow::Result<f64> {
    let before = server.cpu()?;
    let lost = load(server.udp, datagrams, bytes, under_way)?;
    anyhow::ensure!(
        lost * 100 <= datagrams,
        "{lost} of {datagrams} datagrams were lost: the figure means nothing"
    );
    let used = server.cpu()? - before;
    Ok(used.as_nanos() as f64 / (datagrams - lost) as f64)
}

/// Sends so many datagrams, never more than `under_way` unanswered; returns the number of lost ones.
fn load(to: SocketAddr, datagrams: usize, bytes: usize, under_way: usize) -> anyhow::Result<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("the load generator has no socket")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let payload = vec![7; bytes];
    let mut buffer = vec![0; bytes + 1];
    let (mut sent, mut done, mut lost) = (0, 0, 0);
    while done + lost < datagrams {
        while sent < datagrams && sent - done - lost < under_way {
            socket.send(&payload)?;
            sent += 1;
        }
        match socket.recv(&mut buffer) {
            Ok(_) => done += 1,
            Err(_) => lost = sent - done,
        }
    }
    Ok(lost)
}
