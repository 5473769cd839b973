//! The template machine on real sockets: the results of the simulator with a thousand nodes, here with three.

use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::ping::{Command, Config, Event, Ping, Reply, Via};
use annulus_net::{Ended, Handle};

use crate::puppet::{file, guard, with_store};

fn node(host: u8, store: annulus_net::Store) -> Handle<Ping> {
    let config = Config {
        bind: SocketAddr::from(([127, 0, 0, host], 0)),
        interval: Duration::from_millis(50),
        timeout: Duration::from_millis(50),
        ..Config::default()
    };
    annulus_net::spawn(Ping::new(&config, [host; 32]).unwrap(), with_store(store)).unwrap()
}

#[tokio::test]
async fn pings_are_answered_over_both_and_counted_on_disk() {
    let (_directory, store) = file();
    let answering = node(1, store.clone());
    let asking = node(2, annulus_net::Store::Memory);
    let bound = answering.bound().clone();
    let (udp, tcp) = (bound.sockets[0].1, bound.listeners[0].1);
    for (to, via) in [(udp, Via::Datagram), (tcp, Via::Stream), (udp, Via::Datagram)] {
        let reply = loop {
            // A loaded machine may take longer than a ping may.
            match guard(asking.command(Command::Ping { to, via })).await.unwrap() {
                Reply::Missed => {}
                reply => break reply,
            }
        };
        assert!(matches!(reply, Reply::Answered { .. }), "{reply:?}");
    }
    let mut events = asking.events();
    guard(asking.command(Command::AddPeer(udp))).await.unwrap();
    while !matches!(*guard(events.next()).await.unwrap(), Event::PeerAppeared { peer } if peer == udp) {}

    let Reply::Count(count) = guard(answering.command(Command::Count)).await.unwrap() else {
        panic!("a count")
    };
    assert!(count >= 4);
    assert_eq!(guard(answering.stop()).await, Ended::Stopped);
    let again = node(1, store);
    let Reply::Count(kept) = guard(again.command(Command::Count)).await.unwrap() else { panic!("a count") };
    assert!(kept >= count, "{kept} after a restart, {count} before");
}
