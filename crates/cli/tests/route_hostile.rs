//! Hostile hosts against a ring of real agents: absurd numbers, invented nodes, silence. All of it is bounded and
//! counted, and messages go around it.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{
    About, Contact, Generation, Message, MessageId, PORT, Report, RingTag, TablesSent, Versions, Wanted,
    decode, encode,
};
use annulus::core::wire::Writer;
use common::foreign::dial;
use common::{Agent, own_ip, tables, wait_until};
use serde_json::Value;

const ABSURD: Versions = Versions { leaf_set: u32::MAX, routing_table: u32::MAX, neighbourhood: u32::MAX };

fn start(ip: IpAddr, seed: Option<IpAddr>) -> Agent {
    let seeds = seed.map(|seed| format!("route.seeds={seed}:{PORT}"));
    let quick = ["--set", "route.leaf_interval=300ms", "--set", "route.network_timeout=1s"];
    let mut args = vec!["--services", "route", "--set", "route.message_timeout=3s"];
    args.extend(quick);
    args.extend(seeds.iter().flat_map(|seeds| ["--set", seeds]));
    Agent::start_on(ip, &args)
}

/// Two agents that know each other.
fn pair() -> (Agent, Agent) {
    let ips = [own_ip(), own_ip()];
    let (one, other) = (start(ips[0], None), start(ips[1], Some(ips[0])));
    wait_until("they know each other", || {
        (leaves(&one).len() == 1 && leaves(&other).len() == 1).then_some(())
    });
    (one, other)
}

fn leaves(agent: &Agent) -> Vec<String> {
    tables::leaves(&agent.json(&["tables"]))
}

fn counter(agent: &Agent, name: &str) -> u64 {
    let (_, text) = agent.request("GET", "/metrics", &[], "");
    let name = format!("annulus_route_{name}_total");
    let line = text.lines().find(|line| line.starts_with(&name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse::<f64>().ok()).map_or(0, |value| value as u64)
}

/// Sends a message through an agent; returns the status and the body.
fn send(agent: &Agent, key: &str) -> (u16, Value) {
    let body = format!("{{\"key\":\"{key}\",\"payload_base64\":\"aGk=\"}}");
    let (status, text) = agent.request("POST", "/v1/messages", &["Content-Type: application/json"], &body);
    (status, serde_json::from_str(&text).expect("it answers JSON"))
}

/// A hostile node that knows the protocol.
struct Stranger {
    contact: Contact,
    stream: TcpStream,
}

impl Stranger {
    /// Connects from `ip` and claims to be `contact`.
    fn handshake(ip: IpAddr, contact: Contact, to: IpAddr) -> Self {
        let IpAddr::V4(from) = ip else { panic!("tests use IPv4") };
        let stream = dial(from, SocketAddr::new(to, PORT)).expect("the agent listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut stranger = Self { contact, stream };
        stranger.say(&Message::Hello { ring: RingTag::new("annulus"), from: contact });
        stranger
    }

    fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut Writer::new(&mut bytes, 1 << 20));
        let frame = [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat();
        self.stream.write_all(&frame).expect("the agent reads");
    }

    fn hear(&mut self) -> Message {
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head).expect("the agent answers");
            let head = u32::from_be_bytes(head);
            let mut bytes = vec![0; (head & 0x3fff_ffff) as usize];
            self.stream.read_exact(&mut bytes).expect("a whole frame");
            // A probe of the pool: a ping is answered by a pong with its nonce.
            if head >> 30 == 3 {
                bytes[0] = 1;
                self.stream.write_all(&[&head.to_be_bytes()[..], &bytes].concat()).expect("the agent reads");
                continue;
            }
            return decode(&bytes).expect("the agent speaks the protocol");
        }
    }

    fn hear_until(&mut self, wanted: impl Fn(&Message) -> bool) -> Message {
        loop {
            let message = self.hear();
            if wanted(&message) {
                return message;
            }
        }
    }

    fn announce(&mut self, leaf_set: Vec<Contact>) {
        let tables = TablesSent { leaf_set, ..TablesSent::default() };
        self.say(&Message::Announce { seen: Some(ABSURD), wants_welcome: true, versions: ABSURD, tables });
    }
}

fn contact(ip: IpAddr, id: u128) -> Contact {
    Contact { id: Id::new(id), addr: SocketAddr::new(ip, PORT), generation: Generation(1) }
}

/// Nodes that do not exist.
fn invented(ip: IpAddr, count: u16) -> Vec<Contact> {
    let node = |n: u16| Contact {
        addr: SocketAddr::new(ip, 30_000 + n % 1000),
        ..contact(ip, u128::from(n) << 112 | 7)
    };
    (0..count).map(node).collect()
}

#[test]
fn rows_99_absurd_versions_and_invented_nodes_do_no_harm() {
    let (one, other) = pair();
    let ip = own_ip();
    let before = leaves(&one);
    let mut stranger = Stranger::handshake(ip, contact(ip, 3 << 100), one.ip);
    let wanted = Wanted { rows: u128::MAX, cell: Some((99, 200)), leaf_set: true, ..Wanted::default() };
    stranger.say(&Message::StateRequest { token: 9, wanted });
    stranger.hear_until(|message| matches!(message, Message::State { .. }));
    stranger.say(&Message::Welcome { versions: ABSURD });
    stranger.say(&Message::Ack { transmissions: vec![0, 1, u64::MAX], delivered: vec![MessageId(0)] });
    stranger.say(&Message::Nack { transmission: u64::MAX });
    let receipt = Message::Receipt { id: MessageId(1), attempt: 0, hops: 255, report: Report::Lost };
    stranger.say(&receipt);
    for _ in 0..20 {
        stranger.say(&Message::State {
            about: About::Race,
            versions: ABSURD,
            tables: TablesSent { leaf_set: invented(ip, 300), ..TablesSent::default() },
        });
    }
    // An announcement from a validated address is inserted, unless its sender answers no probe; invented nodes never are.
    stranger.announce(invented(ip, 300));
    wait_until("nodes that do not answer are in no table", || (leaves(&one) == before).then_some(()));
    assert_eq!(send(&one, "any key").0, 200);
    assert_eq!(send(&other, "any other key").0, 200);

    // Malformed bytes are counted, and end the connection.
    let malformed = counter(&one, "malformed");
    // The first connection may have ended: its node answers no probe.
    let mut stranger = Stranger::handshake(ip, stranger.contact, one.ip);
    stranger.stream.write_all(&[0xff; 64]).expect("it is open");
    wait_until("it is counted", || (counter(&one, "malformed") > malformed).then_some(()));
    wait_until("it is closed", || {
        matches!(stranger.stream.read(&mut [0; 4096]), Ok(0) | Err(_)).then_some(())
    });
}

/// Answers the probes of a node that is there and does nothing else.
fn answer_probes(own: Contact) {
    let udp = UdpSocket::bind(own.addr).expect("loopback can be bound");
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok((length, from)) = udp.recv_from(&mut bytes) {
            if let Ok(Message::Ping { ring, nonce, .. }) = decode(&bytes[..length]) {
                let pong = Message::Pong { ring, nonce, from: own, leaf_set_digest: 0 };
                let mut answer = Vec::new();
                encode(&pong, &mut Writer::new(&mut answer, 256));
                // The node that asked may be gone.
                let _ = udp.send_to(&answer, from);
            }
        }
    });
}

#[test]
fn pa_39_only_a_connection_from_its_machine_validates_an_address() {
    let (one, other) = pair();
    let other_id: Id = other.json(&["info"])["id"].as_str().expect("an id").parse().expect("it is one");
    // A forged leave of the other agent, and an announcement of it elsewhere, from another machine.
    let ip = own_ip();
    let claimed =
        Contact { id: other_id, addr: SocketAddr::new(other.ip, PORT), generation: Generation(u64::MAX) };
    let refused = counter(&one, "refused");
    let mut liar = Stranger::handshake(ip, claimed, one.ip);
    liar.say(&Message::Exit);
    liar.announce(Vec::new());
    wait_until("both are refused", || (counter(&one, "refused") >= refused + 2).then_some(()));
    assert_eq!(leaves(&one), [other_id.to_string()], "it was asked itself, and is there");
    // The same from its own IP address counts: the source address validates it.
    let own = contact(ip, 5 << 100);
    answer_probes(own);
    let mut honest = Stranger::handshake(ip, own, one.ip);
    assert_eq!(honest.contact, own);
    honest.announce(Vec::new());
    honest.hear_until(|message| matches!(message, Message::Welcome { .. } | Message::State { .. }));
}

#[test]
fn a_node_that_never_acks_and_never_reads_is_routed_around() {
    let (one, other) = pair();
    let ip = own_ip();
    let own = contact(ip, 1 << 127 | 1);
    // It answers probes, so it is alive; it takes messages and never acknowledges them.
    answer_probes(own);
    let mut silent = Stranger::handshake(ip, own, one.ip);
    silent.announce(Vec::new());
    let name = own.id.to_string();
    wait_until("it is in the leaf set", || leaves(&one).contains(&name).then_some(()));

    // Messages for its keys are delivered elsewhere or reported, not swallowed; all others arrive meanwhile.
    let (status, told) = send(&one, &name);
    if status == 200 {
        assert_ne!(told["delivered_to"], name.as_str(), "{told}");
    } else {
        assert!(told["error"].is_object() || told["code"].is_string() || told["hint"].is_string(), "{told}");
    }
    let own_id = one.json(&["info"])["id"].as_str().expect("an id").to_owned();
    let other_id = other.json(&["info"])["id"].as_str().expect("an id").to_owned();
    for _ in 0..20 {
        assert_eq!(send(&one, &other_id).0, 200);
        assert_eq!(send(&other, &own_id).0, 200);
    }
    assert!(counter(&one, "messages_overdue") > 0);
}
