//! The handshake, ADD_ROUTE, DEL_ROUTE and OPTIMIZE: how a peer comes into the ring and how it leaves.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use bytes::Bytes;

use super::alarms::Alarm;
use super::config::Fault;
use super::credit::WINDOW_BYTES;
use super::links::{Link, Role};
use super::machine::{HANDSHAKE, HOLD_DOWN, Mesh, Out};
use super::message::Here;
use super::nid::{Key, Nid};
use super::routes::{Direction, Route, Triple};
use super::signal::FIRST_CREDIT_BYTES;
use super::wire::{Body, data_of, decode_frame, here_frame};
use super::{Event, Leave};
use crate::machine::Refusal;
use crate::tag::StreamId;
use crate::time::{Instant, Now};
use crate::wire::DecodeError;

/// So many bad frames are forgiven less one (MA-53).
const MALFORMED_MAX: u32 = 3;
/// Two connections that began within this time of each other crossed (MA-29a).
const CROSSING: Duration = Duration::from_secs(5);
/// How long a broken connection rests before it is dialled once more.
const REDIAL_PAUSE: Duration = Duration::from_secs(1);

impl Mesh {
    /// WAIT 2 (M-37): somebody connected. Who it is we know when its HERE has come (MA-27).
    pub(super) fn accepted(&mut self, now: Now, stream: StreamId, from: SocketAddr, out: Out<'_, '_>) {
        let IpAddr::V4(peer) = from.ip() else { return out.abort(stream) };
        if self.is_stopping {
            return out.abort(stream);
        }
        let link = Link::new(Role::Greeting, Direction::In, peer, now.mono, self.config.body_bytes_max());
        self.links.insert(stream, link);
        out.read(stream, FIRST_CREDIT_BYTES);
        self.alarms.set(Alarm::Handshake(stream), now.mono + HANDSHAKE);
    }

    pub(super) fn connected(&mut self, stream: StreamId) {
        if let Some(link) = self.links.get_mut(stream)
            && let Role::Dialling { is_connected, .. } = &mut link.role
        {
            *is_connected = true;
        }
    }

    /// WAIT 3 (M-38): bytes came.
    pub(super) fn data(
        &mut self,
        now: Now,
        stream: StreamId,
        mut data: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let taken = data.len();
        let Some(link) = self.links.get_mut(stream) else { return Ok(()) };
        let mut frames = Vec::new();
        let end = loop {
            match link.frames.take(&mut data, &mut self.spare) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.links.note_held(stream);
        let is_whole = !frames.is_empty();
        // All at once: the hash is what a message costs most.
        let keys = Key::of_all(frames.iter().map(|frame| data_of(frame)));
        for (frame, key) in frames.into_iter().zip(keys) {
            if self.links.get(stream).is_none() {
                return Ok(());
            }
            self.frame(now, stream, frame, key, out)?;
        }
        if let Err(error) = end {
            return self.bad_length(now, stream, error, out);
        }
        self.grant(now, stream, taken, is_whole, out);
        Ok(())
    }

    fn frame(
        &mut self,
        now: Now,
        stream: StreamId,
        frame: Bytes,
        key: Key,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let Some(link) = self.links.get(stream) else { return Ok(()) };
        let body = decode_frame(frame);
        match (link.role, body) {
            (Role::Dialling { expected, .. }, Ok(Body::Here(here))) => {
                self.answered(now, stream, expected, here, out)
            }
            (Role::Greeting, Ok(Body::Here(here))) => self.add_route(now, stream, here, out),
            (Role::Dialling { .. } | Role::Greeting, Ok(Body::Message(_))) => {
                Err(self.refuse(now, stream, DecodeError::Kind.into(), out))
            }
            (Role::Dialling { .. } | Role::Greeting, Err(error)) => {
                Err(self.refuse(now, stream, error.into(), out))
            }
            // A later HERE says nothing new.
            (Role::Up { .. } | Role::Leaving { .. }, Ok(Body::Here(_))) => Ok(()),
            (Role::Up { nid, .. } | Role::Leaving { nid }, Ok(Body::Message(message))) => {
                self.receive(now, nid, message, key, out);
                Ok(())
            }
            (Role::Up { .. } | Role::Leaving { .. }, Err(_)) => {
                self.bad_frame(now, stream, out);
                Ok(())
            }
        }
    }

    /// MA-53: the third frame that is no message ends the connection.
    fn bad_frame(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        self.counters.malformed_frames += 1;
        if let Some(link) = self.links.get_mut(stream) {
            link.malformed += 1;
            if link.malformed >= MALFORMED_MAX {
                self.counters.connections_refused += 1;
                out.abort(stream);
                self.del_route(now, stream, Leave::Malformed, out);
            }
        }
    }

    /// A length over the limit ends the connection at once. Within the handshake it is a refusal; later the bytes
    /// before it have been taken in, so it is an end like any other.
    fn bad_length(
        &mut self,
        now: Now,
        stream: StreamId,
        error: DecodeError,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        if self.links.get(stream).is_some_and(|link| link.nid().is_none()) {
            return Err(self.refuse(now, stream, error.into(), out));
        }
        self.counters.malformed_frames += 1;
        self.counters.connections_refused += 1;
        out.abort(stream);
        self.del_route(now, stream, Leave::Malformed, out);
        Ok(())
    }

    /// A handshake that is none: reset, and as if it had never been.
    fn refuse(&mut self, now: Now, stream: StreamId, refusal: Refusal, out: Out<'_, '_>) -> Refusal {
        self.counters.connections_refused += 1;
        out.abort(stream);
        self.closed(now, stream, out);
        refusal
    }

    /// The node we dialled says who it is.
    fn answered(
        &mut self,
        now: Now,
        stream: StreamId,
        expected: Here,
        here: Here,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        if here.nid != expected.nid || here.nid == self.own {
            // MF-15: nothing is kept of a promise that was not held.
            self.counters.connections_refused += 1;
            self.counters.dials_failed += 1;
            self.links.remove(stream);
            self.alarms.clear(Alarm::Handshake(stream));
            out.abort(stream);
            return Ok(());
        }
        if self.keeps_first(now, here.nid, stream, expected.at, out) {
            return Ok(());
        }
        self.up(now, stream, Here { nid: here.nid, at: expected.at }, out);
        if self.ring.len() > self.config.peers_max {
            self.optimize(now, out);
        }
        Ok(())
    }

    /// ADD_ROUTE (M-45): a caller says who it is. It gets our HERE if it is admitted, nothing if not (MA-32a).
    fn add_route(&mut self, now: Now, stream: StreamId, here: Here, out: Out<'_, '_>) -> Result<(), Refusal> {
        tracing::debug!(state = "ADD_ROUTE", nid = %self.own, caller = %here.nid);
        if here.nid == self.own {
            let refusal = self.refuse(now, stream, Refusal::Reject("a caller with our own NID"), out);
            out.event(Event::IdentityClashed { nid: here.nid, ip: *here.at.ip() });
            return Err(refusal);
        }
        if !here.is_reachable_from(*self.at.ip()) {
            return Err(self.refuse(now, stream, Refusal::Reject("a caller nobody can dial"), out));
        }
        if self.keeps_first(now, here.nid, stream, here.at, out) {
            return Ok(());
        }
        let is_full = self.ring.get(here.nid).is_none() && self.ring.len() >= self.config.peers_max;
        if is_full && !self.reserved.has(here.nid, now.mono) {
            self.refuse_caller(now, stream, here.nid, out);
            return Ok(());
        }
        let frame = here_frame(&self.here());
        if let Some(link) = self.links.get_mut(stream) {
            link.wrote(None, frame.len());
        }
        out.write(stream, &frame);
        self.up(now, stream, here, out);
        if is_full {
            self.optimize(now, out);
        }
        Ok(())
    }

    /// MA-32, MA-33: the ring is full, so the caller is sent away, with a hint where to go.
    fn refuse_caller(&mut self, now: Now, stream: StreamId, caller: Nid, out: Out<'_, '_>) {
        self.counters.callers_refused += 1;
        let ip = self.drop_link(stream).map_or(Ipv4Addr::UNSPECIFIED, |link| link.peer);
        if self.config.hint
            && let Some(here) = self.ring.nearest(caller, None).and_then(|nid| self.ring.here(nid))
        {
            self.tell(now, here, caller, ip, out);
        }
        out.abort(stream);
        if self.ring.is_neighbour(caller) && self.room_limit.allows((), now.mono) {
            // MA-39: two full nodes that belong next to each other would refuse each other for ever. So we tell the
            // caller of ourselves; if it wants us it calls again, and is let in at the cost of another peer.
            self.room_limit.count((), now.mono);
            self.reserved.add(caller, now.mono, now.mono + 2 * HANDSHAKE);
            self.send_here(self.here(), ip, out);
            self.remind(now);
        }
    }

    /// A second connection of a connected peer: true if the first one stays and this one is closed.
    fn keeps_first(
        &mut self,
        now: Now,
        nid: Nid,
        stream: StreamId,
        at: SocketAddrV4,
        out: Out<'_, '_>,
    ) -> bool {
        let Some(&Route { stream: first, at: first_at, .. }) = self.ring.get(nid) else { return false };
        let (Some(old), Some(new)) = (self.links.get(first), self.links.get(stream)) else { return false };
        self.counters.second_connections += 1;
        // Both are of one node only if it says of itself that it is at one address: a stranger displaces nobody (MA-13).
        let has_crossed = old.direction != new.direction
            && now.mono.since(old.opened) < CROSSING
            && at.ip() == first_at.ip();
        // MA-29: of two that crossed, the one that the lower NID dialled stays.
        let lower_dialled = if self.own < nid { Direction::Out } else { Direction::In };
        let first_stays = !has_crossed || old.direction == lower_dialled;
        let second = if first_stays { stream } else { first };
        if !has_crossed && at.ip() != first_at.ip() {
            out.event(Event::IdentityClashed { nid, ip: *at.ip() });
        }
        if first_stays {
            self.drop_link(second);
            out.abort(second);
            // MA-13: a newcomer displaces nobody; but the first may be dead without our knowing.
            self.probe(now, first, out);
        } else {
            let moved = self.drop_link(second).map(|link| link.lines().collect::<Vec<_>>());
            self.ring.remove(nid);
            out.finish(second);
            out.abort(second);
            self.take_back(now, second, nid, moved.unwrap_or_default(), out);
        }
        first_stays
    }

    /// The peer is in the ring.
    fn up(&mut self, now: Now, stream: StreamId, here: Here, out: Out<'_, '_>) {
        let Some(link) = self.links.get_mut(stream) else { return };
        link.role = Role::Up { nid: here.nid, at: here.at };
        let (direction, peer) = (link.direction, link.peer);
        self.ring.insert(here.nid, Route { at: here.at, direction, stream });
        self.alarms.clear(Alarm::Handshake(stream));
        self.redials.remove(&here.nid);
        self.reserved.forget(here.nid);
        self.candidates.remove(&here.nid);
        self.counters.peers_added += 1;
        if peer == *here.at.ip() {
            self.met(now, peer);
        }
        let (ip, port) = (*here.at.ip(), here.at.port());
        out.event(Event::PeerConnected { nid: here.nid, ip, port, direction });
        self.grant(now, stream, WINDOW_BYTES - FIRST_CREDIT_BYTES, false, out);
        self.introduce_newcomer(now, here.nid, out);
        self.plan_announce(now, false);
        self.retry(now, out);
    }

    /// OPTIMIZE (M-42 … M-44): drops the middle of the three nodes that are too close and tells the outer two of it.
    pub(super) fn optimize(&mut self, now: Now, out: Out<'_, '_>) {
        let Some(Triple { younger, middle, older }) = self.middle_to_drop() else { return };
        tracing::debug!(state = "OPTIMIZE", nid = %self.own, middle = %middle);
        self.counters.peers_optimized += 1;
        self.introduce(now, middle, younger, out);
        self.introduce(now, middle, older, out);
        self.held_off.add(middle, now.mono, now.mono + HOLD_DOWN);
        if let Some(stream) = self.ring.get(middle).map(|route| route.stream) {
            self.leave(now, stream, Leave::Optimized, out);
        }
    }

    fn middle_to_drop(&self) -> Option<Triple> {
        if self.config.fault == Some(Fault::DropNeighbours) {
            let (middle, older) = self.ring.neighbours()?;
            return Some(Triple { younger: self.ring.younger(middle)?, middle, older });
        }
        self.ring.too_close(None)
    }

    /// Takes a peer out of the ring and ends the connection behind what was written; what it still sends is read.
    pub(super) fn leave(&mut self, now: Now, stream: StreamId, why: Leave, out: Out<'_, '_>) {
        let Some(link) = self.links.get_mut(stream) else { return };
        let Role::Up { nid, .. } = link.role else { return };
        link.role = Role::Leaving { nid };
        let mut waiting: Vec<_> = link.backlog.drain(..).collect();
        if let Some((line, ..)) = link.part.take() {
            // The end of a frame that is half written will never come: the peer drops it.
            waiting.push(line);
        }
        out.finish(stream);
        self.alarms.set(Alarm::Handshake(stream), now.mono + HANDSHAKE);
        self.gone(now, nid, why, out);
        self.take_back(now, stream, nid, waiting, out);
    }

    /// DEL_ROUTE (M-46): the connection is gone, and the peer with it.
    pub(super) fn del_route(&mut self, now: Now, stream: StreamId, why: Leave, out: Out<'_, '_>) {
        let Some(link) = self.drop_link(stream) else { return };
        let lines: Vec<_> = link.lines().collect();
        match link.role {
            Role::Up { nid, at } => {
                self.plan_redial(now, &link, Here { nid, at });
                self.gone(now, nid, why, out);
                self.take_back(now, stream, nid, lines, out);
            }
            Role::Leaving { nid } => self.take_back(now, stream, nid, lines, out),
            Role::Dialling { .. } => self.dial_failed(now, &link, out),
            Role::Greeting => {}
        }
    }

    fn gone(&mut self, now: Now, nid: Nid, why: Leave, out: Out<'_, '_>) {
        tracing::debug!(state = "DEL_ROUTE", nid = %self.own, peer = %nid);
        let was_neighbour = self.ring.is_neighbour(nid);
        self.ring.remove(nid);
        self.offer_when_back(nid);
        self.counters.peers_removed += 1;
        out.event(Event::PeerDisconnected { nid, why });
        self.plan_announce(now, false);
        if was_neighbour && !self.is_stopping {
            self.neighbour_lost(now, out);
        }
    }

    /// MA-30: what we dialled is dialled once more, but not again and again.
    fn plan_redial(&mut self, now: Now, link: &Link, here: Here) {
        let is_tired = link.is_redial && now.mono.since(link.opened) < HOLD_DOWN;
        let is_held_off = self.held_off.has(here.nid, now.mono);
        if link.direction == Direction::Out && !is_tired && !is_held_off && !self.is_stopping {
            self.redials.insert(here.nid, here);
            self.alarms.set(Alarm::Redial(here.nid), now.mono + REDIAL_PAUSE);
        }
    }

    /// The peer has ended its direction: so do we, and it is out of the ring.
    pub(super) fn finished(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        let Some(link) = self.links.get(stream) else { return };
        match link.role {
            Role::Up { nid, at } => {
                let link = link.clone();
                self.leave(now, stream, Leave::Closed, out);
                self.plan_redial(now, &link, Here { nid, at });
            }
            Role::Leaving { .. } => {}
            Role::Dialling { .. } | Role::Greeting => {
                out.abort(stream);
                self.del_route(now, stream, Leave::Closed, out);
            }
        }
    }

    pub(super) fn closed(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        self.del_route(now, stream, Leave::Broken, out);
    }

    /// A handshake took too long, or a farewell did.
    pub(super) fn handshake_over(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        out.abort(stream);
        self.del_route(now, stream, Leave::Broken, out);
    }

    /// MA-48: the peer has taken nothing for too long.
    pub(super) fn stalled(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        self.counters.peers_stalled += 1;
        out.abort(stream);
        self.del_route(now, stream, Leave::Stalled, out);
    }

    /// Forgets a connection and its alarms.
    fn drop_link(&mut self, stream: StreamId) -> Option<Link> {
        self.alarms.clear(Alarm::Handshake(stream));
        self.alarms.clear(Alarm::Stalled(stream));
        self.disfavour(stream);
        self.links.remove(stream)
    }

    /// Says goodbye to everybody.
    pub(super) fn stop(&mut self, now: Now, out: Out<'_, '_>) {
        self.alarms.clear_all();
        self.redials.clear();
        let streams: Vec<StreamId> = self.links.iter().map(|(stream, _)| stream).collect();
        for stream in streams {
            if self.links.get(stream).is_some_and(|link| link.nid().is_some()) {
                self.leave(now, stream, Leave::Stopped, out);
            } else if !self.links.get(stream).is_some_and(|link| matches!(link.role, Role::Leaving { .. })) {
                out.abort(stream);
                self.drop_link(stream);
            }
        }
        self.keep_known(out);
        if self.links.len() > 0 {
            self.alarms.set(Alarm::Stop, now.mono + HANDSHAKE);
        }
    }

    /// The farewells have taken long enough.
    pub(super) fn abort_all(&mut self, out: Out<'_, '_>) {
        let streams: Vec<StreamId> = self.links.iter().map(|(stream, _)| stream).collect();
        for stream in streams {
            out.abort(stream);
            self.drop_link(stream);
        }
    }

    /// The next moment at which some memory, the queue or the shelf has something that is over.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let deadlines = [
            self.passed.deadline(),
            self.received.deadline(),
            self.held_off.deadline(),
            self.refused_by.deadline(),
            self.reserved.deadline(),
            self.introduced.deadline(),
            self.declined.deadline(),
            self.queue.deadline(),
            self.shelf.deadline(),
            self.post.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
