//! Rings that form, heal and carry, in groups of nodes.

use core::time::Duration;
use std::collections::BTreeMap;

use super::group::Group;
use crate::rng::Rng;
use crate::w3w::{Event, Key, Nid};

const SECOND: Duration = Duration::from_secs(1);

fn network(nodes: usize, peers_max: usize, seed: u64) -> Group {
    let mut group = Group::new(seed);
    let mut rng = Rng::from_number(seed, 9);
    for number in 0..nodes {
        let seeds: Vec<usize> = (0..3.min(number)).map(|_| rng.index(number)).collect();
        group.add(&seeds, |config| {
            config.peers_max = peers_max;
            config.peers_min = 4.min(peers_max);
        });
        group.run(SECOND / 20);
    }
    group
}

#[test]
#[ignore = "an experiment"]
fn experiment() {
    let nodes: usize = std::env::var("NODES").map_or(100, |n| n.parse().unwrap());
    let max: usize = std::env::var("MAX").map_or(16, |n| n.parse().unwrap());
    let mut group = network(nodes, max, 1);
    for minute in 0..60 {
        let before = (group.datagrams, group.writes);
        group.run(60 * SECOND);
        let sum = |f: &dyn Fn(&crate::w3w::Counters) -> u64| {
            group.members.iter().map(|m| f(&m.mesh.counted())).sum::<u64>()
        };
        println!(
            "minute {minute}: inexact {} reachable {} here/node {:.2} dials {} failed {} refused {} opt {} peers {:.1} waiting {}",
            group.inexact(),
            group.reachable(),
            (group.datagrams - before.0) as f64 / nodes as f64,
            sum(&|c| c.dials),
            sum(&|c| c.dials_failed),
            sum(&|c| c.callers_refused),
            sum(&|c| c.peers_optimized),
            group.members.iter().map(|m| m.mesh.peers().len()).sum::<usize>() as f64 / nodes as f64,
            group.members.iter().map(|m| m.mesh.waiting()).sum::<usize>(),
        );
        if minute == 5 || minute == 40 {
            measure(&mut group, 500);
        }
    }
}

fn measure(group: &mut Group, messages: usize) {
    let nodes = group.members.len();
    let mut rng = Rng::from_number(3, 4);
    group.members.iter_mut().for_each(|member| member.events.clear());
    let mut sent = BTreeMap::new();
    let nonce = rng.next_u32();
    for number in 0..messages {
        let (from, to) = (rng.index(nodes), rng.index(nodes));
        let data = format!("{nonce} message {number}");
        group.send(from, to, data.as_bytes());
        sent.insert(Key::of(data.as_bytes()), (from, to));
        group.run(SECOND / 10);
    }
    group.run(10 * SECOND);
    let mut passed: BTreeMap<(Key, Nid), Vec<Nid>> = BTreeMap::new();
    let (mut sends, mut got) = (0, 0);
    for member in &group.members {
        for event in &member.events {
            match event {
                Event::MessagePassedOn { key, to, .. } => {
                    sends += to.len();
                    passed.entry((*key, member.mesh.nid())).or_default().extend(to);
                }
                Event::MessageReceived { .. } => got += 1,
                _ => {}
            }
        }
    }
    let (mut hops, mut most, mut n) = (0, 0, 0);
    for (key, (from, to)) in &sent {
        let (mut level, mut depth) = (vec![group.nid(*from)], 0);
        let target = group.nid(*to);
        let mut seen = std::collections::BTreeSet::new();
        while !level.contains(&target) && !level.is_empty() {
            level = level
                .iter()
                .flat_map(|nid| passed.get(&(*key, *nid)).cloned().unwrap_or_default())
                .filter(|n| seen.insert(*n))
                .collect();
            depth += 1;
        }
        if !level.is_empty() {
            hops += depth;
            most = most.max(depth);
            n += 1;
        }
    }
    println!(
        "delivered {got} of {messages}, reached {n}, hops {:.2} max {most}, sends {:.2}",
        hops as f64 / n as f64,
        sends as f64 / messages as f64
    );
}
