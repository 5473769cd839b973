//! SIGNAL and RECONNECT: which HEREs make this node dial, and within which limits.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Peering;
use super::handshake::has_two_places;
use crate::machine::Refusal;
use crate::ring::{clockwise, closer};
use crate::tag::StreamId;
use crate::w3w::Event;
use crate::w3w::env::Cx;
use crate::w3w::links::{Link, Role};
use crate::w3w::machine::{HANDSHAKE, HOLD_DOWN};
use crate::w3w::message::Here;
use crate::w3w::ring::{Direction, Route};
use crate::w3w::timers::Timer;
use crate::w3w::wire::{FIRST_BODY_BYTES_MAX, LENGTH_BYTES, here_frame};

/// How long a full ring remembers nodes that refused this one.
const REFUSED: Duration = Duration::from_secs(3600);
/// The most bytes to read before the handshake is over.
pub(super) const FIRST_CREDIT_BYTES: usize = LENGTH_BYTES + FIRST_BODY_BYTES_MAX;

impl Peering {
    /// SIGNAL (M-36, M-41): handles a HERE by datagram. It can only cause a dial (MA-22).
    pub(in crate::w3w) fn on_here(
        &mut self,
        cx: &mut Cx<'_, '_>,
        from: SocketAddr,
        here: Here,
    ) -> Result<(), Refusal> {
        let source = match from.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => return Err(ignore(cx, "a HERE over IPv6")),
        };
        if is_clash(cx, source, here) {
            self.report_clash(cx, here);
            return Ok(());
        }
        if let Some(stream) = cx.low.ring.get(here.nid).map(|route| route.stream) {
            return self.signal_about_peer(cx, source, here, stream);
        }
        if let Some(reason) = self.no_use(cx, here) {
            return Err(ignore(cx, reason));
        }
        if !self.dialer.by_source.allows(source, cx.low.now.mono) {
            cx.low.env.counters.here_limited += 1;
            return Err(Refusal::Reject("too many HEREs from there"));
        }
        if let Some(stream) = cx.low.links.dialling(here.nid, *here.at.ip()) {
            return self.signal_while_dialling(cx, stream, source, here);
        }
        let is_full = cx.low.ring.len() >= cx.low.env.config.peers_max;
        let is_invited = source == *here.at.ip() || cx.low.ring.is_neighbour(here.nid);
        let would_be_refused = self.directory.refused_by.contains(here.nid, cx.low.now.mono) && !is_invited;
        let would_be_dropped =
            || cx.low.ring.too_close(Some(here.nid)).is_some_and(|triple| triple.middle == here.nid);
        if is_full && (would_be_refused || would_be_dropped()) {
            // M-41a: a newcomer that OPTIMIZE would drop at once is not dialled. It is remembered in case a neighbour
            // fails, and its HERE is forwarded to a peer that is nearer to it than this node.
            self.dialer.by_source.count(source, cx.low.now.mono);
            cx.low.env.counters.here_received += 1;
            self.remember_candidate(cx, here);
            self.pass_on_here(cx, here, Some(source));
            return Ok(());
        }
        if !self.may_dial(cx, here) {
            cx.low.env.counters.here_limited += 1;
            return Err(Refusal::Reject("too many dials"));
        }
        tracing::debug!(state = "SIGNAL", nid = %cx.low.env.own, about = %here.nid);
        self.dialer.by_source.count(source, cx.low.now.mono);
        cx.low.env.counters.here_received += 1;
        self.dial(cx, here, false);
        Ok(())
    }

    /// Reports a clash, with a rate limit; the peer stays.
    fn report_clash(&mut self, cx: &mut Cx<'_, '_>, here: Here) {
        cx.low.env.counters.here_ignored += 1;
        if self.introducer.introduced.insert(
            (here.nid, cx.low.env.own),
            cx.low.now.mono,
            cx.low.now.mono + HOLD_DOWN,
        ) {
            cx.low.env.schedule_expiry();
            cx.low.out.event(Event::IdentityClashed { nid: here.nid, ip: *here.at.ip() });
        }
    }

    /// Writes HERE again on a connection that may be dead. The peer ignores it. A kernel without the connection resets
    /// it, and no acknowledgement at all ends it as well.
    pub(super) fn probe(&mut self, cx: &mut Cx<'_, '_>, stream: StreamId) {
        let frame = here_frame(&cx.low.env.here());
        if let Some(link) = cx.low.links.get_mut(stream)
            && link.begin_probe(cx.low.now.mono)
        {
            link.writes_mut().wrote(None, frame.len());
            cx.low.out.write(stream, &frame);
        }
    }

    /// The reason why a HERE causes no dial, if there is one.
    fn no_use(&self, cx: &Cx<'_, '_>, here: Here) -> Option<&'static str> {
        if cx.low.env.is_stopping {
            Some("the node is stopping")
        } else if here.nid == cx.low.env.own || here.at.ip() == cx.low.env.at.ip() {
            Some("a HERE about ourselves")
        } else if !here.is_reachable_from(*cx.low.env.at.ip()) {
            Some("a HERE about an address that cannot be dialled")
        } else if !cx.low.env.config.allows(*here.at.ip()) {
            Some("a HERE about an address that is not allowed")
        } else if self.directory.held_down.contains(here.nid, cx.low.now.mono) {
            Some("a HERE about a node on hold-down")
        } else {
            None
        }
    }

    /// Handles a HERE about a peer; it changes nothing (MA-24). Its sender does not know of our connection, and if that
    /// is the peer itself, the connection may be dead: it is probed. The HERE may be meant for the peer's neighbours,
    /// so it is forwarded.
    fn signal_about_peer(
        &mut self,
        cx: &mut Cx<'_, '_>,
        source: Ipv4Addr,
        here: Here,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        if !self.dialer.by_source.allows(source, cx.low.now.mono) {
            cx.low.env.counters.here_limited += 1;
            return Err(Refusal::Reject("too many HEREs from there"));
        }
        self.dialer.by_source.count(source, cx.low.now.mono);
        cx.low.env.counters.here_received += 1;
        self.probe(cx, stream);
        if source != *here.at.ip() {
            self.pass_on_here(cx, here, Some(source));
        }
        Ok(())
    }

    /// MA-24: handles a HERE about a node that is being dialled. There is no second dial, but another address is tried
    /// next. If the node sent the HERE itself, it may have just refused this one and invited it to dial again. Its
    /// datagram then overtakes its reset.
    fn signal_while_dialling(
        &mut self,
        cx: &mut Cx<'_, '_>,
        stream: StreamId,
        source: Ipv4Addr,
        here: Here,
    ) -> Result<(), Refusal> {
        if let Some(link) = cx.low.links.get_mut(stream)
            && let Role::Dialling { expected, is_connected, .. } = link.role()
            && expected.nid == here.nid
            && (expected.at != here.at || (is_connected && source == *here.at.ip()))
        {
            link.set_role(Role::Dialling { expected, otherwise: Some(here.at), is_connected });
            cx.low.env.counters.here_received += 1;
            return Ok(());
        }
        Err(ignore(cx, "a HERE about a node that is being dialled"))
    }

    /// Forwards a HERE to the peer nearest to its subject, if that peer is nearer than this node. So the HERE strictly
    /// approaches its subject. If this node is nearest, the peer on the other side of the subject gets it.
    pub(super) fn pass_on_here(&mut self, cx: &mut Cx<'_, '_>, here: Here, source: Option<Ipv4Addr>) {
        let Some((younger, older)) = cx.low.ring.around(here.nid, &[here.nid]) else { return };
        let nearest = if closer(here.nid, younger, older) { younger } else { older };
        let we_are_younger = clockwise(younger, cx.low.env.own) < clockwise(younger, here.nid);
        let opposite = if we_are_younger { older } else { younger };
        let to = if closer(here.nid, nearest, cx.low.env.own) { nearest } else { opposite };
        if let Some(ip) = cx.low.ring.get(to).map(|route| *route.at.ip())
            && source != Some(ip)
        {
            cx.low.env.counters.here_passed_on += 1;
            self.tell(cx, here, to, ip);
        }
    }

    /// The limits of MA-25: dials under way, dials per second, dials to one address.
    pub(super) fn may_dial(&self, cx: &Cx<'_, '_>, here: Here) -> bool {
        !cx.low.env.is_stopping
            && cx.low.ring.get(here.nid).is_none()
            && cx.low.links.dials() < cx.low.env.config.dials_max
            && cx.low.links.dialling(here.nid, *here.at.ip()).is_none()
            && self.dialer.dial_limit.allows((), cx.low.now.mono)
            && self.dialer.by_target.allows(*here.at.ip(), cx.low.now.mono)
            && !has_two_places(cx, here.nid, *here.at.ip())
    }

    /// RECONNECT (M-35): dials, and sends HERE at once (MA-27a).
    pub(super) fn dial(&mut self, cx: &mut Cx<'_, '_>, here: Here, is_redial: bool) {
        tracing::debug!(state = "RECONNECT", nid = %cx.low.env.own, to = %here.nid);
        cx.low.env.counters.dials += 1;
        self.dialer.dial_limit.count((), cx.low.now.mono);
        self.dialer.by_target.count(*here.at.ip(), cx.low.now.mono);
        let stream = cx.low.links.allot();
        let role = Role::Dialling { expected: here, otherwise: None, is_connected: false };
        let body_bytes_max = cx.low.env.config.body_bytes_max();
        let mut link =
            Link::new(role, Direction::Out, *here.at.ip(), cx.low.now.mono, body_bytes_max, is_redial);
        let frame = here_frame(&cx.low.env.here());
        link.writes_mut().wrote(None, frame.len());
        cx.low.links.insert(stream, link);
        let own = *cx.low.env.config.bind.ip();
        cx.low.out.open(stream, here.addr(), (!own.is_unspecified()).then_some(IpAddr::V4(own)));
        cx.low.out.write(stream, &frame);
        cx.low.out.read(stream, FIRST_CREDIT_BYTES);
        cx.low.env.timers.set(Timer::Handshake(stream), cx.low.now.mono + HANDSHAKE);
    }

    /// MA-30: dials a broken connection once more.
    pub(in crate::w3w) fn redial_due(&mut self, cx: &mut Cx<'_, '_>) {
        if let Some(nid) = self.dialer.redials_due.pop_due(cx.low.now.mono)
            && let Some(here) = self.dialer.redials.remove(&nid)
            && self.may_dial(cx, here)
        {
            self.dial(cx, here, true);
        }
        self.schedule_redial(cx);
    }

    /// Sets the timer of the next broken connection that is dialled once more.
    pub(super) fn schedule_redial(&self, cx: &mut Cx<'_, '_>) {
        if let Some((at, _)) = self.dialer.redials_due.next() {
            cx.low.env.timers.set(Timer::Redial, at);
        }
    }

    /// Handles a failed dial. If it was refused, the HERE of that node is forwarded; if another address is known, it is
    /// dialled.
    pub(super) fn dial_failed(&mut self, cx: &mut Cx<'_, '_>, link: &Link) {
        cx.low.env.counters.dials_failed += 1;
        let Role::Dialling { expected, otherwise, is_connected } = link.role() else { return };
        if let Some(at) = otherwise {
            let here = Here { nid: expected.nid, at };
            if self.may_dial(cx, here) {
                self.dial(cx, here, false);
            }
        } else if is_connected && cx.low.ring.get(expected.nid).is_none() {
            self.directory.refused_by.insert(expected.nid, cx.low.now.mono, cx.low.now.mono + REFUSED);
            cx.low.env.schedule_expiry();
            self.remember_candidate(cx, expected);
            self.pass_on_here(cx, expected, None);
        }
    }
}

/// MA-14: whether a node claims the NID of a peer, from another address.
fn is_clash(cx: &Cx<'_, '_>, source: Ipv4Addr, here: Here) -> bool {
    let is_elsewhere = |route: &Route| route.at.ip() != here.at.ip();
    source == *here.at.ip() && cx.low.ring.get(here.nid).is_some_and(is_elsewhere)
}

fn ignore(cx: &mut Cx<'_, '_>, reason: &'static str) -> Refusal {
    cx.low.env.counters.here_ignored += 1;
    Refusal::Reject(reason)
}
