//! One datagram to a node that knows others and has a probe under way: decoding, and the reaction of the machine.

use core::time::Duration;

use annulus_core::Id;
use annulus_core::contract::Rig;
use annulus_core::swim::{
    self, Codec, Config, HEAD_BYTES, Head, Header, Incarnation, Message, Node, Preset, Ring, Sequence, Swim,
};
use annulus_core::wire::Writer;

use crate::world::peer;

/// With this bit in the first byte the rest is messages, and a head that is right is put in front of them.
const HEADED: u8 = 0x80;

/// More than the others of the group, so that unknown nodes get in, and few enough that a full table is seen.
const MEMBERS_MAX: usize = 6;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    thread_local! {
        static PROBING: Rig<Swim> = probing();
    }
    let mut rig = PROBING.with(Clone::clone);
    let mut datagram = Vec::new();
    if choice & HEADED != 0 {
        let head = Head { ring: Ring::new("annulus"), from: id(1 + choice % 4) };
        head.write(&mut Writer::new(&mut datagram, HEAD_BYTES));
    }
    datagram.extend_from_slice(bytes);
    let compact = Codec::to_compact(&datagram);
    if let Ok((head, messages)) = Head::read(&compact) {
        let codec = if datagram[0] == swim::MSGPACK_VERSION { Codec::Msgpack } else { Codec::Compact };
        check_again(&datagram, head, codec, messages);
    }
    let before = rig.clone();
    match rig.datagram(swim::UDP, peer(choice), &datagram) {
        Ok(()) => check(&rig.machine, &before.machine),
        Err(_) => {
            assert!(rig.log.is_empty(), "refused, yet it did {:?}", rig.log);
            assert!(rig.counted() > before.counted(), "a refusal is counted");
            let mut machines = [rig.machine, before.machine];
            machines.iter_mut().for_each(Swim::forget_counters);
            assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
        }
    }
}

/// A decoded message encodes to the same bytes: every message has one form.
fn check_again(datagram: &[u8], head: Head, codec: Codec, messages: swim::Messages<'_>) {
    let Ok(messages) = messages.collect::<Result<Vec<_>, _>>() else { return };
    let mut again = Vec::new();
    let mut writer = Writer::new(&mut again, usize::MAX);
    codec.write_head(&head, &mut writer);
    messages.iter().for_each(|message| codec.encode(message, &mut writer));
    assert_eq!(
        messages.iter().map(|message| codec.size(message)).sum::<usize>(),
        datagram.len() - HEAD_BYTES
    );
    assert_eq!(again, datagram);
}

fn check(machine: &Swim, before: &Swim) {
    let members = machine.members();
    assert!(members.len() <= MEMBERS_MAX, "more members than allowed");
    assert!(machine.incarnation() >= before.incarnation(), "our own incarnation falls");
    let own = members.member(machine.id()).expect("a node knows itself");
    assert_eq!(own.state(), swim::State::Alive, "a node knows that it lives");
    for (slot, member) in members.iter() {
        assert_eq!(members.find(member.id()), Some(slot), "who is there is found");
        let known = before.members().member(member.id()).map(swim::Member::status);
        assert!(known.is_none_or(|known| known <= member.status()), "what is known falls back");
        assert!(known.is_some() || member.incarnation() <= Incarnation(Incarnation::FIRST_MAX));
    }
}

fn id(number: u8) -> Id {
    Id::from_uuid([number; 16])
}

/// A node that knows three others, and a probe of one of them under way.
fn probing() -> Rig<Swim> {
    let config = Config { bind: peer(3), members_max: MEMBERS_MAX, ..Config::new(id(4), Preset::Lan) };
    let mut swim = Swim::new(&config, [7; 32]).expect("a preset works");
    let other = |number: u8| Node { id: id(number), addrs: vec![peer(number - 1)], meta: Vec::new() };
    swim.assume(&[other(1), other(2), other(3)]);
    let mut rig = Rig::new(swim);
    rig.start();
    while rig.machine.counted().probes == 0 {
        rig.advance(Duration::from_millis(10));
    }
    // One member is suspected, so that refutations and confirmations both have an effect.
    let header = Header { from: id(2), sequence: Sequence(1) };
    let suspect = Message::Suspect { header, id: id(3), incarnation: Incarnation(0) };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, usize::MAX);
    Head { ring: Ring::new("annulus"), from: id(2) }.write(&mut writer);
    swim::encode(&suspect, &mut writer);
    rig.datagram(swim::UDP, peer(1), &bytes).expect("a member speaks");
    rig.take_log();
    rig
}
