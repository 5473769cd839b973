//! Laws, on generated values.

use proptest::prelude::*;

use serde_json::Value;

use super::*;

fn node_entry() -> impl Strategy<Value = NodeEntry> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    (1..i32::MAX as u32, prop_oneof![v4, v6], 1..u16::MAX)
        .prop_map(|(number, ip, port)| NodeEntry::new(host(number), ip, port))
}

fn message() -> impl Strategy<Value = Message> {
    let token = (1..i32::MAX as u32).prop_map(id);
    prop_oneof![
        (token.clone(), 0..i32::MAX as u32, 1..u16::MAX).prop_map(|(token, number, tcp_port)| Message::Tr1 {
            token_id: token.free(),
            host_id: host(number),
            tcp_port
        }),
        (token.clone(), any::<bool>()).prop_map(|(token, held)| Message::Tr2 {
            token_id: if held { token.held() } else { token.free() }
        }),
        (token, any::<i32>())
            .prop_map(|(token, node_list_hash)| Message::Tp1 { token_id: token.held(), node_list_hash }),
        Just(Message::Tp2),
        Just(Message::Tp3),
        prop::collection::vec(node_entry(), 0..20).prop_map(|nodes| Message::Tp4 { nodes }),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|data| Message::Tp5 { data }),
    ]
}

fn document() -> impl Strategy<Value = Document> {
    let counts = prop::collection::btree_map("[1-5]", 0..20u64, 0..4);
    // Some values are unset: an unset wins and loses like any other write.
    let value = prop_oneof!["[a-c]".prop_map(|text| Raw::from(text.as_str())), Just(Value::Null.into())];
    let stamped = (0..5u64, 1..4u32, value).prop_map(|(fence, host, value)| Stamped { fence, host, value });
    let values = prop::collection::btree_map("[k-m]", stamped, 0..3);
    let kind = prop_oneof![Just(EdgeKind::Restore), Just(EdgeKind::Merge)];
    let edge = (0..200u64, 1..4u32, kind, 1..5u32, 1..5u32).prop_map(|(fence, host, kind, from, to)| Edge {
        fence,
        host,
        kind,
        from,
        to,
    });
    let edges = prop::collection::vec(edge, 0..60).prop_map(|edges| unite(&edges, &[]));
    let turns = prop::option::of("[0-9a-f]{32}");
    (counts, values, edges, turns).prop_map(|(counts, values, edges, turns)| Document {
        counts,
        values,
        edges,
        turns,
        rest: std::collections::BTreeMap::new(),
    })
}

proptest! {
    #[test]
    fn decoding_returns_what_was_encoded(message in message()) {
        prop_assert_eq!(decode(&bytes(&message)), Ok(message));
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = (decode(&noise), decode_datagram(&noise), unframe(&noise), Document::from_json(&noise));
    }

    #[test]
    fn a_list_keeps_the_first_of_each_host_and_its_hash(nodes in prop::collection::vec(node_entry(), 0..30)) {
        let list = NodeList::of(nodes.clone().into_iter().chain(nodes.clone()));
        let entries = bytes(&Message::Tp4 { nodes: list.nodes().to_vec() });
        prop_assert_eq!(list.hash(), hash577(&entries[5..]));
        for node in &nodes {
            let first = nodes.iter().find(|other| other.host_id == node.host_id).unwrap();
            prop_assert_eq!(list.addr(node.host_id), Some(first.addr));
        }
    }

    #[test]
    fn documents_merge_as_a_join(a in document(), b in document(), c in document()) {
        prop_assert_eq!(a.merge(&a), a.clone());
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
        let both = a.merge(&b);
        prop_assert_eq!(a.merge(&both), both.clone());
        prop_assert!(both.sum() >= a.sum().max(b.sum()), "no merge lowers a fence");
        prop_assert!(both.covers(&a) && both.covers(&b));
    }

    #[test]
    fn a_document_is_what_it_was_after_the_wire(document in document()) {
        prop_assert_eq!(Document::from_data(&document.to_data()), Ok(document));
    }

    #[test]
    fn a_pass_may_come_in_any_pieces(cuts in prop::collection::vec(1..40usize, 1..30)) {
        let mut rig = waiter();
        let stream = offer(&mut rig, 1, 2, 77, 99);
        let nodes = vec![entry(2), NodeEntry::new(host(5), "2001:db8::1".parse().unwrap(), 9), entry(1)];
        let data = counts(&[(12, 4)]);
        let wire = [bytes(&Message::Tp4 { nodes: nodes.clone() }), bytes(&Message::Tp5 { data })].concat();
        let mut rest = &wire[..];
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            rig.stream(stream, StreamEvent::Data(now)).unwrap();
            rest = later;
        }
        rig.stream(stream, StreamEvent::Data(rest)).unwrap();
        rig.stream(stream, StreamEvent::Finished).unwrap();
        prop_assert_eq!(rig.machine.list().nodes(), &nodes[..]);
        prop_assert_eq!(count_of(rig.machine.data(), 12), 4);
    }
}
