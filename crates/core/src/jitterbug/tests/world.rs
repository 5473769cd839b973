//! A few nodes on the test network, by the last byte of their address. Every packet takes a tenth of a millisecond.

use std::collections::BTreeMap;

use super::*;
use crate::contract::Network;
use crate::machine::Machine;

type Node = Jitterbug<Ledger>;

pub(super) struct World {
    network: Network<Node>,
    /// The place of each node in the network.
    places: BTreeMap<u8, usize>,
}

impl World {
    pub(super) fn new() -> Self {
        let mut network = Network::default();
        network.latency(|_, _| MILLI / 10);
        Self { network, places: BTreeMap::new() }
    }

    /// Adds nodes `1..=count` with this configuration and starts them.
    pub(super) fn of(count: u8, config: &Config) -> Self {
        let mut world = Self::new();
        (1..=count).for_each(|last| world.add(last, config));
        world
    }

    /// Adds a node and starts it.
    pub(super) fn add(&mut self, last: u8, config: &Config) {
        let own = Config { addr: ip(last), host_id: Some(host(10 + u32::from(last))), ..config.clone() };
        let place = self.network.add(move |_| Jitterbug::new(&own, Ledger::new(), [last; 32]).unwrap());
        self.places.insert(last, place);
    }

    /// Starts a node again, with its disk.
    pub(super) fn start(&mut self, last: u8) {
        self.network.start(self.places[&last]);
    }

    /// The process of a node ends; its kernel resets its streams.
    pub(super) fn kill(&mut self, last: u8) {
        self.network.crash(self.places[&last], false);
    }

    pub(super) fn cut(&mut self, one: &[u8], other: &[u8]) {
        let [one, other] = [one, other].map(|nodes| nodes.iter().map(|last| self.places[last]));
        self.network.cut(&one.collect::<Vec<_>>(), &other.collect::<Vec<_>>());
    }

    pub(super) fn heal(&mut self) {
        self.network.heal();
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.network.run(by);
    }

    /// Lets time pass until `done`, at most for `most`.
    pub(super) fn until(&mut self, most: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.network.time().mono;
        while !done(self) {
            let passed = self.network.time().mono.since(start);
            assert!(passed < most, "not within {most:?}: {}", self.picture());
            self.advance(5 * MILLI);
        }
        self.network.time().mono.since(start)
    }

    pub(super) fn command(&mut self, last: u8, command: <Node as Machine>::Command) {
        self.network.command(self.places[&last], command);
    }

    pub(super) fn node(&self, last: u8) -> &Node {
        &self.network.nodes[self.places[&last]].machine
    }

    /// The nodes that run.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (u8, &Node)> {
        let up = self.places.iter().filter(|(_, place)| self.network.is_up(**place));
        up.map(|(last, place)| (*last, &self.network.nodes[*place].machine))
    }

    pub(super) fn machines(&self) -> impl Iterator<Item = &Node> {
        self.nodes().map(|(_, node)| node)
    }

    pub(super) fn leaders(&self) -> Vec<u8> {
        let leads = |(last, node): (u8, &Node)| (node.state_name() == StateName::Leader).then_some(last);
        self.nodes().filter_map(leads).collect()
    }

    /// How many events of a node are like this.
    pub(super) fn told(&self, last: u8, found: impl Fn(&Event) -> bool) -> usize {
        self.network.nodes[self.places[&last]].events.iter().filter(|event| found(event)).count()
    }

    /// Takes the events of all nodes.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.network.nodes.iter_mut().flat_map(|node| core::mem::take(&mut node.events)).collect()
    }

    pub(super) fn picture(&self) -> String {
        let one = |(last, node): (u8, &Node)| {
            format!("{last}: {:?} {} of {}", node.state_name(), node.token_id(), node.list().len())
        };
        self.nodes().map(one).collect::<Vec<_>>().join(", ")
    }
}
