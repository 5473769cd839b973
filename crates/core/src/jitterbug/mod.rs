//! Jitterbug: a token goes round a ring of nodes and carries the application's data.
//!
//! The document is the Jitterbug protocol; `docs/spec/jitterbug.md` restates its clauses (J-n) and the decisions
//! taken where it is silent or contradicts itself (JA-n). A node is in one of three states:
//!
//! | state | what it does | leaves it |
//! |---|---|---|
//! | orphan | asks by broadcast whether it may regenerate the token (token_restore) | to leader after two granted tries, or if a token comes; else to waiter |
//! | waiter | waits | to leader when the token comes; to orphan after `renew_timeout` without a message |
//! | leader | drops the token at random, computes the next data, adds nodes to the list, passes the token on (token_pass) | to waiter when it is passed; to orphan when it drops the token |
//!
//! # The messages
//!
//! | message | orphan | waiter | leader |
//! |---|---|---|---|
//! | `TR1` | remembers the sender; answers if its own id is not lower | the same | remembers and always answers |
//! | `TR2` | denies the try if it is greater | is ignored | is ignored |
//! | `TP1` | is answered `TP2` or `TP3` | the same, and restarts `renew_timeout` | the same, unless a pass is under way and the id is not greater: then refused |
//! | `TP2`, `TP3` | – | – | the candidate accepts: `TP4` (after `TP2`) and `TP5` follow |
//! | `TP4` | is buffered for its stream | the same | the same |
//! | `TP5` | at the FIN: list, id and data are adopted, leader | the same | data is merged, one token is left |
//!
//! # Where we differ from the document, and why
//!
//! `docs/spec/jitterbug.md` has the decisions. These matter most. Ids are compared as signed numbers (JA-4). Every
//! sender of a TR1 is remembered in every state (JA-20). A token is passed at most once, with the FIN as the commit
//! point (JA-33). Two tokens that meet become one (JA-30). A new id is drawn from those that can win (JA-24b).
//!
//! Two more rules: a node that sees two tokens alternately keeps the greater one for a loop, so that the two merge. Two
//! leaders with *equal* ids that pass to each other could refuse each other for ever. So the leader with the lower
//! address accepts the other's token; both know both addresses from the connection.
//!
//! # Limits of the guarantee
//!
//! Nothing is authenticated (JA-53). A host that can send datagrams can block elections; one that can connect can
//! inject a token. Run it on trusted segments, or set `Config::allow`. After a partition there are two tokens until
//! they merge. Holds are *weak* (TU-5): two nodes can hold at once if the network splits.
//!
//! # The parts
//!
//! ```text
//! machine.rs  machine/{start,receive,status}.rs    the only `impl Jitterbug`: dispatch, transitions, commit
//!      │
//!   role.rs ─► election.rs   waiter.rs   leader/   one role at a time; each returns an `Option<Transition>`
//!      │
//!  lower.rs ─► streams  changes  holds  token  ring/  env     none of them calls another, but for env
//! ```
//!
//! | part | owns and decides |
//! |---|---|
//! | `election.rs` | the tries of an orphan: when a lost token is regenerated |
//! | `waiter.rs` | when a token counts as lost |
//! | `leader/` | the tenure: when it ends, the order of tries, the pass of the token to the successor |
//! | `ring/` | the list of nodes, new nodes, penalties, the choice of the successor, the known holder, the loop time |
//! | `token.rs` | the token's id, its data, the merge of two tokens, the fence |
//! | `holds.rs`, `changes.rs` | requests for the token and their limits (holding time); changes of values that wait for the token |
//! | `streams.rs` | connections that bring a token, and those that linger after a pass |
//! | `env.rs` | configuration, randomness, own host id, counters |
//! | `ledger.rs`, `document.rs`, `raw.rs`, `opaque.rs`, `shipped.rs`, `own_application.rs` | the application: what the data means, how two documents merge |
//!
//! # A driver in a few lines
//!
//! ```
//! use annulus_core::jitterbug::{Config, Jitterbug, Ledger};
//! use annulus_core::{Action, Bound, Instant, Machine, Now, Queue, StoreOp, StoreReply, StoreResult, Wall};
//!
//! let config = Config { addr: "10.0.0.1".parse()?, tcp_port: 4001, ..Config::lan() };
//! let mut token = Jitterbug::new(&config, Ledger::new(), [7; 32])?;
//! let mut queue = Queue::new();
//! let mut now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! token.handle_start(now, &Bound::default(), &mut queue.outbox());
//! let mut asked = 0;
//! while asked < 6 {
//!     let mut stored = Vec::new();
//!     while let Some(action) = queue.next() {
//!         match action {
//!             Action::Broadcast { bytes, .. } => asked += usize::from(bytes[0] == 0x01), // TR1
//!             Action::Store { op, request: StoreOp::Write { .. } } => stored.push((op, StoreResult::Written)),
//!             Action::Store { op, .. } => stored.push((op, StoreResult::Value(None))), // an empty store
//!             _ => {}
//!         }
//!     }
//!     for (op, result) in stored {
//!         token.handle_stored(now, StoreReply { op, result }, &mut queue.outbox());
//!     }
//!     if let Some((at, _name)) = token.poll_timeout() {
//!         now.mono = now.mono.max(at);
//!         token.handle_timeout(now, &mut queue.outbox());
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod application;
mod canonical;
mod changes;
mod checksum;
mod config;
mod counters;
mod document;
mod draw;
mod election;
mod env;
mod graph;
mod holds;
mod leader;
mod ledger;
mod lower;
mod machine;
mod message;
mod opaque;
mod own_application;
mod raw;
mod records;
mod ring;
mod role;
mod shipped;
mod streams;
mod token;
mod waiter;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

pub use application::{Answer, Application, Next, Remote, Restored, TenureInfo, check_merge};
pub use checksum::{FRAME_BYTES, frame, unframe};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use document::{Document, Stamped, VALUES_MAX};
pub use draw::Draw;
pub use graph::{EDGES_MAX, Edge, EdgeKind, Entry, What, to_dot, to_text, unite};
pub use ledger::{JUMP_HOST, KEY_BYTES_MAX, Ledger, MICROS_PER_TENURE, RESERVE, Set, VALUE_BYTES_MAX};
pub use machine::{
    IDENTITY_KEY, Identity, Jitterbug, KEPT_KEY, NodeStatus, RefusedTokens, SPACE, StateName, Status, TCP,
    UDP,
};
pub use message::{HostId, Message, NodeEntry, SignedId, TokenId};
pub use opaque::Opaque;
pub use own_application::OwnApplication;
pub use raw::{DEPTH_MAX, Raw};
pub use ring::{NodeList, PEERS_MAX, Penalties, Penalty, THRESHOLD_MAX};
pub use shipped::Shipped;
pub use wire::{Kind, LIST_MAX, VERSION, decode, decode_datagram, encode, hash577};

use crate::store::StoreFault;
use crate::tag::RequestId;

/// The commands of the application; `C` is a change of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<C> {
    /// Returns the status of the node.
    Status,
    /// Returns the data as it is here.
    Data,
    /// Returns the log of token events that this node saw.
    Log,
    /// Changes the data in the next tenure. The reply comes when it is changed, or when the wait is over.
    Change {
        /// The change.
        change: C,
        /// How long to wait for a tenure; then the change is withdrawn.
        wait: Duration,
    },
    /// Holds the token the next time it is here, until released, but no longer than `limit`. The reply comes with the
    /// token.
    Hold {
        /// The longest hold.
        limit: Duration,
    },
    /// The same as `Hold`, under a key that its client chose.
    HoldAs {
        /// The key; unique while the hold waits or is in force.
        key: u64,
        /// The longest hold.
        limit: Duration,
    },
    /// Ends the hold with this key, or the wait for it. A client that disconnects loses its place in the queue at once.
    Withdraw {
        /// The key.
        key: u64,
    },
    /// Returns whether a hold is in force, and for how long it is safe without further contact to the agent (TU-42).
    Keep {
        /// The number of the command that requested it.
        hold: RequestId,
    },
    /// Membership suspects the node at this address, or declared it dead.
    MemberUnreachable(IpAddr),
    /// Membership reaches the node at this address, or reaches it again.
    MemberReachable(IpAddr),
    /// This node has voters of exclusive turns, of this group. The data says so from the next tenure on (TU-31).
    DeclareVoters(String),
    /// Ends a hold, or the wait for one.
    Release {
        /// The number of the command that requested it.
        hold: RequestId,
    },
    /// Sends TR1 to these addresses too, beyond the broadcast domain: at most [`PEERS_MAX`], and at most 64 of them for
    /// each TR1, in turn.
    Ask(Vec<IpAddr>),
    /// The result of an application outside of the machine.
    Computed {
        /// The number of the request.
        ask: u64,
        /// The result; none if it failed.
        result: Option<Next>,
    },
}

/// The replies to commands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// The status of the node.
    Status(Box<Status>),
    /// The data.
    Data(Vec<u8>),
    /// The log.
    Log(Vec<Entry>),
    /// The command is done.
    Done,
    /// The token is here and is held.
    Held {
        /// The number of this tenure.
        fence: u64,
        /// The number for [`Command::Release`].
        hold: RequestId,
    },
    /// The hold is in force.
    Kept {
        /// How long no other node makes a token, even if this node fails, in microseconds.
        left_micros: u64,
        /// The rest of its limit, in microseconds.
        limit_micros: u64,
    },
    /// The hold was released before the token came, or there is no such hold.
    NotHeld,
    /// The ring has voters of exclusive turns: it grants no weak ones (TU-31).
    VotersExist,
    /// No tenure came in time: the data was not changed, and will not be.
    NotChanged,
    /// The command cannot be done; the reason.
    Refused(&'static str),
    /// The node is stopping.
    Stopping,
}

/// A computation for an application outside of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "compute", rename_all = "snake_case")]
pub enum Compute {
    /// The data of a tenure.
    Next {
        /// The facts about the tenure.
        tenure: TenureInfo,
        /// The data so far.
        #[serde(serialize_with = "len_only")]
        data: Vec<u8>,
    },
    /// A merge of two data.
    Merge {
        /// The data of this node.
        #[serde(serialize_with = "len_only")]
        own: Vec<u8>,
        /// The received data.
        #[serde(serialize_with = "len_only")]
        received: Vec<u8>,
    },
}

/// The events of `token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The node has its identity and begins.
    Started {
        /// Its host id.
        host_id: HostId,
        /// The port of its listener.
        tcp_port: u16,
    },
    /// The node is in another state.
    StateEntered {
        /// The state.
        state: StateName,
        /// The token it has, or had.
        token_id: TokenId,
    },
    /// A tenure is under way, and its fence may be used.
    TokenTaken {
        /// The token.
        token_id: TokenId,
        /// The number, if the application has one.
        fence: Option<u64>,
    },
    /// The token was passed.
    TokenPassed {
        /// The token.
        token_id: TokenId,
        /// The receiver.
        to: HostId,
        /// The number of the tenure that ended.
        fence: Option<u64>,
    },
    /// The node dropped the token, and starts an election (token_restore).
    TokenDropped {
        /// The token.
        token_id: TokenId,
        /// The reason.
        reason: DropReason,
    },
    /// A restore made a token.
    TokenRestored {
        /// The id before.
        from: TokenId,
        /// The id of the token.
        token_id: TokenId,
    },
    /// A restore was denied: another node has the token, or a better id.
    RestoreDenied {
        /// The id that was tried.
        token_id: TokenId,
    },
    /// Data of another branch was merged.
    TokenMerged {
        /// The id of this node's token until then.
        own: TokenId,
        /// The id of the token from here on.
        received: TokenId,
        /// Whether each branch had data that the other had not.
        branches_merged: bool,
    },
    /// A complete token was discarded, because a better one of this node was being passed (JA-30a).
    TokenDiscarded {
        /// The token.
        token_id: TokenId,
    },
    /// A node did not take the token.
    PassFailed {
        /// The node.
        to: HostId,
        /// The reason.
        reason: PassFailure,
    },
    /// A complete token was refused: the application cannot read its data.
    TokenRefused {
        /// The address that sent it.
        from: IpAddr,
        /// The node at that address, if the list has one.
        host_id: Option<HostId>,
    },
    /// The token was lost several times after it was passed to this node. The local node skips it for a while.
    NodeLeftOut {
        /// The node.
        host_id: HostId,
        /// How often in a row.
        losses: u32,
    },
    /// A hold was released.
    TokenReleased {
        /// The number of the command that requested the hold.
        hold: RequestId,
        /// The number of the tenure.
        fence: u64,
    },
    /// A hold ended because the token was lost.
    TokenLost {
        /// The number of the command that requested the hold.
        hold: RequestId,
        /// The number of the tenure.
        fence: u64,
        /// The reason.
        reason: LostReason,
    },
    /// A node is new in the list.
    NodeAdded {
        /// The node.
        #[serde(flatten)]
        node: NodeEntry,
    },
    /// A node of the list has another endpoint.
    NodeMoved {
        /// The node and its new endpoint.
        #[serde(flatten)]
        node: NodeEntry,
    },
    /// Another node uses the host id of this one. One of the two will starve: give one of them another id.
    DuplicateHostId {
        /// The endpoint of the other node.
        at: SocketAddr,
    },
    /// The list is so long that the node raised `renew_timeout`.
    RenewRaised {
        /// The new timeout.
        renew_timeout_micros: u64,
        /// The number of nodes.
        nodes: usize,
    },
    /// A loop took more than half of `renew_timeout`, and no known hold explains it: neither one of this node nor one
    /// that another node reported.
    LoopSlow {
        /// The duration of the loop.
        took_micros: u64,
        /// The `renew_timeout` in force.
        renew_timeout_micros: u64,
    },
    /// An application outside of the machine is to compute something. A command brings the result.
    ComputeAsked {
        /// The number of the request.
        ask: u64,
        /// The computation.
        #[serde(flatten)]
        compute: Compute,
    },
    /// A call of the application failed. The token continues.
    ApplicationFailed {
        /// The reason.
        reason: &'static str,
    },
    /// The store could not read or write something.
    StoreFailed {
        /// The cause.
        fault: StoreFault,
    },
}

/// Why a node did not take the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PassFailure {
    /// It ended the stream without an answer.
    Refused,
    /// Its time was over.
    TimedOut,
    /// The stream broke.
    Broken,
    /// It sent an invalid answer.
    Malformed,
}

/// Why a hold ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostReason {
    /// Its limit was reached.
    Limit,
    /// The node stops.
    Stopping,
    /// The process was paused: the others may have made a token of their own.
    Stalled,
    /// Another token arrived: its branch continued without the holder.
    Merged,
    /// Membership reaches less than half of the ring: the others may make a token of their own.
    CutOff,
}

/// Why a leader dropped its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DropReason {
    /// At random (J-31).
    Random,
    /// The process was paused: the others may have made a token of their own.
    Stalled,
    /// Addresses were named that are not in the ring.
    Unlisted,
    /// The token was made here, and its fence could not be made durable.
    Unsaved,
}

fn len_only<S: serde::Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{} bytes", data.len()))
}
