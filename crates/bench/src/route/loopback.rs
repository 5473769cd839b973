//! Our ring: real nodes on loopback addresses, all in one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use annulus_core::pastry::{
    AppName, Application, Command, Config, Event, Outcome, PORT, Passing, Pastry, Reply, Verdict,
};
use annulus_core::{Id, Rng};
use annulus_net::{Handle, Lane, Options, Stopped, spawn};
use anyhow::{Context, ensure};

use super::{PAYLOAD_BYTES, SENDERS, UNDER_WAY};
use crate::cpu;

/// A running ring.
pub(super) struct Ring {
    nodes: Vec<(Id, Handle<Pastry>)>,
}

/// An address on loopback that no other process of this kind has.
pub(super) fn addr(index: usize) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let block = 64 + (high ^ low) % 128;
    SocketAddr::from((Ipv4Addr::new(127, block, low, 1 + index as u8), PORT))
}

/// The settings of a node.
pub(super) fn config(index: usize, id: Id) -> Config {
    let seeds = if index == 0 { Vec::new() } else { vec![addr(0)] };
    // A busy machine acknowledges slowly, which this does not measure.
    let ack_timeout_min = std::time::Duration::from_secs(2);
    Config { id, bind: addr(index), seeds, outstanding_max: 1 << 16, ack_timeout_min, ..Config::default() }
}

/// Accepts every message in the call that delivers it.
struct Accepts;

impl Application for Accepts {
    fn deliver(&self, _: &Passing<'_>) -> Option<Verdict> {
        Some(Verdict::Accept)
    }
}

/// Starts a node and waits until it has joined.
pub(super) async fn join(config: Config) -> anyhow::Result<Handle<Pastry>> {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&config.id.number().to_be_bytes());
    let node = Pastry::new(config, seed)?.with_application(AppName::default(), Arc::new(Accepts));
    let handle = spawn(node, Options::default())?;
    let mut events = handle.events();
    while let Some(event) = events.next().await {
        if matches!(*event, Event::Joined { .. }) {
            return Ok(handle);
        }
    }
    anyhow::bail!("the node ended before it joined")
}

impl Ring {
    /// Starts so many nodes, one after the other.
    pub(super) async fn start(count: usize) -> anyhow::Result<Self> {
        let mut rng = Rng::from_number(6, 0);
        let mut nodes = Vec::new();
        for index in 0..count {
            let id = Id::new(rng.next_u128());
            let handle = join(config(index, id)).await?;
            let mut events = handle.events();
            // A task takes delivered messages.
            tokio::spawn(async move { while events.next().await.is_some() {} });
            nodes.push((id, handle));
        }
        Ok(Self { nodes })
    }

    /// Ends all nodes, so that their addresses are free.
    pub(super) async fn stop(self) {
        for (_, node) in self.nodes {
            node.stop().await;
        }
    }

    /// The ids of the nodes.
    pub(super) fn ids(&self) -> Vec<Id> {
        self.nodes.iter().map(|(id, _)| *id).collect()
    }

    /// Sends so many messages; CPU nanoseconds of each.
    pub(super) async fn messages(&self, count: usize) -> anyhow::Result<f64> {
        let each = count / SENDERS;
        let before = cpu::of_process();
        let mut tasks = Vec::new();
        for (sender, (_, handle)) in self.nodes.iter().take(SENDERS).enumerate() {
            tasks.push(tokio::spawn(send(handle.lane(UNDER_WAY), sender as u64, each)));
        }
        for task in tasks {
            task.await.context("a sender panicked")??;
        }
        let used = cpu::of_process() - before;
        Ok(used.as_nanos() as f64 / (each * SENDERS) as f64)
    }
}

/// Sends so many messages to random keys, as many at once as the lane takes.
async fn send(mut lane: Lane<Pastry>, sender: u64, count: usize) -> anyhow::Result<()> {
    let mut rng = Rng::from_number(7, sender);
    for _ in 0..count {
        if !lane.has_room() {
            check(lane.next().await)?;
        }
        let (app, key) = (AppName::default(), Id::new(rng.next_u128()));
        let command = Command::route(app, key, vec![7; PAYLOAD_BYTES]);
        lane.give(command).await.map_err(|_| Stopped)?;
    }
    while let Some(reply) = lane.next().await {
        check(Some(reply))?;
    }
    Ok(())
}

fn check(reply: Option<(u64, Result<Reply, Stopped>)>) -> anyhow::Result<()> {
    let (_, reply) = reply.context("some are under way")?;
    let reply = reply?;
    ensure!(
        matches!(reply, Reply::Outcome(Outcome::Delivered { .. })),
        "a message was not delivered: {reply:?}"
    );
    Ok(())
}
