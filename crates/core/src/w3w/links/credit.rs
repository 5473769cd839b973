//! Credit: the bytes that this node grants bound its memory, never the lengths that peers announce.
//!
//! A peer may be [`WINDOW_BYTES`] ahead. While messages in memory, incomplete ones included, exceed `memory_bytes_max`,
//! the node grants no more credit. If incomplete messages are the cause, it unblocks one peer at a time, the one with
//! the most complete message. Otherwise peers in the middle of long messages would wait for each other for ever. So the
//! maximum is `memory_bytes_max`, a window for each peer, and one message. Deferred messages may take half as much
//! again.

use core::time::Duration;

use super::Links;
use crate::outbox::Outbox;
use crate::tag::StreamId;
use crate::time::Now;
use crate::w3w::env::Env;
use crate::w3w::machine::Mesh;
use crate::w3w::timers::Timer;

/// How many bytes a peer may send ahead of what this node has read.
pub(in crate::w3w) const WINDOW_BYTES: usize = 256 * 1024;
/// The unblocked peer is disconnected if it sends nothing for this long.
const SILENCE: Duration = Duration::from_secs(30);

impl Links {
    /// Grants a peer as many bytes as it sent, unless memory is short. `is_whole` is whether they completed a message.
    pub(in crate::w3w) fn grant(
        &mut self,
        env: &mut Env,
        now: Now,
        (stream, bytes, is_whole): (StreamId, usize, bool),
        is_disk_full: bool,
        out: &mut Outbox<'_, Mesh>,
    ) {
        let is_easy = !self.is_withholding && !is_short(env, is_disk_full);
        let Some(link) = self.links.get_mut(&stream) else { return };
        if is_easy {
            return out.read(stream, bytes);
        }
        link.withhold(bytes);
        self.is_withholding = true;
        if self.unblocked_stream == Some(stream) {
            if is_whole || is_short_of_writes(env, is_disk_full) {
                self.block(env, stream);
            } else {
                self.unblock(env, now, stream, out);
            }
        }
        self.release_credit(env, now, is_disk_full, out);
    }

    /// Grants the credit that was withheld, as far as memory allows.
    pub(in crate::w3w) fn release_credit(
        &mut self,
        env: &mut Env,
        now: Now,
        is_disk_full: bool,
        out: &mut Outbox<'_, Mesh>,
    ) {
        if !self.is_withholding {
            return;
        }
        if !is_short(env, is_disk_full) {
            self.is_withholding = false;
            if let Some(stream) = self.unblocked_stream {
                self.block(env, stream);
            }
            for (stream, link) in &mut self.links {
                if link.withheld_credit() > 0 {
                    out.read(*stream, link.take_withheld());
                }
            }
        } else if self.unblocked_stream.is_none() && !is_short_of_writes(env, is_disk_full) {
            let waiting = self
                .links
                .iter()
                .filter(|(_, link)| link.withheld_credit() >= WINDOW_BYTES && link.held_bytes() > 0);
            if let Some((&stream, _)) = waiting.max_by_key(|(_, link)| link.held_bytes()) {
                self.unblock(env, now, stream, out);
            }
        }
    }

    /// Ends the permission of this peer to send while memory is short.
    pub(super) fn block(&mut self, env: &mut Env, stream: StreamId) {
        if self.unblocked_stream == Some(stream) {
            self.unblocked_stream = None;
            env.timers.cancel(Timer::Silent(stream));
        }
    }

    fn unblock(&mut self, env: &mut Env, now: Now, stream: StreamId, out: &mut Outbox<'_, Mesh>) {
        self.unblocked_stream = Some(stream);
        env.timers.set(Timer::Silent(stream), now.mono + SILENCE);
        if let Some(link) = self.links.get_mut(&stream) {
            out.read(stream, link.take_withheld());
        }
    }
}

/// Whether peers must wait before they send more.
fn is_short(env: &Env, is_disk_full: bool) -> bool {
    env.memory.total() > env.config.memory_bytes_max || is_disk_full
}

/// Whether complete messages are the cause: they leave memory when the store has written them.
fn is_short_of_writes(env: &Env, is_disk_full: bool) -> bool {
    env.memory.complete() > env.config.memory_bytes_max || is_disk_full
}
