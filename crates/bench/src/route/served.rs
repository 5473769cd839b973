//! Our ring as a program uses it: each node is a `Router`, and a handler of `serve` accepts every message.

use std::sync::Arc;

use annulus::{Limits, Options, Router, Server};
use annulus_core::pastry::{AppName, Verdict};
use annulus_core::{Id, Rng};
use anyhow::Context;

use super::loopback::config;
use super::{NODES, PAYLOAD_BYTES, SENDERS, UNDER_WAY};
use crate::cpu;

/// The addresses of these nodes follow those of the other ring.
const FIRST: usize = 2 * NODES;

/// A running ring.
pub(super) struct Ring {
    nodes: Arc<Vec<Router>>,
    servers: Vec<Server>,
}

impl Ring {
    /// Starts a node for each id, one after the other.
    pub(super) async fn start(ids: Vec<Id>) -> anyhow::Result<Self> {
        let (mut nodes, mut servers) = (Vec::new(), Vec::new());
        for (index, id) in ids.into_iter().enumerate() {
            let seeds = if index == 0 { Vec::new() } else { vec![super::loopback::addr(FIRST)] };
            let node = Router::start(
                annulus_core::pastry::Config { seeds, ..config(FIRST + index, id) },
                Options::default(),
            )?;
            node.joined().await?;
            // A message waits for its handler, and its sender for that: there is room for all that are under way.
            let limits = Limits { workers: 64, waiting: SENDERS * UNDER_WAY };
            let server = node.serve(&AppName::default(), limits, |_| async { Verdict::Accept });
            servers.push(server.await?);
            nodes.push(node);
        }
        Ok(Self { nodes: Arc::new(nodes), servers })
    }

    /// Sends so many messages; CPU nanoseconds of each.
    pub(super) async fn messages(&self, count: usize) -> anyhow::Result<f64> {
        let each = (count / (SENDERS * UNDER_WAY)).max(1);
        let before = cpu::of_process();
        let mut tasks = Vec::new();
        for task in 0..SENDERS * UNDER_WAY {
            let nodes = Arc::clone(&self.nodes);
            tasks.push(tokio::spawn(async move {
                let mut rng = Rng::from_number(7, task as u64);
                for _ in 0..each {
                    let (app, key) = (AppName::default(), Id::new(rng.next_u128()));
                    nodes[task % SENDERS].route(&app, key, vec![7; PAYLOAD_BYTES]).await?;
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

    /// Ends all nodes, so that their addresses are free.
    pub(super) async fn stop(self) {
        drop(self.servers);
        for node in self.nodes.iter() {
            node.stop().await;
        }
    }
}
