//! One node of the demo: its identity, and its process state.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annulus::net::Gate;
use annulus::{Identity, Options};
use anyhow::Context as _;

use crate::agent::http::Api;
use crate::agent::{Agent, services};
use crate::config::{Layers, Settings};

/// The most attempts of a start while the last run still frees its files and ports.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);

/// The names of the first nodes.
const NAMES: [&str; 12] =
    ["red", "orange", "amber", "lime", "green", "teal", "cyan", "blue", "indigo", "violet", "pink", "rose"];

/// The first digits of ids.
const DIGITS: usize = 16;

/// A node of the demo, running or not.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    /// Its place on the ring.
    pub(super) id: String,
    /// Its address in the mesh.
    pub(super) nid: String,
    data_dir: PathBuf,
    /// The faults of its driver; a new one for each life.
    life: Mutex<Option<Life>>,
    /// The number of kills.
    kills: AtomicU64,
}

struct Life {
    agent: Agent,
    gate: Gate,
}

/// Ports that are the same for all nodes, and the members to join through.
pub(super) struct Group<'a> {
    pub(super) token_port: u16,
    pub(super) join: &'a [SocketAddr],
    pub(super) http: SocketAddr,
}

impl Member {
    /// Number `index` of `count` nodes, with its identity on disk.
    pub(super) fn new(index: usize, count: usize, ip: IpAddr, dir: &Path) -> anyhow::Result<Self> {
        let round = index / NAMES.len();
        let name = NAMES[index % NAMES.len()];
        let name = if round == 0 { name.to_owned() } else { format!("{name}{}", round + 1) };
        let data_dir = dir.join(&name);
        let identity = place(index, count);
        std::fs::create_dir_all(&data_dir)
            .and_then(|()| std::fs::write(data_dir.join("identity"), identity.text()))
            .context("cannot write the files of the demo; set TMPDIR to a directory that you can write")?;
        let (id, nid) = (identity.id().to_string(), identity.nid());
        Ok(Self { name, ip, id, nid, data_dir, life: Mutex::default(), kills: AtomicU64::new(0) })
    }

    /// Starts it, once the files and ports of its last run are free.
    pub(super) async fn start(&self, group: &Group<'_>, gate: Gate) -> anyhow::Result<()> {
        let settings = self.settings(group)?;
        let mut tries = 0;
        let agent = loop {
            let options = Options { gate: Some(gate.clone()), ..Options::default() };
            let description = services::describe(&settings, &self.name)?.options(options);
            match Agent::start(&settings, self.name.clone(), description, group.http).await {
                Ok(agent) => break agent,
                Err(_) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        };
        *self.lock() = Some(Life { agent, gate });
        Ok(())
    }

    /// Ends it as a crash would; whether it ran.
    pub(super) async fn kill(&self) -> bool {
        let Some(life) = self.lock().take() else { return false };
        self.kills.fetch_add(1, Ordering::Relaxed);
        life.agent.leave();
        life.agent.node.handle().abort();
        life.agent.node.handle().ended().await;
        true
    }

    /// Stops it.
    pub(super) async fn stop(&self) {
        let Some(life) = self.lock().take() else { return };
        life.gate.resume();
        life.agent.leave();
        life.agent.node.stop().await;
    }

    /// The number of kills.
    pub(super) fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// Its API, if it runs.
    pub(super) fn api(&self) -> Option<Api> {
        self.lock().as_ref().map(|life| life.agent.api.clone())
    }

    /// Its API, if it runs and is not suspended.
    pub(super) fn awake(&self) -> Option<Api> {
        self.lock().as_ref().filter(|life| !life.gate.is_suspended()).map(|life| life.agent.api.clone())
    }

    /// The faults of its driver, if it runs.
    pub(super) fn gate(&self) -> Option<Gate> {
        self.lock().as_ref().map(|life| life.gate.clone())
    }

    pub(super) fn events(&self) -> Option<annulus::net::Events<annulus::core::node::Node>> {
        self.lock().as_ref().map(|life| life.agent.node.events())
    }

    /// Where its `members` listens.
    pub(super) fn members_addr(&self) -> SocketAddr {
        SocketAddr::new(self.ip, 7946)
    }

    /// Short times, and tables so small that messages take more than one hop.
    fn settings(&self, group: &Group<'_>) -> anyhow::Result<Settings> {
        let join: Vec<String> = (group.join.iter())
            .filter(|addr| **addr != self.members_addr())
            .map(SocketAddr::to_string)
            .collect();
        let sets = [
            format!("node.name={}", self.name),
            format!("node.bind={}", self.ip),
            format!("node.data_dir={}", self.data_dir.display()),
            "node.services=members,route,token,mesh".into(),
            format!("node.join={}", join.join(",")),
            format!("node.tags=demo={}", &self.id[..1]),
            "members.preset=local".into(),
            "token.preset=local".into(),
            format!("token.udp_port={}", group.token_port),
            "token.pace=120ms".into(),
            "route.leaf_set_max=4".into(),
            "route.network_timeout=1s".into(),
            "route.message_timeout=5s".into(),
            "route.leaf_interval=5s".into(),
            // Full after minutes, so that the memory of a long demo is flat.
            "route.messages_kept=64".into(),
            "http.events_kept=256".into(),
        ];
        Ok(Settings::load(&Layers { sets: sets.to_vec(), ..Layers::default() })?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An identity whose id lies where the picture of the ring has room for it. The two nodes of a pair share their first
/// digit. So the routing table of another node has only one of them, and a message to the other takes two hops.
fn place(index: usize, count: usize) -> Identity {
    let (pairs, pair) = (count.div_ceil(2), index / 2);
    let within = if index.is_multiple_of(2) { 0.1 } else { 0.66 };
    let (from, width) = if pairs <= DIGITS {
        // Each pair has a digit of its own.
        ((pair * DIGITS / pairs) as f64 / DIGITS as f64, 1.0 / DIGITS as f64)
    } else {
        (pair as f64 / pairs as f64, 1.0 / pairs as f64)
    };
    let (from, to) = (from + within * width, from + (within + 0.2) * width);
    loop {
        let identity = Identity::random();
        let turn = (identity.id().number() >> 64) as f64 / 2f64.powi(64);
        if (from..to).contains(&turn) {
            return identity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_with_the_number_of_a_node_and_keep_apart() {
        let turns: Vec<u128> = (0..12).map(|index| place(index, 12).id().number()).collect();
        for pair in turns.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] - pair[0] > 1 << 122, "{pair:x?}");
        }
        for pair in turns.chunks(2) {
            assert_eq!(pair[0] >> 124, pair[1] >> 124, "a pair shares its first digit");
        }
    }
}
