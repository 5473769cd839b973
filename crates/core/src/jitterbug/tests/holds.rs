//! Holds and changes: requests of an application, and every way in which they end.

use super::*;
use crate::store::{StoreFault, StoreResult};
use crate::tag::RequestId;

#[test]
fn a_hold_keeps_the_token_until_it_is_released() {
    let (mut rig, stream) = passing();
    rig.command(Command::Hold { limit: 5 * SECOND });
    rig.stream(stream, StreamEvent::Closed(crate::CloseReason::Refused)).unwrap();
    assert!(!has(&rig, "Held"), "on its way out it is not held");
    rig.advance(250 * MILLI);
    let fence = rig.machine.fence().unwrap();
    assert!(has(&rig, &format!("Reply 1 Held {{ fence: {fence}, hold: RequestId(1) }}")));
    rig.take_log();
    rig.advance(4 * SECOND);
    assert!(!has(&rig, "Open") && rig.machine.fence() == Some(fence));
    rig.command(Command::Release { hold: RequestId(1) });
    assert!(has(&rig, "Reply 2 Done"));
    rig.advance(2 * SECOND);
    assert!(has(&rig, "Open"), "and on it goes");
    rig.command(Command::Release { hold: RequestId(1) });
    assert!(has(&rig, "Reply 3 NotHeld"));
}

#[test]
fn a_hold_ends_at_its_limit_with_an_event() {
    let mut rig = leader();
    rig.command(Command::Hold { limit: SECOND });
    rig.command(Command::Hold { limit: SECOND });
    assert_eq!(count_lines(&rig, "Held"), 1, "one hold per tenure: a number is given once");
    let fence = rig.machine.held().unwrap();
    rig.advance(SECOND);
    assert!(has(&rig, &format!("TokenLost {{ hold: RequestId(1), fence: {fence}, reason: Limit }}")));
    rig.advance(300 * MILLI);
    assert!(has(&rig, &format!("Reply 2 Held {{ fence: {}, hold: RequestId(2) }}", fence + 1)));
    rig.stop();
    assert!(has(
        &rig,
        &format!("TokenLost {{ hold: RequestId(2), fence: {}, reason: Stopping }}", fence + 1)
    ));
}

#[test]
fn a_paused_leader_loses_its_hold_and_its_token_at_once() {
    for word in ["timer", "datagram", "command"] {
        let mut rig = leader();
        rig.command(Command::Hold { limit: 60 * SECOND });
        let fence = rig.machine.held().unwrap();
        rig.take_log();
        rig.sleep(10 * SECOND + MILLI);
        match word {
            "timer" => rig.wake(),
            "datagram" => hear(&mut rig, 3, &tr1(3, 1)).unwrap(),
            _ => drop(rig.command(Command::Status)),
        }
        let lost = format!("TokenLost {{ hold: RequestId(1), fence: {fence}, reason: Stalled }}");
        assert!(has(&rig, &lost), "{word}");
        assert!(has(&rig, "reason: Stalled"), "{word}");
        assert_eq!(rig.machine.state_name(), StateName::Orphan, "{word}: it asks before it leads again");
        assert_eq!(rig.machine.counted().stalls, 1);
        rig.advance(1200 * MILLI);
        assert_eq!(rig.machine.state_name(), StateName::Leader, "{word}: no other node has it");
        assert!(rig.machine.fence() > Some(10_000_000 / MICROS_PER_TENURE), "above all that others took");
    }
}

#[test]
fn a_leader_with_a_long_hold_keeps_its_token() {
    let mut rig = leader();
    rig.command(Command::Hold { limit: 60 * SECOND });
    rig.advance(59 * SECOND);
    assert!(!has(&rig, "TokenLost") && rig.machine.state_name() == StateName::Leader);
    // A pause too short for another node to make a token has no effect.
    rig.sleep(600 * MILLI);
    rig.wake();
    assert!(!has(&rig, "Stalled"));
    rig.advance(SECOND);
    assert!(has(&rig, "reason: Limit"));
}

#[test]
fn a_leader_that_was_paused_in_a_pass_resets_it() {
    let (mut rig, stream) = passing();
    rig.sleep(11 * SECOND);
    rig.wake();
    assert!(has(&rig, &format!("Abort {stream}")));
    assert_eq!(rig.machine.state_name(), StateName::Orphan);
    rig.stream(stream, StreamEvent::Sent { bytes: 9, fin: false }).unwrap();
    assert_eq!(rig.machine.counted().passes, 0);
}

#[test]
fn a_hold_is_lost_when_another_branch_arrives_and_the_next_fence_is_above_both() {
    let mut rig = leader();
    rig.command(Command::Hold { limit: 50 * SECOND });
    rig.command(Command::Hold { limit: 50 * SECOND });
    let fence = rig.machine.held().unwrap();
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 400)]));
    assert!(has(&rig, &format!("TokenLost {{ hold: RequestId(1), fence: {fence}, reason: Merged }}")));
    let next = fence + 401;
    assert_eq!(rig.machine.fence(), Some(next), "both branches, and this tenure");
    assert!(has(&rig, &format!("Reply 2 Held {{ fence: {next}, hold: RequestId(2) }}")));
}

fn change(rig: &mut Rig<Jitterbug<Ledger>>, key: &str, wait: Duration) -> RequestId {
    rig.command(Command::Change { change: Set { key: key.into(), value: 1.into() }, wait })
}

fn has_value(rig: &Rig<Jitterbug<Ledger>>, key: &str) -> bool {
    Document::from_data(rig.machine.data()).unwrap().values.contains_key(key)
}

#[test]
fn a_change_is_answered_when_it_is_in_the_data_and_not_before() {
    let mut rig = waiter();
    let request = change(&mut rig, "door", 30 * SECOND);
    rig.advance(5 * SECOND);
    assert!(!has(&rig, "Reply") && !has_value(&rig, "door"));
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    assert!(has(&rig, &format!("Reply {} Done", request.0)) && has_value(&rig, "door"));
    assert!(rig.disk.contains_key(&(SPACE, KEPT_KEY.to_vec())), "and it is durable");
}

#[test]
fn a_change_is_withdrawn_if_no_token_comes() {
    let mut rig = waiter();
    let (short, long) = (change(&mut rig, "short", SECOND), change(&mut rig, "long", 8 * SECOND));
    rig.advance(SECOND);
    assert!(has(&rig, &format!("Reply {} NotChanged", short.0)));
    give(&mut rig, 1, 2, 77, &[entry(2)], &counts(&[(12, 4)]));
    assert!(has(&rig, &format!("Reply {} Done", long.0)));
    assert!(has_value(&rig, "long") && !has_value(&rig, "short"), "nor does it come later");
    let last = change(&mut rig, "last", 60 * SECOND);
    rig.stop();
    assert!(has(&rig, &format!("Reply {} Stopping", last.0)));
}

#[test]
fn a_change_being_written_is_answered_after_the_write() {
    for (result, answer) in [(None, "Done"), (Some(StoreFault::Full), "NotChanged")] {
        let mut rig = waiter();
        let request = change(&mut rig, "door", SECOND);
        rig.hold();
        let stream = offer(&mut rig, 1, 2, 77, 0);
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: counts(&[(12, 4)]) }))).unwrap();
        rig.stream(stream, StreamEvent::Finished).unwrap();
        rig.advance(3 * SECOND);
        assert!(!has(&rig, "Reply"), "the write is not over");
        if let Some(fault) = result {
            rig.stored(crate::OpId::new(4), StoreResult::Failed(fault));
        }
        rig.advance(SECOND);
        rig.drain();
        assert!(has(&rig, &format!("Reply {} {answer}", request.0)), "{:?}", rig.log);
    }
}

#[test]
fn a_new_address_makes_the_next_tenure_drop_the_token_once() {
    let mut rig = leader();
    rig.command(Command::Ask(vec![ip(77)]));
    rig.advance(SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 0, "it may still join by itself");
    rig.advance(SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 1);
    assert!(has(&rig, "reason: Unlisted"));
    // Not again for the same address, nor for another right after.
    rig.command(Command::Ask(vec![]));
    rig.command(Command::Ask(vec![ip(77), ip(78)]));
    rig.advance(5 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 1);
    rig.advance(10 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 2, "for the other, when the pause is over");
    rig.advance(60 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 2);
}

#[test]
fn a_listed_address_causes_no_drop_and_a_hold_delays_it() {
    let mut rig = leader();
    hear(&mut rig, 2, &tr1(2, 2_000_000_000)).unwrap();
    rig.advance(2 * SECOND);
    rig.command(Command::Ask(vec![ip(2)]));
    rig.advance(60 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 0);
    let mut rig = leader();
    rig.command(Command::Hold { limit: 20 * SECOND });
    rig.command(Command::Ask(vec![ip(77)]));
    rig.advance(19 * SECOND);
    assert!(rig.machine.counted().unlisted_sought == 0 && !has(&rig, "TokenLost"));
}

#[test]
fn only_one_node_of_a_ring_looks_for_an_unlisted_address() {
    let mut rig = leader();
    hear(&mut rig, 2, &tr1(2, 2_000_000_000)).unwrap();
    rig.advance(2 * SECOND);
    assert_eq!(rig.machine.list().len(), 2);
    rig.command(Command::Ask(vec![ip(77)]));
    hear(&mut rig, 9, &tr1(9, 2_000_000_000)).unwrap();
    hear(&mut rig, 2, &tr1(2, 2_000_000_000)).unwrap();
    rig.advance(60 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 0);
    // The TR1 of a node that is not listed changes nothing.
    let mut rig = leader();
    rig.command(Command::Ask(vec![ip(77)]));
    hear(&mut rig, 9, &tr1(9, 2_000_000_000)).unwrap();
    rig.advance(60 * SECOND);
    assert_eq!(rig.machine.counted().unlisted_sought, 1);
}

#[test]
fn the_status_names_the_last_known_holder() {
    let holder = |rig: &Rig<Jitterbug<Ledger>>| rig.machine.status(rig.now.mono).holder;
    let rig = leader();
    assert_eq!(holder(&rig), Some(host(OWN)));
    let (mut rig, stream) = passing();
    rig.stream(stream, StreamEvent::Data(&[Kind::Tp3.byte()])).unwrap();
    rig.stream(stream, StreamEvent::Sent { bytes: 9 + 1 + rig.machine.data().len(), fin: true }).unwrap();
    assert_eq!((rig.machine.state_name(), holder(&rig)), (StateName::Waiter, Some(host(12))));
    rig.advance(10 * SECOND);
    assert_eq!((rig.machine.state_name(), holder(&rig)), (StateName::Orphan, None));
    hear(&mut rig, 2, &Message::Tr2 { token_id: id(5).held() }).unwrap();
    assert_eq!((rig.machine.state_name(), holder(&rig)), (StateName::Waiter, Some(host(12))));
}
