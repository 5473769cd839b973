//! Messages of applications: N-1, N-6 … N-9, N-15, and messages while nodes fail.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::group::{Group, addr};
use super::*;
use crate::Rng;

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn route(key: Id) -> Command {
    Command::route(AppName::default(), key, b"hi".to_vec())
}

pub(super) fn once(key: Id) -> Command {
    let (app, payload) = (AppName::default(), b"hi".to_vec());
    Command::Route { app, key, payload, once: true, wants_answer: false, deadline: None }
}

pub(super) fn ask(key: Id) -> Command {
    let (app, payload) = (AppName::default(), b"why".to_vec());
    Command::Route { app, key, payload, once: false, wants_answer: true, deadline: None }
}

/// The node that accepted a message, if one did.
pub(super) fn accepted_by(reply: Option<&Reply>) -> Option<Contact> {
    match reply {
        Some(Reply::Outcome(Outcome::Delivered { by, .. })) => Some(*by),
        _ => None,
    }
}

/// All delivered messages, with the node that delivered each.
fn delivered(group: &Group) -> Vec<(Id, Vec<u8>)> {
    let events = group.nodes.iter().flat_map(|node| node.events.iter().map(move |event| (node, event)));
    events
        .filter_map(|(node, event)| match event {
            Event::Delivered { payload, .. } => Some((node.machine.own().id, payload.clone())),
            _ => None,
        })
        .collect()
}

/// The nodes on the path of a message to `key`, beginning at `from`.
fn way(group: &Group, from: usize, key: Id) -> Vec<usize> {
    let mut way = vec![from];
    while let Step::Forward { to, .. } = group.nodes[*way.last().unwrap()].machine.decide(key) {
        way.push((0..group.nodes.len()).find(|&at| group.nodes[at].machine.own().id == to).unwrap());
    }
    way
}

/// A sender and a key with at least one node in between.
pub(super) fn long_way(group: &Group) -> (usize, Id, Vec<usize>) {
    let mut rng = Rng::from_number(8, 8);
    loop {
        let (from, key) = (rng.index(group.nodes.len()), Id::new(rng.next_u128()));
        let way = way(group, from, key);
        if way.len() >= 3 {
            return (from, key, way);
        }
    }
}

#[test]
fn n_6_route_sends_to_the_owner_of_the_key() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    let request = group.command(from, route(key));
    group.run(SECOND);
    let owner = group.nodes[*way.last().unwrap()].machine.own();
    let hops = way.len() as u8 - 1;
    let delivered = Outcome::Delivered { by: owner, hops, answer: None };
    assert_eq!(group.reply(from, request), Some(&Reply::Outcome(delivered)));
}

#[test]
fn pa_35a_the_acknowledgement_of_a_delivery_to_its_origin_is_the_receipt() {
    let mut group = Group::ring(2, 1, &small());
    group.run(30 * SECOND);
    let key = group.nodes[1].machine.own().id;
    let frames = |group: &Group| group.nodes[1].machine.counted().frames_sent;
    let before = frames(&group);
    let requests = [0; 3].map(|_| group.command(0, route(key)));
    group.run(SECOND / 10);
    let by = group.nodes[1].machine.own();
    let delivered = Reply::Outcome(Outcome::Delivered { by, hops: 1, answer: None });
    assert!(requests.iter().all(|&request| group.reply(0, request) == Some(&delivered)));
    assert!(frames(&group) - before <= 3, "no receipts beside the acknowledgements");
}

#[test]
fn n_7_deliver_happens_once_and_at_the_owner() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    group.command(from, route(key));
    group.run(30 * SECOND);
    let owner = group.nodes[*way.last().unwrap()].machine.own().id;
    assert_eq!(delivered(&group), [(owner, b"hi".to_vec())]);
}

#[expect(clippy::disallowed_types, reason = "an application is shared by threads in real life")]
type Errors = std::sync::Mutex<Vec<ForwardError>>;

/// An application that makes one decision at one node, counts its calls and notes its errors.
struct Judge {
    decision: Forward,
    asked: AtomicUsize,
    errors: Errors,
    armed: bool,
    /// Only the first time.
    first_only: bool,
}

impl Application for Judge {
    fn forward(&self, _: &Passing<'_>) -> Forward {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        let decides = self.armed && (before == 0 || !self.first_only);
        if decides { self.decision.clone() } else { Forward::Continue }
    }

    fn forward_failed(&self, _: &Passing<'_>, error: ForwardError) {
        self.errors.lock().unwrap().push(error);
    }

    fn deliver(&self, _: &Passing<'_>) -> Option<Verdict> {
        Some(Verdict::Accept)
    }
}

/// A ring in which the application of node `armed` makes this decision.
fn judged_ring(armed: usize, decision: &Forward) -> (Group, Vec<Arc<Judge>>) {
    let mut group = Group::new(1);
    let mut rng = Rng::from_number(1, 1);
    let mut judges = Vec::new();
    for index in 0..30 {
        let judge = Arc::new(Judge {
            decision: decision.clone(),
            asked: AtomicUsize::new(0),
            errors: Errors::default(),
            armed: index == armed,
            first_only: matches!(decision, Forward::Change { next: Some(_), .. }),
        });
        judges.push(judge.clone());
        let seeds = if index == 0 { vec![] } else { vec![addr(0)] };
        let config = Config { id: Id::new(rng.next_u128()), seeds, ..small() };
        let index = group.start_machine(move |bind, seed| {
            let pastry = Pastry::new(Config { bind, ..config.clone() }, seed).unwrap();
            pastry.with_application(AppName::default(), judge.clone())
        });
        group.run_until_active(index);
    }
    group.run(5 * SECOND);
    (group, judges)
}

fn rewrite(payload: &[u8]) -> Forward {
    Forward::Change { payload: Some(payload.to_vec()), next: None }
}

#[test]
fn n_1_the_application_is_called_at_every_node_on_the_path() {
    let (mut group, judges) = judged_ring(99, &Forward::Continue);
    let (from, key, way) = long_way(&group);
    group.command(from, route(key));
    group.run(SECOND);
    for (at, judge) in judges.iter().enumerate() {
        let asked = judge.asked.load(Ordering::Relaxed);
        assert_eq!(asked, usize::from(way.contains(&at)), "node {at}");
    }
}

#[test]
fn n_8_forward_may_rewrite_at_the_first_a_middle_and_the_last_node() {
    let way = long_way(&judged_ring(99, &Forward::Continue).0).2;
    for at in way {
        let (mut group, _) = judged_ring(at, &rewrite(b"changed"));
        let (from, key, way) = long_way(&group);
        group.command(from, route(key));
        group.run(SECOND);
        let owner = group.nodes[*way.last().unwrap()].machine.own().id;
        assert_eq!(delivered(&group), [(owner, b"changed".to_vec())], "rewritten at {at}");
    }
}

#[test]
fn n_8_forward_may_stop_at_the_first_a_middle_and_the_last_node() {
    let way = long_way(&judged_ring(99, &Forward::Continue).0).2;
    for at in way {
        let (mut group, _) = judged_ring(at, &Forward::Stop);
        let (from, key, _) = long_way(&group);
        let request = group.command(from, route(key));
        group.run(SECOND);
        assert_eq!(delivered(&group), []);
        let stopped = Outcome::Failed { why: Failure::Stopped };
        assert_eq!(group.reply(from, request), Some(&Reply::Outcome(stopped)));
    }
}

/// PF-14. The node that the message is redirected to forwards it to its owner. An application that redirects it every
/// time makes it circulate until its TTL is 0.
#[test]
fn n_8_forward_may_change_message_and_next_node_at_once() {
    let (group, _) = judged_ring(99, &Forward::Continue);
    let way = long_way(&group).2;
    for &at in &way {
        // It goes to a leaf instead, and from there to its owner.
        let ids = |at: &usize| group.nodes[*at].machine.own().id;
        let mut leaves = group.nodes[at].machine.leaf_set().members();
        let detour = leaves.find(|id| way.iter().all(|at| ids(at) != *id));
        let detour = detour.expect("a leaf that is not on the way");
        let decision = Forward::Change { payload: Some(b"changed".to_vec()), next: Some(detour) };
        let (mut group, judges) = judged_ring(at, &decision);
        let (from, key, way) = long_way(&group);
        let request = group.command(from, route(key));
        group.run(2 * SECOND);
        let owner = group.nodes[*way.last().unwrap()].machine.own();
        assert_eq!(accepted_by(group.reply(from, request)), Some(owner), "{at}");
        assert_eq!(delivered(&group), [(owner.id, b"changed".to_vec())]);
        let through = (0..30).find(|&at| group.nodes[at].machine.own().id == detour).unwrap();
        assert_eq!(judges[through].asked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn n_8_the_application_gets_an_error_for_an_impossible_choice_and_the_message_continues() {
    let nobody = Id::new(5);
    for (decision, error) in [
        (Forward::Change { payload: None, next: Some(nobody) }, ForwardError::UnknownNode(nobody)),
        (rewrite(&vec![0; 17 << 20]), ForwardError::TooLong(17 << 20)),
    ] {
        let way = long_way(&judged_ring(99, &Forward::Continue).0).2;
        let (mut group, judges) = judged_ring(way[1], &decision);
        let (from, key, way) = long_way(&group);
        let request = group.command(from, route(key));
        group.run(2 * SECOND);
        let owner = group.nodes[*way.last().unwrap()].machine.own();
        assert_eq!(accepted_by(group.reply(from, request)), Some(owner));
        assert_eq!(delivered(&group), [(owner.id, b"hi".to_vec())]);
        assert_eq!(*judges[way[1]].errors.lock().unwrap(), [error]);
    }
}

#[test]
fn n_8_forward_is_called_again_when_a_message_takes_another_path() {
    let (mut group, judges) = judged_ring(99, &Forward::Continue);
    group.run(30 * SECOND);
    let (from, key, way) = long_way(&group);
    group.crash(way[1], true);
    let request = group.command(from, route(key));
    group.run(5 * SECOND);
    assert!(accepted_by(group.reply(from, request)).is_some());
    assert!(judges[from].asked.load(Ordering::Relaxed) >= 2, "once for each next node");
}

#[test]
fn n_9_a_leaf_set_event_has_the_whole_set_and_the_difference() {
    let mut group = Group::ring(6, 1, &small());
    let newcomer = group.nodes[0].machine.own().id.number().wrapping_add(1);
    group.nodes[0].events.clear();
    let index = group.start_joining(Id::new(newcomer), &small());
    group.run_until_active(index);
    let events = &group.nodes[0].events;
    let change = events.iter().find_map(|event| match event {
        Event::LeafSetChanged { clockwise, added, removed, .. } => {
            Some((clockwise[0], added.clone(), removed.len()))
        }
        _ => None,
    });
    let newcomer = group.nodes[index].machine.own();
    assert_eq!(change, Some((newcomer, vec![newcomer], 0)));
    assert_eq!(events.len(), 1, "one event: {events:?}");
}

#[test]
fn pd_9_an_accepted_message_is_not_delivered_again() {
    let mut group = Group::ring(2, 1, &small());
    group.run(30 * SECOND);
    let key = group.nodes[1].machine.own().id;
    // No acknowledgement and no receipt comes back for a while.
    group.drop_if(|from, _, _| from == 1);
    let request = group.command(0, route(key));
    group.run(SECOND / 5);
    assert_eq!((delivered(&group).len(), group.reply(0, request)), (1, None));
    group.drop_if(|_, _, _| false);
    group.run(5 * SECOND);
    assert!(accepted_by(group.reply(0, request)).is_some());
    assert_eq!(delivered(&group).len(), 1, "the repetitions were recognised by their number");
    assert!(group.nodes[1].machine.counted().duplicates_dropped > 0);
}

#[test]
fn n_15_a_retry_avoids_a_node_that_drops_messages() {
    let mut group = Group::ring(60, 1, &small());
    let (from, key, way) = long_way(&group);
    let culprit = way[1];
    // It acknowledges, but sends no routed message and no report.
    group.drop_if(move |from, _, bytes| {
        from == culprit && bytes.get(4..6).is_some_and(|kind| kind == [1, 3] || kind == [1, 6])
    });
    let request = group.command(from, route(key));
    group.run(10 * SECOND);
    let owner = group.nodes[*way.last().unwrap()].machine.own();
    assert_eq!(accepted_by(group.reply(from, request)), Some(owner));
    assert_eq!(delivered(&group).len(), 1);
}

/// PF-7.
#[test]
fn a_message_takes_another_path_within_two_seconds_when_a_node_has_died() {
    for index in [1, 2] {
        let mut group = Group::ring(60, 1, &small());
        group.run(30 * SECOND);
        let (from, key, way) = long_way(&group);
        // A first one opens the connections.
        group.command(from, route(key));
        group.run(SECOND);
        group.crash(way[index], true);
        let request = group.command(from, route(key));
        group.run(2 * SECOND);
        let reply = group.reply(from, request);
        let owner = group.owner(key);
        assert_eq!(accepted_by(reply).map(|by| by.id), Some(owner), "node {index} of the way: {reply:?}");
        assert_eq!(delivered(&group).len(), 2, "each once");
    }
}

/// PF-13, PD-4.
#[test]
fn pd_4_a_slow_node_is_routed_around_and_keeps_its_entries() {
    let mut group = Group::ring(60, 1, &small());
    group.run(30 * SECOND);
    let (from, key, way) = long_way(&group);
    let (owner, slow) = (group.nodes[*way.last().unwrap()].machine.own(), way[1]);
    group.command(from, route(key));
    group.run(SECOND);
    // No bytes arrive from it for five seconds.
    group.latency(move |a, b| if (a, b) == (slow, from) { 5 * SECOND } else { SECOND / 200 });
    let slow_id = group.nodes[slow].machine.own().id;
    let request = group.command(from, route(key));
    group.run(SECOND);
    assert_eq!(accepted_by(group.reply(from, request)), Some(owner));
    assert_eq!(group.nodes[from].machine.away(), [slow_id]);
    group.run(SECOND);
    group.latency(|_, _| SECOND / 200);
    group.run(6 * SECOND);
    assert_eq!(group.nodes[from].machine.away(), [], "its messages arrived");
    assert!(group.nodes[from].machine.contact(slow_id).is_some());
    let mut events = group.alive().flat_map(|node| &node.events);
    assert!(!events.any(|event| matches!(event, Event::PeerFailed { .. })));
    assert_eq!(delivered(&group).len(), 2, "each once");
}

#[test]
fn pd_10_a_message_sent_once_is_never_retried_after_it_was_lost() {
    let (mut arrived, mut unknown) = (0, 0);
    for seed in 1..=8 {
        let mut group = Group::ring(60, seed, &small());
        group.run(30 * SECOND);
        let (from, key, way) = long_way(&group);
        group.command(from, route(key));
        group.run(SECOND);
        group.crash(way[1 + seed as usize % 2], true);
        let request = group.command(from, once(key));
        group.run(12 * SECOND);
        match group.reply(from, request) {
            Some(Reply::Outcome(Outcome::Delivered { .. })) => arrived += 1,
            Some(Reply::Outcome(Outcome::Unknown)) => unknown += 1,
            other => panic!("{other:?}"),
        }
        assert!(delivered(&group).len() <= 2, "each once at most");
        assert_eq!(group.nodes[from].machine.counted().messages_retried, 0);
    }
    assert_eq!(arrived + unknown, 8, "{arrived} arrived, {unknown} unknown");
}

#[test]
fn pd_1_a_message_to_an_absent_node_fails() {
    let mut group = Group::ring(30, 1, &small());
    let to = |node: Id| Command::SendTo {
        app: AppName::default(),
        node,
        payload: vec![1],
        once: false,
        wants_answer: false,
        deadline: Some(2 * SECOND),
    };
    let known = group.nodes[17].machine.own();
    let (there, not_there) = (group.command(3, to(known.id)), group.command(3, to(Id::new(77))));
    group.run(4 * SECOND);
    assert_eq!(accepted_by(group.reply(3, there)), Some(known));
    let failed = Outcome::Failed { why: Failure::NoSuchNode };
    assert_eq!(group.reply(3, not_there), Some(&Reply::Outcome(failed)));
}

#[test]
fn the_tables_give_replicas_next_hops_and_owned_keys() {
    let mut group = Group::ring(40, 3, &small());
    let mut rng = Rng::from_number(4, 4);
    let ids: Vec<Id> = group.nodes.iter().map(|node| node.machine.own().id).collect();
    let mut answered = 0;
    for _ in 0..200 {
        let (at, key) = (rng.index(40), Id::new(rng.next_u128()));
        let request = group.command(at, Command::OwnedRange);
        let Some(Reply::OwnedRange(range)) = group.reply(at, request) else { panic!("a range") };
        assert_eq!(range.contains(key), group.owner(key) == ids[at]);
        let request = group.command(at, Command::NextHop { key });
        let Some(Reply::NextHop(next)) = group.reply(at, request) else { panic!("a next hop") };
        assert_eq!(next.is_none(), group.owner(key) == ids[at]);
        let request = group.command(at, Command::Replicas { key, count: 3 });
        let Some(Reply::Replicas(replicas)) = group.reply(at, request) else { panic!("replicas") };
        let mut closest = ids.clone();
        closest.sort_by_key(|id| key.distance(*id));
        let Some(replicas) = replicas else { continue };
        answered += 1;
        assert_eq!(replicas.iter().map(|contact| contact.id).collect::<Vec<_>>(), closest[..3]);
    }
    assert!(answered > 10, "{answered} keys are within the leaf set of the queried node");
}

#[test]
fn a_message_that_cannot_be_delivered_fails_with_a_reason() {
    let mut group = Group::ring(20, 3, &small());
    let (from, key, _) = long_way(&group);
    let app = AppName::new("nobody runs this").unwrap();
    let request = group.command(from, Command::route(app, key, vec![]));
    group.run(SECOND);
    let failed = Outcome::Failed { why: Failure::NoApplication };
    assert_eq!(group.reply(from, request), Some(&Reply::Outcome(failed)));
    let payload = vec![0; 17 * 1024 * 1024];
    let request = group.command(from, Command::route(AppName::default(), key, payload));
    assert_eq!(group.reply(from, request), Some(&Reply::TooLong));
}

#[test]
fn a_trace_reports_every_step_of_the_path() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    let request = group.command(from, Command::Trace { key });
    group.run(SECOND);
    let Some(Reply::Path(path)) = group.reply(from, request) else { panic!("a path") };
    let expected: Vec<Contact> = way.iter().map(|&at| group.nodes[at].machine.own()).collect();
    assert_eq!(path.iter().map(|step| step.contact).collect::<Vec<_>>(), expected);
    assert!(path[..path.len() - 1].iter().all(|step| step.rtt_micros == Some(10_000)));
    assert_eq!(path.last().unwrap().rtt_micros, None);
}

#[test]
fn a_large_message_arrives_whole() {
    let mut group = Group::ring(10, 3, &small());
    let key = group.nodes[4].machine.own().id;
    let payload: Vec<u8> = (0..2_000_000u32).map(|n| (n * 31) as u8).collect();
    let command = Command::route(AppName::default(), key, payload.clone());
    let request = group.command(2, command);
    group.run(5 * SECOND);
    assert!(accepted_by(group.reply(2, request)).is_some());
    assert_eq!(delivered(&group), [(key, payload)]);
}

#[test]
fn keys_at_ties_and_at_the_seam_have_one_owner_for_all() {
    let mut group = Group::new(1);
    for id in [0, 10, 1 << 127, u128::MAX - 9] {
        let index = group.start_joining(Id::new(id), &small());
        group.run_until_active(index);
    }
    group.run(SECOND);
    for key in [0, 5, 10, 1 << 126, 1 << 127, (1 << 127) + 5, u128::MAX, u128::MAX - 4, 3 << 126] {
        let key = Id::new(key);
        let owners: Vec<Id> =
            (0..4).map(|at| group.nodes[*way(&group, at, key).last().unwrap()].machine.own().id).collect();
        assert_eq!(owners, [group.owner(key); 4], "{key}");
    }
}
