//! The last states of the voters, as they reported them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::message::{Group, State};
use super::record::Record;
use crate::time::Instant;

/// The report of one voter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    at: Instant,
    state: Option<State>,
    /// Whether the state answers a Read of this process. Any other one may be older than this process.
    is_fresh: bool,
}

/// The reports of all voters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard(BTreeMap<SocketAddr, Report>);

impl Heard {
    /// Notes that a voter answered.
    pub(super) fn note(&mut self, now: Instant, from: SocketAddr) {
        let report = self.0.entry(from).or_insert(Report { at: now, state: None, is_fresh: false });
        report.at = now;
    }

    /// Takes the state of a voter.
    pub(super) fn take(&mut self, now: Instant, from: SocketAddr, state: State, is_fresh: bool) {
        self.0.insert(from, Report { at: now, state: Some(state), is_fresh });
    }

    /// When a voter last answered.
    pub(super) fn at(&self, addr: SocketAddr) -> Option<Instant> {
        self.0.get(&addr).map(|report| report.at)
    }

    /// The last state of a voter.
    pub(super) fn state(&self, addr: SocketAddr) -> Option<&State> {
        self.0.get(&addr)?.state.as_ref()
    }

    /// All states.
    pub(super) fn states(&self) -> impl Iterator<Item = (SocketAddr, &State)> {
        self.0.iter().filter_map(|(addr, report)| Some((*addr, report.state.as_ref()?)))
    }

    /// The records of all states.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.states().filter_map(|(_, state)| state.record.as_ref())
    }

    /// The states of voters whose record is founded and names this voter.
    pub(super) fn founded_with(
        &self,
        own: SocketAddr,
    ) -> impl Iterator<Item = (SocketAddr, &State, &Record)> {
        self.states().filter_map(move |(addr, state)| {
            let record = state.record.as_ref()?;
            (record.founded && record.place_of(own).is_some()).then_some((addr, state, record))
        })
    }

    /// Whether this group was not founded yet when this process had started, by the word of its founder.
    pub(super) fn is_founding(&self, founder: SocketAddr, group: Group) -> bool {
        let report = self.0.get(&founder).filter(|report| report.is_fresh);
        let record = report.and_then(|report| report.state.as_ref()?.record.as_ref());
        record.is_some_and(|record| record.group == group && !record.founded)
    }
}
