//! Messages from one peer to another through a node, over loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annulus_core::w3w::{Config, Here, Mesh, Message, Nid, TCP, encode_message, here_frame};
use annulus_core::wire::Writer;
use annulus_net::{Options, Store, spawn};
use anyhow::Context;
use tokio::sync::oneshot;

use super::noise;
use crate::cpu;

pub(super) const MESSAGE_BYTES: usize = 64 * 1024;
/// The identity of the node.
const UUID: [u8; 16] = [7; 16];
/// The most that a source gets rid of to a peer that reads nothing before it is held back.
const STUCK: Duration = Duration::from_secs(3);

/// A node on a thread of its own.
pub(super) struct Relay {
    at: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    _directory: tempfile::TempDir,
}

impl Relay {
    /// Its address in the mesh.
    pub(super) fn nid() -> Nid {
        Nid::from_uuid(UUID)
    }

    pub(super) fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir_in(".")?;
        let file = directory.path().join("mesh.redb");
        let (bound, at) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let config =
                    Config { uuid: UUID, bind: "127.0.0.1:0".parse()?, peers_min: 1, ..Config::default() };
                let node = spawn(Mesh::new(&config, [7; 32])?, Options::with_store(Store::File(file)))?;
                bound.send(node.bound().listener(TCP).context("it listens")?)?;
                // It fails only if the other end is gone: then it is the end too.
                let _ = ended.await;
                node.stop().await;
                Ok(())
            })
        })?;
        let at = at.recv().context("the node did not start")?;
        Ok(Self { at, end: Some(end), thread: Some(thread), _directory: directory })
    }

    /// A peer of it, by its number.
    pub(super) fn peer(&self, number: u8) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.at)?;
        stream.set_nodelay(true)?;
        stream.write_all(&here_frame(&here(number)))?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body)?;
        Ok(stream)
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.end.take().map(|end| end.send(()));
        let thread = self.thread.take().context("it is stopped once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the node panicked"))?
    }
}

pub(super) fn here(number: u8) -> Here {
    Here { nid: nid(number), at: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, number), 22_000) }
}

pub(super) fn nid(number: u8) -> Nid {
    Nid::from_bytes([number; 32])
}

/// Frames of messages from one peer to another, each different.
fn frames(mebibytes: usize, to: u8) -> Vec<Vec<u8>> {
    let count = mebibytes * 1024 * 1024 / MESSAGE_BYTES;
    let frame = |number: usize| {
        let message = Message::new(nid(2), nid(to), &noise(number as u64, MESSAGE_BYTES));
        let mut bytes = Vec::with_capacity(MESSAGE_BYTES + 256);
        encode_message(&message, &mut Writer::new(&mut bytes, MESSAGE_BYTES + 256));
        bytes
    };
    (0..count).map(frame).collect()
}

/// Megabytes per second through a node that saves each message, without a sync, before it passes it on.
pub(super) fn mesh(mebibytes: usize) -> anyhow::Result<f64> {
    let relay = Relay::start()?;
    let (source, sink) = (relay.peer(2)?, relay.peer(3)?);
    let rate = transfer(source, sink, frames(mebibytes, 3))?;
    relay.stop()?;
    Ok(rate)
}

/// The same bytes through a relay that does nothing but read and write.
pub(super) fn bare(mebibytes: usize) -> anyhow::Result<f64> {
    let (entry, exit) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let (from, to) = (entry.local_addr()?, exit.local_addr()?);
    let source = TcpStream::connect(from)?;
    let inside = entry.accept()?.0;
    let outside = TcpStream::connect(to)?;
    let sink = exit.accept()?.0;
    for stream in [&source, &inside, &outside, &sink] {
        stream.set_nodelay(true)?;
    }
    let thread = std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            inside.set_nonblocking(true)?;
            outside.set_nonblocking(true)?;
            let mut from =
                tokio::io::BufReader::with_capacity(MESSAGE_BYTES, tokio::net::TcpStream::from_std(inside)?);
            let mut to = tokio::net::TcpStream::from_std(outside)?;
            tokio::io::copy_buf(&mut from, &mut to).await?;
            Ok(())
        })
    });
    let rate = transfer(source, sink, frames(mebibytes, 3))?;
    thread.join().map_err(|_| anyhow::anyhow!("the relay panicked"))??;
    Ok(rate)
}

/// Writes all frames at one end and reads as many bytes at the other.
fn transfer(mut source: TcpStream, mut sink: TcpStream, frames: Vec<Vec<u8>>) -> anyhow::Result<f64> {
    let total: usize = frames.iter().map(Vec::len).sum();
    let begin = Instant::now();
    let writer = std::thread::spawn(move || -> std::io::Result<TcpStream> {
        frames.iter().try_for_each(|frame| source.write_all(frame))?;
        Ok(source)
    });
    let (mut buffer, mut got) = (vec![0; 256 * 1024], 0);
    while got < total {
        match sink.read(&mut buffer)? {
            0 => anyhow::bail!("only {got} of {total} bytes came"),
            read => got += read,
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    drop(writer.join().map_err(|_| anyhow::anyhow!("the source panicked"))??);
    Ok(total as f64 / 1e6 / seconds)
}

/// The resident memory of this process after a peer that reads nothing was sent a third of the bytes, and after all of
/// them. At the first point messages in memory have reached their limit.
pub(super) fn slow_reader(mebibytes: usize) -> anyhow::Result<(u64, u64)> {
    let relay = Relay::start()?;
    // A round with a peer that reads: afterwards the node has allocated its working memory.
    let (source, sink) = (relay.peer(2)?, relay.peer(3)?);
    transfer(source, sink, frames(mebibytes / 4, 3))?;
    let mut source = relay.peer(4)?;
    let _deaf = relay.peer(5)?;
    source.set_write_timeout(Some(STUCK))?;
    let count = mebibytes * 1024 * 1024 / MESSAGE_BYTES;
    let (mut before, _) = cpu::resident_kib()?;
    for number in 0..count {
        if number == count / 3 {
            (before, _) = cpu::resident_kib()?;
        }
        let message = Message::new(nid(4), nid(5), &noise(number as u64 + 1_000_000, MESSAGE_BYTES));
        let mut frame = Vec::with_capacity(MESSAGE_BYTES + 256);
        encode_message(&message, &mut Writer::new(&mut frame, MESSAGE_BYTES + 256));
        match source.write_all(&frame) {
            // The node does not want more: that is back-pressure, and as good.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => break,
            written => written?,
        }
    }
    let (after, _) = cpu::resident_kib()?;
    relay.stop()?;
    Ok((before, after))
}
