//! Rings of several nodes.

use core::time::Duration;

use super::group::Group;
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
            let app = AppName::default();
            let request = group.command(from, Command::Route { app, key, payload: vec![1], retries: 0 });
            group.run(SECOND / 2);
            let owner = group.owner(key);
            let reply = group.reply(from, request);
            assert!(
                matches!(reply, Some(Reply::Delivered { by, .. }) if by.id == owner),
                "{count}: {reply:?}"
            );
        }
    }
}
