//! The actions of a machine: one ordered queue over one arena of bytes.
//!
//! A driver owns a [`Queue`] and keeps it: once it has grown, sending a datagram allocates nothing. A machine sees
//! it as an [`Outbox`]. A machine that contains others gives each of them an outbox of its own kind with
//! [`Outbox::nested`]. The inner outbox adds the service to every id, and wraps events and replies.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::machine::Machine;
use crate::payload::Payload;
use crate::store::{Batch, ChangeRecord, StoreOp};
use crate::stream::Watch;
use crate::tag::{OpId, RequestId, Service, SocketId, SpaceId, StreamId};
use crate::wire::{Overflow, Writer};

/// An action for the driver.
pub enum Action<'a, M: Machine> {
    /// Sends a datagram.
    Send {
        /// The socket.
        socket: SocketId,
        /// The receiver.
        to: SocketAddr,
        /// The content.
        bytes: &'a [u8],
    },
    /// Sends a datagram to every broadcast target of the socket.
    Broadcast {
        /// The socket.
        socket: SocketId,
        /// The content.
        bytes: &'a [u8],
    },
    /// Opens a stream.
    Open {
        /// Its number, allotted by the machine.
        stream: StreamId,
        /// The peer.
        to: SocketAddr,
        /// The local address; `None` leaves it to the system.
        from: Option<IpAddr>,
    },
    /// Writes to a stream, after the bytes written before.
    Write {
        /// The stream.
        stream: StreamId,
        /// The bytes.
        bytes: Payload<'a>,
    },
    /// Grants more read credit to a stream.
    Read {
        /// The stream.
        stream: StreamId,
        /// The number of bytes.
        credit: usize,
    },
    /// Ends our direction of a stream, after the written bytes.
    Finish {
        /// The stream.
        stream: StreamId,
    },
    /// Requests extra reports about a stream.
    Watch {
        /// The stream.
        stream: StreamId,
        /// The reports.
        watch: Watch,
    },
    /// Resets a stream: no more bytes are sent or received.
    Abort {
        /// The stream.
        stream: StreamId,
    },
    /// Sends a request to the store.
    Store {
        /// Its number, allotted by the machine.
        op: OpId,
        /// The request.
        request: StoreOp<'a>,
    },
    /// Reports an event to the application.
    Event(M::Event),
    /// Replies to a command of the application.
    Reply(RequestId, M::Reply),
}

/// The actions of one machine, kept by its driver.
pub struct Queue<M: Machine> {
    actions: Actions,
    given: Given<M>,
    next: usize,
}

impl<M: Machine> Default for Queue<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Queue<M> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self { actions: Actions::default(), given: Given::default(), next: 0 }
    }

    /// The machine's view of it.
    pub fn outbox(&mut self) -> Outbox<'_, M> {
        Outbox { actions: &mut self.actions, service: Service(0), sink: &mut self.given }
    }

    /// Whether no action waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next >= self.actions.records.len()
    }

    /// Takes the oldest action. When the last one is taken, the arena is empty. Its memory is kept for the next
    /// call, unless a rare large action made it grow.
    #[expect(
        clippy::should_implement_trait,
        reason = "an action borrows from the queue, an iterator's item may not"
    )]
    pub fn next(&mut self) -> Option<Action<'_, M>> {
        let Some(record) = self.actions.records.get(self.next) else {
            self.next = 0;
            self.actions.clear();
            return None;
        };
        self.next += 1;
        let actions = &self.actions;
        let bytes = |(from, to): Span| &actions.bytes[from as usize..to as usize];
        Some(match *record {
            Record::Send { socket, to, span } => Action::Send { socket, to, bytes: bytes(span) },
            Record::Broadcast { socket, span } => Action::Broadcast { socket, bytes: bytes(span) },
            Record::Open { stream, to, from } => Action::Open { stream, to, from },
            Record::Write { stream, place } => {
                Action::Write { stream, bytes: place.of(&actions.bytes, &actions.shared) }
            }
            Record::Read { stream, credit } => Action::Read { stream, credit },
            Record::Finish { stream } => Action::Finish { stream },
            Record::Watch { stream, watch } => Action::Watch { stream, watch },
            Record::Abort { stream } => Action::Abort { stream },
            Record::Get { op, space, key } => {
                Action::Store { op, request: StoreOp::Get { space, key: bytes(key) } }
            }
            Record::Page { op, space, from, until, entries_max } => Action::Store {
                op,
                request: StoreOp::Page { space, from: bytes(from), until: bytes(until), entries_max },
            },
            Record::Batch { op, changes: (from, to), durable } => {
                let changes = &actions.changes[from as usize..to as usize];
                Action::Store {
                    op,
                    request: StoreOp::Write {
                        batch: Batch { changes, bytes: &actions.bytes, shared: &actions.shared },
                        durable,
                    },
                }
            }
            Record::Event => Action::Event(self.given.events.pop_front().expect("one event per record")),
            Record::Reply => {
                let (request, reply) = self.given.replies.pop_front().expect("one reply per record");
                Action::Reply(request, reply)
            }
        })
    }
}

/// A machine's view of the queue: one method per action.
pub struct Outbox<'a, M: Machine> {
    actions: &'a mut Actions,
    service: Service,
    sink: &'a mut (dyn Sink<M> + 'a),
}

impl<M: Machine> Outbox<'_, M> {
    /// Sends a datagram.
    pub fn send(&mut self, socket: SocketId, to: SocketAddr, bytes: &[u8]) {
        let (socket, span) = (socket.in_service(self.service), self.actions.keep(bytes));
        self.actions.records.push(Record::Send { socket, to, span });
    }

    /// Sends a datagram that `write` writes straight into the arena.
    ///
    /// # Errors
    /// If it does not fit into `bytes_max`; nothing is sent.
    pub fn send_with(
        &mut self,
        socket: SocketId,
        to: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Overflow> {
        let (socket, span) = (socket.in_service(self.service), self.actions.keep_with(bytes_max, write)?);
        self.actions.records.push(Record::Send { socket, to, span });
        Ok(())
    }

    /// Sends a datagram to every broadcast target of the socket.
    pub fn broadcast(&mut self, socket: SocketId, bytes: &[u8]) {
        let (socket, span) = (socket.in_service(self.service), self.actions.keep(bytes));
        self.actions.records.push(Record::Broadcast { socket, span });
    }

    /// Opens a stream under a number never used before.
    pub fn open(&mut self, stream: StreamId, to: SocketAddr, from: Option<IpAddr>) {
        debug_assert!(!stream.is_accepted(), "a machine opens streams under even numbers");
        let stream = stream.in_service(self.service);
        self.actions.records.push(Record::Open { stream, to, from });
    }

    /// Writes to a stream.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let (stream, span) = (stream.in_service(self.service), self.actions.keep(bytes));
        self.actions.records.push(Record::Write { stream, place: Place::Arena(span) });
    }

    /// Writes to a stream the bytes that `write` writes straight into the arena.
    ///
    /// # Errors
    /// If it does not fit into `bytes_max`; nothing is written.
    pub fn write_with(
        &mut self,
        stream: StreamId,
        bytes_max: usize,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Overflow> {
        let (stream, span) = (stream.in_service(self.service), self.actions.keep_with(bytes_max, write)?);
        self.actions.records.push(Record::Write { stream, place: Place::Arena(span) });
        Ok(())
    }

    /// Writes shared bytes to a stream without copying them.
    pub fn write_shared(&mut self, stream: StreamId, bytes: Bytes) {
        let (stream, place) = (stream.in_service(self.service), self.actions.share(bytes));
        self.actions.records.push(Record::Write { stream, place });
    }

    /// Allows `credit` more bytes to be read.
    pub fn read(&mut self, stream: StreamId, credit: usize) {
        let stream = stream.in_service(self.service);
        self.actions.records.push(Record::Read { stream, credit });
    }

    /// Ends our direction of a stream, after the written bytes.
    pub fn finish(&mut self, stream: StreamId) {
        let stream = stream.in_service(self.service);
        self.actions.records.push(Record::Finish { stream });
    }

    /// Watches a stream: confirmations, and whether its peer is dead.
    pub fn watch(&mut self, stream: StreamId, watch: Watch) {
        let stream = stream.in_service(self.service);
        self.actions.records.push(Record::Watch { stream, watch });
    }

    /// Resets a stream. No further event of it follows.
    pub fn abort(&mut self, stream: StreamId) {
        let stream = stream.in_service(self.service);
        self.actions.records.push(Record::Abort { stream });
    }

    /// Requests the value of a key.
    pub fn get(&mut self, op: OpId, space: SpaceId, key: &[u8]) {
        let (op, space) = (op.in_service(self.service), space.in_service(self.service));
        let key = self.actions.keep(key);
        self.actions.records.push(Record::Get { op, space, key });
    }

    /// Requests up to `entries_max` entries with `from <= key < until`; an empty `until` is no end.
    pub fn page(&mut self, op: OpId, space: SpaceId, from: &[u8], until: &[u8], entries_max: u32) {
        let (op, space) = (op.in_service(self.service), space.in_service(self.service));
        let (from, until) = (self.actions.keep(from), self.actions.keep(until));
        self.actions.records.push(Record::Page { op, space, from, until, entries_max });
    }

    /// Writes one value.
    pub fn put(&mut self, op: OpId, space: SpaceId, key: &[u8], value: &[u8], durable: bool) {
        self.batch(op, durable, |batch| batch.put(space, key, value));
    }

    /// Deletes one value.
    pub fn delete(&mut self, op: OpId, space: SpaceId, key: &[u8], durable: bool) {
        self.batch(op, durable, |batch| batch.delete(space, key));
    }

    /// Makes all changes that `fill` adds, or none.
    pub fn batch(&mut self, op: OpId, durable: bool, fill: impl FnOnce(&mut BatchWriter<'_>)) {
        let from = self.actions.changes.len() as u32;
        fill(&mut BatchWriter { actions: self.actions, service: self.service });
        let changes = (from, self.actions.changes.len() as u32);
        let op = op.in_service(self.service);
        self.actions.records.push(Record::Batch { op, changes, durable });
    }

    /// Reports an event to the application.
    pub fn event(&mut self, event: M::Event) {
        if self.sink.event(event) {
            self.actions.records.push(Record::Event);
        }
    }

    /// Replies to the command `request`.
    pub fn reply(&mut self, request: RequestId, reply: M::Reply) {
        if self.sink.reply(request, reply) {
            self.actions.records.push(Record::Reply);
        }
    }

    /// The number of actions that wait. The difference before and after a call is what the machine added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.records.len()
    }

    /// Whether no action waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.records.is_empty()
    }

    /// Runs an inner machine as `service`: its ids get the tag, its events and replies are wrapped. The driver gets
    /// no reply for which `reply` returns `None`: the outer machine has consumed it.
    pub fn nested<C: Machine, T>(
        &mut self,
        service: Service,
        mut event: impl FnMut(C::Event) -> M::Event,
        reply: impl FnMut(RequestId, C::Reply) -> Option<M::Reply>,
        run: impl FnOnce(&mut Outbox<'_, C>) -> T,
    ) -> T {
        self.nested_where(service, |inner| Some(event(inner)), reply, run)
    }

    /// The same; the driver also gets no event for which `event` returns `None`.
    pub fn nested_where<C: Machine, T>(
        &mut self,
        service: Service,
        event: impl FnMut(C::Event) -> Option<M::Event>,
        reply: impl FnMut(RequestId, C::Reply) -> Option<M::Reply>,
        run: impl FnOnce(&mut Outbox<'_, C>) -> T,
    ) -> T {
        let mut wrapped = Wrapped { sink: &mut *self.sink, event, reply };
        run(&mut Outbox { actions: self.actions, service, sink: &mut wrapped })
    }

    /// Runs a machine of other types as this one: only its events and replies are wrapped.
    pub(crate) fn mapped<C: Machine, T>(
        &mut self,
        event: impl FnMut(C::Event) -> M::Event,
        mut reply: impl FnMut(C::Reply) -> M::Reply,
        run: impl FnOnce(&mut Outbox<'_, C>) -> T,
    ) -> T {
        let service = self.service;
        self.nested(service, event, |_, given| Some(reply(given)), run)
    }
}

/// The changes of one write under construction.
pub struct BatchWriter<'a> {
    actions: &'a mut Actions,
    service: Service,
}

impl BatchWriter<'_> {
    /// Sets a value.
    pub fn put(&mut self, space: SpaceId, key: &[u8], value: &[u8]) {
        let (key, value) = (self.actions.keep(key), self.actions.keep(value));
        self.push(space, key, Some(Place::Arena(value)));
    }

    /// Sets a shared value without copying it.
    pub fn put_shared(&mut self, space: SpaceId, key: &[u8], value: Bytes) {
        let (key, value) = (self.actions.keep(key), self.actions.share(value));
        self.push(space, key, Some(value));
    }

    /// Deletes a value.
    pub fn delete(&mut self, space: SpaceId, key: &[u8]) {
        let key = self.actions.keep(key);
        self.push(space, key, None);
    }

    fn push(&mut self, space: SpaceId, key: Span, value: Option<Place>) {
        self.actions.changes.push(ChangeRecord { space: space.in_service(self.service), key, value });
    }
}

/// A range of the arena: from, to.
type Span = (u32, u32);

/// The place of an action's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Arena(Span),
    /// Among the shared ones, at this index.
    Shared(u32),
}

impl Place {
    pub(crate) fn of<'a>(self, arena: &'a [u8], shared: &'a [Bytes]) -> Payload<'a> {
        match self {
            Self::Arena((from, to)) => Payload::Copied(&arena[from as usize..to as usize]),
            Self::Shared(index) => Payload::Shared(&shared[index as usize]),
        }
    }
}

/// An arena that grew beyond this is freed.
const ARENA_KEPT_BYTES: usize = 256 * 1024;

#[derive(Default)]
struct Actions {
    records: Vec<Record>,
    changes: Vec<ChangeRecord>,
    bytes: Vec<u8>,
    shared: Vec<Bytes>,
}

impl Actions {
    fn share(&mut self, bytes: Bytes) -> Place {
        self.shared.push(bytes);
        Place::Shared(self.shared.len() as u32 - 1)
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.span(from)
    }

    fn keep_with(&mut self, bytes_max: usize, write: impl FnOnce(&mut Writer<'_>)) -> Result<Span, Overflow> {
        let from = self.bytes.len();
        let mut writer = Writer::new(&mut self.bytes, bytes_max);
        write(&mut writer);
        match writer.finish() {
            Ok(()) => Ok(self.span(from)),
            Err(overflow) => {
                self.bytes.truncate(from);
                Err(overflow)
            }
        }
    }

    fn span(&self, from: usize) -> Span {
        let to = u32::try_from(self.bytes.len()).expect("one call writes less than 4 GiB");
        (from as u32, to)
    }

    fn clear(&mut self) {
        self.records.clear();
        self.changes.clear();
        self.bytes.clear();
        self.shared.clear();
        if self.bytes.capacity() > ARENA_KEPT_BYTES {
            self.bytes.shrink_to(ARENA_KEPT_BYTES);
        }
    }
}

/// An [`Action`] as places in the arena; events and replies are in queues of their own types.
#[derive(Clone, Copy)]
enum Record {
    Send { socket: SocketId, to: SocketAddr, span: Span },
    Broadcast { socket: SocketId, span: Span },
    Open { stream: StreamId, to: SocketAddr, from: Option<IpAddr> },
    Write { stream: StreamId, place: Place },
    Read { stream: StreamId, credit: usize },
    Finish { stream: StreamId },
    Watch { stream: StreamId, watch: Watch },
    Abort { stream: StreamId },
    Get { op: OpId, space: SpaceId, key: Span },
    Page { op: OpId, space: SpaceId, from: Span, until: Span, entries_max: u32 },
    Batch { op: OpId, changes: Span, durable: bool },
    Event,
    Reply,
}

/// Takes the values of the machine's own types.
trait Sink<M: Machine> {
    /// Takes an event. Returns whether it reached the driver.
    fn event(&mut self, event: M::Event) -> bool;
    /// Takes a reply. Returns whether it reached the driver.
    fn reply(&mut self, request: RequestId, reply: M::Reply) -> bool;
}

struct Given<M: Machine> {
    events: VecDeque<M::Event>,
    replies: VecDeque<(RequestId, M::Reply)>,
}

impl<M: Machine> Default for Given<M> {
    fn default() -> Self {
        Self { events: VecDeque::new(), replies: VecDeque::new() }
    }
}

impl<M: Machine> Sink<M> for Given<M> {
    fn event(&mut self, event: M::Event) -> bool {
        self.events.push_back(event);
        true
    }

    fn reply(&mut self, request: RequestId, reply: M::Reply) -> bool {
        self.replies.push_back((request, reply));
        true
    }
}

struct Wrapped<'a, M: Machine, E, R> {
    sink: &'a mut (dyn Sink<M> + 'a),
    event: E,
    reply: R,
}

impl<C, M, E, R> Sink<C> for Wrapped<'_, M, E, R>
where
    C: Machine,
    M: Machine,
    E: FnMut(C::Event) -> Option<M::Event>,
    R: FnMut(RequestId, C::Reply) -> Option<M::Reply>,
{
    fn event(&mut self, event: C::Event) -> bool {
        (self.event)(event).is_some_and(|event| self.sink.event(event))
    }

    fn reply(&mut self, request: RequestId, reply: C::Reply) -> bool {
        (self.reply)(request, reply).is_some_and(|reply| self.sink.reply(request, reply))
    }
}

impl<M: Machine> fmt::Debug for Action<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { socket, to, bytes } => write!(f, "Send {socket} to {to} {}", Hex(bytes)),
            Self::Broadcast { socket, bytes } => write!(f, "Broadcast {socket} {}", Hex(bytes)),
            Self::Open { stream, to, from } => write!(f, "Open {stream} to {to} from {from:?}"),
            Self::Write { stream, bytes } => write!(f, "Write {stream} {}", Hex(bytes)),
            Self::Read { stream, credit } => write!(f, "Read {stream} {credit}"),
            Self::Finish { stream } => write!(f, "Finish {stream}"),
            Self::Watch { stream, watch: Watch { confirm, dead_after } } => {
                write!(f, "Watch {stream} confirm {confirm} dead after {dead_after:?}")
            }
            Self::Abort { stream } => write!(f, "Abort {stream}"),
            Self::Store { op, request } => write!(f, "Store {op} {request:?}"),
            Self::Event(event) => write!(f, "Event {event:?}"),
            Self::Reply(request, reply) => write!(f, "Reply {} {reply:?}", request.0),
        }
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
