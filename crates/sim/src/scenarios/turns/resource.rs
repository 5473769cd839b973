//! The resource that checks fences: one for all hosts (FA-22).

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::turns::TurnId;

use crate::host::HostId;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Taken,
    /// The fence is below the greatest that the resource has seen.
    Refused,
    /// Two turns have one fence: the resource cannot distinguish them.
    Ambiguous,
}

/// A write that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// True time.
    pub(super) at: Duration,
    pub(super) host: HostId,
    pub(super) fence: u64,
}

/// Keeps the greatest fence of each name, refuses lower ones, and logs the first write of each turn.
#[derive(Debug, Default)]
pub(super) struct Resource {
    greatest: BTreeMap<&'static str, (u64, TurnId)>,
    log: Vec<Entry>,
    refused: u64,
}

impl Resource {
    pub(super) fn write(&mut self, name: &'static str, turn: TurnId, entry: Entry) -> Write {
        let greatest = self.greatest.get(name).copied();
        match greatest {
            Some((fence, _)) if entry.fence < fence => {
                self.refused += 1;
                return Write::Refused;
            }
            Some((fence, other)) if entry.fence == fence && other != turn => return Write::Ambiguous,
            Some((fence, _)) if entry.fence == fence => {}
            _ => self.log.push(entry),
        }
        self.greatest.insert(name, (entry.fence, turn));
        Write::Taken
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The first writes that it took of each turn.
    pub(super) fn log(&self) -> &[Entry] {
        &self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fa_22_a_resource_refuses_lower_fences_and_notices_equal_ones() {
        let mut resource = Resource::default();
        let mut write = |name, turn, fence| {
            resource.write(name, TurnId(turn), Entry { at: Duration::ZERO, host: HostId::new(0), fence })
        };
        assert_eq!(write("a", 1, 5), Write::Taken);
        assert_eq!(write("a", 1, 5), Write::Taken, "again in the same turn");
        assert_eq!(write("a", 2, 5), Write::Ambiguous);
        assert_eq!(write("a", 3, 7), Write::Taken);
        assert_eq!(write("a", 1, 5), Write::Refused);
        assert_eq!(write("b", 1, 5), Write::Taken, "names have fences of their own");
        let fences: Vec<u64> = resource.log().iter().map(|entry| entry.fence).collect();
        assert_eq!((fences, resource.refused()), (vec![5, 7, 5], 1));
    }
}
