//! The handshake, ADD_ROUTE, DEL_ROUTE and OPTIMIZE: how a peer enters the ring and how it leaves.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use bytes::Bytes;

use super::Peering;
use super::announce::send_here;
use super::dial::FIRST_CREDIT_BYTES;
use crate::machine::Refusal;
use crate::stream::Watch;
use crate::tag::StreamId;
use crate::w3w::custody::hello_nid;
use crate::w3w::env::Cx;
use crate::w3w::links::{Link, Role, WINDOW_BYTES};
use crate::w3w::machine::{HANDSHAKE, HOLD_DOWN};
use crate::w3w::message::{EntryId, Here, Message};
use crate::w3w::nid::Nid;
use crate::w3w::ring::{Direction, Route, Triple};
use crate::w3w::timers::Timer;
use crate::w3w::wire::{Body, decode_frame, here_frame};
use crate::w3w::{Event, Leave};
use crate::wire::DecodeError;

/// This many bad frames end a connection (MA-53).
const MALFORMED_MAX: u32 = 3;
/// Two connections that began within this time of each other crossed (MA-29a).
const CROSSING: Duration = Duration::from_secs(5);
/// A connection without acknowledgements for this long is dead (CU-16).
const DEAD_AFTER: Duration = Duration::from_secs(10);
/// The most peers from one address.
const PLACES_PER_ADDRESS: usize = 2;
/// The pause before a broken connection is dialled once more.
const REDIAL_PAUSE: Duration = Duration::from_secs(1);

impl Peering {
    /// WAIT 2 (M-37): handles an accepted connection. Its HERE identifies the caller (MA-27).
    pub(in crate::w3w) fn accepted(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, from: SocketAddr) {
        let IpAddr::V4(peer) = from.ip() else { return cx.low.out.abort(stream) };
        if cx.low.env.is_stopping || !cx.low.env.config.allows(peer) {
            cx.low.env.counters.connections_refused += u64::from(!cx.low.env.is_stopping);
            return cx.low.out.abort(stream);
        }
        let link = Link::new(
            Role::AwaitingHere,
            Direction::In,
            peer,
            cx.low.now.mono,
            cx.low.env.config.body_bytes_max(),
            false,
        );
        cx.low.links.insert(stream, link);
        cx.low.out.read(stream, FIRST_CREDIT_BYTES);
        cx.low.env.timers.set(Timer::Handshake(stream), cx.low.now.mono + HANDSHAKE);
    }

    pub(in crate::w3w) fn connected(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        if let Some(link) = cx.low.links.get_mut(stream)
            && let Role::Dialling { expected, otherwise, .. } = link.role()
        {
            link.set_role(Role::Dialling { expected, otherwise, is_connected: true });
        }
    }

    /// Handles a frame; returns a message of a peer and the peer's NID.
    pub(in crate::w3w) fn on_frame(
        &mut self,
        cx: &mut Cx<'_, '_>,
        stream: StreamId,
        frame: Bytes,
    ) -> Result<Option<(Nid, Message)>, Refusal> {
        let Some(link) = cx.low.links.get(stream) else { return Ok(None) };
        let body = decode_frame(frame);
        match (link.role(), body) {
            (Role::Dialling { expected, .. }, Ok(Body::Here(here))) => {
                self.answered(cx, stream, expected, here);
                Ok(None)
            }
            (Role::AwaitingHere, Ok(Body::Here(here))) => {
                self.add_route(cx, stream, here)?;
                Ok(None)
            }
            (Role::Dialling { .. } | Role::AwaitingHere, Ok(Body::Message(_))) => {
                Err(self.refuse(cx, stream, DecodeError::Kind.into()))
            }
            (Role::Dialling { .. } | Role::AwaitingHere, Err(error)) => {
                Err(self.refuse(cx, stream, error.into()))
            }
            // A later HERE has no effect, unless it is the hello of custody (CU-7).
            (Role::Up { nid, .. }, Ok(Body::Here(here)))
                if here.nid == hello_nid(nid, cx.low.env.own) && !cx.low.env.config.is_foreign() =>
            {
                cx.low.custody.on_hello(stream);
                cx.low.note_contact(nid, |entry| entry.knows_letters = true);
                Ok(None)
            }
            (Role::Up { .. } | Role::Leaving { .. }, Ok(Body::Here(_))) => Ok(None),
            (Role::Up { nid, .. } | Role::Leaving { nid }, Ok(Body::Message(message))) => {
                Ok(Some((nid, message)))
            }
            (Role::Up { .. } | Role::Leaving { .. }, Err(_)) => {
                self.bad_frame(cx, stream);
                Ok(None)
            }
        }
    }

    /// MA-53: the third frame that is no message ends the connection.
    fn bad_frame(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        cx.low.env.counters.malformed_frames += 1;
        let link = cx.low.links.get_mut(stream);
        if link.is_some_and(|link| link.count_malformed() >= MALFORMED_MAX) {
            cx.low.env.counters.connections_refused += 1;
            cx.low.out.abort(stream);
            self.del_route(cx, stream, Leave::Malformed);
        }
    }

    /// Ends a connection with a length over the limit. Within the handshake it is a refusal. Later the bytes before it
    /// have been handled, so it is an ordinary close.
    pub(in crate::w3w) fn bad_length(
        &mut self,
        cx: &mut Cx<'_, '_>,
        stream: StreamId,
        error: DecodeError,
    ) -> Result<(), Refusal> {
        if cx.low.links.get(stream).is_some_and(|link| link.nid().is_none()) {
            return Err(self.refuse(cx, stream, error.into()));
        }
        cx.low.env.counters.malformed_frames += 1;
        cx.low.env.counters.connections_refused += 1;
        cx.low.out.abort(stream);
        self.del_route(cx, stream, Leave::Malformed);
        Ok(())
    }

    /// Refuses an invalid handshake: resets the connection, without further effect.
    fn refuse(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, refusal: Refusal) -> Refusal {
        cx.low.env.counters.connections_refused += 1;
        cx.low.out.abort(stream);
        self.closed(cx, stream);
        refusal
    }

    /// Handles the HERE of a dialled node.
    fn answered(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, expected: Here, here: Here) {
        let is_crowded = has_two_places(cx, here.nid, *expected.at.ip());
        if here.nid != expected.nid || here.nid == cx.low.env.own || is_crowded {
            // MF-15: a node other than the announced one leaves no trace.
            cx.low.env.counters.connections_refused += 1;
            cx.low.env.counters.dials_failed += 1;
            cx.low.links.remove(&mut cx.low.env.memory, stream);
            cx.low.env.timers.cancel(Timer::Handshake(stream));
            cx.low.out.abort(stream);
            return;
        }
        if self.keeps_first(cx, here.nid, stream, expected.at) {
            return;
        }
        self.up(cx, stream, Here { nid: here.nid, at: expected.at });
        if cx.low.ring.len() > cx.low.env.config.peers_max {
            self.optimize(cx);
        }
    }

    /// ADD_ROUTE (M-45): handles the HERE of a caller. An admitted caller gets our HERE, another one gets nothing
    /// (MA-32a).
    fn add_route(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, here: Here) -> Result<(), Refusal> {
        tracing::debug!(state = "ADD_ROUTE", nid = %cx.low.env.own, caller = %here.nid);
        if here.nid == cx.low.env.own {
            let refusal = self.refuse(cx, stream, Refusal::Reject("a caller with our own NID"));
            cx.low.out.event(Event::IdentityClashed { nid: here.nid, ip: *here.at.ip() });
            return Err(refusal);
        }
        if !here.is_reachable_from(*cx.low.env.at.ip()) {
            return Err(self.refuse(cx, stream, Refusal::Reject("a caller nobody can dial")));
        }
        if self.keeps_first(cx, here.nid, stream, here.at) {
            return Ok(());
        }
        let caller = cx.low.links.get(stream).map(Link::peer);
        if caller.is_some_and(|ip| has_two_places(cx, here.nid, ip)) {
            cx.low.env.counters.callers_refused += 1;
            let refusal = Refusal::Reject("a third peer from one address");
            return Err(self.refuse(cx, stream, refusal));
        }
        let is_full = cx.low.ring.get(here.nid).is_none() && cx.low.ring.len() >= cx.low.env.config.peers_max;
        if is_full && !self.directory.reserved.contains(here.nid, cx.low.now.mono) {
            self.refuse_caller(cx, stream, here.nid);
            return Ok(());
        }
        let frame = here_frame(&cx.low.env.here());
        if let Some(link) = cx.low.links.get_mut(stream) {
            link.writes_mut().wrote(None, frame.len());
        }
        cx.low.out.write(stream, &frame);
        self.up(cx, stream, here);
        if is_full {
            self.optimize(cx);
        }
        Ok(())
    }

    /// MA-32, MA-33: refuses a caller because the ring is full, with the HERE of the peer nearest to it.
    fn refuse_caller(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, caller: Nid) {
        cx.low.env.counters.callers_refused += 1;
        let ip = self.drop_link(cx, stream).map_or(Ipv4Addr::UNSPECIFIED, |(link, _)| link.peer());
        if cx.low.env.config.hint
            && let Some(here) = cx.low.ring.nearest(caller).and_then(|nid| cx.low.ring.here(nid))
        {
            self.tell(cx, here, caller, ip);
        }
        cx.low.out.abort(stream);
        if cx.low.ring.is_neighbour(caller) && self.introducer.room_limit.allows((), cx.low.now.mono) {
            // MA-39: two full nodes that belong next to each other would refuse each other for ever. So the caller also
            // gets our own HERE. If it dials again it is admitted, and another peer is dropped.
            self.introducer.room_limit.count((), cx.low.now.mono);
            self.directory.reserved.insert(caller, cx.low.now.mono, cx.low.now.mono + 2 * HANDSHAKE);
            let here = cx.low.env.here();
            send_here(cx, here, ip);
            cx.low.env.schedule_expiry();
        }
    }

    /// Decides between two connections of a peer. Returns true if the first one stays and this one is closed.
    fn keeps_first(&mut self, cx: &mut Cx<'_, '_>, nid: Nid, stream: StreamId, at: SocketAddrV4) -> bool {
        let Some(&Route { stream: first, at: first_at, .. }) = cx.low.ring.get(nid) else { return false };
        let (Some(old), Some(new)) = (cx.low.links.get(first), cx.low.links.get(stream)) else {
            return false;
        };
        cx.low.env.counters.second_connections += 1;
        // Both belong to one node only if it claims the same address: a clash displaces no peer (MA-13).
        let has_crossed = old.direction() != new.direction()
            && cx.low.now.mono.since(old.opened()) < CROSSING
            && at.ip() == first_at.ip();
        // MA-29: of two that crossed, the one dialled by the lower NID stays.
        let lower_dialled = if cx.low.env.own < nid { Direction::Out } else { Direction::In };
        let first_stays = !has_crossed || old.direction() == lower_dialled;
        let second = if first_stays { stream } else { first };
        if !has_crossed && at.ip() != first_at.ip() {
            cx.low.out.event(Event::IdentityClashed { nid, ip: *at.ip() });
        }
        if first_stays {
            self.drop_link(cx, second);
            cx.low.out.abort(second);
            // MA-13: a newcomer displaces no peer; but the first connection may be dead, so it is probed.
            self.probe(cx, first);
        } else {
            let moved = self.drop_link(cx, second).map(|(_, entries)| entries);
            cx.low.ring.remove(nid);
            cx.low.out.finish(second);
            cx.low.out.abort(second);
            cx.forward.requeue(&mut cx.low, second, nid, moved.unwrap_or_default());
        }
        first_stays
    }

    /// Adds the peer to the ring.
    fn up(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, here: Here) {
        let Some(link) = cx.low.links.get_mut(stream) else { return };
        link.set_role(Role::Up { nid: here.nid, at: here.at });
        let (direction, peer) = (link.direction(), link.peer());
        cx.low.ring.insert(here.nid, Route { at: here.at, direction, stream });
        cx.low.env.timers.cancel(Timer::Handshake(stream));
        cx.low.custody.on_up(stream, here.nid, cx.low.now.mono);
        self.dialer.redials.remove(&here.nid);
        self.directory.reserved.remove(here.nid);
        self.directory.candidates.remove(&here.nid);
        cx.low.env.counters.peers_added += 1;
        if peer == *here.at.ip() {
            self.contacted(cx, peer);
        }
        let (ip, port) = (*here.at.ip(), here.at.port());
        cx.low.out.event(Event::PeerConnected { nid: here.nid, ip, port, direction });
        cx.low.out.watch(stream, Watch { confirm: true, dead_after: Some(DEAD_AFTER) });
        say_hello(cx, stream, here.nid);
        cx.low.grant(stream, WINDOW_BYTES - FIRST_CREDIT_BYTES, false);
        self.introduce_newcomer(cx, here.nid);
        self.plan_announce(cx, false);
        cx.forward.retry_all(&mut cx.low);
    }

    /// OPTIMIZE (M-42 … M-44): drops the middle of the three nodes that are too close, and sends its HERE to the outer
    /// two.
    pub(in crate::w3w) fn optimize(&mut self, cx: &mut Cx<'_, '_>) {
        let Some(Triple { younger, middle, older }) = middle_to_drop(cx) else { return };
        tracing::debug!(state = "OPTIMIZE", nid = %cx.low.env.own, middle = %middle);
        cx.low.env.counters.peers_optimized += 1;
        self.introduce(cx, middle, younger);
        self.introduce(cx, middle, older);
        self.directory.held_down.insert(middle, cx.low.now.mono, cx.low.now.mono + HOLD_DOWN);
        if let Some(stream) = cx.low.ring.get(middle).map(|route| route.stream) {
            self.leave(cx, stream, Leave::Optimized);
        }
    }

    /// Removes a peer from the ring and closes the connection after the written bytes; bytes of the peer are still
    /// read.
    pub(in crate::w3w) fn leave(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, why: Leave) {
        let Some(link) = cx.low.links.get_mut(stream) else { return };
        let Role::Up { nid, .. } = link.role() else { return };
        link.set_role(Role::Leaving { nid });
        let waiting = link.writes_mut().take_unwritten();
        cx.low.out.finish(stream);
        cx.low.env.timers.set(Timer::Handshake(stream), cx.low.now.mono + HANDSHAKE);
        self.gone(cx, nid, why);
        cx.forward.requeue(&mut cx.low, stream, nid, waiting);
    }

    /// DEL_ROUTE (M-46): removes a closed connection and its peer.
    pub(in crate::w3w) fn del_route(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId, why: Leave) {
        let Some((link, lines)) = self.drop_link(cx, stream) else { return };
        match link.role() {
            Role::Up { nid, at } => {
                self.plan_redial(cx, &link, Here { nid, at });
                self.gone(cx, nid, why);
                cx.forward.requeue(&mut cx.low, stream, nid, lines);
            }
            Role::Leaving { nid } => cx.forward.requeue(&mut cx.low, stream, nid, lines),
            Role::Dialling { .. } => self.dial_failed(cx, &link),
            Role::AwaitingHere => {}
        }
    }

    fn gone(&mut self, cx: &mut Cx<'_, '_>, nid: Nid, why: Leave) {
        tracing::debug!(state = "DEL_ROUTE", nid = %cx.low.env.own, peer = %nid);
        let was_neighbour = cx.low.ring.is_neighbour(nid);
        cx.low.ring.remove(nid);
        cx.forward.on_recipient_gone(nid);
        if cx.low.book.get(nid).is_some() {
            let seconds = cx.low.now.wall.as_seconds();
            cx.low.note_about(nid, |entry| entry.last_seen = seconds);
        }
        cx.low.env.counters.peers_removed += 1;
        cx.low.out.event(Event::PeerDisconnected { nid, why });
        self.plan_announce(cx, false);
        if was_neighbour && !cx.low.env.is_stopping {
            self.on_neighbour_lost(cx);
        }
    }

    /// MA-30: a connection that this node dialled is dialled once more, but not repeatedly.
    fn plan_redial(&mut self, cx: &mut Cx<'_, '_>, link: &Link, here: Here) {
        let is_tired = link.is_redial() && cx.low.now.mono.since(link.opened()) < HOLD_DOWN;
        let is_held_down = self.directory.held_down.contains(here.nid, cx.low.now.mono);
        if link.direction() == Direction::Out && !is_tired && !is_held_down && !cx.low.env.is_stopping {
            self.dialer.redials.insert(here.nid, here);
            self.dialer.redials_due.set(here.nid, cx.low.now.mono + REDIAL_PAUSE);
            self.schedule_redial(cx);
        }
    }

    /// Handles the end of the peer's direction: this node ends its own, and the peer leaves the ring.
    pub(in crate::w3w) fn finished(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        let Some(link) = cx.low.links.get(stream) else { return };
        match link.role() {
            Role::Up { nid, at } => {
                let link = link.clone();
                self.leave(cx, stream, Leave::Closed);
                self.plan_redial(cx, &link, Here { nid, at });
            }
            Role::Leaving { .. } => {}
            Role::Dialling { .. } | Role::AwaitingHere => {
                cx.low.out.abort(stream);
                self.del_route(cx, stream, Leave::Closed);
            }
        }
    }

    pub(in crate::w3w) fn closed(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        self.del_route(cx, stream, Leave::Broken);
    }

    /// Handles a handshake or a close that took too long.
    pub(in crate::w3w) fn handshake_over(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        cx.low.out.abort(stream);
        self.del_route(cx, stream, Leave::Broken);
    }

    /// MA-48: handles peers whose kernels have taken nothing for too long.
    pub(in crate::w3w) fn stalls_due(&mut self, cx: &mut Cx<'_, '_>) {
        for stream in cx.low.links.take_stalled(cx.low.env, cx.low.now) {
            self.stalled(cx, stream);
        }
    }

    fn stalled(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        cx.low.env.counters.peers_stalled += 1;
        cx.low.out.abort(stream);
        self.del_route(cx, stream, Leave::Stalled);
    }

    /// Handles the unblocked peer that has sent nothing for too long.
    pub(in crate::w3w) fn silent(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        self.stalled(cx, stream);
        cx.low.release_credit();
    }

    /// Handles a peer that answered neither messages nor a ping, or is gone as `members` reports: its messages take
    /// another path.
    pub(in crate::w3w) fn on_peer_silent(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        cx.low.env.counters.peers_silent += 1;
        cx.low.out.abort(stream);
        self.del_route(cx, stream, Leave::Silent);
    }

    /// Closes a connection; returns the entries that its peer has not answered.
    fn drop_link(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) -> Option<(Link, Vec<EntryId>)> {
        let link = cx.low.links.close(cx.low.env, stream)?;
        let mut entries: Vec<EntryId> = link.writes().entries().collect();
        entries.extend(cx.low.custody.on_closed(stream));
        entries.sort_unstable();
        entries.dedup();
        cx.low.env.schedule_custody();
        Some((link, entries))
    }

    /// Closes all connections.
    pub(in crate::w3w) fn stop(&mut self, cx: &mut Cx<'_, '_>) {
        cx.low.env.clear_timers();
        self.dialer.redials.clear();
        for stream in cx.low.links.streams() {
            if cx.low.links.get(stream).is_some_and(|link| link.nid().is_some()) {
                self.leave(cx, stream, Leave::Stopped);
            } else if !cx
                .low
                .links
                .get(stream)
                .is_some_and(|link| matches!(link.role(), Role::Leaving { .. }))
            {
                cx.low.out.abort(stream);
                self.drop_link(cx, stream);
            }
        }
        self.store_known(cx);
        if cx.low.links.len() > 0 {
            cx.low.env.timers.set(Timer::Stop, cx.low.now.mono + HANDSHAKE);
        }
    }

    /// Aborts all connections: closing took too long.
    pub(in crate::w3w) fn abort_all(&mut self, cx: &mut Cx<'_, '_>) {
        for stream in cx.low.links.streams() {
            cx.low.out.abort(stream);
            self.drop_link(cx, stream);
        }
    }
}

/// The peer that OPTIMIZE drops, and its neighbours.
fn middle_to_drop(cx: &Cx<'_, '_>) -> Option<Triple> {
    if cx.low.env.config.drops_neighbours() {
        let (middle, older) = cx.low.ring.neighbours()?;
        return Some(Triple { younger: cx.low.ring.younger(middle)?, middle, older });
    }
    cx.low.ring.too_close(None)
}

/// CU-7: sends one more HERE, which says that this node speaks custody. Foreign nodes ignore it.
fn say_hello(cx: &mut Cx<'_, '_>, stream: StreamId, peer: Nid) {
    if cx.low.env.config.is_foreign() {
        return;
    }
    let hello = Here { nid: hello_nid(cx.low.env.own, peer), ..cx.low.env.here() };
    let frame = here_frame(&hello);
    if let Some(link) = cx.low.links.get_mut(stream) {
        link.writes_mut().wrote(None, frame.len());
        cx.low.out.write(stream, &frame);
    }
}

/// Whether the ring has two other peers at this address: invented NIDs must not take all places.
pub(super) fn has_two_places(cx: &Cx<'_, '_>, nid: Nid, ip: Ipv4Addr) -> bool {
    let is_there = |link: &Link| link.peer() == ip && link.nid().is_some_and(|peer| peer != nid);
    cx.low.links.iter().filter(|(_, link)| is_there(link)).count() >= PLACES_PER_ADDRESS
}
