//! The shipped application's data.

use serde_json::Value;

use super::*;

fn ledger() -> Ledger {
    let mut ledger = Ledger::new();
    ledger.start(host(OWN), None);
    ledger
}

fn tenure() -> TenureInfo {
    TenureInfo {
        host_id: host(OWN),
        token_id: id(5),
        restored: None,
        merged: Vec::new(),
        wall: crate::Wall::default(),
    }
}

fn next(ledger: &mut Ledger, tenure: &TenureInfo, data: &[u8]) -> Next {
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
    let json: Value = serde_json::from_slice(unframe(&data).unwrap()).unwrap();
    assert_eq!(json["zeta"], serde_json::json!([1, {"a": null}]));
    assert_eq!(json["values"], "not ours", "a field of our name that is not of our kind is theirs");
    // A descendant's fields win over an ancestor's, whichever side they come from.
    let newer = frame(br#"{"zeta":"new","counts":{"12":5}}"#);
    for (own, received) in [(&theirs, &newer), (&newer, &theirs)] {
        let Answer::Now(merged) = ledger.merge(own, received) else { panic!("it merges") };
        let json: Value = serde_json::from_slice(unframe(&merged).unwrap()).unwrap();
        assert_eq!((&json["zeta"], &json["counts"]["12"]), (&"new".into(), &5.into()));
    }
}

fn set(key: &str, value: impl Into<Raw>) -> Set {
    Set { key: key.into(), value: value.into() }
}

/// The value of a key in a document.
fn value_of(document: &Document, key: &str) -> Option<String> {
    document.values.get(key).map(|stamped| stamped.value.to_string())
}

#[test]
fn the_last_writer_of_a_value_wins_by_fence_and_then_host() {
    let document = |fence, host, value: &str| {
        let mut document = Document::default();
        document.set("k".into(), fence, host, value.into());
        document
    };
    let merged = |one: &Document, other: &Document| {
        assert_eq!(one.merge(other), other.merge(one));
        value_of(&one.merge(other), "k")
    };
    assert_eq!(merged(&document(5, 1, "a"), &document(4, 9, "b")).as_deref(), Some("\"a\""));
    assert_eq!(merged(&document(5, 1, "a"), &document(5, 2, "c")).as_deref(), Some("\"c\""));
}

#[test]
fn an_unset_value_stays_unset_when_a_branch_still_has_it() {
    let mut before = Document::default();
    before.set("door".into(), 5, 1, "open".into());
    let mut after = before.clone();
    after.set("door".into(), 7, 2, Value::Null.into());
    for merged in [before.merge(&after), after.merge(&before)] {
        assert_eq!((merged.set_values().count(), value_of(&merged, "door").as_deref()), (0, Some("null")));
    }
    let mut again = Document::default();
    again.set("door".into(), 8, 1, "shut".into());
    assert_eq!(after.merge(&again).set_values().count(), 1, "a later write wins over that too");
    // Unset values are bounded like all others, so that no older value outlives them.
    let mut many = Document::default();
    (0..1000).for_each(|n| many.set(format!("key {n}"), n, 1, Value::Null.into()));
    assert_eq!((many.values.len(), many.set_values().count()), (VALUES_MAX, 0));
}

#[test]
fn values_are_bounded_and_the_newest_stay() {
    let mut document = Document::default();
    for n in 0..VALUES_MAX as u64 + 10 {
        document.set(format!("key {n}"), n, 1, n.into());
    }
    assert_eq!(document.values.len(), VALUES_MAX);
    assert!(!document.values.contains_key("key 9") && document.values.contains_key("key 10"));
    let mut ledger = ledger();
    let deep = |depth: usize| Raw::new(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))).unwrap();
    for bad in [
        set("", 1),
        set(&"k".repeat(129), 1),
        set("a\nb", 1),
        set("\u{1b}[2J", 1),
        set("k", "x".repeat(5000).as_str()),
        set("k", deep(65)),
    ] {
        assert!(ledger.change(bad.clone()).is_err(), "{bad:?}");
    }
    assert!(ledger.change(set("k", deep(64))).is_ok());
    let taken = (0..100).filter(|_| ledger.change(set("k", 1)).is_ok()).count();
    assert_eq!(taken, 63);
}

#[test]
fn numbers_and_nesting_travel_as_they_were_written() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let odd = format!(
        r#"{{"big":123456789012345678901234567890.10,"counts":{{"12":4}},"deep":{deep},"huge":1e400,"s":"\u00e9 ]["}}"#
    );
    let mut ledger = ledger();
    assert!(ledger.accepts(&frame(odd.as_bytes())));
    let data = next(&mut ledger, &tenure(), &frame(odd.as_bytes())).data;
    let text = core::str::from_utf8(unframe(&data).unwrap()).unwrap();
    assert_eq!(text, odd.replace(r#"{"12":4}"#, r#"{"11":1,"12":4}"#));
    let Answer::Now(merged) = ledger.merge(&data, &counts(&[(13, 1)])) else { panic!("it merges") };
    assert!(unframe(&merged).unwrap().windows(deep.len()).any(|part| part == deep.as_bytes()));
    ledger.change(Set { key: "n".into(), value: Raw::new("1e400").unwrap() }).unwrap();
    let document = Document::from_data(&next(&mut ledger, &tenure(), &counts(&[])).data).unwrap();
    assert_eq!(value_of(&document, "n").as_deref(), Some("1e400"));
}

#[test]
fn half_a_surrogate_pair_of_others_is_kept_and_none_can_be_set() {
    let json = r#"{"counts":{"7":3},"theirs":"\ud800"}"#;
    let document = Document::from_json(json.as_bytes()).unwrap();
    assert_eq!(document.to_json().text(), json, "it is not ours to lose a token for it");
    assert!(Document::from_json(br#"{"counts":{"\ud800":3}}"#).is_err(), "but no node is called so");
    let change = Set { key: "k".into(), value: Raw::new(r#""\ud800""#).unwrap() };
    assert!(ledger().change(change).is_err());
}

#[test]
fn the_last_of_two_fields_with_one_name_counts() {
    for json in [
        r#"{"values":{"k":{"fence":1,"host":2,"value":3}},"values":5,"counts":{"12":4}}"#,
        r#"{"values":5,"values":{"k":{"fence":1,"host":2,"value":3}},"edges":1,"edges":[],"counts":{},"counts":{"12":4}}"#,
    ] {
        let document = Document::from_json(json.as_bytes()).unwrap();
        assert_eq!(document.counts["12"], 4);
        assert_eq!(document.values.is_empty(), document.rest.contains_key("values"), "{document:?}");
        assert_eq!(Document::from_data(&document.to_data()).as_ref(), Ok(&document));
    }
    for bad in [
        "[]",
        "{\"counts\":5}",
        "{\"counts\":{\"12\":-1}}",
        "{} {}",
        "{\"counts\":{\"12\":9007199254740992}}",
    ] {
        assert!(Document::from_json(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn the_last_of_several_changes_of_one_key_counts() {
    let mut ledger = ledger();
    for value in [1, 3, 2] {
        ledger.change(set("k", value)).unwrap();
    }
    let data = next(&mut ledger, &tenure(), &counts(&[])).data;
    assert_eq!(value_of(&Document::from_data(&data).unwrap(), "k").as_deref(), Some("2"));
    assert_eq!(ledger.used(), 3);
    // With a forged number in the data, a tenure is still the last writer.
    let mut forged = Document::default();
    forged.set("k".into(), 1 << 60, 9, 7.into());
    ledger.change(set("k", 8)).unwrap();
    let data = next(&mut ledger, &tenure(), &forged.to_data()).data;
    let after = Document::from_data(&data).unwrap();
    assert_eq!(value_of(&after, "k").as_deref(), Some("8"));
    assert_eq!(value_of(&forged.merge(&after), "k").as_deref(), Some("8"));
}

#[test]
fn a_change_is_in_the_data_until_it_is_used_and_not_after() {
    let mut ledger = ledger();
    ledger.change(set("door", "open")).unwrap();
    let first = next(&mut ledger, &tenure(), &counts(&[]));
    assert!(first.keep.is_some(), "durable before anybody sees it");
    let again = next(&mut ledger, &tenure(), &counts(&[]));
    assert_eq!(first, again, "an unused result is computed again");
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
    assert_eq!(count_of(&third.data, 12), 40, "known counts are restored");
}

#[test]
fn a_restore_jumps_over_fences_that_could_have_been_used() {
    let mut ledger = ledger();
    let time_without_token = 10 * SECOND;
    let restored = TenureInfo { restored: Some(Restored { from: id(9), time_without_token }), ..tenure() };
    let made = next(&mut ledger, &restored, &counts(&[(12, 40)]));
    assert!(made.fence > Some(40 + 10_000_000 / MICROS_PER_TENURE));
    let document = Document::from_data(&made.data).unwrap();
    assert_eq!(document.counts["11"], 1, "the own count is still that of tenures");
    assert_eq!(document.edges.len(), 1);
    let waited = next(&mut ledger, &restored, &counts(&[]));
    assert!(waited.fence > Some(10_000_000 / MICROS_PER_TENURE), "a first holder may have used fences");
    let just =
        TenureInfo { restored: Some(Restored { from: id(9), time_without_token: 1200 * MILLI }), ..tenure() };
    let fresh = next(&mut ledger, &just, &counts(&[]));
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
