//! The clauses of `docs/spec/ping.md`, one test each, and the contract.

use core::time::Duration;
use std::net::SocketAddr;

use super::*;
use crate::contract::{self, Rig, Subject};
use crate::store::StoreResult;
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, OpId, SocketId, StreamId};
use crate::wire::{DecodeError, Writer};
use crate::{Machine, Refusal};

const SECOND: Duration = Duration::from_secs(1);

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 7001))
}

fn config() -> Config {
    Config { bind: addr(1), peers: vec![addr(2)], stream_every: 0, ..Config::default() }
}

fn rig(config: &Config) -> Rig<Ping> {
    let mut rig = Rig::new(Ping::new(config, [7; 32]).unwrap());
    rig.start();
    rig
}

fn bytes(message: Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut Writer::new(&mut bytes, MESSAGE_BYTES));
    bytes
}

/// Returns the number of the last ping in the log, and clears the log.
fn last_sequence(rig: &mut Rig<Ping>) -> u64 {
    let log = rig.take_log();
    let line = log.iter().rev().find(|line| line.contains(" 0100")).expect("a ping was sent");
    let hex = &line[line.rfind(" 0100").unwrap() + 5..];
    u64::from_str_radix(hex, 16).unwrap()
}

/// Lets time pass until a ping goes out.
fn ping_once(rig: &mut Rig<Ping>) -> u64 {
    rig.take_log();
    while !rig.log.iter().any(|line| line.contains(" 0100")) {
        rig.advance(Duration::from_millis(50));
    }
    last_sequence(rig)
}

fn has(rig: &Rig<Ping>, part: &str) -> bool {
    rig.log.iter().any(|line| line.contains(part))
}

struct Pinging {
    by_stream: bool,
}

impl Subject for Pinging {
    type M = Ping;

    fn machine(&self) -> Ping {
        let stream_every = u32::from(self.by_stream);
        Ping::new(&Config { peers: vec![addr(2), addr(3)], stream_every, ..config() }, [7; 32]).unwrap()
    }

    fn live(&self, rig: &mut Rig<Ping>) {
        rig.start();
        rig.advance(3 * SECOND);
        rig.command(Command::AddPeer(addr(4)));
        rig.command(Command::Ping { to: addr(9), via: Via::Datagram });
        let sequence = ping_once(rig);
        let _ = rig.datagram(UDP, addr(2), &bytes(Message::Pong { sequence }));
        rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 99 })).unwrap();
        rig.advance(SECOND / 20);
    }

    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)> {
        let messages = [Message::Ping { sequence: 5 }, Message::Pong { sequence: 5 }];
        messages.map(|message| (UDP, addr(2), bytes(message))).to_vec()
    }

    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)> {
        vec![(TCP, bytes(Message::Ping { sequence: 5 }))]
    }

    fn forget_counters(&self, machine: &mut Ping) {
        machine.forget_counters();
    }
}

#[test]
fn ping_keeps_the_contract() {
    contract::check(&Pinging { by_stream: false });
    contract::check(&Pinging { by_stream: true });
}

#[test]
fn pi_1_the_bytes_are_those_of_the_vectors() {
    for line in include_str!("../../tests/vectors/ping.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, hex, printed] = fields[..] else {
            panic!("a vector is name | hex | printed form: {line}")
        };
        let wire: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        match decode(&wire) {
            Ok(message) => {
                assert_eq!(format!("{message:?}"), printed, "{name}");
                assert_eq!(bytes(message), wire, "{name}");
            }
            Err(error) => assert_eq!(format!("{error:?}"), printed, "{name}"),
        }
    }
}

#[test]
fn pi_2_a_ping_is_answered_to_its_source() {
    let mut rig = rig(&config());
    rig.take_log();
    rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 0x1234 })).unwrap();
    assert_eq!(rig.log, ["Send 0:0 to 127.0.0.5:7001 01010000000000001234"]);
}

#[test]
fn pi_3_every_peer_is_pinged_once_per_interval() {
    let mut rig = rig(&Config { peers: vec![addr(2), addr(3)], ..config() });
    rig.advance(10 * SECOND);
    for peer in [2, 3] {
        let sent =
            rig.log.iter().filter(|line| line.starts_with(&format!("Send 0:0 to 127.0.0.{peer}"))).count();
        assert_eq!(sent, 10, "peer {peer}");
    }
}

#[test]
fn pi_3_nodes_that_start_together_do_not_ping_together() {
    let first_ping = |seed: u8| {
        let mut rig = Rig::new(Ping::new(&config(), [seed; 32]).unwrap());
        rig.start();
        rig.machine.poll_timeout().expect("a round is due").0.since(rig.now.mono)
    };
    let mut moments: Vec<Duration> = (0..20).map(first_ping).collect();
    assert!(moments.iter().all(|&moment| moment < SECOND), "within the first interval");
    moments.sort();
    moments.dedup();
    assert_eq!(moments.len(), 20);
}

#[test]
fn pi_3_a_busy_node_still_pings() {
    let mut rig = rig(&config());
    for sequence in 0..1_000 {
        rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence })).unwrap();
        rig.advance(SECOND / 100);
    }
    assert_eq!(rig.machine.counted().pings_sent, 10, "inputs do not postpone due pings");
}

#[test]
fn pi_4_a_sequence_is_never_used_twice() {
    let mut rig = rig(&Config { peers: vec![addr(2), addr(3)], ..config() });
    rig.advance(20 * SECOND);
    let mut pings: Vec<String> =
        rig.log.iter().filter_map(|line| line.split(" 0100").nth(1)).map(str::to_owned).collect();
    let sent = pings.len();
    pings.sort();
    pings.dedup();
    assert_eq!((pings.len(), sent), (40, 40));
}

#[test]
fn pi_4_a_pong_to_a_ping_before_a_restart_matches_nothing() {
    let former = ping_once(&mut rig(&config()));
    let mut rig = Rig::new(Ping::new(&config(), [8; 32]).unwrap());
    rig.start();
    ping_once(&mut rig);
    assert!(rig.datagram(UDP, addr(2), &bytes(Message::Pong { sequence: former })).is_err());
}

#[test]
fn pi_5_a_pong_counts_once_and_only_from_the_pinged_address() {
    let mut rig = rig(&config());
    let sequence = ping_once(&mut rig);
    let pong = bytes(Message::Pong { sequence });
    let refusal = Err(Refusal::Reject("a pong that answers no ping under way"));
    assert_eq!(rig.datagram(UDP, addr(3), &pong), refusal, "from another address");
    assert_eq!(rig.datagram(UDP, addr(2), &bytes(Message::Pong { sequence: sequence + 1 })), refusal);
    assert_eq!(rig.datagram(UDP, addr(2), &pong), Ok(()));
    assert!(has(&rig, "PingAnswered"));
    assert_eq!(rig.datagram(UDP, addr(2), &pong), refusal, "a second time");
    assert_eq!(rig.machine.counted().pongs_unmatched, 3);
}

#[test]
fn pi_6_an_unanswered_ping_is_missed_after_the_timeout() {
    let mut rig = rig(&config());
    let sequence = ping_once(&mut rig);
    rig.advance(SECOND / 2);
    assert!(has(&rig, &format!("PingMissed {{ peer: 127.0.0.2:7001, sequence: {sequence}")));
    assert!(rig.datagram(UDP, addr(2), &bytes(Message::Pong { sequence })).is_err(), "too late");
}

#[test]
fn pi_7_a_peer_appears_with_its_first_pong_and_vanishes_after_misses_in_a_row() {
    let mut rig = rig(&config());
    let sequence = ping_once(&mut rig);
    rig.datagram(UDP, addr(2), &bytes(Message::Pong { sequence })).unwrap();
    assert!(has(&rig, "PeerAppeared"));
    assert_eq!(rig.machine.peers()[0].state, PeerState::Present);
    rig.take_log();
    while rig.machine.peers()[0].missed < 2 {
        rig.advance(SECOND / 10);
    }
    assert!(!has(&rig, "PeerVanished"), "two misses are not three");
    rig.advance(SECOND);
    assert_eq!(rig.log.iter().filter(|line| line.contains("PeerVanished")).count(), 1);
    rig.advance(5 * SECOND);
    assert_eq!(rig.log.iter().filter(|line| line.contains("PeerVanished")).count(), 1, "one event");
}

#[test]
fn pi_8_a_stream_carries_one_ping_and_one_pong_each_ended_by_fin() {
    let mut rig = rig(&Config { stream_every: 1, ..config() });
    let sequence = ping_once(&mut rig);
    let stream = StreamId::opened(1);
    rig.stream(stream, StreamEvent::Connected { local: addr(1) }).unwrap();
    let pong = bytes(Message::Pong { sequence });
    rig.stream(stream, StreamEvent::Data(&pong[..3])).unwrap();
    rig.stream(stream, StreamEvent::Data(&pong[3..])).unwrap();
    assert!(!has(&rig, "PingAnswered"), "whole only at the FIN");
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert!(has(&rig, "PingAnswered") && has(&rig, "via: Stream"));
}

#[test]
fn pi_8_every_third_round_goes_over_streams() {
    let mut rig = rig(&Config { stream_every: 3, ..config() });
    rig.advance(9 * SECOND);
    let kinds: String = (rig.log.iter())
        .filter_map(|line| ["Send", "Open"].into_iter().find(|kind| line.starts_with(kind)))
        .map(|kind| &kind[..1])
        .collect();
    assert_eq!(kinds, "SSOSSOSSO");
}

#[test]
fn pi_8_a_ping_on_a_stream_is_answered_at_its_fin() {
    let mut rig = rig(&config());
    let stream = StreamId::accepted(1);
    rig.take_log();
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    rig.stream(stream, StreamEvent::Data(&bytes(Message::Ping { sequence: 3 }))).unwrap();
    assert_eq!(rig.take_log(), [format!("Read {stream} 11")]);
    rig.stream(stream, StreamEvent::Finished).unwrap();
    assert_eq!(rig.log, [format!("Write {stream} 01010000000000000003"), format!("Finish {stream}")]);
}

#[test]
fn pi_9_a_stream_that_breaks_is_a_miss() {
    for reason in [CloseReason::Refused, CloseReason::Reset, CloseReason::TimedOut, CloseReason::Done] {
        let mut rig = rig(&Config { stream_every: 1, ..config() });
        ping_once(&mut rig);
        rig.stream(StreamId::opened(1), StreamEvent::Closed(reason)).unwrap();
        assert!(has(&rig, "PingMissed"), "{reason:?}");
    }
}

#[test]
fn pi_9_a_stream_without_an_answer_is_reset_at_the_timeout() {
    let mut rig = rig(&Config { stream_every: 1, ..config() });
    ping_once(&mut rig);
    rig.advance(SECOND / 2);
    assert!(has(&rig, "Abort 0:2") && has(&rig, "PingMissed"));
}

#[test]
fn pi_10_a_silent_stream_of_a_peer_is_reset_at_the_timeout() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    let stream = StreamId::accepted(1);
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    rig.advance(SECOND / 2);
    assert!(has(&rig, &format!("Abort {stream}")));
    assert_eq!(rig.machine.counted().streams_expired, 1);
}

#[test]
fn pi_11_invalid_bytes_are_refused_and_counted() {
    let mut rig = rig(&config());
    let before = rig.machine.counted().malformed;
    assert_eq!(rig.datagram(UDP, addr(5), b"hello"), Err(DecodeError::Version.into()));
    let stream = StreamId::accepted(1);
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    assert_eq!(rig.stream(stream, StreamEvent::Data(&[1; 11])), Err(DecodeError::Trailing.into()));
    let stream = StreamId::accepted(2);
    rig.stream(stream, StreamEvent::Accepted { listener: TCP, from: addr(5), local: addr(1) }).unwrap();
    rig.stream(stream, StreamEvent::Data(&bytes(Message::Pong { sequence: 1 }))).unwrap();
    assert_eq!(rig.stream(stream, StreamEvent::Finished), Err(DecodeError::Kind.into()), "no ping");
    assert_eq!(rig.machine.counted().malformed, before + 3);
}

#[test]
fn pi_12_the_count_is_stored_and_read_again() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    assert!(has(&rig, "CountLoaded { count: 0 }"));
    for sequence in 0..5 {
        rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence })).unwrap();
    }
    rig.advance(SECOND);
    assert!(has(&rig, "CountKept { count: 5 }"));
    let mut again = Rig::new(Ping::new(&config(), [8; 32]).unwrap());
    again.disk = rig.disk;
    again.start();
    assert!(has(&again, "CountLoaded { count: 5 }"));
    assert_eq!(again.machine.count(), 5);
}

#[test]
fn pi_13_the_count_is_written_at_most_once_per_interval_and_durably() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    for sequence in 0..100 {
        rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence })).unwrap();
        rig.advance(SECOND / 20);
    }
    let writes: Vec<&String> = rig.log.iter().filter(|line| line.contains("Write {")).collect();
    assert!((4..=5).contains(&writes.len()), "{writes:?}");
    assert!(writes.iter().all(|line| line.contains("durable: true")));
}

#[test]
fn pi_14_only_a_count_that_the_store_has_confirmed_is_reported_as_kept() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 1 })).unwrap();
    rig.hold();
    rig.advance(SECOND);
    assert!(!has(&rig, "CountKept"), "the write is on its way, no more");
    rig.drain();
    assert!(has(&rig, "CountKept { count: 1 }"));
}

#[test]
fn pi_15_a_failed_write_is_reported_and_tried_again() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 1 })).unwrap();
    rig.hold();
    rig.advance(SECOND);
    rig.stored(OpId::new(2), StoreResult::Failed(StoreFault::Full));
    rig.drain();
    assert!(has(&rig, "CountFailed { fault: Full }"));
    rig.advance(SECOND);
    rig.drain();
    assert!(has(&rig, "CountKept { count: 1 }"));
}

#[test]
fn pi_16_a_count_that_cannot_be_read_is_not_overwritten() {
    let mut rig = Rig::new(Ping::new(&config(), [7; 32]).unwrap());
    rig.disk.insert((SPACE, COUNT_KEY.to_vec()), b"not eight bytes".to_vec());
    rig.start();
    assert!(has(&rig, "CountFailed { fault: Broken }"));
    rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 1 })).unwrap();
    rig.advance(10 * SECOND);
    rig.stop();
    assert!(rig.machine.is_stopped());
    assert_eq!(rig.disk[&(SPACE, COUNT_KEY.to_vec())], b"not eight bytes");
}

#[test]
fn pi_17_a_stop_keeps_the_count_first() {
    let mut rig = rig(&config());
    rig.datagram(UDP, addr(5), &bytes(Message::Ping { sequence: 1 })).unwrap();
    assert!(!rig.machine.is_stopped());
    rig.stop();
    assert!(has(&rig, "CountKept { count: 1 }") && rig.machine.is_stopped());
    rig.take_log();
    rig.advance(5 * SECOND);
    assert!(!has(&rig, "Send"), "no more pings");
    rig.command(Command::Peers);
    assert!(has(&rig, "Stopping"));
}

#[test]
fn pi_18_a_command_pings_anyone_and_is_answered_once() {
    let mut rig = rig(&Config { peers: vec![], ..config() });
    rig.take_log();
    rig.command(Command::Ping { to: addr(9), via: Via::Datagram });
    let sequence = last_sequence(&mut rig);
    rig.sleep(Duration::from_micros(1500));
    rig.datagram(UDP, addr(9), &bytes(Message::Pong { sequence })).unwrap();
    assert!(has(&rig, "Reply 1 Answered { rtt_micros: 1500 }"));
    rig.command(Command::Ping { to: addr(9), via: Via::Stream });
    rig.advance(SECOND);
    assert!(has(&rig, "Reply 2 Missed"));
}

#[test]
fn pi_19_peers_and_pings_under_way_are_bounded() {
    let mut rig = rig(&Config { peers_max: 2, probes_max: 3, ..config() });
    rig.command(Command::AddPeer(addr(3)));
    rig.command(Command::AddPeer(addr(3)));
    rig.command(Command::AddPeer(addr(4)));
    assert!(has(&rig, "Reply 1 Done") && has(&rig, "Reply 2 Done") && has(&rig, "Reply 3 Full"));
    for _ in 0..4 {
        rig.command(Command::Ping { to: addr(9), via: Via::Datagram });
    }
    assert!(has(&rig, "Reply 7 Full"));
    assert_eq!(rig.log.iter().filter(|line| line.contains("Full")).count(), 2);
}

#[test]
fn pi_19_a_regular_ping_beyond_the_limit_is_skipped_and_counted() {
    let mut rig = rig(&Config { peers: vec![addr(2), addr(3), addr(4)], probes_max: 2, ..config() });
    rig.advance(SECOND);
    assert_eq!((rig.machine.counted().pings_sent, rig.machine.counted().pings_skipped), (2, 1));
}

#[test]
fn pi_20_a_paused_node_does_not_repeat_missed_rounds() {
    let mut rig = rig(&config());
    ping_once(&mut rig);
    rig.sleep(3600 * SECOND);
    rig.wake();
    let pings = rig.log.iter().filter(|line| line.starts_with("Send")).count();
    assert_eq!(pings, 1);
}

#[test]
fn an_invalid_configuration_is_refused_with_a_reason() {
    let cases = [
        (Config { interval: Duration::ZERO, ..config() }, "ping.interval is zero"),
        (Config { timeout: 2 * SECOND, ..config() }, "at most ping.interval (1s)"),
        (Config { vanished_after: 0, ..config() }, "ping.vanished_after is zero"),
        (Config { peers_max: 0, ..config() }, "1 peers are over ping.peers_max (0)"),
    ];
    for (config, part) in cases {
        let error = Ping::new(&config, [0; 32]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
