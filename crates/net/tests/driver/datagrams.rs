//! Datagrams on loopback: unicast, broadcast, and drops.

use std::net::SocketAddr;

use annulus_net::Options;
use tokio::net::UdpSocket;

use crate::puppet::{Do, GARBAGE, Puppet, Saw, Stage, datagram, guard, patient};

#[tokio::test]
async fn an_echo_comes_back() {
    let stage = Stage::new(Puppet { echo: true, ..Puppet::default() }, patient());
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 100];
    for n in 0..200_u8 {
        client.send_to(&[n; 50], stage.udp()).await.unwrap();
        let (bytes, from) = guard(client.recv_from(&mut buffer)).await.unwrap();
        assert_eq!((&buffer[..bytes], from), (&[n; 50][..], stage.udp()));
    }
    let counters = stage.counters().await;
    assert_eq!((counters.datagrams_received, counters.datagrams_sent), (200, 200));
    assert_eq!((counters.datagram_bytes_received, counters.datagram_bytes_sent), (10_000, 10_000));
}

#[tokio::test]
async fn a_burst_larger_than_one_turn_is_served() {
    let mut stage = Stage::plain();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    // No other task runs on this thread until the next await, so all of them wait at once.
    let sent = (0..150_u8).filter(|n| client.try_send_to(&[*n], stage.udp()).is_ok()).count();
    client.writable().await.unwrap();
    let sent = if sent == 0 {
        (0..150_u8).filter(|n| client.try_send_to(&[*n], stage.udp()).is_ok()).count()
    } else {
        sent
    };
    assert_eq!(sent, 150);
    for n in 0..150 {
        assert_eq!(stage.see(datagram).await.1, [n]);
    }
}

#[tokio::test]
async fn garbage_is_counted_and_nothing_else_happens() {
    let stage = Stage::new(Puppet { echo: true, ..Puppet::default() }, patient());
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..3 {
        client.send_to(GARBAGE, stage.udp()).await.unwrap();
    }
    client.send_to(b"fine", stage.udp()).await.unwrap();
    let mut buffer = [0; 100];
    let (bytes, _) = guard(client.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..bytes], b"fine");
    assert_eq!(stage.counters().await.datagrams_refused, 3);
    assert_eq!(guard(stage.handle.counters()).await.unwrap().machine("inputs"), 4);
}

#[tokio::test]
async fn unsendable_datagrams_are_counted_and_the_others_are_sent() {
    let stage = Stage::new(Puppet { echo: true, ..Puppet::default() }, patient());
    let closed = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = client.local_addr().unwrap();
    let oversize = vec![0; 65_600];
    stage
        .tell([
            Do::Send(closed, b"nobody is there".to_vec()),
            Do::Send(to, oversize),
            Do::Send("[::1]:9".parse().unwrap(), b"wrong family".to_vec()),
            Do::Send(to, b"after all that".to_vec()),
        ])
        .await;
    let mut buffer = [0; 100];
    let (bytes, _) = guard(client.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..bytes], b"after all that");
    let counters = stage.counters().await;
    assert_eq!((counters.datagrams_oversize, counters.datagrams_failed), (1, 1));
    assert_eq!(counters.datagrams_sent, 2);
}

/// At the start of a node its socket is not known to be writable yet, so all of these must wait.
#[tokio::test]
async fn more_than_may_wait_is_shed() {
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = client.local_addr().unwrap();
    let at_start = (0..100).map(|n| Do::Send(to, vec![n])).collect();
    let options = Options { datagrams_max: 10, ..patient() };
    let stage = Stage::new(Puppet { at_start, ..Puppet::default() }, options);
    let mut buffer = [0; 100];
    for n in 0..10 {
        let (bytes, _) = guard(client.recv_from(&mut buffer)).await.unwrap();
        assert_eq!(buffer[..bytes], [n], "the oldest are kept, in order");
    }
    let counters = stage.counters().await;
    assert_eq!(counters.datagrams_sent + counters.datagrams_shed, 100);
    assert!(counters.datagrams_shed > 0);
}

/// Three nodes on one port with a broadcast address. A port that was free a moment ago may be another test's now:
/// then the next is tried.
async fn three_on_one_port() -> Vec<Stage> {
    for _ in 0..100 {
        let port = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let broadcast = vec![SocketAddr::from(([127, 255, 255, 255], port))];
        let node = |host| {
            let bind = SocketAddr::from(([127, 0, 0, host], port));
            Stage::try_new(Puppet { bind, broadcast: broadcast.clone(), ..Puppet::default() }, patient())
        };
        if let Ok(nodes) = (1..=3).map(node).collect() {
            return nodes;
        }
    }
    panic!("no port is free on three addresses")
}

/// JA-22: several nodes of one machine share a port at a broadcast address and have their own addresses beside it.
#[tokio::test]
async fn ja_22_a_broadcast_reaches_all_nodes_of_a_machine() {
    let mut nodes = three_on_one_port().await;
    for (sender, text) in [(0, b"one"), (1, b"two")] {
        nodes[sender].tell([Do::Broadcast(text.to_vec())]).await;
        let from = nodes[sender].udp();
        for node in &mut nodes {
            assert_eq!(node.see(datagram).await, (from, text.to_vec()));
        }
    }
    // Unicast goes only to the socket that was bound last.
    let to = nodes[1].udp();
    nodes[0].tell([Do::Send(to, b"only you".to_vec())]).await;
    assert_eq!(nodes[1].see(datagram).await, (nodes[0].udp(), b"only you".to_vec()));
    for node in &mut nodes {
        assert_eq!(node.rest().await, []);
    }
}

/// JA-22: a target that is a unicast address is sent to, never listened at: it is another node's.
#[tokio::test]
async fn ja_22_a_unicast_target_keeps_its_datagrams() {
    let mut other = Stage::plain();
    let broadcast = vec![other.udp()];
    let mut node = Stage::new(Puppet { broadcast, ..Puppet::default() }, patient());
    node.tell([Do::Broadcast(b"to you".to_vec())]).await;
    assert_eq!(other.see(datagram).await, (node.udp(), b"to you".to_vec()));
    assert!(node.rest().await.iter().all(|saw| !matches!(saw, Saw::Datagram(..))));
}
