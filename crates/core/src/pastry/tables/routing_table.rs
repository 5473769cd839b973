//! The routing table: for each length of common prefix and each next digit, one node (P-8 … P-12).
//!
//! It has as many rows as an id has digits, and as many columns as a digit has values. But a ring of a million nodes
//! fills about 75 cells of 512. So only the filled cells are stored, in order of row and column. A cell is found by
//! binary search, and "this row and all below" is a slice.

use crate::id::{Base, Id};
use crate::time::Instant;

/// A row and a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The length of the common prefix.
    pub row: u8,
    /// The first digit that differs.
    pub column: u8,
}

/// A filled cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its position.
    pub at: Position,
    /// Its node.
    pub id: Id,
    /// When the node replaced another one; `None` if the cell was empty before.
    pub replaced: Option<Instant>,
}

/// The filled cells of one node's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingTable {
    own: Id,
    base: Base,
    cells: Vec<Cell>,
    version: u32,
}

impl RoutingTable {
    /// The empty table of `own`.
    #[must_use]
    pub fn new(own: Id, base: Base) -> Self {
        Self { own, base, cells: Vec::new(), version: 0 }
    }

    /// Inserts a node into its cell if that is empty. Returns whether it was.
    pub fn insert(&mut self, id: Id) -> bool {
        let Some(at) = self.position(id) else { return false };
        let Err(index) = self.index(at) else { return false };
        self.cells.insert(index, Cell { at, id, replaced: None });
        self.version += 1;
        true
    }

    /// Inserts a node into its cell, whatever is there; the caller has decided P-12. Returns the node that was
    /// replaced.
    pub fn replace(&mut self, id: Id, now: Instant) -> Option<Id> {
        let index = self.index(self.position(id)?).ok()?;
        self.version += 1;
        let cell = &mut self.cells[index];
        cell.replaced = Some(now);
        Some(core::mem::replace(&mut cell.id, id))
    }

    /// Empties the cell of a node. Returns its position.
    pub fn remove(&mut self, id: Id) -> Option<Position> {
        let index = self.index(self.position(id)?).ok()?;
        if self.cells[index].id != id {
            return None;
        }
        self.version += 1;
        Some(self.cells.remove(index).at)
    }

    /// The position of a node (P-9); `None` for the own id. So the column of the own digit stays empty (PA-5).
    #[must_use]
    pub fn position(&self, id: Id) -> Option<Position> {
        let row = self.own.common_prefix(id, self.base);
        (row < self.base.digits()).then(|| Position { row: row as u8, column: id.digit(self.base, row) })
    }

    /// The filled cell at a position.
    #[must_use]
    pub fn cell(&self, at: Position) -> Option<&Cell> {
        self.index(at).ok().map(|index| &self.cells[index])
    }

    /// Whether the node has a cell.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.position(id).and_then(|at| self.cell(at)).is_some_and(|cell| cell.id == id)
    }

    /// All filled cells, by row and column.
    #[must_use]
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The filled cells of a row and of all rows below it.
    #[must_use]
    pub fn from_row(&self, row: u8) -> &[Cell] {
        let start = self.cells.partition_point(|cell| cell.at.row < row);
        &self.cells[start..]
    }

    /// The filled cells of a row.
    #[must_use]
    pub fn row(&self, row: u8) -> &[Cell] {
        let rows = self.from_row(row);
        &rows[..rows.partition_point(|cell| cell.at.row == row)]
    }

    /// How ids are cut into digits.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base
    }

    /// How often it has changed.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    fn index(&self, at: Position) -> Result<usize, usize> {
        self.cells.binary_search_by_key(&at, |cell| cell.at)
    }
}

#[cfg(test)]
#[path = "routing_table_tests.rs"]
mod tests;
