//! Messages of applications: N-1, N-6 … N-9, N-15, and what becomes of a message when nodes fail.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::group::{Group, addr};
use super::*;
use crate::Rng;

const SECOND: Duration = Duration::from_secs(1);

fn route(key: Id, retries: u8) -> Command {
    Command::Route { app: AppName::default(), key, payload: b"hi".to_vec(), retries }
}

/// What all nodes delivered, with who did.
fn delivered(group: &Group) -> Vec<(Id, Vec<u8>)> {
    let events =
        group.members.iter().flat_map(|member| member.events.iter().map(move |event| (member, event)));
    events
        .filter_map(|(member, event)| match event {
            Event::Delivered { payload, .. } => Some((member.pastry.own().id, payload.clone())),
            _ => None,
        })
        .collect()
}

/// The nodes a message to `key` passes, from `from` on.
fn way(group: &Group, from: usize, key: Id) -> Vec<usize> {
    let mut way = vec![from];
    while let Step::Forward { to, .. } = group.members[*way.last().unwrap()].pastry.decide(key) {
        way.push((0..group.members.len()).find(|&at| group.members[at].pastry.own().id == to).unwrap());
    }
    way
}

/// A sender and a key with at least one node in between.
fn long_way(group: &Group) -> (usize, Id, Vec<usize>) {
    let mut rng = Rng::from_number(8, 8);
    loop {
        let (from, key) = (rng.index(group.members.len()), Id::new(rng.next_u128()));
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
    let request = group.command(from, route(key, 0));
    group.run(SECOND);
    let owner = group.members[*way.last().unwrap()].pastry.own();
    let hops = way.len() as u8 - 1;
    assert_eq!(group.reply(from, request), Some(&Reply::Delivered { by: owner, hops }));
}

#[test]
fn pa_35a_the_acknowledgement_of_a_delivery_to_its_origin_is_the_receipt() {
    let mut group = Group::ring(2, 1, &small());
    group.run(30 * SECOND);
    let key = group.members[1].pastry.own().id;
    let frames = |group: &Group| group.members[1].pastry.counted().frames_sent;
    let before = frames(&group);
    let requests = [0; 3].map(|_| group.command(0, route(key, 0)));
    group.run(SECOND / 10);
    let delivered = Reply::Delivered { by: group.members[1].pastry.own(), hops: 1 };
    assert!(requests.iter().all(|&request| group.reply(0, request) == Some(&delivered)));
    assert!(frames(&group) - before <= 3, "no receipts beside the acknowledgements");
}

#[test]
fn n_7_deliver_happens_once_and_at_the_owner() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    group.command(from, route(key, 2));
    group.run(30 * SECOND);
    let owner = group.members[*way.last().unwrap()].pastry.own().id;
    assert_eq!(delivered(&group), [(owner, b"hi".to_vec())]);
}

/// An application that does one thing at one place and counts where it was asked.
struct Judge {
    verdict: Verdict,
    asked: AtomicUsize,
    armed: bool,
    /// Only the first time.
    once: bool,
}

impl Application for Judge {
    fn forward(&self, _: &Passing<'_>) -> Verdict {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.armed && (before == 0 || !self.once) { self.verdict.clone() } else { Verdict::Forward }
    }
}

/// A ring in which the application of node `armed` decides so.
fn judged_ring(armed: usize, verdict: &Verdict) -> (Group, Vec<Arc<Judge>>) {
    let mut group = Group::new(1);
    let mut rng = Rng::from_number(1, 1);
    let mut judges = Vec::new();
    for index in 0..30 {
        let (asked, once) = (AtomicUsize::new(0), matches!(verdict, Verdict::Redirect(_)));
        let judge = Judge { verdict: verdict.clone(), asked, armed: index == armed, once };
        let judge = Arc::new(judge);
        judges.push(judge.clone());
        let seeds = if index == 0 { vec![] } else { vec![addr(0)] };
        let config = Config { id: Id::new(rng.next_u128()), seeds, ..small() };
        let index = group.start_machine(|bind, seed| {
            let pastry = Pastry::new(Config { bind, ..config }, seed).unwrap();
            pastry.with_application(AppName::default(), judge)
        });
        group.run_until_active(index);
    }
    group.run(5 * SECOND);
    (group, judges)
}

#[test]
fn n_1_the_application_hears_of_a_message_at_every_node_on_the_way() {
    let (mut group, judges) = judged_ring(99, &Verdict::Forward);
    let (from, key, way) = long_way(&group);
    group.command(from, route(key, 0));
    group.run(SECOND);
    for (at, judge) in judges.iter().enumerate() {
        let asked = judge.asked.load(Ordering::Relaxed);
        assert_eq!(asked, usize::from(way.contains(&at)), "node {at}");
    }
}

#[test]
fn n_8_forward_may_rewrite_at_the_first_a_middle_and_the_last_node() {
    let way = long_way(&judged_ring(99, &Verdict::Forward).0).2;
    for at in way {
        let (mut group, _) = judged_ring(at, &Verdict::Rewrite(b"changed".to_vec()));
        let (from, key, way) = long_way(&group);
        group.command(from, route(key, 0));
        group.run(SECOND);
        let owner = group.members[*way.last().unwrap()].pastry.own().id;
        assert_eq!(delivered(&group), [(owner, b"changed".to_vec())], "rewritten at {at}");
    }
}

#[test]
fn n_8_forward_may_stop_at_the_first_a_middle_and_the_last_node() {
    let way = long_way(&judged_ring(99, &Verdict::Forward).0).2;
    for at in way {
        let (mut group, _) = judged_ring(at, &Verdict::Stop);
        let (from, key, _) = long_way(&group);
        let request = group.command(from, route(key, 0));
        group.run(SECOND);
        assert_eq!(delivered(&group), []);
        assert_eq!(group.reply(from, request), Some(&Reply::Failed { reason: Failure::Stopped }));
    }
}

/// PF-14. Who is redirected to passes the message on to its owner: an application that does it every time sends it around
/// until its steps are used up.
#[test]
fn n_8_forward_may_redirect_at_the_first_a_middle_and_the_last_node() {
    let (group, _) = judged_ring(99, &Verdict::Forward);
    let way = long_way(&group).2;
    for &at in &way {
        // It goes to a leaf instead; from there it goes its way.
        let ids = |at: &usize| group.members[*at].pastry.own().id;
        let leaves = group.members[at].pastry.leaf_set().members();
        let detour = leaves.into_iter().find(|id| way.iter().all(|at| ids(at) != *id));
        let detour = detour.expect("a leaf that is not on the way");
        let (mut group, judges) = judged_ring(at, &Verdict::Redirect(detour));
        let (from, key, way) = long_way(&group);
        let request = group.command(from, route(key, 0));
        group.run(2 * SECOND);
        let owner = group.members[*way.last().unwrap()].pastry.own();
        let reply = group.reply(from, request);
        assert!(matches!(reply, Some(Reply::Delivered { by, .. }) if *by == owner), "{at}: {reply:?}");
        assert_eq!(delivered(&group).len(), 1);
        let through = (0..30).find(|&at| group.members[at].pastry.own().id == detour).unwrap();
        assert_eq!(judges[through].asked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn n_9_a_changed_leaf_set_is_told_with_the_whole_and_the_difference() {
    let mut group = Group::ring(6, 1, &small());
    let newcomer = group.members[0].pastry.own().id.number().wrapping_add(1);
    group.members[0].events.clear();
    let index = group.start_joining(Id::new(newcomer), &small());
    group.run_until_active(index);
    let events = &group.members[0].events;
    let change = events.iter().find_map(|event| match event {
        Event::LeafSetChanged { clockwise, added, removed, .. } => {
            Some((clockwise[0].id, added.clone(), removed.len()))
        }
        _ => None,
    });
    let newcomer = Id::new(newcomer);
    assert_eq!(change, Some((newcomer, vec![newcomer], 0)));
    assert_eq!(events.len(), 1, "told once: {events:?}");
}

#[test]
fn a_question_is_answered_straight_back() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    let ask = Command::Ask { app: AppName::default(), key, payload: b"why".to_vec(), retries: 1 };
    let request = group.command(from, ask);
    group.run(SECOND / 2);
    let owner = *way.last().unwrap();
    let id = group.members[owner].events.iter().find_map(|event| match event {
        Event::Delivered { id, ask: true, .. } => Some(*id),
        _ => None,
    });
    let id = id.expect("the question was put to the owner");
    group.command(owner, Command::Answer { id, payload: b"because".to_vec() });
    group.run(SECOND / 2);
    let by = group.members[owner].pastry.own();
    let hops = way.len() as u8 - 1;
    assert_eq!(group.reply(from, request), Some(&Reply::Answered { by, hops, payload: b"because".to_vec() }));
    let again = group.command(owner, Command::Answer { id, payload: vec![] });
    assert_eq!(group.reply(owner, again), Some(&Reply::NoSuchQuestion));
}

#[test]
fn n_15_a_node_that_swallows_messages_is_passed_by_on_a_retry() {
    let mut group = Group::ring(60, 1, &small());
    let (from, key, way) = long_way(&group);
    let culprit = way[1];
    // It acknowledges, but nothing routed leaves it, nor any word about that.
    group.passes = Box::new(move |a, _, bytes| {
        a != culprit || !bytes.get(4..6).is_some_and(|kind| kind == [1, 3] || kind == [1, 6])
    });
    let request = group.command(from, route(key, 5));
    group.run(70 * SECOND);
    let owner = group.members[*way.last().unwrap()].pastry.own();
    let reply = group.reply(from, request);
    assert!(matches!(reply, Some(Reply::Delivered { by, .. }) if *by == owner), "{reply:?}");
    assert_eq!(delivered(&group).len(), 1);
}

/// PF-7.
#[test]
fn a_message_goes_another_way_when_a_node_has_died() {
    let mut group = Group::ring(60, 1, &small());
    group.run(30 * SECOND);
    let (from, key, way) = long_way(&group);
    let owner = group.members[*way.last().unwrap()].pastry.own();
    // A first one opens the connections: to one that cannot be opened nothing was ever sent, and there is no doubt.
    group.command(from, route(key, 0));
    group.run(SECOND);
    group.kill(way[1]);
    let request = group.command(from, route(key, 1));
    group.run(group.members[from].pastry.config.ack_timeout_min + SECOND / 10);
    let reply = group.reply(from, request);
    assert!(matches!(reply, Some(Reply::Delivered { by, .. }) if *by == owner), "{reply:?}");
    assert!(group.members[from].pastry.counted().messages_rerouted > 0);
    assert_eq!(delivered(&group).len(), 2, "each once");
}

#[test]
fn a_message_that_may_not_be_repeated_stays_with_a_slow_node_that_lives() {
    let mut group = Group::ring(60, 1, &small());
    group.run(30 * SECOND);
    let (from, key, way) = long_way(&group);
    let (owner, slow) = (group.members[*way.last().unwrap()].pastry.own(), way[1]);
    group.command(from, route(key, 0));
    group.run(SECOND);
    // What it says over streams takes long; it answers when it is asked whether it lives.
    let late = group.now + 2 * SECOND;
    group.stalled = Some((slow, from, late));
    let rerouted = group.members[from].pastry.counted().messages_rerouted;
    let slow_id = group.members[slow].pastry.own().id;
    let request = group.command(from, route(key, 0));
    group.run(6 * SECOND);
    let reply = group.reply(from, request);
    assert!(matches!(reply, Some(Reply::Delivered { by, .. }) if *by == owner), "{reply:?}");
    assert_eq!(
        group.members[from].pastry.counted().messages_rerouted,
        rerouted,
        "there was never a second one"
    );
    // PF-13: messages go around it meanwhile, but it keeps its seat.
    assert!(group.members[from].pastry.contact(slow_id).is_some());
    let mut events = group.alive().flat_map(|member| &member.events);
    assert!(!events.any(|event| matches!(event, Event::PeerFailed { .. })));
    assert_eq!(delivered(&group).len(), 2, "each once");
}

#[test]
fn a_message_that_may_not_be_repeated_is_not_delivered_twice_when_a_node_has_died() {
    let (mut arrived, mut ended) = (0, 0);
    for seed in 1..=8 {
        let mut group = Group::ring(60, seed, &small());
        group.run(30 * SECOND);
        let (from, key, way) = long_way(&group);
        group.command(from, route(key, 0));
        group.run(SECOND);
        group.kill(way[1]);
        let request = group.command(from, route(key, 0));
        group.run(8 * SECOND);
        match group.reply(from, request) {
            Some(Reply::Delivered { .. }) => arrived += 1,
            Some(Reply::Unknown) => ended += 1,
            other => panic!("{other:?}"),
        }
        assert!(delivered(&group).len() <= 2, "each once at most");
    }
    assert!(arrived >= 4 && arrived + ended == 8, "{arrived} arrived, {ended} unknown");
}

#[test]
fn a_copy_that_may_not_be_the_only_one_is_not_delivered_by_a_new_owner() {
    let mut group = Group::ring(60, 1, &small());
    group.run(10 * SECOND);
    let (from, key, way) = long_way(&group);
    // The message reaches its owner, but no acknowledgement of the node in between comes back. The owner vanishes.
    let (between, owner) = (way[1], *way.last().unwrap());
    group.passes = Box::new(move |a, b, _| (a, b) != (between, from));
    let request = group.command(from, route(key, 0));
    group.run(SECOND / 20);
    assert_eq!(delivered(&group).len(), 1);
    group.kill(owner);
    group.run(60 * SECOND);
    assert_eq!(delivered(&group).len(), 1, "the next owner has not delivered it again");
    assert!(group.reply(from, request).is_some());
}

#[test]
fn a_message_whose_owner_may_have_delivered_it_ends_as_unknown() {
    let mut group = Group::ring(20, 3, &small());
    let (from, key, _) = {
        let mut rng = Rng::from_number(8, 8);
        loop {
            let (from, key) = (rng.index(20), Id::new(rng.next_u128()));
            let way = way(&group, from, key);
            if way.len() == 2 {
                break (from, key, way);
            }
        }
    };
    let owner = (0..20).find(|&at| group.members[at].pastry.own().id == group.owner(key)).unwrap();
    // A first message opens the connection; then the owner falls silent, as if it died after delivering.
    group.command(from, route(key, 0));
    group.run(SECOND);
    group.passes = Box::new(move |a, b, _| a != owner && b != owner);
    let request = group.command(from, route(key, 0));
    group.run(12 * SECOND);
    assert_eq!(group.reply(from, request), Some(&Reply::Unknown));
    assert_eq!(delivered(&group).len(), 1, "only the first");
    // Who accepts a repetition gets it delivered by the next owner.
    let repeatable = group.command(from, route(key, 1));
    group.run(12 * SECOND);
    assert!(matches!(group.reply(from, repeatable), Some(Reply::Delivered { .. })));
}

#[test]
fn what_cannot_be_delivered_fails_with_a_reason() {
    let mut group = Group::ring(20, 3, &small());
    let (from, key, _) = long_way(&group);
    let app = AppName::new("nobody runs this").unwrap();
    let request = group.command(from, Command::Route { app: app.clone(), key, payload: vec![], retries: 0 });
    group.run(SECOND);
    assert_eq!(group.reply(from, request), Some(&Reply::Failed { reason: Failure::NoApplication }));
    for at in 0..20 {
        group.command(at, Command::Register(app.clone()));
    }
    let request = group.command(from, Command::Route { app, key, payload: vec![], retries: 0 });
    group.run(SECOND);
    assert!(matches!(group.reply(from, request), Some(Reply::Delivered { .. })));
    let payload = vec![0; 17 * 1024 * 1024];
    let request = group.command(from, Command::Route { app: AppName::default(), key, payload, retries: 0 });
    assert_eq!(group.reply(from, request), Some(&Reply::TooLong));
}

#[test]
fn a_trace_tells_every_step_of_the_way() {
    let mut group = Group::ring(30, 1, &small());
    let (from, key, way) = long_way(&group);
    let request = group.command(from, Command::Trace { key });
    group.run(SECOND);
    let Some(Reply::Path(path)) = group.reply(from, request) else { panic!("a path") };
    let expected: Vec<Contact> = way.iter().map(|&at| group.members[at].pastry.own()).collect();
    assert_eq!(path.iter().map(|step| step.contact).collect::<Vec<_>>(), expected);
    assert!(path[..path.len() - 1].iter().all(|step| step.rtt_micros == Some(10_000)));
    assert_eq!(path.last().unwrap().rtt_micros, None);
}

#[test]
fn a_large_message_arrives_whole() {
    let mut group = Group::ring(10, 3, &small());
    let key = group.members[4].pastry.own().id;
    let payload: Vec<u8> = (0..2_000_000u32).map(|n| (n * 31) as u8).collect();
    let command = Command::Route { app: AppName::default(), key, payload: payload.clone(), retries: 0 };
    let request = group.command(2, command);
    group.run(5 * SECOND);
    assert!(matches!(group.reply(2, request), Some(Reply::Delivered { .. })));
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
            (0..4).map(|at| group.members[*way(&group, at, key).last().unwrap()].pastry.own().id).collect();
        assert_eq!(owners, [group.owner(key); 4], "{key}");
    }
}
