//! Node sorters: three definitions of the distance between nodes (S-28 … S-34).
//!
//! They work on byte strings of any length, as long as all are equally long (S-11, SA-4a), most significant byte
//! first. None of them caches a distance (SA-43): a cache shared by two sorters corrupts the second sort.

use core::str::FromStr;

/// An implementation of the distance between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeSorter {
    /// By the exclusive or of the ids, as in Kademlia (S-34).
    #[default]
    Xor,
    /// Clockwise around the ring from the local node.
    Ring,
    /// Ring order, with the successors 1, 2, 4, 8 … steps away first, as in Chord's finger table (SA-42).
    ChordFinger,
}

impl NodeSorter {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("xor", Self::Xor), ("ring", Self::Ring), ("chord_finger", Self::ChordFinger)];
}

/// No sorter has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no sorter: use xor, ring or chord_finger")]
pub struct UnknownSorter(pub String);

impl FromStr for NodeSorter {
    type Err = UnknownSorter;

    fn from_str(text: &str) -> Result<Self, UnknownSorter> {
        let text = text.replace('-', "_");
        let named = Self::ALL.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, sorter)| sorter).ok_or(UnknownSorter(text))
    }
}

/// Two ids are not equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of {found} bytes among ids of {expected}: all ids of a group are equally long")]
pub struct IdLengthError {
    /// The length of the local id.
    pub expected: usize,
    /// The length that differs.
    pub found: usize,
}

impl NodeSorter {
    /// Sorts `nodes` in ascending order of distance from `local`; `id` returns the id of a node.
    ///
    /// # Errors
    /// If an id is not as long as `local`; the nodes are then unchanged.
    pub fn sort<T: Clone>(
        self,
        nodes: &mut [T],
        local: &[u8],
        id: impl Fn(&T) -> Vec<u8>,
    ) -> Result<(), IdLengthError> {
        let mut keyed = Vec::with_capacity(nodes.len());
        for node in nodes.iter() {
            let bytes = id(node);
            if bytes.len() != local.len() {
                return Err(IdLengthError { expected: local.len(), found: bytes.len() });
            }
            keyed.push((self.distance(local, &bytes), node.clone()));
        }
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        if self == Self::ChordFinger {
            keyed = fingers_first(keyed);
        }
        for (place, (_, node)) in nodes.iter_mut().zip(keyed) {
            *place = node;
        }
        Ok(())
    }

    /// How far `id` is from `local`; both are equally long.
    #[must_use]
    pub fn distance(self, local: &[u8], id: &[u8]) -> Vec<u8> {
        match self {
            Self::Xor => local.iter().zip(id).map(|(a, b)| a ^ b).collect(),
            Self::Ring | Self::ChordFinger => minus(id, local),
        }
    }
}

/// `a − b` on the circle of their length.
fn minus(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut difference = vec![0; a.len()];
    let mut borrow = false;
    for at in (0..a.len()).rev() {
        let (once, under) = a[at].overflowing_sub(b[at]);
        let (twice, under_again) = once.overflowing_sub(u8::from(borrow));
        difference[at] = twice;
        borrow = under || under_again;
    }
    difference
}

/// Takes the items at places 1, 2, 4, 8 … (counted from 1) to the front.
fn fingers_first<T>(sorted: Vec<T>) -> Vec<T> {
    let mut rest = Vec::with_capacity(sorted.len());
    let mut fingers = Vec::with_capacity(sorted.len());
    for (index, item) in sorted.into_iter().enumerate() {
        let place = index + 1;
        (if place.is_power_of_two() { &mut fingers } else { &mut rest }).push(item);
    }
    fingers.append(&mut rest);
    fingers
}
