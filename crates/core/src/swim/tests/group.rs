//! Small groups of real machines on the test network: every packet takes a millisecond.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::*;
use crate::Machine;
use crate::contract::Network;

/// The packets that the network drops, and the bytes that it counts.
#[derive(Default)]
struct Wire {
    /// Packets from the first to the second are lost.
    cut: BTreeSet<(u8, u8)>,
    /// The node at each place of the network.
    numbers: Vec<u8>,
    bytes: u64,
}

/// A few machines by their numbers. A node that starts again is another place of the network.
struct Group {
    network: Network<Swim>,
    places: BTreeMap<u8, usize>,
    wire: Rc<RefCell<Wire>>,
}

impl Group {
    fn new() -> Self {
        let (mut network, wire) = (Network::default(), Rc::new(RefCell::new(Wire::default())));
        network.latency(|_, _| Duration::from_millis(1));
        let seen = Rc::clone(&wire);
        network.drop_if(move |from, to, bytes| {
            let mut wire = seen.borrow_mut();
            wire.bytes += bytes.len() as u64;
            let path = (wire.numbers[from], wire.numbers[to]);
            wire.cut.contains(&path)
        });
        Self { network, places: BTreeMap::new(), wire }
    }

    /// Nodes with these numbers, which know each other.
    fn of(numbers: core::ops::Range<u8>, preset: Preset) -> Self {
        let mut group = Self::new();
        let all: Vec<Node> = numbers.clone().map(node).collect();
        for n in numbers {
            group.start(&config(n, preset), &all);
        }
        group
    }

    /// Starts a node; one that runs with this number crashes.
    fn start(&mut self, config: &Config, known: &[Node]) {
        let n = (config.id.number() & 0xff) as u8;
        self.crash(n);
        self.places.insert(n, self.network.nodes.len());
        self.wire.borrow_mut().numbers.push(n);
        let (config, known) = (config.clone(), known.to_vec());
        self.network.add(move |_| {
            let mut swim = Swim::new(&config, [n; 32]).unwrap();
            swim.assume(&known);
            swim
        });
    }

    fn crash(&mut self, n: u8) {
        if let Some(place) = self.places.remove(&n) {
            self.network.crash(place, true);
        }
    }

    fn swim(&self, n: u8) -> &Swim {
        &self.network.nodes[self.places[&n]].machine
    }

    fn run(&mut self, time: Duration) {
        self.network.run(time);
    }

    /// Cuts the group in two: those below `at` and the others.
    fn partition(&mut self, at: u8) {
        let paths = self.places.keys().flat_map(|a| self.places.keys().map(move |b| (*a, *b)));
        self.wire.borrow_mut().cut.extend(paths.filter(|(a, b)| (*a < at) != (*b < at)));
    }

    fn heal(&mut self) {
        self.wire.borrow_mut().cut.clear();
    }

    fn forget_events(&mut self) {
        self.network.nodes.iter_mut().for_each(|node| node.events.clear());
    }

    fn sees(&self, n: u8, other: u8) -> Option<State> {
        self.swim(n).members().member(id(other)).map(Member::state)
    }

    fn everyone_sees(&self, state: State) -> bool {
        self.places.keys().all(|a| self.places.keys().all(|b| self.sees(*a, *b) == Some(state)))
    }

    fn died(&self) -> Vec<Id> {
        let died = self.network.nodes.iter().flat_map(|node| &node.events).filter_map(|event| match event {
            Event::MemberDied { id, .. } => Some(*id),
            _ => None,
        });
        died.collect()
    }
}

/// SF-1, SF-2: the first accuser crashes as well, and the suspicion still ends.
#[test]
fn s_r5_a_crash_is_detected_by_all_and_no_live_node_is_declared_dead() {
    for preset in Preset::ALL {
        let mut group = Group::of(1..11, preset);
        group.run(5 * SECOND);
        group.crash(4);
        let seconds = if preset == Preset::Wan { 300 } else { 60 };
        for _ in 0..seconds {
            group.run(SECOND);
            if group.places.keys().all(|n| group.sees(*n, 4).is_none_or(|state| !state.is_live())) {
                break;
            }
        }
        let died = group.died();
        assert!(died.len() == 9 && died.iter().all(|who| *who == id(4)), "{preset}: {died:?}");
    }
}

/// S-114: a node receives both codecs, so nodes with either are one group.
#[test]
fn s_114_nodes_of_both_codecs_are_one_group() {
    let mut group = Group::new();
    for n in 1..9 {
        let preset = Preset::Lan.settings();
        let codec = if n % 2 == 0 { Codec::Msgpack } else { Codec::Compact };
        let seeds = if n == 1 { Vec::new() } else { vec![addr(1)] };
        let settings = Settings { codec, ..preset };
        group.start(&Config { settings, seeds, ..config(n, Preset::Lan) }, &[]);
    }
    group.run(5 * SECOND);
    assert!(group.everyone_sees(State::Alive));
    group.crash(4);
    group.run(30 * SECOND);
    let died = group.died();
    assert!(died.len() == 7 && died.iter().all(|who| *who == id(4)), "{died:?}");
}

/// SF-4.
#[test]
fn s_r3_a_one_way_link_loss_kills_no_member() {
    let mut group = Group::of(1..9, Preset::GoSwim);
    group.wire.borrow_mut().cut.insert((1, 2));
    group.run(60 * SECOND);
    assert_eq!(group.died(), []);
    assert!(group.everyone_sees(State::Alive));
}

/// SF-7 and memberlist #222: no operator, no Join.
#[test]
fn a_partition_of_ten_minutes_heals_by_itself() {
    let mut group = Group::of(1..11, Preset::Lan);
    group.run(5 * SECOND);
    group.partition(6);
    group.run(600 * SECOND);
    assert_eq!(group.sees(1, 9), None, "buried and forgotten");
    group.heal();
    group.forget_events();
    group.run(90 * SECOND);
    assert!(group.everyone_sees(State::Alive));
    assert_eq!(group.died(), [], "healing declares no member dead");
}

/// SA-33c: the dead are probed from their death on, also while they are still in the table.
#[test]
fn a_partition_of_any_length_heals_within_seconds() {
    for preset in [Preset::Lan, Preset::Local] {
        for (nodes, seconds) in [(12, 14), (12, 25), (12, 60), (2, 14), (2, 40)] {
            let mut group = Group::of(1..nodes + 1, preset);
            group.run(5 * SECOND);
            group.partition(1 + nodes / 2);
            group.run(seconds * SECOND);
            assert!(!group.died().is_empty(), "{preset}, {nodes} nodes, {seconds} s");
            group.heal();
            group.run(6 * SECOND);
            assert!(group.everyone_sees(State::Alive), "{preset}, {nodes} nodes, {seconds} s");
        }
    }
}

/// SA-33c: nodes on both sides hear forged goodbyes of all on the other side, and find them again all the same.
#[test]
fn goodbyes_that_are_forged_during_a_partition_do_not_make_it_last() {
    for seconds in [20, 120] {
        let mut group = Group::of(1..7, Preset::Lan);
        group.run(5 * SECOND);
        group.partition(4);
        group.run(30 * SECOND);
        let cut = group.wire.borrow().cut.clone();
        for (a, b) in cut {
            let number = group.swim(a).members().member(id(b)).unwrap().incarnation().0;
            let said = packet(b, &[dead(b, b, number)]);
            group.network.call(group.places[&a], |swim, now, out| {
                swim.handle_datagram(now, UDP, addr(b), &said, out).unwrap();
            });
        }
        group.run(3 * SECOND);
        assert_eq!([group.sees(1, 6), group.sees(6, 1)], [Some(State::Left); 2], "as force-leave does");
        group.run(seconds * SECOND);
        group.heal();
        group.run(10 * SECOND);
        assert!(group.everyone_sees(State::Alive), "{seconds} s");
    }
}

/// SF-7 in go_swim: one Join heals it while the dead are remembered.
#[test]
fn s_83_a_short_partition_heals_by_one_join() {
    let mut group = Group::of(1..9, Preset::GoSwim);
    group.partition(5);
    group.run(25 * SECOND);
    group.heal();
    group.network.command(group.places[&1], Command::Join { addrs: vec![addr(8)] });
    group.run(20 * SECOND);
    assert!(group.everyone_sees(State::Alive));
}

/// SF-10.
#[test]
fn s_83_a_joiner_learns_of_fifty_quiet_members_through_one_of_them() {
    for preset in [Preset::GoSwim, Preset::Lan] {
        let mut group = Group::of(1..51, preset);
        group.run(3 * SECOND);
        group.start(&Config { seeds: vec![addr(7)], ..config(99, preset) }, &[]);
        group.run(15 * SECOND);
        assert_eq!(group.swim(99).members().live(), 51, "{preset}");
        assert!(group.everyone_sees(State::Alive), "{preset}");
    }
}

/// SF-8, on another address.
#[test]
fn s_23_a_restarted_node_rejoins_with_a_new_address_and_incarnation_zero() {
    for preset in [Preset::GoSwim, Preset::Lan] {
        let mut group = Group::of(1..8, preset);
        group.run(3 * SECOND);
        let mut config = config(3, preset);
        group.crash(3);
        group.run(2 * SECOND);
        config.bind = addr(3);
        config.meta = b"second life".to_vec();
        config.seeds = vec![addr(1)];
        group.start(&config, &[]);
        group.run(20 * SECOND);
        for n in group.places.keys() {
            let member = group.swim(*n).members().member(id(3)).unwrap();
            assert_eq!((member.state(), member.contents().meta()), (State::Alive, &b"second life"[..]));
        }
        assert_eq!(group.died(), [], "{preset}");
    }
}

#[test]
fn a_mass_restart_at_incarnation_zero_converges() {
    let mut group = Group::of(1..31, Preset::Lan);
    group.run(5 * SECOND);
    for n in 1..31 {
        group.start(
            &Config { meta: b"new".to_vec(), seeds: vec![addr(n % 30 + 1)], ..config(n, Preset::Lan) },
            &[],
        );
        group.run(Duration::from_millis(100));
    }
    group.run(60 * SECOND);
    assert!(group.everyone_sees(State::Alive));
    let told = |n: u8| group.swim(1).members().member(id(n)).unwrap().contents().meta().to_vec();
    assert!((1..31).all(|n| told(n) == b"new"));
}

/// SF-18.
#[test]
fn a_node_paused_for_a_minute_kills_no_member_and_rejoins() {
    let mut group = Group::of(1..8, Preset::Lan);
    group.run(5 * SECOND);
    let place = group.places[&3];
    group.network.pause(place);
    group.run(60 * SECOND);
    group.forget_events();
    group.network.resume(place);
    group.run(60 * SECOND);
    let events = &group.network.nodes[place].events;
    assert!(!events.iter().any(|event| matches!(event, Event::MemberDied { .. })), "{events:?}");
    assert!(group.everyone_sees(State::Alive));
    assert!(group.swim(3).incarnation() > Incarnation(0), "it contradicted");
}

/// Comparing equal tables costs one small packet. A difference costs as much as it is large, not as the table is.
#[test]
fn the_cost_of_anti_entropy_follows_the_difference() {
    let settings = Settings { sync_interval: SECOND, probe_interval: 3600 * SECOND, ..quiet(Preset::Lan) };
    let cost = |members: u16, missing: u16| {
        let mut group = Group::new();
        let many = |n: u16| Node {
            id: Id::from_text(&n.to_string()),
            addrs: vec![SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 1))],
            meta: Vec::new(),
        };
        for n in 1..3 {
            let mut known: Vec<Node> = (0..members - if n == 1 { missing } else { 0 }).map(many).collect();
            known.push(node(3 - n));
            let config = Config {
                settings: settings.clone(),
                stored_max: 0,
                tombstones_max: 0,
                ..config(n, Preset::Lan)
            };
            group.start(&config, &known);
        }
        // Only the comparison between the two, not with nodes that do not exist.
        for _ in 0..40 {
            group.network.call(group.places[&1], |swim, _, out| {
                let hash = swim.members().hash(Range::ALL).to_be_bytes();
                let header = swim.lower.env.header(Sequence(0));
                let digest = Message::Digest { header, range: Range::ALL, hashes: Hashes(&hash) };
                swim.lower.packets.send_all(addr(2), core::iter::once(digest), 1, out);
            });
            group.run(Duration::from_millis(20));
            if group.swim(1).members().live() == group.swim(2).members().live() {
                break;
            }
        }
        assert_eq!(group.swim(1).members().live(), usize::from(members) + 2, "{members} {missing}");
        group.wire.borrow().bytes
    };
    let (none, few, many) = (cost(2000, 0), cost(2000, 5), cost(2000, 500));
    assert!(none < 100, "{none}");
    assert!(few < 8_000, "{few}: five members of two thousand");
    assert!(many < 150_000, "{many}");
}

#[test]
fn s_137_a_group_of_many_buckets_and_neighbours_detects_a_crash_as_well() {
    let mut group = Group::new();
    let all: Vec<Node> = (1..25).map(node).collect();
    for n in 1..25 {
        let settings = Settings {
            region_count: 3,
            region_probes: 1,
            neighbor_count: 4,
            neighbor_probes: 1,
            sorter: NodeSorter::Ring,
            ..quiet(Preset::GoSwim)
        };
        group.start(&Config { settings, ..config(n, Preset::GoSwim) }, &all);
    }
    group.run(3 * SECOND);
    group.crash(12);
    group.run(40 * SECOND);
    assert!(group.died().iter().all(|who| *who == id(12)));
    assert_eq!(group.died().len(), 23);
}
