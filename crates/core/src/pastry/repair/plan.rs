//! The plan of repairs: requests under way, and those still to send.

use core::time::Duration;
use std::collections::VecDeque;

use crate::id::Id;
use crate::pastry::tables::{Position, RoutingTable};
use crate::ring::Side;
use crate::time::Instant;

/// How many rounds of requests one trigger may cause on one side of the leaf set.
const LEAF_ROUNDS_MAX: u8 = 6;
/// How many nodes get a request for one cell at a time (PA-40).
const CELL_PARALLEL: usize = 3;
/// The most cells under repair; the periodic improvement covers the others.
const CELLS_MAX: usize = 64;

/// The reason of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A side of the leaf set lost a node (P-15).
    LeafSet(Side),
    /// A leaf's leaf set has another version than this node saw.
    LeafCheck,
    /// A cell of the routing table lost its node (P-10).
    Cell(Position),
    /// The neighbourhood set lost a node (P-19).
    Neighbourhood,
    /// There may be nearer nodes (PA-15).
    Improve,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) to: Id,
    pub(super) why: Why,
    due: Instant,
}

/// The requests under way. All have the same timeout, so the oldest ends first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    list: VecDeque<(u32, Request)>,
}

impl Requests {
    /// Notes a request. Its token has `random` bits, so that only the receiver knows it.
    pub(super) fn insert(&mut self, random: u32, to: Id, why: Why, due: Instant) -> u32 {
        let is_taken = |token: u32| self.list.iter().any(|(other, _)| *other == token);
        let token = (0..=u32::MAX).map(|n| random.wrapping_add(n)).find(|token| !is_taken(*token));
        let token = token.unwrap_or(random);
        self.list.push_back((token, Request { to, why, due }));
        token
    }

    /// Ends the request under this token, if it went to that node.
    pub(super) fn take(&mut self, token: u32, from: Id) -> Option<Request> {
        let at = self.list.iter().position(|(other, request)| *other == token && request.to == from)?;
        self.list.remove(at).map(|(_, request)| request)
    }

    pub(super) fn expired(&mut self, now: Instant) -> Option<Request> {
        self.list.front().filter(|(_, request)| request.due <= now)?;
        self.list.pop_front().map(|(_, request)| request)
    }

    pub(super) fn contains(&self, to: Id, why: Why) -> bool {
        self.list.iter().any(|(_, request)| request.to == to && request.why == why)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.list.front().map(|(_, request)| request.due)
    }
}

/// The repair of one side of the leaf set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SideRepair {
    due: Option<Instant>,
    rounds: u8,
    asked: Option<Id>,
}

/// The repair of one cell: the nodes after `asked_up_to` in the table have not got a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellRepair {
    at: Position,
    asked_up_to: Option<Position>,
    waiting: usize,
    due: Instant,
}

/// The requests still to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    sides: [SideRepair; 2],
    cells: Vec<CellRepair>,
    neighbourhood: Option<Instant>,
    /// Nodes to get a request for the rows that they share with this node.
    improve: Vec<Id>,
    improving: usize,
    /// Nodes whose round-trip time is to be measured anew.
    measure: Vec<Id>,
}

impl Plan {
    /// Notes that a side lost a node.
    pub(super) fn lost_leaf(&mut self, side: Side, now: Instant) {
        self.sides[side as usize] = SideRepair { due: Some(now), rounds: 0, asked: None };
    }

    /// The node to get a request about a side now, unless it was the last one.
    pub(super) fn leaf_due(&mut self, side: Side, furthest: Option<Id>, now: Instant) -> Option<Id> {
        let repair = &mut self.sides[side as usize];
        if repair.due? > now {
            return None;
        }
        repair.due = None;
        if repair.rounds >= LEAF_ROUNDS_MAX || furthest == repair.asked {
            return None;
        }
        repair.rounds += 1;
        repair.asked = furthest;
        furthest
    }

    /// Schedules the next look at a side, when the candidates of the last request were probed.
    pub(super) fn leaf_again(&mut self, side: Side, at: Instant) {
        self.sides[side as usize].due = Some(at);
    }

    /// Notes that a cell lost its node.
    pub(super) fn lost_cell(&mut self, at: Position, now: Instant) {
        if self.cells.len() < CELLS_MAX && self.cells.iter().all(|repair| repair.at != at) {
            self.cells.push(CellRepair { at, asked_up_to: None, waiting: 0, due: now });
        }
    }

    /// The next nodes to get a request for a cell that is still empty: others of its row, then of the next rows, to the
    /// end of the table (P-10, P-11).
    pub(super) fn cell_due(
        &mut self,
        table: &RoutingTable,
        now: Instant,
        pause: Duration,
    ) -> Option<(Position, Vec<Id>)> {
        self.cells.retain(|repair| table.cell(repair.at).is_none());
        loop {
            let index = self.cells.iter().position(|repair| repair.due <= now)?;
            let repair = &mut self.cells[index];
            let rest = table.from_row(repair.at.row).iter();
            let unasked = rest.filter(|cell| repair.asked_up_to.is_none_or(|asked| cell.at > asked));
            let next: Vec<(Position, Id)> =
                unasked.take(CELL_PARALLEL).map(|cell| (cell.at, cell.id)).collect();
            match next.last() {
                Some((last, _)) => {
                    repair.asked_up_to = Some(*last);
                    repair.waiting = next.len();
                    repair.due = now + pause;
                    return Some((repair.at, next.into_iter().map(|(_, id)| id).collect()));
                }
                // All nodes got a request: there may be no such node.
                None => {
                    self.cells.remove(index);
                }
            }
        }
    }

    /// Notes the end of a request about a cell, answered or not. Once all have ended, the next ones follow at `at`.
    pub(super) fn cell_answered(&mut self, position: Position, at: Instant) {
        if let Some(repair) = self.cells.iter_mut().find(|repair| repair.at == position) {
            repair.waiting = repair.waiting.saturating_sub(1);
            if repair.waiting == 0 {
                repair.due = repair.due.min(at);
            }
        }
    }

    /// Notes that the neighbourhood set lost a node. One repair at `at` covers all losses until then.
    pub(super) fn lost_neighbour(&mut self, at: Instant) {
        self.neighbourhood.get_or_insert(at);
    }

    pub(super) fn neighbourhood_due(&mut self, now: Instant) -> bool {
        self.neighbourhood.take_if(|at| *at <= now).is_some()
    }

    /// Measures these nodes anew, a few at a time.
    pub(super) fn measure(&mut self, nodes: Vec<Id>) {
        self.measure = nodes;
    }

    /// The next node to measure.
    pub(super) fn next_to_measure(&mut self) -> Option<Id> {
        self.measure.pop()
    }

    /// Whether there are nodes to measure.
    pub(super) fn is_measuring(&self) -> bool {
        !self.measure.is_empty()
    }

    /// Asks these nodes for nearer ones, a few at a time.
    pub(super) fn improve(&mut self, nodes: Vec<Id>) {
        self.improve = nodes;
    }

    /// The next node to get a request for nearer ones.
    pub(super) fn next_to_improve(&mut self) -> Option<Id> {
        if self.improving >= CELL_PARALLEL {
            return None;
        }
        let next = self.improve.pop();
        if self.improve.is_empty() {
            self.improve = Vec::new();
        }
        self.improving += usize::from(next.is_some());
        next
    }

    pub(super) fn improved(&mut self) {
        self.improving = self.improving.saturating_sub(1);
    }

    /// Whether requests for nearer nodes are left.
    pub(super) fn is_improving(&self) -> bool {
        self.improving > 0 || !self.improve.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let sides = self.sides.iter().filter_map(|side| side.due);
        let cells = self.cells.iter().map(|repair| repair.due);
        sides.chain(cells).chain(self.neighbourhood).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Base;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn p_11_the_rows_below_are_asked_to_the_end() {
        let mut table = RoutingTable::new(Id::new(0x5000 << 112), Base::B4);
        let ids = ["10", "20", "30", "40", "51", "52", "508", "5001"];
        for digits in ids {
            table.insert(Id::new(u128::from_str_radix(&format!("{digits:0<32}"), 16).unwrap()));
        }
        let lost = Position { row: 0, column: 9 };
        let mut plan = Plan::default();
        let mut now = Instant::ZERO;
        plan.lost_cell(lost, now);
        let mut asked = Vec::new();
        for _ in 0..10 {
            while let Some((at, nodes)) = plan.cell_due(&table, now, SECOND) {
                assert_eq!(at, lost);
                assert!(nodes.len() <= 3, "three at a time");
                asked.extend(nodes);
            }
            now += SECOND;
        }
        let all: Vec<Id> = table.cells().iter().map(|cell| cell.id).collect();
        assert_eq!(asked, all, "row by row, each once, then it is left at that");
        assert_eq!(plan.deadline(), None);
    }
}
