//! The table of members: found by id, walked in order of ids, counted and hashed as it changes.

use core::cmp::Ordering;

use super::contents::Contents;
use super::member::Member;
use super::status::{State, Status};
use super::tree::{Range, Tree};
use crate::id::Id;

/// The place of a member in the table, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// The slot with this index.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Records per page. Pages are allocated whole and never moved, so the table needs little more memory than its records.
const PAGE: usize = 64;

/// All members, the local node and the recently dead among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Members {
    pages: Vec<Vec<Member>>,
    free: Vec<Slot>,
    /// Sorted by id: the first bits of the id, so that a search stays within one array, and the slot of the record.
    index: Vec<(u32, Slot)>,
    tree: Tree,
    live: usize,
    members_max: usize,
}

impl Members {
    /// An empty table for up to `members_max` members.
    #[must_use]
    pub fn new(members_max: usize) -> Self {
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            index: Vec::new(),
            tree: Tree::default(),
            live: 0,
            members_max,
        }
    }

    /// Adds a member that is not there; `None` if the table is full.
    pub(super) fn insert(&mut self, id: Id, status: Status, contents: Contents<'_>) -> Option<Slot> {
        let Err(place) = self.search(id) else { return None };
        if self.index.len() >= self.members_max {
            return None;
        }
        let slot = self.allot(Member::new(id, status, contents));
        grow(&mut self.index);
        self.index.insert(place, (prefix(id), slot));
        if status.state.is_live() {
            self.live += 1;
            self.tree.toggle(id, self.get(slot).hash());
            self.fit();
        }
        Some(slot)
    }

    /// Merges an update of a member; returns whether anything changed.
    pub(super) fn merge(&mut self, slot: Slot, status: Status, contents: Option<Contents<'_>>) -> bool {
        if !self.get(slot).is_news(status, contents) {
            return false;
        }
        self.change(slot, |member| {
            member.merge(status, contents);
        });
        true
    }

    /// Sets our own record before it is first sent.
    pub(super) fn describe(&mut self, slot: Slot, contents: Contents<'_>) {
        self.change(slot, |member| member.describe(contents));
    }

    /// Forgets a member.
    pub(super) fn remove(&mut self, slot: Slot) {
        let member = self.get(slot);
        let (id, status, addr) = (member.id(), member.status(), member.contents().addr());
        let Ok(place) = self.search(id) else { return };
        self.index.remove(place);
        self.free.push(slot);
        // The heap data of the record is freed now, the record itself when the slot is used again.
        let gone = Status { state: State::Dead, ..status };
        self.change(slot, |member| *member = Member::new(id, gone, Contents::from_parts(addr, &[])));
    }

    pub(super) fn at_mut(&mut self, slot: Slot) -> &mut Member {
        &mut self.pages[slot.index() / PAGE][slot.index() % PAGE]
    }

    /// The slot of a member.
    #[must_use]
    pub fn find(&self, id: Id) -> Option<Slot> {
        self.search(id).ok().map(|place| self.index[place].1)
    }

    /// The record in a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> &Member {
        &self.pages[slot.index() / PAGE][slot.index() % PAGE]
    }

    /// The record of a member.
    #[must_use]
    pub fn member(&self, id: Id) -> Option<&Member> {
        self.find(id).map(|slot| self.get(slot))
    }

    /// How many are alive or suspect, the local node included (SA-30).
    #[must_use]
    pub const fn live(&self) -> usize {
        self.live
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All records, in order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Member)> {
        self.index.iter().map(|&(_, slot)| (slot, self.get(slot)))
    }

    /// The records in a range, in order of ids.
    pub(super) fn range(&self, range: Range) -> impl Iterator<Item = (Slot, &Member)> {
        let (from, until) = self.places(range);
        self.index[from..until].iter().map(|&(_, slot)| (slot, self.get(slot)))
    }

    /// The records from this id on, in order of ids.
    pub(super) fn from(&self, id: u128) -> impl Iterator<Item = (Slot, &Member)> {
        let place = self.search(Id::new(id)).unwrap_or_else(|place| place);
        self.index[place..].iter().map(|&(_, slot)| (slot, self.get(slot)))
    }

    /// How many records a range has.
    pub(super) fn count(&self, range: Range) -> usize {
        let (from, until) = self.places(range);
        until - from
    }

    /// The hash of the live members in a range.
    pub(super) fn hash(&self, range: Range) -> u64 {
        self.tree.hash(range).unwrap_or_else(|| {
            let live = self.range(range).filter(|(_, member)| member.state().is_live());
            live.fold(0, |sum, (_, member)| sum ^ member.hash())
        })
    }

    /// The hashes of the children of a range; those too small for the tree in one walk over their members.
    pub(super) fn child_hashes(&self, range: Range) -> [u64; Range::FAN] {
        let kept = |child| range.child(child).and_then(|child| self.tree.hash(child));
        if kept(0).is_some() {
            return core::array::from_fn(|child| kept(child).unwrap_or_default());
        }
        let mut sums = [0; Range::FAN];
        for (_, member) in self.range(range) {
            sums[range.child_of(member.id().number())] ^= member.hash();
        }
        sums
    }

    /// Where in the index a range begins and ends.
    fn places(&self, range: Range) -> (usize, usize) {
        let from = self.search(Id::new(range.first())).unwrap_or_else(|place| place);
        let until = self.search(Id::new(range.last())).map_or_else(|place| place, |place| place + 1);
        (from, until)
    }

    /// The place of an id in the index, or where it would be inserted. Ids are spread evenly, so the first bits give a
    /// good guess, and every miss gives a better one. Ids that were chosen to lie close together cost a binary search.
    fn search(&self, id: Id) -> Result<usize, usize> {
        let (wanted, len) = (prefix(id), self.index.len());
        let (mut low, mut high) = (0, len);
        let mut guess = ahead(wanted, len);
        for _ in 0..GUESSES {
            if low == high {
                break;
            }
            let place = guess.clamp(low, high - 1);
            let (at, slot) = self.index[place];
            match at.cmp(&wanted).then_with(|| self.get(slot).id().cmp(&id)) {
                Ordering::Equal => return Ok(place),
                Ordering::Less => {
                    low = place + 1;
                    guess = low + ahead(wanted - at, len);
                }
                Ordering::Greater => {
                    high = place;
                    guess = high.saturating_sub(1 + ahead(at - wanted, len));
                }
            }
        }
        let compare = |&(at, slot): &(u32, Slot)| at.cmp(&wanted).then_with(|| self.get(slot).id().cmp(&id));
        let found = self.index[low..high].binary_search_by(compare);
        found.map(|place| low + place).map_err(|place| low + place)
    }

    fn allot(&mut self, member: Member) -> Slot {
        if let Some(slot) = self.free.pop() {
            *self.at_mut(slot) = member;
            return slot;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = self.pages.len() - 1;
        self.pages[page].push(member);
        Slot::new((page * PAGE + self.pages[page].len() - 1) as u32)
    }

    /// Changes a record, and updates count and hashes.
    fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Member)) {
        let member = self.at_mut(slot);
        let (id, was_live, before) = (member.id(), member.state().is_live(), member.hash());
        change(member);
        let (is_live, after) = (member.state().is_live(), member.hash());
        self.live = self.live + usize::from(is_live) - usize::from(was_live);
        self.tree.toggle(id, before ^ after);
        self.fit();
    }

    fn fit(&mut self) {
        if self.tree.is_unsuitable(self.live) {
            let mut tree = core::mem::take(&mut self.tree);
            let live = self.iter().filter(|(_, member)| member.state().is_live());
            let hashes = live.map(|(_, member)| (member.id(), member.hash()));
            tree.rebuild(self.live, hashes);
            self.tree = tree;
        }
    }
}

/// How many guesses precede the binary search.
const GUESSES: usize = 6;

/// How many of `len` evenly spread ids lie within a distance, in first bits.
const fn ahead(distance: u32, len: usize) -> usize {
    ((distance as u64 * len as u64) >> 32) as usize
}

/// The first 32 bits of an id.
const fn prefix(id: Id) -> u32 {
    (id.number() >> 96) as u32
}

/// Grows by an eighth instead of doubling, so that a table of members does not take twice its memory.
pub(super) fn grow<T>(vec: &mut Vec<T>) {
    if vec.len() == vec.capacity() {
        vec.reserve_exact(vec.len() / 8 + 8);
    }
}
