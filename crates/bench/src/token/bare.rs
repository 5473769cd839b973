//! The shortest ring that tokio allows: each node forwards its input to the next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{DATA_BYTES, Speed, alone};
use crate::cpu;

const TP1: [u8; 9] = [0x21, 0x12, 0x34, 0x56, 0x78, 0x86, 0xe1, 0x6e, 0x85];
const TP3: u8 = 0x41;
const TP5: u8 = 0x61;

pub(super) fn speed(nodes: u8, time: Duration) -> anyhow::Result<Speed> {
    alone(async move {
        let mut listeners = Vec::new();
        for _ in 0..nodes {
            listeners.push(TcpListener::bind("127.0.0.1:0").await?);
        }
        let addrs: Vec<SocketAddr> =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let passes = Arc::new(AtomicU64::new(0));
        for (place, listener) in listeners.into_iter().enumerate() {
            tokio::spawn(node(listener, addrs[(place + 1) % addrs.len()], Arc::clone(&passes)));
        }
        give(addrs[0], &[7; DATA_BYTES]).await?;
        let (begin, cpu) = (Instant::now(), cpu::of_thread());
        tokio::time::sleep(time).await;
        let (took, used) = (begin.elapsed(), cpu::of_thread() - cpu);
        let passes = passes.load(Ordering::Relaxed) as f64;
        Ok(Speed { passes: passes / took.as_secs_f64(), cpu_micros: used.as_secs_f64() * 1e6 / passes })
    })
}

async fn node(listener: TcpListener, next: SocketAddr, passes: Arc<AtomicU64>) -> std::io::Result<()> {
    let mut data = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        take(&mut stream, &mut data).await?;
        drop(stream);
        passes.fetch_add(1, Ordering::Relaxed);
        give(next, &data).await?;
    }
}

/// The candidate's side.
async fn take(stream: &mut TcpStream, data: &mut Vec<u8>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut offer = [0; TP1.len()];
    stream.read_exact(&mut offer).await?;
    stream.write_all(&[TP3]).await?;
    let kind = stream.read_u8().await?;
    data.clear();
    stream.read_to_end(data).await?;
    assert!((offer, kind, data.len()) == (TP1, TP5, DATA_BYTES), "the ring carries what it was given");
    Ok(())
}

/// The leader's side.
async fn give(to: SocketAddr, data: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&TP1).await?;
    let answer = stream.read_u8().await?;
    assert!(answer == TP3, "the candidate has the list");
    let mut message = [0; DATA_BYTES + 1];
    message[0] = TP5;
    message[1..].copy_from_slice(data);
    stream.write_all(&message).await?;
    stream.shutdown().await?;
    // The candidate's FIN.
    stream.read_u8().await.map_or(Ok(()), |_| Err(std::io::ErrorKind::InvalidData.into()))
}
