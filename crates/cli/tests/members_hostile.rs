//! Forged packets against real agents: the attacks of a host that sends datagrams to the port, and reads none of
//! others.
//!
//! Every test sends from sockets on loopback addresses of its own. Time is counted in protocol periods of the agents.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use annulus::core::swim::{Head, Header, Incarnation, Message, NodeView, OwnContents, Sequence};
use annulus::core::{Id, Wall};
use common::members::{
    counter, group, id_of, packet, packet_from, pass_periods, periods, start, state, wait_for_all,
};
use common::{Agent, own_ip, wait_until};

/// Short periods: a test lasts seconds.
const FAST: [&str; 4] = ["--set", "members.interval=200ms", "--set", "members.probe_timeout=50ms"];

/// A group whose first agent is the seed of the others.
fn fast_group(size: usize, more: &[&str]) -> Vec<Agent> {
    let ips: Vec<IpAddr> = (0..size).map(|_| own_ip()).collect();
    let args = [&FAST[..], more].concat();
    let seed = |index: usize| (index > 0).then_some(ips[0]);
    let agent = |(index, ip): (usize, &IpAddr)| start(&format!("n{index}"), *ip, seed(index), &args);
    let agents: Vec<Agent> = ips.iter().enumerate().map(agent).collect();
    wait_for_all(&agents.iter().collect::<Vec<_>>());
    agents
}

fn port_of(agent: &Agent) -> SocketAddr {
    SocketAddr::new(agent.ip, 7946)
}

/// A host that lies: a socket of its own, and an id that it made up.
struct Forger {
    socket: UdpSocket,
    id: Id,
    sequence: u32,
}

impl Forger {
    fn new() -> Self {
        let socket = UdpSocket::bind((own_ip(), 7946)).expect("the address is ours");
        socket.set_nonblocking(true).expect("a socket can be so");
        Self { socket, id: Id::from_uuid([0xee; 16]), sequence: 0 }
    }

    fn addr(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    fn header(&mut self, from: Id) -> Header {
        self.sequence += 1;
        Header { from, sequence: Sequence(self.sequence) }
    }

    fn send(&self, to: &Agent, bytes: &[u8]) {
        // A full buffer of the kernel is a datagram lost, as any.
        let _ = self.socket.send_to(bytes, port_of(to));
    }

    /// The packets received since, with their senders.
    fn received(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; 65_536];
        let next =
            || self.socket.recv_from(&mut buffer).ok().map(|(len, from)| (from, buffer[..len].to_vec()));
        std::iter::from_fn(next).collect()
    }

    /// The contents and the incarnation of an agent. It answers any host.
    fn contents(&mut self, agent: &Agent) -> (OwnContents, Incarnation) {
        let (id, header) = (id_of(agent), self.header(self.id));
        let ping = Message::Ping {
            header,
            to: id,
            local_time: Wall::from_micros(1),
            wants_coordinate: false,
            wants_alive: true,
        };
        let bytes = packet_from(self.id, &[ping, Message::Padding { header, bytes: 300 }]);
        wait_until("an agent tells of itself", || {
            self.send(agent, &bytes);
            self.received().iter().find_map(|(_, answer)| alive_in(answer, id))
        })
    }
}

/// The Alive of a node in a packet.
fn alive_in(bytes: &[u8], of: Id) -> Option<(OwnContents, Incarnation)> {
    let (_, messages) = Head::read(bytes).ok()?;
    messages.filter_map(Result::ok).find_map(|message| match message {
        Message::Alive { node, incarnation, .. } if node.id == of => {
            Some((node.contents.to_owned(), incarnation))
        }
        _ => None,
    })
}

/// An Alive in a node's own name.
fn alive(id: Id, contents: &OwnContents, incarnation: Incarnation) -> Vec<u8> {
    let node = NodeView { id, contents: contents.borrow() };
    packet(&Message::Alive { header: Header { from: id, sequence: Sequence(9) }, node, incarnation })
}

/// The first address at which every agent sees every other, by name.
fn addresses(agent: &Agent) -> BTreeMap<String, String> {
    let members = agent.json(&["members"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let members = members.as_array().expect("it is a list").iter();
    members.map(|member| (text(&member["name"]), text(&member["addrs"][0]))).collect()
}

fn assert_no_deaths(agents: &[&Agent]) {
    for agent in agents {
        assert_eq!(counter(agent, "annulus_members_deaths_total"), Some(0), "{}", agent.ip);
    }
}

/// SA-58a: 54 bytes with another address once made a healthy member dead for all.
#[test]
fn a_forged_alive_with_another_address_changes_nothing() {
    let agents = fast_group(4, &[]);
    let all: Vec<&Agent> = agents.iter().collect();
    let before = addresses(all[0]);
    let (mut forger, victim) = (Forger::new(), id_of(all[1]));
    let (own, incarnation) = forger.contents(all[1]);
    let meta = own.borrow().meta().to_vec();
    let elsewhere = OwnContents::new(&[forger.addr()], &meta).expect("it is small");
    for agent in &all {
        forger.send(agent, &alive(victim, &elsewhere, incarnation.next()));
    }
    // The forger owns the address and can answer probes there; the member answers at its own address.
    pass_periods(&all, 25, || {
        for (from, bytes) in forger.received() {
            let Ok((_, messages)) = Head::read(&bytes) else { continue };
            for message in messages.filter_map(Result::ok) {
                let Message::Ping { header, .. } = message else { continue };
                let header = Header { from: victim, sequence: header.sequence };
                let ack = Message::Ack {
                    header,
                    local_time: Wall::from_micros(1),
                    introduce: false,
                    coordinate: None,
                };
                let node = NodeView { id: victim, contents: elsewhere.borrow() };
                let word = Message::Alive { header, node, incarnation: incarnation.next() };
                let _ = forger.socket.send_to(&packet_from(victim, &[ack, word]), from);
            }
        }
    });
    assert_no_deaths(&all);
    all.iter().for_each(|agent| assert_eq!(addresses(agent), before));
}

/// SA-31a: forged refutations do not keep a crashed member in the group.
#[test]
fn forged_alives_do_not_keep_a_crashed_member_alive() {
    let mut agents = fast_group(4, &[]);
    let (mut forger, victim) = (Forger::new(), id_of(&agents[3]));
    let (own, incarnation) = forger.contents(&agents[3]);
    agents[3].signal("KILL");
    agents[3].wait();
    let survivors: Vec<&Agent> = agents[..3].iter().collect();
    let since: Vec<u64> = survivors.iter().map(|agent| periods(agent)).collect();
    let mut number = incarnation;
    wait_until("the crashed one is dead for all", || {
        number = number.next();
        survivors.iter().for_each(|agent| forger.send(agent, &alive(victim, &own, number)));
        survivors.iter().all(|agent| state(agent, "n3").as_deref() == Some("dead")).then_some(())
    });
    for (agent, since) in survivors.iter().zip(since) {
        let took = periods(agent) - since;
        // Four nodes probe each other within 5 periods; a suspicion lasts at most 18, and half of its least time more.
        assert!(took <= 50, "{took} periods");
    }
}

/// SA-7c: numbers far ahead make a member refute, and all members follow.
#[test]
fn suspicions_of_any_number_are_refuted_and_the_member_stays_listed() {
    let agents = fast_group(3, &[]);
    let all: Vec<&Agent> = agents.iter().collect();
    let (mut forger, victim) = (Forger::new(), id_of(all[1]));
    for count in [1, 32_769] {
        let (_, incarnation) = forger.contents(all[1]);
        for _ in 0..count {
            let header = forger.header(forger.id);
            let far = Incarnation(incarnation.0.saturating_add(65_536));
            forger.send(all[1], &packet(&Message::Suspect { header, id: victim, incarnation: far }));
        }
        pass_periods(&all, 10, || {});
        wait_for_all(&all);
    }
    assert_no_deaths(&all);
    let late = start("late", own_ip(), Some(all[1].ip), &FAST);
    let all: Vec<&Agent> = all.into_iter().chain([&late]).collect();
    wait_for_all(&all);
}

/// SA-61: a Join with the address of another host sends that address at most three times its bytes, from all members
/// together.
#[test]
fn one_join_sends_at_most_three_times_its_bytes_to_where_it_claims_to_come_from() {
    for preset in ["members.preset=local", "members.preset=go_swim"] {
        let agents = fast_group(5, &["--set", preset]);
        let all: Vec<&Agent> = agents.iter().collect();
        // The packet comes from one address and names another; neither of them answers.
        let (mut source, named) = (Forger::new(), Forger::new());
        let contents = OwnContents::new(&[named.addr()], b"").expect("it is small");
        let node = NodeView { id: source.id, contents: contents.borrow() };
        let join = Message::Join { header: source.header(source.id), node, incarnation: Incarnation(0) };
        let bytes = packet(&join);
        source.send(all[0], &bytes);
        let mut received = Vec::new();
        pass_periods(&all, 30, || {
            received.extend(source.received());
            received.extend(named.received());
        });
        let total: usize = received.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(total <= 3 * bytes.len(), "{preset}: {total} bytes for {}", bytes.len());
        let own = id_of(all[0]);
        assert!(received.iter().any(|(_, bytes)| alive_in(bytes, own).is_some()), "S-83: it is answered");
        for agent in &all {
            let members = agent.json(&["members"]);
            assert_eq!(members.as_array().map(Vec::len), Some(all.len()), "{preset}: {members}");
        }
    }
}

/// SA-22a, SA-61: indirect pings and Suspects of an unknown sender get bare answers, also while events wait to be
/// sent.
#[test]
fn an_indirect_ping_or_an_accusation_gets_at_most_three_times_its_bytes() {
    let agents = fast_group(4, &[]);
    let all: Vec<&Agent> = agents.iter().collect();
    let (mut forger, victim) = (Forger::new(), id_of(all[0]));
    let own = OwnContents::new(&[forger.addr()], b"").expect("it is small");
    for round in 0..4 {
        let (_, incarnation) = forger.contents(all[0]);
        let header = forger.header(forger.id);
        let indirect = |target: Id| Message::IndirectPing {
            header,
            to: victim,
            target,
            wants_nack: true,
            contents: own.borrow(),
        };
        let nobody = Id::from_text(&format!("nobody {round}"));
        for said in [indirect(victim), indirect(nobody), Message::Suspect { header, id: victim, incarnation }]
        {
            for event in 0..4 {
                all[0].stdout(&["event", &format!("e{event}"), &"x".repeat(200)]);
            }
            forger.received();
            let bytes = packet_from(forger.id, &[said]);
            forger.send(all[0], &bytes);
            let mut total = 0;
            pass_periods(&all[..1], 3, || {
                total += forger.received().iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            });
            assert!(total > 0 && total <= 3 * bytes.len(), "{total} bytes for {}: {said:?}", bytes.len());
        }
    }
}

/// SA-58a: a member that does not answer is not listed, and a real death is detected meanwhile.
#[test]
fn a_flood_of_invented_members_shows_none_and_hides_no_death() {
    let mut agents = fast_group(4, &[]);
    let forger = Forger::new();
    let invented: Vec<Vec<u8>> = (0..1000u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            let contents = OwnContents::new(&[SocketAddr::from(([127, 200, high, low], 7946))], b"")
                .expect("it is small");
            alive(Id::from_text(&format!("invented {number}")), &contents, Incarnation(0))
        })
        .collect();
    let flood = |agents: &[&Agent]| {
        for bytes in &invented {
            agents.iter().for_each(|agent| forger.send(agent, bytes));
        }
    };
    flood(&agents.iter().collect::<Vec<_>>());
    agents[3].signal("KILL");
    agents[3].wait();
    let survivors: Vec<&Agent> = agents[..3].iter().collect();
    let since: Vec<u64> = survivors.iter().map(|agent| periods(agent)).collect();
    wait_until("the crashed one is dead for all", || {
        flood(&survivors);
        for agent in &survivors {
            let members = agent.json(&["members"]);
            assert_eq!(members.as_array().map(Vec::len), Some(4), "{members}");
        }
        survivors.iter().all(|agent| state(agent, "n3").as_deref() == Some("dead")).then_some(())
    });
    for (agent, since) in survivors.iter().zip(since) {
        let took = periods(agent) - since;
        assert!(took <= 50, "{took} periods");
    }
}

/// SA-31a: forged Leave and Dead messages have no effect while the member answers.
#[test]
fn forged_leaves_and_deaths_remove_no_member() {
    let agents = fast_group(3, &[]);
    let all: Vec<&Agent> = agents.iter().collect();
    let (mut forger, victim) = (Forger::new(), id_of(all[1]));
    for round in 0..5 {
        let (_, incarnation) = forger.contents(all[1]);
        for from in [victim, id_of(all[2]), forger.id] {
            let dead = Message::Dead { header: forger.header(from), id: victim, incarnation };
            all.iter().for_each(|agent| forger.send(agent, &packet_from(from, &[dead])));
        }
        pass_periods(&all, 3, || {});
        for agent in &all {
            let seen = state(agent, "n1");
            assert!(matches!(seen.as_deref(), Some("alive" | "suspect")), "round {round}: {seen:?}");
        }
    }
    wait_for_all(&all);
    assert_no_deaths(&all);
}

/// SA-33c: a goodbye that is forged for a crashed member changes how it is listed. The others go on asking it.
#[test]
fn a_forged_goodbye_of_a_crashed_member_does_not_end_the_questions_to_it() {
    let mut agents = fast_group(4, &[]);
    let mut forger = Forger::new();
    let (victim, addr) = (id_of(&agents[3]), port_of(&agents[3]));
    let (_, incarnation) = forger.contents(&agents[3]);
    let mut crashed = agents.pop().expect("there are four");
    crashed.signal("KILL");
    crashed.wait();
    let listed = |agent: &Agent| {
        let failed = agent.json(&["members", "--failed"]);
        Some(failed.as_array()?.iter().find(|member| member["name"] == "n3")?["state"].clone())
    };
    for agent in &agents {
        wait_until("the crash is known", || (listed(agent)? == "dead").then_some(()));
    }
    let goodbye = Message::Dead { header: forger.header(victim), id: victim, incarnation };
    agents.iter().for_each(|agent| forger.send(agent, &packet_from(victim, &[goodbye])));
    for agent in &agents {
        wait_until("it is listed as left", || (listed(agent)? == "left").then_some(()));
    }
    let socket = UdpSocket::bind(addr).expect("the agent there has ended");
    socket.set_nonblocking(true).expect("a socket can be so");
    let (mut asked, mut buffer) = (BTreeSet::new(), [0; 65_536]);
    wait_until("all others ask it", || {
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let Ok((_, mut messages)) = Head::read(&buffer[..len]) else { continue };
            if messages.any(|message| matches!(message, Ok(Message::Join { .. }))) {
                asked.insert(from.ip());
            }
        }
        (asked.len() == agents.len()).then_some(())
    });
}

/// A copied data directory and a name given twice: both sides log a warning with the remedy.
#[test]
fn two_nodes_of_one_id_or_one_name_both_log_a_warning() {
    let (dir, copy) =
        (tempfile::tempdir().expect("there is room"), tempfile::tempdir().expect("there is room"));
    let data =
        |dir: &tempfile::TempDir| dir.path().join("data").to_str().expect("a path in UTF-8").to_owned();
    let (first, second) = (data(&dir), data(&copy));
    let seed = own_ip();
    let mut red = start("red", seed, None, &FAST);
    let original = |ip| start("blue", ip, Some(seed), &[&FAST[..], &["--data-dir", &first]].concat());
    let mut blue = original(own_ip());
    wait_for_all(&[&red, &blue]);
    blue.signal("TERM");
    blue.wait();
    let copied = std::process::Command::new("cp").args(["-r", &first, &second]).status();
    assert!(copied.expect("cp runs").success());
    let mut blue = original(own_ip());
    wait_for_all(&[&red, &blue]);
    let before = addresses(&red)["blue"].clone();
    let mut green = start("green", own_ip(), Some(seed), &[&FAST[..], &["--data-dir", &second]].concat());
    blue.wait_for_log("another node uses our member id");
    green.wait_for_log("another node uses our member id");
    red.wait_for_log("two nodes use one member id");
    assert_eq!(addresses(&red)["blue"], before, "the first stays");
    drop(green);
    let mut other = start("blue", own_ip(), Some(seed), &FAST);
    blue.wait_for_log("another member has the name of this node");
    other.wait_for_log("another member has the name of this node");
}

/// `rtt` between two others is an estimate, and `monitor` has names.
#[test]
fn round_trips_between_others_are_estimated_and_events_have_names() {
    let agents = group(4);
    let all: Vec<&Agent> = agents.iter().collect();
    wait_for_all(&all);
    wait_until("an estimate", || all[0].json(&["rtt", "n2", "n3"])["rtt_ms"].as_f64());
    let text = all[0].stdout(&["monitor", "--after", "0-0", "--event", "member_joined", "--count", "3"]);
    for name in ["n1", "n2", "n3"] {
        assert!(text.contains(&format!("={name}")), "{text}");
    }
}
