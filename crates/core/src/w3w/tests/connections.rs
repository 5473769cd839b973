//! INIT to DEL_ROUTE: which nodes get a HERE, are dialled, are admitted and are dropped.

use super::desk::{Desk, SECOND, addr, config, here, here_bytes, ip, nid};
use crate::contract::Rig;
use crate::machine::{Machine, Refusal};
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::StreamId;
use crate::w3w::{Announce, Command, Config, Direction, Here, Mesh, Nid, UDP, here_frame};

fn with_seeds(seeds: &[u8]) -> Config {
    Config { seeds: seeds.iter().map(|seed| ip(*seed)).collect(), ..config() }
}

#[test]
fn m_11_the_nid_is_made_at_the_start_and_stays() {
    let desk = Desk::new(&config());
    let own = desk.own();
    assert_eq!(own.to_string(), "94c1c088cc9453996779630ad3af45cbd92814828dd784cf2aa12df95d1b8afe");
    assert_eq!(desk.restart(&config()).own(), own);
}

#[test]
fn m_14_here_goes_to_the_port_of_the_network() {
    let desk = Desk::new(&with_seeds(&[2]));
    assert_eq!(desk.told(), [(desk.own(), "127.0.7.2:22000".to_owned())]);
    let other = Desk::new(&Config { bind: "127.0.0.1:30000".parse().unwrap(), ..with_seeds(&[2]) });
    assert_eq!(other.told()[0].1, "127.0.7.2:30000", "one port for the whole network (MA-19)");
}

#[test]
fn m_18_source_and_target_port_are_the_same() {
    let desk = Desk::new(&with_seeds(&[2]));
    let endpoints = desk.rig.machine.endpoints();
    assert_eq!(endpoints.sockets[0].bind.port(), 22_000, "every HERE leaves from this socket");
    assert!(desk.rig.log.iter().filter(|line| line.starts_with("Send")).all(|line| line.contains(":22000 ")));
}

#[test]
fn m_29_the_store_and_the_file_are_read_before_anything_is_sent() {
    let mut rig = Rig::new(Mesh::new(&with_seeds(&[2]), [7; 32]).unwrap());
    rig.hold();
    rig.start();
    assert!(rig.log.is_empty());
    rig.drain();
    let first_send = rig.log.iter().position(|line| line.starts_with("Send")).unwrap();
    assert!(rig.log[..first_send].iter().filter(|line| line.starts_with("Store")).count() >= 7);
}

#[test]
fn m_30_the_ring_is_empty_after_a_start() {
    let mut desk = Desk::new(&config());
    desk.call(2);
    assert_eq!(desk.peers(), [2]);
    assert_eq!(desk.restart(&config()).peers(), [] as [u8; 0], "it is rebuilt from HEREs (MF-23)");
}

#[test]
fn m_31_the_nid_comes_from_the_uuid() {
    let one = Mesh::new(&Config { uuid: [1; 16], ..config() }, [0; 32]).unwrap();
    assert_eq!(one.nid(), Nid::from_uuid([1; 16]));
}

#[test]
fn m_32_the_own_address_is_known_or_the_node_does_not_start() {
    let nowhere = Config { bind: "0.0.0.0:22000".parse().unwrap(), ..config() };
    assert!(Mesh::new(&nowhere, [0; 32]).unwrap_err().to_string().contains("node.bind"));
    let desk = Desk::new(&Config { ip: Some(ip(77)), seeds: vec![ip(2)], ..nowhere });
    let line = desk.rig.log.iter().find(|line| line.starts_with("Send")).unwrap().clone();
    let hex: String = b"127.0.7.77:22000".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(line.ends_with(&hex), "{line}");
}

#[test]
fn m_33_the_announced_port_is_the_one_we_listen_on() {
    let desk = Desk::new(&with_seeds(&[2, 3]));
    let hex: String = b":22000".iter().map(|byte| format!("{byte:02x}")).collect();
    let sent: Vec<_> = desk.rig.log.iter().filter(|line| line.starts_with("Send")).collect();
    assert!(sent.len() == 2 && sent.iter().all(|line| line.ends_with(&hex)));
}

#[test]
fn m_34_taken_literally_each_known_node_gets_the_next_port() {
    let config = Config { announce: Announce::Incrementing { ports: 2 }, ..with_seeds(&[2, 3, 4]) };
    let desk = Desk::new(&config);
    let listeners = desk.rig.machine.endpoints().listeners;
    assert_eq!(
        listeners.iter().map(|listener| listener.bind.port()).collect::<Vec<_>>(),
        [22_000, 22_001, 22_002]
    );
    let ports: Vec<String> = (desk.rig.log.iter().filter(|line| line.starts_with("Send")))
        .map(|line| String::from_utf8(super::desk::bytes_of(&line[line.len() - 10..])).unwrap())
        .collect();
    assert_eq!(ports, ["22001", "22002", "22001"], "the count starts anew behind the last port");
    assert!(desk.rig.log.iter().filter(|line| line.starts_with("Send")).all(|line| line.contains(":22000 ")));
}

#[test]
fn ma_21_announcing_goes_on_while_the_ring_is_empty() {
    let mut desk = Desk::new(&with_seeds(&[2]));
    let mut times = Vec::new();
    for second in 0..1400 {
        desk.rig.take_log();
        desk.rig.advance(SECOND);
        if !desk.told().is_empty() {
            times.push(second + 1);
        }
    }
    assert_eq!(times, [5, 15, 35, 75, 155, 315, 615, 915, 1215], "5 s, doubling to 5 min");
    desk.call(9);
    desk.rig.take_log();
    let mut times = Vec::new();
    for second in 0..1300 {
        desk.rig.take_log();
        desk.rig.advance(SECOND);
        assert!(
            !desk.told().iter().any(|(nid, to)| *nid == desk.own() && to.contains("127.0.7.9")),
            "a peer"
        );
        if desk.told().iter().any(|(nid, to)| *nid == desk.own() && to.contains("127.0.7.2")) {
            times.push(second + 1);
        }
    }
    let soon = times.iter().filter(|second| **second <= 60).count();
    assert!(soon >= 3 && times.len() < 16, "below the minimum soon again, then every ten minutes: {times:?}");
}

#[test]
fn mf_20_the_own_address_among_the_known_gets_no_here() {
    let mut desk = Desk::new(&Config { seeds: vec!["127.0.0.1".parse().unwrap()], ..config() });
    assert!(desk.told().is_empty());
    let own = Here { nid: nid(5), at: "127.0.0.1:22000".parse().unwrap() };
    assert_eq!(desk.hear(&own), Err(Refusal::Reject("a HERE about ourselves")));
    let ours = Here { nid: desk.own(), ..here(5) };
    assert_eq!(desk.hear(&ours), Err(Refusal::Reject("a HERE about ourselves")));
}

#[test]
fn a_node_outside_of_the_allowed_networks_is_not_dialled() {
    let allow = vec![("127.0.7.0".parse().unwrap(), 24)];
    let mut desk = Desk::new(&Config { allow, ..config() });
    let outside = Here { at: "127.0.8.2:22000".parse().unwrap(), ..here(2) };
    assert_eq!(desk.hear(&outside), Err(Refusal::Reject("a HERE about an address that is not allowed")));
    assert_eq!(desk.dialled(), None);
    desk.hear(&here(2)).unwrap();
    assert!(desk.dialled().is_some(), "127.0.7.2 is inside");
}

#[test]
fn m_35_a_node_from_a_here_is_dialled_and_gets_our_here_at_once() {
    let mut desk = Desk::new(&config());
    desk.rig.take_log();
    desk.hear(&here(2)).unwrap();
    let stream = desk.dialled().unwrap();
    assert!(desk.has(&format!("Open {stream} to 127.0.7.2:22000 from Some(127.0.0.1)")));
    let own = Here { nid: desk.own(), at: "127.0.0.1:22000".parse().unwrap() };
    assert_eq!(desk.written(stream), here_frame(&own));
    assert_eq!(desk.peers(), [] as [u8; 0], "not before it has answered");
    desk.close(stream);
    assert_eq!(desk.peers(), [] as [u8; 0]);
    assert_eq!(desk.rig.machine.counted().dials_failed, 1);
}

#[test]
fn m_36_a_here_by_datagram_leads_to_a_dial_and_to_no_answer() {
    let mut desk = Desk::new(&config());
    desk.rig.take_log();
    desk.hear(&here(2)).unwrap();
    assert!(desk.dialled().is_some());
    assert!(desk.told().is_empty(), "MA-22");
    assert_eq!(desk.hear(&here(2)), Err(Refusal::Reject("a HERE about a node that is being dialled")));
    assert!(desk.rig.datagram(UDP, addr(2), b"\x16\x03\x01 hello").is_err(), "a foreign protocol");
}

#[test]
fn ma_24_another_endpoint_of_a_node_being_dialled_is_tried_next() {
    let mut desk = Desk::new(&config());
    desk.hear(&here(2)).unwrap();
    let first = desk.dialled().unwrap();
    desk.hear(&Here { at: "127.0.7.99:23000".parse().unwrap(), ..here(2) }).unwrap();
    assert_eq!(desk.dialled(), Some(first), "no second dial");
    desk.close(first);
    assert!(desk.has("to 127.0.7.99:23000"));
    let mut desk = Desk::new(&config());
    desk.dial(2);
    desk.rig.take_log();
    let moved = Here { at: "127.0.7.99:23000".parse().unwrap(), ..here(2) };
    assert_eq!(desk.hear(&moved), Ok(()));
    assert!(desk.has("IdentityClashed") && desk.dialled().is_none());
    let told_by_another = desk.rig.datagram(UDP, addr(3), &here_bytes(&here(2)));
    assert_eq!((told_by_another, desk.dialled()), (Ok(()), None));
    assert_eq!(desk.rig.machine.peers()[0].ip, ip(2), "never moved by a datagram (MA-13)");
}

#[test]
fn ma_25_addresses_that_are_no_host_are_not_dialled() {
    let mut desk = Desk::new(&config());
    let mut try_at = |at: &str| desk.hear(&Here { at: at.parse().unwrap(), ..here(2) });
    assert!(try_at("255.255.255.255:1").is_err());
    assert!(try_at("10.0.0.1:1").is_ok());
    let mut outside = Desk::new(&Config { ip: Some("10.0.0.5".parse().unwrap()), ..config() });
    assert!(outside.hear(&here(2)).is_err(), "loopback only from loopback");
}

#[test]
fn mf_14_forged_heres_lead_to_few_dials() {
    let mut desk = Desk::new(&Config { dials_max: 1000, ..config() });
    let victim = "10.9.9.9:80".parse().unwrap();
    for number in 0..10_000u32 {
        let forged = Here { nid: Nid::from_uuid(u128::from(number).to_be_bytes()), at: victim };
        let source = std::net::SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 22_000));
        let _ = desk.rig.datagram(UDP, source, &here_bytes(&forged));
        if let Some(stream) = desk.dialled() {
            desk.close(stream);
        }
        desk.rig.sleep(SECOND / 10_000);
        desk.rig.take_log();
    }
    assert!(desk.rig.machine.counted().dials <= 4, "one victim: {}", desk.rig.machine.counted().dials);
    let mut desk = Desk::new(&Config { dials_max: 16, ..config() });
    for number in 0..10_000u32 {
        let at = std::net::SocketAddrV4::new(std::net::Ipv4Addr::from(0x0a00_0000 + number), 80);
        let _ = desk.hear(&Here { nid: Nid::from_uuid(u128::from(number).to_be_bytes()), at });
    }
    assert!(desk.rig.machine.counted().dials <= 16, "many victims");
}

#[test]
fn m_37_a_caller_is_admitted_after_its_here() {
    let mut desk = Desk::new(&config());
    desk.rig.take_log();
    let stream = desk.accept(ip(2));
    assert!(!desk.has("Write"), "nothing is said to a stranger");
    let frame = here_frame(&here(2));
    for chunk in frame.chunks(7) {
        desk.rig.stream(stream, StreamEvent::Data(chunk)).unwrap();
    }
    assert_eq!(desk.peers(), [2]);
    assert_eq!(desk.rig.machine.peers()[0].direction, Direction::In);
    // The answer of the handshake, and the hello of custody (CU-7).
    assert_eq!(desk.written(stream).len(), 2 * (4 + 4 + 5 + 64 + 3 + "127.0.0.1:22000".len()));
}

#[test]
fn ma_27_a_handshake_takes_five_seconds_and_begins_with_here() {
    let mut desk = Desk::new(&config());
    let silent = desk.accept(ip(2));
    desk.rig.advance(SECOND * 49 / 10);
    assert!(!desk.has("Abort"));
    desk.rig.advance(SECOND / 5);
    assert!(desk.has(&format!("Abort {silent}")));
    let message = crate::w3w::Message::new(nid(2), desk.own(), b"x");
    let rude = desk.accept(ip(2));
    assert!(desk.rig.stream(rude, StreamEvent::Data(&super::desk::frame(&message))).is_err());
    let tls = desk.accept(ip(2));
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00];
    assert!(desk.rig.stream(tls, StreamEvent::Data(&hello)).is_err(), "MF-21");
    let own = desk.accept(ip(2));
    let ours = Here { nid: desk.own(), ..here(2) };
    assert!(desk.rig.stream(own, StreamEvent::Data(&here_frame(&ours))).is_err());
    assert!(desk.has("IdentityClashed"));
    assert_eq!(desk.peers(), [] as [u8; 0]);
}

#[test]
fn mf_15_a_node_that_is_not_the_promised_one_is_closed_and_forgotten() {
    let mut desk = Desk::new(&config());
    desk.hear(&here(2)).unwrap();
    let stream = desk.dialled().unwrap();
    desk.rig.stream(stream, StreamEvent::Connected { local: addr(1) }).unwrap();
    desk.rig.stream(stream, StreamEvent::Data(&here_frame(&here(3)))).unwrap();
    assert!(desk.has(&format!("Abort {stream}")));
    assert_eq!(desk.peers(), [] as [u8; 0]);
    desk.rig.advance(2 * SECOND);
    assert!(!desk.has("KnownNodesChanged"));
}

/// Both nodes dial: the connection of the lower NID stays, whichever handshake ends first.
#[test]
fn ma_29_of_two_connections_that_cross_the_lower_dialled_one_stays() {
    for (first, stays_out) in [(0x20, false), (0xf0, true)] {
        // Ours is 94…: lower than f0, greater than 20.
        let mut desk = Desk::new(&config());
        desk.hear(&here(first)).unwrap();
        let out = desk.dialled().unwrap();
        let inward = desk.call(first);
        desk.answer(out, first);
        let peers = desk.rig.machine.peers();
        assert_eq!(peers.len(), 1);
        assert_eq!(peers[0].direction == Direction::Out, stays_out, "{first:x}");
        let closed = if stays_out { inward } else { out };
        assert!(desk.has(&format!("Abort {closed}")), "{first:x}");
        let stays = if stays_out { out } else { inward };
        assert!(!desk.has(&format!("Abort {stays}")), "{first:x}");
    }
}

#[test]
fn ma_29a_an_established_connection_is_never_displaced() {
    let mut desk = Desk::new(&config());
    let first = desk.dial(0x20);
    desk.rig.advance(6 * SECOND);
    let second = desk.call(0x20);
    assert!(desk.has(&format!("Abort {second}")) && !desk.has(&format!("Abort {first}")));
    let impostor = desk.accept(ip(99));
    let claim = Here { at: "127.0.7.99:22000".parse().unwrap(), ..here(0x20) };
    desk.rig.stream(impostor, StreamEvent::Data(&here_frame(&claim))).unwrap();
    assert!(desk.has(&format!("Abort {impostor}")) && desk.has("IdentityClashed"), "MF-11");
    let again = desk.call(0x20);
    assert!(desk.has(&format!("Abort {again}")), "the same direction: the first stays");
    assert_eq!(desk.rig.machine.peers()[0].ip, ip(0x20));
}

#[test]
fn a_peer_that_may_have_restarted_is_probed_on_its_old_connection() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x20);
    desk.rig.advance(6 * SECOND);
    desk.rig.take_log();
    desk.hear(&here(0x20)).unwrap();
    let own = Here { nid: desk.own(), at: "127.0.0.1:22000".parse().unwrap() };
    assert_eq!(desk.written(stream), here_frame(&own));
    desk.rig.stream(stream, StreamEvent::Sent { bytes: 1000, fin: false }).unwrap();
    desk.hear(&here(0x20)).unwrap();
    assert_eq!(desk.written(stream).len(), here_frame(&own).len(), "once in a while");
    desk.close(stream);
    assert!(desk.hear(&here(0x20)).is_ok() && desk.dialled().is_some(), "it was dead, and is dialled");
}

#[test]
fn m_41_below_the_limit_a_node_is_added_and_above_it_another_is_dropped() {
    let mut desk = Desk::with_max(4);
    for first in [0x10, 0x20, 0x30, 0xc0] {
        desk.dial(first);
    }
    assert_eq!(desk.peers(), [0x10, 0x20, 0x30, 0xc0], "within the limit: no peer is dropped");
    desk.dial(0xe0);
    assert_eq!(desk.peers().len(), 4);
}

#[test]
fn m_41a_a_here_alone_drops_no_peer_and_a_useless_newcomer_is_not_dialled() {
    let mut desk = Desk::with_max(4);
    for first in [0x10, 0x60, 0xa0, 0xc0] {
        desk.dial(first);
    }
    desk.hear(&here(0xe0)).unwrap();
    let stream = desk.dialled().unwrap();
    assert_eq!(desk.peers().len(), 4, "dialled, and no peer is dropped yet");
    desk.close(stream);
    assert_eq!(desk.peers(), [0x10, 0x60, 0xa0, 0xc0]);
    desk.rig.take_log();
    desk.hear(&here(0x11)).unwrap();
    assert_eq!(desk.dialled(), None, "it would be the middle of c0 10 60");
    assert_eq!(desk.told(), [(nid(0x11), "127.0.7.16:22000".to_owned())], "its nearest peer gets it instead");
}

#[test]
fn m_43_the_outer_two_get_the_here_of_the_middle_one() {
    let mut desk = Desk::with_max(4);
    for first in [0x10, 0x20, 0x30, 0x90] {
        desk.dial(first);
    }
    desk.rig.advance(61 * SECOND);
    desk.rig.take_log();
    desk.dial(0xc0);
    let told = desk.told();
    assert!(told.contains(&(nid(0x20), "127.0.7.16:22000".to_owned())), "{told:?}");
    assert!(told.contains(&(nid(0x20), "127.0.7.48:22000".to_owned())), "{told:?}");
}

#[test]
fn m_44_the_middle_one_leaves_the_ring_and_is_held_down() {
    let mut desk = Desk::with_max(4);
    let streams: Vec<StreamId> = [0x10, 0x20, 0x30, 0x90].map(|first| desk.dial(first)).into();
    desk.dial(0xc0);
    assert_eq!(desk.peers(), [0x10, 0x30, 0x90, 0xc0]);
    assert!(desk.has(&format!("Finish {}", streams[1])));
    assert_eq!(desk.hear(&here(0x20)), Err(Refusal::Reject("a HERE about a node on hold-down")));
    desk.rig.advance(61 * SECOND);
    assert!(desk.hear(&here(0x20)).is_ok(), "for a minute (MA-37)");
}

#[test]
fn ma_36_our_own_neighbours_are_never_dropped() {
    let mut desk = Desk::with_max(4);
    // Ours is 94: 93 and 95 are as close as possible, and stay.
    for first in [0x93, 0x95, 0x10, 0x50] {
        desk.dial(first);
    }
    desk.dial(0xd0);
    assert!(desk.peers().contains(&0x93) && desk.peers().contains(&0x95));
    assert_eq!(desk.peers().len(), 4);
}

#[test]
fn m_45_a_caller_is_added_while_there_is_room() {
    let mut desk = Desk::with_max(4);
    for first in [0x10, 0x20, 0x30, 0xc0] {
        desk.call(first);
    }
    assert_eq!(desk.peers(), [0x10, 0x20, 0x30, 0xc0]);
    desk.rig.take_log();
    let stream = desk.call(0x1c);
    assert_eq!(desk.peers(), [0x10, 0x20, 0x30, 0xc0], "beyond the limit the newcomer goes (MA-32)");
    assert!(
        desk.has(&format!("Abort {stream}")) && desk.written(stream).is_empty(),
        "without a byte (MA-32a)"
    );
    assert_eq!(desk.told(), [(nid(0x20), "127.0.7.28:22000".to_owned())], "with a hint (MA-33)");
    let mut mute = Desk::new(&Config { peers_max: 4, peers_min: 1, hint: false, ..config() });
    let _ = [0x10, 0x20, 0x30, 0xc0].map(|first| mute.call(first));
    mute.rig.take_log();
    mute.call(0x1c);
    assert!(mute.told().is_empty());
}

#[test]
fn ma_39_two_full_neighbours_find_room_for_each_other() {
    let mut desk = Desk::with_max(4);
    for first in [0x10, 0x20, 0x30, 0xc0] {
        desk.call(first);
    }
    desk.rig.advance(61 * SECOND);
    desk.rig.take_log();
    desk.call(0x95);
    assert_eq!(desk.peers(), [0x10, 0x20, 0x30, 0xc0], "refused as any other, and no peer is dropped");
    assert!(desk.told().contains(&(desk.own(), "127.0.7.149:22000".to_owned())), "but it gets our HERE");
    desk.call(0x95);
    assert_eq!(
        (desk.peers().contains(&0x95), desk.peers().len()),
        (true, 4),
        "and let in when it calls again"
    );
}

#[test]
fn ma_24_an_invitation_that_overtakes_the_refusal_is_followed() {
    let mut desk = Desk::with_max(4);
    desk.hear(&here(0x95)).unwrap();
    let first = desk.dialled().unwrap();
    desk.rig.stream(first, StreamEvent::Connected { local: addr(1) }).unwrap();
    desk.rig.take_log();
    // It has refused us and sends its own HERE; the datagram arrives before the reset.
    desk.hear(&here(0x95)).unwrap();
    assert_eq!(desk.dialled(), None, "one dial at a time");
    desk.close(first);
    let second = desk.dialled().expect("it calls again");
    desk.rig.take_log();
    desk.close(second);
    assert_eq!(desk.dialled(), None, "once");
}

#[test]
fn m_46_a_broken_connection_leaves_the_ring() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(2);
    desk.close(stream);
    assert_eq!(desk.peers(), [] as [u8; 0]);
    assert!(desk.has("PeerDisconnected"));
    desk.rig.take_log();
    desk.rig.advance(4 * SECOND);
    assert_eq!(desk.dialled(), None, "one we accepted is not dialled");
}

#[test]
fn ma_30_a_dialled_connection_is_dialled_once_more() {
    for reason in [CloseReason::Reset, CloseReason::TimedOut] {
        let mut desk = Desk::new(&config());
        let first = desk.dial(2);
        desk.rig.take_log();
        desk.rig.stream(first, StreamEvent::Closed(reason)).unwrap();
        desk.rig.advance(2 * SECOND);
        let second = desk.dialled().expect("once more");
        desk.answer(second, 2);
        assert_eq!(desk.peers(), [2]);
        desk.rig.take_log();
        desk.close(second);
        desk.rig.advance(3 * SECOND);
        assert_eq!(desk.dialled(), None, "not again and again");
    }
}

#[test]
fn a_peer_that_closes_leaves_the_ring_and_its_last_messages_count() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(2);
    desk.rig.take_log();
    desk.rig.stream(stream, StreamEvent::Finished).unwrap();
    assert_eq!(desk.peers(), [] as [u8; 0]);
    assert!(desk.has(&format!("Finish {stream}")));
    let mut desk = Desk::with_max(4);
    let streams = [0x10, 0x20, 0x30, 0x90].map(|first| desk.dial(first));
    desk.dial(0xc0);
    let late = crate::w3w::Message::new(nid(0x20), desk.own(), b"written before it knew");
    desk.message(streams[1], &late);
    assert!(desk.has("MessageReceived"));
}

#[test]
fn ma_36a_the_neighbours_of_a_newcomer_get_its_here() {
    let mut desk = Desk::new(&config());
    let _ = [0x10, 0x30, 0x50].map(|first| desk.call(first));
    desk.rig.take_log();
    desk.call(0x20);
    let told = desk.told();
    assert_eq!(
        told[..2],
        [(nid(0x20), "127.0.7.16:22000".to_owned()), (nid(0x20), "127.0.7.48:22000".to_owned())]
    );
    desk.rig.take_log();
    let stream = StreamId::accepted(4);
    desk.close(stream);
    desk.call(0x20);
    assert!(desk.told().iter().all(|(about, _)| *about != nid(0x20)), "not again within a minute (MA-37)");
}

#[test]
fn ma_21a_a_lost_neighbour_is_replaced_by_a_candidate() {
    let mut desk = Desk::with_max(4);
    let streams = [0x10, 0x50, 0x93, 0xc0].map(|first| desk.call(first));
    desk.hear(&here(0x92)).unwrap();
    let dialled = desk.dialled();
    desk.rig.take_log();
    desk.close(streams[2]);
    assert_eq!(dialled, None, "it would have been dropped at once");
    assert!(desk.has("Open") && desk.has("to 127.0.7.146:22000"), "now it is the nearest");
}

#[test]
fn mf_2_any_nid_into_any_ring_keeps_it_ascending() {
    for peers in [&[][..], &[0x40], &[0x40, 0x80], &[0x20, 0x40, 0x60, 0x80]] {
        for new in [0x01, 0xff, 0x50, 0x40] {
            let mut desk = Desk::new(&config());
            for first in peers {
                desk.call(*first);
            }
            desk.call(new);
            let mut wanted: Vec<u8> = peers.iter().copied().chain([new]).collect();
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(desk.peers(), wanted);
        }
    }
}

#[test]
fn mf_13_an_introduction_is_not_repeated_within_the_hold_down() {
    let mut desk = Desk::with_max(4);
    let _ = [0x10, 0x20, 0x30, 0x90].map(|first| desk.dial(first));
    desk.dial(0xc0);
    desk.rig.take_log();
    for _ in 0..20 {
        let _ = desk.hear(&here(0x20));
        desk.rig.advance(SECOND * 2);
    }
    let told = desk.told();
    assert!(told.iter().filter(|(about, _)| *about == nid(0x20)).count() <= 2, "{told:?}");
    assert_eq!(desk.dialled(), None);
}

#[test]
fn mf_18_a_wall_clock_that_jumps_changes_no_decision() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    let message = crate::w3w::Message::new(nid(0x77), desk.own(), b"once");
    desk.message(stream, &message);
    desk.send(nid(0xa0), b"waits");
    let day = 86_400_000_000;
    desk.rig.now.wall = crate::time::Wall::from_micros(desk.rig.now.wall.as_micros() - day);
    desk.call(0x20);
    desk.rig.advance(SECOND * 3000);
    desk.message(stream, &message);
    assert_eq!((desk.rig.machine.counted().messages_delivered, desk.rig.machine.waiting()), (1, 1));
    desk.rig.advance(SECOND * 700);
    assert_eq!(desk.rig.machine.waiting(), 0, "an hour of the other clock");
    let mut ahead = desk.restart(&config());
    ahead.rig.command(Command::Known);
    assert!(ahead.rig.log.last().unwrap().contains("127.0.7.16"));
}

#[test]
fn mf_23_a_restart_has_the_same_nid_and_rebuilds_its_ring() {
    let mut desk = Desk::new(&config());
    desk.dial(0x10);
    desk.rig.advance(2 * SECOND);
    let own = desk.own();
    let mut again = desk.restart(&config());
    assert_eq!(again.own(), own);
    assert!(again.has("Send 0:0 to 127.0.7.16:22000"), "the list is read and announced to");
    again.call(0x10);
    assert_eq!(again.peers(), [0x10]);
}
