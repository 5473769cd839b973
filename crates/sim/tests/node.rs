//! Whole nodes: all four services in one, and only `members` has an address to join. The other services learn all nodes
//! from it.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use annulus_core::jitterbug::{self, Ledger};
use annulus_core::node::{Node, Part, Token};
use annulus_core::pastry::{self, Liveness, Pastry};
use annulus_core::swim::{self, Preset, Services, Swim, Tags};
use annulus_core::w3w::{self, Mesh};
use annulus_core::{Id, Service};
use annulus_sim::{
    Birth, Config, DiskFate, Fault, HostId, HostSpec, HostState, NETWORK_BROADCAST, Observer, Sim,
};

const MEMBERS: Service = Service(2);
const TOKEN: Service = Service(3);
const ROUTE: Service = Service(4);
const MESH: Service = Service(5);

const MEMBERS_PORT: u16 = 7946;
const TOKEN_PORT: u16 = 30_041;
const MESH_PORT: u16 = 22_000;

/// Watches nothing: the tests look at the machines.
struct Nothing;

impl Observer<Node> for Nothing {}

/// A node of the tests; `seek` sets whether its token looks for nodes that `members` names.
fn node(birth: &Birth<'_>, seek: bool) -> Node {
    let IpAddr::V4(ip) = birth.address else { unreachable!("the own address of a host is IPv4") };
    let uuid = (birth.host.index() as u128 + 1).to_be_bytes();
    let nid = w3w::Nid::from_uuid(uuid);
    let id = Id::from_bytes(*nid.to_bytes().first_chunk().expect("32 bytes have 16"));
    let is_first = birth.host.index() == 0;
    let first = SocketAddr::from(([10, 0, 0, 1], MEMBERS_PORT));
    let services = Services {
        route: Some(pastry::PORT),
        token: Some(TOKEN_PORT),
        mesh: Some(MESH_PORT),
        turns: None,
        nid: Some(nid.to_string()),
        letters: true,
    };
    let tags = Tags { name: birth.host.to_string(), services, ..Tags::default() };
    let members = swim::Config {
        bind: SocketAddr::new(birth.address, MEMBERS_PORT),
        seeds: if is_first { vec![] } else { vec![first] },
        meta: tags.encode().expect("the tags are few"),
        ..swim::Config::new(id, Preset::Lan)
    };
    let route = pastry::Config {
        id,
        bind: SocketAddr::new(birth.address, pastry::PORT),
        liveness: Liveness::Members,
        await_members: !is_first,
        ..pastry::Config::default()
    };
    let token = jitterbug::Config {
        addr: birth.address,
        broadcast: vec![NETWORK_BROADCAST.into()],
        seek_unlisted: seek,
        ..jitterbug::Config::lan()
    };
    let mesh = w3w::Config { uuid, bind: SocketAddrV4::new(ip, MESH_PORT), ..w3w::Config::default() };
    let seed = |service: Service| {
        let mut seed = birth.seed;
        seed[31] ^= service.0;
        seed
    };
    let parts = vec![
        (MEMBERS, Part::Members(Box::new(Swim::new(&members, seed(MEMBERS)).expect("valid")))),
        (TOKEN, Part::Token(Box::new(Token::new(&token, Ledger::new().into(), seed(TOKEN)).expect("valid")))),
        (ROUTE, Part::Route(Box::new(Pastry::new(route, seed(ROUTE)).expect("valid")))),
        (MESH, Part::Mesh(Box::new(Mesh::new(&mesh, seed(MESH)).expect("valid")))),
    ];
    Node::new(parts).expect("four tags")
}

/// So many nodes, every one alone in its broadcast domain.
fn group(seed: u64, nodes: u16) -> Sim<Node> {
    let mut sim = Sim::new(seed, Config::default(), |birth| node(&birth, true));
    for domain in 0..nodes {
        sim.add_host_with(HostSpec { domain, ..HostSpec::default() });
    }
    sim
}

fn route(node: &Node) -> &Pastry {
    let part = node.parts().iter().find_map(|(_, part)| match part {
        Part::Route(pastry) => Some(pastry),
        _ => None,
    });
    part.expect("every node has one")
}

fn mesh(node: &Node) -> &Mesh {
    let part = node.parts().iter().find_map(|(_, part)| match part {
        Part::Mesh(mesh) => Some(mesh),
        _ => None,
    });
    part.expect("every node has one")
}

fn token(node: &Node) -> &Token {
    let part = node.parts().iter().find_map(|(_, part)| match part {
        Part::Token(token) => Some(token),
        _ => None,
    });
    part.expect("every node has one")
}

fn up(sim: &Sim<Node>) -> Vec<(HostId, &Node)> {
    sim.machines().filter(|(host, _)| sim.state(*host) == HostState::Up).collect()
}

/// Whether every leaf set holds all other nodes that run; there are fewer of them than it has room for.
fn leaf_sets_are_exact(sim: &Sim<Node>) -> bool {
    let nodes = up(sim);
    let ids = |own: Id| nodes.iter().map(|(_, node)| route(node).own().id).filter(move |id| *id != own);
    nodes.iter().all(|(_, node)| {
        let pastry = route(node);
        let mut leaves: Vec<Id> = pastry.leaf_set().members().collect();
        let mut all: Vec<Id> = ids(pastry.own().id).collect();
        leaves.sort_unstable();
        leaves.dedup();
        all.sort_unstable();
        pastry.is_active() && leaves == all
    })
}

#[test]
fn one_join_is_enough_for_all_four_services() {
    for seed in 1..2 {
        let mut sim = group(seed, 12);
        sim.run_for(Duration::from_secs(30), &mut Nothing).expect("nothing forbids anything");
        assert!(leaf_sets_are_exact(&sim), "route, seed {seed}");
        for (host, node) in up(&sim) {
            assert!(mesh(node).peers().len() >= 2, "{host} has peers in the mesh, seed {seed}");
        }
        // Twelve domains: without `members` every node would keep a token of its own.
        sim.run_for(Duration::from_secs(600), &mut Nothing).expect("nothing forbids anything");
        for (host, node) in up(&sim) {
            let status = token(node).status(sim.clock(host).mono);
            assert_eq!(status.nodes.len(), 12, "{host} is in the one ring, seed {seed}");
        }
    }
}

#[test]
fn route_learns_of_deaths_from_members() {
    let mut sim = group(5, 12);
    sim.run_for(Duration::from_secs(30), &mut Nothing).expect("nothing forbids anything");
    assert!(leaf_sets_are_exact(&sim));
    for host in [3, 7, 8] {
        sim.fault(Fault::Crash { host: HostId::new(host), power: true, disk: DiskFate::Kept });
    }
    sim.run_for(Duration::from_secs(60), &mut Nothing).expect("nothing forbids anything");
    assert_eq!(up(&sim).len(), 9);
    assert!(leaf_sets_are_exact(&sim), "the dead are in no leaf set");
    sim.fault(Fault::Start(HostId::new(3)));
    sim.run_for(Duration::from_secs(60), &mut Nothing).expect("nothing forbids anything");
    assert_eq!(up(&sim).len(), 10);
    assert!(leaf_sets_are_exact(&sim), "who returns is seated again");
}

/// How many seconds after their start two rings of three, each in a broadcast domain of its own, are one.
fn meet(seed: u64, seek: bool) -> f64 {
    let mut sim = Sim::new(seed, Config::default(), move |birth| node(&birth, seek));
    for host in 0..6 {
        sim.add_host_with(HostSpec { domain: host / 3, ..HostSpec::default() });
    }
    let whole = |node: &Node| token(node).list().len() == 6;
    let one = |sim: &Sim<Node>| up(sim).iter().filter(|(_, node)| whole(node)).count() == 6;
    let step = Duration::from_millis(100);
    let met = sim.run_until_that(Duration::from_secs(3600), step, &mut Nothing, |sim, _| one(sim));
    assert_eq!(met, Ok(true), "seed {seed}");
    sim.elapsed().as_secs_f64()
}

fn mean_of_meetings(seeds: u64, seek: bool) -> f64 {
    (0..seeds).map(|seed| meet(seed, seek)).sum::<f64>() / seeds as f64
}

#[test]
fn two_rings_meet_soon_when_members_names_their_nodes() {
    let (named, drop) = (mean_of_meetings(6, true), mean_of_meetings(6, false));
    assert!(3.0 * named < drop, "{named} s, and {drop} s by the random drop alone");
}

/// `cargo test --release -p annulus-sim --test node -- --ignored --nocapture two_rings`
#[test]
#[ignore = "a measurement"]
fn two_rings_meet_soon_measured() {
    for (name, seek) in [("by the random drop alone", false), ("named by members", true)] {
        let mut seconds: Vec<f64> = (0..40).map(|seed| meet(seed, seek)).collect();
        seconds.sort_by(f64::total_cmp);
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        println!("{name}: mean {mean:.1} s, median {:.1} s, max {:.1} s", seconds[20], seconds[39]);
    }
}

/// Commands that a host has given, and how many of them were answered.
#[derive(Default)]
struct Replies(std::collections::BTreeSet<annulus_core::RequestId>);

impl Observer<Node> for Replies {
    fn on_reply(
        &mut self,
        _: &Sim<Node>,
        _: HostId,
        request: annulus_core::RequestId,
        _: &annulus_core::node::Reply,
    ) -> annulus_sim::Verdict {
        self.0.insert(request);
        Ok(())
    }
}

/// `members` reports a death to `route` by a command, and that ends messages of others: their senders get replies.
#[test]
fn every_message_sent_during_a_cut_gets_its_reply() {
    let mut sim = group(7, 8);
    let mut replies = Replies::default();
    sim.run_for(Duration::from_secs(30), &mut replies).expect("nothing forbids anything");
    let hosts: Vec<HostId> = sim.hosts().collect();
    let ids: Vec<Id> = hosts.iter().map(|&host| route(sim.machine(host).expect("up")).own().id).collect();
    sim.fault(Fault::Partition(vec![hosts[..4].to_vec(), hosts[4..].to_vec()]));
    let mut sent = Vec::new();
    for _ in 0..48 {
        for &from in &hosts[..4] {
            for &key in &ids[4..] {
                sent.push(sim.command(from, message(key)));
            }
        }
        sim.run_for(Duration::from_millis(250), &mut replies).expect("nothing forbids anything");
    }
    sim.run_for(Duration::from_secs(60), &mut replies).expect("nothing forbids anything");
    let silent = sent.iter().filter(|request| !replies.0.contains(request)).count();
    assert_eq!(silent, 0, "of {}", sent.len());
}

fn message(key: Id) -> annulus_core::node::Command {
    let (app, payload) = (pastry::AppName::default(), b"x".to_vec());
    let command = pastry::Command::route(app, key, payload);
    annulus_core::node::Command { service: ROUTE, command: annulus_core::node::PartCommand::Route(command) }
}
