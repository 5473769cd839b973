//! Messages that applications settle: PD-6, PD-7, PD-8.

use core::time::Duration;

use super::group::{Group, addr};
use super::messages::{accepted_by, ask, long_way, once, route};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn pd_6_the_application_answers_and_settles_a_message_once() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    let request = group.command(from, ask(key));
    group.run(SECOND / 2);
    let owner = *way.last().unwrap();
    let open = group.nodes[owner].events.iter().find_map(|event| match event {
        Event::Delivered { id, wants_answer: true, is_settled: false, .. } => Some(*id),
        _ => None,
    });
    let id = open.expect("the owner's application has it");
    assert_eq!(group.reply(from, request), None, "the origin waits");
    let answer = Command::Settle(vec![(id, Verdict::Answer(b"because".to_vec()))]);
    let settled = group.command(owner, answer.clone());
    assert_eq!(group.reply(owner, settled), Some(&Reply::Settled { open: 1 }));
    group.run(SECOND / 2);
    let (by, hops) = (group.nodes[owner].machine.own(), way.len() as u8 - 1);
    let delivered = Outcome::Delivered { by, hops, answer: Some(b"because".to_vec()) };
    assert_eq!(group.reply(from, request), Some(&Reply::Outcome(delivered)));
    let again = group.command(owner, answer);
    assert_eq!(group.reply(owner, again), Some(&Reply::Settled { open: 0 }));
    let copies = group.nodes[owner].events.iter();
    let copies = copies.filter(|event| matches!(event, Event::Delivered { .. })).count();
    assert_eq!(copies, 1, "the attempts that came meanwhile were not given to it again");
}

/// A ring of two nodes; the application of the second settles nothing by itself.
fn pair() -> (Group, Id) {
    let mut group = Group::new(7);
    for (id, seeds) in [(1, vec![]), (9, vec![addr(0)])] {
        let applications = vec![AppName::default()];
        let config = Config { id: Id::new(id << 120), seeds, applications, ..small() };
        let make = move |bind, seed| Pastry::new(Config { bind, ..config.clone() }, seed).unwrap();
        let index = group.start_machine(make);
        group.run_until_active(index);
    }
    group.run(5 * SECOND);
    let key = group.nodes[1].machine.own().id;
    (group, key)
}

/// The messages that the application of a node got.
fn open_at(group: &Group, at: usize) -> Vec<(MessageId, u16)> {
    let events = group.nodes[at].events.iter();
    events
        .filter_map(|event| match event {
            Event::Delivered { id, attempt, .. } => Some((*id, *attempt)),
            _ => None,
        })
        .collect()
}

#[test]
fn pd_6_a_refusal_reaches_the_origin_with_its_reason() {
    let (mut group, key) = pair();
    let request = group.command(0, once(key));
    group.run(SECOND / 10);
    let [(id, 0)] = open_at(&group, 1)[..] else { panic!("one message") };
    group.command(1, Command::Settle(vec![(id, Verdict::Refuse("no é".repeat(100)))]));
    group.run(SECOND / 10);
    let reply = group.reply(0, request);
    let Some(Reply::Outcome(Outcome::Refused { reason, .. })) = reply else { panic!("{reply:?}") };
    assert!(reason.starts_with("no é") && reason.len() <= Report::REASON_BYTES_MAX, "{reason}");
}

#[test]
fn pd_7_a_busy_application_gets_the_message_again_until_the_deadline() {
    for send in [once, route] {
        let (mut group, key) = pair();
        let request = group.command(0, send(key));
        for attempt in 0..3 {
            group.run(SECOND / 2);
            let open = open_at(&group, 1);
            assert_eq!(open.len(), attempt + 1, "{open:?}");
            let (id, _) = open[attempt];
            group.command(1, Command::Settle(vec![(id, Verdict::Busy(SECOND / 4))]));
        }
        group.run(SECOND / 2);
        let (id, last) = *open_at(&group, 1).last().unwrap();
        assert!(last >= 3, "{last}");
        group.command(1, Command::Settle(vec![(id, Verdict::Accept)]));
        group.run(SECOND / 10);
        assert!(accepted_by(group.reply(0, request)).is_some());
    }
}

#[test]
fn pd_7_beyond_its_limits_the_owner_answers_busy_and_forgets_nothing() {
    let (mut group, key) = pair();
    let limit = group.nodes[1].machine.lower.env.config().open_bytes_max;
    let large = Command::route(AppName::default(), key, vec![7; limit / 8]);
    let requests: Vec<_> = (0..10).map(|_| group.command(0, large.clone())).collect();
    group.run(3 * SECOND);
    assert_eq!(open_at(&group, 1).len(), 8, "no more bytes are open than may be");
    for _ in 0..40 {
        let verdicts = open_at(&group, 1).into_iter().map(|(id, _)| (id, Verdict::Accept)).collect();
        group.command(1, Command::Settle(verdicts));
        group.run(SECOND / 4);
    }
    assert!(requests.iter().all(|&request| accepted_by(group.reply(0, request)).is_some()));
    let distinct: std::collections::BTreeSet<MessageId> =
        open_at(&group, 1).into_iter().map(|(id, _)| id).collect();
    assert_eq!(distinct.len(), 10);
}

#[test]
fn pd_8_a_message_for_an_application_that_does_not_run_fails() {
    let (mut group, key) = pair();
    group.command(1, Command::Unregister(AppName::default()));
    let request = group.command(0, route(key));
    group.run(SECOND / 2);
    let failed = Outcome::Failed { why: Failure::NoApplication };
    assert_eq!(group.reply(0, request), Some(&Reply::Outcome(failed)));
}

/// CUF-14.
#[test]
fn pd_8_an_application_that_ends_with_open_messages_has_delivered_none_of_them() {
    let (mut group, key) = pair();
    let requests: Vec<_> = (0..100).map(|_| group.command(0, route(key))).collect();
    group.run(SECOND / 10);
    assert_eq!(open_at(&group, 1).len(), 100);
    group.command(1, Command::Unregister(AppName::default()));
    group.run(12 * SECOND);
    let unknown = Reply::Outcome(Outcome::Unknown);
    assert!(requests.iter().all(|&request| group.reply(0, request) == Some(&unknown)), "perhaps it acted");
}
