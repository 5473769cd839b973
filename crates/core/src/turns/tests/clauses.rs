//! The clauses, one test each.

use super::contract::bytes;
use super::world::{MS, SECOND, Told, World, addr};
use super::*;
use crate::machine::Machine as _;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

fn plain(_: usize, _: &mut Config) {}

/// Three voters and two nodes that only send Asks.
fn world() -> World {
    World::new(3, 2, 1, plain)
}

fn voter_alone() -> World {
    World::new(1, 3, 1, plain)
}

pub(super) fn group(world: &World) -> Group {
    world.machine(0).group().expect("the group is founded")
}

pub(super) fn ask(world: &World, number: u64, session: u64, renew: bool) -> Ask {
    let _ = world;
    Ask {
        key: Key::of("n"),
        number,
        holder: Id::new(9),
        session,
        length_ms: 2000,
        waited_ms: 0,
        renew,
        queue: false,
    }
}

/// The answer of voter 0 to node 1.
fn answer(world: &mut World, ask: Ask) -> Option<Verdict> {
    let message = Message { group: group(world), epoch: 1, nonce: 99, body: Body::Ask(ask) };
    world.probe(0, &bytes(&message)).into_iter().find_map(|bytes| match decode(&bytes).ok()?.body {
        Body::Answer(answer) => Some(answer.verdict),
        _ => None,
    })
}

fn top(world: &mut World) -> u64 {
    let read =
        Message { group: group(world), epoch: 1, nonce: 1, body: Body::Read { key: Some(Key::of("n")) } };
    let state = world.probe(0, &bytes(&read)).into_iter().find_map(|bytes| match decode(&bytes).ok()?.body {
        Body::State(state) => state.lease,
        _ => None,
    });
    state.expect("a voter tells its state").number
}

#[test]
fn tu_7_a_message_of_another_group_is_counted_and_answered_with_the_state() {
    let mut world = world();
    let ask = ask(&world, 1, 1, false);
    let message = Message { group: Group([9; 16]), epoch: 1, nonce: 99, body: Body::Ask(ask) };
    let sent = world.probe(0, &bytes(&message));
    let Body::State(state) = decode(&sent[0]).unwrap().body else { panic!("a state") };
    assert_eq!(state.record.map(|record| record.group), Some(group(&world)));
    assert_eq!(world.machine(0).counted().groups_differ, 1);
}

#[test]
fn tu_8_a_group_is_founded_when_all_have_written_it() {
    let mut world = World::cold(3, 1, 3, plain);
    [0, 1, 3].into_iter().for_each(|node| world.start(node));
    world.run(20 * SECOND);
    assert_eq!(world.machine(0).group(), None, "the third voter is not there");
    world.start(2);
    world.run(3 * SECOND);
    let groups: Vec<Option<Group>> = (0..4).map(|node| world.machine(node).group()).collect();
    assert!(groups[0].is_some() && groups.iter().all(|group| *group == groups[0]), "{groups:?}");
    (0..3).for_each(|node| assert_eq!(world.standing(node), Standing::Voting));
    let fence = {
        let request = world.lock(3, "n", 1, MINUTE);
        world.run(SECOND);
        world.granted(request).fence
    };
    assert!(fence > 1_700_000_000_000_000, "the first floor is the wall clock: {fence}");
}

#[test]
fn tu_8_the_first_floor_is_above_the_fences_of_the_ledgers() {
    const FENCE: u64 = 4_000_000_000_000_000;
    let mut world = World::cold(3, 1, 3, plain);
    for node in 0..4 {
        world.start(node);
        world.machine_mut(node).saw_ledger_fence(if node == 2 { FENCE } else { 7 });
    }
    world.run(5 * SECOND);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let fence = world.granted(request).fence;
    assert!(fence > FENCE, "{fence}");
}

#[test]
fn tu_8_a_voter_with_another_list_prevents_founding() {
    let mut world = World::cold(3, 0, 3, |node, config| {
        if node == 2 {
            config.voters[1] = addr(7);
        }
    });
    (0..3).for_each(|node| world.start(node));
    world.run(20 * SECOND);
    assert_eq!(world.machine(0).group(), None);
}

#[test]
fn tu_8_a_founder_that_crashes_continues_with_its_record() {
    let mut world = World::cold(3, 0, 3, plain);
    (0..3).for_each(|node| world.start(node));
    world.cut.insert((0, 2));
    world.run(5 * SECOND);
    world.crash(0);
    world.cut.clear();
    world.start(0);
    world.run(5 * SECOND);
    (0..3).for_each(|node| assert_eq!(world.standing(node), Standing::Voting));
}

#[test]
fn tu_11_no_number_above_the_durable_bound_is_granted() {
    let mut world = voter_alone();
    let bound = |world: &mut World| u64::from_be_bytes(world.disk(0)[BOUND_KEY].clone().try_into().unwrap());
    let high = bound(&mut world) + 10;
    world.store_delay = 50 * MS;
    let first = ask(&world, high, 5, false);
    assert_eq!(answer(&mut world, first), None, "it waits for the disk");
    assert!(bound(&mut world) < high);
    world.run(60 * MS);
    assert_eq!(bound(&mut world), high + 65_536);
    assert_eq!(answer(&mut world, first), Some(Verdict::Granted));
}

#[test]
fn tu_11_after_a_start_every_name_begins_above_the_bound_and_the_wall_clock() {
    let mut world = voter_alone();
    let number = top(&mut world) + 1;
    let first = ask(&world, number, 5, false);
    assert_eq!(answer(&mut world, first), Some(Verdict::Granted));
    world.crash(0);
    world.start(0);
    world.run(12 * SECOND);
    assert!(top(&mut world) >= number + 65_536 - 1);
    assert!(top(&mut world) >= 1_700_000_000_000_000 + world.now - 13 * SECOND);
}

#[test]
fn tu_11_an_unused_name_is_forgotten_and_its_top_becomes_the_floor() {
    let mut world = voter_alone();
    let number = top(&mut world) + 100;
    let first = ask(&world, number, 5, false);
    assert_eq!(answer(&mut world, first), Some(Verdict::Granted));
    world.run(3 * 3600 * SECOND);
    let other = Ask { key: Key::of("other"), ..ask(&world, number, 6, false) };
    assert_eq!(answer(&mut world, other), Some(Verdict::Behind));
}

#[test]
fn tu_12_a_voter_grants_by_session_and_number() {
    let mut world = voter_alone();
    let n = top(&mut world) + 1;
    let (a, b) = (ask(&world, n, 5, false), ask(&world, n + 1, 6, false));
    assert_eq!(answer(&mut world, a), Some(Verdict::Granted));
    assert_eq!(answer(&mut world, a), Some(Verdict::Granted), "a copy of it");
    assert!(matches!(answer(&mut world, b), Some(Verdict::Held { number, .. }) if number == n));
    let renewal = Ask { renew: true, number: n, length_ms: 10_000, ..a };
    assert_eq!(answer(&mut world, renewal), Some(Verdict::Granted));
    let late_copy = Ask { renew: true, ..a };
    assert_eq!(answer(&mut world, late_copy), Some(Verdict::Granted));
    world.run(9 * SECOND);
    assert!(matches!(answer(&mut world, b), Some(Verdict::Held { .. })), "a shorter copy shortens nothing");
    world.run(2 * SECOND);
    assert_eq!(answer(&mut world, Ask { session: 7, ..a }), Some(Verdict::Behind));
    assert_eq!(answer(&mut world, renewal), Some(Verdict::Granted), "no other node has it");
    let too_long = Ask { length_ms: 10_001, session: 8, ..b };
    assert_eq!(answer(&mut world, too_long), None);
}

#[test]
fn tu_12_a_release_ends_the_lease_of_its_session_and_is_remembered() {
    let mut world = voter_alone();
    let n = top(&mut world) + 1;
    let a = ask(&world, n, 5, false);
    assert_eq!(answer(&mut world, a), Some(Verdict::Granted));
    let release = |session, number| Ended { key: Key::of("n"), number, session };
    let send = |world: &mut World, ended| {
        let message = Message { group: group(world), epoch: 1, nonce: 9, body: Body::Release(ended) };
        world.probe(0, &bytes(&message));
    };
    send(&mut world, release(6, n));
    assert!(matches!(answer(&mut world, Ask { session: 7, number: n + 1, ..a }), Some(Verdict::Held { .. })));
    send(&mut world, release(5, n + 3));
    assert_eq!(answer(&mut world, Ask { renew: true, ..a }), None, "a late renewal of a released session");
    assert_eq!(answer(&mut world, Ask { session: 7, number: n + 3, ..a }), Some(Verdict::Behind));
    assert_eq!(answer(&mut world, Ask { session: 7, number: n + 4, ..a }), Some(Verdict::Granted));
}

#[test]
fn tu_13_after_behind_the_asker_asks_with_a_greater_number() {
    let mut world = world();
    let first = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    world.command(3, Command::Release(TurnId(1)));
    world.run(SECOND);
    let second = world.lock(4, "n", 2, MINUTE);
    world.run(SECOND);
    assert!(world.granted(second).fence > world.granted(first).fence);
}

#[test]
fn tu_13_an_ask_is_repeated_to_silent_voters() {
    let mut world = world();
    world.cut.extend([(3, 0), (3, 1)]);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(40 * MS);
    assert!(!world.replies.contains_key(&request));
    world.cut.clear();
    world.run(SECOND);
    world.granted(request);
}

#[test]
fn tu_14_grants_that_come_too_late_do_not_count() {
    let mut world = world();
    world.delays.insert((0, 3), vec![1700 * MS; 16]);
    world.delays.insert((1, 3), vec![1700 * MS; 16]);
    let request = world.lock(3, "n", 1, Duration::from_millis(1650));
    world.run(5 * SECOND);
    assert!(!matches!(world.replies[&request], Reply::Granted(_)), "{:?}", world.replies[&request]);
}

#[test]
fn tu_14_validity_counts_from_when_the_ask_was_sent() {
    let mut world = world();
    (0..3).for_each(|voter| drop(world.delays.insert((voter, 3), vec![500 * MS])));
    let sent = world.local(3);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(600 * MS);
    assert_eq!(world.granted(request).deadline_micros, (sent + Duration::from_millis(1600)).as_micros());
}

#[test]
fn tu_15_a_dead_asker_blocks_for_two_seconds_and_a_turn_is_renewed_with_the_whole_lease() {
    let mut world = world();
    let request = world.lock(3, "n", 1, MINUTE);
    (0..3).for_each(|voter| world.cut.extend([(voter, 3)]));
    world.run(10 * MS);
    world.crash(3);
    let next = world.lock(4, "n", 2, MINUTE);
    world.run(5 * SECOND);
    let waited = world.granted(next);
    assert!(!world.replies.contains_key(&request));
    world.run(SECOND);
    assert!(world.holders("n") == [(4, waited.fence)]);
    let left = world.machine(4).status(world.local(4)).turns[0].left_micros;
    assert!(left > 5 * SECOND, "{left}");
}

#[test]
fn tu_16_a_turn_lasts_as_long_as_it_is_renewed_and_never_returns() {
    let mut world = world();
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(300 * SECOND);
    let fence = world.granted(request).fence;
    assert_eq!(world.holders("n"), [(3, fence)]);
    (0..3).for_each(|voter| world.cut.extend([(3, voter)]));
    world.run(9 * SECOND);
    assert_eq!(world.holders("n"), []);
    world.cut.clear();
    world.run(20 * SECOND);
    assert_eq!(world.holders("n"), [], "a turn that is over is not renewed");
    let lost = |told: &Told| matches!(told.event, Event::TurnLost { reason: LostReason::NoMajority, .. });
    assert_eq!(world.told.iter().filter(|told| lost(told)).count(), 1);
}

#[test]
fn tu_16_refusals_of_a_majority_end_a_turn() {
    let mut world = world();
    world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    // The holder's machine is paused with its clock: as if the voters' clocks ran ahead.
    world.stall_with_clock(3, 30 * SECOND);
    let next = world.lock(4, "n", 2, MINUTE);
    world.run(31 * SECOND);
    world.granted(next);
    world.run(3 * SECOND);
    let taken = |told: &Told| matches!(told.event, Event::TurnLost { reason: LostReason::Taken, .. });
    assert!(world.told.iter().any(taken));
}

#[test]
fn tu_17_answers_to_a_released_attempt_do_not_count() {
    let mut world = world();
    (0..3).for_each(|voter| drop(world.delays.insert((voter, 3), vec![200 * MS; 4])));
    world.lock(3, "n", 1, MINUTE);
    world.run(50 * MS);
    world.command(3, Command::Release(TurnId(1)));
    world.run(5 * SECOND);
    let granted = |told: &Told| matches!(told.event, Event::TurnGranted { .. });
    assert!(!world.told.iter().any(granted));
    let next = world.lock(4, "n", 2, Duration::from_millis(500));
    world.run(SECOND);
    world.granted(next);
}

#[test]
fn tu_17_the_longest_waiter_is_called_first() {
    let mut world = World::new(3, 4, 1, plain);
    world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let waiting: Vec<u64> = (4..7)
        .map(|node| {
            let request = world.lock(node, "n", node as u128, MINUTE);
            world.run(SECOND);
            request
        })
        .collect();
    for node in 3..6 {
        let before = world.now;
        world.command(node, Command::Release(TurnId(if node == 3 { 1 } else { node as u128 })));
        world.run(100 * MS);
        world.granted(waiting[node - 3]);
        assert!(world.now - before <= 100 * MS);
    }
}

#[test]
fn tu_19_a_voter_rests_after_a_start() {
    let mut world = voter_alone();
    let n = top(&mut world) + 200_000;
    world.crash(0);
    world.start(0);
    world.run(100 * MS);
    let first = ask(&world, n, 5, false);
    assert!(matches!(answer(&mut world, first), Some(Verdict::Resting { left_ms }) if left_ms > 9000));
    world.run(10 * SECOND);
    assert_ne!(answer(&mut world, first), Some(Verdict::Granted), "its floor is the wall clock");
    let n = top(&mut world) + 1;
    assert_eq!(answer(&mut world, Ask { number: n, ..first }), Some(Verdict::Granted));
}

#[test]
fn tu_19_a_stop_in_good_order_needs_no_rest_in_the_same_boot() {
    let mut world = voter_alone();
    let n = top(&mut world) + 1;
    let first = Ask { length_ms: 10_000, ..ask(&world, n, 5, false) };
    assert_eq!(answer(&mut world, first), Some(Verdict::Granted));
    world.stop(0);
    world.start(0);
    world.run(100 * MS);
    assert_eq!(world.standing(0), Standing::Voting);
    let other = Ask { session: 6, number: n + 500_000_000, ..first };
    assert!(matches!(answer(&mut world, other), Some(Verdict::Held { .. })), "the lease is remembered");
    assert!(!world.disk(0).contains_key(SNAPSHOT_KEY), "and the snapshot is gone");
    world.crash(0);
    world.start(0);
    world.run(100 * MS);
    assert_eq!(world.standing(0), Standing::Resting, "it is used once");
    world.run(11 * SECOND);
    world.stop(0);
    world.reboot(0);
    world.start(0);
    world.run(100 * MS);
    assert_eq!(world.standing(0), Standing::Resting, "another boot has another clock");
}

#[test]
fn tu_20_a_voter_that_rests_grants_no_renewals() {
    let mut world = voter_alone();
    world.crash(0);
    world.start(0);
    world.run(100 * MS);
    let renewal = ask(&world, 1, 5, true);
    assert!(matches!(answer(&mut world, renewal), Some(Verdict::Resting { .. })));
}

#[test]
fn tu_21_a_voter_that_lost_its_disk_rests_reads_and_votes_above_the_bounds() {
    let mut world = world();
    world.crash(2);
    world.lose_disk(2);
    world.start(2);
    world.run(5 * SECOND);
    assert_eq!(world.standing(2), Standing::Recovering);
    world.run(8 * SECOND);
    assert_eq!(world.standing(2), Standing::Voting);
    assert_eq!(world.machine(2).group(), Some(group(&world)));
    let bound =
        |world: &mut World, node| u64::from_be_bytes(world.disk(node)[BOUND_KEY].clone().try_into().unwrap());
    assert!(bound(&mut world, 2) >= bound(&mut world, 0));
}

/// A voter of a group with a lease of 20 s comes back without its disk, and with a lease of 2 s in its configuration.
#[test]
fn tu_21_a_voter_that_lost_its_disk_rests_for_the_lease_of_its_group() {
    let lease = |seconds| move |_: usize, config: &mut Config| config.lease = Duration::from_secs(seconds);
    let mut world = World::new(3, 2, 1, lease(20));
    world.crash(2);
    world.lose_disk(2);
    world.change(2, lease(2));
    world.start(2);
    world.run(19 * SECOND);
    assert_eq!(world.standing(2), Standing::Recovering);
    world.run(5 * SECOND);
    assert_eq!(world.standing(2), Standing::Voting);
}

#[test]
fn tu_21_with_too_few_intact_voters_it_stays_out() {
    let mut world = world();
    for node in [1, 2] {
        world.crash(node);
        world.lose_disk(node);
        world.start(node);
    }
    world.run(60 * SECOND);
    assert_eq!((world.standing(1), world.standing(2)), (Standing::Recovering, Standing::Recovering));
    let request = world.lock(3, "n", 1, Duration::from_secs(3));
    world.run(5 * SECOND);
    assert!(matches!(world.replies[&request], Reply::NoMajority { .. }));
}

#[test]
fn tu_22_renew_makes_a_voter_read_the_others_again() {
    let mut world = world();
    let request = world.command(1, Command::Renew);
    assert_eq!(world.replies[&request], Reply::Done);
    world.run(SECOND);
    assert_eq!(world.standing(1), Standing::Recovering);
    world.run(12 * SECOND);
    assert_eq!(world.standing(1), Standing::Voting);
}

#[test]
fn tu_22_two_processes_with_one_id_stop_voting() {
    let world = World::new(3, 0, 1, |node, config| {
        if node == 2 {
            config.id = Id::new(2);
        }
    });
    assert_eq!((world.standing(1), world.standing(2)), (Standing::Halted, Standing::Halted));
}

#[test]
fn tu_28_refound_makes_a_new_group_above_the_old_numbers() {
    let mut world = world();
    let old = group(&world);
    let first = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    world.command(3, Command::Release(TurnId(1)));
    let request = world.command(0, Command::Refound);
    assert_eq!(world.replies[&request], Reply::Done);
    world.run(3 * SECOND);
    assert_ne!(group(&world), old);
    assert_eq!(world.standing(1), Standing::Resting);
    world.run(20 * SECOND);
    let second = world.lock(4, "n", 2, MINUTE);
    world.run(3 * SECOND);
    assert!(world.granted(second).fence > world.granted(first).fence);
}

#[test]
fn tu_35_a_restarted_agent_resumes_a_turn_whose_deadline_has_not_passed() {
    let mut world = world();
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(5 * SECOND);
    let grant = world.granted(request);
    let left = world.machine(3).status(world.local(3)).turns[0].left_micros;
    let deadline_micros = world.local(3).as_micros() + left;
    world.crash(3);
    world.start(3);
    world.run(SECOND);
    let resume = Resume {
        name: "n".into(),
        turn: TurnId(1),
        session: grant.session,
        fence: grant.fence,
        deadline_micros,
        limit_micros: 3600 * SECOND,
    };
    let again = world.command(3, Command::Resume(resume.clone()));
    assert_eq!(world.granted(again).fence, grant.fence);
    for _ in 0..20 {
        world.run(SECOND);
        world.command(3, Command::Keep(TurnId(1)));
    }
    assert_eq!(world.holders("n"), [(3, grant.fence)]);
    world.crash(3);
    world.start(3);
    world.run(SECOND);
    let late = world.command(3, Command::Resume(resume));
    assert_eq!(world.replies[&late], Reply::Lost(LostReason::NoMajority), "an old deadline revives nothing");
}

#[test]
fn tu_35_a_turn_that_ended_here_is_not_resumed() {
    let mut world = World::new(3, 1, 3, plain);
    let request = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let grant = world.granted(request);
    world.command(3, Command::Release(TurnId(1)));
    let resume = Resume {
        name: "n".to_owned(),
        turn: TurnId(1),
        session: grant.session,
        fence: grant.fence,
        deadline_micros: grant.deadline_micros,
        limit_micros: 60 * SECOND,
    };
    let request = world.command(3, Command::Resume(resume));
    world.run(SECOND);
    assert_eq!(world.replies[&request], Reply::Lost(LostReason::NoMajority));
}

#[test]
fn tu_36_an_unattended_turn_expires_and_is_not_released() {
    let mut world = world();
    let lock = Lock { name: "n".into(), turn: TurnId(1), wait: MINUTE, limit: 60 * MINUTE, attended: true };
    let request = world.command(3, Command::Lock(lock));
    world.run(SECOND);
    world.granted(request);
    let next = world.lock(4, "n", 2, MINUTE);
    world.run(8 * SECOND);
    assert!(!world.replies.contains_key(&next), "the command may still run");
    world.run(15 * SECOND);
    world.granted(next);
    let reason = |told: &Told| matches!(told.event, Event::TurnLost { reason: LostReason::Unattended, .. });
    assert!(world.told.iter().any(reason));
}

#[test]
fn tu_37_without_a_majority_nothing_is_granted_and_the_reply_says_so() {
    let mut world = world();
    world.crash(1);
    world.crash(2);
    let request = world.lock(3, "n", 1, Duration::from_secs(3));
    world.run(4 * SECOND);
    assert_eq!(world.replies[&request], Reply::NoMajority { have: 1, need: 2 });
    let voters = world.machine(3).status(world.local(3)).voters;
    let ago: Vec<bool> = voters.iter().map(|voter| voter.answered_micros_ago < Some(4 * SECOND)).collect();
    assert_eq!(ago, [true, false, false]);
}

#[test]
fn tu_39_a_repeated_request_is_the_same_request() {
    let mut world = world();
    let first = world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let again = world.lock(3, "n", 1, MINUTE);
    assert_eq!(world.granted(first).fence, world.granted(again).fence);
    let waiting = world.lock(4, "n", 2, MINUTE);
    world.run(SECOND);
    let repeated = world.lock(4, "n", 2, MINUTE);
    assert_eq!(world.replies[&waiting], Reply::Withdrawn);
    world.command(3, Command::Release(TurnId(1)));
    world.run(SECOND);
    world.granted(repeated);
}

#[test]
fn tu_39_a_try_is_answered_at_once() {
    let mut world = world();
    world.lock(3, "n", 1, MINUTE);
    world.run(SECOND);
    let request = world.lock(4, "n", 2, Duration::ZERO);
    world.run(100 * MS);
    let Reply::NotFree(Some(blocker)) = &world.replies[&request] else {
        panic!("{:?}", world.replies[&request])
    };
    assert_eq!(blocker.by, Id::new(4));
    assert!(world.machine(4).poll_timeout().is_some());
}

#[test]
fn two_names_are_independent_and_a_group_of_one_works() {
    let mut world = voter_alone();
    let (a, b) = (world.lock(1, "a", 1, MINUTE), world.lock(2, "b", 2, MINUTE));
    world.run(SECOND);
    world.granted(a);
    world.granted(b);
}
