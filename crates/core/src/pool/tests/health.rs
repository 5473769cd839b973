//! Connections that stop to answer.

use super::*;

/// Two connections to one peer: an old one that owes an answer, and the second one.
fn unresponsive(driver: &mut Driver) -> (StreamId, StreamId) {
    let old = driver.connect(2);
    driver.ask(2, b"question").unwrap();
    driver.did();
    driver.pass(SECOND / 5 + SECOND / 100);
    let did = driver.did();
    assert!(did.contains(&Did::Write(old, probe(0, driver.pool.nonce))), "{did:?}");
    let second = did.iter().find_map(|did| match did {
        Did::Open(stream, to) if *to == addr(2) => Some(*stream),
        _ => None,
    });
    (old, second.expect("a second connection is opened beside it"))
}

#[test]
fn pl_1_a_ping_is_answered_with_its_nonce_and_reaches_no_machine() {
    let mut driver = Driver::new(config());
    let stream = driver.accept(1);
    driver.did();
    let bytes = [probe(0, 6), frame(b"one"), probe(0, 7)].concat();
    assert_eq!(driver.receive(stream, &bytes), Ok(vec![b"one".to_vec()]));
    assert_eq!(driver.did(), [Did::Write(stream, probe(1, 7))], "the last of them");
    assert_eq!(driver.receive(stream, &probe(1, 99)), Ok(vec![]), "a pong without a ping");
    assert_eq!(driver.receive(stream, &probe(2, 1)), Err(DecodeError::Field("probe")));
}

#[test]
fn pl_4_a_silent_peer_is_pinged_and_a_second_connection_is_opened() {
    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    assert_eq!(driver.ask(2, b"more").unwrap().stream, old, "the only one that stands");
    driver.stand(second);
    assert_eq!(driver.ask(2, b"more").unwrap().stream, second, "it spoke last");
    // A message without expected answer makes no connection unresponsive.
    let mut driver = Driver::new(config());
    driver.connect(2);
    driver.send(2, b"news").unwrap();
    driver.did();
    driver.pass(5 * SECOND);
    assert_eq!((driver.did(), driver.pool.len()), (vec![], 1));
}

#[test]
fn pl_5_an_established_second_connection_closes_in_good_order() {
    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    driver.stand(second);
    driver.did();
    driver.receive(old, &frame(b"late")).unwrap();
    assert_eq!(driver.did(), [Did::Finish(second)]);
    assert_eq!(driver.lost(), [], "nothing was lost");
    assert_eq!(driver.ask(2, b"more").unwrap().stream, old);
    // The peer had answered over the second one already.
    assert_eq!(driver.receive(second, &frame(b"receipt")), Ok(vec![b"receipt".to_vec()]));
}

#[test]
fn pl_12_an_answer_takes_the_connection_of_its_question() {
    // Both nodes opened a connection at once, and each may prefer another one.
    let mut driver = Driver::new(config());
    let ours = driver.connect(2);
    let theirs = driver.accept_from(1, 2);
    driver.greeted(theirs, 1, 2);
    let preferred = driver.send(2, b"new").unwrap().stream;
    let other = if preferred == ours { theirs } else { ours };
    driver.receive(other, &frame(b"question")).unwrap();
    driver.did();
    assert_eq!(driver.send(2, b"new").unwrap().stream, preferred);
    assert_eq!(driver.answer(other, 2, b"answer").unwrap().stream, other);
    assert!(driver.did().contains(&Did::Write(other, frame(b"answer"))));
    assert_eq!(driver.answer(other, 2, &[0; (1 << 20) + 1]), Err(Full), "the limits hold");
    // One that has ended, or that does not prove its address, cannot be used.
    driver.closed(other, CloseReason::Reset);
    assert_eq!(driver.answer(other, 2, b"answer").unwrap().stream, preferred);
    let unproven = driver.accept_from(2, 9);
    driver.greeted(unproven, 1, 2);
    assert_eq!(driver.answer(unproven, 2, b"answer").unwrap().stream, preferred);
}

#[test]
fn pl_5_the_first_that_answers_stays_and_the_other_is_aborted() {
    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    driver.receive(old, &frame(b"late")).unwrap();
    assert_eq!(driver.did(), [Did::Abort(second)]);
    assert_eq!(
        driver.lost().iter().map(|lost| (lost.stream, lost.connected)).collect::<Vec<_>>(),
        [(second, false)]
    );
    assert_eq!(driver.ask(2, b"more").unwrap().stream, old);

    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    driver.stand(second);
    driver.receive(second, &frame(b"hello")).unwrap();
    assert!(driver.did().contains(&Did::Abort(old)));
    assert_eq!(
        driver.lost().iter().map(|lost| (lost.stream, lost.connected)).collect::<Vec<_>>(),
        [(old, true)]
    );
    assert_eq!(driver.ask(2, b"more").unwrap().stream, second);
}

#[test]
fn pl_6_unresponsive_for_two_q_is_aborted_and_reported() {
    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    let mut lost = driver.pass(SECOND / 5);
    assert!(driver.pool.contains(old));
    lost.extend(driver.pass(SECOND / 5));
    assert!(lost.iter().any(|lost| lost.stream == old && lost.connected), "{lost:?}");
    assert!(lost.iter().any(|lost| lost.stream == second && !lost.connected), "{lost:?}");
    assert!(driver.did().iter().any(|did| matches!(did, Did::Open(..))), "and again");
}

#[test]
fn pl_7_a_connect_that_times_out_is_begun_again_with_a_longer_timeout() {
    let mut driver = Driver::new(config());
    let (_, mut stream) = unresponsive(&mut driver);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let since = driver.now;
        while driver.pool.contains(stream) {
            driver.pass(SECOND / 20);
            driver.ask(2, b"more").unwrap();
        }
        waits.push(driver.now.since(since).as_millis());
        let mut opened = driver.did().into_iter().filter_map(|did| match did {
            Did::Open(stream, _) => Some(stream),
            _ => None,
        });
        stream = opened.next_back().expect("the next connect begins at once");
    }
    assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000]);
}

#[test]
fn pl_8_a_refused_connect_is_reported_and_tried_again_after_a_pause() {
    let mut driver = Driver::new(config());
    let (old, second) = unresponsive(&mut driver);
    driver.closed(old, CloseReason::Reset);
    let lost = driver.closed(second, CloseReason::Refused).unwrap();
    assert!(lost.refused && !lost.connected && lost.peer == Some(addr(2)));
    driver.did();
    let next = driver.ask(2, b"more").unwrap();
    assert!(!next.connected && driver.did().is_empty(), "not yet");
    driver.pass(SECOND / 5 * 2);
    assert!(driver.did().contains(&Did::Open(next.stream, addr(2))));
    driver.closed(next.stream, CloseReason::Refused);
    // A message of the peer ends the pause.
    driver.did();
    driver.pool.reachable(driver.now, addr(2), &mut driver.queue.outbox());
    assert!(driver.did().iter().any(|did| matches!(did, Did::Open(..))));
}

#[test]
fn pl_9_a_message_without_expected_answer_is_kept_through_a_failed_connect() {
    let mut driver = Driver::new(config());
    let first = driver.send(2, b"receipt").unwrap().stream;
    driver.ask(2, b"question").unwrap();
    driver.send(2, &[7; 20_000]).unwrap();
    driver.did();
    let lost = driver.pass(2 * SECOND);
    assert_eq!(lost.iter().map(|lost| (lost.stream, lost.connected)).collect::<Vec<_>>(), [(first, false)]);
    let did = driver.did();
    let wrote = |bytes: &[u8]| did.iter().any(|did| matches!(did, Did::Write(_, wrote) if wrote == bytes));
    assert!(wrote(&frame(b"receipt")) && !wrote(&frame(b"question")), "{did:?}");
    assert!(
        did.iter().any(|did| matches!(did, Did::Write(_, wrote) if wrote.len() > 16_000)),
        "the large one too"
    );
    driver.pass(2 * SECOND);
    assert!(
        !driver.did().iter().any(|did| matches!(did, Did::Write(_, wrote) if *wrote == frame(b"receipt")))
    );
}

#[test]
fn pl_10_suspicion_makes_unresponsive_and_death_aborts_at_once() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    driver.pool.suspect(driver.now, addr(2), &mut driver.queue.outbox());
    let did = driver.did();
    assert!(did.contains(&Did::Write(stream, probe(0, driver.pool.nonce))), "{did:?}");
    driver.pool.gone(addr(2), &mut driver.queue.outbox());
    assert!(driver.did().contains(&Did::Abort(stream)) && driver.pool.is_empty());
    assert_eq!(driver.lost().len(), 2);
}

#[test]
fn pl_10_a_greeting_of_a_restarted_peer_makes_its_other_connections_unresponsive() {
    let mut driver = Driver::new(config());
    let old = driver.connect(2);
    driver.greeted(old, 1, 2);
    let new = driver.accept_from(1, 2);
    driver.did();
    driver.greeted(new, 2, 2);
    assert!(driver.did().contains(&Did::Write(old, probe(0, driver.pool.nonce))));
    assert_eq!(driver.ask(2, b"more").unwrap().stream, new);
}
