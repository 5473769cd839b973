//! A cluster of foca nodes in virtual time: the network of our simulator's defaults, without faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::ensure;
use foca::{Notification, Runtime, Timer};

use super::peer::{self, Peer};

/// The latency of a packet.
const LATENCY: Duration = Duration::from_millis(1);
/// Nodes do not start together.
const START_WITHIN: Duration = Duration::from_secs(1);
/// The time at the beginning that is not counted.
const WARM: Duration = Duration::from_secs(10);

/// Bytes per node and second of a quiet cluster.
pub(super) fn bytes_rate(nodes: u32, seconds: u64, extras: bool) -> anyhow::Result<f64> {
    let mut world = World::default();
    let mut all: Vec<peer::Node> = Vec::new();
    for number in 0..nodes {
        world.now = START_WITHIN * number / nodes;
        world.host = number as usize;
        all.push(peer::node(number, nodes, extras, &mut world));
    }
    let end = WARM + Duration::from_secs(seconds);
    while let Some(Reverse((at, order))) = world.agenda.pop().filter(|Reverse((at, _))| *at < end) {
        world.now = at;
        let Some((host, what)) = world.what[order].take() else { continue };
        world.host = host;
        match what {
            What::Timer(timer) => all[host].handle_timer(timer, &mut world)?,
            What::Packet(bytes) => all[host].handle_data(&bytes, &mut world)?,
        }
    }
    ensure!(
        all.iter().all(|node| node.num_members() == nodes as usize - 1),
        "nobody is lost where nothing happens"
    );
    Ok(world.bytes as f64 / f64::from(nodes) / seconds as f64)
}

enum What {
    Timer(Timer<Peer>),
    Packet(Vec<u8>),
}

#[derive(Default)]
struct World {
    now: Duration,
    host: usize,
    agenda: BinaryHeap<Reverse<(Duration, usize)>>,
    /// For whom, and what; by the order in which it was put in.
    what: Vec<Option<(usize, What)>>,
    bytes: u64,
}

impl World {
    fn plan(&mut self, after: Duration, host: usize, what: What) {
        self.agenda.push(Reverse((self.now + after, self.what.len())));
        self.what.push(Some((host, what)));
    }
}

impl Runtime<Peer> for World {
    fn notify(&mut self, _: Notification<'_, Peer>) {}

    fn send_to(&mut self, to: Peer, data: &[u8]) {
        if self.now >= WARM {
            self.bytes += data.len() as u64;
        }
        self.plan(LATENCY, to.number(), What::Packet(data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Peer>, after: Duration) {
        self.plan(after, self.host, What::Timer(event));
    }
}
