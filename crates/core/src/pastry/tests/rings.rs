//! Rings of several nodes.

use core::time::Duration;

use super::group::Group;
use super::*;
use crate::Rng;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn p_21_every_message_arrives_at_the_closest_node() {
    for count in [1, 2, 3, 8, 9, 10, 60] {
        let mut group = Group::ring(count, count as u64, &small());
        group.assert_leaf_sets_are_exact();
        let mut rng = Rng::from_number(9, 0);
        for _ in 0..100 {
            let from = rng.index(count);
            let key = Id::new(rng.next_u128());
            let app = AppName::default();
            let request = group.command(from, Command::Route { app, key, payload: vec![1], retries: 0 });
            group.run(SECOND / 2);
            let owner = group.owner(key);
            let reply = group.reply(from, request);
            assert!(
                matches!(reply, Some(Reply::Delivered { by, .. }) if by.id == owner),
                "{count}: {reply:?}"
            );
        }
    }
}

#[test]
fn temporary_hops() {
    let count: usize = std::env::var("COUNT").map_or(300, |n| n.parse().unwrap());
    let config = Config { leaf_set_max: 16, neighbourhood_max: 32, ..Config::default() };
    let mut rng = Rng::from_number(5, 5);
    let points: Vec<(f64, f64)> = (0..count).map(|_| (rng.unit() * 1000.0, rng.unit() * 1000.0)).collect();
    let mut group = Group::new(3);
    let shared = std::sync::Arc::new(points);
    let p = shared.clone();
    let dist = move |a: usize, b: usize| ((p[a].0 - p[b].0).powi(2) + (p[a].1 - p[b].1).powi(2)).sqrt();
    let d = dist.clone();
    group.latency = Box::new(move |a, b| Duration::from_micros(100 + (d(a, b) * 20.0) as u64));
    for index in 0..count {
        let id = Id::new(rng.next_u128());
        let near = (0..index).min_by(|a, b| dist(*a, index).total_cmp(&dist(*b, index)));
        let seeds = near.map(super::group::addr).into_iter().collect();
        let index = group.start(Config { id, seeds, ..config.clone() });
        group.run_until_active(index);
    }
    group.run(SECOND * 20);
    group.assert_leaf_sets_are_exact();
    let by_id: std::collections::BTreeMap<Id, usize> =
        (0..count).map(|at| (group.members[at].pastry.own().id, at)).collect();
    let (mut hops, mut route, mut direct, mut lookups) = (0u32, 0.0, 0.0, 0);
    for _ in 0..20_000 {
        let (from, to) = (rng.index(count), rng.index(count));
        if from == to {
            continue;
        }
        let key = group.members[to].pastry.own().id;
        let mut at = from;
        lookups += 1;
        while let Step::Forward { to, .. } = group.members[at].pastry.decide(key) {
            let next = by_id[&to];
            route += dist(at, next);
            hops += 1;
            at = next;
        }
        assert_eq!(at, to);
        direct += dist(from, to);
    }
    let sum = |f: fn(&Counters) -> u64| {
        group.members.iter().map(|m| f(&m.pastry.counted())).sum::<u64>() / count as u64
    };
    println!(
        "hops {:.3} ratio {:.3} datagrams {} frames {} probes {} ann {} races {} req {} conns {} peers {}",
        f64::from(hops) / f64::from(lookups),
        route / direct,
        group.datagrams / count as u64,
        group.frames / count as u64,
        sum(|c| c.probes_sent),
        sum(|c| c.announcements_sent),
        sum(|c| c.races_warned),
        sum(|c| c.requests_sent),
        group.members.iter().map(|m| m.pastry.connections()).sum::<usize>() / count,
        group.members.iter().map(|m| m.pastry.peers.len()).sum::<usize>() / count
    );
}
