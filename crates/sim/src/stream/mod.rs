//! Streams: a small TCP between two ends.
//!
//! Every connection has two ends that know of each other only by segments, which take time, get lost, and are
//! stopped by cuts like anything else. So the effects of TCP happen here by themselves. A peer may have everything
//! though the sender saw a timeout. A reset discards data under way. A window closes because the machine does not read.
//! Bytes are confirmed in order, and when a timer runs out everything behind a lost segment is sent again
//! (go-back-N); there is no fast retransmission and no congestion control.
//!
//! | file | what it is |
//! |---|---|
//! | `end.rs` | one end: its buffers and numbers, without I/O |
//! | `kernel.rs` | segments and timers: the part a kernel plays |
//! | `opening.rs` | the handshake |
//! | `watch.rs` | confirmations, dead peers and idle streams |
//! | `driver.rs` | actions in, events out: the part a driver plays |

mod driver;
mod end;
mod kernel;
mod opening;
mod watch;

use crate::host::HostId;

pub(crate) use end::{End, Phase};

/// One end of a connection. The generation distinguishes it from later users of the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndKey {
    conn: u32,
    /// Generation and, in the lowest bit, the end: 0 opened the connection, 1 accepted it.
    generation_and_end: u32,
}

impl EndKey {
    fn new(conn: u32, generation: u32, end: usize) -> Self {
        Self { conn, generation_and_end: generation << 1 | end as u32 }
    }

    /// The other end of the connection.
    fn peer(self) -> Self {
        Self { generation_and_end: self.generation_and_end ^ 1, ..self }
    }

    fn generation(self) -> u32 {
        self.generation_and_end >> 1
    }

    fn end(self) -> usize {
        (self.generation_and_end & 1) as usize
    }
}

/// A connection, or the slot of one that is over.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    generation: u32,
    in_use: bool,
    /// When something last passed between the ends, as a middlebox sees it, and whether it has forgotten them.
    flow_at: u64,
    is_forgotten: bool,
    ends: [End; 2],
}

/// A piece of a connection under way.
#[derive(Debug)]
pub(crate) struct Segment {
    to: EndKey,
    kind: SegmentKind,
    sequence: u64,
    fin: bool,
    /// Everything before this has arrived at the sender of this segment …
    ack: u64,
    /// … and everything before this has room there.
    edge: u64,
    bytes: Vec<u8>,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            to: EndKey { conn: 0, generation_and_end: 0 },
            kind: SegmentKind::Plain,
            sequence: 0,
            fin: false,
            ack: 0,
            edge: 0,
            bytes: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentKind {
    /// Asks for a connection.
    Syn,
    /// Grants one.
    SynAck,
    /// Carries data, a confirmation, or both.
    Plain,
    /// Probes whether the window has opened.
    Probe,
    /// Ends everything at once.
    Reset,
}

impl<M: annulus_core::Machine> crate::Sim<M> {
    fn end(&self, key: EndKey) -> Option<&End> {
        let conn = self.conns.find(key.conn)?;
        (conn.in_use && conn.generation == key.generation()).then(|| &conn.ends[key.end()])
    }

    fn end_mut(&mut self, key: EndKey) -> Option<&mut End> {
        self.end(key)?;
        Some(&mut self.conns.at_mut(key.conn).ends[key.end()])
    }

    /// Frees a connection that neither end needs any more.
    fn free_if_over(&mut self, key: EndKey) {
        let conn = self.conns.at_mut(key.conn);
        if !conn.in_use || conn.generation != key.generation() {
            return;
        }
        let [first, second] = &conn.ends;
        if first.is_over(second.phase) && second.is_over(first.phase) {
            conn.in_use = false;
            conn.generation = (conn.generation + 1) & (u32::MAX >> 1);
            conn.ends = Default::default();
            conn.is_forgotten = false;
            self.conns.release(key.conn);
        }
    }

    /// The hosts at an end and at the other.
    fn hosts_of(&self, key: EndKey) -> Option<(HostId, HostId)> {
        Some((self.end(key)?.host, self.end(key.peer())?.host))
    }
}
