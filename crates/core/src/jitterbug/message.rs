//! The messages and the numbers in them.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::rng::Rng;

/// A message on the wire. TR messages are datagrams, TP messages go over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// An orphan asks all nodes whether it may lead. Every receiver remembers the sender, in every state. A leader
    /// always answers; others answer unless the orphan's id beats their own.
    Tr1 {
        /// The id of the try; the orphan holds no token, so the sign is negative.
        token_id: SignedId,
        /// The orphan.
        host_id: HostId,
        /// The port of its listener, at the source address of the datagram.
        tcp_port: u16,
    },
    /// Answers a TR1: denies the try if it is the greater number, as every leader's is.
    Tr2 {
        /// The id of the answering node; positive if it holds the token.
        token_id: SignedId,
    },
    /// A leader offers the token to a candidate.
    Tp1 {
        /// The token; positive, since its sender holds it.
        token_id: SignedId,
        /// The hash of the leader's list.
        node_list_hash: i32,
    },
    /// The candidate's list differs: the leader must send its own.
    Tp2,
    /// The candidate's list is the same: the leader sends the data.
    Tp3,
    /// The leader's list.
    Tp4 {
        /// Its entries, in their order.
        nodes: Vec<NodeEntry>,
    },
    /// The token itself, with the application's data up to the FIN.
    Tp5 {
        /// The data, printed as hexadecimal digits.
        #[serde(serialize_with = "as_hex")]
        data: Vec<u8>,
    },
}

/// The magnitude of a token id: 1 … 2³¹−1 (JA-6, JA-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TokenId(u32);

impl TokenId {
    /// The greatest magnitude.
    pub const MAX: Self = Self(i32::MAX as u32);

    /// This magnitude, if it is one.
    #[must_use]
    pub const fn new(magnitude: u32) -> Option<Self> {
        if magnitude == 0 || magnitude > Self::MAX.0 { None } else { Some(Self(magnitude)) }
    }

    /// The least magnitude that is drawn: a new node then always has better ids left to draw from (JA-24b).
    const DRAWN_MIN: u32 = 1 << 24;

    /// A uniform draw of all but the very best ids.
    pub fn draw(rng: &mut Rng) -> Self {
        Self(rng.between(u64::from(Self::DRAWN_MIN), u64::from(Self::MAX.0)) as u32)
    }

    /// The number.
    #[must_use]
    pub const fn magnitude(self) -> u32 {
        self.0
    }

    /// The id as the holder of the token writes it.
    #[must_use]
    pub const fn held(self) -> SignedId {
        SignedId(self.0 as i32)
    }

    /// The id as other nodes write it.
    #[must_use]
    pub const fn free(self) -> SignedId {
        SignedId(-(self.0 as i32))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A token id with its sign on the wire: positive if its sender holds the token.
///
/// The order is that of signed numbers (JA-4): a holder's id is greater than all others. Among nodes without a token
/// the *smaller* magnitude wins. A ring that mixes this order with that of magnitudes elects two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SignedId(i32);

impl SignedId {
    /// This number, unless it is 0 or −2³¹, which are no ids.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        if number == 0 || number == i32::MIN { None } else { Some(Self(number)) }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Whether its sender holds the token.
    #[must_use]
    pub const fn is_held(self) -> bool {
        self.0 > 0
    }

    /// The id without its sign.
    #[must_use]
    pub const fn id(self) -> TokenId {
        TokenId(self.0.unsigned_abs())
    }
}

/// The id of a node in the list: 0 … 2³¹−1, unique, the own one at least 1 (JA-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostId(u32);

impl HostId {
    /// This number, if it is valid.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number > i32::MAX as u32 { None } else { Some(Self(number)) }
    }

    /// A random id that a node may give itself.
    pub fn draw(rng: &mut Rng) -> Self {
        Self(rng.between(1, i32::MAX as u64) as u32)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One node of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NodeEntry {
    /// Its host id.
    pub host_id: HostId,
    /// The endpoint of its listener.
    pub addr: SocketAddr,
}

impl NodeEntry {
    /// A node at this endpoint.
    #[must_use]
    pub fn new(host_id: HostId, ip: IpAddr, port: u16) -> Self {
        Self { host_id, addr: SocketAddr::new(ip, port) }
    }
}

fn as_hex<S: serde::Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&crate::outbox::Hex(data))
}
