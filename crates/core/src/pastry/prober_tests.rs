use super::*;
use crate::pastry::contact::Generation;

const T: Duration = Duration::from_millis(100);
const START: Instant = Instant::from_micros(1_000_000);

fn contact(id: u128) -> Contact {
    Contact { id: Id::new(id), addr: ([127, 0, 0, 1], id as u16).into(), generation: Generation(1) }
}

fn prober() -> Prober {
    Prober::new(8, 8, Duration::from_secs(10))
}

/// Starts all probes within the limits; returns their ids.
fn start_all(prober: &mut Prober, now: Instant) -> Vec<u128> {
    let mut nonce = 100;
    core::iter::from_fn(|| {
        nonce += 1;
        prober.start_next(now, nonce, |_| T).map(|(contact, _)| contact.id.number())
    })
    .collect()
}

/// The actions until the prober is idle, in milliseconds since the start.
fn run(prober: &mut Prober, until: Duration) -> Vec<(u64, &'static str)> {
    let mut done = Vec::new();
    while let Some(at) = prober.deadline().filter(|at| at.since(START) <= until) {
        let what = match prober.pop_due(at) {
            Some(Due::Send { by_stream: false, .. }) => "datagram",
            Some(Due::Send { by_stream: true, .. }) => "both",
            Some(Due::Silent { nonce, .. }) => {
                prober.set_away(nonce, at);
                "away"
            }
            Some(Due::StillAway { .. }) => "still away",
            Some(Due::Overdue { nonce, .. }) => {
                prober.end(nonce);
                "overdue"
            }
            None => "nothing",
        };
        done.push((at.since(START).as_millis() as u64, what));
    }
    done
}

#[test]
fn pd_3_probes_at_0_t_2_t_and_3_t_and_a_verdict_at_4_t() {
    let mut prober = prober();
    assert!(prober.ask(contact(5), true, Reason::Suspected) && prober.ask(contact(5), true, Reason::Known));
    assert_eq!(start_all(&mut prober, START), [5], "once is enough");
    assert_eq!(prober.leaf_pending(), 1);
    let done = run(&mut prober, T * 4);
    assert_eq!(done, [(100, "both"), (200, "both"), (300, "both"), (400, "away")]);
    assert_eq!((prober.leaf_pending(), prober.is_idle()), (0, true), "a join does not wait for it");
    let done = run(&mut prober, Duration::from_secs(60));
    assert_eq!(done.first(), Some(&(1400, "both")));
    assert_eq!(done.last(), Some(&(10_400, "overdue")));
    let reports = done.iter().filter(|(at, what)| *what == "still away" && *at > 5_000);
    assert_eq!(reports.count(), 1, "{done:?}");
    assert!(!prober.is_pending(Id::new(5)) && prober.deadline().is_none());
}

#[test]
fn pd_3_a_late_timer_begins_the_probe_again() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Suspected);
    start_all(&mut prober, START);
    // This process was paused for two seconds: the answer may wait in the kernel.
    let late = START + Duration::from_secs(2);
    assert!(matches!(prober.pop_due(late), Some(Due::Send { .. })));
    assert_eq!(prober.deadline(), Some(late + T));
}

/// A firewall may stop streams and let datagrams pass.
#[test]
fn pd_3_a_datagram_does_not_clear_a_node_that_did_not_acknowledge() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Suspected);
    start_all(&mut prober, START);
    assert!(prober.is_half_answered(101, START + T / 10) && prober.is_pending(Id::new(5)));
    assert_eq!(run(&mut prober, T * 4).last(), Some(&(400, "away")));
    let now = START + Duration::from_secs(1);
    assert!(prober.is_half_answered(101, now), "it is away, and its datagram arrived");
    assert!(
        matches!(prober.pop_due(now), Some(Due::Send { by_stream: true, .. })),
        "so it is probed at once"
    );
    assert!(prober.on_answer(101, now + T, true).is_some());
    let mut prober = self::prober();
    prober.ask(contact(5), false, Reason::Known);
    start_all(&mut prober, START);
    assert!(
        !prober.is_half_answered(101, START + T / 10),
        "a node that is only measured may answer either way"
    );
}

#[test]
fn pd_4_an_away_node_is_probed_every_second() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Suspected);
    start_all(&mut prober, START);
    let done = run(&mut prober, Duration::from_secs(10));
    let probes: Vec<u64> =
        done.iter().filter(|(at, what)| *what == "both" && *at > 400).map(|(at, _)| *at).collect();
    assert_eq!(probes, [1400, 2400, 3400, 4400, 5400, 6400, 7400, 8400, 9400]);
}

#[test]
fn pd_2_a_refused_connection_and_one_silent_datagram_are_a_verdict() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Known);
    start_all(&mut prober, START);
    prober.on_refused(contact(5).addr, START + T / 2);
    assert_eq!(prober.pop_due(START + T / 2), None, "the datagram has its time");
    let at = START + T;
    assert!(matches!(prober.pop_due(at), Some(Due::Silent { .. })));
    // Claims of others about a node do not mark it as away.
    prober.ask(contact(6), false, Reason::Unverified);
    let mut nonce = 7;
    assert!(prober.start_next(at, nonce, |_| T).is_some());
    prober.on_refused(contact(6).addr, at + T);
    nonce += 1;
    assert!(matches!(prober.pop_due(at + T), Some(Due::Send { .. })), "{nonce}");
}

#[test]
fn pd_4_an_away_node_that_sends_a_message_is_probed_at_once() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Suspected);
    start_all(&mut prober, START);
    run(&mut prober, T * 4);
    let now = START + Duration::from_millis(700);
    assert_eq!(prober.pop_due(now), None);
    prober.hasten_away(Id::new(5), now);
    assert!(matches!(prober.pop_due(now), Some(Due::Send { .. })));
    let answer = prober.on_answer(101, now + T / 10, false).unwrap();
    assert_eq!(answer.rtt, Duration::from_millis(710), "counted from the first probe");
    assert!(!prober.is_pending(Id::new(5)));
}

/// The probe of a node behind a partition is lost with its failed connect. A datagram of the node then arrives: one
/// more probe follows.
#[test]
fn pd_4_a_message_right_after_a_probe_causes_one_more_probe() {
    let mut prober = prober();
    prober.ask(contact(5), false, Reason::Suspected);
    start_all(&mut prober, START);
    assert_eq!(run(&mut prober, 14 * T).last(), Some(&(1400, "both")));
    for heard in 1..=3 {
        assert!(prober.is_half_answered(101, START + 14 * T + heard * T / 10));
    }
    let done = run(&mut prober, 24 * T);
    assert_eq!(done, [(1500, "both"), (2400, "both")], "once more, T later, and then as ever");
}

#[test]
fn p_5_a_sample_is_the_duration_of_a_request() {
    let mut prober = prober();
    prober.ask(contact(1), false, Reason::Unverified);
    start_all(&mut prober, START);
    let answer = prober.clone().on_answer(101, START + T / 4, false).unwrap();
    assert_eq!(answer.rtt, T / 4);
    prober.pop_due(START + T);
    prober.sent_by_stream(101, START + T, false);
    let answer = prober.on_answer(101, START + T * 2, true).unwrap();
    assert_eq!(answer.rtt, T / 2, "the connection had to be opened first");
}

#[test]
fn leaf_candidates_go_first_and_both_limits_hold() {
    let mut prober = Prober::new(2, 3, T);
    assert!(
        prober.ask(contact(1), false, Reason::Unverified)
            && prober.ask(contact(2), false, Reason::Unverified)
            && prober.ask(contact(3), true, Reason::Unverified)
    );
    assert!(!prober.ask(contact(4), true, Reason::Unverified), "the fourth does not wait");
    assert_eq!(start_all(&mut prober, START), [3, 1], "two at a time");
    prober.forget(Id::new(3));
    assert_eq!(prober.leaf_pending(), 0);
    assert!(prober.start_next(START, 7, |_| T).is_some());
}

#[test]
fn named_nodes_do_not_delay_suspected_ones() {
    let mut prober = Prober::new(2, 3, T);
    for invented in 100..200 {
        prober.ask(contact(invented), true, Reason::Unverified);
    }
    assert_eq!(start_all(&mut prober, START).len(), 2);
    assert!(prober.ask(contact(1), false, Reason::Known) && prober.ask(contact(2), false, Reason::Known));
    assert!(prober.ask(contact(2), false, Reason::Suspected), "it was to be measured, and is suspected now");
    let first = prober.start_next(START, 7, |_| T).map(|(contact, _)| contact.id.number());
    assert_eq!(first, Some(2), "though as many invented nodes are probed as may be");
    // Another node names a different address for the node: that is a separate probe.
    let elsewhere = Contact { addr: ([127, 0, 0, 9], 1).into(), ..contact(5) };
    let mut prober = Prober::new(2, 3, T);
    assert!(prober.ask(elsewhere, true, Reason::Unverified));
    assert!(prober.ask(contact(5), true, Reason::Suspected));
    assert_eq!(prober.start_next(START, 7, |_| T), Some((contact(5), true)));
    assert_eq!((prober.start_next(START, 8, |_| T), prober.leaf_pending()), (None, 1));
}

#[test]
fn known_nodes_have_a_limit_too_and_the_suspected_stay() {
    let mut prober = Prober::new(2, 2, T);
    assert!(prober.ask(contact(1), true, Reason::Known) && prober.ask(contact(2), false, Reason::Suspected));
    assert!(!prober.ask(contact(3), false, Reason::Suspected), "one is not probed");
    assert!(!prober.is_pending(Id::new(1)) && prober.leaf_pending() == 0);
    assert!(prober.is_pending(Id::new(2)) && prober.is_pending(Id::new(3)));
    for id in [2, 3] {
        prober.forget(Id::new(id));
    }
    assert!(prober.is_idle() && !prober.has_next());
}
