//! The shipped application: counts, fences, user values and the graph, in a JSON [`Document`].
//!
//! # The fence
//!
//! The fence of a tenure is the sum of all counts after the holder raised its own. Along one line of the token it
//! strictly grows: every holder adds at least one, and a merge takes the greater of each count. Two things could
//! break that, and each has its remedy:
//!
//! - *A holder dies with a number it had taken but not passed on.* Who restores the token does not know that
//!   number. So a restore jumps: it raises the count of host 0, which nobody is, by more than could have been taken
//!   while it was blind. A pass needs a TCP connection and two round trips; [`MICROS_PER_TENURE`] is less than that
//!   takes anywhere.
//! - *A holder restarts and forgets what it took.* So before a number is used, a bound above it is durable; a restart
//!   begins at the bound. The bound runs [`RESERVE`] ahead, so that few tenures wait for the disk.
//!
//! The jump is a count like any other, so a peer that knows nothing of fences carries it faithfully. A peer that drops
//! `values` and `edges` loses them for the line; nothing can be done about that.
//!
//! Across a partition there are two lines, and their fences are not ordered against each other. Compare
//! (fence, host id) and mind that a holder on the other side may be at work at the same time.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::application::{Answer, Application, Next, Tenure};
use super::document::Document;
use super::graph::{Edge, EdgeKind, unite};
use super::message::HostId;
use super::raw::{DEPTH_MAX, Raw};

/// How far the durable bound runs ahead of the fences in use.
pub const RESERVE: u64 = 1 << 16;
/// A tenure takes longer than this on any network.
pub const MICROS_PER_TENURE: u64 = 16;
/// The host that is nobody: its count holds the jumps.
pub const JUMP_HOST: u32 = 0;

/// The longest name of a value.
pub const KEY_BYTES_MAX: usize = 128;
/// The longest value, as JSON.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Who knows of no number and was blind for no longer than this has just started. Who was for longer may have waited for a
/// first holder that took numbers and told nobody.
const FIRST_RESTORE: core::time::Duration = core::time::Duration::from_millis(1500);
const CHANGES_MAX: usize = 64;
/// Data up to this length is remembered with what was read in it, for it is asked about twice: whether it is good, and what
/// follows it.
const READ_BYTES_MAX: usize = 64 * 1024;

/// A value to be set in the next tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub key: String,
    /// What it is from then on; `null` unsets it.
    pub value: Raw,
}

impl Set {
    /// Whether it can travel.
    ///
    /// # Errors
    /// If it cannot: says why.
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
    /// They will be up to here once the last `next` is in use.
    promised: Option<u64>,
    /// What users want changed, by number.
    changes: VecDeque<(u64, Set)>,
    /// How many of the changes are in the last `next`.
    applied: usize,
    /// The number of the last change taken in, and of the last that is in the data.
    asked: u64,
    done: u64,
    /// What was read last, and the document in it.
    read: Option<(Vec<u8>, Document)>,
}

/// What is kept on disk.
#[derive(Serialize, Deserialize)]
struct Kept {
    reserved: u64,
    data: Raw,
}

impl Ledger {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn keep(&self, reserved: u64, document: &Document) -> Vec<u8> {
        serde_json::to_vec(&Kept { reserved, data: document.to_json() }).unwrap_or_default()
    }

    /// The document in data, which may be what was read last.
    fn document(&mut self, data: &[u8]) -> Option<Document> {
        match self.read.take() {
            Some((read, document)) if read == data => Some(document),
            _ => Document::from_data(data).ok(),
        }
    }

    /// More than can have been taken while nobody told us.
    fn jump(blind: core::time::Duration) -> u64 {
        // The reserve that a restarted holder skipped may lie in between as well.
        2 * RESERVE + crate::time::micros(blind) / MICROS_PER_TENURE
    }

    fn edges(&self, tenure: &Tenure, fence: u64) -> Vec<Edge> {
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
        // Whatever we took before is below the bound; from here on everything is above it.
        self.start.raise(JUMP_HOST, kept.reserved.saturating_sub(self.start.sum()));
        self.reserved = kept.reserved;
    }

    fn initial(&mut self) -> Vec<u8> {
        self.start.to_data()
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        let Ok(document) = Document::from_data(data) else { return false };
        self.read = (data.len() <= READ_BYTES_MAX).then(|| (data.to_vec(), document));
        true
    }

    fn next(&mut self, tenure: &Tenure, data: &[u8]) -> Answer<Next> {
        let Some(mut document) = self.document(data) else {
            return Answer::Failed("its own data cannot be read");
        };
        if let Some(restored) =
            tenure.restored.filter(|made| document.sum() > 0 || made.blind > FIRST_RESTORE)
        {
            document.raise(JUMP_HOST, Self::jump(restored.blind));
        }
        document.raise(self.host, 1);
        let fence = document.sum();
        let edges = self.edges(tenure, fence);
        if !edges.is_empty() {
            document.edges = unite(&document.edges, &edges);
        }
        // Of several for one key the last counts.
        let last: BTreeMap<&str, &Raw> =
            self.changes.iter().map(|(_, change)| (change.key.as_str(), &change.value)).collect();
        for (key, value) in last {
            document.set(key.to_owned(), fence, self.host, value.clone());
        }
        self.applied = self.changes.len();
        self.promised = (fence > self.reserved).then(|| fence.saturating_add(RESERVE));
        // A value that a user set is durable before anybody sees it.
        let reserved = self.promised.or((self.applied > 0).then_some(self.reserved));
        let keep = reserved.map(|reserved| self.keep(reserved, &document));
        Answer::Now(Next { data: document.to_data(), fence: Some(fence), keep })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        match (Document::from_data(own), Document::from_data(received)) {
            (Ok(own), Ok(received)) => Answer::Now(own.merge(&received).to_data()),
            _ => Answer::Failed("data is no document"),
        }
    }

    fn used(&mut self) -> u64 {
        self.reserved = self.promised.take().unwrap_or(self.reserved);
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
        // The next tenure counts anew.
        self.applied = 0;
    }

    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>> {
        let document = Document::from_data(data).ok()?;
        Some(self.keep(self.reserved.max(document.sum()), &document))
    }
}
