//! Companions: machines of an application that run beside the services of a node.
//!
//! A companion is a part like any other: it has sockets, streams and a store of its own under its tag. It also receives
//! events of the other parts, and may keep them inside the node. It sends commands to the other parts and gets their
//! replies, each with the number of its request. The node carries both between the parts after every input.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{Command, Event, Reply};
use crate::common::caught;
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{RequestId, Service, SocketId, StreamId};
use crate::time::{Instant, Now};

/// Whether a companion wants an event of another part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// No.
    Ignores,
    /// Yes, and the application gets it too.
    Shares,
    /// Yes, and the event stays inside the node.
    Keeps,
}

/// A machine that runs beside the services of a node. Every method has a default: a machine that needs nothing of the
/// others writes `impl Companion for MyMachine {}`.
pub trait Companion:
    Machine<
        Command: Clone + Send + Sync + 'static,
        Reply: Clone + Send + Sync + 'static,
        Event: Clone + Send + Sync + 'static,
    > + Clone
    + fmt::Debug
    + PartialEq
    + Send
    + 'static
{
    /// Whether companions of this kind want an event of another part.
    fn hears(event: &Event) -> Hearing {
        let _ = event;
        Hearing::Ignores
    }

    /// Handles a wanted event.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn handle_event(&mut self, now: Now, event: &Event, out: &mut Outbox<'_, Self>) {}

    /// Commands for other parts, numbered by this machine. The node takes them after every input.
    fn take_commands(&mut self) -> Vec<(RequestId, Command)> {
        Vec::new()
    }

    /// Handles the reply to one of its commands.
    #[expect(unused_variables, reason = "the names are for who implements it")]
    fn handle_reply(&mut self, now: Now, request: RequestId, reply: Reply, out: &mut Outbox<'_, Self>) {}
}

/// A command or a reply of a companion.
#[derive(Clone)]
pub struct Own(Arc<dyn OwnValue>);

trait OwnValue: Any + fmt::Debug + Send + Sync {}

impl<T: Any + fmt::Debug + Send + Sync> OwnValue for T {}

impl Own {
    /// Wraps a command or a reply.
    pub fn new<T: fmt::Debug + Send + Sync + 'static>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// The value, if it has this type.
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let value: &dyn Any = &*self.0;
        value.downcast_ref()
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Own {}

/// An event of a companion.
#[derive(Clone)]
pub struct OwnEvent(Arc<dyn OwnEventValue>);

trait OwnEventValue: OwnValue {
    fn json(&self) -> Value;
}

impl<T: OwnValue + Serialize> OwnEventValue for T {
    fn json(&self) -> Value {
        // All events have one form: an object.
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => Value::Object(fields),
            Ok(other) => json!({ "event": other }),
            Err(_) => json!({ "event": "unreadable" }),
        }
    }
}

impl OwnEvent {
    fn new<T: fmt::Debug + Serialize + Send + Sync + 'static>(event: T) -> Self {
        Self(Arc::new(event))
    }

    /// The event, if it has this type.
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let event: &dyn Any = &*self.0;
        event.downcast_ref()
    }
}

impl fmt::Debug for OwnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for OwnEvent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OwnEvent {}

impl Serialize for OwnEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json().serialize(serializer)
    }
}

/// The reply to a command of another type than the companion's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnderstood;

/// The reply to a command of a companion that has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Inputs of a companion that has panicked are refused.
const GONE: Result<(), Refusal> = Err(Refusal::Reject("the companion has panicked"));

/// A companion as a part of a node.
pub struct OwnPart(Box<dyn AnyCompanion>);

impl OwnPart {
    /// The part of a companion.
    pub fn new<M: Companion>(machine: M) -> Self {
        Self(Box::new(Adapter { machine, has_panicked: false }))
    }

    /// The machine, if it has this type.
    #[must_use]
    pub fn get<M: Companion>(&self) -> Option<&M> {
        self.0.as_any().downcast_ref().map(|Adapter { machine, .. }| machine)
    }

    pub(super) fn hears(&self) -> fn(&Event) -> Hearing {
        self.0.hears()
    }

    pub(super) fn take_commands(&mut self) -> Vec<(RequestId, Command)> {
        self.0.take_commands()
    }

    pub(super) fn handle_event(&mut self, now: Now, event: &Event, out: &mut Outbox<'_, Self>) {
        let _ = self.0.handle(now, Input::Event(event), out);
    }

    pub(super) fn handle_reply(
        &mut self,
        now: Now,
        request: RequestId,
        reply: Reply,
        out: &mut Outbox<'_, Self>,
    ) {
        let _ = self.0.handle(now, Input::Reply(request, reply), out);
    }
}

impl Clone for OwnPart {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl fmt::Debug for OwnPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for OwnPart {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(&*other.0)
    }
}

/// An input of a companion that is no command.
enum Input<'a> {
    Start(&'a Bound),
    Datagram(SocketId, SocketAddr, &'a [u8]),
    Stream(StreamId, StreamEvent<'a>),
    Stored(StoreReply<'a>),
    Timeout,
    Stop,
    Event(&'a Event),
    Reply(RequestId, Reply),
}

/// The methods of a companion, whatever its types.
trait AnyCompanion: fmt::Debug + Send {
    fn as_any(&self) -> &dyn Any;
    fn copy(&self) -> Box<dyn AnyCompanion>;
    fn is_equal(&self, other: &dyn AnyCompanion) -> bool;
    fn hears(&self) -> fn(&Event) -> Hearing;
    fn take_commands(&mut self) -> Vec<(RequestId, Command)>;
    fn handle(&mut self, now: Now, input: Input<'_>, out: &mut Outbox<'_, OwnPart>) -> Result<(), Refusal>;
    fn handle_command(&mut self, now: Now, request: RequestId, command: Own, out: &mut Outbox<'_, OwnPart>);
    fn endpoints(&self) -> Endpoints;
    fn is_stopped(&self) -> bool;
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;
    fn counters(&self, visit: VisitCounter<'_>);
    fn timescales(&self) -> Vec<(&'static str, Duration)>;
}

/// A companion, until it panics: from then on it gets no inputs, and the other parts continue.
#[derive(Clone, Debug, PartialEq)]
struct Adapter<M> {
    machine: M,
    has_panicked: bool,
}

impl<M: Companion> Adapter<M> {
    /// Runs the machine with an outbox of its own; `None` if it panics, or has panicked before.
    fn run<T>(
        &mut self,
        out: &mut Outbox<'_, OwnPart>,
        call: impl FnOnce(&mut M, &mut Outbox<'_, M>) -> T,
    ) -> Option<T> {
        if self.has_panicked {
            return None;
        }
        let machine = &mut self.machine;
        let done = out.mapped(OwnEvent::new, Own::new, |inner| caught(|| call(machine, inner)));
        self.has_panicked = done.is_none();
        done
    }

    /// Reads from the machine; the default if it panics, or has panicked before.
    fn ask<T: Default>(&self, call: impl FnOnce(&M) -> T) -> T {
        if self.has_panicked { T::default() } else { caught(|| call(&self.machine)).unwrap_or_default() }
    }
}

impl<M: Companion> AnyCompanion for Adapter<M> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn copy(&self) -> Box<dyn AnyCompanion> {
        Box::new(self.clone())
    }

    fn is_equal(&self, other: &dyn AnyCompanion) -> bool {
        other.as_any().downcast_ref::<Self>() == Some(self)
    }

    fn hears(&self) -> fn(&Event) -> Hearing {
        M::hears
    }

    fn take_commands(&mut self) -> Vec<(RequestId, Command)> {
        let has_panicked = self.has_panicked;
        let taken = if has_panicked { None } else { caught(|| self.machine.take_commands()) };
        self.has_panicked = taken.is_none();
        taken.unwrap_or_default()
    }

    fn handle(&mut self, now: Now, input: Input<'_>, out: &mut Outbox<'_, OwnPart>) -> Result<(), Refusal> {
        let done = self.run(out, |machine, inner| {
            match input {
                Input::Start(bound) => machine.handle_start(now, bound, inner),
                Input::Datagram(socket, from, bytes) => {
                    return machine.handle_datagram(now, socket, from, bytes, inner);
                }
                Input::Stream(stream, event) => return machine.handle_stream(now, stream, event, inner),
                Input::Stored(reply) => machine.handle_stored(now, reply, inner),
                Input::Timeout => machine.handle_timeout(now, inner),
                Input::Stop => machine.handle_stop(now, inner),
                Input::Event(event) => machine.handle_event(now, event, inner),
                Input::Reply(request, reply) => machine.handle_reply(now, request, reply, inner),
            }
            Ok(())
        });
        done.unwrap_or(GONE)
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Own, out: &mut Outbox<'_, OwnPart>) {
        let Some(command) = command.get::<M::Command>().cloned() else {
            return out.reply(request, Own::new(NotUnderstood));
        };
        if self.run(out, |machine, inner| machine.handle_command(now, request, command, inner)).is_none() {
            out.reply(request, Own::new(Panicked));
        }
    }

    fn endpoints(&self) -> Endpoints {
        self.ask(Machine::endpoints)
    }

    fn is_stopped(&self) -> bool {
        self.has_panicked || self.machine.is_stopped()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.ask(Machine::poll_timeout)
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.ask(|machine| machine.counters(visit));
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        self.ask(Machine::timescales)
    }
}

impl Machine for OwnPart {
    type Command = Own;
    type Reply = Own;
    type Event = OwnEvent;

    fn endpoints(&self) -> Endpoints {
        self.0.endpoints()
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: &mut Outbox<'_, Self>) {
        let _ = self.0.handle(now, Input::Start(bound), out);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        self.0.handle(now, Input::Datagram(socket, from, bytes), out)
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        self.0.handle(now, Input::Stream(stream, event), out)
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: &mut Outbox<'_, Self>) {
        let _ = self.0.handle(now, Input::Stored(reply), out);
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Own, out: &mut Outbox<'_, Self>) {
        self.0.handle_command(now, request, command, out);
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        let _ = self.0.handle(now, Input::Timeout, out);
    }

    fn handle_stop(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        let _ = self.0.handle(now, Input::Stop, out);
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.0.poll_timeout()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.0.counters(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        self.0.timescales()
    }
}

/// The request number of the glue's own commands. Their replies are dropped; such a command may also cause replies to
/// other requests.
pub(super) const GLUE: RequestId = RequestId(u64::MAX);

/// The first request number of companions; drivers count from 0, and turns of the ring begin at twice this number.
const FIRST: u64 = 1 << 62;
/// The most events and replies on their way to companions; further events go to the application only.
const WAITING_MAX: usize = 4096;

/// A companion, and the function that selects its events.
type Listener = (Service, fn(&Event) -> Hearing);

/// Events on their way to companions.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    listeners: Vec<Listener>,
    waiting: VecDeque<(Service, Event)>,
}

impl Heard {
    pub(super) fn new(listeners: Vec<Listener>) -> Self {
        Self { listeners, waiting: VecDeque::new() }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Notes an event for the companions that want it. Returns the event if the application gets it.
    pub(super) fn tell(&mut self, event: Event) -> Option<Event> {
        let mut is_kept = false;
        for (listener, hears) in &self.listeners {
            let is_own = *listener == event.service;
            let hearing = if is_own { None } else { caught(|| hears(&event)) }.unwrap_or(Hearing::Ignores);
            if hearing != Hearing::Ignores && self.waiting.len() < WAITING_MAX {
                is_kept |= hearing == Hearing::Keeps;
                self.waiting.push_back((*listener, event.clone()));
            }
        }
        (!is_kept).then_some(event)
    }

    pub(super) fn pop(&mut self) -> Option<(Service, Event)> {
        self.waiting.pop_front()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl PartialEq for Heard {
    fn eq(&self, other: &Self) -> bool {
        self.waiting == other.waiting
    }
}

/// Commands of companions, and the replies on their way back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    open: BTreeMap<u64, (Service, RequestId)>,
    begun: u64,
    replies: VecDeque<(Service, RequestId, Reply)>,
}

impl Asked {
    /// The number under which the node forwards a command of a companion; `None` if too many are open.
    pub(super) fn begin(&mut self, service: Service, request: RequestId) -> Option<RequestId> {
        if self.open.len() >= WAITING_MAX {
            self.replies.push_back((service, request, Reply::NoSuchService));
            return None;
        }
        let number = FIRST + self.begun;
        self.begun += 1;
        self.open.insert(number, (service, request));
        Some(RequestId(number))
    }

    /// Takes the reply to a companion or to the glue. Returns one for the application.
    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) -> Option<Reply> {
        if request == GLUE {
            return None;
        }
        if request.0 < FIRST {
            return Some(reply);
        }
        if let Some((service, request)) = self.open.remove(&request.0) {
            self.replies.push_back((service, request, reply));
        }
        None
    }

    pub(super) fn pop(&mut self) -> Option<(Service, RequestId, Reply)> {
        self.replies.pop_front()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.replies.is_empty()
    }
}
