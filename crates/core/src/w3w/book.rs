//! The address book: names, addresses and abilities of nodes. It survives absences and restarts (CU-25).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::Serialize;

use super::disk::{Disk, Pending};
use super::machine::{BOOK, Mesh};
use super::nid::Nid;
use crate::id::Id;
use crate::outbox::Outbox;
use crate::wire::{DecodeError, Reader};

/// The most entries.
const ENTRIES_MAX: usize = 65_536;
/// The most names of one node, and the longest name.
const NAMES_MAX: usize = 4;
const NAME_BYTES_MAX: usize = 255;
/// In a full book, an entry that was never written to is evicted after this many seconds.
const STALE_SECONDS: u64 = 365 * 86_400;
/// A sighting is stored at most this often.
const REFRESH_SECONDS: u64 = 3600;

/// The presence of a member, as `members` reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// `members` has not reported it.
    #[default]
    Unknown,
    /// It answers.
    Alive,
    /// It does not answer, and may be alive.
    Suspected,
    /// It failed.
    Dead,
    /// It left.
    Left,
}

/// A node in the address book.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BookEntry {
    /// Its address in the mesh.
    pub nid: Nid,
    /// Its names, latest first.
    pub names: Vec<String>,
    /// The last address at which it was seen.
    pub ip: Option<Ipv4Addr>,
    /// Whether it knows letters (CU-6).
    pub knows_letters: bool,
    /// Whether the user set its name.
    pub is_set: bool,
    /// Whether this node ever sent a message to it.
    pub is_written_to: bool,
    /// When it was first seen, in seconds since 1970.
    pub first_seen: u64,
    /// When it was last seen, in seconds since 1970; 0 if never. While it is present, up to an hour old.
    pub last_seen: u64,
    /// Identifies its store, as its receipts claim.
    pub mailbox: Option<u64>,
    /// Its presence. Not stored.
    pub presence: Presence,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Book {
    entries: BTreeMap<Nid, BookEntry>,
    /// Entries that have changed since they were stored.
    changed: BTreeSet<Nid>,
    /// Entries that were evicted and are deleted from the store.
    evicted: Vec<Nid>,
}

impl Book {
    /// Notes that a node was seen; `change` adds facts about it. Returns whether there is something to store.
    pub(super) fn sight(&mut self, nid: Nid, seconds: u64, change: impl FnOnce(&mut BookEntry)) -> bool {
        self.note(nid, seconds, |entry| {
            change(entry);
            if seconds.saturating_sub(entry.last_seen) >= REFRESH_SECONDS {
                entry.last_seen = seconds;
            }
        })
    }

    /// Notes facts about a node, which need not be present. Returns whether there is something to store.
    pub(super) fn note(&mut self, nid: Nid, seconds: u64, change: impl FnOnce(&mut BookEntry)) -> bool {
        if !self.entries.contains_key(&nid) && self.entries.len() >= ENTRIES_MAX && !self.evict(seconds) {
            return false;
        }
        let new = || BookEntry { nid, first_seen: seconds, ..BookEntry::default() };
        let entry = self.entries.entry(nid).or_insert_with(new);
        let before = entry.clone();
        change(entry);
        let presence = entry.presence;
        let is_changed = BookEntry { presence, ..before } != *entry;
        if is_changed {
            self.changed.insert(nid);
        }
        is_changed
    }

    /// Sets the presence of a node. One that has just gone was seen until now.
    pub(super) fn set_presence(entry: &mut BookEntry, presence: Presence, seconds: u64) {
        let is_there = |presence| matches!(presence, Presence::Alive | Presence::Suspected);
        if is_there(entry.presence) && !is_there(presence) {
            entry.last_seen = seconds;
        }
        entry.presence = presence;
    }

    /// Adds a name of a node.
    pub(super) fn add_name(entry: &mut BookEntry, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || entry.names.first() == Some(&name) {
            return;
        }
        entry.names.retain(|known| *known != name);
        entry.names.insert(0, name);
        entry.names.truncate(NAMES_MAX);
    }

    /// Sets a name that the user chose. Another node whose name the user had set to this one loses it.
    pub(super) fn set(&mut self, name: &str, nid: Nid, letters: bool, seconds: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_set && entry.nid != nid) {
            if entry.names.iter().any(|known| known == name) {
                entry.names.retain(|known| known != name);
                entry.is_set = false;
                self.changed.insert(entry.nid);
            }
        }
        self.note(nid, seconds, |entry| {
            Self::add_name(entry, name);
            entry.is_set = true;
            entry.knows_letters |= letters;
        });
    }

    /// The nodes that a name may mean: one if it is unambiguous (CU-25).
    pub(super) fn lookup(&self, name: &str) -> Vec<BookEntry> {
        let named = |entry: &&BookEntry| entry.names.iter().any(|known| known == name);
        let found: Vec<&BookEntry> = self.entries.values().filter(named).collect();
        if let Some(set) = found.iter().find(|entry| entry.is_set) {
            return vec![(*set).clone()];
        }
        let is_there = |entry: &&&BookEntry| matches!(entry.presence, Presence::Alive | Presence::Suspected);
        let mut alive = found.iter().filter(is_there);
        if let (Some(one), None) = (alive.next(), alive.next()) {
            let others = found.iter().filter(|entry| entry.nid != one.nid);
            if others.into_iter().all(|entry| !entry.is_written_to) {
                return vec![(*one).clone()];
            }
        }
        found.into_iter().cloned().collect()
    }

    /// Whether a node knows letters (CU-6).
    pub(super) fn knows_letters(&self, nid: Nid) -> bool {
        self.entries.get(&nid).is_some_and(|entry| entry.knows_letters)
    }

    /// Whether a letter from this node is no news: it knows letters, and was seen lately.
    pub(super) fn is_current(&self, nid: Nid, seconds: u64) -> bool {
        let is_late = |entry: &BookEntry| seconds.saturating_sub(entry.last_seen) >= REFRESH_SECONDS;
        self.entries.get(&nid).is_some_and(|entry| entry.knows_letters && !is_late(entry))
    }

    pub(super) fn get(&self, nid: Nid) -> Option<&BookEntry> {
        self.entries.get(&nid)
    }

    /// The nodes with this id.
    pub(super) fn with_id(&self, id: Id) -> impl Iterator<Item = Nid> {
        let (mut first, mut last) = ([0; 32], [255; 32]);
        first[..16].copy_from_slice(&id.to_bytes());
        last[..16].copy_from_slice(&id.to_bytes());
        self.entries.range(Nid::from_bytes(first)..=Nid::from_bytes(last)).map(|(nid, _)| *nid)
    }

    /// All entries from a NID on.
    pub(super) fn list(&self, from: Option<Nid>, entries_max: usize) -> Vec<BookEntry> {
        self.entries
            .range(from.unwrap_or_default()..)
            .take(entries_max)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Writes the entries that have changed.
    pub(super) fn store(&mut self, disk: &mut Disk, out: &mut Outbox<'_, Mesh>) {
        if self.changed.is_empty() && self.evicted.is_empty() {
            return;
        }
        let op = disk.begin(Pending::Other);
        let (changed, evicted) = (core::mem::take(&mut self.changed), core::mem::take(&mut self.evicted));
        out.batch(op, true, |batch| {
            for nid in evicted {
                batch.delete(BOOK, &nid.to_bytes());
            }
            for entry in changed.iter().filter_map(|nid| self.entries.get(nid)) {
                batch.put(BOOK, &entry.nid.to_bytes(), &to_bytes(entry));
            }
        });
    }

    /// Loads a record of the store.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) {
        if let (Ok(nid), Ok(entry)) = (key.try_into(), from_bytes(value)) {
            let nid = Nid::from_bytes(nid);
            self.entries.insert(nid, BookEntry { nid, ..entry });
        }
    }

    /// Makes room: evicts an entry that was never written to and not seen for a year.
    fn evict(&mut self, seconds: u64) -> bool {
        let is_stale = |entry: &&BookEntry| {
            !entry.is_set && !entry.is_written_to && entry.last_seen + STALE_SECONDS < seconds
        };
        let oldest = self.entries.values().filter(is_stale).min_by_key(|entry| entry.last_seen);
        let Some(nid) = oldest.map(|entry| entry.nid) else { return false };
        self.entries.remove(&nid);
        self.evicted.push(nid);
        true
    }
}

fn to_bytes(entry: &BookEntry) -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = [entry.knows_letters, entry.is_set, entry.is_written_to, entry.mailbox.is_some()];
    bytes.push(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
    bytes.extend_from_slice(&entry.first_seen.to_be_bytes());
    bytes.extend_from_slice(&entry.last_seen.to_be_bytes());
    bytes.extend_from_slice(&entry.mailbox.unwrap_or_default().to_be_bytes());
    bytes.extend_from_slice(&entry.ip.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    for name in &entry.names {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

fn from_bytes(bytes: &[u8]) -> Result<BookEntry, DecodeError> {
    let mut reader = Reader::new(bytes);
    let flags = reader.u8()?;
    let (first_seen, last_seen, mailbox) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let ip = Ipv4Addr::from(reader.array::<4>()?);
    let mut names = Vec::new();
    while reader.remaining() > 0 && names.len() < NAMES_MAX {
        let len = reader.u8()?;
        let name = core::str::from_utf8(reader.bytes(len.into())?).map_err(|_| DecodeError::Field("name"))?;
        names.push(name.to_owned());
    }
    Ok(BookEntry {
        names,
        ip: Some(ip).filter(|ip| !ip.is_unspecified()),
        knows_letters: flags & 1 != 0,
        is_set: flags & 2 != 0,
        is_written_to: flags & 4 != 0,
        first_seen,
        last_seen,
        mailbox: (flags & 8 != 0).then_some(mailbox),
        ..BookEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nid(first: u8) -> Nid {
        Nid::from_bytes([first; 32])
    }

    #[test]
    fn cu_25_a_name_means_the_one_that_is_set_or_the_only_one_alive() {
        let mut book = Book::default();
        let named = |book: &mut Book, first: u8, presence: Presence, is_written_to: bool| {
            book.note(nid(first), 10, |entry| {
                Book::add_name(entry, "blue");
                (entry.presence, entry.is_written_to) = (presence, is_written_to);
            });
        };
        let found = |book: &Book| book.lookup("blue").iter().map(|entry| entry.nid).collect::<Vec<_>>();
        named(&mut book, 1, Presence::Unknown, false);
        assert_eq!(found(&book), [nid(1)], "away, and the only one");
        named(&mut book, 2, Presence::Alive, false);
        assert_eq!(found(&book), [nid(2)], "the only one alive; nothing was sent to the other");
        named(&mut book, 1, Presence::Dead, true);
        assert_eq!(found(&book), [nid(1), nid(2)], "ambiguous");
        book.set("blue", nid(1), true, 20);
        assert_eq!(found(&book), [nid(1)]);
        book.set("blue", nid(2), false, 20);
        assert_eq!(found(&book), [nid(2)], "the user has changed its mind");
    }

    #[test]
    fn cu_25_entries_come_back_from_the_store() {
        let mut book = Book::default();
        book.set("grün", nid(3), true, 77);
        book.note(nid(3), 78, |entry| entry.ip = Some(Ipv4Addr::new(10, 0, 0, 3)));
        let entry = book.get(nid(3)).unwrap().clone();
        let mut again = Book::default();
        again.load(&nid(3).to_bytes(), &to_bytes(&entry));
        assert_eq!(again.get(nid(3)), Some(&entry));
        assert!(again.knows_letters(nid(3)));
    }
}
