//! The machine of the node: finds the part something belongs to and delegates.

use std::net::SocketAddr;

use super::{Command, DuplicateService, Event, Part, PartCommand, PartEvent, Reply};
use crate::counters::{Counter, VisitCounter};
use crate::endpoint::{Bound, Endpoints};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::store::StoreReply;
use crate::stream::StreamEvent;
use crate::tag::{RequestId, Service, SocketId, StreamId};
use crate::time::{Instant, Now};

/// Several machines that run as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    parts: Vec<(Service, Part)>,
}

type Out<'a, 'b> = &'a mut Outbox<'b, Node>;

/// Runs `$call` on the machine inside a part, with an outbox that stamps its service and wraps what it tells.
macro_rules! within {
    ($part:expr, $service:expr, $out:expr, |$machine:ident, $inner:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => $out.nested(
                $service,
                |event| Event { service: $service, event: PartEvent::Ping(event) },
                Reply::Ping,
                |$inner| $call,
            ),
            Part::Members($machine) => $out.nested(
                $service,
                |event| Event { service: $service, event: PartEvent::Members(event) },
                Reply::Members,
                |$inner| $call,
            ),
            Part::Token($machine) => $out.nested(
                $service,
                |event| Event { service: $service, event: PartEvent::Token(event) },
                Reply::Token,
                |$inner| $call,
            ),
        }
    };
}

/// Asks the machine inside a part, whichever it is.
macro_rules! ask {
    ($part:expr, |$machine:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => $call,
            Part::Members($machine) => $call,
            Part::Token($machine) => $call,
        }
    };
}

impl Node {
    /// A node of these parts, each under its tag.
    ///
    /// # Errors
    /// If a tag is there twice.
    pub fn new(parts: Vec<(Service, Part)>) -> Result<Self, DuplicateService> {
        for (index, (service, _)) in parts.iter().enumerate() {
            if parts[..index].iter().any(|(other, _)| other == service) {
                return Err(DuplicateService(*service));
            }
        }
        Ok(Self { parts })
    }

    /// The parts with their tags.
    #[must_use]
    pub fn parts(&self) -> &[(Service, Part)] {
        &self.parts
    }

    /// The part with this tag, to be changed.
    pub fn part_mut(&mut self, service: Service) -> Option<&mut Part> {
        self.parts.iter_mut().find(|(at, _)| *at == service).map(|(_, part)| part)
    }
}

impl Machine for Node {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let mut all = Endpoints::default();
        for (service, part) in &self.parts {
            all.adopt(*service, ask!(part, |machine| machine.endpoints()));
        }
        all
    }

    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            let bound = bound.of(*service);
            within!(part, *service, out, |machine, inner| machine.handle_start(now, &bound, inner));
        }
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let (service, own) = (socket.service(), socket.in_service(Service(0)));
        let part = self.part_mut(service).ok_or(Refusal::Reject("no such service"))?;
        within!(part, service, out, |machine, inner| machine.handle_datagram(now, own, from, bytes, inner))
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let (service, own) = (stream.service(), stream.in_service(Service(0)));
        let event = match event {
            StreamEvent::Accepted { listener, from, local } => {
                StreamEvent::Accepted { listener: listener.in_service(Service(0)), from, local }
            }
            other => other,
        };
        let part = self.part_mut(service).ok_or(Refusal::Reject("no such service"))?;
        within!(part, service, out, |machine, inner| machine.handle_stream(now, own, event, inner))
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let service = reply.op.service();
        let reply = StoreReply { op: reply.op.in_service(Service(0)), ..reply };
        if let Some(part) = self.part_mut(service) {
            within!(part, service, out, |machine, inner| machine.handle_stored(now, reply, inner));
        }
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let Command { service, command } = command;
        match (self.part_mut(service), command) {
            (Some(Part::Ping(machine)), PartCommand::Ping(command)) => out.nested(
                service,
                |event| Event { service, event: PartEvent::Ping(event) },
                Reply::Ping,
                |inner| machine.handle_command(now, request, command, inner),
            ),
            (Some(Part::Members(machine)), PartCommand::Members(command)) => out.nested(
                service,
                |event| Event { service, event: PartEvent::Members(event) },
                Reply::Members,
                |inner| machine.handle_command(now, request, command, inner),
            ),
            (Some(Part::Token(machine)), PartCommand::Token(command)) => out.nested(
                service,
                |event| Event { service, event: PartEvent::Token(event) },
                Reply::Token,
                |inner| machine.handle_command(now, request, command, inner),
            ),
            _ => out.reply(request, Reply::NoSuchService),
        }
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            within!(part, *service, out, |machine, inner| machine.handle_timeout(now, inner));
        }
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            within!(part, *service, out, |machine, inner| machine.handle_stop(now, inner));
        }
    }

    fn is_stopped(&self) -> bool {
        self.parts.iter().all(|(_, part)| ask!(part, |machine| machine.is_stopped()))
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.parts.iter().filter_map(|(_, part)| ask!(part, |machine| machine.poll_timeout())).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        for (service, part) in &self.parts {
            let mut tagged = |counter| visit(Counter { service: *service, ..counter });
            ask!(part, |machine| machine.counters(&mut tagged));
        }
    }
}
