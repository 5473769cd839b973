//! The machine of the node: finds the part something belongs to and delegates.

use std::net::SocketAddr;

use super::glue::{self, Glue};
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
    /// The place of `members`, if there is somebody to tell.
    members: Option<usize>,
    glue: Glue,
}

type Out<'a, 'b> = &'a mut Outbox<'b, Node>;

/// Runs `$call` on the machine inside a part, with an outbox that stamps its service and wraps what it tells.
macro_rules! within {
    ($part:expr, $service:expr, $glue:expr, $out:expr, |$machine:ident, $inner:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => nested!($out, $service, Ping, |$inner| $call),
            Part::Members($machine) => heard!($out, $service, $glue, |$inner| $call),
            Part::Token($machine) => nested!($out, $service, Token, |$inner| $call),
            Part::Route($machine) => nested!($out, $service, Route, |$inner| $call),
            Part::Mesh($machine) => nested!($out, $service, Mesh, |$inner| $call),
        }
    };
}

/// Runs `$call` with an outbox for a machine of this protocol. With `quiet` nobody waits for a reply.
macro_rules! nested {
    ($out:expr, $service:expr, $protocol:ident, |$inner:ident| $call:expr) => {
        nested!($out, $service, $protocol, |reply| Some(Reply::$protocol(reply)), |$inner| $call)
    };
    ($out:expr, $service:expr, $protocol:ident, quiet |$inner:ident| $call:expr) => {
        nested!($out, $service, $protocol, |_| None, |$inner| $call)
    };
    ($out:expr, $service:expr, $protocol:ident, $reply:expr, |$inner:ident| $call:expr) => {
        $out.nested(
            $service,
            |event| Event { service: $service, event: PartEvent::$protocol(event) },
            $reply,
            |$inner| $call,
        )
    };
}

/// Runs `$call` with an outbox for `members`; the glue listens.
macro_rules! heard {
    ($out:expr, $service:expr, $glue:expr, |$inner:ident| $call:expr) => {
        $out.nested(
            $service,
            |event| {
                $glue.hear(&event);
                Event { service: $service, event: PartEvent::Members(event) }
            },
            |reply| Some(Reply::Members(reply)),
            |$inner| $call,
        )
    };
}

/// Asks the machine inside a part, whichever it is.
macro_rules! ask {
    ($part:expr, |$machine:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => $call,
            Part::Members($machine) => $call,
            Part::Token($machine) => $call,
            Part::Route($machine) => $call,
            Part::Mesh($machine) => $call,
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
        let members = parts.iter().position(|(_, part)| matches!(part, Part::Members(_)));
        let members = members.filter(|_| parts.iter().any(|(_, part)| glue::is_fed(part)));
        Ok(Self { parts, members, glue: Glue::default() })
    }

    /// The parts with their tags.
    #[must_use]
    pub fn parts(&self) -> &[(Service, Part)] {
        &self.parts
    }

    /// The part with this tag, to be changed.
    pub fn part_mut(&mut self, service: Service) -> Option<&mut Part> {
        find(&mut self.parts, service)
    }

    /// Whether `members` feeds another part.
    #[must_use]
    pub fn feeds(&self) -> bool {
        self.members.is_some()
    }

    /// Tells the other parts what `members` has told.
    fn pass_on(&mut self, now: Now, out: Out<'_, '_>) {
        let Some((_, Part::Members(members))) = self.members.and_then(|at| self.parts.get_mut(at)) else {
            return self.glue.forget();
        };
        for command in self.glue.commands(now, members) {
            for (service, part) in &mut self.parts {
                let (service, request, command) = (*service, RequestId::default(), command.clone());
                match (part, command) {
                    (Part::Route(machine), PartCommand::Route(command)) => nested!(
                        out,
                        service,
                        Route,
                        quiet | inner | { machine.handle_command(now, request, command, inner) }
                    ),
                    (Part::Token(machine), PartCommand::Token(command)) => nested!(
                        out,
                        service,
                        Token,
                        quiet | inner | { machine.handle_command(now, request, command, inner) }
                    ),
                    (Part::Mesh(machine), PartCommand::Mesh(command)) => nested!(
                        out,
                        service,
                        Mesh,
                        quiet | inner | { machine.handle_command(now, request, command, inner) }
                    ),
                    _ => {}
                }
            }
        }
    }
}

fn find(parts: &mut [(Service, Part)], service: Service) -> Option<&mut Part> {
    parts.iter_mut().find(|(at, _)| *at == service).map(|(_, part)| part)
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
            within!(part, *service, self.glue, out, |machine, inner| machine
                .handle_start(now, &bound, inner));
        }
        self.pass_on(now, out);
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
        let part = find(&mut self.parts, service).ok_or(Refusal::Reject("no such service"))?;
        let done = within!(part, service, self.glue, out, |machine, inner| {
            machine.handle_datagram(now, own, from, bytes, inner)
        });
        self.pass_on(now, out);
        done
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
        let part = find(&mut self.parts, service).ok_or(Refusal::Reject("no such service"))?;
        let done = within!(part, service, self.glue, out, |machine, inner| {
            machine.handle_stream(now, own, event, inner)
        });
        self.pass_on(now, out);
        done
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let service = reply.op.service();
        let reply = StoreReply { op: reply.op.in_service(Service(0)), ..reply };
        if let Some(part) = find(&mut self.parts, service) {
            within!(part, service, self.glue, out, |machine, inner| machine.handle_stored(now, reply, inner));
            self.pass_on(now, out);
        }
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let Command { service, command } = command;
        let Some(part) = find(&mut self.parts, service) else {
            return out.reply(request, Reply::NoSuchService);
        };
        match (part, command) {
            (Part::Ping(machine), PartCommand::Ping(command)) => {
                nested!(out, service, Ping, |inner| machine.handle_command(now, request, command, inner));
            }
            (Part::Members(machine), PartCommand::Members(command)) => {
                heard!(out, service, self.glue, |inner| machine.handle_command(now, request, command, inner));
            }
            (Part::Token(machine), PartCommand::Token(command)) => {
                nested!(out, service, Token, |inner| machine.handle_command(now, request, command, inner));
            }
            (Part::Route(machine), PartCommand::Route(command)) => {
                nested!(out, service, Route, |inner| machine.handle_command(now, request, command, inner));
            }
            (Part::Mesh(machine), PartCommand::Mesh(command)) => {
                nested!(out, service, Mesh, |inner| machine.handle_command(now, request, command, inner));
            }
            _ => out.reply(request, Reply::NoSuchService),
        }
        self.pass_on(now, out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            within!(part, *service, self.glue, out, |machine, inner| machine.handle_timeout(now, inner));
        }
        self.pass_on(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            within!(part, *service, self.glue, out, |machine, inner| machine.handle_stop(now, inner));
        }
        self.pass_on(now, out);
    }

    fn is_stopped(&self) -> bool {
        self.parts.iter().all(|(_, part)| ask!(part, |machine| machine.is_stopped()))
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let parts = self.parts.iter().filter_map(|(_, part)| ask!(part, |machine| machine.poll_timeout()));
        parts.chain(self.glue.poll_timeout()).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        for (service, part) in &self.parts {
            let mut tagged = |counter| visit(Counter { service: *service, ..counter });
            ask!(part, |machine| machine.counters(&mut tagged));
        }
    }
}
