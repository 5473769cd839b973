//! The shipped application's data.

use super::*;

fn ledger() -> Ledger {
    let mut ledger = Ledger::new();
    ledger.start(host(OWN), None);
    ledger
}

fn tenure() -> Tenure {
    Tenure { host_id: host(OWN), token_id: id(5), restored: None, merged: Vec::new() }
}

fn next(ledger: &mut Ledger, tenure: &Tenure, data: &[u8]) -> Next {
    let Answer::Now(next) = ledger.next(tenure, data) else { panic!("it computes") };
    next
}

#[test]
fn each_tenure_raises_the_own_count_by_one() {
    let mut ledger = ledger();
    let data = next(&mut ledger, &tenure(), &counts(&[(12, 4)])).data;
    assert_eq!(data, frame(br#"{"counts":{"11":1,"12":4}}"#));
    assert_eq!(next(&mut ledger, &tenure(), &data).data, frame(br#"{"counts":{"11":2,"12":4}}"#));
}

#[test]
fn fields_of_others_are_kept() {
    let theirs = frame(br#"{"zeta":[1,{"a":null}],"counts":{"12":4},"values":"not ours"}"#);
    let mut ledger = ledger();
    let data = next(&mut ledger, &tenure(), &theirs).data;
    let json: serde_json::Value = serde_json::from_slice(unframe(&data).unwrap()).unwrap();
    assert_eq!(json["zeta"], serde_json::json!([1, {"a": null}]));
    assert_eq!(json["values"], "not ours", "a field of our name that is not of our kind is theirs");
    // A descendant's fields win over an ancestor's, whichever side they come from.
    let newer = frame(br#"{"zeta":"new","counts":{"12":5}}"#);
    for (own, received) in [(&theirs, &newer), (&newer, &theirs)] {
        let Answer::Now(merged) = ledger.merge(own, received) else { panic!("it merges") };
        let json: serde_json::Value = serde_json::from_slice(unframe(&merged).unwrap()).unwrap();
        assert_eq!((&json["zeta"], &json["counts"]["12"]), (&"new".into(), &5.into()));
    }
}

#[test]
fn the_last_writer_of_a_value_wins_by_fence_and_then_host() {
    let stamped = |fence, host, value: &str| Stamped { fence, host, value: value.into() };
    let mut document = Document::default();
    document.set("k".into(), stamped(5, 1, "a"));
    document.set("k".into(), stamped(4, 9, "b"));
    assert_eq!(document.values["k"].value, "a");
    document.set("k".into(), stamped(5, 2, "c"));
    assert_eq!(document.values["k"].value, "c");
}

#[test]
fn values_are_bounded_and_the_newest_stay() {
    let mut document = Document::default();
    for n in 0..VALUES_MAX as u64 + 10 {
        document.set(format!("key {n}"), Stamped { fence: n, host: 1, value: n.into() });
    }
    assert_eq!(document.values.len(), VALUES_MAX);
    assert!(!document.values.contains_key("key 9") && document.values.contains_key("key 10"));
    let mut ledger = ledger();
    assert!(ledger.change(Set { key: String::new(), value: 1.into() }).is_err());
    assert!(ledger.change(Set { key: "k".into(), value: "x".repeat(5000).into() }).is_err());
    let taken = (0..100).filter(|_| ledger.change(Set { key: "k".into(), value: 1.into() }).is_ok()).count();
    assert_eq!(taken, 64);
}

#[test]
fn a_change_is_in_the_data_until_it_is_used_and_not_after() {
    let mut ledger = ledger();
    ledger.change(Set { key: "door".into(), value: "open".into() }).unwrap();
    let first = next(&mut ledger, &tenure(), &counts(&[]));
    assert!(first.keep.is_some(), "durable before anybody sees it");
    let again = next(&mut ledger, &tenure(), &counts(&[]));
    assert_eq!(first, again, "what was not used is computed again");
    ledger.used();
    let other = next(&mut ledger, &tenure(), &counts(&[]));
    assert!(Document::from_data(&other.data).unwrap().values.is_empty());
}

#[test]
fn a_fence_is_reserved_before_it_is_used_and_a_restart_begins_above_it() {
    let mut ledger = ledger();
    let first = next(&mut ledger, &tenure(), &counts(&[(12, 40)]));
    assert_eq!(first.fence, Some(41));
    ledger.used();
    let second = next(&mut ledger, &tenure(), &first.data);
    assert_eq!((second.fence, second.keep.is_some()), (Some(42), false), "the reserve runs ahead");
    let mut restarted = Ledger::new();
    restarted.start(host(OWN), first.keep.as_deref());
    let initial = restarted.initial();
    let third = next(&mut restarted, &tenure(), &initial);
    assert!(third.fence > Some(41 + RESERVE), "above all that could have been used");
    assert!(third.keep.is_some());
    assert_eq!(count_of(&third.data, 12), 40, "what was known is known again");
}

#[test]
fn a_restore_jumps_over_what_could_have_been_taken_meanwhile() {
    let mut ledger = ledger();
    let blind = 10 * SECOND;
    let restored = Tenure { restored: Some(Restored { from: id(9), blind }), ..tenure() };
    let made = next(&mut ledger, &restored, &counts(&[(12, 40)]));
    assert!(made.fence > Some(40 + 10_000_000 / MICROS_PER_TENURE));
    let document = Document::from_data(&made.data).unwrap();
    assert_eq!(document.counts["11"], 1, "the own count is still that of tenures");
    assert_eq!(document.edges.len(), 1);
    let fresh = next(&mut ledger, &restored, &counts(&[]));
    assert_eq!(fresh.fence, Some(1), "with nothing known there is nothing to jump over");
}

#[test]
fn j_9a_edges_are_bounded_and_the_newest_stay() {
    let edge = |fence| Edge { fence, host: 1, kind: EdgeKind::Merge, from: 1, to: 2 };
    let many: Vec<Edge> = (0..100).map(edge).collect();
    let united = unite(&many, &many);
    assert_eq!((united.len(), united[0].fence), (EDGES_MAX, 36));
}

#[test]
fn a_graph_in_which_an_id_returns_has_no_cycle() {
    let edges = [
        Edge { fence: 10, host: 1, kind: EdgeKind::Restore, from: 7, to: 5 },
        Edge { fence: 20, host: 2, kind: EdgeKind::Merge, from: 5, to: 7 },
    ];
    let dot = to_dot(&edges);
    for line in ["\"7\" -> \"5@10\"", "\"5@10\" -> \"7@20\"", "\"7\" -> \"7@20\""] {
        assert!(dot.contains(line), "{line} in {dot}");
    }
    assert_eq!(to_text(&edges).lines().count(), 2);
    assert_eq!(
        serde_json::to_string(&edges[0]).unwrap(),
        r#"{"fence":10,"host":1,"kind":"restore","from":7,"to":5}"#
    );
}

#[test]
fn a_frame_is_length_payload_and_crc() {
    let expected = [&[0, 0, 0, 9][..], b"123456789", &[0xcb, 0xf4, 0x39, 0x26]].concat();
    assert_eq!(frame(b"123456789"), expected, "the check value of CRC-32");
    assert_eq!(unframe(&expected), Ok(&b"123456789"[..]));
    assert!((0..expected.len()).all(|len| unframe(&expected[..len]).is_err()));
}
