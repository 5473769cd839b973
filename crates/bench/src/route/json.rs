//! The stand-in for the Go implementation's transport: for every hop a TCP connection, one JSON object with its fields,
//! and a line of answer. The steps are those of our ring: straight to the owner.

use std::net::SocketAddr;
use std::sync::Arc;

use annulus_core::{Id, Rng};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{PAYLOAD_BYTES, SENDERS, UNDER_WAY};
use crate::cpu;

const ANSWER: &[u8] = b"{\"status\": \"Received.\"}";

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Sender {
    #[serde(rename = "LocalIP")]
    local_ip: String,
    #[serde(rename = "GlobalIP")]
    global_ip: String,
    port: u16,
    region: String,
    #[serde(rename = "ID")]
    id: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    purpose: u8,
    sender: Sender,
    key: String,
    /// In hexadecimal digits, where the Go implementation has base64: a little longer, cheaper to make.
    value: String,
    credentials: Option<String>,
    #[serde(rename = "LSVersion")]
    ls_version: u64,
    #[serde(rename = "RTVersion")]
    rt_version: u64,
    #[serde(rename = "NSVersion")]
    ns_version: u64,
    hop: u32,
}

/// A running ring.
pub(super) struct Ring {
    nodes: Arc<Vec<(Id, SocketAddr)>>,
}

impl Ring {
    /// Starts a node for each id.
    pub(super) async fn start(ids: Vec<Id>) -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        for id in ids {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            nodes.push((id, listener.local_addr()?));
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(receive(stream));
                }
            });
        }
        Ok(Self { nodes: Arc::new(nodes) })
    }

    /// Sends so many messages; CPU nanoseconds of each.
    pub(super) async fn messages(&self, count: usize) -> anyhow::Result<f64> {
        let each = (count / (SENDERS * UNDER_WAY)).max(1);
        let before = cpu::of_process();
        let mut tasks = Vec::new();
        for task in 0..SENDERS * UNDER_WAY {
            let (nodes, own) = (Arc::clone(&self.nodes), self.nodes[task % SENDERS].0);
            tasks.push(tokio::spawn(async move {
                let mut rng = Rng::from_number(7, task as u64);
                for _ in 0..each {
                    let key = Id::new(rng.next_u128());
                    let owner = key.closest(nodes.iter().map(|(id, _)| *id)).context("there are nodes")?;
                    let to = nodes.iter().find(|(id, _)| *id == owner).context("the owner is a node")?.1;
                    if owner != own {
                        send(own, key, to).await?;
                    }
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await.context("a sender panicked")??;
        }
        let used = cpu::of_process() - before;
        Ok(used.as_nanos() as f64 / (each * SENDERS * UNDER_WAY) as f64)
    }
}

async fn send(own: Id, key: Id, to: SocketAddr) -> anyhow::Result<()> {
    let ip = || String::from("127.0.0.1");
    let message = Message {
        purpose: 16,
        sender: Sender {
            local_ip: ip(),
            global_ip: ip(),
            port: 1,
            region: "z".to_owned(),
            id: own.to_string(),
        },
        key: key.to_string(),
        value: hex(&[7; PAYLOAD_BYTES]),
        credentials: None,
        ls_version: 2,
        rt_version: 0,
        ns_version: 0,
        hop: 0,
    };
    let mut bytes = serde_json::to_vec(&message)?;
    bytes.push(b'\n');
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(&bytes).await?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer).await?;
    ensure!(answer == ANSWER, "another answer came");
    Ok(())
}

async fn receive(stream: TcpStream) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    let message: Message = serde_json::from_slice(&line)?;
    ensure!(unhex(&message.value).is_some_and(|value| value.len() == PAYLOAD_BYTES), "another value came");
    stream.write_all(ANSWER).await?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits =
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
