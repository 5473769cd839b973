use proptest::prelude::*;

use super::*;

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1 << 20);
    encode(message, &mut writer);
    writer.finish().unwrap();
    bytes
}

#[test]
fn the_bytes_are_those_of_the_vectors() {
    let lines = include_str!("../../tests/vectors/pastry.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, hex, printed] = fields[..] else {
            panic!("a vector is name | hex | printed form: {line}")
        };
        let wire: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        match decode(&wire) {
            Ok(message) => {
                assert_eq!(format!("{message:?}"), printed, "{name}");
                assert_eq!(bytes(&message), wire, "{name}");
            }
            Err(error) => assert_eq!(format!("{error:?}"), printed, "{name}"),
        }
    }
}

fn any_contact() -> impl Strategy<Value = Contact> {
    let ip = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    let usable = ip.prop_filter("an address of one host", |ip| !ip.is_unspecified() && !ip.is_multicast());
    (any::<u128>(), any::<u64>(), usable, 1u16..).prop_map(|(id, generation, ip, port)| Contact {
        id: Id::new(id),
        generation: Generation(generation),
        addr: SocketAddr::new(ip, port),
    })
}

fn any_contacts() -> impl Strategy<Value = Vec<Contact>> {
    proptest::collection::vec(any_contact(), 0..5)
}

fn any_versions() -> impl Strategy<Value = Versions> {
    any::<(u32, u32, u32)>().prop_map(|(leaf_set, routing_table, neighbourhood)| Versions {
        leaf_set,
        routing_table,
        neighbourhood,
    })
}

fn any_tables() -> impl Strategy<Value = TablesSent> {
    let rtts = proptest::collection::vec(any::<u32>(), 0..4);
    (any_contacts(), any_contacts(), any_contacts(), rtts).prop_map(
        |(leaf_set, routing_table, neighbourhood, rtts_micros)| TablesSent {
            leaf_set,
            routing_table,
            neighbourhood,
            rtts_micros,
        },
    )
}

fn any_path() -> impl Strategy<Value = Vec<PathStep>> {
    let step = (any_contact(), proptest::option::of(0..u32::MAX));
    proptest::collection::vec(step.prop_map(|(contact, rtt_micros)| PathStep { contact, rtt_micros }), 0..4)
}

fn any_body() -> impl Strategy<Value = Body> {
    let payload = proptest::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        Just(Body::Join),
        any_path().prop_map(|path| Body::Trace { path }),
        ("[a-zé]{0,20}", any::<bool>(), payload).prop_map(|(app, wants_answer, payload)| Body::App {
            app: AppName::new(app).unwrap(),
            wants_answer,
            payload: payload.into()
        }),
    ]
}

fn any_envelope() -> impl Strategy<Value = Envelope> {
    let numbers = (any::<u128>(), any::<u16>(), any::<u128>(), any::<u8>(), any::<u8>(), any::<u32>());
    let parts = (numbers, any_contact(), any::<bool>(), any_body());
    parts.prop_map(|((id, attempt, key, ttl, hops, lifetime_millis), origin, to_node, body)| Envelope {
        id: MessageId(id),
        attempt,
        key: Id::new(key),
        to_node,
        origin,
        ttl,
        hops,
        lifetime_millis,
        body,
    })
}

fn any_report() -> impl Strategy<Value = Report> {
    let answer = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50));
    prop_oneof![
        answer.prop_map(|answer| Report::Delivered { answer: answer.map(Into::into) }),
        Just(Report::Kept),
        any_path().prop_map(|path| Report::Traced { path }),
        "[a-zé]{0,20}".prop_map(|reason| Report::Refused { reason }),
        (0..Failure::ALL.len()).prop_map(|at| Report::Failed { why: Failure::ALL[at] }),
        any::<u32>().prop_map(|after_millis| Report::Busy { after_millis }),
        Just(Report::Lost),
    ]
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    any::<(bool, bool, u128, Option<(u8, u8)>)>().prop_map(|(leaf_set, neighbourhood, rows, cell)| Wanted {
        leaf_set,
        neighbourhood,
        rows,
        cell,
    })
}

fn any_about() -> impl Strategy<Value = About> {
    prop_oneof![
        any::<u32>().prop_map(|token| About::Request { token }),
        any::<(u128, u8, bool)>().prop_map(|(id, hop, last)| About::Join { id: MessageId(id), hop, last }),
        Just(About::Race),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), any_contact()).prop_map(|(ring, from)| Message::Hello { ring: RingTag(ring), from }),
        (any::<(u64, u64)>(), any_contact()).prop_map(|((ring, nonce), from)| Message::Ping {
            ring: RingTag(ring),
            nonce,
            from
        }),
        (any::<(u64, u64, u32)>(), any_contact()).prop_map(|((ring, nonce, leaf_set_digest), from)| {
            Message::Pong { ring: RingTag(ring), nonce, from, leaf_set_digest }
        }),
        (any::<u64>(), any_envelope())
            .prop_map(|(transmission, envelope)| Message::Route { transmission, envelope }),
        any::<(Vec<u64>, Vec<u128>)>().prop_map(|(transmissions, delivered)| Message::Ack {
            transmissions,
            delivered: delivered.into_iter().map(MessageId).collect()
        }),
        any::<u64>().prop_map(|transmission| Message::Nack { transmission }),
        (any::<(u128, u16, u8)>(), any_report()).prop_map(|((id, attempt, hops), report)| {
            Message::Receipt { id: MessageId(id), attempt, hops, report }
        }),
        (any::<u32>(), any_wanted()).prop_map(|(token, wanted)| Message::StateRequest { token, wanted }),
        (any_about(), any_versions(), any_tables()).prop_map(|(about, versions, tables)| Message::State {
            about,
            versions,
            tables
        }),
        (proptest::option::of(any_versions()), any::<bool>(), any_versions(), any_tables()).prop_map(
            |(seen, wants_welcome, versions, tables)| Message::Announce {
                seen,
                wants_welcome,
                versions,
                tables
            }
        ),
        any_versions().prop_map(|versions| Message::Welcome { versions }),
        Just(Message::Exit),
        any::<u128>().prop_map(|id| Message::Suspect { id: Id::new(id) }),
        Just(Message::Refuse),
    ]
}

proptest! {
    #[test]
    fn decoding_returns_what_was_encoded(message in any_message()) {
        let bytes = bytes(&message);
        prop_assert_eq!(decode(&bytes), Ok(message));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..18) {
        let _ = decode(&bytes);
        // Also with a valid version and kind, so that the bytes behind them are decoded.
        let _ = decode(&[&[VERSION, kind], &bytes[..]].concat());
    }

    #[test]
    fn no_truncation_is_a_message(message in any_message(), cut in any::<proptest::sample::Index>()) {
        let bytes = bytes(&message);
        let cut = &bytes[..cut.index(bytes.len())];
        // A payload ends with its message. A shorter one is another message, never the same.
        prop_assert_ne!(decode(cut), Ok(message));
    }
}
