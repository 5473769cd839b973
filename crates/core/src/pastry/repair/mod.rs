//! Repair: keeps the tables filled and current (P-10, P-11, P-15, P-19, PA-15, PA-34a).
//!
//! When a node is removed, this node requests replacements from others. Periodic work probes the nearest leaves and all
//! known nodes. After a join the second stage requests nearer nodes from a bounded number of nodes.

mod plan;

use core::time::Duration;

use super::config::Liveness;
use super::contact::{Contact, Versions};
use super::effects::Effect;
use super::lower::Cx;
use super::message::{Message, TablesSent, Wanted};
use super::tables::{Interest, LeafSet, Position, Removed, SIDES};
use crate::id::Id;
use crate::time::Instant;
use plan::{Plan, Requests, Why};

/// How long the repair of the neighbourhood set waits for further losses.
const NEIGHBOURHOOD_PAUSE: Duration = Duration::from_secs(10);

/// How many nodes of each row get a request in the second stage of a join, and how many of the neighbourhood set
/// (PA-15a).
const IMPROVE_PER_ROW: usize = 2;
const IMPROVE_NEIGHBOURS: usize = 2;

/// How many known nodes are measured at a time (N-14). More answers at once would keep a slow node from its other work.
const MEASURE_PARALLEL: usize = 2;

/// The repairs of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Repair {
    requests: Requests,
    plan: Plan,
    /// When the nearest leaves are probed next; `None` before the node is active.
    leaf_due: Option<Instant>,
    /// When all known nodes are probed next.
    table_due: Option<Instant>,
}

impl Repair {
    /// Begins periodic work and the second stage of the join, once the node is active (PA-15).
    pub(super) fn start(&mut self, cx: &mut Cx<'_, '_>) {
        // Nodes that join together draw different offsets.
        let (leaf, table) = (cx.config().leaf_interval, cx.config().table_interval);
        // Nodes that joined at the same time learn of each other from their common neighbours, a moment later.
        let leaf = leaf.min(cx.config().network_timeout);
        let now = cx.now.mono;
        let mut within =
            |period: Duration| Some(now + period / 2 + cx.lower.env.rng().duration_below(period / 2));
        (self.leaf_due, self.table_due) = (within(leaf), within(table));
        self.plan.improve(cx.tables().nearest_of_rows(IMPROVE_PER_ROW, IMPROVE_NEIGHBOURS));
    }

    /// Schedules the repair of the tables that a removed node was in.
    pub(super) fn on_removed(&mut self, cx: &mut Cx<'_, '_>, removed: &Removed) {
        let now = cx.now.mono;
        for (side, _) in SIDES.into_iter().zip(removed.sides).filter(|(_, was_there)| *was_there) {
            self.plan.lost_leaf(side, now);
        }
        if let Some(cell) = removed.empty_cell {
            self.plan.lost_cell(cell, now);
        }
        if removed.was_neighbour {
            self.plan.lost_neighbour(now + NEIGHBOURHOOD_PAUSE);
        }
    }

    /// Reports a nearest leaf that has not answered for seconds, so that the other leaves probe it too. Only its two
    /// neighbours report it, and not at once. So a failure causes no storm, and probes do not overload a slow node.
    pub(super) fn on_still_away(&mut self, cx: &mut Cx<'_, '_>, id: Id) {
        let leaf_set = cx.tables().leaf_set();
        let is_nearest = SIDES.iter().any(|&side| leaf_set.nearest(side) == Some(id));
        if !is_nearest || cx.config().liveness != Liveness::Own {
            return;
        }
        let leaves: Vec<Id> = leaf_set.members().filter(|leaf| *leaf != id).collect();
        for leaf in leaves {
            cx.send_to(leaf, &Message::Suspect { id });
        }
    }

    /// Handles requested state.
    pub(super) fn on_state(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: Contact,
        token: u32,
        versions: Versions,
        tables: &TablesSent,
    ) {
        let Some(request) = self.requests.take(token, from.id) else {
            cx.count().refused += 1;
            return;
        };
        let interest = match request.why {
            Why::LeafSet(_) | Why::LeafCheck | Why::Cell(_) => Interest::EmptySlot,
            Why::Neighbourhood | Why::Improve => Interest::Nearer,
        };
        let distance = cx.tables().distance(from.id);
        cx.consider_all(tables, interest, distance);
        if matches!(request.why, Why::LeafSet(_) | Why::LeafCheck) {
            check_own_entry(cx, from.id, &tables.leaf_set);
        }
        self.request_ended(cx, request.why);
        let checked = (request.why == Why::LeafCheck)
            .then(|| is_complete(cx, &tables.leaf_set).then(|| digest(cx, from.id, &tables.leaf_set)));
        if let Some(peer) = cx.lower.tables.peer_mut(from.id) {
            peer.versions = Some(versions);
            if let Some(checked) = checked {
                peer.leaf_set_checked = checked;
            }
        }
    }

    /// Handles an answered probe. If the node is a nearest leaf, and its leaf set is neither as this node expects it nor was
    /// checked, this node requests the leaf set (PA-34b).
    pub(super) fn on_probe_answered(&mut self, cx: &mut Cx<'_, '_>, id: Id, leaf_set_digest: u32) {
        let checked = cx.tables().peer(id).and_then(|peer| peer.leaf_set_checked);
        let leaf_set = cx.tables().leaf_set();
        let is_nearest = SIDES.iter().any(|&side| leaf_set.nearest(side) == Some(id));
        if is_nearest
            && checked != Some(leaf_set_digest)
            && self.leaf_due.is_some()
            && leaf_set.seen_from(id).digest() != leaf_set_digest
        {
            self.request(cx, id, Why::LeafCheck, Wanted { leaf_set: true, ..Wanted::default() });
        }
    }

    /// Handles the end of a pause: probes the leaves and announces this node to them.
    pub(super) fn on_resume(&mut self, now: Instant) {
        self.leaf_due = self.leaf_due.map(|at| at.min(now));
    }

    /// Ends requests that timed out, sends due repairs, and does the periodic work.
    pub(super) fn run_due(&mut self, cx: &mut Cx<'_, '_>) {
        while let Some(request) = self.requests.expired(cx.now.mono) {
            cx.suspect(request.to);
            self.request_ended(cx, request.why);
        }
        self.request_missing(cx);
        let (now, leaf, table) = (cx.now.mono, cx.config().leaf_interval, cx.config().table_interval);
        if is_due(&mut self.leaf_due, now, leaf) {
            maintain_leaf_set(cx);
        }
        if is_due(&mut self.table_due, now, table) {
            self.maintain_table(cx);
        }
    }

    /// Continues to measure nodes and to look for nearer ones, a few at a time.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, '_>) {
        while cx.lower.prober.known_pending() < MEASURE_PARALLEL
            && let Some(id) = self.plan.next_to_measure()
        {
            probe_periodically(cx, id);
        }
        if self.plan.is_measuring() {
            // Which nodes are nearer than those in their places is known once these are measured.
            return;
        }
        while let Some(to) = self.plan.next_to_improve() {
            let wanted = Wanted { rows: cx.tables().rows_for(to), neighbourhood: true, ..Wanted::default() };
            if !self.request(cx, to, Why::Improve, wanted) {
                self.plan.improved();
            }
        }
    }

    /// Whether the search for nearer nodes is under way.
    pub(super) fn is_improving(&self) -> bool {
        self.plan.is_improving()
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.len() == 0 && !self.plan.is_improving() && !self.plan.is_measuring()
    }

    /// The earliest deadline of requests, of repairs, of the leaves and of the table.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 4] {
        [self.requests.deadline(), self.plan.deadline(), self.leaf_due, self.table_due]
    }

    /// Sends a request for state, unless the same one is under way.
    fn request(&mut self, cx: &mut Cx<'_, '_>, to: Id, why: Why, wanted: Wanted) -> bool {
        if self.requests.contains(to, why) {
            return false;
        }
        let due = cx.now.mono + cx.config().network_timeout;
        let token = self.requests.insert(cx.lower.env.rng().next_u32(), to, why, due);
        cx.count().requests_sent += 1;
        cx.send_to(to, &Message::StateRequest { token, wanted })
    }

    /// Ends a request, answered or not. Its repair continues once the candidates were probed.
    fn request_ended(&mut self, cx: &Cx<'_, '_>, why: Why) {
        let soon = cx.now.mono + cx.config().network_timeout / 2;
        match why {
            Why::LeafSet(side) => self.plan.leaf_again(side, soon),
            Why::Cell(at) => self.plan.cell_answered(at, soon),
            Why::Improve => self.plan.improved(),
            Why::LeafCheck | Why::Neighbourhood => {}
        }
    }

    fn request_missing(&mut self, cx: &mut Cx<'_, '_>) {
        let now = cx.now.mono;
        let leaf_set = Wanted { leaf_set: true, ..Wanted::default() };
        for side in SIDES {
            // P-15: the furthest of the side. If the side is empty so is the other, and all tables (PA-12).
            let furthest = cx.tables().leaf_set().furthest(side);
            if let Some(to) = self.plan.leaf_due(side, furthest, now) {
                self.request(cx, to, Why::LeafSet(side), leaf_set);
            }
        }
        let pause = cx.config().network_timeout * 2;
        while let Some((Position { row, column }, nodes)) =
            self.plan.cell_due(cx.tables().routing_table(), now, pause)
        {
            let wanted = Wanted { cell: Some((row, column)), ..Wanted::default() };
            for to in nodes {
                self.request(cx, to, Why::Cell(Position { row, column }), wanted);
            }
        }
        if self.plan.neighbourhood_due(now) {
            // P-19: every node of the set.
            let nodes: Vec<Id> = cx.tables().neighbourhood().members().collect();
            let wanted = Wanted { neighbourhood: true, ..Wanted::default() };
            for to in nodes {
                self.request(cx, to, Why::Neighbourhood, wanted);
            }
        }
    }

    /// Probes all known nodes again (N-14), and requests nearer nodes from one node of each row. With `members` the
    /// round-trip times arrive without probes, also of nearer nodes.
    fn maintain_table(&mut self, cx: &mut Cx<'_, '_>) {
        cx.lower.tables.forget_old_distances(cx.now.mono);
        if cx.config().liveness == Liveness::Members {
            return self.plan.measure(unwatched(cx, |_, _| true));
        }
        self.plan.measure(cx.tables().peers().map(|peer| peer.contact.id).collect());
        let table = cx.lower.tables.routing_table();
        let rows = table.cells().last().map_or(0, |cell| cell.at.row + 1);
        let mut chosen = Vec::new();
        for row in 0..rows {
            chosen.extend(cx.lower.env.rng().pick(table.row(row)).map(|cell| cell.id));
        }
        self.plan.improve(chosen);
    }
}

/// Probes the nearest leaf of each side (N-11, PA-34a), and announces this node to leaves that do not know it.
fn maintain_leaf_set(cx: &mut Cx<'_, '_>) {
    match cx.config().liveness {
        Liveness::Own => {
            let nearest = SIDES.map(|side| cx.tables().leaf_set().nearest(side));
            nearest.into_iter().flatten().for_each(|id| probe_periodically(cx, id));
        }
        Liveness::Members => {
            unwatched(cx, LeafSet::contains).into_iter().for_each(|id| probe_periodically(cx, id));
        }
    }
    let tables = cx.tables();
    let is_unaware = |id: &Id| tables.peer(*id).is_some_and(|peer| !peer.knows_us);
    let unaware: Vec<Id> = tables.leaf_set().members().filter(is_unaware).collect();
    unaware.into_iter().for_each(|id| cx.effect(Effect::AnnounceTo(id)));
}

/// Probes a node because it is time.
fn probe_periodically(cx: &mut Cx<'_, '_>, id: Id) {
    cx.count().probes_periodic += u64::from(!cx.lower.prober.is_pending(id));
    cx.probe(id);
}

/// Peers that `members` does not watch: it would not report their failure.
fn unwatched(cx: &Cx<'_, '_>, which: impl Fn(&LeafSet, Id) -> bool) -> Vec<Id> {
    let tables = cx.tables();
    let unwatched = tables.peers().filter(|peer| !peer.is_member).map(|peer| peer.contact.id);
    unwatched.filter(|id| which(tables.leaf_set(), *id)).collect()
}

/// Announces this node to a leaf whose leaf set should have it but does not.
fn check_own_entry(cx: &mut Cx<'_, '_>, leaf: Id, theirs: &[Contact]) {
    let own = cx.own().id;
    let seen = leaf_set_of(cx, leaf, theirs);
    if !seen.contains(own) && seen.would_take(own) && cx.tables().leaf_set().contains(leaf) {
        cx.effect(Effect::ForgottenBy(leaf));
    }
}

fn leaf_set_of(cx: &Cx<'_, '_>, node: Id, theirs: &[Contact]) -> LeafSet {
    let mut leaf_set = LeafSet::new(node, cx.config().side_max());
    for contact in theirs {
        leaf_set.insert(contact.id);
    }
    leaf_set
}

fn digest(cx: &Cx<'_, '_>, node: Id, theirs: &[Contact]) -> u32 {
    leaf_set_of(cx, node, theirs).digest()
}

/// Whether this node has every node of a leaf's leaf set that it should have. Some are not probed at once, or do not
/// answer the first time.
fn is_complete(cx: &Cx<'_, '_>, theirs: &[Contact]) -> bool {
    let leaf_set = cx.tables().leaf_set();
    !theirs.iter().any(|contact| {
        contact.id != cx.own().id && !leaf_set.contains(contact.id) && leaf_set.would_take(contact.id)
    })
}

/// Whether periodic work is due. A late timer does not make it run twice.
fn is_due(at: &mut Option<Instant>, now: Instant, period: Duration) -> bool {
    if at.is_none_or(|at| at > now) {
        return false;
    }
    *at = Some(now + period);
    true
}
