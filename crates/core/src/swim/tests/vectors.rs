//! The vectors: numbers computed outside of this project, which it must reproduce.

use serde_json::Value;

use super::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../tests/vectors/swim_goswim.json")).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn s_46_bucket_sizes_follow_the_formula_and_add_up() {
    let vectors = vectors();
    assert_eq!(list(&vectors, "bucket_sizes").len(), 120);
    for row in list(&vectors, "bucket_sizes") {
        let (n, k) = (row["n"].as_u64().unwrap() as usize, row["k"].as_u64().unwrap() as usize);
        let expected = numbers(&row["normalised_recommended_index0_largest"]);
        assert_eq!(sizes(n, k), expected, "n {n} k {k}");
        assert_eq!(expected.iter().sum::<usize>(), n);
    }
}

fn sorted(sorter: NodeSorter, local: &[u8], ids: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut nodes = ids.to_vec();
    sorter.sort(&mut nodes, local, Clone::clone).unwrap();
    nodes
}

#[test]
fn s_31_sorters_put_the_nearest_first() {
    for row in list(&vectors(), "sort_orders") {
        let local = unhex(row["local"].as_str().unwrap());
        let ids: Vec<Vec<u8>> = texts(&row["ids"]).iter().map(|hex| unhex(hex)).collect();
        let expected = |key: &str| texts(&row[key]).iter().map(|hex| unhex(hex)).collect::<Vec<_>>();
        assert_eq!(sorted(NodeSorter::Xor, &local, &ids), expected("xor"));
        assert_eq!(sorted(NodeSorter::Ring, &local, &ids), expected("ring_successor"));
        assert_eq!(sorted(NodeSorter::ChordFinger, &local, &ids), expected("chord_finger"));
        let distances: Vec<Vec<u8>> =
            expected("xor").iter().map(|id| NodeSorter::Xor.distance(&local, id)).collect();
        assert_eq!(distances, expected("xor_distances"));
        let distances: Vec<Vec<u8>> =
            expected("ring_successor").iter().map(|id| NodeSorter::Ring.distance(&local, id)).collect();
        assert_eq!(distances, expected("ring_distances"));
    }
}

/// The order in which the tables of members keep ids.
#[test]
fn s_33_the_global_order_is_lexicographic() {
    let number = |hex: &&str| (hex.len() <= 32).then(|| Id::new(u128::from_str_radix(hex, 16).unwrap()));
    let ids = |row: &Value, key: &str| texts(&row[key]).iter().filter_map(number).collect::<Vec<Id>>();
    for row in list(&vectors(), "sort_orders") {
        let mut sorted = ids(row, "ids");
        sorted.sort();
        assert_eq!(sorted, ids(row, "lexicographic"));
    }
}

#[test]
fn s_34_xor_is_symmetric_and_a_node_is_nearest_to_itself() {
    let (a, b) = (id(3).to_bytes(), id(200).to_bytes());
    assert_eq!(NodeSorter::Xor.distance(&a, &b), NodeSorter::Xor.distance(&b, &a));
    assert_eq!(sorted(NodeSorter::Xor, &a, &[b.to_vec(), a.to_vec()])[0], a);
}

#[test]
fn s_11_ids_of_another_length_are_an_error() {
    for sorter in [NodeSorter::Xor, NodeSorter::Ring, NodeSorter::ChordFinger] {
        let mut nodes = vec![vec![9, 9], vec![1]];
        let error = sorter.sort(&mut nodes, &[1, 2], Clone::clone).unwrap_err();
        assert_eq!(error, IdLengthError { expected: 2, found: 1 });
        assert_eq!(nodes, [vec![9, 9], vec![1]], "as they were");
    }
}

#[test]
fn s_116_s_117_limits_grow_with_the_digits_of_n() {
    let vectors = vectors();
    assert_eq!(list(&vectors, "limits").len(), 21);
    for row in list(&vectors, "limits") {
        let n = row["N"].as_u64().unwrap() as usize;
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(f64::from(digits(n)), number("recommended_scale_max1"), "N {n}");
        assert_eq!(f64::from(transmit_limit(4, n)), number("retransmit_recommended_mult4"), "N {n}");
        let millis = |scale| suspicion(4, scale, n, SECOND).as_millis() as f64;
        assert_eq!(millis(Scale::Digits), number("suspicion_ms_recommended_mult4_1s"), "N {n}");
        assert_eq!(millis(Scale::Smooth), number("suspicion_ms_memberlist_today_mult4_1s"), "N {n}");
    }
}

#[test]
fn s_117_a_suspicion_lasts_its_multiplier_times_the_digits() {
    assert_eq!(suspicion(5, Scale::Digits, 50, 2 * SECOND), 20 * SECOND);
}

#[test]
fn s_16_sequences_compare_serially_and_incarnations_plainly() {
    for row in list(&vectors(), "sequence_compare_a_vs_b") {
        let number = |key: &str| row[key].as_u64().unwrap() as u32;
        let (a, b) = (number("a"), number("b"));
        let serial = Sequence(a).compare(Sequence(b)).map(|order| order as i64);
        assert_eq!(serial, row["rfc1982"].as_i64(), "{a} {b}");
        let plain = Incarnation(a).cmp(&Incarnation(b)) as i64;
        assert_eq!(Some(plain), row["plain_unsigned"].as_i64(), "{a} {b}");
    }
}

fn state(name: &str) -> State {
    match name {
        "Alive" => State::Alive,
        "Suspect" => State::Suspect,
        "Dead" => State::Dead,
        other => panic!("no state {other}"),
    }
}

#[test]
fn s_82_only_newer_updates_are_accepted_and_forwarded() {
    let vectors = vectors();
    let rows = list(&vectors["state_precedence"], "rows");
    assert_eq!(rows.len(), 27);
    for row in rows {
        let read = |state_key: &str, number: &str| {
            let incarnation = Incarnation(row[number].as_u64().unwrap() as u32);
            Status::new(incarnation, state(row[state_key].as_str().unwrap()))
        };
        let (known, message) = (read("known", "known_incarnation"), read("message", "message_incarnation"));
        assert_eq!(Some(known.accepts(message)), row["accept_recommended"].as_bool(), "{row}");
    }
}

#[test]
fn s_23_a_node_refutes_accusations_that_are_not_older_than_itself() {
    let vectors = vectors();
    for row in list(&vectors["state_precedence"], "self_examples") {
        let number = |key: &str| row[key].as_u64().map(|n| Incarnation(n as u32));
        let news =
            Status::new(number("message_incarnation").unwrap(), state(row["message"].as_str().unwrap()));
        assert_eq!(refutation(number("own").unwrap(), news, true), number("refute_with"), "{row}");
    }
    let equal = Status::new(Incarnation(5), State::Alive);
    assert_eq!(refutation(Incarnation(5), equal, false), Some(Incarnation(6)), "our former self");
}

#[test]
fn s_r10_round_trip_times_are_smoothed_as_the_document_says() {
    let mut rtt = Rtt::assumed(Duration::from_millis(500));
    for row in list(&vectors(), "rtt_alpha_0.125_beta_0.25_initial_500ms") {
        let number = |key: &str| row[key].as_f64().unwrap() * 1000.0;
        rtt.add(Duration::from_micros(number("sample_ms") as u64));
        let close = |a: Duration, b: f64| (a.as_micros() as f64 - b).abs() <= 1.0;
        assert!(close(rtt.estimate(), number("estimated_ms")), "{rtt:?} {row}");
        assert!(close(rtt.deviation(), number("deviation_ms_document_order")), "{rtt:?} {row}");
        assert!(close(rtt.timeout(), number("timeout_est_plus_4dev_document")), "{rtt:?} {row}");
    }
}
