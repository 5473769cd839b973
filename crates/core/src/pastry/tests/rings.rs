//! Rings of several nodes.

use core::time::Duration;

use super::group::{self, Group};
use super::*;
use crate::Rng;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn p_21_every_message_arrives_at_the_closest_node() {
    for count in [1, 2, 3, 8, 9, 10, 60] {
        let mut group = Group::ring(count, count as u64, &small());
        group.assert_leaf_sets_are_exact();
        let mut rng = Rng::from_number(9, 0);
        for _ in 0..100 {
            let from = rng.index(count);
            let key = Id::new(rng.next_u128());
            let request = group.command(from, Command::route(AppName::default(), key, vec![1]));
            group.run(SECOND / 2);
            let owner = group.owner(key);
            let reply = group.reply(from, request);
            assert!(
                matches!(reply, Some(Reply::Outcome(Outcome::Delivered { by, .. })) if by.id == owner),
                "{count}: {reply:?}"
            );
        }
    }
}

/// Two rings that do not know each other, and a node of one of them that never returns. It is still probed, but the
/// seeds, where the other ring is, are tried as well.
#[test]
fn pa_42_seeds_are_tried_while_a_node_is_lost_for_good() {
    let mut group = Group::new(115);
    let seeds: Vec<_> = (0..3).map(group::addr).collect();
    group.cut(&[0], &[1, 2]);
    for id in 1..=3 {
        group.start(Config { id: Id::new(id << 120), seeds: seeds.clone(), ..small() });
    }
    group.run(60 * SECOND);
    let known: Vec<usize> =
        group.nodes.iter().map(|node| node.machine.leaf_set().members().count()).collect();
    assert_eq!(known, [0, 1, 1], "two rings");
    group.crash(2, true);
    group.run(60 * SECOND);
    group.heal();
    group.run(300 * SECOND);
    group.assert_leaf_sets_are_exact();
}
