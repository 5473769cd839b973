//! The joiner's side: P-27 … P-38, N-10.

use core::time::Duration;
use std::net::SocketAddr;

use super::group::{Group, addr};
use super::*;
use crate::contract::Rig;
use crate::wire::Writer;
use crate::{Machine, Rng, StreamEvent, StreamId};

const SECOND: Duration = Duration::from_secs(1);

/// A single joiner; the test plays its peers.
pub(super) struct Joiner {
    pub(super) rig: Rig<Pastry>,
    streams: u64,
}

pub(super) fn contact(number: u128, index: usize) -> Contact {
    Contact { id: Id::new(number), addr: addr(index), generation: Generation(1) }
}

fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, 1 << 16));
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

impl Joiner {
    pub(super) fn new(config: Config) -> Self {
        let mut rig = Rig::new(Pastry::new(Config { bind: addr(100), ..config }, [7; 32]).unwrap());
        rig.start();
        Self { rig, streams: 0 }
    }

    /// A peer opens a stream and sends these messages.
    pub(super) fn hear(&mut self, from: Contact, messages: &[Message]) -> StreamId {
        self.hear_from(from.addr, from, messages)
    }

    /// A node at this address opens a stream, claims to be `from`, and sends these messages.
    pub(super) fn hear_from(&mut self, at: SocketAddr, from: Contact, messages: &[Message]) -> StreamId {
        self.streams += 1;
        let stream = StreamId::accepted(self.streams);
        let accepted = StreamEvent::Accepted { listener: TCP, from: at, local: addr(100) };
        self.rig.stream(stream, accepted).unwrap();
        let hello = Message::Hello { ring: RingTag::new("annulus"), from };
        self.rig.stream(stream, StreamEvent::Data(&frame(&hello))).unwrap();
        for message in messages {
            self.rig.stream(stream, StreamEvent::Data(&frame(message))).unwrap();
        }
        stream
    }

    /// Every message the joiner wrote or sent since the last call, in order.
    pub(super) fn said(&mut self) -> Vec<Message> {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let log = self.rig.take_log();
        let bytes = log.iter().filter_map(|line| {
            let last = line.rsplit(' ').next()?;
            if line.starts_with("Write ") {
                // A frame of the pool's own, a ping or a pong, begins with 0xc0.
                Some(hex(last)).filter(|bytes| bytes[0] < 0xc0).map(|bytes| bytes[4..].to_vec())
            } else {
                line.starts_with("Send ").then(|| hex(last))
            }
        });
        bytes.map(|bytes| decode(&bytes).unwrap()).collect()
    }

    /// The number of its join message.
    pub(super) fn join_message(&mut self) -> MessageId {
        let said = self.said();
        let mut joins = said.iter().filter_map(|message| match message {
            Message::Route { envelope, .. } if envelope.body == Body::Join => Some(envelope.clone()),
            _ => None,
        });
        let join = joins.next_back().expect("a join was sent");
        assert_eq!(join.key, self.rig.machine.own().id, "its key is the joiner's id");
        join.id
    }

    /// Answers every probe under way on behalf of the nodes that are alive.
    pub(super) fn answer_probes(&mut self, said: &[Message], alive: &[Contact]) -> usize {
        let mut answered = 0;
        for message in said {
            let Message::Ping { ring, nonce, .. } = message else { continue };
            for from in alive {
                let pong = Message::Pong { ring: *ring, nonce: *nonce, from: *from, leaf_set_digest: 0 };
                let asked = self.rig.machine.lower.prober.is_probing(*nonce, from);
                if asked {
                    self.datagram(from.addr, &pong);
                    answered += 1;
                }
            }
        }
        answered
    }
}

impl Joiner {
    /// A datagram comes from this address.
    pub(super) fn datagram(&mut self, from: SocketAddr, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut Writer::new(&mut bytes, 256));
        self.rig.datagram(UDP, from, &bytes).expect("it is taken");
    }
}

fn report(id: MessageId, hop: u8, last: bool, tables: TablesSent) -> Message {
    Message::State { about: About::Join { id, hop, last }, versions: Versions::default(), tables }
}

fn joiner() -> Joiner {
    Joiner::new(Config { id: Id::new(0x5000 << 112), seeds: vec![addr(1)], ..small() })
}

#[test]
fn p_27_the_address_of_one_node_is_enough() {
    let mut group = Group::ring(20, 3, &small());
    let seeds = vec![addr(7)];
    let index = group.start(Config { id: Id::new(77 << 120), seeds, ..small() });
    group.run_until_active(index);
    group.run(SECOND);
    group.assert_leaf_sets_are_exact();
}

#[test]
fn p_28_the_join_is_routed_to_the_joiners_own_id() {
    let mut joiner = joiner();
    let log = joiner.rig.log.join("\n");
    assert!(log.contains(&format!("Open 0:2 to {}", addr(1))), "{log}");
    joiner.join_message();
}

#[test]
fn p_29_every_node_on_the_path_sends_rows_that_suit_the_joiner() {
    let (first, hop) = reports_of_a_join();
    for tables in [&first, &hop] {
        assert!(!tables.routing_table.is_empty());
    }
}

#[test]
fn p_30_the_first_sends_its_neighbourhood_set_too() {
    let (first, last) = reports_of_a_join();
    assert!(!first.neighbourhood.is_empty());
    assert!(last.neighbourhood.is_empty(), "the others don't");
}

#[test]
fn p_31_the_last_sends_its_leaf_set_too() {
    let (first, last) = reports_of_a_join();
    assert!(first.leaf_set.is_empty() && !last.leaf_set.is_empty());
}

/// The state that the first and the last node on the path of a join send, in a ring where these differ.
fn reports_of_a_join() -> (TablesSent, TablesSent) {
    let group = Group::ring(40, 5, &small());
    let joiner = contact(0xabcd << 112, 100);
    let root = group.owner(joiner.id);
    let seed = group
        .alive()
        .map(|node| &node.machine)
        .find(|pastry| matches!(pastry.decide(joiner.id), Step::Forward { .. }));
    let owner = group.alive().map(|node| &node.machine).find(|pastry| pastry.own().id == root);
    let sent = |pastry: &Pastry, hops: u8| {
        let mut rig = Rig::new(pastry.clone());
        rig.now.mono = group.time().mono;
        let envelope = Envelope {
            id: MessageId(1),
            attempt: 0,
            key: joiner.id,
            origin: joiner,
            ttl: 9,
            hops,
            to_node: false,
            lifetime_millis: 1000,
            body: Body::Join,
        };
        let mut by_hand = Joiner { rig, streams: 1_000_000 };
        by_hand.hear(contact(1, 101), &[Message::Route { transmission: 1, envelope }]);
        let said = by_hand.said();
        let mut states = said.into_iter().filter_map(|message| match message {
            Message::State { about: About::Join { hop, last, .. }, tables, .. } => Some((hop, last, tables)),
            _ => None,
        });
        states.next_back().expect("state was sent")
    };
    let (hop, last, first_tables) = sent(seed.unwrap(), 0);
    assert_eq!((hop, last), (0, false));
    let (hop, last, last_tables) = sent(owner.unwrap(), 2);
    assert_eq!((hop, last), (2, true));
    (first_tables, last_tables)
}

#[test]
fn p_32_named_nodes_are_measured_before_they_get_an_entry() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let (living, dead) = (contact(0x9 << 124, 2), contact(0xa << 124, 3));
    let tables = TablesSent { routing_table: vec![living, dead], ..TablesSent::default() };
    joiner.hear(contact(0x1 << 124, 1), &[report(id, 0, true, tables)]);
    let said = joiner.said();
    let table = joiner.rig.machine.routing_table();
    assert!(table.contains(Id::new(0x1 << 124)) && !table.contains(living.id), "only the sender");
    assert_eq!(joiner.answer_probes(&said, &[living]), 1);
    assert!(joiner.rig.machine.routing_table().contains(living.id));
    joiner.rig.advance(5 * SECOND);
    assert!(!joiner.rig.machine.routing_table().contains(dead.id), "it never answered");
    // The node is remembered as removed, which saves a second request.
    let tables = TablesSent { routing_table: vec![dead], ..TablesSent::default() };
    joiner.said();
    joiner.hear(contact(0x1 << 124, 1), &[report(id, 0, true, tables)]);
    assert!(!joiner.rig.machine.lower.prober.is_pending(dead.id), "it was probed without answer just now");
}

#[test]
fn p_33_every_node_measured_is_considered_for_the_neighbourhood_set() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    // Two for the same cell: one gets it, both are near.
    let (one, two) = (contact(0x91 << 120, 2), contact(0x92 << 120, 3));
    let tables = TablesSent { routing_table: vec![one, two], ..TablesSent::default() };
    joiner.hear(contact(0x1 << 124, 1), &[report(id, 0, true, tables)]);
    let said = joiner.said();
    joiner.answer_probes(&said, &[one, two]);
    let neighbours: Vec<Id> = joiner.rig.machine.neighbourhood().members().collect();
    assert!(neighbours.contains(&one.id) && neighbours.contains(&two.id), "{neighbours:?}");
}

#[test]
fn p_34_the_received_leaf_set_is_the_beginning_of_the_own_one() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let own = 0x5000 << 112;
    let leaves: Vec<Contact> = (1..=5).map(|n| contact(own + n, 10 + n as usize)).collect();
    let tables = TablesSent { leaf_set: leaves.clone(), ..TablesSent::default() };
    joiner.hear(contact(own - 1, 1), &[report(id, 0, true, tables)]);
    let said = joiner.said();
    joiner.answer_probes(&said, &leaves);
    let clockwise = joiner.rig.machine.leaf_set().side(crate::ring::Side::Clockwise);
    assert_eq!(clockwise, leaves[..4].iter().map(|leaf| leaf.id).collect::<Vec<_>>(), "the nearest four");
}

#[test]
fn p_35_it_announces_itself_when_every_hop_has_reported_and_the_leaves_are_measured() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let announced = |joiner: &mut Joiner| {
        let said = joiner.said();
        said.iter().filter(|message| matches!(message, Message::Announce { .. })).count()
    };
    joiner.hear(contact(0x51 << 120, 2), &[report(id, 1, true, TablesSent::default())]);
    assert_eq!(announced(&mut joiner), 0, "hop 0 has not reported");
    joiner.hear(contact(0x1 << 124, 1), &[report(id, 0, false, TablesSent::default())]);
    assert_eq!(announced(&mut joiner), 2, "to everybody it knows");
}

#[test]
fn p_35_stragglers_get_twice_the_network_timeout() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let last = contact(0x51 << 120, 2);
    joiner.hear(last, &[report(id, 1, true, TablesSent::default())]);
    let said = joiner.said();
    joiner.answer_probes(&said, &[last]);
    let limit = joiner.rig.machine.lower.env.config().network_timeout * 2;
    joiner.rig.advance(limit - SECOND / 10);
    assert!(!joiner.said().iter().any(|message| matches!(message, Message::Announce { .. })));
    joiner.rig.advance(SECOND / 5);
    assert!(joiner.said().iter().any(|message| matches!(message, Message::Announce { .. })));
}

#[test]
fn p_36_the_announcement_has_the_versions_that_were_seen() {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let versions = Versions { leaf_set: 4, routing_table: 9, neighbourhood: 2 };
    let about = About::Join { id, hop: 0, last: true };
    joiner
        .hear(contact(0x51 << 120, 2), &[Message::State { about, versions, tables: TablesSent::default() }]);
    let said = joiner.said();
    let seen = said.iter().find_map(|message| match message {
        Message::Announce { seen, tables, .. } => Some((*seen, tables.leaf_set.len())),
        _ => None,
    });
    assert_eq!(seen, Some((Some(versions), 1)), "and the tables of the joiner go with it");
}

/// A joiner that has announced itself to one node.
fn announcing() -> (Joiner, Contact) {
    let mut joiner = joiner();
    let id = joiner.join_message();
    let other = contact(0x51 << 120, 2);
    joiner.hear(other, &[report(id, 0, true, TablesSent::default())]);
    assert!(!joiner.rig.machine.is_active(), "the leaf has not said that it knows us");
    joiner.said();
    (joiner, other)
}

#[test]
fn p_37_after_a_race_it_announces_itself_again_to_the_node_that_warned() {
    let (mut joiner, other) = announcing();
    let newer = contact(0x5000 << 112 | 1, 3);
    let tables = TablesSent { leaf_set: vec![newer], ..TablesSent::default() };
    let versions = Versions { leaf_set: 9, ..Versions::default() };
    joiner.hear(other, &[Message::State { about: About::Race, versions, tables }]);
    let said = joiner.said();
    let again: Vec<_> = said.iter().filter(|message| matches!(message, Message::Announce { .. })).collect();
    assert!(
        matches!(again[..], [Message::Announce { seen: Some(seen), .. }] if *seen == versions),
        "{again:?}"
    );
    // The state of the warning is used: the node in between is probed, and gets an announcement.
    assert_eq!(joiner.answer_probes(&said, &[newer]), 1);
    assert_eq!(joiner.rig.machine.leaf_set().nearest(crate::ring::Side::Clockwise), Some(newer.id));
    assert!(joiner.said().iter().any(|message| matches!(message, Message::Announce { .. })));
}

#[test]
fn p_37_warnings_without_end_do_not_make_a_storm() {
    let (mut joiner, other) = announcing();
    let mut announced = 0;
    for round in 1..20 {
        let versions = Versions { leaf_set: round, ..Versions::default() };
        let race = Message::State { about: About::Race, versions, tables: TablesSent::default() };
        joiner.hear(other, &[race]);
        announced +=
            joiner.said().iter().filter(|message| matches!(message, Message::Announce { .. })).count();
    }
    assert_eq!(announced, 3, "three rounds, then it is left at that");
    assert!(joiner.rig.machine.is_active());
}

#[test]
fn p_37_a_node_whose_tables_have_changed_warns() {
    let mut host = Joiner::new(Config { id: Id::new(0x5000 << 112), ..small() });
    let announce = |seen| Message::Announce {
        seen,
        wants_welcome: true,
        versions: Versions::default(),
        tables: TablesSent::default(),
    };
    host.hear(contact(1, 1), &[announce(None)]);
    let welcomed = |said: Vec<Message>| said.iter().any(|message| matches!(message, Message::Welcome { .. }));
    assert!(welcomed(host.said()), "nothing was seen: no race");
    let current = host.rig.machine.lower.tables.versions();
    host.hear(contact(2, 2), &[announce(Some(current))]);
    assert!(welcomed(host.said()), "all was seen");
    host.hear(contact(3, 3), &[announce(Some(current))]);
    let said = host.said();
    let race = said.iter().find_map(|message| match message {
        Message::State { about: About::Race, tables, .. } => Some(tables.leaf_set.len()),
        _ => None,
    });
    assert_eq!(race, Some(3), "the second joiner was not seen by the third");
}

#[test]
fn p_38_the_receiver_of_an_announcement_considers_the_joiner_and_its_contacts() {
    let mut host = Joiner::new(Config { id: Id::new(0x5000 << 112), ..small() });
    let (joiner, named) = (contact(0x6 << 124, 1), contact(0x7 << 124, 2));
    let tables = TablesSent { routing_table: vec![named], ..TablesSent::default() };
    host.hear(
        joiner,
        &[Message::Announce { seen: None, wants_welcome: true, versions: Versions::default(), tables }],
    );
    assert!(host.rig.machine.leaf_set().contains(joiner.id));
    assert!(!host.rig.machine.leaf_set().contains(named.id), "a contact that others named");
    let said = host.said();
    host.answer_probes(&said, &[named, joiner]);
    assert!(
        host.rig.machine.leaf_set().contains(named.id) && host.rig.machine.routing_table().contains(named.id)
    );
}

#[test]
fn n_10_an_active_joiner_requests_nearer_nodes_from_known_ones() {
    let (mut joiner, other) = announcing();
    joiner.hear(other, &[Message::Welcome { versions: Versions::default() }]);
    assert!(joiner.rig.machine.is_active());
    let said = joiner.said();
    let asked = said
        .iter()
        .any(|message| matches!(message, Message::StateRequest { wanted, .. } if wanted.rows != 0));
    assert!(asked, "{said:?}");
}

#[test]
fn two_adjacent_joiners_at_once_learn_of_each_other() {
    let mut group = Group::ring(30, 8, &small());
    let centre = 0x7777 << 112;
    let one = group.start(Config { id: Id::new(centre), seeds: vec![addr(3)], ..small() });
    let two = group.start(Config { id: Id::new(centre + 1), seeds: vec![addr(17)], ..small() });
    group.run_until_active(one);
    group.run_until_active(two);
    group.run(SECOND);
    group.assert_leaf_sets_are_exact();
}

#[test]
fn fifteen_joins_at_once_into_one_node_settle_without_a_storm() {
    let one_after_the_other = Group::ring(16, 4, &small());
    let mut group = Group::new(4);
    let mut rng = Rng::from_number(4, 1);
    let first = group.start(Config { id: Id::new(rng.next_u128()), ..small() });
    group.run(SECOND);
    let mut joiners = Vec::new();
    for _ in 0..15 {
        joiners.push(group.start(Config {
            id: Id::new(rng.next_u128()),
            seeds: vec![addr(first)],
            ..small()
        }));
    }
    joiners.into_iter().for_each(|index| group.run_until_active(index));
    group.run(10 * SECOND);
    group.assert_leaf_sets_are_exact();
    let (together, apart) = (group.packets, one_after_the_other.packets);
    assert!(together <= 4 * apart, "{together} messages, {apart} one after the other");
    group.run(15 * SECOND);
    let before = group.packets;
    group.run(10 * SECOND);
    assert!(group.packets - before < 16 * 6, "then silence: {}", group.packets - before);
}

#[test]
fn a_joiner_whose_id_is_taken_gets_an_event() {
    let mut group = Group::ring(10, 2, &small());
    let taken = group.nodes[4].machine.own().id;
    let index = group.start(Config { id: taken, seeds: vec![addr(1)], ..small() });
    group.run(2 * SECOND);
    assert!(group.nodes[index].events.contains(&Event::IdTaken));
}

#[test]
fn a_seed_that_is_dead_is_passed_over_for_the_next() {
    let mut group = Group::ring(5, 2, &small());
    group.crash(1, true);
    let index = group.start(Config { id: Id::new(99), seeds: vec![addr(1), addr(2)], ..small() });
    group.run(8 * SECOND);
    assert!(group.nodes[index].machine.is_active());
}

#[test]
fn nodes_that_name_each_other_as_seeds_form_one_ring() {
    let mut group = Group::new(6);
    let seeds = vec![addr(0), addr(1), addr(2)];
    for index in 0..3u128 {
        group.start(Config { id: Id::new(index << 120 | 5), seeds: seeds.clone(), ..small() });
    }
    group.run(240 * SECOND);
    assert!(group.alive().all(|node| node.machine.is_active()));
    group.assert_leaf_sets_are_exact();
}

#[test]
fn a_message_for_a_joiner_is_deferred_until_it_is_active() {
    let (mut joiner, other) = announcing();
    let own = joiner.rig.machine.own().id;
    let envelope = Envelope {
        id: MessageId(5),
        attempt: 0,
        key: own,
        origin: other,
        ttl: 9,
        hops: 1,
        to_node: false,
        lifetime_millis: 10_000,
        body: Body::App { app: AppName::default(), wants_answer: false, payload: b"early".to_vec().into() },
    };
    joiner.hear(other, &[Message::Route { transmission: 3, envelope }]);
    let log = joiner.rig.log.join("\n");
    assert!(!log.contains("Delivered"), "PA-19: forwarded if need be, not delivered");
    joiner.hear(other, &[Message::Welcome { versions: Versions::default() }]);
    let log = joiner.rig.log.join("\n");
    assert!(log.contains("Joined") && log.contains("Event Delivered"), "{log}");
}

/// PA-20: each of them lists itself, and none was there before.
#[test]
fn seeds_that_start_together_bootstrap_one_ring() {
    for seed in 70..78 {
        let mut group = Group::new(seed);
        let mut rng = Rng::from_number(seed, 1);
        for _ in 0..5 {
            let (id, seeds) = (Id::new(rng.next_u128()), (0..5).map(addr).collect());
            group.start(Config { id, seeds, ..small() });
            group.run(Duration::from_millis(rng.below(20)));
        }
        group.run(15 * SECOND);
        assert!(group.nodes.iter().all(|node| node.machine.is_active()), "seed {seed}");
        group.assert_leaf_sets_are_exact();
    }
}

/// PA-18: the backoff is a minute by then, and another node announces itself.
#[test]
fn a_node_in_backoff_joins_through_a_node_that_announces_itself() {
    let mut joiner = joiner();
    joiner.rig.advance(300 * SECOND);
    assert!(joiner.rig.machine.poll_timeout().is_some_and(|(at, _)| at > joiner.rig.now.mono));
    joiner.said();
    let somebody = contact(77, 9);
    let (tables, versions) = (TablesSent::default(), Versions::default());
    joiner.hear(somebody, &[Message::Announce { seen: None, wants_welcome: true, versions, tables }]);
    joiner.join_message();
}
