//! The codecs: both forms of every message, and nodes that send either.

use super::*;
use crate::wire::DecodeError;

/// The packets of a file of vectors: name and bytes.
fn packets(file: &str) -> Vec<(String, Vec<u8>)> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split(" | ").collect::<Vec<_>>());
    fields.map(|fields| (fields[0].to_owned(), unhex(fields[1]))).collect()
}

/// The messages of a compact packet, if all can be read.
fn read(bytes: &[u8]) -> Option<(Head, Vec<Message<'_>>)> {
    let (head, messages) = Head::read(bytes).ok()?;
    Some((head, messages.collect::<Result<_, DecodeError>>().ok()?))
}

/// The bytes of `msgpack` were made outside of this project.
#[test]
fn s_114_both_codecs_carry_every_message() {
    let compact = packets(include_str!("../../../tests/vectors/swim.txt"));
    let compact = compact.into_iter().filter(|(_, bytes)| read(bytes).is_some());
    let msgpack = packets(include_str!("../../../tests/vectors/swim_msgpack.txt"));
    assert_eq!(msgpack.len(), 19);
    for ((name, plain), (same, coded)) in compact.zip(msgpack) {
        assert_eq!(name, same);
        assert_eq!(Codec::to_compact(&coded), plain, "{name}");
        assert_eq!(Codec::to_compact(&plain), plain, "{name}: as it is");
        let (head, messages) = read(&plain).unwrap();
        for (codec, bytes) in [(Codec::Compact, &plain), (Codec::Msgpack, &coded)] {
            let mut written = Vec::new();
            let mut writer = Writer::new(&mut written, 65_000);
            codec.write_head(&head, &mut writer);
            messages.iter().for_each(|message| codec.encode(message, &mut writer));
            assert_eq!(written, *bytes, "{name} {codec}");
            let sizes: usize = messages.iter().map(|message| codec.size(message)).sum();
            assert_eq!(HEAD_BYTES + sizes, bytes.len(), "{name} {codec}");
        }
    }
}

/// A body of more than 255 bytes has a longer length field, in the map and in its frame.
#[test]
fn s_114_long_messages_have_the_size_that_is_counted() {
    for len in [0, 80, 90, 200, 255, 256, 300, 1000] {
        let data = vec![7; len];
        let user = Message::User { header: header(4, 9), id: id(4), data: &data };
        for (_, codec) in Codec::ALL {
            let coded = Coded::with(codec, &user);
            assert_eq!(coded.size(), codec.size(&user), "{codec} {len}");
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, 65_000);
            codec.write_head(&Head { ring: Ring::new("annulus"), from: id(4) }, &mut writer);
            writer.bytes(coded.bytes());
            assert_eq!(read(&Codec::to_compact(&bytes)).unwrap().1, [user], "{codec} {len}");
        }
    }
}

/// SA-54 for `msgpack`: a field that is missing, misnamed, too short or too long spoils its message, and no other.
#[test]
fn s_101_a_broken_map_does_not_spoil_the_rest_of_its_packet() {
    let coded = Coded::with(Codec::Msgpack, &suspect(2, 3, 0));
    let good = coded.bytes();
    let at = |name: &[u8]| good.windows(name.len()).position(|part| part == name).unwrap();
    let changes =
        [(2, 0x83), (at(b"seq"), b'S'), (at(b"seq") + 3, 0xcc), (at(b"id") + 3, 15), (at(b"id") + 2, 0xc5)];
    for (place, byte) in changes {
        let mut rig = rig(Preset::GoSwim, &[2, 3, 4]);
        let mut broken = good.to_vec();
        broken[place] = byte;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 65_000);
        Codec::Msgpack.write_head(&Head { ring: Ring::new("annulus"), from: id(2) }, &mut writer);
        writer.bytes(&broken);
        Codec::Msgpack.encode(&suspect(2, 4, 0), &mut writer);
        rig.datagram(UDP, addr(2), &bytes).unwrap();
        let states = [3, 4].map(|n| status(&rig, n).unwrap().1);
        assert_eq!(states, [State::Alive, State::Suspect], "byte {place}");
        assert_eq!(rig.machine.counted().malformed, 1, "byte {place}");
        assert!(rig.datagram(UDP, addr(2), &bytes[..HEAD_BYTES - 1]).is_err());
        assert!(rig.datagram(UDP, addr(2), &bytes[..bytes.len() - 1]).is_err(), "a wrong length spoils all");
    }
}

/// A map has one form: fields that only add up, bytes behind the map and a longer length field are refused.
#[test]
fn s_114_a_map_has_one_form() {
    let bytes = |len: usize| [vec![0xc4, len as u8], vec![7; len]].concat();
    let number = [0xce, 0, 0, 0, 1].to_vec();
    let map = |from: Vec<u8>, id: Vec<u8>, rest: &[u8]| {
        let fields = [(&b"from"[..], from), (b"seq", number.clone()), (b"id", id), (b"inc", number.clone())];
        let mut map = vec![0x84];
        for (name, value) in fields {
            map.push(0xa0 | name.len() as u8);
            map.extend_from_slice(name);
            map.extend(value);
        }
        map.extend_from_slice(rest);
        let mut packet = Vec::new();
        let head = Head { ring: Ring::new("annulus"), from: super::id(2) };
        Codec::Msgpack.write_head(&head, &mut Writer::new(&mut packet, 100));
        packet.extend([1 + map.len() as u8, 7]);
        packet.extend(map);
        read(&Codec::to_compact(&packet)).map(|(_, messages)| messages.len())
    };
    let long = [vec![0xc5, 0, 16], vec![7; 16]].concat();
    assert_eq!(map(bytes(16), bytes(16), &[]), Some(1));
    assert_eq!(map(bytes(17), bytes(15), &[]), None);
    assert_eq!(map(bytes(16), bytes(16), &[0]), None);
    assert_eq!(map(bytes(16), long, &[]), None);
}

/// All that a node sends has the codec of its settings; its answers fit as many updates as its codec lets fit.
#[test]
fn s_114_a_node_sends_its_codec_and_receives_both() {
    for (_, codec) in Codec::ALL {
        let settings = Settings { codec, ..quiet(Preset::Lan) };
        let mut rig = rig_with(&Config { settings, stored_max: 0, ..config(1, Preset::Lan) }, &[2, 3]);
        say(&mut rig, 2, &[suspect(2, 3, 0)]);
        rig.command(Command::Broadcast { data: vec![7; 100], wait: false });
        let own = contents(9);
        say(&mut rig, 9, &[join(&own, 9, 0)]);
        next_ping(&mut rig);
        let log = rig.take_log();
        let packets = log.iter().filter_map(|line| line.strip_prefix("Send 0:0 to ")?.split_once(' '));
        let bytes: Vec<Vec<u8>> = packets.map(|(_, hex)| unhex(hex)).collect();
        let version = if codec == Codec::Compact { VERSION } else { MSGPACK_VERSION };
        assert!(bytes.len() >= 2 && bytes.iter().all(|bytes| bytes[0] == version), "{codec}: {bytes:?}");
        let count = |bytes: &Vec<u8>| read(&Codec::to_compact(bytes)).unwrap().1.len();
        assert!(bytes.iter().map(count).max() >= Some(3), "a ping, a suspicion and a user message");
    }
    assert!("json".parse::<Codec>().unwrap_err().to_string().contains("use compact or msgpack"));
}
