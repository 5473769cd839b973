//! PF-12, PA-14, PA-22, PA-39: whoever says what is not so evicts nobody and takes nobody's place.

use core::time::Duration;

use super::group::{Group, addr};
use super::joining::{Joiner, contact};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const OWN: u128 = 0x5000 << 112;

fn announce(leaf_set: Vec<Contact>) -> Message {
    let tables = TablesSent { leaf_set, ..TablesSent::default() };
    Message::Announce { seen: None, versions: Versions::default(), tables }
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
fn who_names_a_later_life_of_a_node_where_nobody_is_does_not_evict_it() {
    let (mut host, honest, liar) = knowing();
    let invented = Contact { addr: addr(50), incarnation: Incarnation(99), ..honest };
    host.hear(liar, &[announce(vec![invented])]);
    assert!(host.rig.machine.probes.is_pending(honest.id), "it is looked for there");
    for _ in 0..40 {
        let said = host.said();
        host.answer_probes(&said, &[honest, liar]);
        host.rig.advance(SECOND / 4);
    }
    assert_eq!(host.rig.machine.contact(honest.id), Some(honest));
    assert!(host.rig.machine.leaf_set().contains(honest.id));
}

#[test]
fn who_answers_in_the_name_of_another_address_does_not_get_it_a_seat() {
    let (mut host, _, liar) = knowing();
    let candidate = contact(OWN + 5, 3);
    host.hear(liar, &[announce(vec![candidate])]);
    let nonce = host.said().iter().find_map(|message| match message {
        Message::Ping { nonce, .. } => Some(*nonce),
        _ => None,
    });
    let nonce = nonce.expect("the candidate is asked");
    // It answers, and says that it lives where somebody else does.
    let from = Contact { addr: addr(60), ..candidate };
    let pong =
        Message::Pong { ring: RingTag::new("annulus"), nonce, from, leaf_set_version: 0, clock: Clock(1) };
    host.datagram(candidate.addr, &pong);
    assert_eq!(host.rig.machine.contact(candidate.id), Some(candidate), "it is where it answered");
}

#[test]
fn who_reports_to_a_joiner_from_elsewhere_is_asked_first() {
    let mut joiner = Joiner::new(Config { id: Id::new(OWN), seeds: vec![addr(1)], ..small() });
    let id = joiner.join_message();
    let (claimed, real) = (contact(OWN + 10, 7), contact(OWN - 10, 1));
    let about = About::Join { id, hop: 0, last: true };
    let state = Message::State { about, versions: Versions::default(), tables: TablesSent::default() };
    joiner.hear_from(real.addr, claimed, &[state]);
    assert!(!joiner.rig.machine.leaf_set().contains(claimed.id), "it did not come from that machine");
    assert!(joiner.rig.machine.probes.is_pending(claimed.id));
}

#[test]
fn an_id_that_lives_is_not_taken_over_by_an_announcement() {
    let mut group = Group::ring(10, 2, &small());
    let taken = group.members[4].pastry.own();
    // The objection of the living one takes long, so the other gets as far as to announce itself.
    group.latency = Box::new(|a, b| if a == 4 && b == 10 { 3 * SECOND } else { SECOND / 200 });
    let index = group.start(Config { id: taken.id, seeds: vec![addr(1)], ..small() });
    group.run(20 * SECOND);
    assert!(!group.members[index].pastry.is_active());
    assert!(group.members[index].events.contains(&Event::IdTaken));
    for at in (0..10).filter(|&at| at != 4) {
        let known = group.members[at].pastry.contact(taken.id);
        assert!(known.is_none_or(|known| known == taken), "node {at} knows {known:?}");
    }
}

/// A flood of invented nodes, all nearer to us than anybody, hides no death.
#[test]
fn who_invents_nodes_does_not_keep_a_dead_one_in_its_seat() {
    let (mut host, honest, liar) = knowing();
    let invented = |round: u128| -> Vec<Contact> {
        (0..100).map(|at| contact(OWN + 1000 + round * 100 + at, 200 + at as usize)).collect()
    };
    let config = &mut host.rig.machine.config;
    (config.probes_max, config.candidates_max) = (4, 50);
    host.rig.machine.probes = probes::Probes::new(7, 4, 50);
    for round in 0..4 {
        host.hear(liar, &[announce(invented(round))]);
    }
    assert!(host.rig.machine.counted().candidates_dropped > 100, "what is too much is counted");
    // Messages to it are not acknowledged; neither are probes.
    let request = Command::Route { app: AppName::default(), key: honest.id, payload: vec![1], retries: 0 };
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

/// The number of the message that was sent last.
fn last_number(host: &mut Joiner) -> MessageId {
    let said = host.said();
    let number = said.iter().rev().find_map(|message| match message {
        Message::Route { envelope, .. } => Some(envelope.id),
        _ => None,
    });
    number.expect("a message was sent")
}

/// What a request was told.
fn replies(host: &mut Joiner) -> Vec<String> {
    host.rig.take_log().into_iter().filter(|line| line.starts_with("Reply ")).collect()
}

#[test]
fn only_who_carried_a_message_knows_its_number() {
    let (mut host, honest, _) = knowing();
    let command = Command::Route { app: AppName::default(), key: honest.id, payload: vec![1], retries: 0 };
    let numbers = [0; 8].map(|_| {
        host.rig.command(command.clone());
        last_number(&mut host).0 >> 64
    });
    let mut different = numbers.to_vec();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 8);
    assert!(
        numbers.windows(3).any(|three| three[1].wrapping_sub(three[0]) != three[2].wrapping_sub(three[1]))
    );
}

#[test]
fn a_delivery_is_told_by_who_got_the_message() {
    let (mut host, honest, liar) = knowing();
    let command = Command::Route { app: AppName::default(), key: honest.id, payload: vec![1], retries: 0 };
    host.rig.command(command);
    let id = last_number(&mut host);
    let refused = host.rig.machine.counted().refused;
    let ack = Message::Ack { clock: Clock(2), transmissions: Vec::new(), delivered: vec![id] };
    let answer = |from| Message::Answer { id, hops: 1, from, payload: b"a lie".to_vec() };
    let path = vec![PathStep { contact: honest, rtt_micros: None }];
    let trace = Message::Receipt { id, outcome: Outcome::Delivered { by: liar }, hops: 1, path };
    host.hear(liar, &[ack.clone(), answer(liar), trace]);
    assert_eq!(replies(&mut host), Vec::<String>::new(), "it was not sent there, and is no question");
    assert_eq!(host.rig.machine.counted().refused - refused, 3);
    host.hear(honest, &[ack]);
    let told = replies(&mut host);
    assert!(told.len() == 1 && told[0].contains("Delivered"), "{told:?}");
}

#[test]
fn an_acknowledgement_that_comes_after_the_message_went_another_way_still_counts() {
    let (mut host, honest, liar) = knowing();
    // Not the owner's key, so that there is another way; it may be repeated.
    let key = Id::new(OWN + 9);
    let command = Command::Route { app: AppName::default(), key, payload: vec![1], retries: 1 };
    host.rig.command(command);
    let id = last_number(&mut host);
    assert_eq!(host.rig.machine.sendings.was_sent_to(id, honest.id), Some(true));
    host.rig.machine.sendings.sent(id, liar.id);
    host.rig.take_log();
    host.hear(honest, &[Message::Ack { clock: Clock(2), transmissions: Vec::new(), delivered: vec![id] }]);
    let told = replies(&mut host);
    assert!(told.len() == 1 && told[0].contains("Delivered"), "{told:?}");
}

#[test]
fn a_question_ends_by_the_answer_of_who_speaks() {
    let (mut host, honest, liar) = knowing();
    let command = Command::Ask { app: AppName::default(), key: honest.id, payload: vec![1], retries: 0 };
    host.rig.command(command);
    let id = last_number(&mut host);
    let refused = host.rig.machine.counted().refused;
    let answer = Message::Answer { id, hops: 1, from: honest, payload: b"yes".to_vec() };
    let outcome = Outcome::Delivered { by: honest };
    let receipt = Message::Receipt { id, outcome, hops: 1, path: Vec::new() };
    let ack = Message::Ack { clock: Clock(2), transmissions: Vec::new(), delivered: vec![id] };
    host.hear(liar, &[answer.clone(), receipt]);
    host.hear(honest, &[ack]);
    assert_eq!(replies(&mut host), Vec::<String>::new());
    assert_eq!(host.rig.machine.counted().refused - refused, 3);
    host.hear(honest, &[answer]);
    let told = replies(&mut host);
    assert!(told.len() == 1 && told[0].contains("Answered"), "{told:?}");
}

/// PA-14: it has a place because it spoke, and loses it because it does not answer, whatever else there is to ask.
#[test]
fn who_announces_itself_and_never_answers_is_not_kept() {
    let (mut host, honest, liar) = knowing();
    host.rig.machine.probes = probes::Probes::new(7, 4, 50);
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
