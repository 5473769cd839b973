//! The time of a join, beside its lower bound: a connection and a round trip for each node on its path.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use annulus_core::{Id, Rng};
use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::NODES;
use super::loopback::{Ring, config, join};
use crate::cpu::median;
use crate::table::Table;

/// Lets a 16th node join a ring of 15 and leave it again, `rounds` times.
pub(super) async fn run(rounds: usize) -> anyhow::Result<Table> {
    let ring = Ring::start(NODES - 1).await?;
    let echo = echo().await?;
    let mut rng = Rng::from_number(8, 0);
    let ids = ring.ids();
    let (mut joins, mut bares, mut ratios, mut ways) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let id = Id::new(rng.next_u128());
        let owner = id.closest(ids.iter().copied()).context("there are nodes")?;
        // The join goes to the first node, and if that is not the owner of the joiner's id, on to the owner.
        let way = if owner == ids[0] { 1 } else { 2 };
        let start = Instant::now();
        let node = join(config(NODES - 1, id)).await?;
        let took = start.elapsed().as_secs_f64();
        node.stop().await;
        // The others notice that it is gone.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        for _ in 0..way {
            round_trip(echo).await?;
        }
        let bare = start.elapsed().as_secs_f64();
        joins.push(took * 1e6);
        bares.push(bare * 1e6);
        ratios.push(took / bare);
        ways.push(f64::from(way));
    }
    Ok(Table {
        bench: "route, join",
        setup: format!(
            "the {NODES}th node into a ring of {} on loopback, until it is active; {rounds} rounds; medians",
            NODES - 1
        ),
        columns: vec!["nodes on the way", "connect + round trip each, µs", "join, µs", "times"],
        rows: vec![vec![
            format!("{:.0}", median(ways)),
            format!("{:.0}", median(bares)),
            format!("{:.0}", median(joins)),
            format!("{:.1}", median(ratios)),
        ]],
    })
}

async fn echo() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut byte = [0; 1];
            if stream.read_exact(&mut byte).await.is_ok() {
                // The caller may be gone.
                let _ = stream.write_all(&byte).await;
            }
        }
    });
    Ok(addr)
}

async fn round_trip(to: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&[1]).await?;
    stream.read_exact(&mut [0; 1]).await?;
    Ok(())
}
