//! The environment of a node: settings, identity, randomness, numbers, counters. Every other part may use it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::Config;
use super::counters::Counters;
use super::message::{HostId, NodeEntry};
use crate::rng::Rng;
use crate::tag::{OpId, StreamId};

/// The environment of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Env {
    config: Config,
    rng: Rng,
    host_id: HostId,
    tcp_port: u16,
    streams: u64,
    ops: u64,
    asks: u64,
    counters: Counters,
    /// The sources of tokens with data that the application cannot read, and their number; shown like counters.
    refused_tokens: BTreeMap<IpAddr, u64>,
}

/// The most sources of refused tokens that are counted separately.
const REFUSED_SOURCES_MAX: usize = 16;

impl Env {
    pub(super) fn new(config: &Config, rng: Rng) -> Self {
        Self {
            config: config.clone(),
            rng,
            host_id: HostId::new(0).expect("0 is a host id"),
            tcp_port: config.tcp_port,
            streams: 0,
            ops: 0,
            asks: 0,
            counters: Counters::default(),
            refused_tokens: BTreeMap::new(),
        }
    }

    pub(super) fn identify(&mut self, host_id: HostId) {
        self.host_id = host_id;
    }

    pub(super) fn bound(&mut self, tcp_port: u16) {
        self.tcp_port = tcp_port;
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The counters, to increment.
    pub(super) fn count(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Counts a token whose data the application cannot read. Returns whether to report it: the first of a source, the
    /// second, the fourth and so on.
    pub(super) fn refused_token(&mut self, from: IpAddr) -> bool {
        if self.refused_tokens.len() >= REFUSED_SOURCES_MAX && !self.refused_tokens.contains_key(&from) {
            return false;
        }
        let count = self.refused_tokens.entry(from).or_default();
        *count += 1;
        count.is_power_of_two()
    }

    /// Resets all counters.
    pub(super) fn reset_counters(&mut self) {
        self.counters = Counters::default();
        self.refused_tokens.clear();
    }

    pub(super) fn next_stream(&mut self) -> StreamId {
        self.streams += 1;
        StreamId::opened(self.streams)
    }

    pub(super) fn next_op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }

    /// The number of the next request to an application outside of the machine.
    pub(super) fn next_ask(&mut self) -> u64 {
        self.asks += 1;
        self.asks
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn host_id(&self) -> HostId {
        self.host_id
    }

    pub(super) fn tcp_port(&self) -> u16 {
        self.tcp_port
    }

    /// The entry of this node in a list.
    pub(super) fn own_entry(&self) -> NodeEntry {
        NodeEntry::new(self.host_id, self.config.addr.to_canonical(), self.tcp_port)
    }

    /// The sources of refused tokens, and the number of each.
    pub(super) fn refused_tokens(&self) -> impl Iterator<Item = (IpAddr, u64)> + '_ {
        self.refused_tokens.iter().map(|(from, count)| (*from, *count))
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }
}
