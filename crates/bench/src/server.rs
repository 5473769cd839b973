//! An echo server on a thread of its own, with a measurable CPU time.

use std::any::Any;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use annulus_core::turns;
use annulus_net::{Options, spawn};
use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, oneshot};

use crate::cpu;
use crate::echo::{Echo, TCP, UDP};

/// The buffer of the bare server: as large as the driver's.
const BUFFER_BYTES: usize = 64 * 1024;

/// The echo server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The shortest loop that tokio allows.
    Bare,
    /// The driver with an echo machine.
    Driver,
    /// The driver with the one voter of a group.
    Voter,
}

/// A running server.
pub(crate) struct Server {
    /// Where it takes datagrams.
    pub(crate) udp: SocketAddr,
    /// Where it takes streams.
    pub(crate) tcp: SocketAddr,
    samples: Option<mpsc::Sender<oneshot::Sender<Duration>>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Server {
    /// Starts one.
    pub(crate) fn start(kind: Kind) -> anyhow::Result<Self> {
        let (samples, asked) = mpsc::channel(1);
        let (bound, addresses) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve(kind, bound, asked))
        });
        let (udp, tcp) = addresses.recv().context("the server did not start")?;
        Ok(Self { udp, tcp, samples: Some(samples), thread: Some(thread) })
    }

    /// The CPU time that its thread has used so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let (reply, answer) = oneshot::channel();
        let samples = self.samples.as_ref().context("the server has ended")?;
        samples.blocking_send(reply).context("the server has ended")?;
        answer.blocking_recv().context("the server has ended")
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.samples = None;
        let thread = self.thread.take().context("it is stopped once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))?
    }
}

async fn serve(
    kind: Kind,
    bound: std::sync::mpsc::Sender<(SocketAddr, SocketAddr)>,
    mut asked: mpsc::Receiver<oneshot::Sender<Duration>>,
) -> anyhow::Result<()> {
    let _running: Option<Box<dyn Any>> = match kind {
        Kind::Driver => {
            let handle = spawn(Echo::default(), Options::default())?;
            let at = handle.bound().clone();
            bound.send(at.socket(UDP).zip(at.listener(TCP)).context("both are declared")?)?;
            Some(Box::new(handle))
        }
        Kind::Voter => {
            let own = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
            let lease = Duration::from_secs(10);
            let config =
                turns::Config { bind: own, own, voters: vec![own], lease, ..turns::Config::default() };
            let handle = spawn(turns::Turns::new(&config, [1; 32])?, Options::default())?;
            bound.send((own, own))?;
            Some(Box::new(handle))
        }
        Kind::Bare => {
            let udp = UdpSocket::bind("127.0.0.1:0").await?;
            let tcp = TcpListener::bind("127.0.0.1:0").await?;
            bound.send((udp.local_addr()?, tcp.local_addr()?))?;
            tokio::spawn(echo_datagrams(udp));
            tokio::spawn(echo_streams(tcp));
            None
        }
    };
    while let Some(reply) = asked.recv().await {
        let _ = reply.send(cpu::of_thread());
    }
    Ok(())
}

async fn echo_datagrams(socket: UdpSocket) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer).await?;
        socket.send_to(&buffer[..bytes], from).await?;
    }
}

async fn echo_streams(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = vec![0; BUFFER_BYTES];
            loop {
                let bytes = stream.read(&mut buffer).await?;
                if bytes == 0 {
                    return stream.shutdown().await;
                }
                stream.write_all(&buffer[..bytes]).await?;
            }
        });
    }
}
