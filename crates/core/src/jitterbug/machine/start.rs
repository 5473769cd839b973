//! Starting and stopping: the identity of the node, and its last stored record.

use core::time::Duration;

use super::super::application::Application;
use super::super::lower::Transition;
use super::super::message::HostId;
use super::super::role::Role;
use super::super::waiter::Waiter;
use super::super::{Event, LostReason, Reply};
use super::{Jitterbug, Out, SPACE};
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::tag::OpId;
use crate::time::{Instant, Now};
use crate::wire::Reader;

/// The key of the identity in the store.
pub const IDENTITY_KEY: &[u8] = b"identity";
/// The key of the application's record.
pub const KEPT_KEY: &[u8] = b"kept";

/// The time until a failed read of the disk is repeated.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

/// The identity of a node across restarts: four bytes of host id, two of port.
///
/// The port must be known before the listener is bound. So a driver that wants to keep it reads it from its store and
/// puts it into the configuration. A node that returns on another port is moved in the list (JA-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The host id, at least 1.
    pub host_id: HostId,
    /// The port of the listener.
    pub tcp_port: u16,
}

impl Identity {
    /// Reads the value of [`IDENTITY_KEY`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let host_id = HostId::new(reader.u32().ok()?).filter(|host_id| host_id.number() > 0)?;
        let tcp_port = reader.u16().ok()?;
        reader.finish().ok()?;
        Some(Self { host_id, tcp_port })
    }

    /// The stored bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 6] {
        let (host_id, port) = (self.host_id.number().to_be_bytes(), self.tcp_port.to_be_bytes());
        [host_id[0], host_id[1], host_id[2], host_id[3], port[0], port[1]]
    }
}

/// The stage of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not started.
    Created,
    /// Waits for its identity, then for the application's record.
    Loading { identity: OpId, kept: OpId, found: Option<Identity>, readable: bool },
    /// The disk could not be read; the read is repeated then.
    Unread { again_at: Instant },
    /// Its identity is being written; the application has its record.
    Saving(OpId),
    /// In the ring.
    Running,
    /// Leaves the ring; its last record is being written.
    Stopping(Option<OpId>),
}

impl Stage {
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Self::Stopping(_))
    }

    pub(super) fn again_at(&self) -> Option<Instant> {
        if let Self::Unread { again_at } = self { Some(*again_at) } else { None }
    }
}

impl<A: Application> Jitterbug<A> {
    pub(super) fn load(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.lower.token.load(now.mono);
        let (identity, kept) = (self.lower.env.next_op(), self.lower.env.next_op());
        self.stage = Stage::Loading { identity, kept, found: None, readable: true };
        out.get(identity, SPACE, IDENTITY_KEY);
        out.get(kept, SPACE, KEPT_KEY);
    }

    pub(super) fn stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_, A>) {
        if let StoreResult::Failed(fault) = reply.result {
            self.lower.env.count().store_failures += 1;
            out.event(Event::StoreFailed { fault });
        }
        let done = !matches!(reply.result, StoreResult::Failed(_));
        if let (Stage::Loading { .. } | Stage::Unread { .. }, false) = (&self.stage, done) {
            // A node that cannot read its used fences may use none: it stays out of the ring until it can.
            self.stage = Stage::Unread { again_at: now.mono + LOAD_AGAIN };
            return;
        }
        let value = if let StoreResult::Value(value) = reply.result { value } else { None };
        match self.stage {
            Stage::Loading { identity, kept, .. } if reply.op == identity => {
                let found = value.and_then(Identity::from_bytes);
                let readable = done && (value.is_none() || found.is_some());
                if done && !readable {
                    self.lower.env.count().store_failures += 1;
                    out.event(Event::StoreFailed { fault: StoreFault::Broken });
                }
                self.stage = Stage::Loading { identity, kept, found, readable };
            }
            Stage::Loading { kept, found, readable, .. } if reply.op == kept => {
                self.identify(now, found, readable, value, out);
            }
            Stage::Saving(op) if reply.op == op => self.run(now, out),
            Stage::Stopping(Some(op)) if reply.op == op => self.stage = Stage::Stopping(None),
            _ => {
                let (role, mut cx) = self.split(now, &mut *out);
                let next = role.leader().and_then(|tenure| tenure.on_stored(&mut cx, reply.op, done));
                self.follow(now, next, out);
            }
        }
    }

    /// Sets the identity: configured, stored, or drawn now.
    fn identify(
        &mut self,
        now: Now,
        found: Option<Identity>,
        readable: bool,
        kept: Option<&[u8]>,
        out: Out<'_, '_, A>,
    ) {
        let stored = found.map(|identity| identity.host_id);
        let env = &mut self.lower.env;
        let host_id = env.config().host_id.or(stored).unwrap_or_else(|| HostId::draw(env.rng()));
        env.identify(host_id);
        self.lower.token.start(host_id, kept);
        let identity = Identity { host_id, tcp_port: self.lower.env.tcp_port() };
        // An identity that could not be read is not overwritten: a later read may succeed.
        if found == Some(identity) || !readable {
            return self.run(now, out);
        }
        let op = self.lower.env.next_op();
        self.stage = Stage::Saving(op);
        out.put(op, SPACE, IDENTITY_KEY, &identity.to_bytes(), true);
    }

    fn run(&mut self, now: Now, out: Out<'_, '_, A>) {
        self.stage = Stage::Running;
        let env = &self.lower.env;
        self.lower.ring.add_self(env.own_entry());
        out.event(Event::Started { host_id: env.host_id(), tcp_port: env.tcp_port() });
        self.follow(now, Some(Transition::Orphan), out);
    }

    /// Leaves the ring: a leader makes one last round, other nodes stop at once (JA-52).
    pub(super) fn stop(&mut self, now: Now, out: Out<'_, '_, A>) {
        if self.stage.is_ending() {
            return;
        }
        let lower = &mut self.lower;
        if let Some(lost) = lower.holds.lose(LostReason::Stopping) {
            out.event(lost);
        }
        // A change that is not in the data is withdrawn.
        for (request, number) in lower.changes.take_all() {
            lower.token.withdraw(number);
            out.reply(request, Reply::Stopping);
        }
        let waiting = lower.holds.take_waiting();
        waiting.into_iter().for_each(|asked| out.reply(asked.request, Reply::Stopping));
        let will = if self.stage == Stage::Running { self.lower.token.last_will() } else { None };
        self.stage = Stage::Stopping(will.map(|will| {
            let op = self.lower.env.next_op();
            out.put(op, SPACE, KEPT_KEY, &will, true);
            op
        }));
        // A leader that is passing to this node learns of it before its commit point.
        while let Some(stream) = self.lower.streams.pop_incoming() {
            out.abort(stream);
        }
        let (role, mut cx) = self.split(now, &mut *out);
        match role {
            Role::Leader(tenure) => {
                let next = tenure.hand_off_and_stop(&mut cx);
                self.follow(now, next, out);
            }
            Role::Orphan(_) | Role::Waiter(_) => *role = Role::Waiter(Waiter::idle()),
        }
    }
}
