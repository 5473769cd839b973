//! The selection lists.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

fn slots(numbers: impl IntoIterator<Item = u32>) -> Vec<Slot> {
    numbers.into_iter().map(Slot::new).collect()
}

fn shuffled(count: u32, rng: &mut Rng) -> ShuffleList {
    let mut list = ShuffleList::new();
    slots(0..count).into_iter().for_each(|slot| list.add(slot, rng));
    list
}

#[test]
fn s_43_every_node_is_chosen_once_per_round_and_each_round_is_shuffled() {
    let mut rng = Rng::from_number(1, 0);
    let mut list = shuffled(20, &mut rng);
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let round: Vec<Slot> = (0..20).filter_map(|_| list.next(&mut rng)).collect();
        let mut all = round.clone();
        all.sort();
        assert_eq!(all, slots(0..20));
        rounds.push(round);
    }
    rounds.dedup();
    assert_eq!(rounds.len(), 5, "no two rounds are in the same order");
}

#[test]
fn s_42_the_shuffle_reaches_every_order() {
    let mut rng = Rng::from_number(2, 0);
    let mut list = shuffled(3, &mut rng);
    let mut seen = BTreeMap::new();
    for _ in 0..6_000 {
        let round: Vec<Slot> = (0..3).filter_map(|_| list.next(&mut rng)).collect();
        *seen.entry(round).or_insert(0) += 1;
    }
    assert!(seen.len() == 6 && seen.values().all(|&n| (800..1_200).contains(&n)), "{seen:?}");
}

#[test]
fn s_38_an_empty_list_has_no_next() {
    assert_eq!(ShuffleList::new().next(&mut Rng::from_number(1, 0)), None);
    assert_eq!(BucketList::new(3).next(&mut Rng::from_number(1, 0)), None);
}

#[test]
fn s_35_a_new_node_gets_a_random_place_among_those_not_yet_chosen() {
    let mut seen = BTreeMap::new();
    for seed in 0..2_000 {
        let mut rng = Rng::from_number(seed, 0);
        let mut list = shuffled(8, &mut rng);
        (0..4).for_each(|_| assert!(list.next(&mut rng).is_some()));
        list.add(Slot::new(99), &mut rng);
        let turn = (0..5).position(|_| list.next(&mut rng) == Some(Slot::new(99)));
        *seen.entry(turn.expect("it comes in this round")).or_insert(0) += 1;
    }
    assert!(seen.len() == 5 && seen.values().all(|&n| (300..500).contains(&n)), "{seen:?}");
}

#[test]
fn s_36_removing_a_node_skips_no_other() {
    let mut rng = Rng::from_number(3, 0);
    for gone in 0..10 {
        let mut list = shuffled(10, &mut rng);
        let mut seen: Vec<Slot> = (0..5).filter_map(|_| list.next(&mut rng)).collect();
        assert!(list.remove(Slot::new(gone)) && !list.remove(Slot::new(gone)));
        let left = 10 - 5 - usize::from(!seen.contains(&Slot::new(gone)));
        seen.extend((0..left).filter_map(|_| list.next(&mut rng)));
        seen.retain(|slot| *slot != Slot::new(gone));
        seen.sort();
        assert_eq!(seen, slots((0..10).filter(|n| *n != gone)));
    }
}

#[test]
fn s_37_choose_gives_distinct_nodes_without_those_excluded() {
    let mut rng = Rng::from_number(4, 0);
    let mut list = shuffled(6, &mut rng);
    for _ in 0..50 {
        let mut chosen = list.choose(4, &mut rng, |slot| slot == Slot::new(2));
        assert!(chosen.len() <= 4 && !chosen.contains(&Slot::new(2)));
        chosen.sort();
        chosen.dedup();
        assert_eq!(chosen.len(), 4);
    }
    assert_eq!(list.choose(99, &mut rng, |_| true), []);
}

#[test]
fn s_39_the_list_has_every_node() {
    let mut rng = Rng::from_number(5, 0);
    let list = shuffled(7, &mut rng);
    let mut all = list.list().to_vec();
    all.sort();
    assert_eq!(all, slots(0..7));
}

proptest! {
    /// The bound of S-R7 under churn. A node that stays is chosen again within 2n − 1 turns; a newcomer may be chosen
    /// in both rounds.
    #[test]
    fn s_r7_no_node_waits_longer_than_two_rounds(seed: u64, churn in prop::collection::vec(0u8..4, 200)) {
        let mut rng = Rng::from_number(seed, 0);
        let mut list = shuffled(12, &mut rng);
        let (mut next, mut waited, mut bound) = (12u32, 0usize, 2 * 12 - 1);
        let target = Slot::new(5);
        for action in churn {
            match action {
                0 if list.len() < 16 => {
                    list.add(Slot::new(next), &mut rng);
                    next += 1;
                    bound += 2;
                }
                1 if list.len() > 4 => {
                    let gone = list.list().iter().copied().find(|slot| *slot != target).unwrap();
                    list.remove(gone);
                }
                _ => {}
            }
            if list.next(&mut rng) == Some(target) {
                (waited, bound) = (0, 2 * list.len() - 1);
            } else {
                waited += 1;
            }
            prop_assert!(waited < bound, "waited {waited} of {bound}");
        }
    }

    /// S-138: with one region and no neighbourhood, draw for draw a plain shuffle list.
    #[test]
    fn s_138_one_region_and_no_neighbours_is_the_original(seed: u64, churn in prop::collection::vec(0u8..6, 150)) {
        let mut plain = (ShuffleList::new(), Rng::from_number(seed, 0));
        let mut fancy = (Selection::new(1, 1, 0, 0), Rng::from_number(seed, 0));
        let mut next = 0;
        for action in churn {
            match action {
                0 | 1 => {
                    plain.0.add(Slot::new(next), &mut plain.1);
                    fancy.0.add(Slot::new(next), &mut fancy.1);
                    next += 1;
                }
                2 => {
                    plain.0.remove(Slot::new(next / 2));
                    fancy.0.remove(Slot::new(next / 2));
                }
                _ => {
                    let expected: Vec<Slot> = plain.0.next(&mut plain.1).into_iter().collect();
                    prop_assert_eq!(fancy.0.targets(&mut fancy.1), expected);
                }
            }
            prop_assert!(!fancy.0.is_unsorted());
        }
    }

    /// SF-25: under churn every node is in exactly one bucket, the sizes follow the formula, and every node is chosen.
    #[test]
    fn s_44_every_node_is_in_exactly_one_bucket(seed: u64, n in 0u32..60, k in 1usize..6, gone in 0u32..20) {
        let mut rng = Rng::from_number(seed, 0);
        let mut list = BucketList::new(k);
        list.update_in_place(&slots(0..n), &mut rng);
        list.update_in_place(&slots(gone.min(n)..n + gone), &mut rng);
        let mut all: Vec<Slot> = list.list().collect();
        all.sort();
        prop_assert_eq!(all, slots(gone.min(n)..n + gone));
        let held: Vec<usize> = list.buckets().iter().map(ShuffleList::len).collect();
        prop_assert_eq!(held, sizes((n + gone - gone.min(n)) as usize, k));
        let mut turns: Vec<Slot> = (0..list.len() * k).filter_map(|_| list.next(&mut rng)).collect();
        turns.sort();
        turns.dedup();
        prop_assert_eq!(turns.len(), list.len());
    }
}

#[test]
fn s_45_a_bucket_that_did_not_change_keeps_its_place_in_the_round() {
    let mut rng = Rng::from_number(6, 0);
    let mut list = BucketList::new(2);
    list.update_in_place(&slots(0..9), &mut rng);
    for _ in 0..5 {
        list.next(&mut rng);
    }
    let before = list.clone();
    list.update_in_place(&slots(0..9), &mut rng);
    assert_eq!(list, before);
}

#[test]
fn s_37_bucket_zero_holds_the_farthest_and_the_nearest_come_most_often() {
    let mut rng = Rng::from_number(7, 0);
    let mut list = BucketList::new(3);
    list.update_in_place(&slots(0..100), &mut rng);
    assert!(list.buckets()[0].contains(Slot::new(99)) && list.buckets()[2].contains(Slot::new(0)));
    let mut count = BTreeMap::new();
    for _ in 0..3_000 {
        *count.entry(list.next(&mut rng).unwrap()).or_insert(0) += 1;
    }
    assert!(count[&Slot::new(0)] > 5 * count[&Slot::new(99)], "{count:?}");
}

#[test]
fn s_48_s_49_some_of_the_nearest_and_the_rest_from_the_regions() {
    let mut rng = Rng::from_number(8, 0);
    let mut list = Selection::new(2, 2, 5, 3);
    list.update(&slots(0..30), &mut rng);
    for _ in 0..40 {
        let targets = list.targets(&mut rng);
        let near = targets.iter().filter(|slot| slot.index() < 5).count();
        assert_eq!((targets.len(), near), (5, 3), "{targets:?}");
    }
    assert_eq!((list.neighbors().len(), list.region().len()), (5, 25));
}

#[test]
fn s_49_neighbours_come_first_and_each_list_fills_up_the_other() {
    let mut rng = Rng::from_number(9, 0);
    let mut list = Selection::new(2, 2, 5, 2);
    list.update(&slots(0..4), &mut rng);
    for _ in 0..10 {
        let mut targets = list.targets(&mut rng);
        targets.sort();
        targets.dedup();
        assert_eq!(targets.len(), 4, "all four neighbours, as there are no others");
    }
    let mut list = Selection::new(2, 2, 0, 2);
    list.update(&slots(0..9), &mut rng);
    assert_eq!(list.targets(&mut rng).len(), 4);
}

#[test]
fn s_48_nodes_within_r_are_neighbours_and_the_others_are_not() {
    let mut rng = Rng::from_number(10, 0);
    let mut list = Selection::new(1, 1, 3, 1);
    list.update(&slots([7, 3, 9, 1, 4]), &mut rng);
    let mut near = list.neighbors().list().to_vec();
    near.sort();
    assert_eq!(near, slots([3, 7, 9]));
    assert!(list.neighbors().contains(Slot::new(9)) && !list.neighbors().contains(Slot::new(1)));
}
