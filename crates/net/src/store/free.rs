//! The free extents of a file.

use std::collections::{BTreeMap, BTreeSet};

/// A part of the file: where it begins and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Extent {
    pub(super) const fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// The free extents below the end of the last used one. Neighbours are always joined.
#[derive(Debug, Default)]
pub(super) struct Free {
    by_offset: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    /// Behind it nothing was ever in use.
    end: u64,
}

impl Free {
    /// The places that these leave free.
    pub(super) fn around(mut used: Vec<Extent>) -> Self {
        used.sort_unstable();
        let mut free = Self::default();
        for extent in used {
            if extent.offset > free.end {
                free.insert(Extent { offset: free.end, len: extent.offset - free.end });
            }
            free.end = free.end.max(extent.end());
        }
        free
    }

    /// The smallest part that is long enough, or a new one at the end.
    pub(super) fn take(&mut self, len: u64) -> Extent {
        let Some(&(found, offset)) = self.by_len.range((len, 0)..).next() else {
            let extent = Extent { offset: self.end, len };
            self.end += len;
            return extent;
        };
        self.remove(Extent { offset, len: found });
        if found > len {
            self.insert(Extent { offset: offset + len, len: found - len });
        }
        Extent { offset, len }
    }

    /// Gives a part back.
    pub(super) fn give(&mut self, mut extent: Extent) {
        if let Some((&offset, &len)) = self.by_offset.range(..extent.offset).next_back()
            && offset + len == extent.offset
        {
            self.remove(Extent { offset, len });
            extent = Extent { offset, len: len + extent.len };
        }
        if let Some(&len) = self.by_offset.get(&extent.end()) {
            self.remove(Extent { offset: extent.end(), len });
            extent.len += len;
        }
        if extent.end() == self.end {
            self.end = extent.offset;
        } else {
            self.insert(extent);
        }
    }

    /// Behind it nothing is in use.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn insert(&mut self, extent: Extent) {
        self.by_offset.insert(extent.offset, extent.len);
        self.by_len.insert((extent.len, extent.offset));
    }

    fn remove(&mut self, extent: Extent) {
        self.by_offset.remove(&extent.offset);
        self.by_len.remove(&(extent.len, extent.offset));
    }
}

#[cfg(test)]
mod tests {
    use annulus_core::Rng;

    use super::*;

    #[test]
    fn used_extents_never_overlap_and_freed_ones_are_reused() {
        let (mut rng, mut free, mut used) = (Rng::from_number(1, 0), Free::default(), Vec::<Extent>::new());
        for _ in 0..3000 {
            if used.len() > 40 || (!used.is_empty() && rng.below(2) == 0) {
                free.give(used.swap_remove(rng.index(used.len())));
            } else {
                used.push(free.take(rng.below(5) + 1));
            }
            used.sort_unstable();
            assert!(used.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "{used:?}");
            assert_eq!(free.end(), used.last().map_or(0, |last| last.end()));
            let (len, gaps) = (used.iter().map(|extent| extent.len).sum::<u64>(), &free.by_offset);
            assert_eq!(len + gaps.values().sum::<u64>(), free.end(), "every byte is used or free");
            let again = Free::around(used.clone());
            assert_eq!((&again.by_offset, again.end), (gaps, free.end), "and can be found again");
        }
        assert!(free.end() < 300, "{} for at most 41 of at most 5", free.end());
    }
}
