//! The tables of the database: one for each space, and one with the places of the large values of all spaces.

use std::collections::BTreeMap;
use std::ops::Bound;

use annulus_core::{SpaceId, StoreFault};
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::free::Extent;
use super::unsynced::{Stored, Unsynced};
use super::values::{Values, place_from_bytes, place_to_bytes};
use super::{Outcome, PAGE_BYTES};

/// Space and key of a large value, to its place.
const PLACES: &str = "annulus/places";

type Bytes = &'static [u8];
type Definition<'a> = TableDefinition<'a, Bytes, Bytes>;
type Table<'t> = redb::Table<'t, Bytes, Bytes>;

/// The spaces of a machine, with the names of their tables.
pub(super) type Spaces = [(SpaceId, String)];

pub(super) fn definition(name: &str) -> Definition<'_> {
    Definition::new(name)
}

pub(super) fn position(spaces: &Spaces, space: SpaceId) -> Option<usize> {
    spaces.iter().position(|(id, _)| *id == space)
}

/// The result of an operation on a space that was not declared: a bug of the machine.
pub(super) fn unknown(space: SpaceId) -> Outcome {
    tracing::error!(%space, "the machine used a space it did not declare");
    Outcome::Failed(StoreFault::Broken)
}

/// Makes the tables that are missing.
pub(super) fn make(database: &redb::Database, spaces: &Spaces) -> Result<(), redb::Error> {
    use redb::ReadableDatabase as _;
    let names = || spaces.iter().map(|(_, name)| name.as_str()).chain([PLACES]);
    let present = database.begin_read()?;
    let is_missing =
        |name| matches!(present.open_table(definition(name)), Err(TableError::TableDoesNotExist(_)));
    if !names().any(is_missing) {
        return Ok(());
    }
    drop(present);
    let transaction = database.begin_write()?;
    for name in names() {
        transaction.open_table(definition(name))?;
    }
    Ok(transaction.commit()?)
}

/// Every place that the database names, and the spaces that have some.
pub(super) fn places(transaction: &ReadTransaction) -> Result<(Vec<Extent>, FarSpaces), redb::Error> {
    let (mut places, mut spaces) = (Vec::new(), FarSpaces::new());
    for entry in transaction.open_table(definition(PLACES))?.range::<&[u8]>(..)? {
        let (key, place) = entry?;
        places.extend(place_from_bytes(place.value()));
        spaces.extend(key.value().first_chunk());
    }
    Ok((places, spaces))
}

/// The spaces that have had large values: in all others there is no need to look for them.
pub(super) type FarSpaces = std::collections::BTreeSet<[u8; SPACE_BYTES]>;

/// The tables of one writing transaction. Each may be open only once, and opening is not free: it happens at the first use.
pub(super) struct Writing<'t> {
    transaction: &'t WriteTransaction,
    spaces: &'t Spaces,
    open: Vec<Option<Table<'t>>>,
    places: Table<'t>,
}

impl<'t> Writing<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction, spaces: &'t Spaces) -> Result<Self, redb::Error> {
        let places = transaction.open_table(definition(PLACES))?;
        Ok(Self { transaction, spaces, open: spaces.iter().map(|_| None).collect(), places })
    }

    /// Sets the value of a key. Where it had a large value before, its place is released.
    pub(super) fn set(
        &mut self,
        space: SpaceId,
        key: &[u8],
        stored: &Stored,
        values: &mut Values,
    ) -> Result<(), redb::Error> {
        if values.may_be_far(prefix(space), matches!(stored, Stored::Far(_))) {
            let far_key = far_key(space, key);
            let old = match stored {
                Stored::Far(place) => self.places.insert(&far_key[..], &place_to_bytes(*place)[..])?,
                _ => self.places.remove(&far_key[..])?,
            };
            if let Some(place) = old.and_then(|old| place_from_bytes(old.value())) {
                values.release(place);
            }
        }
        let Some(table) = self.table(space)? else { return Ok(()) };
        match stored {
            Stored::Inline(value) => drop(table.insert(key, &value[..])?),
            Stored::Nothing | Stored::Far(_) => drop(table.remove(key)?),
        }
        Ok(())
    }

    pub(super) fn get(
        &mut self,
        space: SpaceId,
        key: &[u8],
        values: &Values,
    ) -> Result<Outcome, redb::Error> {
        let place =
            self.places.get(&far_key(space, key)[..])?.and_then(|place| place_from_bytes(place.value()));
        match self.table(space)? {
            Some(table) => get(table, place, key, values),
            None => Ok(unknown(space)),
        }
    }

    pub(super) fn page(&mut self, page: &Page<'_>, values: &Values) -> Result<Outcome, redb::Error> {
        self.table(page.space)?;
        let at = position(self.spaces, page.space);
        match at.and_then(|at| self.open[at].as_ref()) {
            Some(table) => page.read(table, &self.places, &Unsynced::default(), values),
            None => Ok(unknown(page.space)),
        }
    }

    /// The table of a space, if it was declared.
    fn table(&mut self, space: SpaceId) -> Result<Option<&mut Table<'t>>, redb::Error> {
        let Some(at) = position(self.spaces, space) else { return Ok(None) };
        if self.open[at].is_none() {
            self.open[at] = Some(self.transaction.open_table(definition(&self.spaces[at].1))?);
        }
        Ok(self.open[at].as_mut())
    }
}

/// The tables of one reading transaction, and the writes that were lost when the database was opened again.
pub(super) struct Reading<'t> {
    pub(super) transaction: &'t ReadTransaction,
    pub(super) spaces: &'t Spaces,
    pub(super) missing: &'t Unsynced,
}

impl Reading<'_> {
    pub(super) fn get(&self, space: SpaceId, key: &[u8], values: &Values) -> Result<Outcome, redb::Error> {
        match self.missing.get(space, key) {
            Some(Stored::Nothing) => return Ok(Outcome::Value(None)),
            Some(Stored::Inline(value)) => return Ok(Outcome::Value(Some(value.to_vec()))),
            Some(Stored::Far(place)) => return Ok(Outcome::Value(Some(values.read(*place)?))),
            None => {}
        }
        let Some(at) = position(self.spaces, space) else { return Ok(unknown(space)) };
        let table = self.transaction.open_table(definition(&self.spaces[at].1))?;
        let places = self.transaction.open_table(definition(PLACES))?;
        let place = places.get(&far_key(space, key)[..])?.and_then(|place| place_from_bytes(place.value()));
        get(&table, place, key, values)
    }

    pub(super) fn page(&self, page: &Page<'_>, values: &Values) -> Result<Outcome, redb::Error> {
        let Some(at) = position(self.spaces, page.space) else { return Ok(unknown(page.space)) };
        let table = self.transaction.open_table(definition(&self.spaces[at].1))?;
        let places = self.transaction.open_table(definition(PLACES))?;
        page.read(&table, &places, self.missing, values)
    }
}

fn get(
    table: &impl ReadableTable<Bytes, Bytes>,
    place: Option<Extent>,
    key: &[u8],
    values: &Values,
) -> Result<Outcome, redb::Error> {
    Ok(Outcome::Value(match place {
        Some(place) => Some(values.read(place)?),
        None => table.get(key)?.map(|value| value.value().to_vec()),
    }))
}

/// The requested part of a range.
pub(super) struct Page<'a> {
    pub(super) space: SpaceId,
    pub(super) from: &'a [u8],
    pub(super) until: &'a [u8],
    pub(super) entries_max: u32,
}

impl Page<'_> {
    /// The entries of both tables and of the lost writes, in order. Each source is read only as far as the page may
    /// reach.
    fn read(
        &self,
        table: &impl ReadableTable<Bytes, Bytes>,
        places: &impl ReadableTable<Bytes, Bytes>,
        missing: &Unsynced,
        values: &Values,
    ) -> Result<Outcome, redb::Error> {
        // The database calls a range that ends before it begins a bug; here it is empty.
        if !self.until.is_empty() && self.until <= self.from {
            return Ok(Outcome::Page { entries: Vec::new(), more: false });
        }
        let mut found = Found::default();
        // One entry more than requested shows whether there is more; removed entries do not count.
        let reach = self.entries_max as usize + 1 + missing.len();
        let end = if self.until.is_empty() { Bound::Unbounded } else { Bound::Excluded(self.until) };
        let (mut count, mut bytes) = (0, 0);
        for entry in table.range::<&[u8]>((Bound::Included(self.from), end))? {
            let (key, value) = entry?;
            let (key, value) = (key.value().to_vec(), value.value().to_vec());
            (count, bytes) = (count + 1, bytes + key.len() + value.len());
            found.add(key, Stored::Inline(value.into()), count >= reach || bytes >= PAGE_BYTES);
            if found.is_cut() {
                break;
            }
        }
        let prefix = far_key(self.space, &[]);
        for (index, entry) in places.range::<&[u8]>(&far_key(self.space, self.from)[..]..)?.enumerate() {
            let (key, place) = entry?;
            let Some(key) = key.value().strip_prefix(&prefix[..]) else { break };
            if !self.until.is_empty() && key >= self.until {
                break;
            }
            let Some(place) = place_from_bytes(place.value()) else { continue };
            let is_last = index + 1 >= reach;
            found.add(key.to_vec(), Stored::Far(place), is_last);
            if is_last {
                break;
            }
        }
        for (key, stored) in missing.range(self.space, self.from, self.until) {
            found.add(key.to_vec(), stored.clone(), false);
        }
        self.fill(found, values)
    }

    fn fill(&self, found: Found, values: &Values) -> Result<Outcome, redb::Error> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, stored) in found.entries {
            let is_full = entries.len() >= self.entries_max as usize || bytes >= PAGE_BYTES;
            if found.cut_at.as_ref().is_some_and(|cut_at| key > *cut_at) {
                break;
            }
            let value = match stored {
                Stored::Nothing => continue,
                _ if is_full => return Ok(Outcome::Page { entries, more: true }),
                Stored::Inline(value) => value.to_vec(),
                Stored::Far(place) => values.read(place)?,
            };
            bytes += key.len() + value.len();
            entries.push((key, value));
        }
        Ok(Outcome::Page { entries, more: found.cut_at.is_some() })
    }
}

/// Entries of several sources. A source that was not read to its end says nothing about what is behind its last entry.
#[derive(Default)]
struct Found {
    entries: BTreeMap<Vec<u8>, Stored>,
    cut_at: Option<Vec<u8>>,
}

impl Found {
    /// An entry, that of a later source in place of an earlier; `is_last` if its source is not read any further.
    fn add(&mut self, key: Vec<u8>, stored: Stored, is_last: bool) {
        if is_last && self.cut_at.as_ref().is_none_or(|cut_at| key < *cut_at) {
            self.cut_at = Some(key.clone());
        }
        self.entries.insert(key, stored);
    }

    fn is_cut(&self) -> bool {
        self.cut_at.is_some()
    }
}

/// Service and number of the space, in front of the key.
pub(super) const SPACE_BYTES: usize = 3;

fn prefix(space: SpaceId) -> [u8; SPACE_BYTES] {
    let [high, low] = space.local().to_be_bytes();
    [space.service().0, high, low]
}

fn far_key(space: SpaceId, key: &[u8]) -> Vec<u8> {
    [&prefix(space)[..], key].concat()
}
