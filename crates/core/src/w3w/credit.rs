//! How much peers may send: memory is bounded by what we grant, never by what they announce.
//!
//! A peer may be [`WINDOW_BYTES`] ahead of us. While messages in memory, unfinished ones included, are over
//! `memory_bytes_max`, nothing more is granted. If it is the unfinished ones that are too many, one peer at a time may go on, the
//! one whose message is the furthest: else peers that all stopped in the middle of a long message would wait for each
//! other for ever. So the most is
//! `memory_bytes_max`, a window for each peer, and one message; half as much again may wait for room in the store.

use core::time::Duration;

use super::alarms::Alarm;
use super::machine::{Mesh, Out};
use crate::tag::StreamId;
use crate::time::Now;

/// How much a peer may send ahead of what we have taken in.
pub(super) const WINDOW_BYTES: usize = 256 * 1024;
/// The one peer that may send while memory is short is given up if it sends nothing for so long.
const SILENCE: Duration = Duration::from_secs(30);

impl Mesh {
    /// A peer has sent so many bytes, and `is_whole` if an end of a message was among them: it may send as many more,
    /// unless memory is short.
    pub(super) fn grant(
        &mut self,
        now: Now,
        stream: StreamId,
        bytes: usize,
        is_whole: bool,
        out: Out<'_, '_>,
    ) {
        let is_easy = !self.is_owing && !self.is_short();
        let Some(link) = self.links.get_mut(stream) else { return };
        if is_easy {
            return out.read(stream, bytes);
        }
        link.owed_bytes += bytes;
        self.is_owing = true;
        if self.favoured == Some(stream) {
            if is_whole || self.is_short_of_saving() {
                self.disfavour(stream);
            } else {
                self.favour(now, stream, out);
            }
        }
        self.repay(now, out);
    }

    /// Grants what was held back, as far as memory allows.
    pub(super) fn repay(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.is_owing {
            return;
        }
        if !self.is_short() {
            self.is_owing = false;
            if let Some(stream) = self.favoured {
                self.disfavour(stream);
            }
            for (stream, link) in self.links.iter_mut() {
                if link.owed_bytes > 0 {
                    out.read(stream, core::mem::take(&mut link.owed_bytes));
                }
            }
        } else if self.favoured.is_none() && !self.is_short_of_saving() {
            let waiting = self
                .links
                .iter()
                .filter(|(_, link)| link.owed_bytes >= WINDOW_BYTES && link.held_bytes() > 0);
            if let Some((stream, _)) = waiting.max_by_key(|(_, link)| link.held_bytes()) {
                self.favour(now, stream, out);
            }
        }
    }

    /// The one peer that may send has sent nothing for too long.
    pub(super) fn silent(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        self.stalled(now, stream, out);
        self.repay(now, out);
    }

    /// This peer is not the one that may send any more, if it was.
    pub(super) fn disfavour(&mut self, stream: StreamId) {
        if self.favoured == Some(stream) {
            self.favoured = None;
            self.alarms.clear(Alarm::Silent(stream));
        }
    }

    /// Whether peers have to wait before they send more.
    fn is_short(&self) -> bool {
        self.memory_bytes() > self.config.memory_bytes_max || self.room.is_full()
    }

    /// Whether that is because of whole messages: those leave memory by themselves, as the store takes them.
    fn is_short_of_saving(&self) -> bool {
        self.queue.memory_bytes() + self.delivering_bytes > self.config.memory_bytes_max
            || self.room.is_full()
    }

    /// Messages in memory: those that wait, those being saved for us, and those of which a part has come.
    pub(super) fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes() + self.delivering_bytes + self.links.held_bytes()
    }

    fn favour(&mut self, now: Now, stream: StreamId, out: Out<'_, '_>) {
        self.favoured = Some(stream);
        self.alarms.set(Alarm::Silent(stream), now.mono + SILENCE);
        if let Some(link) = self.links.get_mut(stream) {
            out.read(stream, core::mem::take(&mut link.owed_bytes));
        }
    }
}
