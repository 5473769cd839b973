//! PF-12, PA-14, PA-22, PA-39: false claims evict no node and take over no entry.

use core::time::Duration;

use super::group::{Group, addr};
use super::joining::{Joiner, contact};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const OWN: u128 = 0x5000 << 112;

fn announce(leaf_set: Vec<Contact>) -> Message {
    let tables = TablesSent { leaf_set, ..TablesSent::default() };
    Message::Announce { seen: None, wants_welcome: true, versions: Versions::default(), tables }
}

/// A node that knows another one, which answers, and a liar.
fn knowing() -> (Joiner, Contact, Contact) {
    let mut host = Joiner::new(Config { id: Id::new(OWN), ..small() });
    let (honest, liar) = (contact(OWN + 10, 1), contact(OWN - 10, 2));
    for from in [honest, liar] {
        host.hear(from, &[announce(vec![])]);
        let said = host.said();
        host.answer_probes(&said, &[honest, liar]);
    }
    (host, honest, liar)
}

#[test]
fn a_later_generation_at_a_silent_address_does_not_evict_a_node() {
    let (mut host, honest, liar) = knowing();
    let invented = Contact { addr: addr(50), generation: Generation(99), ..honest };
    host.hear(liar, &[announce(vec![invented])]);
    assert!(host.rig.machine.lower.prober.is_pending(honest.id), "it is looked for there");
    for _ in 0..40 {
        let said = host.said();
        host.answer_probes(&said, &[honest, liar]);
        host.rig.advance(SECOND / 4);
    }
    assert_eq!(host.rig.machine.contact(honest.id), Some(honest));
    assert!(host.rig.machine.leaf_set().contains(honest.id));
}

#[test]
fn a_pong_that_claims_another_address_gives_it_no_entry() {
    let (mut host, _, liar) = knowing();
    let candidate = contact(OWN + 5, 3);
    host.hear(liar, &[announce(vec![candidate])]);
    let nonce = host.said().iter().find_map(|message| match message {
        Message::Ping { nonce, .. } => Some(*nonce),
        _ => None,
    });
    let nonce = nonce.expect("the candidate is probed");
    // It answers, and claims the address of another node.
    let from = Contact { addr: addr(60), ..candidate };
    let pong = Message::Pong { ring: RingTag::new("annulus"), nonce, from, leaf_set_digest: 0 };
    host.datagram(candidate.addr, &pong);
    assert_eq!(host.rig.machine.contact(candidate.id), Some(candidate), "it is where it answered");
}

#[test]
fn a_join_report_from_an_unproved_address_is_probed_first() {
    let mut joiner = Joiner::new(Config { id: Id::new(OWN), seeds: vec![addr(1)], ..small() });
    let id = joiner.join_message();
    let (claimed, real) = (contact(OWN + 10, 7), contact(OWN - 10, 1));
    let about = About::Join { id, hop: 0, last: true };
    let state = Message::State { about, versions: Versions::default(), tables: TablesSent::default() };
    joiner.hear_from(real.addr, claimed, &[state]);
    assert!(!joiner.rig.machine.leaf_set().contains(claimed.id), "it did not come from that machine");
    assert!(joiner.rig.machine.lower.prober.is_pending(claimed.id));
}

#[test]
fn an_announcement_does_not_take_over_the_id_of_a_live_node() {
    let mut group = Group::ring(10, 2, &small());
    let taken = group.nodes[4].machine.own();
    // The objection of the live node is slow, so the other one gets as far as announcing itself.
    group.latency(|a, b| if a == 4 && b == 10 { 3 * SECOND } else { SECOND / 200 });
    let index = group.start(Config { id: taken.id, seeds: vec![addr(1)], ..small() });
    group.run(20 * SECOND);
    assert!(!group.nodes[index].machine.is_active());
    assert!(group.nodes[index].events.contains(&Event::IdTaken));
    for at in (0..10).filter(|&at| at != 4) {
        let known = group.nodes[at].machine.contact(taken.id);
        assert!(known.is_none_or(|known| known == taken), "node {at} knows {known:?}");
    }
}

/// A flood of invented nodes, all nearer than any real one, hides no death.
#[test]
fn invented_nodes_do_not_keep_a_dead_one_in_the_tables() {
    let (mut host, honest, liar) = knowing();
    let invented = |round: u128| -> Vec<Contact> {
        (0..100).map(|at| contact(OWN + 1000 + round * 100 + at, 200 + at as usize)).collect()
    };
    host.rig.machine.lower.prober = prober::Prober::new(4, 50, 2 * SECOND);
    for round in 0..4 {
        host.hear(liar, &[announce(invented(round))]);
    }
    assert!(host.rig.machine.counted().probes_dropped > 100, "dropped probes are counted");
    // Messages to it are not acknowledged; neither are probes.
    let request = Command::route(AppName::default(), honest.id, vec![1]);
    host.rig.command(request);
    for round in 4..24 {
        let said = host.said();
        host.answer_probes(&said, &[liar]);
        host.rig.advance(SECOND / 2);
        host.hear(liar, &[announce(invented(round))]);
    }
    assert_eq!(host.rig.machine.contact(honest.id), None, "it is found dead all the same");
    assert_eq!(host.rig.machine.contact(liar.id), Some(liar));
}

/// The replies to a request.
fn replies(host: &mut Joiner) -> Vec<String> {
    host.rig.take_log().into_iter().filter(|line| line.starts_with("Reply ")).collect()
}

/// The numbers of the transmission and of the message that were sent last.
fn last_transmission(host: &mut Joiner) -> (u64, MessageId) {
    let said = host.said();
    let number = said.iter().rev().find_map(|message| match message {
        Message::Route { transmission, envelope } => Some((*transmission, envelope.id)),
        _ => None,
    });
    number.expect("a message was sent")
}

#[test]
fn numbers_of_messages_and_transmissions_cannot_be_predicted() {
    let (mut host, honest, _) = knowing();
    let command = Command::route(AppName::default(), honest.id, vec![1]);
    let numbers = [0; 8].map(|_| {
        host.rig.command(command.clone());
        let (transmission, id) = last_transmission(&mut host);
        (transmission >> 32, id.0 >> 20)
    });
    let steps = |number: fn((u64, u128)) -> u128| -> std::collections::BTreeSet<u128> {
        numbers.windows(2).map(|two| number(two[1]).wrapping_sub(number(two[0]))).collect()
    };
    assert_eq!(steps(|(transmission, _)| transmission.into()).len(), 7, "no step is like another");
    assert_eq!(steps(|(_, id)| id).len(), 7);
}

#[test]
fn only_the_node_that_got_a_message_acknowledges_and_confirms_it() {
    let (mut host, honest, liar) = knowing();
    host.rig.command(Command::route(AppName::default(), honest.id, vec![1]));
    let (transmission, id) = last_transmission(&mut host);
    let refused = host.rig.machine.counted().refused;
    let ack = Message::Ack { transmissions: vec![transmission], delivered: vec![id] };
    let nack = Message::Nack { transmission };
    let traced = Report::Traced { path: vec![PathStep { contact: honest, rtt_micros: None }] };
    let trace = Message::Receipt { id, attempt: 0, hops: 1, report: traced };
    host.hear(liar, &[ack.clone(), nack.clone(), trace]);
    assert_eq!(replies(&mut host), Vec::<String>::new(), "it was not sent there, and is no trace");
    // Another machine claims to be the node.
    host.hear_from(liar.addr, honest, &[ack.clone(), nack]);
    assert_eq!(replies(&mut host), Vec::<String>::new(), "the connection does not prove the address");
    assert_eq!(host.rig.machine.counted().refused - refused, 4);
    host.hear(honest, &[ack]);
    let told = replies(&mut host);
    assert!(told.len() == 1 && told[0].contains("Delivered"), "{told:?}");
}

#[test]
fn pd_10_a_message_sent_once_is_retried_if_the_next_hop_certainly_did_not_take_it() {
    let (mut host, honest, _) = knowing();
    let (app, payload) = (AppName::default(), vec![1]);
    let (wants_answer, deadline) = (false, None);
    host.rig.command(Command::Route { app, key: honest.id, payload, once: true, wants_answer, deadline });
    let (transmission, id) = last_transmission(&mut host);
    host.hear(honest, &[Message::Nack { transmission }]);
    let said = host.said();
    let probe = said.iter().find_map(|message| match *message {
        Message::Ping { ring, nonce, .. } => Some((ring, nonce)),
        _ => None,
    });
    let (ring, nonce) = probe.expect("the node is probed first");
    host.hear(honest, &[Message::Pong { ring, nonce, from: honest, leaf_set_digest: 0 }]);
    let (again, same) = last_transmission(&mut host);
    assert!(again != transmission && same == id);
}

#[test]
fn a_late_receipt_of_an_earlier_attempt_still_counts() {
    let (mut host, honest, _) = knowing();
    host.rig.command(Command::route(AppName::default(), honest.id, vec![1]));
    let (_, id) = last_transmission(&mut host);
    host.rig.advance(SECOND);
    host.rig.take_log();
    let receipt = |attempt, report| Message::Receipt { id, attempt, hops: 1, report };
    host.hear(honest, &[receipt(0, Report::Failed { why: Failure::Stopped })]);
    assert_eq!(replies(&mut host), Vec::<String>::new(), "a later attempt may do better");
    host.hear(honest, &[receipt(0, Report::Delivered { answer: None })]);
    let told = replies(&mut host);
    assert!(told.len() == 1 && told[0].contains("Delivered"), "{told:?}");
}

/// PA-14: a node gets an entry when it announces itself, and loses it if it does not answer the probe.
#[test]
fn a_node_that_announces_itself_and_never_answers_is_removed() {
    let (mut host, honest, liar) = knowing();
    host.rig.machine.lower.prober = prober::Prober::new(4, 50, 2 * SECOND);
    let mute = contact(OWN + 20, 3);
    for round in 0..14 {
        let invented: Vec<Contact> =
            (0..100).map(|at| contact(OWN + 1000 + round * 100 + at, 200 + at as usize)).collect();
        host.hear(liar, &[announce(invented)]);
        if round == 2 {
            host.hear(mute, &[announce(Vec::new())]);
            assert_eq!(host.rig.machine.contact(mute.id), Some(mute));
        }
        let said = host.said();
        host.answer_probes(&said, &[honest, liar]);
        host.rig.advance(SECOND / 2);
    }
    assert_eq!(host.rig.machine.contact(mute.id), None);
}
