//! Datagrams in the simulator.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use annulus_sim::{
    Config, DatagramFate, Fault, HostSpec, HostState, Latency, NETWORK_BROADCAST, NetworkConfig,
};

use super::puppet::{Do, GARBAGE, PORT, Strings, World, host, ms};

fn network(change: impl FnOnce(&mut NetworkConfig)) -> Config {
    let mut config = Config::default();
    change(&mut config.network);
    config
}

/// Sends `count` numbered datagrams from 0 to 1, a millisecond apart, and returns those that arrived.
fn series(world: &mut World, count: usize) -> Vec<usize> {
    for n in 0..count {
        world.send(0, 1, &n.to_string());
        world.run(1);
    }
    world.run(1_000);
    world.heard(1).iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_datagram_takes_the_latency_and_names_its_sender() {
    let mut world = World::new(2, network(|n| n.latency = Latency::Constant(ms(7))));
    world.send(0, 1, "hi");
    world.run(6);
    assert!(world.heard(1).is_empty());
    world.run(1);
    assert_eq!(world.heard(1), ["hi from 10.0.0.1"]);
}

#[test]
fn loss_loses_its_share() {
    let mut world = World::new(2, network(|n| n.loss = 0.25));
    let arrived = series(&mut world, 2_000).len();
    assert!((1_430..1_570).contains(&arrived), "{arrived}");
    assert_eq!(world.sim.stats().datagrams_lost as usize, 2_000 - arrived);
}

#[test]
fn duplication_doubles_its_share() {
    let mut world = World::new(2, network(|n| n.duplicate = 0.1));
    let arrived = series(&mut world, 2_000).len();
    assert!((2_140..2_260).contains(&arrived), "{arrived}");
}

#[test]
fn order_is_kept_without_reordering_and_broken_with_it() {
    let in_order = |arrived: &[usize]| arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let mut calm = World::new(2, Config::default());
    assert_eq!(in_order(&series(&mut calm, 500)), 0);
    let mut wild = World::new(2, network(|n| n.reorder = 0.2));
    let arrived = series(&mut wild, 500);
    assert_eq!(arrived.len(), 500);
    assert!(in_order(&arrived) > 50);
}

#[test]
fn jitter_adds_up_to_its_bound() {
    let mut world = World::new(2, network(|n| n.jitter = ms(10)));
    for _ in 0..300 {
        world.send(0, 1, "x");
    }
    let sent = world.sim.elapsed();
    world.run(100);
    let late: Vec<Duration> = world.log.heard.iter().map(|(at, ..)| *at - sent).collect();
    assert!(late.iter().all(|late| (ms(1)..ms(11)).contains(late)));
    assert!(late.iter().any(|late| *late > ms(9)) && late.iter().any(|late| *late < ms(2)));
}

#[test]
fn a_datagram_above_the_mtu_is_dropped_and_counted() {
    let mut world = World::new(2, network(|n| n.mtu_bytes = 100));
    let to = world.addr(1);
    world.tell(0, Do::Send(to, vec![0; 100]));
    world.tell(0, Do::Send(to, vec![0; 101]));
    world.run(10);
    assert_eq!(world.heard(1), ["100 B from 10.0.0.1"]);
    assert_eq!(world.sim.stats().datagrams_oversize, 1);
}

#[test]
fn bandwidth_spaces_datagrams_and_a_full_line_drops_them() {
    let mut world = World::new(
        2,
        network(|n| {
            n.bandwidth = Some(100_000);
            n.backlog_max = ms(50);
        }),
    );
    let to = world.addr(1);
    for _ in 0..10 {
        world.tell(0, Do::Send(to, vec![0; 1000]));
    }
    world.run(1_000);
    // A kilobyte takes 10 ms; the sixth waits 50 ms, the seventh would wait longer.
    let at: Vec<u128> = world.log.heard.iter().map(|(at, ..)| at.as_millis()).collect();
    assert_eq!(at, [12, 22, 32, 42, 52, 62]);
    assert_eq!(world.sim.stats().datagrams_shed, 4);
}

#[test]
fn a_cut_is_one_way() {
    let mut world = World::new(2, Config::default());
    world.fault(Fault::Cut { from: host(0), to: host(1) });
    world.run(1);
    world.send(0, 1, "there");
    world.send(1, 0, "back");
    world.run(10);
    assert!(world.heard(1).is_empty());
    assert_eq!(world.heard(0), ["back from 10.0.0.2"]);
    world.fault(Fault::Mend { from: host(0), to: host(1) });
    world.run(1);
    world.send(0, 1, "again");
    world.run(10);
    assert_eq!(world.heard(1), ["again from 10.0.0.1"]);
    assert_eq!(world.sim.stats().datagrams_cut, 1);
}

#[test]
fn a_partition_parts_groups_until_it_heals() {
    let mut world = World::new(4, Config::default());
    world.fault(Fault::Partition(vec![vec![host(0), host(1)]]));
    world.run(1);
    for to in 1..4 {
        world.send(0, to, "x");
    }
    world.send(2, 3, "y");
    world.run(10);
    assert_eq!(world.heard(1), ["x from 10.0.0.1"]);
    assert!(world.heard(2).is_empty());
    assert_eq!(world.heard(3), ["y from 10.0.0.3"]);
    assert!(!world.sim.is_linked(host(0), host(2)));
    world.fault(Fault::Heal);
    world.run(1);
    world.send(0, 2, "z");
    world.run(10);
    assert_eq!(world.heard(2), ["z from 10.0.0.1"]);
}

#[test]
fn a_broadcast_reaches_the_whole_domain_and_its_sender() {
    let domain = |domain| HostSpec { domain, ..HostSpec::default() };
    for to in [Ipv4Addr::BROADCAST, NETWORK_BROADCAST] {
        let strings = Strings { broadcast: vec![SocketAddr::from((to, PORT))], ..Strings::default() };
        let hosts = vec![domain(0), domain(0), domain(7), domain(0)];
        let mut world = World::of(1, hosts, Config::default(), strings);
        world.tell(1, Do::Broadcast(b"all".to_vec()));
        world.run(10);
        let heard: Vec<Vec<String>> = (0..4).map(|n| world.heard(n)).collect();
        let hi = vec![String::from("all from 10.0.0.2")];
        assert_eq!(heard, [hi.clone(), hi.clone(), vec![], hi]);
    }
}

#[test]
fn a_broadcast_goes_to_every_target_and_a_unicast_target_is_one() {
    let unicast = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 3), PORT));
    let targets = vec![unicast, SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), PORT))];
    let mut world =
        World::with(1, 4, Config::default(), Strings { broadcast: targets, ..Strings::default() });
    world.tell(0, Do::Broadcast(b"hi".to_vec()));
    world.run(10);
    let heard: Vec<usize> = (0..4).map(|n| world.heard(n).len()).collect();
    assert_eq!(heard, [0, 1, 1, 0]);
}

#[test]
fn a_socket_without_broadcast_targets_gets_broadcasts_only_when_bound_to_all_addresses() {
    for (any_address, heard) in [(false, 0), (true, 1)] {
        let strings = Strings { any_address, broadcast: vec![], ..Strings::default() };
        let mut world = World::with(1, 2, Config::default(), strings);
        let everybody = SocketAddr::from((Ipv4Addr::BROADCAST, PORT));
        world.tell(0, Do::Send(everybody, b"all".to_vec()));
        world.run(10);
        assert_eq!(world.heard(1).len(), heard);
    }
}

#[test]
fn a_host_has_several_addresses_of_both_families() {
    let v6 = |n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
    let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let spec = |addresses| HostSpec { addresses, ..HostSpec::default() };
    let hosts = vec![spec(vec![v6(1)]), spec(vec![other, v6(2)])];
    let strings = Strings { any_family: true, ..Strings::default() };
    let mut world = World::of(1, hosts, Config::default(), strings);
    assert_eq!(world.sim.host_at(other), Some(host(1)));
    assert_eq!(world.sim.host_at(v6(2)), Some(host(1)));
    assert_eq!(world.sim.host_at(v6(3)), None);
    world.tell(0, Do::Send(SocketAddr::new(other, PORT), b"a".to_vec()));
    world.run(10);
    assert_eq!(world.heard(1), ["a from 10.0.0.1"]);
    world.tell(0, Do::Send(SocketAddr::new(v6(2), PORT), b"b".to_vec()));
    world.run(10);
    assert_eq!(world.heard(1), ["b from fd00::1"]);
}

#[test]
fn a_socket_of_one_family_does_not_reach_the_other() {
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let hosts = vec![HostSpec::default(), HostSpec { addresses: vec![v6], ..HostSpec::default() }];
    let mut world = World::of(1, hosts, Config::default(), Strings::default());
    world.tell(0, Do::Send(SocketAddr::new(v6, PORT), b"a".to_vec()));
    world.run(10);
    assert!(world.heard(1).is_empty());
    assert_eq!(world.sim.stats().datagrams_unreachable, 1);
}

#[test]
fn hosts_that_share_an_address_are_distinguished_by_port() {
    let shared = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let spec = |off| HostSpec { addresses: vec![shared], off, ..HostSpec::default() };
    let strings = Strings { any_address: true, ..Strings::default() };
    let mut world =
        World::of(1, vec![HostSpec::default(), spec(true), spec(false)], Config::default(), strings);
    world.tell(0, Do::Send(SocketAddr::new(shared, PORT), b"a".to_vec()));
    world.run(10);
    assert_eq!(world.heard(2), ["a from 10.0.0.1"], "the one that has the port");
}

#[test]
fn a_datagram_to_no_socket_is_counted() {
    let hosts = vec![HostSpec::default(), HostSpec { off: true, ..HostSpec::default() }];
    let mut world = World::of(1, hosts, Config::default(), Strings::default());
    assert_eq!(world.sim.state(host(1)), HostState::Off);
    world.send(0, 1, "off");
    let mut elsewhere = world.addr(0);
    elsewhere.set_port(9);
    world.tell(0, Do::Send(elsewhere, b"no port".to_vec()));
    world.tell(0, Do::Send("203.0.113.1:4000".parse().unwrap(), b"no host".to_vec()));
    world.run(10);
    assert_eq!(world.sim.stats().datagrams_unreachable, 3);
    assert_eq!(world.sim.stats().datagrams_delivered, 0);
}

#[test]
fn a_hook_drops_and_alters() {
    let mut world = World::new(2, Config::default());
    let mut n = 0;
    world.log.hook = Some(Box::new(move |datagram| {
        n += 1;
        if n == 1 {
            return DatagramFate::Drop;
        }
        datagram.bytes[0] = b'X';
        DatagramFate::Pass
    }));
    world.send(0, 1, "one");
    world.send(0, 1, "two");
    world.run(10);
    assert_eq!(world.heard(1), ["Xwo from 10.0.0.1"]);
    assert_eq!(world.sim.stats().datagrams_dropped, 1);
}

#[test]
fn refusals_are_counted() {
    let mut world = World::new(2, Config::default());
    let to = world.addr(1);
    world.tell(0, Do::Send(to, GARBAGE.to_vec()));
    world.run(10);
    assert_eq!(world.sim.stats().refusals, 1);
}

#[test]
fn counts_are_kept_for_each_host() {
    let mut world = World::new(2, Config::default());
    world.send(0, 1, "four");
    world.send(0, 1, "five!");
    world.run(10);
    let (sender, receiver) = (world.sim.host_stats(host(0)), world.sim.host_stats(host(1)));
    assert_eq!((sender.datagrams_sent, sender.datagram_bytes_sent, receiver.datagrams_received), (2, 9, 2));
}

#[test]
fn places_make_distances_that_stay() {
    let mut world = World::new(20, network(|n| n.latency = Latency::Plane { per_unit: ms(1) }));
    let distance = world.sim.distance(host(3), host(9));
    assert_eq!(distance, world.sim.distance(host(9), host(3)));
    for _ in 0..3 {
        let before = world.sim.elapsed();
        world.send(3, 9, "x");
        world.run(2_000);
        let (at, ..) = world.log.heard.pop().unwrap();
        assert_eq!(at - before, distance);
    }
}
