//! Rings that form, heal and carry, in groups of nodes.

use core::time::Duration;

use super::desk::SECOND;
use super::group::{Group, ip};
use crate::rng::Rng;
use crate::w3w::{
    BLOCKS, Command, Config, Event, Fault, Form, Forward, Here, Key, Manifest, Nid, Reply, here_frame,
    read_form,
};

const MINUTE: Duration = Duration::from_secs(60);

fn network(nodes: usize, peers_max: usize, seed: u64, change: impl Fn(&mut Config)) -> Group {
    let mut group = Group::new(seed);
    let mut rng = Rng::from_number(seed, 9);
    for number in 0..nodes {
        let seeds: Vec<usize> = (0..2.min(number)).map(|_| rng.index(number)).collect();
        group.add(&seeds, |config| {
            config.peers_max = peers_max;
            config.peers_min = 4.min(peers_max);
            change(config);
        });
        group.run(SECOND / 10);
    }
    group
}

/// Sends a message between all pairs. Returns how many arrived, and how many twice.
fn all_pairs(group: &mut Group) -> (usize, usize) {
    let nodes = group.members.len();
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            group.send(from, to, format!("{from} to {to}").as_bytes());
        }
        group.run(SECOND);
    }
    group.run(MINUTE);
    let (mut once, mut more) = (0, 0);
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            let got = group.got(to, format!("{from} to {to}").as_bytes());
            once += usize::from(got == 1);
            more += usize::from(got > 1);
        }
    }
    (once, more)
}

#[test]
fn mf_6_all_pairs_of_twenty_nodes_with_four_peers_reach_each_other() {
    for seed in 0..3 {
        let mut group = network(20, 4, seed, |_| {});
        group.run(10 * MINUTE);
        assert_eq!((group.inexact(), group.reachable()), (0, 20), "seed {seed}");
        assert_eq!(all_pairs(&mut group), (380, 0), "seed {seed}");
        assert!(group.members.iter().all(|member| member.mesh.peers().len() <= 5));
    }
}

/// Without introductions many pairs cannot reach each other: the test above would detect it.
#[test]
fn ma_36a_without_introductions_some_pairs_cannot_reach_each_other() {
    let mut group = network(20, 4, 0, |config| config.fault = Some(Fault::NoIntroductions));
    group.run(10 * MINUTE);
    assert!(group.inexact() > 0);
    assert!(all_pairs(&mut group).0 < 380);
}

#[test]
fn a_hundred_nodes_become_one_exact_ring_and_grow_quiet() {
    let mut group = network(100, 8, 5, |_| {});
    group.run(20 * MINUTE);
    assert_eq!((group.inexact(), group.reachable()), (0, 100));
    let before = group.datagrams;
    group.run(20 * MINUTE);
    let per_node_and_minute = (group.datagrams - before) as f64 / 100.0 / 20.0;
    assert!(per_node_and_minute < 2.0, "{per_node_and_minute}");
}

#[test]
fn mf_1_the_first_node_ever_waits() {
    let mut group = Group::new(1);
    group.add(&[], |_| {});
    group.run(10 * MINUTE);
    assert!(group.members[0].mesh.peers().is_empty());
}

#[test]
fn mf_3_a_lost_here_is_repeated() {
    let mut group = Group::new(1);
    group.loss = 1.0;
    group.add(&[], |_| {});
    group.add(&[0], |_| {});
    group.run(SECOND);
    assert!(group.members[0].mesh.peers().is_empty());
    group.loss = 0.0;
    group.run(10 * SECOND);
    assert_eq!(group.members[0].mesh.peers().len(), 1);
}

#[test]
fn mf_4_two_that_announce_at_once_have_one_connection() {
    for seed in 0..20 {
        let mut group = Group::new(seed);
        group.loss = 1.0;
        group.add(&[1], |_| {});
        group.add(&[0], |_| {});
        group.loss = 0.0;
        group.run(MINUTE);
        let peers = [0, 1].map(|number| group.members[number].mesh.peers());
        assert_eq!((peers[0].len(), peers[1].len()), (1, 1), "seed {seed}");
        assert_ne!(peers[0][0].direction, peers[1][0].direction, "the same one on both sides, seed {seed}");
    }
}

#[test]
fn mf_5_a_message_to_an_unknown_recipient_ends() {
    for forward in [Forward::Nearest, Forward::Both] {
        let mut group = network(5, 8, 1, |config| config.forward = forward);
        group.run(5 * MINUTE);
        let written = |group: &Group| -> Vec<u64> {
            group.members.iter().map(|member| member.mesh.counted().messages_written).collect()
        };
        let nobody = Nid::from_uuid([0xee; 16]);
        group.ask(0, Command::Send { to: nobody, data: b"anyone?".to_vec(), receipt: false });
        group.run(5 * MINUTE);
        let before = written(&group);
        assert!(before.iter().all(|sends| *sends <= 4), "{before:?}");
        group.run(61 * MINUTE);
        assert!(group.members.iter().all(|member| member.mesh.waiting() == 0), "the queues empty by expiry");
        assert_eq!(written(&group), before);
    }
}

#[test]
fn mf_7_an_absent_recipient_gets_the_message_on_return() {
    for seed in 0..3 {
        let mut group = network(30, 8, seed, |_| {});
        group.run(10 * MINUTE);
        let away = [3, 7, 11, 15, 19, 23];
        away.iter().for_each(|number| group.kill(*number, false));
        group.run(5 * MINUTE);
        for number in away {
            group.send(0, number, format!("for {number}").as_bytes());
        }
        group.run(10 * MINUTE);
        away.iter().for_each(|number| group.start(*number));
        group.run(15 * MINUTE);
        for number in away {
            assert_eq!(
                group.got(number, format!("for {number}").as_bytes()),
                1,
                "seed {seed}, node {number}"
            );
        }
    }
}

#[test]
fn mf_8_a_healed_partition_is_one_ring_again_and_queues_flow() {
    for seed in 0..3 {
        let mut group = network(16, 6, seed, |_| {});
        group.run(10 * MINUTE);
        cut(&mut group, |number| (number % 2) as u8);
        group.run(5 * MINUTE);
        group.send(0, 1, b"across");
        group.run(5 * MINUTE);
        assert_eq!((group.inexact(), group.got(1, b"across")), (0, 0), "two rings, seed {seed}");
        cut(&mut group, |_| 0);
        group.run(30 * MINUTE);
        assert_eq!((group.inexact(), group.reachable()), (0, 16), "seed {seed}");
        assert_eq!(group.got(1, b"across"), 1, "seed {seed}");
    }
}

/// Puts nodes on sides; connections between sides break after a while, as keep-alive would do.
fn cut(group: &mut Group, side: impl Fn(usize) -> u8) {
    for number in 0..group.members.len() {
        group.side[number] = side(number);
    }
    group.break_across();
}

#[test]
fn any_single_failure_leaves_the_ring_connected() {
    for victim in 0..12 {
        let mut group = network(12, 4, 3, |_| {});
        group.run(10 * MINUTE);
        group.kill(victim, false);
        assert_eq!(group.reachable(), 11, "at once, without {victim}");
        group.run(10 * MINUTE);
        assert_eq!((group.inexact(), group.reachable()), (0, 11), "and the ring closes, without {victim}");
    }
}

#[test]
fn ma_21a_a_star_survives_its_centre() {
    let mut group = Group::new(4);
    group.add(&[], |_| {});
    for _ in 0..6 {
        group.add(&[0], |_| {});
        group.run(SECOND);
    }
    group.run(MINUTE);
    group.kill(0, false);
    assert_eq!(group.reachable(), 6);
}

#[test]
fn mf_10_a_slow_reader_delays_no_other_peer() {
    let mut group = network(4, 4, 1, |config| {
        config.memory_bytes_max = 1 << 20;
        config.unsent_bytes_max = 256 << 10;
    });
    group.run(MINUTE);
    group.members[3].is_slow = true;
    for number in 0..40u8 {
        group.send(0, 3, &[number; 100_000]);
        group.send(0, 1, &[number; 1000]);
        group.run(SECOND / 10);
    }
    for number in 0..40u8 {
        assert_eq!(group.got(1, &[number; 1000]), 1);
    }
    assert!(group.members[0].mesh.memory_bytes() <= (1 << 20) + 200_000);
}

#[test]
fn mf_12_fifty_heres_into_a_full_ring_end() {
    let mut group = network(60, 4, 2, |_| {});
    group.run(10 * MINUTE);
    let before = group.datagrams;
    for number in 10..60 {
        let here = Here { nid: group.nid(number), at: std::net::SocketAddrV4::new(ip(number), 22_000) };
        let from = std::net::SocketAddr::from((ip(number), 22_000));
        group.inject(0, from, &super::desk::here_bytes(&here));
    }
    group.run(2 * MINUTE);
    assert!(group.members[0].mesh.peers().len() <= 5);
    assert!(group.datagrams - before < 60 * 40, "{}", group.datagrams - before);
    let before = group.datagrams;
    group.run(10 * MINUTE);
    assert!(group.datagrams - before < 60 * 20, "quiet again: {}", group.datagrams - before);
    assert_eq!(group.inexact(), 0, "own neighbours were kept");
}

#[test]
fn mf_17_a_kill_loses_nothing_acknowledged_and_leaves_no_half_block() {
    let mut group = network(4, 4, 1, |_| {});
    group.run(MINUTE);
    let mut acknowledged = Vec::new();
    for number in 0..50u8 {
        let data = [number; 3000];
        let request = group.send(0, 1, &data);
        group.run(Duration::from_micros(60 + u64::from(number) * 7));
        if let Some(Reply::Sent { key, .. }) = group.members[0].replies.get(&request) {
            acknowledged.push(*key);
        }
    }
    group.kill(0, false);
    assert!(acknowledged.len() > 10);
    let disk = &group.members[0].disk;
    for key in &acknowledged {
        assert!(disk.contains_key(&(BLOCKS, key.to_bytes().to_vec())), "{key:?}");
    }
    for ((space, key), value) in disk {
        assert!(*space != BLOCKS || Key::of(value).to_bytes().to_vec() == *key);
    }
    group.start(0);
    group.run(20 * MINUTE);
    for number in 0..50u8 {
        let wanted = usize::from(acknowledged.contains(&Key::of(&[number; 3000])));
        let got = group.got(1, &[number; 3000]);
        assert!(got <= 1 && got >= wanted, "{number}: delivered {got} times");
    }
}

/// The test above would detect a node that answers before the message is on disk.
#[test]
fn a_reply_before_the_disk_is_noticed() {
    let mut group = network(2, 4, 1, |config| config.fault = Some(Fault::ReplyBeforeDurable));
    group.run(MINUTE);
    let request = group.send(0, 1, b"gone");
    group.run(SECOND / 1000);
    assert!(matches!(group.members[0].replies.get(&request), Some(Reply::Sent { .. })));
    group.kill(0, false);
    assert!(!group.members[0].disk.contains_key(&(BLOCKS, Key::of(b"gone").to_bytes().to_vec())));
}

#[test]
fn mf_9_a_silent_failure_of_a_peer_is_detected_by_writing_to_it() {
    let mut group = network(6, 4, 1, |_| {});
    group.run(10 * MINUTE);
    group.kill(5, true);
    for number in 0..5 {
        group.send(number, 5, format!("from {number}").as_bytes());
    }
    group.run(3 * MINUTE);
    group.start(5);
    group.run(20 * MINUTE);
    for number in 0..5 {
        assert_eq!(group.got(5, format!("from {number}").as_bytes()), 1, "{number}");
    }
}

#[test]
fn a_file_arrives_in_blocks_with_breaks_and_a_receipt() {
    let mut group = network(6, 4, 1, |_| {});
    group.run(5 * MINUTE);
    let bytes: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let blocks = bytes.chunks(4096).map(Key::of).collect();
    let manifest = Manifest { name: "f".to_owned(), size: bytes.len() as u64, block_bytes: 4096, blocks };
    let (file, to) = (manifest.file(), group.nid(4));
    group.ask(0, Command::OfferFile { to, manifest: manifest.clone() });
    let mut supplied = 0;
    for step in 0..4000 {
        group.run(SECOND / 4);
        if step == 20 {
            group.kill(4, false);
        }
        if step == 60 {
            group.start(4);
        }
        if step == 30 {
            group.kill(0, false);
        }
        if step == 50 {
            group.start(0);
        }
        for event in core::mem::take(&mut group.members[0].events) {
            match event {
                Event::BlockWanted { file: wanted, index, .. } if group.members[0].is_up => {
                    assert_eq!(wanted, file);
                    supplied += 1;
                    let bytes = bytes.chunks(4096).nth(index as usize).unwrap().to_vec();
                    group.ask(0, Command::Supply { to, file, index, bytes });
                }
                Event::FileDelivered { .. } => {
                    let got = (0..74).map(|index| {
                        let request = group.ask(4, Command::ReadBlock { file, index });
                        group.run(SECOND / 100);
                        match group.members[4].replies.get(&request) {
                            Some(Reply::Block(bytes)) => bytes.to_vec(),
                            other => panic!("block {index}: {other:?}"),
                        }
                    });
                    assert_eq!(got.collect::<Vec<_>>().concat(), bytes);
                    assert!(supplied < 74 + 40, "a break costs little: {supplied}");
                    return;
                }
                _ => {}
            }
        }
    }
    panic!("not delivered; supplied {supplied}");
}

#[test]
fn mf_11_a_copied_identity_does_not_flap() {
    let mut group = network(4, 8, 1, |_| {});
    group.run(MINUTE);
    let uuid = {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&4u64.to_be_bytes());
        uuid
    };
    group.add(&[0, 1], |config| config.uuid = uuid);
    group.run(10 * MINUTE);
    let clashes = group.members.iter().flat_map(|member| &member.events);
    assert!(clashes.filter(|event| matches!(event, Event::IdentityClashed { .. })).count() > 0);
    let three = group.nid(3);
    let flaps = |member: &super::group::Member| {
        let is_it = |event: &&Event| matches!(event, Event::PeerDisconnected { nid, .. } if *nid == three);
        member.events.iter().filter(is_it).count()
    };
    assert_eq!(flaps(&group.members[0]) + flaps(&group.members[1]), 0, "the first stays");
}

#[test]
fn receipts_come_back_through_the_mesh() {
    let mut group = network(12, 4, 1, |_| {});
    group.run(10 * MINUTE);
    let to = group.nid(7);
    group.ask(2, Command::Send { to, data: b"sign".to_vec(), receipt: true });
    group.run(MINUTE);
    assert!(
        group.members[2]
            .events
            .iter()
            .any(|event| matches!(event, Event::MessageConfirmed { by, .. } if *by == to))
    );
    let payload = group.members[7].events.iter().find_map(|event| match event {
        Event::MessageReceived { data, .. } => match read_form(data) {
            Form::Ask { payload, .. } => Some(payload.to_vec()),
            Form::Letter(letter) => Some(letter.payload.to_vec()),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(payload.as_deref(), Some(&b"sign"[..]));
    assert!(!here_frame(&Here { nid: to, at: "10.0.0.1:1".parse().unwrap() }).is_empty());
}
