//! Two pings with different tags in one node, independent of each other.

use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::contract::{self, Rig, Subject};
use crate::ping::{Config, Message, Ping, encode};
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, RequestId, SocketId, StreamId};
use crate::time::{Instant, Now};
use crate::wire::Writer;
use crate::{Bound, Endpoints, Id, Machine, Outbox, Refusal};

const RED: Service = Service(1);
const BLUE: Service = Service(200);

fn addr(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], port))
}

fn part(port: u16, seed: u8) -> Part {
    let config =
        Config { bind: addr(1, port), peers: vec![addr(2, port)], stream_every: 2, ..Config::default() };
    Part::Ping(Box::new(Ping::new(&config, [seed; 32]).unwrap()))
}

fn node() -> Node {
    Node::new(vec![(RED, part(7001, 1)), (BLUE, part(7002, 2))]).unwrap()
}

fn ping(sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(Message::Ping { sequence }, &mut Writer::new(&mut bytes, 64));
    bytes
}

fn socket(service: Service) -> SocketId {
    ping::UDP.in_service(service)
}

struct TwoPings;

impl Subject for TwoPings {
    type M = Node;

    fn machine(&self) -> Node {
        node()
    }

    fn live(&self, rig: &mut Rig<Node>) {
        rig.start();
        rig.advance(Duration::from_millis(2_300));
        rig.datagram(socket(BLUE), addr(5, 7002), &ping(9)).unwrap();
        rig.command(Command {
            service: RED,
            command: PartCommand::Ping(ping::Command::AddPeer(addr(4, 7001))),
        });
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        vec![(socket(RED), addr(2, 7001), ping(5)), (socket(BLUE), addr(2, 7002), ping(6))]
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        [RED, BLUE].map(|service| (ping::TCP.in_service(service), ping(5))).to_vec()
    }

    fn forget_counters(&self, machine: &mut Node) {
        for service in [RED, BLUE] {
            let Some(Part::Ping(ping)) = machine.part_mut(service) else { panic!("both are pings") };
            ping.forget_counters();
        }
    }
}

#[test]
fn a_node_keeps_the_contract() {
    contract::check(&TwoPings);
}

#[test]
fn a_node_has_the_endpoints_of_its_parts_under_their_tags() {
    let endpoints = node().endpoints();
    let sockets: Vec<_> = endpoints.sockets.iter().map(|socket| (socket.id.service(), socket.bind)).collect();
    assert_eq!(sockets, [(RED, addr(1, 7001)), (BLUE, addr(1, 7002))]);
    assert_eq!(endpoints.listeners.len(), 2);
    let spaces: Vec<_> = endpoints.spaces.iter().map(|space| (space.id.service(), space.name)).collect();
    assert_eq!(spaces, [(RED, "ping"), (BLUE, "ping")]);
}

#[test]
fn a_datagram_reaches_only_its_part() {
    let mut rig = Rig::new(node());
    rig.start();
    rig.take_log();
    rig.datagram(socket(BLUE), addr(5, 7002), &ping(0x77)).unwrap();
    assert_eq!(rig.log, [format!("Send {} to 127.0.0.5:7002 01010000000000000077", socket(BLUE))]);
    let answered = |part: &Part| match part {
        Part::Ping(ping) => ping.counted().pings_answered,
        other => panic!("both are pings: {other:?}"),
    };
    let counts: Vec<u64> = rig.machine.parts().iter().map(|(_, part)| answered(part)).collect();
    assert_eq!(counts, [0, 1]);
}

#[test]
fn a_stream_reaches_only_its_part() {
    let mut rig = Rig::new(node());
    rig.start();
    rig.take_log();
    let stream = StreamId::accepted(1).in_service(BLUE);
    let listener = ping::TCP.in_service(BLUE);
    rig.stream(stream, StreamEvent::Accepted { listener, from: addr(5, 9), local: addr(1, 7002) }).unwrap();
    rig.stream(stream, StreamEvent::Data(&ping(3))).unwrap();
    rig.stream(stream, StreamEvent::Finished).unwrap();
    let expected = ["Read 200:3 11", "Write 200:3 01010000000000000003", "Finish 200:3"];
    assert_eq!(rig.log, expected);
}

#[test]
fn each_part_keeps_its_own_count_in_its_own_space() {
    let mut rig = Rig::new(node());
    rig.start();
    for sequence in 0..3 {
        rig.datagram(socket(RED), addr(5, 7001), &ping(sequence)).unwrap();
    }
    rig.datagram(socket(BLUE), addr(5, 7002), &ping(1)).unwrap();
    rig.advance(Duration::from_secs(1));
    let kept: Vec<_> =
        rig.disk.iter().map(|((space, _), value)| (space.service(), value.as_slice())).collect();
    assert_eq!(kept, [(RED, &3u64.to_be_bytes()[..]), (BLUE, &1u64.to_be_bytes()[..])]);
    assert!(
        rig.log
            .contains(&"Event Event { service: Service(1), event: Ping(CountKept { count: 3 }) }".to_owned())
    );
}

#[test]
fn commands_go_to_the_part_they_name() {
    let mut rig = Rig::new(node());
    rig.start();
    rig.take_log();
    rig.command(Command { service: BLUE, command: PartCommand::Ping(ping::Command::Count) });
    rig.command(Command { service: Service(9), command: PartCommand::Ping(ping::Command::Count) });
    assert_eq!(rig.log, ["Reply 1 Ping(Count(0))", "Reply 2 NoSuchService"]);
}

#[test]
fn an_input_of_no_part_is_refused() {
    let mut rig = Rig::new(node());
    rig.start();
    let refusal = Err(Refusal::Reject("no such service"));
    assert_eq!(rig.datagram(socket(Service(9)), addr(5, 1), &ping(1)), refusal);
    let stream = StreamId::accepted(1).in_service(Service(9));
    assert_eq!(rig.stream(stream, StreamEvent::Finished), refusal);
}

#[test]
fn a_node_stops_when_all_its_parts_have() {
    let mut rig = Rig::new(node());
    rig.start();
    rig.datagram(socket(RED), addr(5, 7001), &ping(1)).unwrap();
    rig.hold();
    rig.stop();
    assert!(!rig.machine.is_stopped(), "one part still keeps its count");
    rig.drain();
    assert!(rig.machine.is_stopped());
}

#[test]
fn counters_carry_their_service() {
    let mut rig = Rig::new(node());
    rig.start();
    rig.datagram(socket(BLUE), addr(5, 7002), &ping(1)).unwrap();
    let mut seen = Vec::new();
    rig.machine.counters(&mut |counter| {
        if counter.name == "pings_answered" {
            seen.push((counter.service, counter.value));
        }
    });
    assert_eq!(seen, [(RED, 0), (BLUE, 1)]);
}

#[test]
fn a_tag_may_not_be_given_twice() {
    let error = Node::new(vec![(RED, part(7001, 1)), (RED, part(7002, 2))]).unwrap_err();
    assert_eq!(error, DuplicateService(RED));
}

#[test]
fn an_event_is_one_flat_json_object() {
    let event = Event { service: RED, event: PartEvent::Ping(ping::Event::CountKept { count: 3 }) };
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(json, r#"{"service":1,"protocol":"ping","event":"count_kept","count":3}"#);
}

const MEMBERS: Service = Service(2);
const ROUTE: Service = Service(4);

/// A member that runs the other services where the metadata says.
fn member(number: u8, services: swim::Services) -> swim::Node {
    let tags = swim::Tags { name: format!("n{number}"), services, ..swim::Tags::default() };
    swim::Node {
        id: Id::new(u128::from(number)),
        addrs: vec![addr(number, 7946)],
        meta: tags.encode().unwrap(),
    }
}

#[test]
fn measurements_and_suspicions_of_members_reach_route() {
    let services = swim::Services { route: Some(22_009), ..swim::Services::default() };
    let config = swim::Config { bind: addr(1, 7946), ..swim::Config::new(Id::new(1), swim::Preset::Lan) };
    let mut members = swim::Swim::new(&config, [1; 32]).unwrap();
    members.assume(&[member(2, services), member(3, swim::Services::default())]);
    let mut glue = glue::Glue::default();
    let told = |incarnation, id| swim::Event::MemberRecovered {
        id: Id::new(id),
        addr: ([10, 0, 0, 1], 7946).into(),
        incarnation,
    };
    let incarnation = members.incarnation();
    let joined = |id| swim::Event::MemberJoined {
        id: Id::new(id),
        addr: addr(id as u8, 7946),
        incarnation,
        reason: swim::JoinReason::New,
    };
    glue.on_event(&joined(2));
    glue.on_event(&joined(3));
    glue.on_event(&told(incarnation, 2));
    let commands = glue.commands(Now::default(), &mut members);
    let alive = pastry::Command::MemberAlive { id: Id::new(2), addr: addr(2, 22_009) };
    let recovered = pastry::Command::MemberRecovered(Id::new(2));
    let route: Vec<_> = commands.iter().filter(|command| matches!(command, PartCommand::Route(_))).collect();
    assert_eq!(route, [&PartCommand::Route(alive), &PartCommand::Route(recovered)], "n3 runs no route");
    let reached = PartCommand::Token(jitterbug::Command::MemberReachable(addr(2, 7946).ip()));
    assert_eq!(commands.iter().filter(|command| **command == reached).count(), 2, "TU-42: {commands:?}");
    let (at, _) = glue.poll_timeout().expect("token gets a new list");
    let later = Now { mono: at, ..Now::default() };
    let ask = glue.commands(later, &mut members);
    assert_eq!(ask, [PartCommand::Token(jitterbug::Command::Ask(Vec::new()))], "no member runs it");
    assert_eq!(glue.poll_timeout(), None);
    let suspected =
        swim::Event::MemberSuspected { id: Id::new(2), addr: addr(2, 7946), incarnation, by: Id::new(3) };
    glue.on_event(&suspected);
    let unreachable = jitterbug::Command::MemberUnreachable(addr(2, 7946).ip());
    let commands = glue.commands(Now::default(), &mut members);
    assert!(commands.contains(&PartCommand::Token(unreachable)), "TU-40: {commands:?}");
}

/// A node dropped every reply that such a command caused. The sender of a message that ended because `members` reported its
/// owner as failed never got an answer.
#[test]
fn a_command_of_the_glue_may_cause_the_reply_to_a_request_of_the_application() {
    let mut asked = companion::Asked::default();
    let unknown = Reply::Route(pastry::Reply::Outcome(pastry::Outcome::Unknown));
    assert_eq!(asked.reply(RequestId(7), unknown.clone()), Some(unknown));
    assert_eq!(asked.reply(companion::GLUE, Reply::Route(pastry::Reply::Done)), None, "its own is dropped");
}

#[test]
fn a_node_with_members_alone_has_no_glue() {
    let config = swim::Config { bind: addr(1, 7946), ..swim::Config::new(Id::new(1), swim::Preset::Lan) };
    let members = Part::Members(Box::new(swim::Swim::new(&config, [1; 32]).unwrap()));
    let alone = Node::new(vec![(MEMBERS, members.clone())]).unwrap();
    let config = pastry::Config { id: Id::new(1), bind: addr(1, 22_001), ..pastry::Config::default() };
    let route = Part::Route(Box::new(pastry::Pastry::new(config, [2; 32]).unwrap()));
    let both = Node::new(vec![(MEMBERS, members), (ROUTE, route)]).unwrap();
    assert_eq!((alone.feeds(), both.feeds()), (false, true));
}

/// A companion that counts the pings of another part and keeps one event in two inside.
#[derive(Clone, Debug, Default, PartialEq)]
struct Listener {
    heard: u64,
    asks: bool,
    replies: Vec<(RequestId, String)>,
}

impl Machine for Listener {
    type Command = &'static str;
    type Reply = u64;
    type Event = String;

    fn endpoints(&self) -> Endpoints {
        Endpoints::default()
    }

    fn handle_start(&mut self, _: Now, _: &Bound, _: &mut Outbox<'_, Self>) {}

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        _: SocketAddr,
        _: &[u8],
        _: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_command(&mut self, _: Now, request: RequestId, _: &'static str, out: &mut Outbox<'_, Self>) {
        self.asks = true;
        out.reply(request, self.heard);
    }

    fn handle_timeout(&mut self, _: Now, _: &mut Outbox<'_, Self>) {}

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}

impl Companion for Listener {
    fn hears(event: &Event) -> Hearing {
        if event.service == RED { Hearing::Keeps } else { Hearing::Shares }
    }

    fn handle_event(&mut self, _: Now, event: &Event, out: &mut Outbox<'_, Self>) {
        self.heard += 1;
        out.event(format!("heard {}", event.service));
    }

    fn take_commands(&mut self) -> Vec<(RequestId, Command)> {
        let command = Command { service: RED, command: PartCommand::Ping(ping::Command::Peers) };
        if core::mem::take(&mut self.asks) { vec![(RequestId(7), command)] } else { Vec::new() }
    }

    fn handle_reply(&mut self, _: Now, request: RequestId, reply: Reply, _: &mut Outbox<'_, Self>) {
        self.replies.push((request, format!("{reply:?}")));
    }
}

#[test]
fn a_companion_receives_events_keeps_some_inside_and_gets_replies_to_its_commands() {
    let own = Service(128);
    let parts = vec![
        (RED, part(7001, 1)),
        (BLUE, part(7002, 2)),
        (own, Part::Own(OwnPart::new(Listener::default()))),
    ];
    let mut rig = Rig::new(Node::new(parts).unwrap());
    rig.start();
    // The pings get no answer: both parts report that.
    rig.advance(Duration::from_secs(20));
    let log = rig.take_log().join("\n");
    let events = |of: &str| log.lines().filter(|line| line.starts_with("Event") && line.contains(of)).count();
    let (red, blue) = (events("service: Service(1)"), events("service: Service(200)"));
    assert!(red == 0 && blue > 0, "those of red stay inside: {red}, {blue}");
    assert!(events("heard 1") > 0 && events("heard 200") == blue);
    let heard = events("heard");
    rig.command(Command { service: own, command: PartCommand::Own(Own::new("ask")) });
    assert!(rig.log.iter().any(|line| line.ends_with(&format!("Own({heard})"))), "{:?}", rig.log);
    let Some(Part::Own(part)) = rig.machine.part_mut(own) else { panic!("it is there") };
    let listener = part.get::<Listener>().expect("it has this type");
    assert_eq!(listener.replies.len(), 1);
    assert!(listener.replies[0].0 == RequestId(7) && listener.replies[0].1.starts_with("Ping(Peers"));
    rig.take_log();
    rig.command(Command { service: own, command: PartCommand::Own(Own::new(5_u8)) });
    assert!(rig.log.iter().any(|line| line.ends_with("Own(NotUnderstood)")), "{:?}", rig.log);
}
