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
    (any::<u128>(), any::<u64>(), usable, 1u16..).prop_map(|(id, incarnation, ip, port)| Contact {
        id: Id::new(id),
        incarnation: Incarnation(incarnation),
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
    (any_contacts(), any_contacts(), any_contacts()).prop_map(|(leaf_set, routing_table, neighbourhood)| {
        TablesSent { leaf_set, routing_table, neighbourhood }
    })
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
        ("[a-zé]{0,20}", any::<bool>(), payload).prop_map(|(app, ask, payload)| Body::App {
            app: AppName::new(app).unwrap(),
            ask,
            payload
        }),
    ]
}

fn any_envelope() -> impl Strategy<Value = Envelope> {
    let numbers = (any::<u128>(), any::<u8>(), any::<u128>(), any::<u8>(), any::<u8>(), 0..3_usize);
    let doubted = proptest::collection::vec(any::<u128>().prop_map(Id::new), 0..=Envelope::DOUBTED_MAX);
    let parts = (numbers, any_contact(), doubted, any_body());
    parts.prop_map(|((id, attempt, key, ttl, hops, copies), origin, doubted, body)| Envelope {
        id: MessageId(id),
        attempt,
        key: Id::new(key),
        origin,
        ttl,
        hops,
        copies: Copies::ALL[copies],
        doubted,
        body,
    })
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        any_contact().prop_map(|by| Outcome::Delivered { by }),
        (0..Failure::ALL.len()).prop_map(|at| Outcome::Failed { reason: Failure::ALL[at] }),
        Just(Outcome::Unknown),
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

fn any_sent() -> impl Strategy<Value = Option<Sent>> {
    proptest::option::of((1u64.., any::<u32>(), any::<u32>()).prop_map(
        |(clock, patience_micros, age_micros)| Sent { clock: Clock(clock), patience_micros, age_micros },
    ))
}

fn any_message() -> impl Strategy<Value = Message> {
    let payload = proptest::collection::vec(any::<u8>(), 0..50);
    prop_oneof![
        (any::<u64>(), any_contact()).prop_map(|(ring, from)| Message::Hello { ring: RingTag(ring), from }),
        (any::<(u64, u64)>(), any_contact()).prop_map(|((ring, nonce), from)| Message::Ping {
            ring: RingTag(ring),
            nonce,
            from
        }),
        (any::<(u64, u64, u32, u64)>(), any_contact()).prop_map(
            |((ring, nonce, leaf_set_version, clock), from)| {
                Message::Pong { ring: RingTag(ring), nonce, from, leaf_set_version, clock: Clock(clock) }
            }
        ),
        (any::<u64>(), any_sent(), any_envelope())
            .prop_map(|(transmission, sent, envelope)| Message::Route { transmission, sent, envelope }),
        any::<(u64, Vec<u64>, Vec<u128>)>().prop_map(|(clock, transmissions, delivered)| Message::Ack {
            clock: Clock(clock),
            transmissions,
            delivered: delivered.into_iter().map(MessageId).collect()
        }),
        any::<u64>().prop_map(|transmission| Message::Nack { transmission }),
        (any::<(u128, u8)>(), any_outcome(), any_path()).prop_map(|((id, hops), outcome, path)| {
            Message::Receipt { id: MessageId(id), outcome, hops, path }
        }),
        (any::<(u128, u8)>(), any_contact(), payload).prop_map(|((id, hops), from, payload)| {
            Message::Answer { id: MessageId(id), hops, from, payload }
        }),
        (any::<u32>(), any_wanted()).prop_map(|(token, wanted)| Message::StateRequest { token, wanted }),
        (any_about(), any_versions(), any_tables()).prop_map(|(about, versions, tables)| Message::State {
            about,
            versions,
            tables
        }),
        (proptest::option::of(any_versions()), any_versions(), any_tables())
            .prop_map(|(seen, versions, tables)| Message::Announce { seen, versions, tables }),
        any_versions().prop_map(|versions| Message::Welcome { versions }),
        Just(Message::Exit),
        any::<u128>().prop_map(|id| Message::Suspect { id: Id::new(id) }),
        Just(Message::Refuse),
        any::<(u128, u128, u32)>().prop_map(|(id, key, age_micros)| Message::Inquire {
            id: MessageId(id),
            key: Id::new(key),
            age_micros
        }),
        (any::<u128>(), 0..Testimony::ALL.len())
            .prop_map(|(id, at)| Message::Testify { id: MessageId(id), testimony: Testimony::ALL[at] }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in any_message()) {
        let bytes = bytes(&message);
        prop_assert_eq!(decode(&bytes), Ok(message));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..18) {
        let _ = decode(&bytes);
        // And so that more than the first two bytes is looked at:
        let _ = decode(&[&[VERSION, kind], &bytes[..]].concat());
    }

    #[test]
    fn no_truncation_is_a_message(message in any_message(), cut in any::<proptest::sample::Index>()) {
        let bytes = bytes(&message);
        let cut = &bytes[..cut.index(bytes.len())];
        // A payload ends with its message, so a shorter one is another message; it is never the same.
        prop_assert_ne!(decode(cut), Ok(message));
    }
}
