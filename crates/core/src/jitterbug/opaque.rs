//! An application that carries any bytes unchanged, for rings of other applications (`token.data = opaque`).
//!
//! The data ends with the FIN and has no frame; it is passed on unchanged. So the node cannot distinguish data that a
//! crash cut off from complete data. A merge keeps the received data, unless it is empty. The application supports
//! turns but no values.
//!
//! The fence is no part of the data. It is the wall clock in microseconds, or one more than the last fence of this node if
//! that is greater. It rises at each node, and between nodes as far as their clocks agree.

use serde::{Deserialize, Serialize};

use super::application::{Answer, Application, Next, TenureInfo};
use super::ledger::{RESERVE, Set};
use super::message::HostId;

/// An application that carries any bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opaque {
    /// The last fence.
    fence: u64,
    /// Fences up to here are durable.
    reserved: u64,
    /// The bound that will be durable once the last `next` is in use.
    promised: Option<u64>,
}

/// The stored record.
#[derive(Serialize, Deserialize)]
struct Kept {
    reserved: u64,
}

impl Opaque {
    /// An application that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn keep(reserved: u64) -> Option<Vec<u8>> {
        serde_json::to_vec(&Kept { reserved }).ok()
    }
}

impl Application for Opaque {
    type Change = Set;

    fn start(&mut self, _: HostId, kept: Option<&[u8]>) {
        let kept: Option<Kept> = kept.and_then(|bytes| serde_json::from_slice(bytes).ok());
        self.reserved = kept.map_or(0, |kept| kept.reserved);
        self.fence = self.reserved;
    }

    fn initial(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn accepts(&mut self, _: &[u8]) -> bool {
        true
    }

    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next> {
        self.fence = tenure.wall.as_micros().max(self.fence.saturating_add(1));
        // With at least one tenure per second, few of them wait for the disk: the reserve is wall-clock time here.
        self.promised = (self.fence > self.reserved).then(|| self.fence.saturating_add(1000 * RESERVE));
        let keep = self.promised.and_then(Self::keep);
        Answer::Now(Next { data: data.to_vec(), fence: Some(self.fence), keep })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        Answer::Now(if received.is_empty() { own.to_vec() } else { received.to_vec() })
    }

    fn used(&mut self) -> u64 {
        self.reserved = self.promised.take().unwrap_or(self.reserved);
        0
    }

    fn change(&mut self, _: Set) -> Result<u64, &'static str> {
        Err("token.data is opaque: the ring carries the bytes of another application, and no values")
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        Self::keep(self.reserved.max(self.fence))
    }
}
