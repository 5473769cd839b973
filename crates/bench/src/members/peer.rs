//! foca, without a driver.

use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use foca::{
    Codec, Config, Foca, Header, Identity, Member, Message, NoCustomBroadcast, Notification, PostcardCodec,
    Runtime, Timer,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::ours;

/// As the example that comes with foca has it: the address, and a number that makes a restarted node another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Peer {
    addr: SocketAddr,
    bump: u64,
}

impl Peer {
    pub(super) fn new(number: u32) -> Self {
        Self { addr: ours::addr(number), bump: 1_700_000_000 }
    }

    /// The number it was made from.
    pub(super) fn number(&self) -> usize {
        let SocketAddr::V4(addr) = self.addr else { return 0 };
        (addr.ip().to_bits() - 0x0a00_0001) as usize
    }
}

impl Identity for Peer {
    type Addr = SocketAddr;

    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn renew(&self) -> Option<Self> {
        Some(Self { bump: self.bump + 1, ..*self })
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.bump > adversary.bump
    }
}

pub(super) type Node = Foca<Peer, PostcardCodec, ChaCha8Rng, NoCustomBroadcast>;

/// A node that knows so many members, itself among them.
pub(super) fn node(number: u32, members: u32, extras: bool, runtime: &mut impl Runtime<Peer>) -> Node {
    let config = config(members, extras);
    let rng = ChaCha8Rng::seed_from_u64(u64::from(number));
    let mut node = Foca::new(Peer::new(number), config, rng, PostcardCodec);
    let others = (0..members).filter(|n| *n != number).map(|n| Member::alive(Peer::new(n)));
    node.apply_many(others, false, runtime).expect("members can be told");
    node
}

/// The parameters of our presets: with extras those of `lan`, without those of `original_swim`.
fn config(members: u32, extras: bool) -> Config {
    let lan = Config::new_lan(NonZeroU32::new(members).expect("a cluster has members"));
    // RetransmitMult · ⌈log10(N + 1)⌉.
    let transmissions = 4 * (members.max(1).ilog10() + 1);
    let transmissions = u8::try_from(transmissions).ok().and_then(NonZeroU8::new);
    let config = Config { max_transmissions: transmissions.expect("between 4 and 40"), ..lan };
    if extras {
        return config;
    }
    Config {
        notify_down_members: false,
        periodic_announce: None,
        periodic_announce_to_down_members: None,
        periodic_gossip: None,
        ..config
    }
}

/// Answers pings of members in turn.
pub(super) fn answer(members: u32, pings: u32) {
    let mut counted = Counted::default();
    let mut node = node(0, members, true, &mut counted);
    let packets: Vec<_> = (0..6_000).map(|n| ping_from(ours::sender(n, members), n)).collect();
    counted.sent = 0;
    for bytes in packets.iter().take(pings as usize) {
        node.handle_data(bytes, &mut counted).expect("a member pings");
    }
    assert_eq!(counted.sent, pings, "every ping is answered");
}

/// Lets a node probe all of its members and get the answers; returns `held` then.
pub(super) fn lived(members: u32, held: impl Fn() -> usize) -> usize {
    let before = held();
    let mut kept = Kept::default();
    let mut node = node(0, members, true, &mut kept);
    for _ in 0..2 * members {
        kept.timers.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let Some((at, timer)) = kept.timers.pop() else { break };
        kept.now = at;
        node.handle_timer(timer, &mut kept).expect("timers are in order");
        for bytes in std::mem::take(&mut kept.answers) {
            node.handle_data(&bytes, &mut kept).expect("a member answers");
        }
    }
    assert_eq!(node.num_members(), members as usize - 1, "nobody was lost");
    drop(kept);
    let now = held();
    drop(node);
    now - before
}

fn ping_from(number: u32, sequence: u32) -> Vec<u8> {
    packet(Peer::new(number), Peer::new(0), Message::Ping(sequence as u8))
}

fn packet(src: Peer, dst: Peer, message: Message<Peer>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { src, src_incarnation: 0, dst, message };
    PostcardCodec.encode_header(&header, &mut bytes).expect("a vector grows");
    // No updates.
    bytes.extend([0, 0]);
    bytes
}

/// Counts sent packets and drops them.
#[derive(Default)]
struct Counted {
    sent: u32,
}

impl Runtime<Peer> for Counted {
    fn notify(&mut self, _: Notification<'_, Peer>) {}

    fn send_to(&mut self, _: Peer, _: &[u8]) {
        self.sent += 1;
    }

    fn submit_after(&mut self, _: Timer<Peer>, _: Duration) {}
}

/// Keeps timers, and answers pings.
#[derive(Default)]
struct Kept {
    now: Duration,
    timers: Vec<(Duration, Timer<Peer>)>,
    answers: Vec<Vec<u8>>,
}

impl Runtime<Peer> for Kept {
    fn notify(&mut self, _: Notification<'_, Peer>) {}

    fn send_to(&mut self, _: Peer, mut data: &[u8]) {
        let header: Result<Header<Peer>, _> = PostcardCodec.decode_header(&mut data);
        if let Ok(Header { src, dst, message: Message::Ping(number), .. }) = header {
            self.answers.push(packet(dst, src, Message::Ack(number)));
        }
    }

    fn submit_after(&mut self, event: Timer<Peer>, after: Duration) {
        self.timers.push((self.now + after, event));
    }
}
