//! A ring of our agents and a node that shares no code with them, written from the same document.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use common::foreign::{Foreign, frame, unframe};
use common::ring::{counts, token};
use common::{Agent, own_ip, own_udp_port, wait_until};
use serde_json::json;

/// Connects to a foreign node and sends nothing, when it is dropped: the node's `receive` fails.
struct Hangup(SocketAddr);

impl Drop for Hangup {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.0));
    }
}

/// Agents, and a foreign node of the same ring.
fn mixed(agents: usize, more: &[&str]) -> (Vec<Agent>, Foreign) {
    let udp = own_udp_port();
    let port = format!("token.udp_port={udp}");
    let args = [&["--services", "token", "--set", "token.preset=local", "--set", &port], more].concat();
    let agents = (0..agents).map(|_| Agent::start_on(own_ip(), &args)).collect();
    (agents, Foreign::new(own_ip(), udp, 424_242))
}

fn count_of(agent: &Agent, host: i32) -> u64 {
    counts(agent).into_iter().find(|(own, _)| *own == host.to_string()).map_or(0, |(_, count)| count)
}

/// Asks until an agent has us in its list.
fn join(agents: &[Agent], foreign: &Foreign) {
    wait_until("the ring has heard of us", || {
        foreign.ask();
        common::pause(std::time::Duration::from_millis(50));
        let token = token(&agents[0]);
        let known = token["nodes"].as_array()?.iter().any(|node| node["host_id"] == foreign.host_id);
        (known || token["waiting"].as_u64()? > 0).then_some(())
    });
}

#[test]
fn a_foreign_node_takes_its_turns_in_our_ring() {
    let (agents, mut foreign) = mixed(2, &[]);
    join(&agents, &foreign);
    let (mut with_list, mut without) = (0, 0);
    for _ in 0..12 {
        let offered = foreign.receive().expect("the ring passes to us");
        *(if offered.listed { &mut with_list } else { &mut without }) += 1;
        assert!(foreign.commit(offered), "what it passes is whole");
        foreign.tenure();
        let to = foreign.pass().expect("the ring takes it");
        assert_ne!(to.0, foreign.host_id);
    }
    assert!(with_list >= 1 && without >= 8, "TP4 only while the lists differ: {with_list}, {without}");
    assert_eq!(foreign.list.len(), 3);
    for agent in &agents {
        wait_until("our tenures are known", || (count_of(agent, foreign.host_id) == 12).then_some(()));
        let own = token(agent);
        let nodes = own["nodes"].as_array().unwrap();
        let entry = nodes.iter().find(|node| node["host_id"] == foreign.host_id).unwrap();
        assert_eq!(entry["addr"], format!("{}:{}", foreign.ip, foreign.port()));
        // The foreign node drops unknown fields; the counts are there all the same, theirs too.
        assert!(own["data"]["counts"][own["host_id"].to_string()].as_u64() > Some(5), "{own}");
    }
}

#[test]
fn a_value_that_a_foreign_node_drops_is_not_reported_as_kept() {
    let (agents, mut foreign) = mixed(1, &[]);
    join(&agents, &foreign);
    let end = Hangup((foreign.ip, foreign.port()).into());
    std::thread::scope(|scope| {
        // It carries the counts alone.
        scope.spawn(|| {
            while let Ok(offered) = foreign.receive() {
                if foreign.commit(offered) {
                    foreign.tenure();
                    foreign.pass();
                }
            }
        });
        // Ends that thread, also if the test fails.
        let _end = end;
        wait_until("the foreign node leads", || (count_of(&agents[0], 424_242) > 3).then_some(()));
        let shown = wait_until("the value went round", || {
            let shown = agents[0].stdout(&["token", "set", "door", "open"]);
            (!shown.contains("has not been round")).then_some(shown)
        });
        assert!(shown.contains("door is set, but not kept: a node of this ring drops values"), "{shown}");
        assert_eq!(agents[0].json(&["token", "get"]), json!({}));
    });
}

#[test]
fn a_foreign_node_that_dies_holding_the_token_or_refuses_it_does_not_stop_the_ring() {
    let (agents, mut foreign) = mixed(2, &[]);
    join(&agents, &foreign);
    let offered = foreign.receive().expect("the ring passes to us");
    assert!(foreign.commit(offered));
    // The token is lost with us, silently. From here on every dial to us is refused without a byte.
    let other = token(&agents[1])["host_id"].as_i64().and_then(|host| i32::try_from(host).ok()).unwrap();
    let before = count_of(&agents[0], other);
    foreign.tcp.set_nonblocking(true).unwrap();
    let mut refused = 0;
    wait_until("the ring goes on without us", || {
        while foreign.tcp.accept().is_ok() {
            refused += 1;
        }
        (count_of(&agents[0], other) > before + 10 && refused > 2).then_some(())
    });
    // The node before us in the list has tried to pass to us and failed.
    let sits_out = |agent: &Agent| {
        let nodes = token(agent)["nodes"].clone();
        let ours = nodes.as_array()?.iter().find(|node| node["host_id"] == foreign.host_id)?.clone();
        (ours["threshold"].as_u64()? > 0).then_some(())
    };
    wait_until("we sit out", || agents.iter().find_map(sits_out));
}

/// The beginning of an object stream, and random bytes behind it: no length, and no end mark.
fn object_stream(number: u8) -> Vec<u8> {
    [&b"\xac\xed\x00\x05"[..], &[number; 300], b"\xff\0{"].concat()
}

#[test]
fn ja_32b_agents_with_opaque_data_give_an_object_stream_back_unchanged() {
    let (agents, mut foreign) = mixed(2, &["--set", "token.data=opaque"]);
    join(&agents, &foreign);
    let tenures = |agent: &Agent| token(agent)["tenures"].as_u64().expect("it counts");
    let mut before = [0, 0];
    for number in 0..20 {
        let offered = foreign.receive().expect("the ring passes to us");
        if number == 5 {
            before = [tenures(&agents[0]), tenures(&agents[1])];
        }
        assert!(number == 0 || offered.data == object_stream(number - 1), "{:02x?}", offered.data);
        foreign.adopt(offered.token, offered.list);
        foreign.pass_data(&object_stream(number)).expect("the ring takes it");
    }
    for (agent, before) in agents.iter().zip(before) {
        let had = tenures(agent) - before;
        assert!((14..=16).contains(&had), "each node leads once per loop: {had} in 15 loops");
        assert_eq!(token(agent)["refused_tokens"], json!([]));
    }
}

#[test]
fn ja_32b_a_node_that_cannot_read_our_data_is_named_and_left_out() {
    let (mut agents, foreign) = mixed(2, &[]);
    join(&agents, &foreign);
    // It takes every token, and passes none on.
    std::thread::scope(|scope| {
        scope.spawn(|| while foreign.receive().is_ok() {});
        // Ends that thread, also if the test fails.
        let _end = Hangup((foreign.ip, foreign.port()).into());
        let left_out = |agent: &Agent| {
            let nodes = token(agent)["nodes"].clone();
            let ours = nodes.as_array()?.iter().find(|node| node["host_id"] == foreign.host_id)?.clone();
            (ours["left_out"] == true).then_some(())
        };
        let place = wait_until("it is left out", || {
            foreign.ask();
            agents.iter().position(|agent| left_out(agent).is_some())
        });
        agents[place].wait_for_log("424242");
        let shown = agents[place].stdout(&["token"]);
        assert!(shown.contains("(left out)"), "{shown}");
        let loops = |agent: &Agent| token(agent)["tenures"].as_u64().expect("it counts");
        let before = agents.iter().map(loops).max().expect("there are two");
        wait_until("the others go on", || {
            agents.iter().all(|agent| loops(agent) > before + 20).then_some(())
        });
    });
}

#[test]
fn jf_3_half_a_token_from_a_foreign_leader_is_no_token() {
    let (agents, mut foreign) = mixed(1, &[]);
    join(&agents, &foreign);
    let offered = foreign.receive().expect("the lone agent passes to us");
    assert!(foreign.commit(offered));
    foreign.tenure();
    let agent = *foreign.list.iter().find(|(host, ..)| *host != foreign.host_id).unwrap();
    let to = (agent.1, agent.2).into();
    let whole = foreign.data();
    let before = token(&agents[0]);
    assert_eq!(before["state"], "waiter");
    for cut in [0, 1, 4, 5, whole.len() / 2, whole.len() - 1] {
        let mut stream = foreign.offer(to).expect("it listens");
        stream.write_all(&[0x61]).unwrap();
        stream.write_all(&whole[..cut]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // A reset is as good an end as any.
        let _ = stream.read_to_end(&mut Vec::new());
        let after = token(&agents[0]);
        assert_eq!((&after["state"], &after["data"]), (&before["state"], &before["data"]), "{cut} bytes");
    }
    foreign.pass_to(agent, &whole).expect("the whole token is taken");
    wait_until("our count is there", || (count_of(&agents[0], foreign.host_id) == 1).then_some(()));
}

#[test]
fn a_leader_of_ours_that_is_killed_in_the_middle_of_tp5_leaves_one_token_and_every_count() {
    let timers = ["token.pass_timeout=3s", "token.renew_timeout=10s"].map(|timer| ["--set", timer]).concat();
    let (mut agents, mut foreign) = mixed(2, &timers);
    // The kernel takes little for us, so that a large token is long under way.
    rustix::net::sockopt::set_socket_recv_buffer_size(&foreign.tcp, 4096).unwrap();
    join(&agents, &foreign);
    for _ in 0..3 {
        let offered = foreign.receive().expect("the ring passes to us");
        assert!(foreign.commit(offered));
        foreign.tenure();
        foreign.pass().expect("the ring takes it");
    }
    // The node before us in the list will be killed while it passes to us. Our data has a field that it does not know
    // and keeps, so large that no kernel takes it at once.
    let place = foreign.list.iter().position(|(host, ..)| *host == foreign.host_id).unwrap();
    let leader = foreign.list[(place + 2) % 3].0;
    let victim = agents.iter().position(|agent| token(agent)["host_id"] == leader).unwrap();
    let offered = foreign.receive().expect("the ring passes to us");
    assert!(foreign.commit(offered));
    foreign.tenure();
    let heavy = json!({ "counts": foreign.counts, "heavy": "x".repeat(8_000_000) });
    let next = foreign.list[(place + 1) % 3];
    foreign.pass_to(next, &frame(heavy.to_string().as_bytes())).expect("the ring takes it");
    let (mut stream, _, same) = foreign.accept().expect("the ring passes to us");
    assert!(same, "the list is settled");
    let mut data = vec![0; 3000];
    stream.read_exact(&mut data).unwrap();
    assert_eq!(data.remove(0), 0x61, "this is TP5");
    agents[victim].signal("KILL");
    agents[victim].wait();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut data);
    assert!(unframe(&data).is_none(), "it was killed before its commit point");
    let survivor = &agents[1 - victim];
    wait_until("the survivor leads", || (token(survivor)["state"] == "leader").then_some(()));
    let now = token(survivor)["data"]["counts"].clone();
    for (host, count) in &foreign.counts {
        assert!(now[host].as_u64() >= count.as_u64(), "host {host} lost tenures: {now}");
    }
}
