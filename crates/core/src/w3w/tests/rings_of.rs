//! The routing ring by itself, row by row of the first table.

use proptest::prelude::*;

use super::desk::{ip, nid};
use crate::tag::StreamId;
use crate::w3w::Nid;
use crate::w3w::ring::{Direction, Ring, Route};

fn route(number: u64) -> Route {
    let at = std::net::SocketAddrV4::new(ip(number as u8), 22_000);
    Route { at, direction: Direction::In, stream: StreamId::accepted(number) }
}

fn ring(own: u8, peers: &[u8]) -> Ring {
    let mut ring = Ring::new(nid(own));
    peers.iter().for_each(|peer| ring.insert(nid(*peer), route(u64::from(*peer))));
    ring
}

fn order(ring: &Ring) -> Vec<u8> {
    ring.iter().map(|(nid, _)| nid.to_bytes()[0]).collect()
}

#[test]
fn m_6_elements_are_in_ascending_order_however_they_come() {
    assert_eq!(order(&ring(0x50, &[0x90, 0x10, 0xf0, 0x40])), [0x10, 0x40, 0x90, 0xf0]);
}

#[test]
fn m_7_every_element_has_a_younger_and_an_older_one_round_the_circle() {
    let ring = ring(0x50, &[0x10, 0x40, 0x90]);
    let around = |point: u8| (ring.younger(nid(point)), ring.older(nid(point)));
    assert_eq!(around(0x10), (Some(nid(0x90)), Some(nid(0x40))));
    assert_eq!(around(0x40), (Some(nid(0x10)), Some(nid(0x90))));
    assert_eq!(around(0x90), (Some(nid(0x40)), Some(nid(0x10))));
    assert_eq!(ring.neighbours(), Some((nid(0x40), nid(0x90))), "ours");
}

#[test]
fn m_8_at_first_the_ring_is_empty() {
    let ring = Ring::new(nid(1));
    assert_eq!((ring.len(), ring.neighbours(), ring.nearest(nid(9))), (0, None, None));
}

#[test]
fn m_9_the_ring_prints_as_the_document_draws_it() {
    let mut ring = ring(0x50, &[0x10]);
    ring.insert(nid(0x20), Route { direction: Direction::Out, ..route(0x20) });
    let json: serde_json::Value = serde_json::from_str(&ring.to_json()).unwrap();
    let first = &json[0][nid(0x10).to_string()];
    assert_eq!((first["ip"].as_str(), first["port"].as_str()), (Some("127.0.7.16"), Some("22000")));
    assert_eq!(first["direction"], "in");
    assert_eq!(json[1][nid(0x20).to_string()]["direction"], "out");
}

#[test]
fn m_20_the_search_for_a_place_begins_at_the_start() {
    let mut ring = ring(0x50, &[0x30]);
    ring.insert(nid(0x10), route(1));
    assert_eq!(order(&ring), [0x10, 0x30], "the first place is looked at too (MA-5)");
}

#[test]
fn m_21_a_deleted_node_is_gone_and_an_absent_one_changes_nothing() {
    let mut ring = ring(0x50, &[0x10, 0x30]);
    assert!(ring.remove(nid(0x10)).is_some());
    assert!(ring.remove(nid(0x10)).is_none(), "MA-9");
    assert_eq!(order(&ring), [0x30]);
}

#[test]
fn m_22_the_search_ends_behind_the_last_element() {
    let mut ring = ring(0x50, &[0x10, 0x30]);
    ring.insert(nid(0x40), route(4));
    assert_eq!(
        order(&ring),
        [0x10, 0x30, 0x40],
        "greater than all is appended, not searched for for ever (MA-2)"
    );
}

#[test]
fn m_23_a_place_where_nothing_is_takes_the_node() {
    let mut ring = Ring::new(nid(0x50));
    ring.insert(nid(0x40), route(4));
    assert_eq!(order(&ring), [0x40], "the empty ring too (MA-1)");
}

#[test]
fn m_24_a_greater_node_goes_further_and_an_equal_one_is_updated() {
    let mut ring = ring(0x50, &[0x10, 0x30]);
    ring.insert(nid(0x20), route(2));
    ring.insert(nid(0x30), route(77));
    assert_eq!(order(&ring), [0x10, 0x20, 0x30], "no duplicate (MA-8)");
    assert_eq!(ring.get(nid(0x30)), Some(&route(77)));
    ring.insert(nid(0x50), route(5));
    assert_eq!(ring.get(nid(0x50)), None, "never ourselves (MA-34)");
}

#[test]
fn m_25_a_search_that_wraps_finds_both_ends() {
    let ring = ring(0x50, &[0x10, 0xf0]);
    assert_eq!(ring.around(nid(0xf8), &[]), Some((nid(0xf0), nid(0x10))));
    assert_eq!(ring.around(nid(0x01), &[]), Some((nid(0xf0), nid(0x10))));
    assert_eq!(ring.around(nid(0x01), &[nid(0xf0)]), Some((nid(0x10), nid(0x10))));
    assert_eq!(ring.around(nid(0x01), &[nid(0x10)]), Some((nid(0xf0), nid(0xf0))));
}

#[test]
fn m_27_order_holds_after_every_change() {
    let mut ring = Ring::new(nid(0));
    for step in 0u8..200 {
        let peer = step.wrapping_mul(73) | 1;
        if step % 3 == 2 {
            ring.remove(nid(peer));
        } else {
            ring.insert(nid(peer), route(u64::from(peer)));
        }
        let order = order(&ring);
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
    }
}

#[test]
fn ma_35_a_tie_goes_to_the_smallest_middle_and_two_peers_are_no_triple() {
    assert_eq!(ring(0x00, &[0x10, 0x20, 0x30, 0x40, 0x50]).too_close(None).unwrap().middle, nid(0x20));
    assert_eq!(ring(0x00, &[0x10, 0x20]).too_close(None), None);
    assert_eq!(ring(0x00, &[0x10, 0x20]).too_close(Some(nid(0x18))).unwrap().middle, nid(0x18));
}

fn any_nid() -> impl Strategy<Value = Nid> {
    any::<[u8; 32]>().prop_map(Nid::from_bytes)
}

proptest! {
    #[test]
    fn neighbours_are_nearest_on_each_side(own in any_nid(), peers in proptest::collection::btree_set(any_nid(), 1..12), point in any_nid()) {
        prop_assume!(!peers.contains(&own) && !peers.contains(&point));
        let mut ring = Ring::new(own);
        peers.iter().for_each(|peer| ring.insert(*peer, route(1)));
        let clockwise = crate::ring::clockwise::<Nid>;
        let (younger, older) = ring.around(point, &[]).unwrap();
        prop_assert!(peers.iter().all(|peer| clockwise(*peer, point) >= clockwise(younger, point)));
        prop_assert!(peers.iter().all(|peer| clockwise(point, *peer) >= clockwise(point, older)));
        prop_assert_eq!(ring.nearest(point), crate::ring::closest(point, peers.iter().copied()));
        if let Some(triple) = ring.too_close(None) {
            let (own_younger, own_older) = ring.neighbours().unwrap();
            prop_assert!(triple.middle != own_younger && triple.middle != own_older, "MA-36");
        }
        prop_assert!(ring.is_neighbour(ring.younger(own).unwrap()) && ring.is_neighbour(ring.older(own).unwrap()));
    }

    #[test]
    fn nid_text_and_bytes_agree(bytes in any::<[u8; 32]>(), other in any::<[u8; 32]>()) {
        let (a, b) = (Nid::from_bytes(bytes), Nid::from_bytes(other));
        prop_assert_eq!(a.to_bytes(), bytes);
        prop_assert_eq!(a.to_string().parse::<Nid>().unwrap(), a);
        prop_assert_eq!(a.to_string().to_uppercase().parse::<Nid>().unwrap(), a, "people may shout");
        prop_assert_eq!(a.to_hex().to_vec(), a.to_string().into_bytes());
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()), "alphabetical order is numeric order");
    }
}
