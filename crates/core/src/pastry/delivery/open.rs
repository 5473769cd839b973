//! Open messages: delivered to an application of this node, which has not settled them yet (PD-6).
//!
//! A message is open until its origin stops waiting. A copy that arrives later is not delivered again: the application may
//! be working on the first one.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::RecentIds;
use crate::pastry::contact::Contact;
use crate::pastry::message::{AppName, MessageId};
use crate::time::Instant;

/// A message that an application has not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) app: AppName,
    pub(super) origin: Contact,
    /// The latest attempt that arrived.
    pub(super) attempt: u16,
    pub(super) hops: u8,
    pub(super) wants_answer: bool,
    pub(super) bytes: usize,
    /// When its origin stops waiting.
    pub(super) due: Instant,
}

/// All open messages, bounded in number and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenTable {
    list: BTreeMap<MessageId, Open>,
    due: BTreeSet<(Instant, MessageId)>,
    /// The messages whose origins stopped waiting last.
    expired: RecentIds,
    bytes: usize,
    messages_max: usize,
    bytes_max: usize,
}

impl OpenTable {
    /// `key` is a random number that makes the hash unpredictable.
    pub(super) fn new(messages_max: usize, bytes_max: usize, key: u64) -> Self {
        let expired = RecentIds::new(key, messages_max);
        Self { list: BTreeMap::new(), due: BTreeSet::new(), expired, bytes: 0, messages_max, bytes_max }
    }

    /// Whether a message of this many bytes is accepted. Any length is, if no other message is open.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.list.is_empty()
            || (self.list.len() < self.messages_max && self.bytes.saturating_add(bytes) <= self.bytes_max)
    }

    pub(super) fn insert(&mut self, id: MessageId, open: Open) {
        self.take(id);
        self.bytes += open.bytes;
        self.due.insert((open.due, id));
        self.list.insert(id, open);
    }

    /// Notes another attempt of a message; false if it is not open, and was not open until its origin stopped waiting.
    pub(super) fn note_duplicate(&mut self, id: MessageId, attempt: u16, due: Instant) -> bool {
        let Some(open) = self.list.get_mut(&id) else { return self.expired.contains(id.0) };
        open.attempt = open.attempt.max(attempt);
        if due > open.due {
            self.due.remove(&(open.due, id));
            open.due = due;
            self.due.insert((due, id));
        }
        true
    }

    pub(super) fn take(&mut self, id: MessageId) -> Option<Open> {
        let open = self.list.remove(&id)?;
        self.bytes -= open.bytes;
        self.due.remove(&(open.due, id));
        Some(open)
    }

    /// Takes all messages of an application, or of all applications.
    pub(super) fn take_of(&mut self, app: Option<&AppName>) -> Vec<(MessageId, Open)> {
        let is_its = |open: &Open| app.is_none_or(|app| open.app == *app);
        let ids: Vec<MessageId> =
            self.list.iter().filter(|(_, open)| is_its(open)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| Some((id, self.take(id)?))).collect()
    }

    /// Drops the messages whose origins no longer wait.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(_, id)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.take(id);
            self.expired.insert(id.0);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::id::Id;
    use crate::pastry::contact::Generation;

    fn open(bytes: usize, due: u64) -> Open {
        let origin = Contact { id: Id::MIN, addr: ([127, 0, 0, 1], 1).into(), generation: Generation(0) };
        let (app, due) = (AppName::default(), Instant::from_micros(due));
        Open { app, origin, attempt: 0, hops: 1, wants_answer: false, bytes, due }
    }

    #[test]
    fn pd_7_both_limits_hold_and_one_message_of_any_length_fits() {
        let mut table = OpenTable::new(3, 100, 7);
        assert!(table.has_room(1000), "the only one may be long");
        table.insert(MessageId(1), open(60, 5));
        assert!(!table.has_room(41) && table.has_room(40));
        table.insert(MessageId(2), open(1, 7));
        table.insert(MessageId(3), open(1, 6));
        assert!(!table.has_room(0), "three are open");
        assert!(table.note_duplicate(MessageId(1), 4, Instant::ZERO + Duration::from_secs(1)));
        assert!(table.take(MessageId(2)).is_some() && table.take(MessageId(2)).is_none());
        assert_eq!(table.deadline(), Some(Instant::from_micros(6)));
        table.expire(Instant::from_micros(6));
        assert_eq!(table.take(MessageId(1)).map(|open| open.attempt), Some(4), "a later attempt prolongs it");
        assert!(table.has_room(100) && table.deadline().is_none());
    }

    #[test]
    fn pd_9_a_copy_that_arrives_after_the_deadline_is_not_delivered_again() {
        let mut table = OpenTable::new(3, 100, 7);
        let later = Instant::from_micros(9);
        assert!(!table.note_duplicate(MessageId(1), 0, later), "it is new");
        table.insert(MessageId(1), open(1, 5));
        table.expire(Instant::from_micros(5));
        assert!(table.take(MessageId(1)).is_none(), "its origin does not wait any more");
        assert!(table.note_duplicate(MessageId(1), 1, later), "the application may be working on it");
        table.insert(MessageId(2), open(1, 6));
        table.take(MessageId(2));
        assert!(!table.note_duplicate(MessageId(2), 1, later), "one that was settled may come again");
    }
}
