//! Faults that a program injects into its own drivers: cuts, a driver that is suspended, an end without a stop.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use annulus_core::ping::{Command, Config, Ping, Reply, Via};
use annulus_net::{Ended, Gate, Handle, Options};

use crate::puppet::{guard, patient};

fn node(host: u8) -> (Handle<Ping>, Gate) {
    let config = Config {
        bind: SocketAddr::from(([127, 0, 9, host], 0)),
        timeout: Duration::from_millis(50),
        interval: Duration::from_secs(3600),
        ..Config::default()
    };
    let gate = Gate::new();
    let options = Options { gate: Some(gate.clone()), ..patient() };
    (annulus_net::spawn(Ping::new(&config, [host; 32]).unwrap(), options).unwrap(), gate)
}

fn places(node: &Handle<Ping>) -> [(SocketAddr, Via); 2] {
    [(node.bound().sockets[0].1, Via::Datagram), (node.bound().listeners[0].1, Via::Stream)]
}

async fn answers(asking: &Handle<Ping>, (to, via): (SocketAddr, Via)) -> bool {
    matches!(guard(asking.command(Command::Ping { to, via })).await.unwrap(), Reply::Answered { .. })
}

/// A loaded machine may take longer than a ping may: once is enough.
async fn answers_at_last(asking: &Handle<Ping>, place: (SocketAddr, Via)) {
    guard(async { while !answers(asking, place).await {} }).await;
}

#[tokio::test]
async fn a_peer_that_is_cut_off_gets_nothing_until_the_cut_heals() {
    let ((asking, gate), (answering, _)) = (node(1), node(2));
    for place in places(&answering) {
        answers_at_last(&asking, place).await;
        gate.cut_off([IpAddr::from([127, 0, 9, 2])]);
        assert!(!answers(&asking, place).await, "{place:?}");
        gate.cut_off([IpAddr::from([127, 0, 9, 3])]);
        answers_at_last(&asking, place).await;
        gate.cut_off([]);
    }
}

#[tokio::test]
async fn a_peer_that_is_cut_off_is_not_received_either() {
    let ((asking, _), (answering, gate)) = (node(4), node(5));
    gate.cut_off([IpAddr::from([127, 0, 9, 4])]);
    for place in places(&answering) {
        assert!(!answers(&asking, place).await, "{place:?}");
    }
    gate.cut_off([]);
    for place in places(&answering) {
        answers_at_last(&asking, place).await;
    }
}

#[tokio::test]
async fn a_suspended_driver_handles_nothing_until_it_is_resumed() {
    let ((asking, _), (answering, gate)) = (node(6), node(7));
    let place = places(&answering)[0];
    answers_at_last(&asking, place).await;
    gate.suspend();
    assert!(!answers(&asking, place).await);
    gate.resume();
    answers_at_last(&asking, place).await;
}

#[tokio::test]
async fn a_suspended_driver_can_be_killed() {
    let (handle, gate) = node(8);
    gate.suspend();
    handle.abort();
    assert_eq!(guard(handle.ended()).await, Ended::Aborted);
}
