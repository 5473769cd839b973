//! Our ring: one driver per node.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use annulus_core::jitterbug::{
    Answer, Application, Command, Config, HostId, Jitterbug, Next, Reply, Status, TenureInfo,
};
use annulus_net::{Handle, Options, spawn};
use anyhow::bail;

use super::{DATA_BYTES, Speed, alone};
use crate::cpu;

/// The smallest application: a hundred bytes, the first eight of them a number that every tenure raises.
#[derive(Clone, Debug)]
pub(super) struct Hundred;

impl Application for Hundred {
    type Change = ();

    fn start(&mut self, _: HostId, _: Option<&[u8]>) {}

    fn initial(&mut self) -> Vec<u8> {
        vec![0; DATA_BYTES]
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        data.len() == DATA_BYTES
    }

    fn next(&mut self, _: &TenureInfo, data: &[u8]) -> Answer<Next> {
        let mut data = data.to_vec();
        let number = data.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) + 1;
        data[..8].copy_from_slice(&number.to_be_bytes());
        Answer::Now(Next { data, fence: Some(number), keep: None })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        Answer::Now(own.max(received).to_vec())
    }

    fn change(&mut self, (): ()) -> Result<u64, &'static str> {
        Ok(1)
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

pub(super) fn speed<A>(
    nodes: u8,
    time: Duration,
    (round, kind): (u8, u8),
    application: fn() -> A,
) -> anyhow::Result<Speed>
where
    A: Application + Send + 'static,
    A::Change: Send,
{
    alone(async move {
        let udp_port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut ring = Vec::new();
        for node in 1..=nodes {
            let config = Config {
                addr: IpAddr::V4(Ipv4Addr::new(127, 100 + kind, round, node)),
                broadcast: vec![IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255))],
                udp_port,
                tr_interval: Duration::from_millis(20),
                pace: Duration::ZERO,
                loose_prob_base: 1e15,
                ..Config::lan()
            };
            let machine = Jitterbug::new(&config, application(), [node; 32])?;
            ring.push(spawn(machine, Options::default())?);
        }
        let mut whole = false;
        while !whole {
            tokio::time::sleep(Duration::from_millis(50)).await;
            whole = true;
            for node in &ring {
                whole &= status(node).await?.nodes.len() == usize::from(nodes);
            }
        }
        // The whole list has gone round when every node has had the token a few times more.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = fence(&ring[0]).await?;
        let (begin, cpu) = (Instant::now(), cpu::of_thread());
        tokio::time::sleep(time).await;
        let (took, used) = (begin.elapsed(), cpu::of_thread() - cpu);
        let passes = (fence(&ring[0]).await? - before) as f64;
        for node in ring {
            node.stop().await;
        }
        Ok(Speed { passes: passes / took.as_secs_f64(), cpu_micros: used.as_secs_f64() * 1e6 / passes })
    })
}

async fn status<A>(node: &Handle<Jitterbug<A>>) -> anyhow::Result<Box<Status>>
where
    A: Application + Send + 'static,
{
    match node.command(Command::Status).await? {
        Reply::Status(status) => Ok(status),
        other => bail!("asked for its status, the node said {other:?}"),
    }
}

async fn fence<A>(node: &Handle<Jitterbug<A>>) -> anyhow::Result<u64>
where
    A: Application + Send + 'static,
{
    Ok(status(node).await?.fence.unwrap_or(0))
}
