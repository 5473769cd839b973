//! JF-19: the malformed vectors, and noise.

use serde_json::Value;

use super::*;
use crate::rng::Rng;

#[test]
fn jf_19_every_malformed_vector_changes_nothing() {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/jitterbug.json")).unwrap();
    for vector in vectors["malformed"].as_array().unwrap() {
        let hex = vector["hex"].as_str().unwrap();
        let wire: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let expect = vector["expect"].as_str().unwrap();
        match vector["channel"].as_str().unwrap() {
            "udp" => udp_vector(&wire, expect),
            "tcp candidate" => candidate_vector(&wire, false, expect),
            "tcp candidate after TP2" => candidate_vector(&wire, true, expect),
            "tcp leader after TP1" => {
                let (mut rig, stream) = passing();
                assert!(rig.stream(stream, StreamEvent::Data(&wire)).is_err(), "{expect}");
                assert!(has(&rig, "reason: Malformed"));
            }
            other => panic!("an unknown channel: {other}"),
        }
    }
}

fn udp_vector(wire: &[u8], expect: &str) {
    let mut rig = started(&config());
    let before = rig.machine.clone();
    let outcome = rig.datagram(UDP, udp(3), wire);
    assert_eq!(outcome.is_ok(), expect.starts_with("accept"), "{expect}: {outcome:?}");
    if outcome.is_err() {
        assert_eq!(rig.machine.counted().malformed, 1, "{expect}");
        rig.machine.forget_counters();
        let mut before = before;
        before.forget_counters();
        assert_eq!(rig.machine, before, "{expect}");
    }
}

fn candidate_vector(wire: &[u8], after_tp2: bool, expect: &str) {
    let mut rig = waiter();
    let list = rig.machine.list().clone();
    let stream = StreamId::accepted(1);
    if after_tp2 {
        offer(&mut rig, 1, 2, 77, 99);
    } else {
        rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: udp(2), local: udp(1) }).unwrap();
    }
    let mut refused = rig.stream(stream, StreamEvent::Data(wire)).is_err();
    if expect.starts_with("wait") {
        assert!(!refused, "{expect}");
        refused = rig.stream(stream, StreamEvent::Finished).is_err();
    }
    assert!(refused && has(&rig, &format!("Abort {stream}")), "{expect}");
    assert_eq!((rig.machine.state_name(), rig.machine.list()), (StateName::Waiter, &list), "{expect}");
}

#[test]
fn jf_19_noise_neither_moves_nor_breaks_a_node() {
    let mut rng = Rng::from_number(3, 0);
    for mut rig in [started(&config()), waiter(), leader(), passing().0] {
        let (state, token) = (rig.machine.state_name(), rig.machine.token_id());
        for n in 0..2000 {
            let len = rng.index(30);
            let mut noise: Vec<u8> = (0..len).map(|_| rng.next_u32() as u8).collect();
            // Most noise fails at the first byte, so a valid one is given.
            if let Some(first) = noise.first_mut() {
                *first = (*first & 0x70) | 1;
            }
            let _ = rig.datagram(UDP, udp(3), &noise.iter().map(|byte| byte & 0x7f).collect::<Vec<_>>());
            let stream = StreamId::accepted(n + 1);
            let _ = rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: udp(3), local: udp(1) });
            let _ = rig.stream(stream, StreamEvent::Data(&noise));
            let _ = rig.stream(stream, StreamEvent::Finished);
        }
        assert_eq!(rig.machine.token_id(), token);
        // A TR2 with a positive id is indistinguishable from a leader's and denies an orphan (JF-24).
        assert!(rig.machine.state_name() == state || state == StateName::Orphan);
        assert!(rig.machine.list().len() <= 3);
    }
}
