//! Plain data that parts hand to each other.

use core::time::Duration;
use std::net::IpAddr;

use super::message::TokenId;
use super::ring::NodeList;
use crate::tag::RequestId;
use crate::time::Instant;

/// A hold that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) request: RequestId,
    /// The name under which its client may withdraw it.
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

/// A token that has arrived whole.
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
    /// Our id when it came.
    pub(super) own: TokenId,
    /// Its id.
    pub(super) received: TokenId,
    pub(super) data: Vec<u8>,
}
