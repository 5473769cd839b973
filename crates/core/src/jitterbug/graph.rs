//! The graph of token generations: at a restore a branch may have split off, at a merge two branches became one (J-9).
//!
//! The graph has no message on the wire (J-9a). Each node keeps a bounded log of what it saw, and the shipped
//! application carries a bounded set of edges in its data. A token id may return, since merged halves may continue
//! under either id. So an edge also has its fence: sorted by fence, the graph has no cycles.

use core::fmt::Write as _;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::DropReason;
use super::message::{HostId, TokenId};
use crate::time::Wall;

/// The kinds of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// A node made the token `to` from data of the branch `from`.
    Restore,
    /// Data of the branch `from` was merged into the token `to`.
    Merge,
}

/// One edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// The fence of the tenure in which it was recorded: it orders the graph.
    pub fence: u64,
    /// The node that recorded it.
    pub host: u32,
    /// The kind.
    pub kind: EdgeKind,
    /// The id of the branch before.
    pub from: u32,
    /// The id of the branch after.
    pub to: u32,
}

/// The most edges that travel in the data.
pub const EDGES_MAX: usize = 64;

/// The newest edges of two sets: commutative and associative.
#[must_use]
pub fn unite(one: &[Edge], other: &[Edge]) -> Vec<Edge> {
    newest(one.iter().chain(other).copied().collect())
}

/// The newest edges, in order, each once.
pub(super) fn newest(mut edges: Vec<Edge>) -> Vec<Edge> {
    if !edges.is_sorted_by(|one, other| one < other) {
        edges.sort_unstable();
        edges.dedup();
    }
    edges.drain(..edges.len().saturating_sub(EDGES_MAX));
    edges
}

/// The graph as lines of text, oldest first.
#[must_use]
pub fn to_text(edges: &[Edge]) -> String {
    let mut text = String::new();
    for edge in edges {
        let (what, Edge { fence, host, from, to, .. }) = (verb(edge.kind), edge);
        let _ = writeln!(text, "{fence:>12}  {from} {what} {to}  (by {host})");
    }
    text
}

/// The graph in the Graphviz language. A vertex is a generation: a token id from one incoming edge to the next.
#[must_use]
pub fn to_dot(edges: &[Edge]) -> String {
    let mut sorted = edges.to_vec();
    sorted.sort_unstable();
    let mut text = String::from("digraph token {\n  rankdir=LR;\n");
    // The newest vertex of each id so far.
    let mut newest: BTreeMap<u32, String> = BTreeMap::new();
    for edge in sorted {
        let name = format!("\"{}@{}\"", edge.to, edge.fence);
        let _ = writeln!(text, "  {name} [label=\"{}\\nfence {}\"];", edge.to, edge.fence);
        let parents = match edge.kind {
            EdgeKind::Restore => vec![edge.from],
            EdgeKind::Merge => vec![edge.from, edge.to],
        };
        for parent in parents {
            let origin = newest.entry(parent).or_insert_with(|| format!("\"{parent}\"")).clone();
            if origin != name {
                let _ = writeln!(text, "  {origin} -> {name} [label=\"{}\"];", verb(edge.kind));
            }
        }
        newest.insert(edge.to, name);
    }
    text.push_str("}\n");
    text
}

fn verb(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Restore => "restored as",
        EdgeKind::Merge => "merged into",
    }
}

/// A token event that this node saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its wall-clock time.
    pub wall: Wall,
    /// The event.
    #[serde(flatten)]
    pub what: What,
}

/// The events of a token at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// This node made it.
    Restored {
        /// The id before.
        from: TokenId,
        /// Its id.
        to: TokenId,
    },
    /// Two branches met here.
    Merged {
        /// The own token.
        own: TokenId,
        /// The received token, whose id stays.
        received: TokenId,
    },
    /// This node dropped it.
    Dropped {
        /// The token.
        token_id: TokenId,
        /// The reason.
        reason: DropReason,
    },
    /// It came from another branch, which had all data of this node.
    Adopted {
        /// The own token before.
        own: TokenId,
        /// The received token.
        received: TokenId,
    },
    /// A node took it from this one for the first time under this id.
    Passed {
        /// The token.
        token_id: TokenId,
        /// The receiver.
        to: HostId,
    },
}

/// The most entries a node keeps of its own.
const ENTRIES_MAX: usize = 256;

/// The log of this node: its newest entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    pub(super) fn push(&mut self, wall: Wall, what: What) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { wall, what });
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.iter().copied().collect()
    }

    /// Whether a token of this id was logged as passed since the last entry of another kind.
    pub(super) fn ends_with_pass(&self) -> bool {
        matches!(self.entries.back(), Some(Entry { what: What::Passed { .. }, .. }))
    }
}
