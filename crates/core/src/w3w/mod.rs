//! w3w: store-and-forward messages, also to nodes that are down. The service `mesh`.
//!
//! A node has an address, its [`Nid`], and keeps connections to up to `peers_max` peers. They are its *routing ring*,
//! ordered by address and closed to a circle. A message travels from peer to peer, each hop nearer to its recipient.
//! Each node on the path stores it under its hash, and keeps it until another node has custody. The recipient delivers
//! it at most once. `docs/spec/w3w.md` has the clauses of the document (M-n) and our decisions (MA-n).
//!
//! # The files
//!
//! | place | what it is |
//! |---|---|
//! | `config.rs`, `message.rs`, `wire.rs`, `form.rs`, `describe.rs`, `event.rs` | settings, messages, their bytes, forms of DATA, events |
//! | `machine.rs`, `commands.rs`, `load.rs` | the [`Machine`] implementation: matches and delegates |
//! | `peering`, `ring.rs`, `links` | INIT to RECONNECT: the choice of peers, and the connections |
//! | `forward`, `custody` | SEND: the queue, and the custody of messages |
//! | `delivery`, `letters`, `files`, `mailboxes` | RECEIVE: messages for this node, numbered letters, files, boxes |
//! | `book.rs`, `known_nodes.rs`, `blocks.rs`, `records.rs`, `disk.rs` | the address book, and the store |
//!
//! # The messages
//!
//! | message | by datagram | on a connection |
//! |---|---|---|
//! | [`Here`] | SIGNAL: connect, unless it is a peer, in hold-down or would be dropped | first frame: identity; later: no effect |
//! | [`Message`] | never | RECEIVE: for us, SAVE and deliver; else SAVE and SEND |
//!
//! # The states
//!
//! INIT reads the store, NOUNCE sends HERE to the known nodes, WAIT follows. SIGNAL connects (RECONNECT). ADD_ROUTE
//! takes or rejects a connection. OPTIMIZE drops a peer above `peers_max`. DEL_ROUTE removes a lost peer. Traces
//! print the state in the field `state`.
//!
//! # Where we differ from the document, and why
//!
//! - The ring table, taken literally, inserts nothing: the ring is an ordered map (MA-1 … MA-9).
//! - A node that connects sends HERE first; otherwise the acceptor would not know its peer (MA-27).
//! - A relay sends a message to the nearer neighbour only (MA-60), and drops what it has seen (MA-40). Taken literally,
//!   the document floods, and never stops for a recipient that is away.
//! - Nodes send more HEREs than the document has (`peering/announce.rs`): with those alone, many nodes have no path
//!   to each other.
//!
//! # A driver in twenty lines
//!
//! ```
//! use annulus_core::w3w::{Config, Event, Mesh};
//! use annulus_core::{Action, Bound, Instant, Machine, Now, Queue, StoreReply, StoreResult, Wall};
//!
//! let config = Config { uuid: [7; 16], seeds: vec!["127.0.0.2".parse()?], ..Config::default() };
//! let mut mesh = Mesh::new(&config, [7; 32])?;
//! let mut queue = Queue::new();
//! let now = Now::new(Instant::ZERO, Wall::from_micros(1_700_000_000_000_000));
//!
//! mesh.handle_start(now, &Bound::default(), &mut queue.outbox());
//! let mut sent = Vec::new();
//! while sent.is_empty() {
//!     let mut asked = Vec::new();
//!     while let Some(action) = queue.next() {
//!         match action {
//!             Action::Send { to, bytes, .. } => sent.push((to, bytes.to_vec())),
//!             Action::Store { op, .. } => asked.push(op), // an empty store
//!             Action::Event(Event::Started { nid, .. }) => assert_eq!(nid, mesh.nid()),
//!             _ => {}
//!         }
//!     }
//!     for op in asked {
//!         let result = StoreResult::Page { entries: &[], more: false };
//!         mesh.handle_stored(now, StoreReply { op, result }, &mut queue.outbox());
//!     }
//! }
//! assert_eq!(sent[0].0, "127.0.0.2:22000".parse()?);
//! assert!(sent[0].1.starts_with(b"w00 HERE "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod book;
mod commands;
mod config;
mod counters;
mod custody;
mod delivery;
mod describe;
mod disk;
mod env;
mod event;
mod files;
mod form;
mod forward;
mod known_nodes;
mod letters;
mod links;
mod load;
mod machine;
mod mailboxes;
mod message;
mod nid;
mod peering;
mod records;
mod ring;
mod timers;
mod wire;

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::Serialize;

pub use book::{BookEntry, Presence};
pub use config::{Announce, Config, ConfigError, Fault, Forward};
pub use counters::Counters;
pub use describe::{Described, describe};
pub use event::{Data, Event, Leave};
pub use files::FileStatus;
pub use form::{
    Custody, FILE_BLOCKS_MAX, FORM_MAGIC, Form, Letter, Manifest, Progress, Receipts, RefusalReason, Verdict,
    read_form, write_form,
};
pub use known_nodes::{KnownNode, KnownNodesError, known_nodes_from_json, known_nodes_to_json};
pub use machine::{BLOCKS, BOOK, FILES, INBOX, INDEX, KNOWN, LETTERS, Mesh, OUTBOX, QUEUE, SEEN, TCP, UDP};
pub use message::{Here, Message, SeenKey};
pub use nid::{KEY_DIGITS_MIN, Key, NID_HEX_BYTES, Nid, ParseNidError};
pub use records::{Received, Sent, SentState, Why, listed_key, queued_key};
pub use ring::{Direction, Peer};
pub use wire::{
    Body, DATA_BYTES_MAX, HEADER_BYTES, HERE_BYTES_MAX, LENGTH_BYTES, VERSION, decode_body, decode_here,
    encode_here, encode_message, here_frame,
};

#[cfg(doc)]
use crate::Machine;
use crate::id::Id;
use crate::store::StoreFault;

/// The commands of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Sends DATA to a node. The reply comes when it is on disk: [`Reply::Sent`], or the reason why not.
    Send {
        /// The recipient.
        to: Nid,
        /// The content.
        data: Vec<u8>,
        /// Whether the recipient is to confirm it.
        receipt: bool,
    },
    /// Sends a letter. Without `certain`, a recipient that is not known to understand letters gets plain DATA (CU-6).
    SendLetter {
        /// The recipient.
        to: Nid,
        /// The bytes.
        data: Vec<u8>,
        /// How long it may wait; `Config::expiry` if not given.
        lifetime: Option<Duration>,
        /// The recipient knows letters.
        certain: bool,
        /// Whether a plain message requests a receipt.
        receipt: bool,
    },
    /// Withdraws an open message.
    Cancel {
        /// Its number in the outbox.
        number: u64,
    },
    /// A report of `members` about a node (CU-15, CU-25).
    Member {
        /// Its address in the mesh.
        nid: Nid,
        /// Its name.
        name: String,
        /// Its IP address.
        ip: Option<Ipv4Addr>,
        /// Its presence.
        presence: Presence,
        /// Whether it knows letters.
        knows_letters: bool,
    },
    /// The presence of a node, reported by `members`; its id is the first half of its NID (CU-15).
    MemberPresence {
        /// The node.
        id: Id,
        /// Its presence.
        presence: Presence,
    },
    /// Returns the address book, from a NID on.
    Book {
        /// The least NID.
        from: Option<Nid>,
    },
    /// Returns the nodes that a name may mean; one if the name is unambiguous.
    Lookup {
        /// The name.
        name: String,
    },
    /// Gives a node a name that the user chose.
    SetName {
        /// The name.
        name: String,
        /// The node.
        nid: Nid,
        /// Whether the user says that the node knows letters.
        knows_letters: bool,
    },
    /// Returns the DATA of a key.
    Get {
        /// The key.
        key: Key,
    },
    /// Returns the first two keys in this range, both ends included: of all blocks, or of files only.
    Find {
        /// The least.
        first: Key,
        /// The greatest.
        last: Key,
        /// Whether only files count.
        is_file: bool,
    },
    /// Returns the inbox, from this number on.
    Inbox {
        /// The least number.
        from: u64,
    },
    /// Returns the outbox, from this number on.
    Outbox {
        /// The least number.
        from: u64,
    },
    /// Removes a message from the inbox.
    Remove {
        /// Its number.
        number: u64,
    },
    /// Returns the routing ring.
    Peers,
    /// Returns the known nodes, latest first; [`known_nodes_to_json`] makes the document's file of them.
    Known,
    /// Adds a known node from another source than the mesh.
    AddKnown {
        /// Its IP address.
        ip: Ipv4Addr,
    },
    /// Deletes every block that no inbox line, queue entry or file refers to.
    Collect,
    /// Returns the status of the node.
    Status,
    /// Offers a file, or continues one that was offered before. [`Event::BlockWanted`] requests its blocks.
    OfferFile {
        /// The recipient.
        to: Nid,
        /// The manifest of the file.
        manifest: Manifest,
    },
    /// Supplies a requested block.
    Supply {
        /// The recipient of the file.
        to: Nid,
        /// The file.
        file: Key,
        /// The index of the block.
        index: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Returns all files: under way and received.
    Files,
    /// Returns one file.
    File {
        /// The file.
        file: Key,
        /// The recipient if this node sends it; `None` if it is incoming.
        to: Option<Nid>,
    },
    /// Drops a file, whatever its direction. The node refuses an incoming one while its sender offers it.
    DropFile {
        /// The file.
        file: Key,
    },
    /// Returns the bytes of a block of a received file.
    ReadBlock {
        /// The file.
        file: Key,
        /// The index of the block.
        index: u32,
    },
}

/// The replies to commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The message is on disk and queued.
    Sent {
        /// Its number in the outbox.
        number: u64,
        /// The key of its DATA.
        key: Key,
        /// When its lifetime ends, in seconds since 1970.
        until: u64,
        /// Whether the recipient will confirm it.
        is_letter: bool,
    },
    /// The message is withdrawn.
    Cancelled {
        /// Whether it certainly never left this node.
        is_certain: bool,
    },
    /// The state of the message is final.
    NotOpen {
        /// The state.
        state: SentState,
    },
    /// Entries of the address book.
    Book(Vec<BookEntry>),
    /// The same DATA was sent to the same node within the expiry (MA-41): add something to it that differs.
    Duplicate {
        /// The key of its DATA.
        key: Key,
    },
    /// The queue is full.
    QueueFull,
    /// The quota is full of blocks that an inbox line, a queue entry or a file refers to.
    QuotaFull,
    /// Messages for this recipient use a quarter of the store already (CU-26).
    RecipientQuotaFull(Nid),
    /// DATA is over the limit: send it as a file.
    TooLong {
        /// The limit.
        data_bytes_max: usize,
    },
    /// The store could not write it; nothing was sent.
    StoreFailed {
        /// The cause.
        fault: StoreFault,
    },
    /// The requested bytes.
    Block(Data),
    /// The keys found.
    Found(Vec<Key>),
    /// There is no such block.
    NoSuchBlock,
    /// The block no longer matches its key.
    Corrupt {
        /// The key.
        key: Key,
    },
    /// There is no such message.
    NoSuchMessage,
    /// Messages for this node.
    Inbox(Vec<Received>),
    /// Messages from this node.
    Outbox(Vec<Sent>),
    /// The routing ring, ascending.
    Peers(Vec<Peer>),
    /// The known nodes, latest first.
    Known(Vec<KnownNode>),
    /// The command is done.
    Done,
    /// The blocks and bytes that were deleted.
    Collected {
        /// How many blocks.
        blocks: usize,
        /// How many bytes.
        bytes: u64,
    },
    /// The status of the node.
    Status(Box<Status>),
    /// The file is offered.
    Offered {
        /// The key of the file.
        file: Key,
        /// Its line in the outbox, whose final state says whether it was received.
        number: Option<u64>,
    },
    /// The numbers of the manifest are inconsistent, or its blocks do not fit into messages.
    BadManifest,
    /// There is no such file.
    NoSuchFile,
    /// The bytes do not match the block: the file has changed.
    WrongBlock,
    /// All files.
    Files(Vec<FileStatus>),
    /// One file.
    File(Box<FileStatus>),
    /// The node is stopping.
    Stopping,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its address in the mesh.
    pub nid: Nid,
    /// The address of its listener.
    pub at: SocketAddrV4,
    /// The number of peers in the ring.
    pub peers: usize,
    /// The neighbour with the next lower NID (younger) and the one with the next higher NID (older).
    pub neighbours: Option<(Nid, Nid)>,
    /// The number of known nodes.
    pub known: usize,
    /// Lines in the inbox.
    pub inbox: usize,
    /// Lines in the outbox.
    pub outbox: usize,
    /// Messages that wait for a peer, for their recipient or for their receipt.
    pub waiting: usize,
    /// Messages remembered as seen.
    pub seen: usize,
    /// Blocks in the store.
    pub blocks: usize,
    /// Bytes of DATA in the store.
    pub bytes: u64,
    /// The quota.
    pub quota_bytes: u64,
    /// Messages for this node that wait for room in the store.
    pub deferred: usize,
    /// Bytes of messages in memory.
    pub memory_bytes: usize,
}
