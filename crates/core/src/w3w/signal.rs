//! SIGNAL and RECONNECT: whom a HERE makes us dial, and within which limits.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Event;
use super::alarms::Alarm;
use super::links::{Link, Role};
use super::machine::{HANDSHAKE, HOLD_DOWN, Mesh, Out};
use super::message::Here;
use super::nid::Nid;
use super::routes::{Direction, Route};
use super::wire::{FIRST_BODY_BYTES_MAX, LENGTH_BYTES, here_frame};
use crate::machine::Refusal;
use crate::ring::{clockwise, closer};
use crate::tag::StreamId;
use crate::time::Now;

/// How long a full ring remembers who refused us.
const REFUSED: Duration = Duration::from_secs(3600);
/// What may be read before the handshake is over.
pub(super) const FIRST_CREDIT_BYTES: usize = LENGTH_BYTES + FIRST_BODY_BYTES_MAX;

impl Mesh {
    /// SIGNAL (M-36, M-41): a HERE came by datagram. It makes us dial, and nothing else (MA-22).
    pub(super) fn signal(
        &mut self,
        now: Now,
        from: SocketAddr,
        here: Here,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let source = match from.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => return Err(self.ignore("a HERE over IPv6")),
        };
        if self.is_clash(source, here) {
            self.report_clash(now, here, out);
            return Ok(());
        }
        if let Some(stream) = self.ring.get(here.nid).map(|route| route.stream) {
            return self.signal_about_peer(now, source, here, stream, out);
        }
        if let Some(reason) = self.no_use(now, here) {
            return Err(self.ignore(reason));
        }
        if !self.by_source.allows(source, now.mono) {
            self.counters.here_limited += 1;
            return Err(Refusal::Reject("too many HEREs from there"));
        }
        if let Some(stream) = self.links.dialling(here.nid, *here.at.ip()) {
            return self.signal_while_dialling(stream, source, here);
        }
        let is_full = self.ring.len() >= self.config.peers_max;
        let is_invited = source == *here.at.ip() || self.ring.is_neighbour(here.nid);
        let would_be_refused = self.refused_by.has(here.nid, now.mono) && !is_invited;
        let would_be_dropped =
            || self.ring.too_close(Some(here.nid)).is_some_and(|triple| triple.middle == here.nid);
        if is_full && (would_be_refused || would_be_dropped()) {
            // M-41a: a newcomer that OPTIMIZE would drop at once is not dialled. It is remembered for the day a
            // neighbour dies, and the news goes on to a peer that is nearer to it than we are.
            self.by_source.count(source, now.mono);
            self.counters.here_received += 1;
            self.remember_candidate(here);
            self.pass_on_here(now, here, Some(source), out);
            return Ok(());
        }
        if !self.may_dial(now, here) {
            self.counters.here_limited += 1;
            return Err(Refusal::Reject("too many dials"));
        }
        tracing::debug!(state = "SIGNAL", nid = %self.own, about = %here.nid);
        self.by_source.count(source, now.mono);
        self.counters.here_received += 1;
        self.dial(now, here, false, out);
        Ok(())
    }

    /// MA-14: a node says of itself that it is one of our peers, from another address.
    fn is_clash(&self, source: Ipv4Addr, here: Here) -> bool {
        let is_elsewhere = |route: &Route| route.at.ip() != here.at.ip();
        source == *here.at.ip() && self.ring.get(here.nid).is_some_and(is_elsewhere)
    }

    /// Tells of a clash, once in a while; the peer stays.
    fn report_clash(&mut self, now: Now, here: Here, out: Out<'_, '_>) {
        self.counters.here_ignored += 1;
        if self.introduced.add((here.nid, self.own), now.mono, now.mono + HOLD_DOWN) {
            self.remind(now);
            out.event(Event::IdentityClashed { nid: here.nid, ip: *here.at.ip() });
        }
    }

    fn ignore(&mut self, reason: &'static str) -> Refusal {
        self.counters.here_ignored += 1;
        Refusal::Reject(reason)
    }

    /// Says HERE once more on a connection that may be dead: the peer ignores it, a kernel that knows nothing of the
    /// connection resets it, and no answer at all ends it as well.
    pub(super) fn probe(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        let frame = here_frame(&self.here());
        if let Some(link) = self.links.get_mut(stream)
            && !link.is_writing()
            && link.part.is_none()
            && now.mono.since(link.probed) >= HANDSHAKE
        {
            link.probed = now.mono;
            link.wrote(None, frame.len());
            out.write(stream, &frame);
        }
    }

    /// Why a HERE leads to nothing, if it does.
    fn no_use(&self, now: Now, here: Here) -> Option<&'static str> {
        if self.is_stopping {
            Some("the node is stopping")
        } else if here.nid == self.own || here.at.ip() == self.at.ip() {
            Some("a HERE about ourselves")
        } else if !here.is_reachable_from(*self.at.ip()) {
            Some("a HERE about an address that cannot be dialled")
        } else if self.held_off.has(here.nid, now.mono) {
            Some("a HERE about a node on hold-down")
        } else {
            None
        }
    }

    /// A HERE about a peer changes nothing (MA-24). But whoever says it does not know that we are connected, least of all
    /// the peer itself: the connection may be dead. And the news may be on its way to the peer's neighbours.
    fn signal_about_peer(
        &mut self,
        now: Now,
        source: Ipv4Addr,
        here: Here,
        stream: StreamId,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        if !self.by_source.allows(source, now.mono) {
            self.counters.here_limited += 1;
            return Err(Refusal::Reject("too many HEREs from there"));
        }
        self.by_source.count(source, now.mono);
        self.counters.here_received += 1;
        self.probe(now, stream, out);
        if source != *here.at.ip() {
            self.pass_on_here(now, here, Some(source), out);
        }
        Ok(())
    }

    /// MA-24: no second dial; but if the node is said to be elsewhere, that is tried next. And if it says HERE itself,
    /// it may have refused us a moment ago and asks us to call again: then its datagram is here before its reset.
    fn signal_while_dialling(
        &mut self,
        stream: StreamId,
        source: Ipv4Addr,
        here: Here,
    ) -> Result<(), Refusal> {
        if let Some(link) = self.links.get_mut(stream)
            && let Role::Dialling { expected, otherwise, is_connected } = &mut link.role
            && expected.nid == here.nid
            && (expected.at != here.at || (*is_connected && source == *here.at.ip()))
        {
            *otherwise = Some(here.at);
            self.counters.here_received += 1;
            return Ok(());
        }
        Err(self.ignore("a HERE about a node that is being dialled"))
    }

    /// Tells the peer nearest to a node of it, if that peer is nearer than we are: so the news strictly nears its
    /// subject. If we are nearest ourselves, whoever is on its other side is told.
    pub(super) fn pass_on_here(&mut self, now: Now, here: Here, source: Option<Ipv4Addr>, out: Out<'_, '_>) {
        let Some((younger, older)) = self.ring.around(here.nid, Some(here.nid)) else { return };
        let nearest = if closer(here.nid, younger, older) { younger } else { older };
        let we_are_younger = clockwise(younger, self.own) < clockwise(younger, here.nid);
        let opposite = if we_are_younger { older } else { younger };
        let to = if closer(here.nid, nearest, self.own) { nearest } else { opposite };
        if let Some(ip) = self.ring.get(to).map(|route| *route.at.ip())
            && source != Some(ip)
        {
            self.counters.here_passed_on += 1;
            self.tell(now, here, to, ip, out);
        }
    }

    /// The limits of MA-25: dials under way, dials per second, dials to one address.
    pub(super) fn may_dial(&self, now: Now, here: Here) -> bool {
        !self.is_stopping
            && self.ring.get(here.nid).is_none()
            && self.links.dials() < self.config.dials_max
            && self.links.dialling(here.nid, *here.at.ip()).is_none()
            && self.dial_limit.allows((), now.mono)
            && self.by_target.allows(*here.at.ip(), now.mono)
    }

    /// RECONNECT (M-35): dials, and says who we are at once (MA-27a).
    pub(super) fn dial(&mut self, now: Now, here: Here, is_redial: bool, out: Out<'_, '_>) {
        tracing::debug!(state = "RECONNECT", nid = %self.own, to = %here.nid);
        self.counters.dials += 1;
        self.dial_limit.count((), now.mono);
        self.by_target.count(*here.at.ip(), now.mono);
        let stream = self.links.allot();
        let role = Role::Dialling { expected: here, otherwise: None, is_connected: false };
        let mut link = Link::new(role, Direction::Out, *here.at.ip(), now.mono, self.config.body_bytes_max());
        link.is_redial = is_redial;
        let frame = here_frame(&self.here());
        link.wrote(None, frame.len());
        self.links.insert(stream, link);
        let own = *self.config.bind.ip();
        out.open(stream, here.addr(), (!own.is_unspecified()).then_some(IpAddr::V4(own)));
        out.write(stream, &frame);
        out.read(stream, FIRST_CREDIT_BYTES);
        self.alarms.set(Alarm::Handshake(stream), now.mono + HANDSHAKE);
    }

    /// MA-30: a broken connection of ours, once more.
    pub(super) fn redial(&mut self, now: Now, nid: Nid, out: Out<'_, '_>) {
        if let Some(here) = self.redials.remove(&nid)
            && self.may_dial(now, here)
        {
            self.dial(now, here, true, out);
        }
    }

    /// A dial has failed. If it was refused, the news of that node is passed on; if it is said to be elsewhere, it is
    /// dialled there.
    pub(super) fn dial_failed(&mut self, now: Now, link: &Link, out: Out<'_, '_>) {
        self.counters.dials_failed += 1;
        let Role::Dialling { expected, otherwise, is_connected } = link.role else { return };
        if let Some(at) = otherwise {
            let here = Here { nid: expected.nid, at };
            if self.may_dial(now, here) {
                self.dial(now, here, false, out);
            }
        } else if is_connected && self.ring.get(expected.nid).is_none() {
            self.refused_by.add(expected.nid, now.mono, now.mono + REFUSED);
            self.remind(now);
            self.remember_candidate(expected);
            self.pass_on_here(now, expected, None, out);
        }
    }
}
