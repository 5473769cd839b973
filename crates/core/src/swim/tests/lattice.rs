//! The replicated state of a member is a join-semilattice: order, grouping and repetition of updates do not matter.

use proptest::prelude::*;

use super::*;

/// An update about one member.
#[derive(Clone, Debug)]
struct News {
    status: Status,
    contents: Option<OwnContents>,
}

fn news() -> impl Strategy<Value = News> {
    (0u32..4, 0u8..4, 0u8..3).prop_map(|(incarnation, state, told)| {
        let state = State::from_number(state).unwrap();
        let contents = (state == State::Alive)
            .then(|| OwnContents::new(&[addr(told + 1)], if told == 2 { b"meta" } else { b"" }).unwrap());
        News { status: Status::new(Incarnation(incarnation), state), contents }
    })
}

fn member() -> Member {
    Member::new(id(2), Status::default(), contents(1).borrow())
}

fn told(mut member: Member, all: &[News]) -> Member {
    for news in all {
        member.merge(news.status, news.contents.as_ref().map(OwnContents::borrow));
    }
    member
}

/// The updates that one node would send another about a member.
fn as_news(member: &Member) -> [News; 2] {
    let alive = Status::new(member.contents_incarnation(), State::Alive);
    [
        News { status: alive, contents: Some(member.contents().to_owned()) },
        News { status: member.status(), contents: None },
    ]
}

proptest! {
    #[test]
    fn s_78_the_order_of_updates_does_not_matter(all in prop::collection::vec(news(), 0..8), seed: u64) {
        let mut other = all.clone();
        crate::rng::Rng::from_number(seed, 0).shuffle(&mut other);
        prop_assert_eq!(told(member(), &all), told(member(), &other));
    }

    #[test]
    fn s_78_merging_is_associative_and_idempotent(
        a in prop::collection::vec(news(), 0..5),
        b in prop::collection::vec(news(), 0..5),
        c in prop::collection::vec(news(), 0..5),
    ) {
        let (at_a, at_b, at_c) = (told(member(), &a), told(member(), &b), told(member(), &c));
        let left = told(told(at_a.clone(), &as_news(&at_b)), &as_news(&at_c));
        let right = told(at_a.clone(), &as_news(&told(at_b, &as_news(&at_c))));
        prop_assert_eq!(&left, &right);
        let mut again = left.clone();
        for news in a.iter().chain(&as_news(&left)) {
            let contents = news.contents.as_ref().map(OwnContents::borrow);
            prop_assert!(!again.merge(news.status, contents), "what is known is no news");
        }
        prop_assert_eq!(again, left);
    }

    #[test]
    fn s_21_an_incarnation_never_falls(all in prop::collection::vec(news(), 0..12)) {
        let mut member = member();
        for news in &all {
            let before = member.status();
            member.merge(news.status, news.contents.as_ref().map(OwnContents::borrow));
            prop_assert!(member.status() >= before);
            prop_assert_eq!(member.status(), before.join(news.status));
        }
    }
}

/// SF-6: all 27 pairs of state and relation, in every order of three messages, end the same everywhere.
#[test]
fn s_78_every_order_of_three_messages_ends_the_same() {
    let all: Vec<Status> = (0..3)
        .flat_map(|incarnation| {
            [State::Alive, State::Suspect, State::Dead, State::Left]
                .map(|state| Status::new(Incarnation(incarnation), state))
        })
        .collect();
    for a in &all {
        for b in &all {
            for c in &all {
                let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
                let ends = orders.map(|order| {
                    let mut rig = rig(Preset::GoSwim, &[2]);
                    for status in order {
                        let own = contents(2);
                        let number = status.incarnation.0;
                        let message = match status.state {
                            State::Alive => alive(&own, 2, number),
                            State::Suspect => suspect(3, 2, number),
                            State::Dead => dead(3, 2, number),
                            State::Left => dead(2, 2, number),
                        };
                        say(&mut rig, 4, &[message]);
                    }
                    status(&rig, 2)
                });
                assert!(ends.iter().all(|end| *end == ends[0]), "{a:?} {b:?} {c:?}: {ends:?}");
            }
        }
    }
}

/// The sequence that Serf gets wrong: alive@1, dead@1, dead@10, alive@2.
#[test]
fn s_82_no_stale_message_revives_the_dead() {
    let mut rig = rig(Preset::Lan, &[2, 3]);
    let own = contents(2);
    for message in [alive(&own, 2, 1), dead(3, 2, 1), dead(3, 2, 10), alive(&own, 2, 2)] {
        say(&mut rig, 3, &[message]);
    }
    assert_eq!(status(&rig, 2), Some((10, State::Dead)));
}
