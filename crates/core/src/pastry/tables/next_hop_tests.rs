use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::id::Base;
use crate::rng::Rng;

/// A node with tables, by hand.
struct Node {
    own: Id,
    leaf_set: LeafSet,
    routing_table: RoutingTable,
}

impl Node {
    fn new(own: u128, side_max: usize) -> Self {
        let own = Id::new(own);
        Self { own, leaf_set: LeafSet::new(own, side_max), routing_table: RoutingTable::new(own, Base::B4) }
    }

    fn knowing(mut self, leaves: &[u128], cells: &[u128]) -> Self {
        for &leaf in leaves {
            self.leaf_set.insert(Id::new(leaf));
        }
        for &cell in cells {
            assert!(self.routing_table.insert(Id::new(cell)), "each in a cell of its own");
        }
        self
    }

    fn tables(&self) -> Decider<'_> {
        Decider { own: self.own, leaf_set: &self.leaf_set, routing_table: &self.routing_table }
    }

    fn decide(&self, key: u128) -> Step {
        self.tables().decide(Id::new(key), Avoid::default())
    }

    fn avoiding(&self, key: u128, tried: &[u128]) -> Step {
        let tried: Vec<Id> = tried.iter().copied().map(Id::new).collect();
        self.tables().decide(Id::new(key), Avoid { tried: &tried, ..Avoid::default() })
    }
}

/// The number with these leading digits.
fn hex(digits: &str) -> u128 {
    u128::from_str_radix(&format!("{digits:0<32}"), 16).unwrap()
}

fn to(digits: &str) -> Step {
    Step::Forward { to: Id::new(hex(digits)), last: false }
}

/// A node whose leaf set spans 47 to 53 and whose table has a few cells.
fn node() -> Node {
    Node::new(hex("5000"), 2).knowing(
        &[hex("4f"), hex("47"), hex("51"), hex("53")],
        &[hex("1"), hex("9"), hex("d"), hex("57"), hex("5c"), hex("508")],
    )
}

#[test]
fn p_20_a_suitable_node_is_found_or_it_is_delivered_here() {
    assert_eq!(node().decide(hex("9abc")), to("9"));
    assert_eq!(Node::new(hex("5"), 2).decide(hex("9abc")), Step::Deliver, "no other node is known");
}

#[test]
fn p_22_within_the_leaf_set_it_goes_straight_to_the_closest() {
    let last = |digits| Step::Forward { to: Id::new(hex(digits)), last: true };
    assert_eq!(node().decide(hex("511")), last("51"));
    assert_eq!(node().decide(hex("52f")), last("53"), "though a cell would share as much");
    assert_eq!(node().decide(hex("47")), last("47"), "the extreme is included");
    assert_eq!(node().decide(hex("5000001")), Step::Deliver);
}

#[test]
fn n_4_a_key_within_the_leaf_set_is_one_step_away() {
    for offset in 0..64 {
        let key = hex("47") + (hex("53") - hex("47")) / 64 * offset;
        match node().decide(key) {
            Step::Deliver => {}
            Step::Forward { to, last } => {
                let all = node().leaf_set.members().chain([Id::new(hex("5"))]).collect::<Vec<_>>();
                assert_eq!((Some(to), last), (Id::new(key).closest(all), true));
            }
            Step::Blocked { .. } => panic!("nothing is avoided"),
        }
    }
}

#[test]
fn p_23_outside_it_goes_to_the_cell_of_the_next_digit() {
    assert_eq!(node().decide(hex("5c0001")), to("5c"), "row 1, column 12");
    assert_eq!(node().decide(hex("d0")), to("d"), "row 0, column 13");
}

#[test]
fn p_24_if_that_cell_is_empty_the_closest_node_of_the_row_that_is_closer() {
    // Row 0 has 1, 9, d; the key begins with b, and 9 and d are both closer than this node.
    assert_eq!(node().decide(hex("b1")), to("d"), "the closest, not the first");
    assert_eq!(node().decide(hex("af")), to("9"));
}

#[test]
fn p_25_then_the_closest_node_of_the_rows_below() {
    let node = Node::new(hex("5000"), 1)
        .knowing(&[hex("50001"), hex("4ffff")], &[hex("4"), hex("508"), hex("5006")]);
    // Row 1 has no node at all; rows 2 and 3 have one each, closer than we are.
    assert_eq!(node.decide(hex("52")), to("508"));
}

#[test]
fn p_26_if_no_node_is_closer_it_is_delivered_here() {
    let node = Node::new(hex("50"), 1).knowing(&[], &[]);
    assert_eq!(node.decide(hex("51")), Step::Deliver);
}

#[test]
fn n_3_as_long_a_prefix_and_numerically_closer() {
    // 4fff… is numerically nearer to the key than we are, but shares no digit with it: it would lead back.
    let own = hex("5fff");
    let node = Node::new(own, 1).knowing(&[own + 1, own - 1], &[hex("4fff")]);
    let key = hex("51");
    assert_eq!(node.decide(key), Step::Forward { to: Id::new(own - 1), last: false });
}

#[test]
fn an_avoided_node_is_skipped_and_an_avoided_owner_blocks() {
    assert_eq!(node().avoiding(hex("d0"), &[hex("d")]), to("9"), "the next best");
    assert_eq!(node().avoiding(hex("511"), &[hex("51")]), Step::Blocked { by: Id::new(hex("51")) });
    let all = [
        hex("4f"),
        hex("47"),
        hex("1"),
        hex("9"),
        hex("d"),
        hex("51"),
        hex("53"),
        hex("57"),
        hex("5c"),
        hex("508"),
    ];
    assert!(matches!(node().avoiding(hex("d0"), &all), Step::Blocked { .. }));
    let suspected = [Id::new(hex("d"))];
    let avoid = Avoid { suspected: &suspected, ..Avoid::default() };
    assert_eq!(node().tables().decide(Id::new(hex("d0")), avoid), to("9"));
}

#[test]
fn a_joiner_is_not_on_the_path_of_its_own_join() {
    let joiner = Id::new(hex("51"));
    let avoid = Avoid { absent: Some(joiner), ..Avoid::default() };
    assert_eq!(node().tables().decide(joiner, avoid), Step::Deliver);
    // Nor is a node that did not take it: the join ends at the next best one.
    let (tried, next) = ([Id::new(hex("53"))], Id::new(hex("51")));
    let avoid = Avoid { absent: Some(Id::new(hex("529"))), tried: &tried, ..Avoid::default() };
    assert_eq!(node().tables().decide(Id::new(hex("529")), avoid), Step::Forward { to: next, last: true });
}

#[test]
fn p_3_only_ids_decide() {
    // The decision is a function of ids: Tables holds nothing else. So two nodes with the same ids in their tables
    // decide alike, whatever they measured; this holds the type to it.
    let (one, two) = (node(), node());
    let Decider { own: _, leaf_set: _, routing_table: _ } = one.tables();
    assert_eq!(one.decide(hex("b1")), two.decide(hex("b1")));
}

#[test]
fn n_15_a_retry_takes_any_node_that_leads_closer() {
    let mut rng = Rng::from_number(1, 0);
    let mut seen = BTreeMap::new();
    for _ in 0..400 {
        let step = node().tables().decide_randomly(Id::new(hex("b1")), Avoid::default(), &mut rng);
        let Step::Forward { to, .. } = step else { panic!("there are closer nodes") };
        *seen.entry(to).or_insert(0) += 1;
    }
    let closer: Vec<Id> =
        ["1", "53", "57", "5c", "9", "d", "51", "508"].map(|digits| Id::new(hex(digits))).to_vec();
    assert!(closer.iter().all(|id| seen.get(id).is_some_and(|&times| times > 10)), "{seen:?}");
    assert_eq!(seen.len(), closer.len(), "none that leads away");
}

/// A whole ring in which every node knows what it would know after perfect joins.
fn ring(ids: &[u128], side_max: usize) -> BTreeMap<Id, Node> {
    ids.iter()
        .map(|&own| {
            let mut node = Node::new(own, side_max);
            for &id in ids.iter().filter(|&&id| id != own) {
                node.leaf_set.insert(Id::new(id));
                node.routing_table.insert(Id::new(id));
            }
            (Id::new(own), node)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn p_21_every_step_is_closer_and_ends_at_the_closest(
        ids in proptest::collection::btree_set(any::<u128>(), 1..80),
        crowd in proptest::collection::btree_set(0u128..5000, 0..30),
        centre: u128,
        keys in proptest::collection::vec(any::<u128>(), 1..20),
        side_max in 1usize..5,
    ) {
        let mut ids: Vec<u128> = ids.into_iter().chain(crowd.iter().map(|at| centre.wrapping_add(*at))).collect();
        ids.sort_unstable();
        ids.dedup();
        let ring = ring(&ids, side_max);
        let near = keys.iter().map(|key| centre.wrapping_add(key % 6000));
        for key in keys.iter().copied().chain(near).map(Id::new) {
            let root = key.closest(ring.keys().copied()).unwrap();
            for start in ring.keys() {
                let mut at = *start;
                let mut steps = 0;
                while let Step::Forward { to, .. } = ring[&at].tables().decide(key, Avoid::default()) {
                    let (before, after) = (at.common_prefix(key, Base::B4), to.common_prefix(key, Base::B4));
                    prop_assert!(after > before || key.is_closer(to, at), "a step leads closer");
                    at = to;
                    steps += 1;
                    prop_assert!(steps < 64);
                }
                prop_assert_eq!(at, root);
            }
        }
    }

    #[test]
    fn n_5_with_nodes_missing_from_the_tables_it_still_converges(
        ids in proptest::collection::btree_set(any::<u128>(), 2..60),
        key: u128,
        holes: u64,
    ) {
        // Only leaf sets are exact; the routing tables have lost most of their nodes. More steps, same end.
        let ids: Vec<u128> = ids.into_iter().collect();
        let mut ring = ring(&ids, 2);
        for (index, node) in ring.values_mut().enumerate() {
            for (n, id) in ids.iter().enumerate() {
                if (holes >> ((index * 7 + n) % 64)) & 1 == 1 {
                    node.routing_table.remove(Id::new(*id));
                }
            }
        }
        let key = Id::new(key);
        let root = key.closest(ring.keys().copied()).unwrap();
        for start in ring.keys() {
            let (mut at, mut steps) = (*start, 0);
            while let Step::Forward { to, .. } = ring[&at].tables().decide(key, Avoid::default()) {
                at = to;
                steps += 1;
                prop_assert!(steps <= ids.len(), "at worst once around");
            }
            prop_assert_eq!(at, root);
        }
    }
}
