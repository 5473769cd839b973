//! One datagram to a voter that has a lease of its own under way, and every message of exclusive turns that can be decoded.

use core::time::Duration;

use annulus_core::Id;
use annulus_core::contract::Rig;
use annulus_core::turns::{self, Command, Config, Lock, MESSAGE_BYTES_MAX, TurnId, Turns};
use annulus_core::wire::Writer;

use crate::world::peer;

/// With this bit in the first byte the group and epoch of the datagram are those of the voter.
const IN_GROUP: u8 = 0x80;
/// Where group and epoch stand.
const STAMP: core::ops::Range<usize> = 4..24;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    thread_local! {
        static STATES: [Rig<Turns>; 2] = [voter(1), voter(3)];
    }
    let mut rig = STATES.with(|states| states[usize::from(choice & 1)].clone());
    let mut datagram = bytes.to_vec();
    if choice & IN_GROUP != 0
        && let (Some(group), Some(stamp)) = (rig.machine.group(), datagram.get_mut(STAMP))
    {
        stamp[..16].copy_from_slice(&group.0);
        stamp[16..].copy_from_slice(&1u32.to_be_bytes());
    }
    let decoded = turns::decode(&datagram);
    if let Ok(message) = &decoded {
        let mut again = Vec::new();
        turns::encode(message, &mut Writer::new(&mut again, MESSAGE_BYTES_MAX));
        assert_eq!(again, datagram, "what is decoded encodes to the same bytes");
    }
    let before = rig.clone();
    if rig.datagram(turns::UDP, peer(choice % 4), &datagram).is_err() {
        assert!(rig.log.is_empty(), "refused, yet it did {:?}", rig.log);
        assert!(rig.counted() > before.counted(), "a refusal is counted");
        let mut machines = [rig.machine, before.machine];
        machines.iter_mut().for_each(Turns::forget_counters);
        assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
        return;
    }
    decoded.expect("only a message is taken");
    // A voter answers the sender, and may call one waiter; founding writes to all.
    let sent = rig.log.iter().filter(|line| line.starts_with("Send")).count();
    assert!(sent <= 2 * turns::VOTERS_MAX, "{:?}", rig.log);
}

/// A voter of so many, with a turn of its own; of three, it waits for the others.
fn voter(voters: u8) -> Rig<Turns> {
    let config = Config {
        id: Id::new(1),
        bind: peer(0),
        own: peer(0),
        voters: (0..voters).map(peer).collect(),
        names_max: 3,
        wishes_max: 3,
        ..Config::default()
    };
    let mut rig = Rig::new(Turns::new(&config, [7; 32]).expect("these settings go together"));
    rig.start();
    rig.advance(Duration::from_secs(3));
    let (wait, limit) = (Duration::from_secs(20), Duration::from_secs(60));
    let lock = Lock { name: "a".to_owned(), turn: TurnId(1), wait, limit, attended: true };
    rig.command(Command::Lock(lock));
    rig.advance(Duration::from_millis(20));
    rig.take_log();
    rig
}
