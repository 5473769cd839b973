//! Plain data that parts exchange.

use core::time::Duration;
use std::net::IpAddr;

use super::message::TokenId;
use super::ring::NodeList;
use crate::tag::RequestId;
use crate::time::Instant;

/// A requested hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) request: RequestId,
    /// The key with which its client may withdraw it.
    pub(super) key: Option<u64>,
    pub(super) limit: Duration,
}

/// A hold in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) request: RequestId,
    pub(super) key: Option<u64>,
    pub(super) fence: u64,
    pub(super) until: Instant,
}

/// A complete received token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) from: IpAddr,
    pub(super) token: TokenId,
    /// The list that came with it; `None` if ours is the same.
    pub(super) list: Option<NodeList>,
    pub(super) data: Vec<u8>,
}

/// Data of another token, to be merged with ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    /// The own id when it arrived.
    pub(super) own: TokenId,
    /// Its id.
    pub(super) received: TokenId,
    pub(super) data: Vec<u8>,
}
