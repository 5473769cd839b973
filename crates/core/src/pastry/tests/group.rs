//! A few nodes on the test network. Faults and checkers are in the simulator.

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::contract::{Network, Node};
use crate::pastry::{AppName, Application, Config, Passing, Pastry, Verdict};
use crate::ring::Side;
use crate::{Id, Rng};

/// Accepts every message that wants no answer.
pub(super) struct Accepts;

impl Application for Accepts {
    fn deliver(&self, arrived: &Passing<'_>) -> Option<Verdict> {
        (!arrived.wants_answer).then_some(Verdict::Accept)
    }
}

/// The network, and a seed for ids and nodes.
pub(super) struct Group {
    network: Network<Pastry>,
    seed: u64,
}

impl Deref for Group {
    type Target = Network<Pastry>;

    fn deref(&self) -> &Network<Pastry> {
        &self.network
    }
}

impl DerefMut for Group {
    fn deref_mut(&mut self) -> &mut Network<Pastry> {
        &mut self.network
    }
}

pub(super) fn addr(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (index / 250) as u8, (index % 250) as u8 + 1], 22001))
}

impl Group {
    pub(super) fn new(seed: u64) -> Self {
        Self { network: Network::default(), seed }
    }

    /// A ring of `count` nodes with random ids, joined one after the other.
    pub(super) fn ring(count: usize, seed: u64, config: &Config) -> Self {
        let mut group = Self::new(seed);
        let mut rng = Rng::from_number(seed, 1);
        for _ in 0..count {
            let id = Id::new(rng.next_u128());
            let index = group.start_joining(id, config);
            group.run_until_active(index);
        }
        group.run(Duration::from_secs(5));
        group
    }

    /// Starts a node that joins through a random earlier one.
    pub(super) fn start_joining(&mut self, id: Id, config: &Config) -> usize {
        let mut rng = Rng::from_number(self.seed, 1000 + self.nodes.len() as u64);
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.is_up(at)).collect();
        let seeds = rng.pick(&alive).map(|&at| addr(at)).into_iter().collect();
        self.start(Config { id, seeds, ..config.clone() })
    }

    /// Starts a node at its own address, with everything else as configured.
    pub(super) fn start(&mut self, config: Config) -> usize {
        self.start_machine(move |bind, seed| {
            let pastry = Pastry::new(Config { bind, ..config.clone() }, seed).unwrap();
            pastry.with_application(AppName::default(), Arc::new(Accepts))
        })
    }

    pub(super) fn start_machine(&mut self, make: impl Fn(SocketAddr, [u8; 32]) -> Pastry + 'static) -> usize {
        let index = self.nodes.len();
        let seed = Rng::from_number(self.seed, 2000 + index as u64).seed();
        self.add(move |_| make(addr(index), seed))
    }

    pub(super) fn run_until_active(&mut self, index: usize) {
        self.run_until(Duration::from_secs(20), |network| network.nodes[index].machine.is_active());
    }

    /// The live node closest to a key.
    pub(super) fn owner(&self, key: Id) -> Id {
        key.closest(self.alive().map(|node| node.machine.own().id)).unwrap()
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = &Node<Pastry>> {
        (0..self.nodes.len()).filter(|&at| self.is_up(at)).map(|at| &self.nodes[at])
    }

    /// Checks that every live node has exactly the leaf set it should have.
    pub(super) fn assert_leaf_sets_are_exact(&self) {
        let mut ids: Vec<Id> = self.alive().map(|node| node.machine.own().id).collect();
        ids.sort_unstable();
        for node in self.alive() {
            let own = node.machine.own().id;
            let leaf_set = node.machine.leaf_set();
            let at = ids.binary_search(&own).unwrap();
            let side_max = node.machine.lower.env.config().side_max().min(ids.len() - 1);
            let ahead: Vec<Id> = (1..=side_max).map(|n| ids[(at + n) % ids.len()]).collect();
            let behind: Vec<Id> = (1..=side_max).map(|n| ids[(at + ids.len() - n) % ids.len()]).collect();
            assert_eq!(leaf_set.side(Side::Clockwise), ahead, "clockwise of {own:?}");
            assert_eq!(leaf_set.side(Side::CounterClockwise), behind, "counter-clockwise of {own:?}");
        }
    }
}
