//! All four services in one agent: `--join` names one member, and every service finds the others through it.

mod common;

use std::net::IpAddr;

use common::{Agent, own_ip, own_udp_port, wait_until, wait_until_seen};

#[test]
fn one_join_is_enough_for_all_services() {
    let ips: Vec<IpAddr> = (0..4).map(|_| own_ip()).collect();
    let (token, join) = (format!("token.udp_port={}", own_udp_port()), format!("{}:7946", ips[0]));
    let start = |ip: &IpAddr| {
        let mut args = vec!["--services", "members,route,token,mesh", "--set", &token];
        // No broadcast reaches a node: the token is found through members.
        args.extend(["--set", "token.preset=local", "--set", "members.preset=local"]);
        args.extend(["--set", "token.broadcast=127.0.0.0"]);
        // A node that started alone meets the others at a random drop: frequent drops keep the test short.
        args.extend(["--set", "token.loose_prob_base=20"]);
        args.extend((ip != &ips[0]).then_some(["--join", &join]).into_iter().flatten());
        Agent::start_on(*ip, &args)
    };
    let mut agents: Vec<Agent> = ips.iter().map(start).collect();
    for agent in &agents {
        wait_until("route knows everybody", || {
            let tables = agent.json(&["tables"]);
            let leaves = tables["clockwise"].as_array().map(Vec::len);
            (tables["active"] == true && leaves == Some(3)).then_some(())
        });
        wait_until("the mesh has peers", || {
            agent.json(&["mesh", "peers"]).as_array().is_some_and(|peers| peers.len() >= 2).then_some(())
        });
        wait_until("one token goes round", || {
            (agent.json(&["token"])["nodes"].as_array().map(Vec::len) == Some(4)).then_some(())
        });
    }
    let told = agents[1].json(&["members"]);
    let services = &told[0]["services"];
    assert_eq!(
        (services["route"].as_u64(), services["mesh"].as_u64()),
        (Some(22_001), Some(22_000)),
        "{told}"
    );
    assert!(told[0]["tags"].as_object().is_some_and(serde_json::Map::is_empty), "{told}");
    let dead = agents.pop().expect("there are four");
    dead.signal("KILL");
    for agent in &agents {
        wait_until_seen("route hears from members who died", || {
            let tables = agent.json(&["tables"]);
            let whole = tables["clockwise"].as_array().map(Vec::len) == Some(2);
            whole.then_some(()).ok_or_else(|| format!("{tables} {}", agent.json(&["members"])))
        });
    }
}
