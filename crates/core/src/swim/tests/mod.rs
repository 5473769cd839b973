//! The clauses of `docs/spec/swim.md`, each with a test that fails if it is broken.

mod api;
mod codec;
mod contract;
mod extras;
mod group;
mod joining;
mod judging;
mod lattice;
mod limits;
mod lists;
mod probing;
mod proving;
mod queue;
mod shapes;
mod updates;
mod vectors;
mod wire;

use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::contract::Rig;
use crate::id::Id;
use crate::time::Wall;
use crate::wire::Writer;

const SECOND: Duration = Duration::from_secs(1);

/// Node number `n`: its id begins with its number.
fn id(n: u8) -> Id {
    Id::new(u128::from(n) << 120 | u128::from(n))
}

fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 7946))
}

fn node(n: u8) -> Node {
    Node { id: id(n), addrs: vec![addr(n)], meta: Vec::new() }
}

fn config(n: u8, preset: Preset) -> Config {
    Config { bind: addr(n), ..Config::new(id(n), preset) }
}

/// Settings without timers other than the periods, and without verification: `proving.rs` has the tests of that.
fn quiet(preset: Preset) -> Settings {
    Settings {
        gossip_interval: Duration::ZERO,
        sync_interval: Duration::ZERO,
        retry_interval: Duration::ZERO,
        coordinate_interval: Duration::ZERO,
        verify: false,
        ..preset.settings()
    }
}

/// Node 1 among the nodes of `others`, started, its log empty.
fn rig_with(config: &Config, others: &[u8]) -> Rig<Swim> {
    let mut swim = Swim::new(config, [7; 32]).unwrap();
    swim.assume(&others.iter().map(|n| node(*n)).collect::<Vec<_>>());
    let mut rig = Rig::new(swim);
    rig.start();
    rig.take_log();
    rig
}

fn rig(preset: Preset, others: &[u8]) -> Rig<Swim> {
    rig_with(&Config { settings: quiet(preset), stored_max: 0, ..config(1, preset) }, others)
}

/// Node 1 among others, with the settings of the preset.
fn wary(preset: Preset, others: &[u8]) -> Rig<Swim> {
    let settings = Settings { verify: true, ..quiet(preset) };
    rig_with(&Config { settings, stored_max: 0, ..config(1, preset) }, others)
}

/// The number of the last ping that went to an address.
fn nonce_to(rig: &mut Rig<Swim>, to: SocketAddr) -> Option<Sequence> {
    let pings = sent_kind(rig, "Ping");
    let (_, text) = pings.into_iter().rfind(|(at, _)| *at == to)?;
    let number = text.split("Sequence(").nth(1)?.split(')').next()?;
    number.parse().ok().map(Sequence)
}

/// Node `n` answers the last ping to its address with an Ack and this message.
fn prove(rig: &mut Rig<Swim>, n: u8, from: SocketAddr, word: Message<'_>) {
    let nonce = nonce_to(rig, from).expect("it is asked");
    rig.datagram(UDP, from, &packet(n, &[ack(n, nonce), word])).unwrap();
}

fn header(n: u8, sequence: u32) -> Header {
    Header { from: id(n), sequence: Sequence(sequence) }
}

fn contents(n: u8) -> OwnContents {
    OwnContents::new(&[addr(n)], &[]).unwrap()
}

fn alive(contents: &OwnContents, n: u8, incarnation: u32) -> Message<'_> {
    let node = NodeView { id: id(n), contents: contents.borrow() };
    Message::Alive { header: header(n, 0), node, incarnation: Incarnation(incarnation) }
}

fn join(contents: &OwnContents, n: u8, incarnation: u32) -> Message<'_> {
    let node = NodeView { id: id(n), contents: contents.borrow() };
    Message::Join { header: header(n, 0), node, incarnation: Incarnation(incarnation) }
}

fn suspect(by: u8, n: u8, incarnation: u32) -> Message<'static> {
    Message::Suspect { header: header(by, 0), id: id(n), incarnation: Incarnation(incarnation) }
}

fn dead(by: u8, n: u8, incarnation: u32) -> Message<'static> {
    Message::Dead { header: header(by, 0), id: id(n), incarnation: Incarnation(incarnation) }
}

fn ping(from: u8, to: u8, sequence: u32) -> Message<'static> {
    let local_time = Wall::from_micros(5);
    Message::Ping {
        header: header(from, sequence),
        to: id(to),
        local_time,
        wants_coordinate: false,
        wants_alive: false,
    }
}

fn ack(from: u8, sequence: Sequence) -> Message<'static> {
    let header = Header { from: id(from), sequence };
    Message::Ack { header, local_time: Wall::from_micros(5), introduce: false, coordinate: None }
}

/// A packet from node `from`.
fn packet(from: u8, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 65_000);
    Head { ring: Ring::new("annulus"), from: id(from) }.write(&mut writer);
    messages.iter().for_each(|message| encode(message, &mut writer));
    bytes
}

fn say(rig: &mut Rig<Swim>, from: u8, messages: &[Message<'_>]) {
    rig.datagram(UDP, addr(from), &packet(from, messages)).unwrap();
}

/// The packets that were sent: receiver, and messages as they print.
fn sent(rig: &mut Rig<Swim>) -> Vec<(SocketAddr, Vec<String>)> {
    let log = rig.take_log();
    let sends = log.iter().filter_map(|line| line.strip_prefix("Send 0:0 to "));
    sends
        .map(|line| line.split_once(' ').unwrap())
        .map(|(to, hex)| (to.parse().unwrap(), printed(hex)))
        .collect()
}

fn printed(hex: &str) -> Vec<String> {
    let bytes = unhex(hex);
    let (_, messages) = Head::read(&bytes).unwrap();
    messages.map(|message| format!("{:?}", message.unwrap())).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// All messages sent that begin with `kind`, and their receivers.
fn sent_kind(rig: &mut Rig<Swim>, kind: &str) -> Vec<(SocketAddr, String)> {
    let all = sent(rig).into_iter();
    all.flat_map(|(to, messages)| messages.into_iter().map(move |message| (to, message)))
        .filter(|(_, message)| message.split([' ', '{']).next() == Some(kind))
        .collect()
}

fn has(rig: &Rig<Swim>, part: &str) -> bool {
    rig.log.iter().any(|line| line.contains(part))
}

fn status(rig: &Rig<Swim>, n: u8) -> Option<(u32, State)> {
    let member = rig.machine.members().member(id(n))?;
    Some((member.incarnation().0, member.state()))
}

/// Lets a period begin, and returns the target and the sequence of its ping.
fn next_ping(rig: &mut Rig<Swim>) -> (u8, Sequence) {
    let period = rig.machine.period();
    while rig.machine.period() == period {
        rig.advance(Duration::from_millis(10));
    }
    let probe = rig.machine.prober.probes().clone().take().last().cloned().expect("a period has a probe");
    ((probe.id.number() & 0xff) as u8, probe.sequence)
}
