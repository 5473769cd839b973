//! The second connection beside an unresponsive one: when it is opened, and which of the two stays (PL-4, PL-5, PL-10).

use std::net::SocketAddr;

use super::Pool;
use super::connection::{Connection, Stage};
use crate::machine::Machine;
use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::time::Instant;

impl<L: PartialEq> Pool<L> {
    /// Treats the connections to a suspected peer as unresponsive from now on.
    pub fn suspect<M: Machine>(&mut self, now: Instant, peer: SocketAddr, out: &mut Outbox<'_, M>) {
        self.connections.to(peer).into_iter().for_each(|stream| self.mark_unresponsive(now, stream, out));
    }

    /// Aborts all connections to a peer that has died, left or restarted.
    pub fn gone<M: Machine>(&mut self, peer: SocketAddr, out: &mut Outbox<'_, M>) {
        for stream in self.connections.to(peer) {
            self.drop_connection(stream, out);
        }
    }

    /// Marks a connection as unresponsive, and opens a second one unless there is one.
    pub(super) fn mark_unresponsive<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        out: &mut Outbox<'_, M>,
    ) {
        let nonce = self.next_nonce();
        let is_new =
            self.connections.change(stream, |connection| connection.mark_unresponsive(now, nonce, out));
        if is_new != Some(true) {
            return;
        }
        let Some(peer) = self.connections.get(stream).and_then(Connection::peer) else { return };
        if !self.has_healthy(peer) && !self.is_stopping {
            // Without room for a second connection, the first stays alone.
            let _ = self.open(now, peer, out);
        }
    }

    /// Prefers a connection on which bytes arrived. Unresponsive connections to the same peer are aborted. If this one
    /// was unresponsive itself, those that were opened in its place are closed too. One that is established closes in
    /// good order: the peer may have answered over it already.
    pub(super) fn prefer<M: Machine>(
        &mut self,
        now: Instant,
        stream: StreamId,
        was_unresponsive: bool,
        out: &mut Outbox<'_, M>,
    ) {
        let Some(peer) = self.connections.get(stream).and_then(Connection::peer) else { return };
        for other in self.connections.to(peer) {
            let Some(at) = self.connections.get(other).filter(|_| other != stream) else { continue };
            let is_idle_second = was_unresponsive && at.from().is_none() && at.label().is_none();
            if at.health().is_unresponsive() {
                self.drop_connection(other, out);
            } else if is_idle_second && !at.health().is_waiting() {
                match at.stage() {
                    Stage::Open => self.finish(now, other, true, out),
                    Stage::Connecting | Stage::Pausing => self.drop_connection(other, out),
                    Stage::Silent | Stage::Closing => {}
                }
            }
        }
    }

    /// Whether a connection to this address is established or being opened, and is not unresponsive.
    pub(super) fn has_healthy(&self, peer: SocketAddr) -> bool {
        self.connections.usable_to(peer).any(|at| !at.health().is_unresponsive())
    }
}
