//! The machine of the node: finds the part of an input and delegates.

use core::cell::RefCell;
use core::time::Duration;
use std::net::SocketAddr;

use super::companion::{Asked, GLUE, Heard};
use super::glue::{self, Glue};
use super::ring_turns::{Effect, RingTurns};
use super::{Command, DuplicateService, Event, Part, PartCommand, PartEvent, Reply};
use crate::counters::{Counter, VisitCounter};
use crate::endpoint::{Bound, Endpoints};
use crate::jitterbug::{self, Application as _};
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
    /// The place of `members`, if another part needs its events.
    members: Option<usize>,
    glue: Glue,
    heard: Heard,
    asked: Asked,
    /// Requests for the ring's turn, on their way through `token` and `turns`.
    ring: RingTurns,
    /// The places of `token` and `turns`, if both are here.
    token_and_turns: Option<(usize, usize)>,
}

type Out<'a, 'b> = &'a mut Outbox<'b, Node>;

/// Runs `$call` on the machine inside a part, with an outbox that tags its ids and wraps its events and replies.
macro_rules! within {
    ($node:expr, $part:expr, $service:expr, $out:expr, |$machine:ident, $inner:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => nested!($node, $out, $service, Ping, |$inner| $call),
            Part::Members($machine) => nested!($node, $out, $service, Members, |$inner| $call),
            Part::Token($machine) => nested!($node, $out, $service, Token, |$inner| $call),
            Part::Route($machine) => nested!($node, $out, $service, Route, |$inner| $call),
            Part::Mesh($machine) => nested!($node, $out, $service, Mesh, |$inner| $call),
            Part::Turns($machine) => nested!($node, $out, $service, Turns, |$inner| $call),
            Part::Own($machine) => nested!($node, $out, $service, Own, |$inner| $call),
        }
    };
}

/// Runs `$call` with an outbox for a machine of this protocol. Glue, turns of the ring and companions get its events.
macro_rules! nested {
    ($node:expr, $out:expr, $service:expr, $protocol:ident, |$inner:ident| $call:expr) => {{
        let (glue, heard, asked) = (&mut $node.glue, &mut $node.heard, &mut $node.asked);
        let ring = RefCell::new(&mut $node.ring);
        $out.nested_where(
            $service,
            |event| {
                let event = PartEvent::$protocol(event);
                match &event {
                    PartEvent::Members(event) => glue.on_event(event),
                    PartEvent::Turns(event) => ring.borrow_mut().on_turns_event(event),
                    _ => {}
                }
                heard.tell(Event { service: $service, event })
            },
            |request, reply| {
                let reply = Reply::$protocol(reply);
                if !RingTurns::owns(request) {
                    return asked.reply(request, reply);
                }
                match reply {
                    Reply::Token(reply) => ring.borrow_mut().on_token_reply(request, &reply),
                    Reply::Turns(reply) => ring.borrow_mut().on_turns_reply(request, reply),
                    _ => {}
                }
                None
            },
            |$inner| $call,
        )
    }};
}

/// Reads from the machine inside a part, whichever it is.
macro_rules! ask {
    ($part:expr, |$machine:ident| $call:expr) => {
        match $part {
            Part::Ping($machine) => $call,
            Part::Members($machine) => $call,
            Part::Token($machine) => $call,
            Part::Route($machine) => $call,
            Part::Mesh($machine) => $call,
            Part::Turns($machine) => $call,
            Part::Own($machine) => $call,
        }
    };
}

/// The most rounds of events, commands and replies between parts after one input. The rest waits for the next one.
const ROUNDS_MAX: usize = 64;

/// The timer of companions with waiting events or replies.
const COMPANIONS: &str = "node.companions";

impl Node {
    /// A node of these parts, each under its tag.
    ///
    /// # Errors
    /// If a tag is used twice.
    pub fn new(parts: Vec<(Service, Part)>) -> Result<Self, DuplicateService> {
        for (index, (service, _)) in parts.iter().enumerate() {
            if parts[..index].iter().any(|(other, _)| other == service) {
                return Err(DuplicateService(*service));
            }
        }
        let members = parts.iter().position(|(_, part)| matches!(part, Part::Members(_)));
        let members = members.filter(|_| parts.iter().any(|(_, part)| glue::is_fed(part)));
        let listeners = parts.iter().filter_map(|(service, part)| match part {
            Part::Own(companion) => Some((*service, companion.hears())),
            _ => None,
        });
        let (heard, asked) = (Heard::new(listeners.collect()), Asked::default());
        let token = parts.iter().position(|(_, part)| matches!(part, Part::Token(_)));
        let turns = parts.iter().position(|(_, part)| matches!(part, Part::Turns(_)));
        let (glue, ring, token_and_turns) = (Glue::default(), RingTurns::default(), token.zip(turns));
        Ok(Self { parts, members, glue, heard, asked, ring, token_and_turns })
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

    /// Reports the group of the voters to `token` (TU-31), and the fences of the ledger to `turns` until there is a
    /// group (TU-8).
    fn introduce_voters(&mut self, now: Now, out: Out<'_, '_>) {
        let Some((token, turns)) = self.token_and_turns else { return };
        let (token, fence) = match &self.parts[token] {
            (service, Part::Token(machine)) => (*service, machine.application().greatest_fence()),
            _ => return,
        };
        let Part::Turns(machine) = &mut self.parts[turns].1 else { return };
        let group = machine.group();
        if group.is_none() {
            machine.saw_ledger_fence(fence);
        } else if self.ring.declares(group, machine.lease()) {
            let group = group.map(|group| group.to_string()).unwrap_or_default();
            let command = PartCommand::Token(jitterbug::Command::DeclareVoters(group));
            self.give(now, GLUE, Command { service: token, command }, out);
        }
    }

    /// Applies the effects of the ring's turns, until there are none.
    fn run_ring_turns(&mut self, now: Now, out: Out<'_, '_>) {
        let Some((token, turns)) = self.token_and_turns else { return };
        let (token, turns) = (self.parts[token].0, self.parts[turns].0);
        loop {
            let effects = self.ring.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Token(request, command) => {
                        let command = Command { service: token, command: PartCommand::Token(command) };
                        self.give(now, request.unwrap_or(GLUE), command, out);
                    }
                    Effect::Ask(key) => {
                        if let Some((request, command)) = self.ring.question(now, key) {
                            let command = Command { service: turns, command: PartCommand::Turns(command) };
                            self.give(now, request, command, out);
                        }
                    }
                    Effect::Retry(key, reply) => self.ring.retry(now, key, reply),
                    Effect::Reply(request, reply) => self.reply(request, Reply::Turns(reply), out),
                }
            }
        }
    }

    /// Gives a reply to the application, or to the companion that requested it.
    fn reply(&mut self, request: RequestId, reply: Reply, out: Out<'_, '_>) {
        if let Some(reply) = self.asked.reply(request, reply) {
            out.reply(request, reply);
        }
    }

    /// Forwards events of `members` to the other parts, and events and replies to companions.
    fn pass_on(&mut self, now: Now, out: Out<'_, '_>) {
        self.introduce_voters(now, out);
        self.run_ring_turns(now, out);
        self.pass_members_on(now, out);
        if self.heard.is_unused() {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            if !self.run_companions(now, out) {
                return;
            }
            self.run_ring_turns(now, out);
            self.pass_members_on(now, out);
        }
    }

    fn pass_members_on(&mut self, now: Now, out: Out<'_, '_>) {
        let Some((_, Part::Members(members))) = self.members.and_then(|at| self.parts.get_mut(at)) else {
            return self.glue.clear();
        };
        for command in self.glue.commands(now, members) {
            for index in 0..self.parts.len() {
                let (service, part) = &self.parts[index];
                let is_for = matches!(
                    (part, &command),
                    (Part::Route(_), PartCommand::Route(_))
                        | (Part::Token(_), PartCommand::Token(_))
                        | (Part::Mesh(_), PartCommand::Mesh(_))
                );
                if is_for {
                    let command = Command { service: *service, command: command.clone() };
                    self.give(now, GLUE, command, out);
                }
            }
        }
    }

    /// One round of events and replies for companions and of their commands. Returns whether there were any.
    fn run_companions(&mut self, now: Now, out: Out<'_, '_>) -> bool {
        let mut has_run = false;
        while let Some((service, event)) = self.heard.pop() {
            has_run = true;
            if let Some(Part::Own(part)) = find(&mut self.parts, service) {
                nested!(self, out, service, Own, |inner| part.handle_event(now, &event, inner));
            }
        }
        while let Some((service, request, reply)) = self.asked.pop() {
            has_run = true;
            if let Some(Part::Own(part)) = find(&mut self.parts, service) {
                nested!(self, out, service, Own, |inner| part.handle_reply(now, request, reply, inner));
            }
        }
        for index in 0..self.parts.len() {
            let (service, Part::Own(part)) = &mut self.parts[index] else { continue };
            let service = *service;
            for (request, command) in part.take_commands() {
                has_run = true;
                if let Some(request) = self.asked.begin(service, request) {
                    self.command(now, request, command, out);
                }
            }
        }
        has_run
    }

    /// Handles a command of the application or of a companion.
    fn command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let has_both = self.token_and_turns.is_some();
        let Command { service, command } = command;
        let command = match (find(&mut self.parts, service), command) {
            // TU-31: no weak turn beside exclusive ones.
            (
                Some(Part::Token(machine)),
                PartCommand::Token(jitterbug::Command::Hold { .. } | jitterbug::Command::HoldAs { .. }),
            ) if has_both || machine.application().voters().is_some() => {
                return self.reply(request, Reply::Token(jitterbug::Reply::VotersExist), out);
            }
            (Some(Part::Turns(_)), PartCommand::Turns(command)) if has_both => {
                let Some(command) = self.ring.intercept(now, request, command) else { return };
                PartCommand::Turns(command)
            }
            (_, command) => command,
        };
        self.give(now, request, Command { service, command }, out);
    }

    /// Gives a command to its part.
    fn give(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let Command { service, command } = command;
        macro_rules! give {
            ($protocol:ident, $machine:expr, $command:expr) => {
                nested!(self, out, service, $protocol, |inner| $machine
                    .handle_command(now, request, $command, inner))
            };
        }
        match (find(&mut self.parts, service), command) {
            (Some(Part::Ping(machine)), PartCommand::Ping(command)) => give!(Ping, machine, command),
            (Some(Part::Members(machine)), PartCommand::Members(command)) => {
                give!(Members, machine, command);
            }
            (Some(Part::Token(machine)), PartCommand::Token(command)) => give!(Token, machine, command),
            (Some(Part::Route(machine)), PartCommand::Route(command)) => give!(Route, machine, command),
            (Some(Part::Mesh(machine)), PartCommand::Mesh(command)) => give!(Mesh, machine, command),
            (Some(Part::Turns(machine)), PartCommand::Turns(command)) => give!(Turns, machine, command),
            (Some(Part::Own(machine)), PartCommand::Own(command)) => give!(Own, machine, command),
            _ => self.reply(request, Reply::NoSuchService, out),
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
            within!(self, part, *service, out, |machine, inner| machine.handle_start(now, &bound, inner));
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
        let done = within!(self, part, service, out, |machine, inner| {
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
        let done = within!(self, part, service, out, |machine, inner| {
            machine.handle_stream(now, own, event, inner)
        });
        self.pass_on(now, out);
        done
    }

    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let service = reply.op.service();
        let reply = StoreReply { op: reply.op.in_service(Service(0)), ..reply };
        if let Some(part) = find(&mut self.parts, service) {
            within!(self, part, service, out, |machine, inner| machine.handle_stored(now, reply, inner));
            self.pass_on(now, out);
        }
    }

    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        self.command(now, request, command, out);
        self.pass_on(now, out);
    }

    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        self.ring.expire(now);
        for (service, part) in &mut self.parts {
            within!(self, part, *service, out, |machine, inner| machine.handle_timeout(now, inner));
        }
        self.pass_on(now, out);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        for (service, part) in &mut self.parts {
            within!(self, part, *service, out, |machine, inner| machine.handle_stop(now, inner));
        }
        self.pass_on(now, out);
    }

    fn is_stopped(&self) -> bool {
        self.parts.iter().all(|(_, part)| ask!(part, |machine| machine.is_stopped()))
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let parts = self.parts.iter().filter_map(|(_, part)| ask!(part, |machine| machine.poll_timeout()));
        let is_waiting = self.heard.is_waiting() || self.asked.is_waiting();
        let companions = is_waiting.then_some((Instant::ZERO, COMPANIONS));
        parts.chain(self.glue.poll_timeout()).chain(self.ring.poll_timeout()).chain(companions).min()
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        for (service, part) in &self.parts {
            let mut tagged = |counter| visit(Counter { service: *service, ..counter });
            ask!(part, |machine| machine.counters(&mut tagged));
        }
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        self.parts.iter().flat_map(|(_, part)| ask!(part, |machine| machine.timescales())).collect()
    }
}
