//! The connections: their frames, their write queues, and the credit of peers.
//!
//! A driver numbers accepted streams, this part numbers dialled ones.

mod buffer_pool;
mod credit;
mod frames;
mod link;
mod write_queue;

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bytes::Bytes;

use super::env::{Env, MemoryUse};
use super::message::EntryId;
use super::nid::Nid;
use super::timers::Timer;
use crate::tag::StreamId;
use crate::time::Now;
use crate::wire::DecodeError;

use buffer_pool::BufferPool;
pub(super) use credit::WINDOW_BYTES;
pub(super) use frames::first_frame;
pub(super) use link::{Link, Role};

/// A peer whose kernel takes nothing for this long is disconnected (MA-48).
const STALL: Duration = Duration::from_secs(30);

/// All connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    links: BTreeMap<StreamId, Link>,
    opened: u64,
    pool: BufferPool,
    /// The one peer that may send while memory is short.
    unblocked_stream: Option<StreamId>,
    /// Whether credit was withheld.
    is_withholding: bool,
}

impl Links {
    /// A number for a stream about to be opened.
    pub(super) fn allot(&mut self) -> StreamId {
        self.opened += 1;
        StreamId::opened(self.opened)
    }

    pub(super) fn insert(&mut self, stream: StreamId, link: Link) {
        self.links.insert(stream, link);
    }

    /// Removes a connection and its timers.
    pub(super) fn close(&mut self, env: &mut Env, stream: StreamId) -> Option<Link> {
        env.timers.cancel(Timer::Handshake(stream));
        self.block(env, stream);
        self.remove(&mut env.memory, stream)
    }

    pub(super) fn remove(&mut self, memory: &mut MemoryUse, stream: StreamId) -> Option<Link> {
        let link = self.links.remove(&stream)?;
        memory.partial -= link.held_bytes();
        Some(link)
    }

    /// Handles received bytes. Returns the complete frames, and an error if a length is over the limit.
    pub(super) fn take_frames(
        &mut self,
        memory: &mut MemoryUse,
        stream: StreamId,
        data: &[u8],
    ) -> Option<(Vec<Bytes>, Result<(), DecodeError>)> {
        let link = self.links.get_mut(&stream)?;
        let frames = link.take_frames(data, &mut self.pool);
        let (before, after) = link.note_held();
        memory.partial = memory.partial - before + after;
        Some(frames)
    }

    /// Handles bytes that the kernel took. Returns the entries whose frames it has taken completely.
    pub(super) fn on_sent(
        &mut self,
        env: &mut Env,
        now: Now,
        stream: StreamId,
        bytes: usize,
    ) -> Vec<EntryId> {
        let Some(link) = self.links.get_mut(&stream) else { return Vec::new() };
        let done = link.on_sent(bytes, now.mono + STALL);
        let stalled_at = link.stalled_at();
        env.lazy.stalls.set(&mut env.timers, Timer::Stalls, stalled_at);
        done
    }

    /// Starts the stall timer: bytes were written to an idle connection, and the kernel must take them in time.
    pub(super) fn watch_stall(&mut self, env: &mut Env, now: Now, stream: StreamId) {
        if let Some(link) = self.links.get_mut(&stream) {
            link.watch_stall(now.mono + STALL);
            env.lazy.stalls.set(&mut env.timers, Timer::Stalls, Some(now.mono + STALL));
        }
    }

    /// The connections whose peers have read nothing for too long. Sets the timer for the others.
    pub(super) fn take_stalled(&self, env: &mut Env, now: Now) -> Vec<StreamId> {
        let at = |link: &Link| link.stalled_at();
        let stalled: Vec<StreamId> = self
            .iter()
            .filter(|(_, link)| at(link).is_some_and(|at| at <= now.mono))
            .map(|(stream, _)| stream)
            .collect();
        let next = self.links.values().filter_map(at).filter(|at| *at > now.mono).min();
        env.lazy.stalls.set(&mut env.timers, Timer::Stalls, next);
        stalled
    }

    /// Reuses the buffer of a finished message.
    pub(super) fn recycle(&mut self, frame: Bytes) {
        self.pool.give(frame);
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Link> {
        self.links.get(&stream)
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Link> {
        self.links.get_mut(&stream)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StreamId, &Link)> {
        self.links.iter().map(|(stream, link)| (*stream, link))
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.links.keys().copied().collect()
    }

    /// The dial under way to this node or to this address.
    pub(super) fn dialling(&self, nid: Nid, ip: Ipv4Addr) -> Option<StreamId> {
        let is_it = |link: &Link| match link.role() {
            Role::Dialling { expected, .. } => expected.nid == nid || link.peer() == ip,
            _ => false,
        };
        self.iter().find(|(_, link)| is_it(link)).map(|(stream, _)| stream)
    }

    pub(super) fn dials(&self) -> usize {
        self.links.values().filter(|link| matches!(link.role(), Role::Dialling { .. })).count()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// The bytes of the buffers that are kept for new messages.
    #[cfg(test)]
    pub(super) fn pooled_bytes(&self) -> usize {
        self.pool.bytes()
    }

    #[cfg(test)]
    pub(super) fn unblocked_stream(&self) -> Option<StreamId> {
        self.unblocked_stream
    }
}
