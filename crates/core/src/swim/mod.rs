//! SWIM: failure detection and membership, as go-swim designs it.
//!
//! Every node knows every other. In each protocol period it pings one of them. If no Ack comes, it sends an
//! `IndirectPing` for that node to some proxies. If that fails too, the node becomes suspect. A suspect that does not
//! refute within the suspicion timeout becomes dead. Updates about members are piggybacked on pings and Acks.
//! `docs/spec/swim.md` has the clauses, numbered S-n, and the decisions SA-n.
//!
//! # The files
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | this page, and the public types |
//! | `config.rs`, `preset.rs` | the settings, and five presets of them |
//! | `message.rs`, `contents.rs`, `tags.rs` | the messages; the addresses, name and tags that a node publishes about itself |
//! | `wire.rs`, `codec.rs`, `addr.rs` | the bytes of packets, also as MessagePack, and of addresses |
//! | `machine.rs`, `dispatch.rs`, `commands.rs` | the [`Machine`] implementation: every input goes to its part |
//! | `lower.rs`, `env.rs` | the parts that upper parts may call, in one bundle; identity, settings, counters |
//! | `prober.rs` | upper part: periods, probes, proxies, round trips |
//! | `membership` | upper part: the states of members and of this node |
//! | `joining.rs` | upper part: joins of this node and of others, table transfers, retries of past members |
//! | `sync.rs`, `user_messages.rs` | upper parts: comparison of tables; user messages |
//! | `suspicions.rs`, `verifier.rs`, `history.rs`, `dissemination.rs` | lower parts: suspicions, proof of an address by a nonce, past members, gossip timing |
//! | `status.rs`, `member.rs`, `members.rs`, `tree.rs`, `records.rs` | the table of members; the messages that describe a member to another node |
//! | `sorter.rs`, `shuffle.rs`, `buckets.rs`, `selection.rs` | choice of the probe target |
//! | `queue.rs`, `gossip.rs`, `packets.rs`, `packet.rs` | the broadcast queue, outgoing packets, and an incoming packet |
//! | `probes.rs`, `health.rs`, `tombstones.rs`, `join_targets.rs`, `snapshot.rs` | probes and proxied pings under way; local health (Lifeguard's LHM); past members; addresses to join; the stored member list |
//! | `api.rs`, `user_event.rs` | commands, replies, events and counters; the content of a user event |
//! | `rtt.rs`, `vivaldi.rs`, `scaling.rs`, `sequence.rs` | round-trip estimate; network coordinates; limits that grow with log N; sequence numbers |
//! | `handlers.rs` | handlers of the application, which see every message first |
//!
//! # The messages
//!
//! | message | what it does |
//! |---|---|
//! | `Ping` | gets an `Ack`; if the sender is suspect or dead in this node's table, also that `Suspect` or `Dead` |
//! | `Ack` | answers a probe of this period, or a ping for a requester, which then gets an `IndirectAck` |
//! | `IndirectPing` | the paper's ping-req: makes this node ping the target as a proxy |
//! | `IndirectAck` | answers a probe of this period |
//! | `IndirectNack` | shows that the proxy is reachable although the target is not |
//! | `Join` | as `Alive`; the node that it was sent to also answers with its own `Alive` and its table |
//! | `Alive` | is applied if it is newer; a wrong one about this node is refuted |
//! | `Suspect` | is applied if it is newer, and starts the suspicion timeout; about this node it is refuted |
//! | `Dead` | is applied if it is newer; from the node itself it means that it left; about this node it is refuted |
//! | `User` | is delivered to the application once and gossiped on |
//! | `Digest`, `Summary`, `Want` | find where two tables differ, and repair it |
//!
//! # A driver in a few lines
//!
//! ```
//! use annulus_core::swim::{Config, Preset, Swim};
//! use annulus_core::{Action, Bound, Id, Instant, Machine, Now, Queue, StoreReply, StoreResult, Wall};
//!
//! let seed = "127.0.0.2:7946".parse()?;
//! let config = Config { seeds: vec![seed], ..Config::new(Id::from_uuid([1; 16]), Preset::Lan) };
//! let mut swim = Swim::new(&config, [7; 32])?;
//! let mut queue = Queue::new();
//! let now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! swim.handle_start(now, &Bound::default(), &mut queue.outbox());
//! let mut sent = Vec::new();
//! while sent.is_empty() {
//!     let mut asked = Vec::new();
//!     while let Some(action) = queue.next() {
//!         match action {
//!             Action::Send { to, bytes, .. } => sent.push((to, bytes.to_vec())),
//!             Action::Store { op, .. } => asked.push(op), // an empty store
//!             _ => {}
//!         }
//!     }
//!     for op in asked {
//!         let reply = StoreReply { op, result: StoreResult::Page { entries: &[], more: false } };
//!         swim.handle_stored(now, reply, &mut queue.outbox());
//!     }
//! }
//! assert_eq!(sent[0].0, seed, "the first thing it does is to join");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where we differ from the document
//!
//! The decisions SA-n cover the points where the document is silent or contradicts itself. The presets `lan`, `wan` and
//! `local` add Lifeguard, timeouts that follow the measured round-trip time, and a share of each packet for user
//! messages. They also add gossip between pings, permanent retries of past members, anti-entropy and network
//! coordinates. Each is a setting of its own. `go_swim` has none of them, and `original_swim` is the paper.

mod addr;
mod api;
mod buckets;
mod codec;
mod commands;
mod config;
mod contents;
mod dispatch;
mod dissemination;
mod env;
mod gossip;
mod handlers;
mod health;
mod history;
mod join_targets;
mod joining;
mod lower;
mod machine;
mod member;
mod members;
mod membership;
mod message;
mod packet;
mod packets;
mod preset;
mod prober;
mod probes;
mod queue;
mod records;
mod rtt;
mod scaling;
mod selection;
mod sequence;
mod shuffle;
mod snapshot;
mod sorter;
mod status;
mod suspicions;
mod sync;
mod tags;
mod tombstones;
mod tree;
mod user_event;
mod user_messages;
mod verifier;
mod vivaldi;
mod wire;

#[cfg(test)]
mod tests;

pub use addr::Addr;
pub use api::{Command, Counters, Event, Info, JoinReason, MemberStatus, Node, Reply};
pub use buckets::{BucketList, sizes};
pub use codec::{Codec, MSGPACK_VERSION, UnknownCodec};
pub use config::{Config, ConfigError, INTERVAL_MIN, PACKET_BYTES_MAX, PACKET_BYTES_MIN, Settings};
pub use contents::{ADDRS_MAX, Contents, META_BYTES_MAX, OwnContents};
pub use handlers::{Handler, Handlers, Next, Verdict};
pub use machine::{SPACE, Swim, UDP};
pub use member::Member;
pub use members::{Members, Slot};
pub use message::{Header, Message, NodeView};
pub use preset::{Preset, UnknownPreset};
pub use queue::{Broadcast, BroadcastQueue, Done, Pushed};
pub use rtt::Rtt;
pub use scaling::{Scale, digits, suspicion, transmit_limit};
pub use selection::Selection;
pub use sequence::Sequence;
pub use shuffle::ShuffleList;
pub use sorter::{IdLengthError, NodeSorter, UnknownSorter};
pub use status::{Incarnation, State, Status, refutation};
pub use tags::{Services, Tags, TagsError};
pub use tree::{Range, fingerprint, member_hash};
pub use user_event::{NAME_BYTES_MAX as EVENT_NAME_BYTES_MAX, UserEvent};
pub use user_messages::WINDOW;
pub use vivaldi::{Coordinate, DIMENSIONS};
pub use wire::{Coded, HEAD_BYTES, Hashes, Head, Ids, Messages, Ring, Summaries, VERSION, encode, size};

#[cfg(doc)]
use crate::Machine;
