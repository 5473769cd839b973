//! Groups of agents that run `members`, and packets that a test makes up.

use std::net::IpAddr;

use annulus::core::Id;
use annulus::core::swim::{self, Head, Message, Ring};
use annulus::core::wire::Writer;

use super::{Agent, own_ip, wait_until};

/// Timers short enough for a test, with the roles of the default preset.
pub(crate) const QUICK: [&str; 2] = ["--set", "members.preset=local"];

/// An agent of a group that all join through `seed`.
pub(crate) fn start(name: &str, ip: IpAddr, seed: Option<IpAddr>, more: &[&str]) -> Agent {
    let join = seed.map(|seed| format!("{seed}:7946"));
    let mut args = vec!["--name", name, "--services", "members"];
    args.extend(QUICK);
    args.extend(join.iter().flat_map(|join| ["--join", join]));
    args.extend(more);
    Agent::start_on(ip, &args)
}

/// A group of `size` agents: the first is the seed.
pub(crate) fn group(size: usize) -> Vec<Agent> {
    let ips: Vec<IpAddr> = (0..size).map(|_| own_ip()).collect();
    let seed = |index: usize| (index > 0).then_some(ips[0]);
    ips.iter().enumerate().map(|(index, ip)| start(&format!("n{index}"), *ip, seed(index), &[])).collect()
}

/// The state in which an agent sees the member with this name.
pub(crate) fn state(agent: &Agent, name: &str) -> Option<String> {
    let members = agent.json(&["members"]);
    let member = members.as_array()?.iter().find(|member| member["name"] == name)?;
    Some(member["state"].as_str()?.to_owned())
}

pub(crate) fn wait_for_state(agents: &[&Agent], name: &str, wanted: &str) {
    for agent in agents {
        wait_until(&format!("{name} is {wanted}"), || (state(agent, name)? == wanted).then_some(()));
    }
}

/// Waits until every agent sees all of them alive.
pub(crate) fn wait_for_all(agents: &[&Agent]) {
    for agent in agents {
        wait_until("everybody knows everybody", || {
            let members = agent.json(&["members", "--state", "alive"]);
            (members.as_array()?.len() == agents.len()).then_some(())
        });
    }
}

/// A counter of an agent.
pub(crate) fn counter(agent: &Agent, name: &str) -> Option<u64> {
    let (_, text) = agent.request("GET", "/metrics", &[], "");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

/// A packet of the ring "annulus" with one message, from the sender that the message names.
pub(crate) fn packet(message: &Message<'_>) -> Vec<u8> {
    packet_from(message.header().from, &[*message])
}

/// A packet of the ring "annulus" in anyone's name.
pub(crate) fn packet_from(from: Id, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, usize::MAX);
    Head { ring: Ring::new("annulus"), from }.write(&mut writer);
    messages.iter().for_each(|message| swim::encode(message, &mut writer));
    bytes
}

/// The id of an agent.
pub(crate) fn id_of(agent: &Agent) -> Id {
    agent.json(&["info"])["id"].as_str().expect("an agent has an id").parse().expect("it is one")
}

/// How many protocol periods an agent has begun: it probes once in each.
pub(crate) fn periods(agent: &Agent) -> u64 {
    counter(agent, "annulus_members_probes_total").unwrap_or_default()
}

/// Waits until each of these agents has had so many protocol periods more; calls `each` meanwhile.
pub(crate) fn pass_periods(agents: &[&Agent], count: u64, mut each: impl FnMut()) {
    let until: Vec<u64> = agents.iter().map(|agent| periods(agent) + count).collect();
    wait_until("some periods pass", || {
        each();
        agents.iter().zip(&until).all(|(agent, until)| periods(agent) >= *until).then_some(())
    });
}
