//! One end of a connection: its buffers and numbers.
//!
//! Bytes are numbered from 0 in each direction; the FIN counts as one more behind the last of them.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use annulus_core::{CloseReason, ListenerId, Seen, StreamId, Watched};

use crate::host::HostId;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing has reached it yet.
    #[default]
    Idle,
    /// It has asked for the connection.
    SynSent,
    /// It has sent SYN-ACK and waits for the ACK.
    SynReceived,
    /// The connection stands.
    Open,
    /// The kernel has forgotten it: whatever comes is answered with a reset.
    Gone,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: HostId,
    pub(crate) stream: StreamId,
    pub(crate) addr: SocketAddr,
    pub(crate) phase: Phase,
    pub(crate) listener: Option<ListenerId>,

    /// Whether a machine holds it; without one the kernel finishes sending the bytes that it took.
    pub(crate) held: bool,
    /// Whether the machine got `Connected`. Before that the driver writes nothing.
    pub(crate) is_reported: bool,
    pub(crate) pump_queued: bool,
    pub(crate) credit: usize,
    /// Written by the machine, not yet taken by the kernel.
    pub(crate) unsent: VecDeque<u8>,
    /// Whether the machine has finished its direction.
    pub(crate) finish: bool,
    /// Bytes taken that are not yet reported to the machine.
    pub(crate) taken_unreported: usize,
    pub(crate) fin_reported: bool,
    pub(crate) finished_reported: bool,
    /// The watch that the machine asked for.
    pub(crate) watched: Option<Box<Watched>>,
    pub(crate) look_queued: bool,
    /// Bytes confirmed that are not yet reported to the machine.
    pub(crate) confirmed_unreported: usize,
    /// The close reason that the machine gets at the end.
    pub(crate) closed: Option<CloseReason>,

    /// Taken by the kernel, not confirmed by the peer.
    pub(crate) outgoing: VecDeque<u8>,
    /// Bytes the kernel has ever taken.
    pub(crate) taken: u64,
    pub(crate) fin_taken: bool,
    /// The first number that the peer has not confirmed, and the next to send.
    pub(crate) unconfirmed: u64,
    pub(crate) next: u64,
    /// The first number that the peer has no room for.
    pub(crate) edge: u64,
    /// Since when the peer has confirmed nothing though there is something to confirm.
    pub(crate) silent_since: u64,
    pub(crate) retransmit_at: u64,
    pub(crate) retransmit_queued: bool,
    pub(crate) retries: u32,
    pub(crate) round_trip: u64,
    /// When a segment of the peer last came, and how many probes went unanswered since.
    pub(crate) heard_at: u64,
    pub(crate) probes: u32,
    /// The moment for which the keep-alive timer is set.
    pub(crate) probe_at: u64,
    /// Segments do not overtake each other: none arrives before this.
    pub(crate) last_arrival: u64,

    /// Arrived in order, not yet read.
    pub(crate) incoming: VecDeque<u8>,
    /// The next number to arrive.
    pub(crate) expected: u64,
    pub(crate) fin_arrived: bool,
    /// Bytes the machine has ever got.
    pub(crate) read: u64,
    /// The window edge that was last sent to the peer.
    pub(crate) edge_advertised: u64,
}

impl Default for End {
    fn default() -> Self {
        Self {
            host: HostId::new(0),
            stream: StreamId::default(),
            addr: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            phase: Phase::Idle,
            listener: None,
            held: false,
            is_reported: false,
            pump_queued: false,
            credit: 0,
            unsent: VecDeque::new(),
            finish: false,
            taken_unreported: 0,
            fin_reported: false,
            finished_reported: false,
            watched: None,
            look_queued: false,
            confirmed_unreported: 0,
            closed: None,
            outgoing: VecDeque::new(),
            taken: 0,
            fin_taken: false,
            unconfirmed: 0,
            next: 0,
            edge: 0,
            silent_since: 0,
            retransmit_at: 0,
            retransmit_queued: false,
            retries: 0,
            round_trip: 0,
            heard_at: 0,
            probes: 0,
            probe_at: 0,
            last_arrival: 0,
            incoming: VecDeque::new(),
            expected: 0,
            fin_arrived: false,
            read: 0,
            edge_advertised: 0,
        }
    }
}

/// The arrived bytes, as the receiving end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Whether there was something the machine may want.
    pub(crate) news: bool,
    /// Whether the peer should get an acknowledgement.
    pub(crate) answer: bool,
}

impl End {
    /// The number behind the last that will be sent, as far as is known.
    pub(crate) fn limit(&self) -> u64 {
        self.taken + u64::from(self.fin_taken)
    }

    /// Whether the peer has confirmed all that was taken.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.unconfirmed == self.limit()
    }

    /// Whether nothing is left to do, given the state of the other end.
    pub(crate) fn is_over(&self, peer: Phase) -> bool {
        match self.phase {
            Phase::Idle => true,
            Phase::Gone => !self.held,
            Phase::SynSent | Phase::SynReceived => false,
            Phase::Open => !self.held && self.is_confirmed() && (self.fin_arrived || peer == Phase::Gone),
        }
    }

    /// The figures of its kernel.
    pub(crate) fn seen(&self, at: u64) -> Seen {
        Seen {
            acknowledged: self.unconfirmed.min(self.taken),
            silent_for: Duration::from_micros(at.saturating_sub(self.heard_at)),
            in_flight: self.next > self.unconfirmed,
            probes: self.probes,
        }
    }

    /// The kernel takes bytes while it has room; the buffer grows with the confirmed bytes. True if it took anything.
    pub(crate) fn take(&mut self, buffer_bytes: usize, buffer_max_bytes: usize) -> bool {
        if self.phase != Phase::Open || !self.is_reported {
            return false;
        }
        let grown = usize::try_from(2 * self.unconfirmed).unwrap_or(usize::MAX).min(buffer_max_bytes);
        let buffer_bytes = buffer_bytes.max(grown);
        let room = buffer_bytes.saturating_sub(self.outgoing.len()).min(self.unsent.len());
        self.outgoing.extend(self.unsent.drain(..room));
        self.taken += room as u64;
        self.taken_unreported += room;
        let fin = self.finish && self.unsent.is_empty() && !self.fin_taken;
        self.fin_taken |= fin;
        room > 0 || fin
    }

    /// Whether the machine has written bytes or a FIN that the kernel has not taken.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || (self.finish && !self.fin_taken)
    }

    /// The next piece to send: how long it may be and whether the FIN goes with it; `None` if nothing can go.
    pub(crate) fn next_piece(&self, segment_bytes: usize) -> Option<(usize, bool)> {
        if self.next >= self.limit() {
            return None;
        }
        let left = self.taken.saturating_sub(self.next) as usize;
        let window = self.edge.saturating_sub(self.next) as usize;
        let length = left.min(segment_bytes).min(window);
        if length == 0 && left > 0 {
            return None;
        }
        Some((length, self.fin_taken && length == left))
    }

    /// Takes in a confirmation.
    pub(crate) fn confirm(&mut self, ack: u64, edge: u64, at: u64) {
        let idle = self.next == self.unconfirmed;
        self.edge = self.edge.max(edge);
        if ack <= self.unconfirmed || ack > self.limit() {
            if idle {
                self.silent_since = at; // It answers probes: it lives, it just does not read.
            }
            return;
        }
        let bytes = ack.min(self.taken).saturating_sub(self.unconfirmed.min(self.taken)) as usize;
        self.outgoing.drain(..bytes);
        self.unconfirmed = ack;
        self.next = self.next.max(ack);
        self.silent_since = at;
        self.retries = 0;
    }

    /// Takes in data and FIN.
    pub(crate) fn arrive(&mut self, sequence: u64, bytes: &[u8], fin: bool, buffer_bytes: usize) -> Arrived {
        if bytes.is_empty() && !fin {
            return Arrived { news: false, answer: false };
        }
        let known = self.expected.saturating_sub(sequence) as usize;
        if sequence > self.expected || self.fin_arrived || (known >= bytes.len() && !fin) {
            return Arrived { news: false, answer: true };
        }
        let fresh = &bytes[known.min(bytes.len())..];
        let room = buffer_bytes.saturating_sub(self.incoming.len()).min(fresh.len());
        self.incoming.extend(&fresh[..room]);
        self.expected += room as u64;
        let ends = fin && self.expected == sequence + bytes.len() as u64;
        if ends {
            self.fin_arrived = true;
            self.expected += 1;
        }
        Arrived { news: room > 0 || ends, answer: true }
    }

    /// The first number there is no room for.
    pub(crate) fn own_edge(&self, buffer_bytes: usize) -> u64 {
        self.expected + buffer_bytes.saturating_sub(self.incoming.len()) as u64
    }

    /// Drops all that is buffered.
    pub(crate) fn forget(&mut self) {
        self.phase = Phase::Gone;
        self.unsent = VecDeque::new();
        self.outgoing = VecDeque::new();
        self.incoming = VecDeque::new();
        self.watched = None;
    }
}
