//! w3w: store-and-forward messages, also to nodes that are down. The service `mesh`.
//!
//! A node has an address, its [`Nid`], and keeps connections to up to `peers_max` peers. They are its *routing ring*,
//! ordered by address and closed to a circle. A message travels from peer to peer, each hop nearer to its recipient.
//! Each node on the way stores it under its hash, and keeps it until another node has custody. The recipient delivers
//! it at most once. `docs/spec/w3w.md` has the clauses of the document (M-n) and our decisions (MA-n).
//!
//! # The files
//!
//! | place | what it is |
//! |---|---|
//! | `config.rs`, `message.rs`, `wire.rs`, `form.rs`, `describe.rs`, `event.rs` | settings, messages, their bytes, forms of DATA, events |
//! | `machine.rs`, `commands.rs`, `load.rs` | the [`Machine`] implementation: matches and delegates |
//! | `peering`, `ring.rs`, `links` | INIT to RECONNECT: who is connected, and the connections |
//! | `forward`, `custody` | SEND: the queue, and who answers for a message |
//! | `delivery`, `letters`, `files`, `mailboxes` | RECEIVE: messages for this node, numbered letters, files, boxes |
//! | `book.rs`, `known_nodes.rs`, `blocks.rs`, `records.rs`, `disk.rs` | the address book, and what is stored |
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
//! INIT reads the store, NOUNCE sends HERE to the known nodes, WAIT follows. SIGNAL connects (RECONNECT). ADD_ROUTE takes
//! or rejects a connection. OPTIMIZE drops a peer of too many. DEL_ROUTE removes a lost one. Traces have them as `state`.
//!
//! # Where we differ from the document, and why
//!
//! - The ring table, taken literally, inserts nothing: the ring is an ordered map (MA-1 … MA-9).
//! - A node that connects sends HERE first; otherwise the acceptor would not know its peer (MA-27).
//! - A relay sends a message to the nearer neighbour only (MA-60), and drops what it has seen (MA-40). Taken literally,
//!   the document floods, and never stops for a recipient that is away.
//! - Nodes send more HEREs than the document has (`peering/announce.rs`): with its own many cannot reach each other.
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

/// What the application may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send DATA to a node. The reply comes when it is on disk: [`Reply::Sent`], or the reason why not.
    Send {
        /// To whom.
        to: Nid,
        /// What.
        data: Vec<u8>,
        /// Whether the recipient is to confirm it.
        receipt: bool,
    },
    /// Send a letter. Without `certain`, a recipient that is not known to understand letters gets plain DATA (CU-6).
    SendLetter {
        /// The recipient.
        to: Nid,
        /// The bytes.
        data: Vec<u8>,
        /// How long it may wait; `Config::expiry` if not given.
        lifetime: Option<Duration>,
        /// The recipient knows letters.
        certain: bool,
        /// A plain message asks for a receipt.
        receipt: bool,
    },
    /// Withdraw a message that is open.
    Cancel {
        /// Its number in the outbox.
        number: u64,
    },
    /// News of `members` about a node (CU-15, CU-25).
    Member {
        /// Its address in the mesh.
        nid: Nid,
        /// Its name.
        name: String,
        /// The address at which it is.
        ip: Option<Ipv4Addr>,
        /// Whether it is there.
        presence: Presence,
        /// Whether it knows letters.
        knows_letters: bool,
    },
    /// `members` says whether a node is there; its id is the first half of its NID (CU-15).
    MemberPresence {
        /// The node.
        id: Id,
        /// Whether it is there.
        presence: Presence,
    },
    /// The address book, from a NID on.
    Book {
        /// The least NID.
        from: Option<Nid>,
    },
    /// The nodes that a name may mean; one if it is clear.
    Lookup {
        /// The name.
        name: String,
    },
    /// The user gives a node a name.
    SetName {
        /// The name.
        name: String,
        /// The node.
        nid: Nid,
        /// Whether the user says that it knows letters.
        knows_letters: bool,
    },
    /// The DATA under a key.
    Get {
        /// Its key.
        key: Key,
    },
    /// The first two keys in this range, both ends included: of all blocks, or of files only.
    Find {
        /// The least.
        first: Key,
        /// The greatest.
        last: Key,
        /// Whether only files count.
        is_file: bool,
    },
    /// What is for us, from this number on.
    Inbox {
        /// The least number.
        from: u64,
    },
    /// What we sent, from this number on.
    Outbox {
        /// The least number.
        from: u64,
    },
    /// Take a message out of the inbox.
    Remove {
        /// Its number.
        number: u64,
    },
    /// The routing ring.
    Peers,
    /// The known nodes, latest first; [`known_nodes_to_json`] makes the document's file of them.
    Known,
    /// A node is known to be there, from another source than the mesh.
    AddKnown {
        /// Where.
        ip: Ipv4Addr,
    },
    /// Delete every block that no inbox line, queue entry or file refers to.
    Collect,
    /// How the node is.
    Status,
    /// Offer a file, or go on with one that was offered before. Blocks are asked for by [`Event::BlockWanted`].
    OfferFile {
        /// To whom.
        to: Nid,
        /// What it consists of.
        manifest: Manifest,
    },
    /// A block that was wanted.
    Supply {
        /// To whom the file goes.
        to: Nid,
        /// Of which file.
        file: Key,
        /// Which block.
        index: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// All files under way, and those that have come.
    Files,
    /// One of them.
    File {
        /// Which.
        file: Key,
        /// To whom it goes if we send it; `None` if it is for us.
        to: Option<Nid>,
    },
    /// Drop a file, whatever its direction. The node refuses an incoming one while its sender offers it.
    DropFile {
        /// Which.
        file: Key,
    },
    /// The bytes of a block of a file that has come.
    ReadBlock {
        /// Which file.
        file: Key,
        /// Which block.
        index: u32,
    },
}

/// What the application gets for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The message is safe here and on its way.
    Sent {
        /// Its number in the outbox.
        number: u64,
        /// Where its DATA is.
        key: Key,
        /// When its lifetime ends, in seconds since 1970.
        until: u64,
        /// Whether the recipient will confirm it.
        is_letter: bool,
    },
    /// The message is withdrawn.
    Cancelled {
        /// It certainly never left this node.
        is_certain: bool,
    },
    /// Nothing more can become known of the message.
    NotOpen {
        /// What is known.
        state: SentState,
    },
    /// Entries of the address book.
    Book(Vec<BookEntry>),
    /// The same DATA was sent to the same node within the expiry (MA-41): add something to it that differs.
    Duplicate {
        /// Where its DATA is.
        key: Key,
    },
    /// Too much waits already.
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
    /// The store could not keep it; nothing was sent.
    StoreFailed {
        /// Why.
        fault: StoreFault,
    },
    /// The bytes asked for.
    Block(Data),
    /// What was found.
    Found(Vec<Key>),
    /// There is no such block.
    NoSuchBlock,
    /// There is, but it is no longer what its key says.
    Corrupt {
        /// Which.
        key: Key,
    },
    /// There is no such message.
    NoSuchMessage,
    /// What is for us.
    Inbox(Vec<Received>),
    /// What we sent.
    Outbox(Vec<Sent>),
    /// The routing ring, ascending.
    Peers(Vec<Peer>),
    /// The known nodes, latest first.
    Known(Vec<KnownNode>),
    /// It is done.
    Done,
    /// The blocks and bytes that were deleted.
    Collected {
        /// How many blocks.
        blocks: usize,
        /// How many bytes.
        bytes: u64,
    },
    /// How the node is.
    Status(Box<Status>),
    /// The file is offered.
    Offered {
        /// What it is known by.
        file: Key,
        /// Its line in the outbox, which says in the end whether it was received.
        number: Option<u64>,
    },
    /// The manifest's numbers do not fit together, or its blocks do not fit into messages.
    BadManifest,
    /// There is no such file.
    NoSuchFile,
    /// The bytes are not that block: the file has changed.
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
    /// Where it accepts connections.
    pub at: SocketAddrV4,
    /// How many peers are in the ring.
    pub peers: usize,
    /// The younger and the older neighbour.
    pub neighbours: Option<(Nid, Nid)>,
    /// How many nodes are known.
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
    /// The most of them.
    pub quota_bytes: u64,
    /// Messages for this node that wait for room in the store.
    pub deferred: usize,
    /// Bytes of messages in memory.
    pub memory_bytes: usize,
}
