//! The clauses of `docs/spec/jitterbug.md`, at least one test each, and the contract.

mod application;
mod candidate;
mod config;
mod contract;
mod document;
mod garbage;
mod holds;
mod laws;
mod leader;
mod orphan;
mod pass;
mod rings;
mod states;
mod vectors;
mod weak;
mod world;

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::contract::Rig;
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::wire::Writer;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
/// The host id and the port of the node under test.
const OWN: u32 = 11;
const PORT: u16 = 4001;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn udp(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), 30_041)
}

fn host(number: u32) -> HostId {
    HostId::new(number).unwrap()
}

fn id(magnitude: u32) -> TokenId {
    TokenId::new(magnitude).unwrap()
}

/// Host `10 + last` at 127.0.0.last.
fn entry(last: u8) -> NodeEntry {
    NodeEntry::new(host(10 + u32::from(last)), ip(last), PORT)
}

/// The node under test: host 11 at 127.0.0.1, and a random drop that practically never happens.
fn config() -> Config {
    Config {
        addr: ip(1),
        tcp_port: PORT,
        host_id: Some(host(OWN)),
        broadcast: vec![ip(255)],
        loose_prob_base: 1e12,
        ..Config::lan()
    }
}

fn node(config: &Config) -> Jitterbug<Ledger> {
    Jitterbug::new(config, Ledger::new(), [7; 32]).unwrap()
}

/// Started, and an orphan.
fn started(config: &Config) -> Rig<Jitterbug<Ledger>> {
    let mut rig = Rig::new(node(config));
    rig.start();
    rig
}

/// A waiter whose restore was denied by a holder.
fn waiter() -> Rig<Jitterbug<Ledger>> {
    let mut rig = started(&config());
    hear(&mut rig, 9, &Message::Tr2 { token_id: id(5).held() }).unwrap();
    assert_eq!(rig.machine.state_name(), StateName::Waiter);
    rig.take_log();
    rig
}

/// A leader that made its own token and is alone.
fn leader() -> Rig<Jitterbug<Ledger>> {
    let mut rig = started(&config());
    rig.advance(1200 * MILLI);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    rig.take_log();
    rig
}

/// A leader whose list has nodes 1 and 2, and which offers its token to node 2 on the stream returned.
fn passing() -> (Rig<Jitterbug<Ledger>>, StreamId) {
    let mut rig = leader();
    hear(&mut rig, 2, &tr1(2, 2_000_000_000)).unwrap();
    while !has(&rig, "Open") {
        rig.advance(MILLI);
    }
    (rig, StreamId::opened(1))
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, 1 << 22));
    bytes
}

fn tr1(last: u8, magnitude: u32) -> Message {
    let NodeEntry { host_id, addr } = entry(last);
    Message::Tr1 { token_id: id(magnitude).free(), host_id, tcp_port: addr.port() }
}

fn hear<A: Application>(
    rig: &mut Rig<Jitterbug<A>>,
    last: u8,
    message: &Message,
) -> Result<(), crate::Refusal> {
    rig.datagram(UDP, udp(last), &bytes(message))
}

/// Data with these counts, framed.
fn counts(counts: &[(u32, u64)]) -> Vec<u8> {
    let mut document = Document::default();
    counts.iter().for_each(|&(host, count)| document.raise(host, count));
    document.to_data()
}

fn count_of(data: &[u8], host: u32) -> u64 {
    Document::from_data(data).unwrap().counts.get(&host.to_string()).copied().unwrap_or(0)
}

/// Node `last` opens stream number `n` and offers a token whose list has this hash.
fn offer<A: Application>(
    rig: &mut Rig<Jitterbug<A>>,
    n: u64,
    last: u8,
    magnitude: u32,
    hash: i32,
) -> StreamId {
    let stream = StreamId::accepted(n);
    let from = SocketAddr::new(ip(last), 50_000);
    let local = SocketAddr::new(ip(1), PORT);
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from, local }).unwrap();
    let offer = Message::Tp1 { token_id: id(magnitude).held(), node_list_hash: hash };
    rig.stream(stream, StreamEvent::Data(&bytes(&offer))).unwrap();
    stream
}

/// A whole pass from node `last`, with its own list.
fn give<A: Application>(
    rig: &mut Rig<Jitterbug<A>>,
    n: u64,
    last: u8,
    magnitude: u32,
    nodes: &[NodeEntry],
    data: &[u8],
) {
    let stream = offer(rig, n, last, magnitude, NodeList::of(nodes.to_vec()).hash());
    let same = rig.machine.list().hash() == NodeList::of(nodes.to_vec()).hash();
    if !same {
        rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp4 { nodes: nodes.to_vec() }))).unwrap();
    }
    rig.stream(stream, StreamEvent::Data(&bytes(&Message::Tp5 { data: data.to_vec() }))).unwrap();
    rig.stream(stream, StreamEvent::Finished).unwrap();
}

fn has<A: Application>(rig: &Rig<Jitterbug<A>>, part: &str) -> bool {
    rig.log.iter().any(|line| line.contains(part))
}

fn count_lines<A: Application>(rig: &Rig<Jitterbug<A>>, part: &str) -> usize {
    rig.log.iter().filter(|line| line.contains(part)).count()
}
