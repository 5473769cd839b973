//! The published vectors, byte for byte, and our own.

use serde_json::Value;

use super::desk::{bytes_of, frame, here_bytes};
use crate::ring::clockwise;
use crate::w3w::ring::{Direction, Ring, Route};
use crate::w3w::{
    Described, Form, Here, Key, KnownNode, Message, Nid, decode_body, decode_here, describe,
    known_nodes_from_json, known_nodes_to_json, read_form, write_form,
};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../tests/vectors/w3w.json")).unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

fn nid(value: &Value) -> Nid {
    value.as_str().unwrap().parse().unwrap()
}

fn ring(own: Nid, peers: &Value) -> Ring {
    let mut ring = Ring::new(own);
    for peer in peers.as_array().unwrap() {
        let at = "127.0.0.9:22000".parse().unwrap();
        let stream = crate::tag::StreamId::accepted(1);
        ring.insert(nid(peer), Route { at, direction: Direction::In, stream });
    }
    ring
}

#[test]
fn m_12_the_nid_is_the_hash_of_the_raw_uuid() {
    for vector in vectors()["nid"].as_array().unwrap() {
        let uuid: [u8; 16] = bytes_of(text(vector, "raw16_hex")).try_into().unwrap();
        let nid = Nid::from_uuid(uuid);
        assert_eq!(nid.to_string(), text(&vector["blake2b_over_raw16"], "256"));
        assert_eq!(crate::id::hash(text(vector, "uuid").as_bytes()), {
            let other = text(&vector["blake2b_over_canonical_lowercase_text36"], "256");
            <[u8; 32]>::try_from(bytes_of(other)).unwrap()
        });
        assert_eq!(nid.id(), crate::Id::from_uuid(uuid), "one identity in all services");
    }
}

#[test]
fn m_13_here_is_the_text_of_the_vectors() {
    for vector in vectors()["HERE"].as_array().unwrap() {
        let bytes = bytes_of(text(vector, "hex"));
        assert_eq!(bytes, text(vector, "text").as_bytes());
        assert_eq!(bytes.len() as u64, vector["len"].as_u64().unwrap());
        let here = decode_here(&bytes).unwrap();
        assert_eq!(here.nid, nid(&vector["nid"]));
        assert_eq!(here.at.to_string(), format!("{}:{}", text(vector, "ip"), vector["port"]));
        assert_eq!(here_bytes(&here), bytes);
        assert!(describe(&bytes).is_ok());
    }
    assert_eq!(vectors()["HERE_longest_len"]["nid_256"], crate::w3w::HERE_BYTES_MAX as u64);
    for vector in vectors()["HERE_accept_lenient"].as_array().unwrap() {
        assert!(decode_here(text(vector, "text").as_bytes()).is_ok(), "{}", vector["why"]);
    }
}

#[test]
fn m_15_other_versions_are_no_here() {
    m_reject(&["version", "w prefix"], 3);
}

#[test]
fn m_17_only_a_dotted_quad_of_one_host_is_an_address() {
    m_reject(&["IPv4", "IPv6", "octet", "address"], 5);
}

/// All rejected texts whose reason has one of these words; then all of them.
fn m_reject(words: &[&str], at_least: usize) {
    let vectors = vectors();
    let all = vectors["HERE_reject"].as_array().unwrap();
    for vector in all {
        assert!(decode_here(text(vector, "text").as_bytes()).is_err(), "{}", vector["why"]);
    }
    let matching = all.iter().filter(|vector| words.iter().any(|word| text(vector, "why").contains(word)));
    assert!(matching.count() >= at_least);
}

#[test]
fn m_19_message_is_the_frame_of_the_vectors() {
    for vector in vectors()["MESSAGE"].as_array().unwrap() {
        let data = bytes_of(text(vector, "data_hex"));
        let message = Message::new(nid(&vector["src"]), nid(&vector["dst"]), &data);
        let wire = bytes_of(text(vector, "frame_hex_recommended"));
        assert_eq!(frame(&message), wire);
        assert_eq!(message.body().len() as u64, vector["body_len"].as_u64().unwrap());
        assert_eq!(decode_body(&wire[4..]).unwrap(), crate::w3w::Body::Message(message));
        let [Described::Message { hash, size, .. }] = &describe(&wire).unwrap()[..] else {
            panic!("one message")
        };
        assert_eq!(
            (hash.to_string(), *size),
            (text(vector, "kv_key_blake2b256_data").to_owned(), data.len())
        );
    }
}

#[test]
fn m_52_the_key_is_the_hash_of_data() {
    for vector in vectors()["KV"].as_array().unwrap() {
        let key = Key::of(&bytes_of(text(vector, "data_hex")));
        assert_eq!(key.to_string(), text(vector, "key_blake2b_256"));
    }
}

#[test]
fn m_26_an_insert_goes_where_the_corrected_table_says() {
    let letter =
        |value: &Value| Nid::from_uuid([0; 16]).to_bytes().map(|_| value.as_str().unwrap().as_bytes()[0]);
    for vector in vectors()["ring_insert"].as_array().unwrap() {
        let fixed = &vector["fixed_recommended"];
        let mut ring = Ring::new(Nid::default());
        let at = "127.0.0.9:22000".parse().unwrap();
        let route = Route { at, direction: Direction::In, stream: crate::tag::StreamId::accepted(1) };
        for peer in vector["ring"].as_array().unwrap() {
            ring.insert(Nid::from_bytes(letter(peer)), route);
        }
        let had = ring.len();
        let new = Nid::from_bytes(letter(&vector["nid"]));
        ring.insert(new, route);
        let order: Vec<Nid> = ring.iter().map(|(nid, _)| nid).collect();
        let wanted: Vec<Nid> =
            fixed["ring"].as_array().unwrap().iter().map(|peer| Nid::from_bytes(letter(peer))).collect();
        assert_eq!(order, wanted);
        assert_eq!(order.iter().position(|nid| *nid == new), fixed["index0"].as_u64().map(|at| at as usize));
        assert_eq!(text(fixed, "action") == "insert", ring.len() == had + 1);
    }
}

#[test]
fn m_48_the_younger_and_the_older_match_the_vectors() {
    let vectors = vectors();
    let rows = vectors["send_targets"]["rows"].as_array().unwrap();
    let cases = rows.iter().map(|row| (&vectors["send_targets"]["ring"], row));
    let one = &vectors["send_targets_one_peer"];
    for (peers, row) in cases.chain([(&one["ring"], one)]) {
        let ring = ring(Nid::default(), peers);
        let dest = nid(&row["dest"]);
        assert_eq!(ring.get(dest).is_some(), row["direct"].as_bool().unwrap());
        if ring.get(dest).is_none() {
            assert_eq!(ring.around(dest, &[]), Some((nid(&row["younger"]), nid(&row["older"]))), "{dest}");
        }
    }
}

#[test]
fn m_42_the_three_that_are_too_close_match_the_vectors() {
    for vector in vectors()["optimize"].as_array().unwrap() {
        let ring = ring(nid(&vector["my_nid"]), &vector["ring"]);
        let wanted = &vector["min_span_protecting_my_two_neighbours_recommended"];
        let triple = ring.too_close(None).unwrap();
        assert_eq!(triple.middle, nid(&wanted["middle_removed"]));
        let told = wanted["here_about_middle_sent_to"].as_array().unwrap();
        assert_eq!([triple.younger, triple.older], [nid(&told[0]), nid(&told[1])]);
        assert_eq!(clockwise(triple.younger, triple.older), nid(&wanted["span_hex"]));
    }
}

#[test]
fn m_5_the_file_is_the_one_of_the_vectors() {
    let vectors = vectors();
    let vector = &vectors["known_nodes_json"];
    let nodes = known_nodes_from_json(&vector["entries"].to_string()).unwrap();
    let order: Vec<String> = nodes.iter().map(|node| node.ip.to_string()).collect();
    let wanted: Vec<&str> =
        vector["contact_order"].as_array().unwrap().iter().map(|ip| ip.as_str().unwrap()).collect();
    assert_eq!(order, wanted);
    let shuffled: Vec<KnownNode> = nodes.iter().rev().copied().collect();
    assert_eq!(known_nodes_to_json(&shuffled), text(vector, "file_text_sorted_desc"));
}

#[test]
fn our_forms_are_those_of_our_vectors() {
    let mut kinds = std::collections::BTreeSet::new();
    for line in
        include_str!("../../../tests/vectors/w3w_forms.txt").lines().filter(|line| !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, hex, printed] = fields[..] else {
            panic!("a vector is name | hex | printed form: {line}")
        };
        let data = bytes_of(hex);
        let form = read_form(&data);
        assert_eq!(format!("{form:?}"), printed, "{name}");
        if !name.starts_with("broken") {
            assert_eq!(write_form(&form), data, "{name}");
            kinds.insert(core::mem::discriminant(&form).eq(&core::mem::discriminant(&Form::Plain(b""))));
        }
    }
    assert_eq!(kinds.len(), 2, "plain ones and others");
}

#[test]
fn describe_distinguishes_frames_and_datagrams() {
    let here = Here { nid: Nid::from_uuid([1; 16]), at: "10.0.0.1:22000".parse().unwrap() };
    let message = Message::new(here.nid, here.nid, b"\x00\xff");
    let wire = [crate::w3w::here_frame(&here), frame(&message)].concat();
    let json = serde_json::to_value(describe(&wire).unwrap()).unwrap();
    assert_eq!(json[0]["message"], "HERE");
    assert_eq!(json[0]["carrier"], "frame");
    assert_eq!(json[1]["message"], "MESSAGE");
    assert_eq!(json[1]["data_hex"], "00ff");
    for end in 1..wire.len() {
        assert!(end == 4 + here_bytes(&here).len() || describe(&wire[..end]).is_err(), "cut at {end}");
    }
    assert!(describe(b"").is_err());
}
