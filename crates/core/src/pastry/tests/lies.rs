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
    let mut rounds = 4;
    for _ in 0..20 {
        let said = host.said();
        host.answer_probes(&said, &[liar]);
        host.rig.advance(SECOND / 2);
        host.hear(liar, &[announce(invented(rounds))]);
        rounds += 1;
    }
    assert_eq!(host.rig.machine.contact(honest.id), None, "it is found dead all the same");
    assert_eq!(host.rig.machine.contact(liar.id), Some(liar));
}
