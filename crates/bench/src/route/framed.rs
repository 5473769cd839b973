//! The limit: frames with a length on kept connections, written and acknowledged in batches, and nothing else. No routing
//! decision, no table, no receipt.

use std::collections::BTreeMap;

use annulus_core::{Id, Rng};
use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{PAYLOAD_BYTES, SENDERS, UNDER_WAY};
use crate::cpu;

const HEADER_BYTES: usize = 4;
const FRAME_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;

/// The nodes, each with a connection to every other.
pub(super) struct Echo {
    ids: Vec<Id>,
    addresses: Vec<std::net::SocketAddr>,
}

impl Echo {
    /// Starts a node for each id.
    pub(super) async fn start(ids: Vec<Id>) -> anyhow::Result<Self> {
        let mut addresses = Vec::new();
        for _ in &ids {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(acknowledge(stream));
                }
            });
        }
        Ok(Self { ids, addresses })
    }

    /// Sends so many messages; CPU nanoseconds of each.
    pub(super) async fn messages(&self, count: usize) -> anyhow::Result<f64> {
        let each = count / SENDERS;
        let mut senders = Vec::new();
        for sender in 0..SENDERS {
            senders.push(Sender::connect(self, sender).await?);
        }
        let before = cpu::of_process();
        let tasks: Vec<_> = senders.into_iter().map(|sender| tokio::spawn(sender.send(each))).collect();
        for task in tasks {
            task.await.context("a sender panicked")??;
        }
        let used = cpu::of_process() - before;
        Ok(used.as_nanos() as f64 / (each * SENDERS) as f64)
    }
}

/// One node that sends.
struct Sender {
    number: usize,
    ids: Vec<Id>,
    peers: BTreeMap<Id, (OwnedWriteHalf, Vec<u8>)>,
    acknowledged: mpsc::UnboundedReceiver<usize>,
}

impl Sender {
    async fn connect(echo: &Echo, number: usize) -> anyhow::Result<Self> {
        let (sender, acknowledged) = mpsc::unbounded_channel();
        let mut peers = BTreeMap::new();
        for (id, addr) in echo.ids.iter().zip(&echo.addresses) {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            let (reader, writer) = stream.into_split();
            tokio::spawn(count_acknowledgements(reader, sender.clone()));
            peers.insert(*id, (writer, Vec::new()));
        }
        Ok(Self { number, ids: echo.ids.clone(), peers, acknowledged })
    }

    /// Sends to random keys, as many at once as the others have under way.
    async fn send(mut self, count: usize) -> anyhow::Result<()> {
        let mut rng = Rng::from_number(7, self.number as u64);
        let own = self.ids[self.number];
        let (mut sent, mut done) = (0, 0);
        while done < count {
            while sent < count && sent - done < UNDER_WAY {
                let owner = Id::new(rng.next_u128()).closest(self.ids.iter().copied());
                let owner = owner.context("there are nodes")?;
                sent += 1;
                if owner == own {
                    done += 1;
                    continue;
                }
                let (_, queue) = self.peers.get_mut(&owner).context("the owner is a node")?;
                queue.extend_from_slice(&(PAYLOAD_BYTES as u32).to_be_bytes());
                queue.extend_from_slice(&[7; PAYLOAD_BYTES]);
            }
            for (writer, queue) in self.peers.values_mut().filter(|(_, queue)| !queue.is_empty()) {
                writer.write_all(queue).await?;
                queue.clear();
            }
            if done < sent {
                done += self.acknowledged.recv().await.context("the connections live")?;
                while let Ok(more) = self.acknowledged.try_recv() {
                    done += more;
                }
            }
        }
        Ok(())
    }
}

async fn count_acknowledgements(mut reader: OwnedReadHalf, counted: mpsc::UnboundedSender<usize>) {
    let mut count = [0; 4];
    while reader.read_exact(&mut count).await.is_ok() {
        if counted.send(u32::from_be_bytes(count) as usize).is_err() {
            return;
        }
    }
}

/// Reads frames, and acknowledges all that came together with one number.
async fn acknowledge(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; 64 * 1024];
    let mut partial = 0;
    loop {
        let read = stream.read(&mut bytes[partial..]).await?;
        if read == 0 {
            return Ok(());
        }
        let (all, mut at, mut frames) = (partial + read, 0, 0_u32);
        while all - at >= FRAME_BYTES {
            let mut header = [0; HEADER_BYTES];
            header.copy_from_slice(&bytes[at..at + HEADER_BYTES]);
            at += HEADER_BYTES + u32::from_be_bytes(header) as usize;
            frames += 1;
        }
        bytes.copy_within(at..all, 0);
        partial = all - at;
        if frames > 0 {
            stream.write_all(&frames.to_be_bytes()).await?;
        }
    }
}
