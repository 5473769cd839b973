//! SWIM: who is alive? As go-swim designs it.
//!
//! Every node knows every other. In each protocol period it pings one of them; if that does not answer, some others
//! are asked to ping it; if it answers none of them, it is suspected, and if it does not contradict in time, it is
//! dead. What is news rides on the pings. `docs/spec/swim.md` has the clauses, numbered S-n, and the decisions SA-n.
//!
//! # The files
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | this page, and the public types |
//! | `config.rs`, `preset.rs` | what can be set, and five sets of it |
//! | `message.rs`, `contents.rs`, `tags.rs` | what the messages mean, and what a node tells of itself |
//! | `wire.rs`, `addr.rs` | their bytes |
//! | `machine.rs` | the [`Machine`] implementation: matches and delegates |
//! | `period.rs`, `inbox.rs`, `rumours.rs`, `joining.rs`, `sync.rs`, `commands.rs` | what it does, by occasion |
//! | `standing.rs`, `member.rs`, `members.rs`, `tree.rs` | what is known of members |
//! | `sorter.rs`, `shuffle.rs`, `buckets.rs`, `selection.rs` | whom to ping |
//! | `queue.rs`, `gossip.rs`, `mail.rs` | what to tell, and the packets that carry it |
//! | `probes.rs`, `suspicions.rs`, `health.rs`, `past.rs`, `joins.rs`, `keeper.rs`, `users.rs`, `deadlines.rs` | what is under way |
//! | `rtt.rs`, `vivaldi.rs`, `limits.rs`, `sequence.rs` | arithmetic |
//! | `handlers.rs` | the application's say |
//!
//! # The messages
//!
//! | message | what it does |
//! |---|---|
//! | `Ping` | is answered with an `Ack`, and with what is held against the sender |
//! | `Ack` | answers a probe of this period, or a ping for somebody else, who then gets an `IndirectAck` |
//! | `IndirectPing` | makes us ping the target |
//! | `IndirectAck` | answers a probe of this period |
//! | `IndirectNack` | shows that the helper is there, though the target is not |
//! | `Join` | as `Alive`; and the one it was sent to answers with its own and its table |
//! | `Alive` | is taken if it is newer; about us, and wrong, it is contradicted |
//! | `Suspect` | is taken if it is newer, and starts a timer; about us it is contradicted |
//! | `Dead` | is taken if it is newer; from the node itself it is a goodbye; about us it is contradicted |
//! | `User` | is given to the application and passed on, once |
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
//! Where it is silent or contradicts itself, the decisions SA-n say what we do. Beyond it go the extras of the
//! presets `lan`, `wan` and `local`: Lifeguard, timeouts that follow the measured path, a share of each packet for
//! user messages, gossip between pings, past members that are asked again for ever, comparison of tables, network
//! coordinates. Each is a setting of its own; `go_swim` has none of them and `original_swim` is the paper.

mod addr;
mod api;
mod buckets;
mod commands;
mod config;
mod contents;
mod deadlines;
mod gossip;
mod handlers;
mod health;
mod inbox;
mod joining;
mod joins;
mod keeper;
mod limits;
mod machine;
mod mail;
mod member;
mod members;
mod message;
mod past;
mod period;
mod preset;
mod probes;
mod queue;
mod rtt;
mod rumours;
mod selection;
mod sequence;
mod shuffle;
mod sorter;
mod standing;
mod suspicions;
mod sync;
mod tags;
mod tree;
mod users;
mod vivaldi;
mod wire;

#[cfg(test)]
mod tests;

pub use addr::Addr;
pub use api::{Command, Counters, Event, Info, JoinReason, MemberStatus, Node, Reply};
pub use buckets::{BucketList, sizes};
pub use config::{Config, ConfigError, INTERVAL_MIN, PACKET_BYTES_MAX, PACKET_BYTES_MIN, Settings};
pub use contents::{ADDRS_MAX, Contents, META_BYTES_MAX, OwnContents};
pub use handlers::{Handler, Handlers, Next, Verdict};
pub use limits::{Scale, digits, retransmits, suspicion};
pub use machine::{SPACE, Swim, UDP};
pub use member::Member;
pub use members::{Members, Slot};
pub use message::{Header, Message, NodeView};
pub use preset::{Preset, UnknownPreset};
pub use queue::{Broadcast, BroadcastQueue, Done, Pushed};
pub use rtt::Rtt;
pub use selection::Selection;
pub use sequence::Sequence;
pub use shuffle::ShuffleList;
pub use sorter::{IdLengthError, NodeSorter, lexicographic};
pub use standing::{Incarnation, Standing, State, refutation};
pub use tags::{Services, Tags, TagsError};
pub use tree::{Range, fingerprint, member_hash};
pub use users::WINDOW;
pub use vivaldi::{Coordinate, DIMENSIONS};
pub use wire::{Coded, HEAD_BYTES, Hashes, Head, Ids, Messages, Ring, Summaries, VERSION, encode, size};

#[cfg(doc)]
use crate::Machine;
