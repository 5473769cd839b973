use proptest::prelude::*;

use super::*;

fn id(number: u128) -> Id {
    Id::new(number)
}

fn filled(own: u128, side_max: usize, ids: &[u128]) -> LeafSet {
    let mut leaf_set = LeafSet::new(id(own), side_max);
    for &number in ids {
        leaf_set.insert(id(number));
    }
    leaf_set
}

fn numbers(ids: &[Id]) -> Vec<u128> {
    ids.iter().map(|id| id.number()).collect()
}

#[test]
fn p_13_each_side_has_the_nearest_in_its_direction() {
    let leaf_set = filled(100, 3, &[10, 20, 90, 95, 97, 101, 103, 150, 200]);
    assert_eq!(numbers(leaf_set.side(Side::Clockwise)), [101, 103, 150]);
    assert_eq!(numbers(leaf_set.side(Side::CounterClockwise)), [97, 95, 90]);
    assert_eq!(leaf_set.nearest(Side::Clockwise), Some(id(101)));
    assert_eq!(leaf_set.furthest(Side::CounterClockwise), Some(id(90)));
}

#[test]
fn p_14_a_node_is_inserted_in_order_and_the_furthest_is_removed() {
    let mut leaf_set = filled(100, 3, &[110, 130, 150, 90, 80, 70]);
    assert!(leaf_set.insert(id(120)), "in the middle");
    assert_eq!(numbers(leaf_set.side(Side::Clockwise)), [110, 120, 130]);
    assert!(!leaf_set.would_take(id(140)) && !leaf_set.insert(id(140)), "beyond the furthest");
    assert!(!leaf_set.insert(id(120)), "it is there already");
    assert!(!leaf_set.insert(id(100)), "oneself is no neighbour");
    assert!(leaf_set.would_take(id(105)) && leaf_set.insert(id(105)));
    assert_eq!(numbers(leaf_set.side(Side::Clockwise)), [105, 110, 120]);
}

#[test]
fn p_14_an_empty_position_is_taken() {
    let mut leaf_set = filled(100, 3, &[110]);
    assert!(leaf_set.insert(id(150)));
    assert_eq!(numbers(leaf_set.side(Side::Clockwise)), [110, 150]);
}

#[test]
fn a_node_of_a_small_ring_is_on_both_sides() {
    let leaf_set = filled(100, 4, &[10, 200, 250]);
    assert_eq!(numbers(leaf_set.side(Side::Clockwise)), [200, 250, 10]);
    assert_eq!(numbers(leaf_set.side(Side::CounterClockwise)), [10, 250, 200]);
    assert_eq!(leaf_set.members().count(), 3, "each is listed once");
    assert!(leaf_set.covers(id(u128::MAX)) && leaf_set.covers(id(0)));
}

#[test]
fn only_keys_between_the_extremes_are_covered() {
    let leaf_set = filled(100, 2, &[110, 120, 90, 80, 1000, 2000]);
    for (key, inside) in [(80, true), (79, false), (100, true), (120, true), (121, false), (1 << 127, false)]
    {
        assert_eq!(leaf_set.covers(id(key)), inside, "{key}");
    }
}

#[test]
fn a_version_counts_every_visible_change_and_nothing_else() {
    let mut leaf_set = filled(100, 2, &[110, 120]);
    let version = leaf_set.version();
    leaf_set.insert(id(110));
    assert!(!leaf_set.remove(id(55)));
    assert_eq!(leaf_set.version(), version);
    assert!(leaf_set.remove(id(110)));
    assert_eq!(leaf_set.version(), version + 1);
}

proptest! {
    #[test]
    fn p_13_the_order_of_insertion_does_not_matter(
        own: u128,
        ids in proptest::collection::btree_set(any::<u128>(), 0..40),
        side_max in 1usize..9,
        turn in 0usize..40,
    ) {
        let mut ids: Vec<u128> = ids.into_iter().filter(|&number| number != own).collect();
        let leaf_set = filled(own, side_max, &ids);
        ids.sort_by_key(|number| number.wrapping_sub(own));
        let ahead: Vec<u128> = ids.iter().take(side_max).copied().collect();
        let behind: Vec<u128> = ids.iter().rev().take(side_max).copied().collect();
        prop_assert_eq!(numbers(leaf_set.side(Side::Clockwise)), ahead);
        prop_assert_eq!(numbers(leaf_set.side(Side::CounterClockwise)), behind);
        let turned = turn % ids.len().max(1);
        ids.rotate_left(turned);
        let again = filled(own, side_max, &ids);
        prop_assert_eq!(again.side(Side::Clockwise), leaf_set.side(Side::Clockwise));
    }

    #[test]
    fn p_22_the_closest_of_the_leaf_set_is_found(
        own: u128,
        near in proptest::collection::btree_set(-2000i64..2000, 0..40),
        key in -2500i64..2500,
        side_max in 1usize..9,
    ) {
        let at = |offset: i64| own.wrapping_add_signed(i128::from(offset));
        let ids: Vec<u128> = near.into_iter().filter(|&offset| offset != 0).map(at).collect();
        let leaf_set = filled(own, side_max, &ids);
        let key = id(at(key));
        if leaf_set.covers(key) {
            let all = leaf_set.members().chain([id(own)]);
            prop_assert_eq!(leaf_set.closest(key), key.closest(all).unwrap());
        }
    }

    #[test]
    fn pa_34b_the_next_node_on_the_ring_computes_the_same_digest(
        ids in proptest::collection::btree_set(any::<u128>(), 3..40),
        side_max in 2usize..9,
        at in 0usize..40,
        missing in 0usize..40,
    ) {
        let ids: Vec<u128> = ids.into_iter().collect();
        let (own, next) = (ids[at % ids.len()], ids[(at + 1) % ids.len()]);
        let leaf_set_of = |own: u128, ids: &[u128]| {
            filled(own, side_max, &ids.iter().copied().filter(|number| *number != own).collect::<Vec<_>>())
        };
        let theirs = leaf_set_of(next, &ids);
        prop_assert_eq!(leaf_set_of(own, &ids).seen_from(id(next)).digest(), theirs.digest());
        // A node that only one of the two knows makes a difference.
        let missing = ids[missing % ids.len()];
        let fewer: Vec<u128> = ids.iter().copied().filter(|number| *number != missing).collect();
        let near = SIDES_OF_TEST.into_iter().any(|side| {
            theirs.side(side).iter().take(side_max - 1).any(|node| *node == id(missing))
        });
        if near && missing != own && missing != next {
            prop_assert_ne!(leaf_set_of(own, &fewer).seen_from(id(next)).digest(), theirs.digest());
            prop_assert_ne!(leaf_set_of(own, &ids).seen_from(id(next)).digest(), leaf_set_of(next, &fewer).digest());
        }
    }
}

const SIDES_OF_TEST: [Side; 2] = [Side::Clockwise, Side::CounterClockwise];
