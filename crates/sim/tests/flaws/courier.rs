//! A small machine with a few promises, and a switch for each way to be careless about one fault.
//!
//! Each courier sends numbered notes over one stream to the next living courier, which makes a note durable before it
//! acknowledges it. Datagrams show which couriers are alive. An acknowledged note is a lease for [`LEASE`] from the
//! moment it was written. Where a courier has an application, the application finishes a note before it is made durable.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use annulus_core::{
    Bound, CloseReason, Endpoints, Instant, Listener, ListenerId, Machine, Now, OpId, Outbox, Refusal,
    RequestId, Socket, SocketId, Space, SpaceId, StoreReply, StoreResult, StreamEvent, StreamId, Wall,
};
use serde::Serialize;

const UDP: SocketId = SocketId::new(0);
const TCP: ListenerId = ListenerId::new(0);
pub(crate) const SPACE: SpaceId = SpaceId::new(0);
pub(crate) const PORT: u16 = 4000;
const ID: &[u8] = b"id";

/// The interval between clock checks of a courier.
const TICK: Duration = Duration::from_millis(250);
/// The timeout of a note, after which its stream is closed.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A courier that was silent for this long is suspected.
const SILENCE: Duration = Duration::from_millis(2_500);
/// How long an acknowledged note is a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// A note is larger than any path's packets.
const NOTE_BYTES: usize = 3_000;
const ACK_BYTES: usize = 8;

/// A way to be careless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A note is done when the own kernel has taken it (FA-1).
    TrustsKernel,
    /// Only the kernel decides that a stream is dead (FA-2, FA-3).
    NoTimeout,
    /// The same for connects, and a courier that does not answer is tried all the same (FA-4).
    NoConnectTimeout,
    /// A lease ends by a timer, not by the clock (FA-5).
    FlagNotClock,
    /// A late timer counts as the silence of others (FA-6).
    NoGrace,
    /// Time is the number of timers (FA-7).
    CountsTicks,
    /// Leases end by the wall clock (FA-8).
    WallClock,
    /// A courier that answers datagrams has working streams (FA-9, FA-10).
    PongIsProof,
    /// A failed write is acknowledged (FA-11).
    IgnoresFailed,
    /// An acknowledged note is never sent again (FA-11).
    NeverGoesBack,
    /// Others stay where they were configured (FA-12).
    FixedAddress,
    /// Two couriers with one id are one (FA-13).
    NoIdentityCheck,
    /// A stream that cannot be opened now can never be opened (FA-14).
    FailedIsFinal,
    /// Any answer is an answer to the last question (FA-15).
    LateIsFresh,
    /// A note is delivered when its event was given to the application's queue (FA-16).
    EventIsDelivery,
    /// Progress needs all couriers (FA-17).
    NeedsAll,
}

#[derive(Debug, Serialize)]
pub(crate) enum Event {
    /// A note is durable at another courier.
    Done { to: usize, number: u64 },
    /// A note is for the application.
    Arrived { from: usize, number: u64 },
    /// Two couriers have this id.
    Conflict(usize),
}

/// The application has finished a note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) from: usize,
    pub(crate) number: u64,
}

/// The stream for notes.
struct Outgoing {
    stream: StreamId,
    to: usize,
    is_connected: bool,
    /// The note that is not acknowledged, and until when it may take.
    open: Option<(u64, Instant)>,
    unsent: usize,
    acks: Vec<u8>,
}

/// The state of another courier.
#[derive(Clone, Copy)]
struct Other {
    addr: SocketAddr,
    earlier: Option<IpAddr>,
    heard: Instant,
    asked: Instant,
    sequence: u64,
    next: u64,
}

struct Lease {
    pub(crate) number: u64,
    to: usize,
    written: Now,
    ticks: u32,
    flag: bool,
}

pub(crate) struct Courier {
    flaw: Option<Flaw>,
    every: Duration,
    has_app: bool,
    own: usize,
    others: Vec<Other>,
    due: Option<Instant>,
    ticks: u64,
    opened: u64,
    ops: u64,
    next_note: Instant,
    outgoing: Option<Outgoing>,
    incoming: BTreeMap<StreamId, Vec<u8>>,
    /// Notes that the application has not finished.
    unsettled: BTreeMap<(u64, u64), StreamId>,
    puts: BTreeMap<OpId, (StreamId, u64, u64)>,
    highest: BTreeMap<u64, u64>,
    written: Option<(u64, usize, Now)>,
    lease: Option<Lease>,
    has_given_up: bool,
    reads: BTreeMap<OpId, Option<u64>>,
}

impl Courier {
    pub(crate) fn new(own: usize, count: usize, every: Duration, has_app: bool, flaw: Option<Flaw>) -> Self {
        let zero = Instant::from_micros(0);
        let other = |index: usize| {
            let addr = SocketAddr::from(([10, 0, 0, index as u8 + 1], PORT));
            Other { addr, earlier: None, heard: zero, asked: zero, sequence: 0, next: 1 }
        };
        Self {
            flaw,
            every,
            has_app,
            own,
            others: (0..count).map(other).collect(),
            due: None,
            ticks: 0,
            opened: 0,
            ops: 0,
            next_note: zero,
            outgoing: None,
            incoming: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            puts: BTreeMap::new(),
            highest: BTreeMap::new(),
            written: None,
            lease: None,
            has_given_up: false,
            reads: BTreeMap::new(),
        }
    }

    /// The key under which a courier keeps the highest note of another.
    pub(crate) fn key(from: usize) -> [u8; 8] {
        (from as u64).to_be_bytes()
    }

    /// The note that is a lease now, and its recipient.
    pub(crate) fn lease(&self, now: Now) -> Option<(usize, u64)> {
        let lease = self.lease.as_ref()?;
        let wall = |wall: Wall| Duration::from_micros(wall.as_micros());
        let is_valid = match self.flaw {
            Some(Flaw::FlagNotClock) => lease.flag,
            Some(Flaw::CountsTicks) => TICK * lease.ticks < LEASE,
            Some(Flaw::WallClock) => wall(now.wall) < wall(lease.written.wall) + LEASE,
            _ => now.mono < lease.written.mono + LEASE,
        };
        is_valid.then_some((lease.to, lease.number))
    }

    pub(crate) fn suspects(&self, other: usize, now: Now) -> bool {
        self.due.is_some() && other != self.own && now.mono.since(self.others[other].heard) > SILENCE
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }

    fn tick(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        let due = self.due.unwrap_or(now.mono);
        let late = now.mono.since(due);
        if late > TICK && !self.has(Flaw::NoGrace) {
            // This process was paused, not the others.
            self.others.iter_mut().for_each(|other| other.heard = now.mono);
        }
        self.due = Some(now.mono + TICK);
        self.ticks += 1;
        if let Some(lease) = &mut self.lease {
            lease.ticks += 1;
            lease.flag &= now.mono < lease.written.mono + LEASE;
        }
        if self.ticks % 4 == 1 {
            self.ask(now, out);
        }
        self.write_notes(now, out);
    }

    fn ask(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        for index in (0..self.others.len()).filter(|index| *index != self.own) {
            let other = &mut self.others[index];
            (other.sequence, other.asked) = (other.sequence + 1, now.mono);
            let addr = other.addr;
            out.send(UDP, addr, &datagram(b'?', self.own, self.others[index].sequence));
        }
    }

    /// The next courier that is not suspected.
    fn target(&self, now: Now) -> Option<usize> {
        let count = self.others.len();
        let mut next = (1..count).map(|step| (self.own + step) % count);
        if self.has(Flaw::NeedsAll) {
            let all = (0..count).all(|other| !self.suspects(other, now));
            return next.next().filter(|_| all);
        }
        if self.has(Flaw::NoConnectTimeout) {
            return next.next();
        }
        next.find(|other| !self.suspects(*other, now))
    }

    fn write_notes(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if let Some(outgoing) = &mut self.outgoing
            && let Some((_, until)) = &mut outgoing.open
            && *until <= now.mono
        {
            let heard = self.others[outgoing.to].heard;
            let is_patient = match self.flaw {
                Some(Flaw::NoTimeout) => true,
                Some(Flaw::NoConnectTimeout) => !outgoing.is_connected,
                Some(Flaw::PongIsProof) => now.mono.since(heard) < SILENCE,
                _ => false,
            };
            if is_patient {
                *until = now.mono + TIMEOUT;
            } else {
                out.abort(outgoing.stream);
                self.outgoing = None;
            }
        }
        if now.mono < self.next_note || self.has_given_up {
            return;
        }
        let Some(to) = self.target(now) else { return };
        let number = self.others[to].next;
        let until = now.mono + TIMEOUT;
        match &mut self.outgoing {
            Some(Outgoing { open: Some(_), .. }) => {}
            Some(outgoing) if outgoing.to == to => {
                outgoing.open = Some((number, until));
                self.next_note = now.mono + self.every;
                self.write(now, out);
            }
            _ => {
                if let Some(old) = self.outgoing.take() {
                    out.abort(old.stream);
                }
                self.opened += 1;
                let stream = StreamId::opened(self.opened);
                out.open(stream, self.others[to].addr, None);
                let open = Some((number, until));
                self.outgoing =
                    Some(Outgoing { stream, to, is_connected: false, open, unsent: 0, acks: Vec::new() });
                self.next_note = now.mono + self.every;
            }
        }
    }

    fn write(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let Some((number, _)) = outgoing.open else { return };
        let mut note = vec![0; NOTE_BYTES];
        note[..8].copy_from_slice(&(self.own as u64).to_be_bytes());
        note[8..16].copy_from_slice(&number.to_be_bytes());
        outgoing.unsent += NOTE_BYTES;
        self.written = Some((number, outgoing.to, now));
        out.write(outgoing.stream, &note);
        out.read(outgoing.stream, ACK_BYTES);
    }

    fn done(&mut self, number: u64, out: &mut Outbox<'_, Self>) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let to = outgoing.to;
        outgoing.open = None;
        self.others[to].next = number + 1;
        if let Some((_, _, written)) = self.written.filter(|(noted, whom, _)| (*noted, *whom) == (number, to))
        {
            self.lease = Some(Lease { number, to, written, ticks: 0, flag: true });
            out.event(Event::Done { to, number });
        }
    }

    fn acknowledged(&mut self, highest: u64, out: &mut Outbox<'_, Self>) {
        let Some(Outgoing { open: Some((number, _)), to, .. }) = self.outgoing else { return };
        if highest == number {
            self.done(number, out);
        } else if !self.has(Flaw::NeverGoesBack) {
            // The other one has lost notes, or has one more than this courier knew.
            self.others[to].next = highest + 1;
            self.outgoing.iter_mut().for_each(|outgoing| outgoing.open = None);
        } else {
            self.outgoing.iter_mut().for_each(|outgoing| outgoing.open = None);
        }
    }

    fn note(&mut self, stream: StreamId, from: u64, number: u64, out: &mut Outbox<'_, Self>) {
        let highest = self.highest.get(&from).copied().unwrap_or(0);
        if number != highest + 1 {
            return out.write(stream, &highest.to_be_bytes());
        }
        if self.has_app {
            // A note that is sent again is reported again: the application's queue may have been full.
            out.event(Event::Arrived { from: from as usize, number });
            if !self.has(Flaw::EventIsDelivery) {
                self.unsettled.insert((from, number), stream);
                return;
            }
        }
        self.store(stream, from, number, out);
    }

    fn store(&mut self, stream: StreamId, from: u64, number: u64, out: &mut Outbox<'_, Self>) {
        let op = self.op();
        self.puts.insert(op, (stream, from, number));
        out.put(op, SPACE, &Self::key(from as usize), &number.to_be_bytes(), true);
    }

    fn hear(&mut self, now: Now, from: SocketAddr, id: usize, out: &mut Outbox<'_, Self>) {
        let Some(other) = self.others.get_mut(id) else { return };
        if other.addr.ip() == from.ip() || self.flaw == Some(Flaw::FixedAddress) {
            return;
        }
        if other.earlier == Some(from.ip()) && now.mono.since(other.heard) < SILENCE {
            // It was there, then elsewhere, and is there again.
            if self.flaw != Some(Flaw::NoIdentityCheck) {
                out.event(Event::Conflict(id));
            }
        }
        other.earlier = Some(other.addr.ip());
        other.addr.set_ip(from.ip());
    }
}

fn datagram(kind: u8, id: usize, sequence: u64) -> Vec<u8> {
    let mut bytes = vec![kind, id as u8];
    bytes.extend(sequence.to_be_bytes());
    bytes
}

impl Machine for Courier {
    type Command = Settle;
    type Reply = ();
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let bind = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "courier/udp", bind, broadcast: Vec::new() }],
            listeners: vec![Listener { id: TCP, name: "courier/tcp", bind, streams_max: 64 }],
            spaces: vec![Space { id: SPACE, name: "courier" }],
        }
    }

    fn handle_start(&mut self, now: Now, _: &Bound, out: &mut Outbox<'_, Self>) {
        self.due = Some(now.mono);
        self.next_note = now.mono + Duration::from_secs(1);
        self.others.iter_mut().for_each(|other| other.heard = now.mono);
        let op = self.op();
        self.reads.insert(op, None);
        out.get(op, SPACE, ID);
        for from in 0..self.others.len() {
            let op = self.op();
            self.reads.insert(op, Some(from as u64));
            out.get(op, SPACE, &Self::key(from));
        }
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        let (kind, id) = (bytes[0], usize::from(bytes[1]));
        let sequence = u64::from_be_bytes(bytes[2..10].try_into().unwrap());
        self.hear(now, from, id, out);
        if kind == b'?' {
            out.send(UDP, from, &datagram(b'!', self.own, sequence));
            return Ok(());
        }
        let is_late = self.flaw != Some(Flaw::LateIsFresh);
        if let Some(other) = self.others.get_mut(id) {
            // An answer to one of the last two questions.
            let is_last = sequence <= other.sequence && other.sequence - sequence < 2;
            let is_answer = is_last && now.mono.since(other.asked) < SILENCE;
            if is_answer || !is_late {
                other.heard = now.mono;
            }
        }
        Ok(())
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        let is_outgoing = self.outgoing.as_ref().is_some_and(|outgoing| outgoing.stream == stream);
        match event {
            StreamEvent::Accepted { .. } => {
                self.incoming.insert(stream, Vec::new());
                out.read(stream, 1 << 30);
            }
            StreamEvent::Connected { .. } => {
                self.outgoing.iter_mut().for_each(|outgoing| outgoing.is_connected = true);
                self.write(now, out);
            }
            StreamEvent::Data(bytes) if is_outgoing => {
                let acks = &mut self.outgoing.as_mut().unwrap().acks;
                acks.extend(bytes);
                while let Some(ack) = self.outgoing.as_mut().and_then(|outgoing| take(&mut outgoing.acks, 8))
                {
                    self.acknowledged(u64::from_be_bytes(ack[..8].try_into().unwrap()), out);
                }
            }
            StreamEvent::Data(bytes) => {
                self.incoming.entry(stream).or_default().extend(bytes);
                while let Some(note) = self.incoming.get_mut(&stream).and_then(|from| take(from, NOTE_BYTES))
                {
                    let number = |at: usize| u64::from_be_bytes(note[at..at + 8].try_into().unwrap());
                    self.note(stream, number(0), number(8), out);
                }
            }
            StreamEvent::Sent { bytes, .. } if is_outgoing => {
                let outgoing = self.outgoing.as_mut().unwrap();
                outgoing.unsent -= bytes;
                if let Some((number, _)) = outgoing.open.filter(|_| outgoing.unsent == 0)
                    && self.has(Flaw::TrustsKernel)
                {
                    self.done(number, out);
                }
            }
            StreamEvent::Finished if is_outgoing => {
                out.abort(stream);
                self.outgoing = None;
            }
            StreamEvent::Finished => {
                out.abort(stream);
                self.incoming.remove(&stream);
            }
            StreamEvent::Closed(reason) => {
                self.incoming.remove(&stream);
                if is_outgoing {
                    self.outgoing = None;
                    self.has_given_up |= reason == CloseReason::Failed && self.has(Flaw::FailedIsFinal);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_stored(&mut self, _: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {
        let is_written = matches!(reply.result, StoreResult::Written);
        if let Some((stream, from, number)) = self.puts.remove(&reply.op) {
            if is_written || self.has(Flaw::IgnoresFailed) {
                self.highest.insert(from, number);
                if self.incoming.contains_key(&stream) {
                    out.write(stream, &number.to_be_bytes());
                }
            } else if self.incoming.remove(&stream).is_some() {
                out.abort(stream);
            }
            return;
        }
        let Some(of) = self.reads.remove(&reply.op) else { return };
        let StoreResult::Value(value) = reply.result else { return };
        let number = value.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        match (of, number) {
            (None, Some(id)) => self.own = id as usize,
            (None, None) => {
                let (op, own) = (self.op(), self.own as u64);
                out.put(op, SPACE, ID, &own.to_be_bytes(), true);
            }
            (Some(from), Some(number)) => drop(self.highest.insert(from, number)),
            (Some(_), None) => {}
        }
    }

    fn handle_command(&mut self, _: Now, _: RequestId, settle: Settle, out: &mut Outbox<'_, Self>) {
        let (from, number) = (settle.from as u64, settle.number);
        if let Some(stream) = self.unsettled.remove(&(from, number)) {
            self.store(stream, from, number, out);
        }
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if self.due.is_some_and(|due| due <= now.mono) && self.reads.is_empty() {
            self.tick(now, out);
        } else if self.due.is_some_and(|due| due <= now.mono) {
            // It still reads its store.
            self.due = Some(now.mono + TICK);
        }
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.due.map(|due| (due, "tick"))
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        vec![("timeout", TIMEOUT), ("silence", SILENCE)]
    }
}

/// The first so many bytes, if there are as many.
fn take(bytes: &mut Vec<u8>, count: usize) -> Option<Vec<u8>> {
    (bytes.len() >= count).then(|| bytes.drain(..count).collect())
}
