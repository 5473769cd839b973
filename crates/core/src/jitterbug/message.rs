//! What the messages mean, and the small numbers in them.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::rng::Rng;

/// What goes on the wire. TR messages are datagrams, TP messages travel over a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// An orphan asks everybody: may I lead? Whoever hears it remembers the asker, in every state. A leader always
    /// answers; others answer unless the asker's id beats their own.
    Tr1 {
        /// The id the asker tries; it holds no token, so the sign is negative.
        token_id: SignedId,
        /// Who asks.
        host_id: HostId,
        /// Where its listener is, on the address the datagram came from.
        tcp_port: u16,
    },
    /// The answer: denies the try if it is the greater number, which every leader's is.
    Tr2 {
        /// The answerer's id; positive if it holds the token.
        token_id: SignedId,
    },
    /// A leader offers the token to a candidate.
    Tp1 {
        /// The token; positive, for its sender holds it.
        token_id: SignedId,
        /// The hash of the leader's list.
        node_list_hash: i32,
    },
    /// The candidate's list is another one: send yours.
    Tp2,
    /// The candidate's list is the same: go on.
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

    /// The least that is drawn: so that a node that starts lucky still has better ids to draw from (JA-24b).
    const DRAWN_MIN: u32 = 1 << 24;

    /// One of all but the very best, each as likely as the others.
    pub fn draw(rng: &mut Rng) -> Self {
        Self(rng.between(u64::from(Self::DRAWN_MIN), u64::from(Self::MAX.0)) as u32)
    }

    /// The number.
    #[must_use]
    pub const fn magnitude(self) -> u32 {
        self.0
    }

    /// As somebody who holds the token writes it.
    #[must_use]
    pub const fn held(self) -> SignedId {
        SignedId(self.0 as i32)
    }

    /// As somebody who does not hold the token writes it.
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

/// A token id with its sign, as it is on the wire: positive if its sender holds the token.
///
/// The order is that of signed numbers (JA-4): every holder beats everybody else, and among those without a token
/// the *smaller* magnitude wins. A ring that mixes this order with that of magnitudes elects two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SignedId(i32);

impl SignedId {
    /// This number, unless it is one of the two that are no id: 0 and −2³¹.
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

/// The name of a node in the list: 0 … 2³¹−1, unique, the own one at least 1 (JA-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostId(u32);

impl HostId {
    /// This number, if it may be one.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number > i32::MAX as u32 { None } else { Some(Self(number)) }
    }

    /// One of those a node may call itself.
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
    /// Who.
    pub host_id: HostId,
    /// Where its listener is.
    pub addr: SocketAddr,
}

impl NodeEntry {
    /// A node at this place.
    #[must_use]
    pub fn new(host_id: HostId, ip: IpAddr, port: u16) -> Self {
        Self { host_id, addr: SocketAddr::new(ip, port) }
    }
}

fn as_hex<S: serde::Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&crate::outbox::Hex(data))
}
