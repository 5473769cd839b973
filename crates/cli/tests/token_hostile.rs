//! Hostile hosts against a ring of real agents: garbage, halves, slowness and floods. All of it is bounded and counted,
//! and the ring keeps turning.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use common::foreign::{Foreign, dial, frame, tp4};
use common::ring::{counts, metric, ring, token, wait_for_ring};
use common::{Agent, own_ip, wait_until};

/// Where an agent has its token ring: datagrams and streams.
fn endpoints(agent: &Agent) -> (SocketAddr, SocketAddr) {
    let info = agent.json(&["info"]);
    let at = |transport: &str| {
        let addresses = info["services"][0]["addresses"].as_array().expect("it has addresses");
        let found = addresses.iter().find(|at| at["transport"] == transport).expect("it has both");
        found["addr"].as_str().expect("an address is a text").parse().expect("it is one")
    };
    (at("udp"), at("tcp"))
}

fn turns(agents: &[Agent]) -> u64 {
    counts(&agents[1]).iter().map(|(_, count)| count).sum()
}

/// The token goes round `more` times, whatever is done meanwhile.
fn keeps_turning(agents: &[Agent], more: u64, mut meanwhile: impl FnMut()) {
    let before = turns(agents);
    wait_until("the ring keeps turning", || {
        meanwhile();
        (turns(agents) > before + more).then_some(())
    });
}

fn v4(ip: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(ip) = ip else { panic!("tests use IPv4") };
    ip
}

/// Sends bytes on a stream of its own, ends it, and waits for the end of the other side.
fn say(from: Ipv4Addr, to: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = dial(from, to).expect("it listens");
    let mut heard = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        if n > 0 {
            // The bytes after an offer are sent after its answer.
            let mut answer = [0];
            if stream.read_exact(&mut answer).is_err() {
                return heard;
            }
            heard.extend(answer);
        }
        if stream.write_all(piece).is_err() {
            return heard;
        }
    }
    // It may be closed already.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// An offer that no node refuses: no id is greater.
const TP1: [u8; 9] = [0x21, 0x7f, 0xff, 0xff, 0xff, 0x12, 0x34, 0x56, 0x78];

#[test]
fn jf_19_every_truncation_of_every_message_changes_nothing() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let (udp, tcp) = endpoints(&agents[0]);
    let stranger = v4(own_ip());
    let socket = UdpSocket::bind((stranger, 0)).unwrap();
    let before = metric(&agents[0], "annulus_token_malformed_total");
    let tr1 = [0x01, 0xed, 0xcb, 0xa9, 0x88, 0x0a, 0x0b, 0x0c, 0x0d, 0x75, 0x59];
    let tr2 = [0x11, 0x12, 0x34, 0x56, 0x78];
    let datagrams =
        [&tr1[..], &tr2].into_iter().flat_map(|whole| (0..whole.len()).map(move |cut| &whole[..cut]));
    let mut expected = before;
    for cut in datagrams {
        socket.send_to(cut, udp).unwrap();
        expected += 1;
    }
    let list = tp4(&[(77, stranger, 4001)]);
    let token = [&[0x61], &frame(br#"{"counts":{"77":1}}"#)[..]].concat();
    for cut in 0..TP1.len() {
        assert_eq!(say(stranger, tcp, &[&TP1[..cut]]), Vec::<u8>::new(), "no answer to {cut} bytes of TP1");
        expected += 1;
    }
    let rest = [list, token].concat();
    for cut in 0..rest.len() {
        assert_eq!(say(stranger, tcp, &[&TP1, &rest[..cut]]), [0x31], "nothing after {cut} bytes");
        expected += 1;
    }
    // The most that a list can claim to be, sizes below zero, and messages out of their order.
    for bad in [
        &b"\x51\x7f\xff\xff\xff"[..],
        b"\x51\xff\xff\xff\xff",
        b"\x51\x00\x01\x00\x00",
        b"\x21\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\x61\x00",
        b"\x52\x00\x00\x00\x00",
    ] {
        assert_eq!(say(stranger, tcp, &[&TP1, bad]), [0x31], "{bad:02x?}");
        expected += 1;
    }
    wait_until("all of it is counted", || {
        (metric(&agents[0], "annulus_token_malformed_total") >= expected).then_some(())
    });
    let known = token_hosts(&agents[0]);
    assert!(!known.contains(&77), "nothing of it came into the list: {known:?}");
    keeps_turning(&agents, 6, || {});
}

fn token_hosts(agent: &Agent) -> Vec<i64> {
    let nodes = token(agent)["nodes"].clone();
    nodes.as_array().into_iter().flatten().filter_map(|node| node["host_id"].as_i64()).collect()
}

#[test]
fn jf_20_a_stream_of_single_bytes_is_ended_and_delays_no_pass() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let (udp, tcp) = endpoints(&agents[0]);
    // A leader that never comes to its point.
    let mut slow = dial(v4(own_ip()), tcp).unwrap();
    let mut said = TP1.iter().cycle();
    keeps_turning(&agents, 20, || {
        // After the end of the stream, written bytes are lost.
        let _ = slow.write_all(&[*said.next().expect("it has no end")][..1]);
        common::pause(Duration::from_millis(100));
    });
    wait_until("it is ended", || {
        let ended = metric(&agents[0], "annulus_token_streams_expired_total") > 0
            || metric(&agents[0], "annulus_token_malformed_total") > 0;
        ended.then_some(())
    });
    // A candidate that never answers, and one that sends an invalid answer, byte by byte.
    let candidate = Foreign::new(own_ip(), udp.port(), 99);
    candidate.ask();
    candidate.tcp.set_nonblocking(true).unwrap();
    let mut kept: Vec<TcpStream> = Vec::new();
    keeps_turning(&agents, 40, || {
        while let Ok((stream, _)) = candidate.tcp.accept() {
            kept.push(stream);
        }
        if let Some(last) = kept.last_mut().filter(|_| turns(&agents).is_multiple_of(2)) {
            let _ = last.write_all(&[0x00]);
        }
    });
    wait_until("it was tried and sits out", || {
        agents.iter().any(|agent| metric(agent, "annulus_token_passes_failed_total") > 0).then_some(())
    });
}

#[test]
fn floods_of_datagrams_are_bounded_and_counted() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let (udp, _) = endpoints(&agents[0]);
    let socket = UdpSocket::bind((v4(own_ip()), 0)).unwrap();
    let mut number = 0_u32;
    let refused = metric(&agents[0], "annulus_token_refused_total");
    let unasked = metric(&agents[0], "annulus_token_answers_unasked_total");
    keeps_turning(&agents, 40, || {
        for _ in 0..500 {
            number += 1;
            // Each from another host: without a limit the list would grow by every one of them.
            let mut tr1 = vec![0x01, 0x80, 0, 0, 1];
            tr1.extend((1000 + number).to_be_bytes());
            tr1.extend([0x75, 0x59]);
            // A full queue of the kernel is a bound too.
            let _ = socket.send_to(&tr1, udp);
            let _ = socket.send_to(&[0x11, 0x7f, 0xff, 0xff, 0xff], udp);
        }
    });
    assert!(number > 2000);
    wait_until("what was too much is counted", || {
        let refused = metric(&agents[0], "annulus_token_refused_total") - refused;
        let unasked = metric(&agents[0], "annulus_token_answers_unasked_total") - unasked;
        (refused > 500 && unasked > 500).then_some(())
    });
    let known = token_hosts(&agents[0]).len();
    assert!(known < 1000, "{known} of {number} came into the list");
}

#[test]
fn floods_of_connections_leave_room_for_the_ring() {
    let agents = ring(2);
    wait_for_ring(&agents.iter().collect::<Vec<_>>());
    let targets: Vec<SocketAddr> = agents.iter().map(|agent| endpoints(agent).1).collect();
    let stranger = v4(own_ip());
    let mut open = std::collections::VecDeque::new();
    keeps_turning(&agents, 40, || {
        for &to in targets.iter().cycle().take(100) {
            // The oldest are closed, so that this process has descriptors left.
            if let Ok(stream) = dial(stranger, to) {
                open.push_back(stream);
            }
            if open.len() > 500 {
                open.pop_front();
            }
        }
    });
    for agent in &agents {
        assert!(metric(agent, "annulus_token_refused_total") > 20, "too many of one place are refused");
    }
}
