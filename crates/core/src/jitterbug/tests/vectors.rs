//! The bytes, against vectors computed independently.

use serde_json::Value;

use super::*;
use crate::wire::DecodeError;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../tests/vectors/jitterbug.json")).unwrap()
}

fn all<'a>(vectors: &'a Value, name: &str) -> &'a Vec<Value> {
    vectors[name].as_array().unwrap_or_else(|| panic!("there are vectors {name}"))
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn field_hex(vector: &Value, name: &str) -> Vec<u8> {
    unhex(vector[name].as_str().unwrap())
}

fn number(vector: &Value, name: &str) -> i32 {
    i32::try_from(vector[name].as_i64().unwrap()).unwrap()
}

fn signed(vector: &Value, name: &str) -> SignedId {
    SignedId::new(number(vector, name)).unwrap()
}

fn nodes(vector: &Value) -> Vec<NodeEntry> {
    let node = |node: &Value| {
        let port = u16::try_from(node["port"].as_u64().unwrap()).unwrap();
        NodeEntry::new(
            host(number(node, "host_id") as u32),
            node["ip"].as_str().unwrap().parse().unwrap(),
            port,
        )
    };
    vector["nodes"].as_array().unwrap().iter().map(node).collect()
}

/// A vector of version 1 decodes to the message; one of version 0 is refused.
fn holds(vector: &Value, message: &Message) {
    let wire = field_hex(vector, "hex");
    assert_eq!(wire.len() as u64, vector["len"].as_u64().unwrap());
    if vector["version"] == 1 {
        assert_eq!(bytes(message), wire, "{vector}");
        assert_eq!(decode(&wire).as_ref(), Ok(message), "{vector}");
    } else {
        assert_eq!(decode(&wire), Err(DecodeError::Version), "{vector}");
    }
}

const KINDS: [Kind; 7] = [Kind::Tr1, Kind::Tr2, Kind::Tp1, Kind::Tp2, Kind::Tp3, Kind::Tp4, Kind::Tp5];

#[test]
fn j_86_every_message_starts_with_a_byte_of_version_and_type() {
    for vector in all(&vectors(), "meta_byte") {
        let byte = vector["byte"].as_u64().unwrap() as u8;
        let kind = KINDS[vector["code"].as_u64().unwrap() as usize];
        if vector["version"] == 1 {
            assert_eq!((kind.byte(), Kind::of(byte)), (byte, Ok(kind)), "{vector}");
        } else {
            assert_eq!(Kind::of(byte), Err(DecodeError::Version));
        }
    }
}

#[test]
fn j_87_the_lower_four_bits_are_the_version_and_only_1_is_spoken() {
    for vector in all(&vectors(), "meta_byte_decode") {
        let byte = field_hex(vector, "byte_hex")[0];
        let accepted = vector["accept_if_own_version_is_1"].as_bool().unwrap();
        assert_eq!(Kind::of(byte).is_ok(), accepted, "{vector}");
        if vector["version"] != 1 {
            assert_eq!(Kind::of(byte), Err(DecodeError::Version));
        }
    }
}

#[test]
fn j_88_the_upper_four_bits_are_the_type() {
    for vector in all(&vectors(), "meta_byte_decode").iter().filter(|vector| vector["version"] == 1) {
        let byte = field_hex(vector, "byte_hex")[0];
        let expected = KINDS.get(vector["type_code"].as_u64().unwrap() as usize).copied();
        assert_eq!(Kind::of(byte).ok(), expected, "{vector}");
        if expected.is_none() {
            assert_eq!(Kind::of(byte), Err(DecodeError::Kind));
        }
    }
}

#[test]
fn j_89_the_types_are_numbered_from_tr1_to_tp5() {
    assert_eq!(KINDS.map(Kind::byte), [0x01, 0x11, 0x21, 0x31, 0x41, 0x51, 0x61]);
}

#[test]
fn j_90_tr1_is_token_host_and_port() {
    for vector in all(&vectors(), "TR1") {
        let message = Message::Tr1 {
            token_id: signed(vector, "token_id"),
            host_id: host(number(vector, "host_id") as u32),
            tcp_port: vector["tcp_port"].as_u64().unwrap() as u16,
        };
        holds(vector, &message);
    }
}

#[test]
fn j_91_tr2_is_a_token_id_whose_sign_shows_the_holder() {
    for vector in all(&vectors(), "TR2") {
        let token_id = signed(vector, "token_id_wire");
        holds(vector, &Message::Tr2 { token_id });
        assert_eq!(token_id.is_held(), vector["holds_token"] == 1);
        assert_eq!(token_id.id().magnitude() as u64, vector["token_magnitude"].as_u64().unwrap());
    }
}

#[test]
fn j_92_tp1_is_token_and_hash() {
    let vectors = vectors();
    for vector in all(&vectors, "TP1") {
        let list =
            all(&vectors, "node_lists_TP4").iter().find(|list| list["name"] == vector["list"]).unwrap();
        let node_list_hash = NodeList::of(nodes(list)).hash();
        assert_eq!(node_list_hash, number(vector, "node_list_hash"));
        holds(vector, &Message::Tp1 { token_id: signed(vector, "token_id"), node_list_hash });
    }
}

#[test]
fn j_93_tp2_has_no_body() {
    let vector = &vectors()["TP2"];
    assert_eq!(bytes(&Message::Tp2), field_hex(vector, "v1_hex"));
    assert_eq!(decode(&field_hex(vector, "v1_hex")), Ok(Message::Tp2));
    assert_eq!(decode(&field_hex(vector, "v0_hex")), Err(DecodeError::Version));
}

#[test]
fn j_94_tp3_has_no_body() {
    let vector = &vectors()["TP3"];
    assert_eq!(bytes(&Message::Tp3), field_hex(vector, "v1_hex"));
    assert_eq!(decode(&field_hex(vector, "v1_hex")), Ok(Message::Tp3));
    assert_eq!(decode(&[0x41, 0]), Err(DecodeError::Trailing));
}

#[test]
fn j_95_tp4_is_the_list() {
    for vector in all(&vectors(), "node_lists_TP4") {
        let wire = field_hex(vector, "tp4_v1_hex");
        let message = Message::Tp4 { nodes: nodes(vector) };
        assert_eq!(bytes(&message), wire, "{vector}");
        assert_eq!(decode(&wire), Ok(message));
        assert_eq!(wire.len() as u64, vector["tp4_len"].as_u64().unwrap());
        assert_eq!(decode(&field_hex(vector, "tp4_v0_hex")), Err(DecodeError::Version));
    }
}

#[test]
fn j_96_tp5_is_the_data_to_the_end() {
    for vector in all(&vectors(), "TP5") {
        let message = Message::Tp5 { data: field_hex(vector, "data_hex") };
        assert_eq!(bytes(&message), field_hex(vector, "v1_hex"));
        assert_eq!(decode(&field_hex(vector, "v1_hex")), Ok(message));
    }
}

#[test]
fn j_97_a_token_id_has_31_bits_and_a_sign() {
    assert_eq!((id(7).held().number(), id(7).free().number()), (7, -7));
    assert_eq!((TokenId::new(0), TokenId::new(1 << 31)), (None, None));
    assert_eq!((SignedId::new(0), SignedId::new(i32::MIN)), (None, None), "they have no other sign");
    for vector in all(&vectors(), "tp5_equal_rule_magnitude") {
        let (own, received) = (signed(vector, "self_token_id"), signed(vector, "tp1_token_id"));
        assert_eq!(own.id() == received.id(), vector["equal_recommended_magnitude"].as_bool().unwrap());
    }
}

#[test]
fn j_98_a_port_is_two_bytes_and_not_0() {
    assert_eq!(decode(&unhex("01ffffffff000000010000")), Err(DecodeError::Field("port")));
    assert_eq!(decode(&unhex("510000000100000001c0a8010a0000")), Err(DecodeError::Field("port")), "JA-35a");
}

#[test]
fn j_99_a_host_id_is_not_negative() {
    assert_eq!(decode(&unhex("01fffffffbfffffffb0005")), Err(DecodeError::Field("host_id")));
    let min = unhex("510000000180000000000000000000000000000000000000000000");
    assert_eq!(decode(&min), Err(DecodeError::Field("host_id")));
}

#[test]
fn j_100_a_list_begins_with_its_size() {
    assert_eq!(decode(&unhex("51ffffffff")), Err(DecodeError::Field("size")));
    assert_eq!(decode(&unhex("517fffffff")), Err(DecodeError::Limit("list")));
    assert_eq!(decode(&unhex("5100010000")), Err(DecodeError::Limit("list")));
    assert_eq!(decode(&unhex("510000ffff")), Err(DecodeError::Truncated), "allowed, but not there");
}

#[test]
fn j_101_the_sign_of_an_entry_shows_the_kind_of_address() {
    for vector in all(&vectors(), "node_lists_TP4") {
        let mut entries = Vec::new();
        let mut writer = Writer::new(&mut entries, 1 << 16);
        nodes(vector).iter().for_each(|node| wire::encode_entry(node, &mut writer));
        assert_eq!(entries, field_hex(vector, "entries_hex"), "{vector}");
    }
}

#[test]
fn j_102_the_hash_of_a_list_is_that_of_its_entries_without_their_number() {
    for vector in all(&vectors(), "node_lists_TP4") {
        let list = NodeList::of(nodes(vector));
        assert_eq!(list.hash(), number(vector, "hash_entries_only_recommended"), "{vector}");
        assert_eq!(list.hash().to_be_bytes().to_vec(), field_hex(vector, "hash_entries_only_hex"));
        let with_size = hash577(&bytes(&Message::Tp4 { nodes: nodes(vector) })[1..]);
        assert_eq!(with_size, number(vector, "hash_with_size_prefix_literal"), "the literal reading");
    }
}

#[test]
fn j_103_bytes_of_the_hash_are_signed() {
    assert_eq!((hash577(&[0xff]), hash577(&[0x80])), (-1, -128));
}

#[test]
fn j_104_the_hash_is_polynomial_with_base_577() {
    for vector in all(&vectors(), "hash577") {
        let text = vector["hex"].as_str().unwrap();
        let input = match text.split_once(" x") {
            Some((byte, times)) => unhex(byte).repeat(times.parse().unwrap()),
            None => unhex(text),
        };
        assert_eq!(input.len() as u64, vector["len"].as_u64().unwrap());
        assert_eq!(hash577(&input), number(vector, "hash_i32"), "{vector}");
        assert_eq!(hash577(&input).to_be_bytes().to_vec(), field_hex(vector, "hash_be_hex"));
    }
    let collision = &vectors()["hash577_leading_zero_collision"];
    assert_eq!(hash577(&field_hex(collision, "a_hex")), number(collision, "hash_a"));
    assert_eq!(hash577(&field_hex(collision, "b_hex")), number(collision, "hash_b"));
}

#[test]
fn j_106_all_integers_are_big_endian() {
    let message =
        Message::Tr1 { token_id: id(0x1234_5678).free(), host_id: host(0x0a0b_0c0d), tcp_port: 30041 };
    assert_eq!(bytes(&message), unhex("01edcba9880a0b0c0d7559"));
}

#[test]
fn j_51_the_reply_rule_compares_signed_numbers() {
    for vector in all(&vectors(), "tr1_reply_rule_signed_compare") {
        let (own, tried) = (signed(vector, "self_token_id"), signed(vector, "tr1_token_id"));
        assert_eq!(own.is_held(), vector["self_is_leader"].as_bool().unwrap());
        assert_eq!(own >= tried, vector["reply_document"].as_bool().unwrap(), "{vector}");
        let election = election::Election::new(tried.id(), crate::Instant::ZERO, 1, 1);
        assert_eq!(
            election.denies(own),
            vector["requester_denied_by_that_reply"].as_bool().unwrap(),
            "{vector}"
        );
    }
}

#[test]
fn j_41_two_orphans_that_compare_alike_are_not_both_granted() {
    let hazard = &vectors()["two_orphans_mixed_compare_hazard"];
    let (a, b) = (signed(&hazard["A"], "token_id"), signed(&hazard["B"], "token_id"));
    let denied = |tried: SignedId, answer: SignedId| {
        // A node answers an id that it is not below; the answer denies if it is greater.
        answer >= tried && election::Election::new(tried.id(), crate::Instant::ZERO, 1, 1).denies(answer)
    };
    assert_eq!((denied(a, b), denied(b, a)), (false, true), "A is granted, B is not");
}

#[test]
fn j_79_penalties_follow_the_vectors() {
    let vectors = vectors();
    let mut penalties = Penalties::default();
    let tried: Vec<u64> = (1..=5119)
        .filter(|_| {
            let allowed = penalties.allow(host(5));
            if allowed {
                penalties.failed(host(5));
            }
            allowed
        })
        .collect();
    let expected = all(&vectors["penalty_always_fail_cap10"], "attempt_rounds");
    assert_eq!(tried, expected.iter().map(|round| round.as_u64().unwrap()).collect::<Vec<_>>());
}

#[test]
fn j_82_a_success_lowers_the_threshold_by_one_as_the_vectors_say() {
    let mut penalties = Penalties::default();
    let mut failures = 3;
    let mut seen = Vec::new();
    for round in 1..=28 {
        if !penalties.allow(host(5)) {
            continue;
        }
        let ok = failures == 0;
        if ok {
            penalties.succeeded(host(5));
        } else {
            failures -= 1;
            penalties.failed(host(5));
        }
        let threshold_after = penalties.of(host(5)).threshold;
        seen.push(
            serde_json::json!({"round": round, "tried": true, "ok": ok, "threshold_after": threshold_after}),
        );
    }
    assert_eq!(&seen, all(&vectors(), "penalty_fail3_then_ok"));
}

#[test]
fn j_73_candidates_follow_the_list_from_the_own_place() {
    for vector in all(&vectors(), "candidate_order") {
        let letter = |name: &Value| u32::from(name.as_str().unwrap().as_bytes()[0]);
        let list = NodeList::of(
            (vector["list"].as_array().unwrap().iter())
                .map(|name| NodeEntry::new(host(letter(name)), ip(1), letter(name) as u16)),
        );
        let own = host(letter(&vector["self"]));
        let order: Vec<u32> =
            (0..9).map_while(|nth| list.candidate(own, nth)).map(|node| node.host_id.number()).collect();
        assert_eq!(
            order,
            vector["order"].as_array().unwrap().iter().map(letter).collect::<Vec<_>>(),
            "{vector}"
        );
    }
}

#[test]
fn j_30_the_random_drop_has_the_probability_of_the_vectors() {
    for vector in all(&vectors(), "coin_probability") {
        let base = vector["token_loose_prob_base"].as_f64().unwrap();
        let chance = Config { loose_prob_base: base, ..config() }
            .drop_probability(vector["N"].as_u64().unwrap() as usize);
        assert!((chance - vector["p"].as_f64().unwrap()).abs() < 1e-12, "{vector}");
    }
}

#[test]
fn a_decoded_message_prints_as_json() {
    let json = |hex: &str| serde_json::to_string(&decode(&unhex(hex)).unwrap()).unwrap();
    assert_eq!(
        json("01edcba9880a0b0c0d7559"),
        r#"{"message":"tr1","token_id":-305419896,"host_id":168496141,"tcp_port":30041}"#
    );
    assert_eq!(
        json("510000000100000001c0a8010a9c41"),
        r#"{"message":"tp4","nodes":[{"host_id":1,"addr":"192.168.1.10:40001"}]}"#
    );
    assert_eq!(json("6168656c6c6f"), r#"{"message":"tp5","data":"68656c6c6f"}"#);
}
