use super::*;
use crate::pastry::contact::{Contact, Generation};
use crate::pastry::message::AppName;
use bytes::Bytes;

const MILLI: Duration = Duration::from_millis(1);
const START: Instant = Instant::from_micros(1_000_000);

fn insert(table: &mut OutstandingTable, once: bool) -> MessageId {
    let id = table.next_id(7 << 64);
    let origin = Contact { id: Id::MIN, addr: ([127, 0, 0, 1], 1).into(), generation: Generation(0) };
    let body = Body::App { app: AppName::default(), wants_answer: false, payload: Bytes::new() };
    let (attempt, key, to_node) = (0, Id::MAX, false);
    let (ttl, hops, lifetime_millis) = (9, 0, 10_000);
    let envelope = Envelope { id, attempt, key, to_node, origin, ttl, hops, lifetime_millis, body };
    table.insert(Outstanding::new(RequestId(1), envelope, once, START, START + 10_000 * MILLI));
    table.sent(id, Id::new(5), START, 100 * MILLI);
    id
}

/// When attempts begin after the first, in milliseconds since the start, if no report ever comes.
fn attempts(table: &mut OutstandingTable, id: MessageId) -> Vec<u128> {
    let mut times = Vec::new();
    while let Some(at) = table.deadline() {
        for (due, what) in table.pop_due(at) {
            assert_eq!(due, id);
            times.push(at.since(START).as_millis());
            if what == Due::Deadline {
                table.end(id);
            } else {
                assert!(table.begin_attempt(id, at).is_some());
                table.sent(id, Id::new(6), at, 100 * MILLI);
            }
        }
    }
    times
}

#[test]
fn pd_9_the_interval_between_attempts_doubles_up_to_a_second() {
    let mut table = OutstandingTable::new(4);
    let id = insert(&mut table, false);
    let times = attempts(&mut table, id);
    assert_eq!(times, [100, 300, 700, 1500, 2500, 3500, 4500, 5500, 6500, 7500, 8500, 9500, 10_000]);
}

#[test]
fn pd_10_a_message_sent_once_has_one_attempt_and_waits_for_its_receipt_until_the_deadline() {
    let mut table = OutstandingTable::new(4);
    let id = insert(&mut table, true);
    assert_eq!(attempts(&mut table.clone(), id), [10_000]);
    assert_eq!(table.get(id).unwrap().give_up(), Outcome::Unknown);
    assert!(table.attempt_ended(id, Ended::Lost, START), "perhaps it arrived all the same");
    assert_eq!(
        (table.take_ready(), attempts(&mut table.clone(), id)),
        (vec![], vec![10_000]),
        "no further attempt"
    );
    assert_eq!(table.get(id).unwrap().give_up(), Outcome::Unknown);
}

#[test]
fn pd_9_the_outcome_is_failed_only_if_no_attempt_can_reach_an_application() {
    let failed = Outcome::Failed { why: Failure::NoApplication };
    let mut table = OutstandingTable::new(4);
    let id = insert(&mut table, false);
    assert!(!table.attempt_ended(id, Ended::Failed(Failure::NoApplication), START));
    assert_eq!(table.get(id).unwrap().give_up(), failed, "the only attempt failed for certain");
    // The first attempt is pending when the second begins: its end is uncertain.
    let id = insert(&mut table, false);
    table.begin_attempt(id, START + 100 * MILLI);
    assert!(table.attempt_ended(id, Ended::Failed(Failure::NoApplication), START + 110 * MILLI));
    assert_eq!(table.get(id).unwrap().give_up(), Outcome::Unknown);
    // The first attempt ended for certain before the second began.
    let id = insert(&mut table, true);
    assert!(table.attempt_ended(id, Ended::Busy(50 * MILLI), START));
    assert_eq!(table.deadline(), Some(START + 50 * MILLI), "once or not, it may be sent again");
    table.begin_attempt(id, START + 50 * MILLI);
    assert!(!table.attempt_ended(id, Ended::Failed(Failure::NoApplication), START + 60 * MILLI));
    assert_eq!(table.get(id).unwrap().give_up(), failed);
}

#[test]
fn a_lost_attempt_is_repeated_at_once_twice_and_then_after_a_pause() {
    let mut table = OutstandingTable::new(4);
    let id = insert(&mut table, false);
    for _ in 0..2 {
        assert!(table.attempt_ended(id, Ended::Lost, START));
        assert_eq!(table.take_ready(), [id]);
        table.begin_attempt(id, START);
    }
    // Whatever the timeout for a report is: an unmeasured one is a second.
    let mut pauses = Vec::new();
    for _ in 0..6 {
        table.sent(id, Id::new(6), START, 1000 * MILLI);
        assert!(table.attempt_ended(id, Ended::Lost, START));
        assert_eq!(table.take_ready(), []);
        pauses.push(table.dues[slot(id)].since(START).as_millis());
        table.begin_attempt(id, START);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn a_report_of_an_earlier_user_of_the_slot_finds_nothing() {
    let mut table = OutstandingTable::new(1);
    let first = insert(&mut table, false);
    assert!(!table.has_room());
    table.end(first);
    let second = table.next_id(8 << 64);
    assert_eq!((first.0 ^ second.0) & SLOT_MASK, 0, "the same slot");
    assert!(table.has_room() && table.get(first).is_none() && table.was_sent_to(first, Id::new(5)).is_none());
}
