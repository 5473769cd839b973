//! The graph of token generations: every restore is a place where a line may have split, every merge one where two
//! lines became one (J-9).
//!
//! It has no place on the wire (J-9a). Each node keeps a bounded log of what it saw itself, and the shipped application
//! carries a bounded set of edges inside its data. Token ids return (a ring whose halves merge may go on under either
//! id), so an edge also has the fence at which it happened: sorted by fence, the graph has no cycles.

use core::fmt::Write as _;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::DropReason;
use super::message::{HostId, TokenId};
use crate::time::Wall;

/// What made an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// A node made the token `to`, its data being of the line `from`.
    Restore,
    /// Data of the line `from` went into the token `to`.
    Merge,
}

/// One edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// The fence of the tenure in which it was recorded: it orders the graph.
    pub fence: u64,
    /// The node that recorded it.
    pub host: u32,
    /// What happened.
    pub kind: EdgeKind,
    /// The id of the line that was.
    pub from: u32,
    /// The id of the line that is.
    pub to: u32,
}

/// The most edges that travel in the data.
pub const EDGES_MAX: usize = 64;

/// The newest of two sets of edges: the same from both sides and in any grouping.
#[must_use]
pub fn unite(one: &[Edge], other: &[Edge]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = one.iter().chain(other).copied().collect();
    edges.sort_unstable();
    edges.dedup();
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

/// The graph in the language of Graphviz. A vertex is a generation: a token id from one edge into it to the next.
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

/// Something this node saw happen to the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, by the clock on the wall.
    pub wall: Wall,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen to a token in a node's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// We made it.
    Restored {
        /// The id we had.
        from: TokenId,
        /// The id it has.
        to: TokenId,
    },
    /// Two lines met here.
    Merged {
        /// Ours.
        own: TokenId,
        /// The one received, whose id stays.
        received: TokenId,
    },
    /// We gave it up.
    Dropped {
        /// Which.
        token_id: TokenId,
        /// Why.
        reason: DropReason,
    },
    /// It came from another line that knew all we knew.
    Adopted {
        /// Ours before.
        own: TokenId,
        /// The one received.
        received: TokenId,
    },
    /// A node took it from us for the first time under this id.
    Passed {
        /// Which.
        token_id: TokenId,
        /// To whom.
        to: HostId,
    },
}

/// The most entries a node keeps of its own.
const ENTRIES_MAX: usize = 256;

/// What this node saw itself, the newest entries.
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
