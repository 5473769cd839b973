//! The network that tests of machines use: it must be right itself.

use core::time::Duration;
use std::net::SocketAddr;

use super::network::Network;
use super::puppet::{Do, Puppet, SPACE, Saw};
use crate::ping::{Command, Config, Event, PeerState, Ping, Reply};
use crate::stream::CloseReason;
use crate::tag::StreamId;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn addr(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, index as u8 + 1], 4000))
}

fn puppets(credit: usize) -> Network<Puppet> {
    let mut network = Network::default();
    for index in 0..2 {
        network.add(move |_| Puppet { bind: addr(index), credit, has_store: true, ..Puppet::default() });
    }
    network.run(MS);
    network
}

/// The inputs of a puppet since the last look, one line each.
fn seen(network: &mut Network<Puppet>, index: usize) -> Vec<String> {
    let events = core::mem::take(&mut network.nodes[index].events);
    let lines = events.iter().filter(|event| !matches!(event, Saw::Start | Saw::Command));
    lines.map(ToString::to_string).collect()
}

#[test]
fn a_stream_keeps_its_order_and_ends_on_both_sides() {
    let (mut network, out, inn) = (puppets(1000), StreamId::opened(0), StreamId::accepted(1));
    network.command(0, vec![Do::Open(addr(1), None)]);
    network.run(20 * MS);
    network
        .command(0, vec![Do::Write(out, b"one".to_vec()), Do::Write(out, b"two".to_vec()), Do::Finish(out)]);
    network.run(20 * MS);
    let expected = [format!("{inn} accepted 10.0.0.1"), format!("{inn} data one"), format!("{inn} data two")];
    assert_eq!(seen(&mut network, 1)[..3], expected);
    network.command(1, vec![Do::Finish(inn)]);
    network.run(20 * MS);
    assert_eq!(seen(&mut network, 1).last(), Some(&format!("{inn} closed Done")));
    let opener = seen(&mut network, 0);
    assert!(
        opener.contains(&format!("{out} finished")) && opener.contains(&format!("{out} closed Done")),
        "{opener:?}"
    );
    let sent: usize = opener
        .iter()
        .filter_map(|line| line.split("sent ").nth(1)?.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(sent, 6, "{opener:?}");
}

#[test]
fn without_credit_nothing_is_delivered_and_no_more_than_a_buffer_is_sent() {
    let (mut network, out, inn) = (puppets(0), StreamId::opened(0), StreamId::accepted(1));
    network.command(0, vec![Do::Open(addr(1), None), Do::Write(out, vec![7; 200_000])]);
    network.run(SECOND);
    assert!(!seen(&mut network, 1).iter().any(|line| line.contains("data")));
    assert!(!seen(&mut network, 0).iter().any(|line| line.contains("sent")), "the buffer is full");
    network.command(1, vec![Do::Read(inn, 200_000)]);
    network.run(SECOND);
    assert_eq!(seen(&mut network, 1), [format!("{inn} data 200000 B")]);
}

#[test]
fn cuts_pauses_and_crashes_take_effect() {
    let (mut network, out) = (puppets(1000), StreamId::opened(0));
    let send = |text: &str| vec![Do::Send(addr(1), text.into())];
    network.cut(&[0], &[1]);
    network.command(0, send("lost"));
    network.run(SECOND);
    network.heal();
    network.pause(1);
    network.command(0, send("late"));
    network.run(SECOND);
    assert_eq!(seen(&mut network, 1), [""; 0]);
    network.resume(1);
    assert_eq!(seen(&mut network, 1), ["late from 10.0.0.1"]);
    network.drop_if(|_, _, bytes| bytes == b"unwanted");
    network.command(0, send("unwanted"));
    network.command(0, vec![Do::Open(addr(1), None)]);
    network.run(SECOND);
    assert!(!seen(&mut network, 1).iter().any(|line| line.contains("unwanted")));
    network.crash(1, false);
    network.run(SECOND);
    let closed = format!("{out} closed {:?}", CloseReason::Reset);
    assert_eq!(seen(&mut network, 0).last(), Some(&closed));
    network.command(0, vec![Do::Open(addr(1), None)]);
    network.run(SECOND);
    assert!(seen(&mut network, 0).last().is_some_and(|line| line.ends_with("closed Refused")));
}

#[test]
fn a_host_that_is_off_gives_no_answer_until_another_has_its_address() {
    let (mut network, out) = (puppets(1000), StreamId::opened(0));
    network.crash(1, true);
    network.command(0, vec![Do::Send(addr(1), "lost".into()), Do::Open(addr(1), None)]);
    network.run(SECOND);
    assert_eq!((seen(&mut network, 0), network.packets), (Vec::new(), 1), "no refusal");
    network.add(|_| Puppet { bind: addr(1), credit: 1000, ..Puppet::default() });
    network.command(0, vec![Do::Open(addr(1), None)]);
    network.run(SECOND);
    assert_eq!(seen(&mut network, 2), [format!("{} accepted 10.0.0.1", StreamId::accepted(1))]);
    assert!(!seen(&mut network, 0).iter().any(|line| line.starts_with(&out.to_string())));
}

#[test]
fn a_loss_of_power_keeps_synced_writes() {
    let mut network = puppets(0);
    network.command(0, vec![Do::Put("a", b"1".to_vec(), false), Do::Put("b", b"2".to_vec(), true)]);
    network.run(MS);
    network.command(0, vec![Do::Put("c", b"3".to_vec(), false)]);
    network.run(MS);
    network.crash(0, true);
    let keys: Vec<&[u8]> = network.nodes[0].disk.entries.keys().map(|(_, key)| &key[..]).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert!(network.nodes[0].disk.entries.contains_key(&(SPACE, b"a".to_vec())));
}

#[test]
fn pinging_nodes_lose_and_find_each_other() {
    let mut network = Network::default();
    for index in 0..3 {
        network.add(move |start| {
            let peers = (0..3).filter(|peer| *peer != index).map(addr).collect();
            let config = Config { bind: addr(index), peers, ..Config::default() };
            Ping::new(&config, [start as u8; 32]).unwrap()
        });
    }
    let sees_all = |network: &Network<Ping>| {
        let is_present = |event: &Event| matches!(event, Event::PeerAppeared { .. });
        network.nodes.iter().all(|node| node.events.iter().filter(|event| is_present(event)).count() >= 2)
    };
    network.run_until(5 * SECOND, sees_all);
    network.crash(2, true);
    network.run(20 * SECOND);
    let request = network.command(0, Command::Peers);
    let Some(Reply::Peers(peers)) = network.nodes[0].replies.get(&request) else { panic!("no peers") };
    let states: Vec<PeerState> = peers.iter().map(|peer| peer.state).collect();
    assert_eq!(states, [PeerState::Present, PeerState::Vanished]);
    network.nodes.iter_mut().for_each(|node| node.events.clear());
    network.start(2);
    network.run(5 * SECOND);
    let is_back = |event: &Event| matches!(event, Event::PeerAppeared { peer } if *peer == addr(2));
    assert!(network.nodes[..2].iter().all(|node| node.events.iter().any(is_back)));
}
