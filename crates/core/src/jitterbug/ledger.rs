//! The shipped application: counts, fences, user values and the graph, in a JSON [`Document`].
//!
//! # The fence
//!
//! The fence of a tenure is the sum of all counts after the holder raised its own. Along one branch of the token it
//! strictly grows: every holder adds at least one, and a merge takes the greater of each count. Two cases could break
//! that:
//!
//! - *A holder dies with a fence that it used but did not pass on.* The node that restores the token does not know that
//!   fence. So it raises the count of host 0, which no node has. It adds more than could have been used since it last
//!   had the token, and goes at least to the wall clock in microseconds. A pass needs a TCP connection and two round
//!   trips, which take longer than [`MICROS_PER_TENURE`] on any network.
//! - *A holder restarts and forgets the fences it used.* So a bound above a fence is durable before the fence is used,
//!   and a restart begins at the bound. The bound is [`RESERVE`] ahead, so that few tenures wait for the disk.
//!
//! The jump is a count like any other, so a peer that knows nothing of fences carries it unchanged. A peer that drops
//! `values` and `edges` loses them for the branch; nothing can prevent that.
//!
//! During a partition there are two branches. Fences of the later branch are higher, as far as clocks agree, but a
//! holder on the other side may work at the same time. A node grants no hold at or below any fence it has seen.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::application::{Answer, Application, Next, TenureInfo};
use super::checksum::is_no_frame;
use super::document::Document;
use super::graph::{Edge, EdgeKind, unite};
use super::message::HostId;
use super::raw::{DEPTH_MAX, Raw};
use crate::time::Wall;

/// How far the durable bound is ahead of the fences in use.
pub const RESERVE: u64 = 1 << 16;
/// A tenure takes longer than this on any network.
pub const MICROS_PER_TENURE: u64 = 16;
/// The host that no node has: its count holds the jumps.
pub const JUMP_HOST: u32 = 0;

/// The longest name of a value.
pub const KEY_BYTES_MAX: usize = 128;
/// The longest value, as JSON.
pub const VALUE_BYTES_MAX: usize = 4096;
/// A node that has no fence and had no token for at most this time has just started. After a longer time, a first
/// holder may have used fences and failed before it passed the token.
const FIRST_RESTORE: core::time::Duration = core::time::Duration::from_millis(1500);
/// The latest wall clock that a fence is raised to: far below what a count can hold.
const WALL_MAX: u64 = 1 << 52;
const CHANGES_MAX: usize = 64;
/// Data up to this length is cached with its decoded document, since it is needed twice: for `accepts` and for `next`.
const READ_BYTES_MAX: usize = 64 * 1024;

/// A value to be set in the next tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub key: String,
    /// Its new content; `null` unsets it.
    pub value: Raw,
}

impl Set {
    /// Checks that it can be sent.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.key.is_empty() || self.key.len() > KEY_BYTES_MAX {
            return Err("a key has from 1 to 128 bytes");
        }
        if self.key.chars().any(char::is_control) {
            return Err("a key has no control characters");
        }
        if self.value.text().len() > VALUE_BYTES_MAX {
            return Err("a value has at most 4096 bytes as JSON");
        }
        if self.value.has_half_a_pair() {
            return Err("a text has no half of a surrogate pair (\\ud800 to \\udfff)");
        }
        if self.value.depth() > DEPTH_MAX {
            return Err("a value is nested at most 64 deep");
        }
        Ok(())
    }
}

/// The shipped application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    host: u32,
    start: Document,
    /// Fences up to here are durable.
    reserved: u64,
    /// The bound that will be durable once the last `next` is in use.
    promised: Option<u64>,
    /// The changes that users requested, by number.
    changes: VecDeque<(u64, Set)>,
    /// How many of the changes are in the last `next`.
    applied: usize,
    /// The number of the last change taken, and of the last one in the data.
    asked: u64,
    done: u64,
    /// The data read last, and its document.
    read: Option<(Vec<u8>, Document)>,
    /// The document of the last tenure, as it was passed on.
    last: Document,
    heard: Heard,
}

/// Facts from received documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// The highest fence in any of them, or of any own tenure.
    fence: u64,
    drops_values: bool,
    /// The group of this node's own voters (TU-31).
    own_voters: Option<String>,
    /// The group that a document named since the start.
    voters: Option<String>,
}

/// The stored record.
#[derive(Serialize, Deserialize)]
struct Kept {
    reserved: u64,
    data: Raw,
}

impl Ledger {
    /// An application that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn keep(&self, reserved: u64, document: &Document) -> Vec<u8> {
        serde_json::to_vec(&Kept { reserved, data: document.to_json() }).unwrap_or_default()
    }

    /// The document of these data, from the cache if possible.
    fn document(&mut self, data: &[u8]) -> Option<Document> {
        match self.read.take() {
            Some((read, document)) if read == data => Some(document),
            _ => Document::from_data(data).ok(),
        }
    }

    /// By how much a restore raises the sum. The result is above every fence that can have been used without this node,
    /// and at least the wall clock in microseconds (TU-43). An older branch adds one per tenure, so it stays below, as
    /// far as clocks agree.
    fn jump(document: &Document, time_without_token: core::time::Duration, wall: Wall) -> u64 {
        let sum = document.sum();
        let is_first = sum == 0 && time_without_token <= FIRST_RESTORE;
        // The reserve that a restarted holder skipped may lie in between as well.
        let taken = 2 * RESERVE + crate::time::micros(time_without_token) / MICROS_PER_TENURE;
        let to_wall = wall.as_micros().min(WALL_MAX).saturating_sub(sum);
        if is_first { to_wall } else { taken.max(to_wall) }
    }

    fn edges(&self, tenure: &TenureInfo, fence: u64) -> Vec<Edge> {
        let edge = |kind, from: super::TokenId, to: super::TokenId| Edge {
            fence,
            host: self.host,
            kind,
            from: from.magnitude(),
            to: to.magnitude(),
        };
        let restored = tenure.restored.map(|made| edge(EdgeKind::Restore, made.from, tenure.token_id));
        let merged = tenure.merged.iter().map(|(own, received)| edge(EdgeKind::Merge, *own, *received));
        restored.into_iter().chain(merged).collect()
    }
}

impl Application for Ledger {
    type Change = Set;

    fn start(&mut self, host_id: HostId, kept: Option<&[u8]>) {
        self.host = host_id.number();
        let kept: Option<Kept> = kept.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let Some(kept) = kept else { return };
        let document = Document::from_json(kept.data.text().as_bytes()).unwrap_or_default();
        self.start = document;
        // Voters are declared again after every restart: a ring whose nodes all stopped may start without them.
        self.start.turns = None;
        // All fences used before are below the bound; all later ones are above it.
        self.start.raise(JUMP_HOST, kept.reserved.saturating_sub(self.start.sum()));
        self.reserved = kept.reserved;
        self.heard.fence = kept.reserved;
    }

    fn initial(&mut self) -> Vec<u8> {
        self.start.to_data()
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        let Ok(document) = Document::from_data(data) else { return false };
        self.heard.fence = self.heard.fence.max(document.sum());
        if document.turns.is_some() {
            self.heard.voters.clone_from(&document.turns);
        }
        self.read = (data.len() <= READ_BYTES_MAX).then(|| (data.to_vec(), document));
        true
    }

    fn is_foreign(&self, data: &[u8]) -> bool {
        is_no_frame(data)
    }

    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next> {
        let Some(mut document) = self.document(data) else {
            return Answer::Failed("its own data cannot be read");
        };
        self.heard.drops_values = document.drops_values(&self.last);
        if let Some(restored) = tenure.restored {
            document.raise(JUMP_HOST, Self::jump(&document, restored.time_without_token, tenure.wall));
        }
        if self.heard.own_voters.is_some() {
            document.turns.clone_from(&self.heard.own_voters);
        }
        document.raise(self.host, 1);
        let fence = document.sum();
        // TU-43: no hold at or below a fence that this node has seen, whatever branch it is on.
        let is_above = fence > self.heard.fence;
        let edges = self.edges(tenure, fence);
        if !edges.is_empty() {
            document.edges = unite(&document.edges, &edges);
        }
        // The last change of a key counts.
        let last: BTreeMap<&str, &Raw> =
            self.changes.iter().map(|(_, change)| (change.key.as_str(), &change.value)).collect();
        for (key, value) in last {
            document.set(key.to_owned(), fence, self.host, value.clone());
        }
        self.applied = self.changes.len();
        self.promised = (fence > self.reserved).then(|| fence.saturating_add(RESERVE));
        // A value that a user set is durable before any other node sees it.
        let reserved = self.promised.or((self.applied > 0).then_some(self.reserved));
        let keep = reserved.map(|reserved| self.keep(reserved, &document));
        let data = document.to_data();
        self.last = document;
        Answer::Now(Next { data, fence: is_above.then_some(fence), keep })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        match (Document::from_data(own), Document::from_data(received)) {
            (Ok(own), Ok(received)) => Answer::Now(own.merge(&received).to_data()),
            _ => Answer::Failed("data is no document"),
        }
    }

    fn used(&mut self) -> u64 {
        self.reserved = self.promised.take().unwrap_or(self.reserved);
        self.heard.fence = self.heard.fence.max(self.last.sum());
        if let Some((number, _)) = self.changes.drain(..self.applied.min(self.changes.len())).next_back() {
            self.done = number;
        }
        self.applied = 0;
        self.done
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        let counts = |data: &[u8]| Document::from_data(data).ok().map(|document| document.counts);
        one == other || counts(one) == counts(other)
    }

    fn change(&mut self, change: Set) -> Result<u64, &'static str> {
        change.check()?;
        if self.changes.len() >= CHANGES_MAX {
            return Err("64 changes wait for the token already: try again when it has come");
        }
        self.asked += 1;
        self.changes.push_back((self.asked, change));
        Ok(self.asked)
    }

    fn withdraw(&mut self, number: u64) {
        self.changes.retain(|(other, _)| *other != number);
        // The next tenure counts its changes again.
        self.applied = 0;
    }

    fn tenures_of(&self, host: HostId) -> Option<u64> {
        Some(self.last.count(host.number()))
    }

    fn drops_values(&self) -> bool {
        self.heard.drops_values
    }

    fn declare_voters(&mut self, group: &str) {
        self.heard.own_voters = Some(group.to_owned());
    }

    fn voters(&self) -> Option<&str> {
        self.heard.own_voters.as_deref().or(self.heard.voters.as_deref())
    }

    fn greatest_fence(&self) -> u64 {
        self.heard.fence
    }

    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>> {
        let document = Document::from_data(data).ok()?;
        Some(self.keep(self.reserved.max(document.sum()), &document))
    }
}
