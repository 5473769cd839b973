//! Observations of a group from outside: which nodes were declared dead and when, and the probes.

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::swim::{self, Swim};
use annulus_core::{Id, RequestId};

use super::id_of;
use super::topology::Ways;
use crate::host::HostId;
use crate::observer::{Datagram, DatagramFate, Observer, Verdict};
use crate::sim::Sim;

/// The detection of one crash.
pub(super) struct Death {
    host: HostId,
    at: Duration,
    first_suspect: Option<f64>,
    pub(super) first_dead: Option<f64>,
    last_dead: f64,
    know: usize,
    survivors: usize,
    /// When each survivor near it knew, and each far from it.
    pub(super) near: Vec<f64>,
    pub(super) far: Vec<f64>,
}

/// Watches all nodes.
pub(super) struct Watch {
    pub(super) deaths: BTreeMap<Id, Death>,
    pub(super) false_suspects: u64,
    pub(super) false_dead: u64,
    pub(super) broadcasts_refused: u64,
    probes: Probes,
    ways: Option<Ways>,
}

impl Watch {
    pub(super) fn new(nodes: u32, ways: Option<Ways>) -> Self {
        Self {
            ways,
            deaths: BTreeMap::new(),
            probes: Probes::new(nodes),
            false_suspects: 0,
            false_dead: 0,
            broadcasts_refused: 0,
        }
    }

    pub(super) fn crashed(&mut self, host: HostId, at: Duration, survivors: usize) {
        let death = Death {
            host,
            at,
            first_suspect: None,
            first_dead: None,
            last_dead: 0.0,
            know: 0,
            survivors,
            near: Vec::new(),
            far: Vec::new(),
        };
        self.deaths.insert(id_of(host), death);
    }

    pub(super) fn forget_counts(&mut self) {
        (self.false_suspects, self.false_dead) = (0, 0);
    }

    /// The bytes on short and on long paths so far, if nodes have places.
    pub(super) fn ways_bytes(&self) -> Option<(u64, u64)> {
        self.ways.as_ref().map(|ways| (ways.near_bytes, ways.far_bytes))
    }

    /// Aligned, a crash lies a moment before a period and a suspicion at the end of one: whole periods.
    pub(super) fn suspected(&self, interval: Duration, aligned: bool) -> Vec<f64> {
        let periods = self.deaths.values().filter_map(|death| death.first_suspect);
        periods
            .map(|seconds| seconds / interval.as_secs_f64())
            .map(|periods| if aligned { periods.floor() } else { periods })
            .collect()
    }

    pub(super) fn all_know(&self) -> Vec<f64> {
        let known = self.deaths.values().filter(|death| death.know >= death.survivors);
        known.map(|death| death.last_dead).collect()
    }

    /// The longest that a node let pass from one probe of a living member to the next, in periods.
    pub(super) fn unprobed_periods_max(&self, now: Duration, interval: Duration) -> u32 {
        self.probes.longest(now, &self.deaths, interval)
    }
}

impl Observer<Swim> for Watch {
    fn on_event(&mut self, sim: &Sim<Swim>, host: HostId, event: &swim::Event) -> Verdict {
        match event {
            swim::Event::MemberSuspected { id, by, .. } if *by == id_of(host) => {
                match self.deaths.get_mut(id) {
                    Some(death) => {
                        let after = sim.elapsed().saturating_sub(death.at).as_secs_f64();
                        death.first_suspect.get_or_insert(after);
                    }
                    None => self.false_suspects += 1,
                }
            }
            swim::Event::MemberDied { id, .. } => match self.deaths.get_mut(id) {
                Some(death) => {
                    let after = sim.elapsed().saturating_sub(death.at).as_secs_f64();
                    death.first_dead.get_or_insert(after);
                    death.know += 1;
                    death.last_dead = after;
                    if let Some(ways) = &self.ways {
                        let is_far = ways.is_far(sim, host, death.host);
                        (if is_far { &mut death.far } else { &mut death.near }).push(after);
                    }
                }
                None => self.false_dead += 1,
            },
            _ => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Swim>, _: HostId, _: RequestId, reply: &swim::Reply) -> Verdict {
        self.broadcasts_refused += u64::from(*reply == swim::Reply::Full);
        Ok(())
    }

    fn on_datagram(&mut self, sim: &Sim<Swim>, datagram: Datagram<'_>) -> DatagramFate {
        self.probes.see(sim.elapsed(), &datagram);
        self.ways.as_mut().map_or(DatagramFate::Pass, |ways| ways.see(sim, &datagram))
    }
}

/// The last probe between each pair of nodes, and the longest interval. An indirect probe counts like a direct one.
struct Probes {
    /// By prober and by target; empty if there are too many.
    last: Vec<Vec<Duration>>,
    longest: Duration,
    numbers: BTreeMap<Id, usize>,
}

/// Groups up to this size are watched probe by probe.
const WATCHED_MAX: u32 = 300;

impl Probes {
    fn new(nodes: u32) -> Self {
        let nodes = if nodes <= WATCHED_MAX { nodes as usize } else { 0 };
        let numbers = (0..nodes).map(|number| (id_of(HostId::new(number as u32)), number)).collect();
        Self { last: vec![vec![Duration::ZERO; nodes]; nodes], longest: Duration::ZERO, numbers }
    }

    fn see(&mut self, now: Duration, datagram: &Datagram<'_>) {
        let Some(of) = self.last.get_mut(datagram.host.index()) else { return };
        let compact = swim::Codec::to_compact(datagram.bytes);
        let Ok((_, messages)) = swim::Head::read(&compact) else { return };
        let ping = messages.flatten().find_map(|message| match message {
            swim::Message::Ping { to, .. } => Some(to),
            _ => None,
        });
        if let Some(target) = ping.and_then(|to| self.numbers.get(&to)) {
            self.longest = self.longest.max(now - of[*target]);
            of[*target] = now;
        }
    }

    /// The longest of all, up to now, in periods; crashed nodes are left out.
    fn longest(&self, now: Duration, deaths: &BTreeMap<Id, Death>, interval: Duration) -> u32 {
        let gone =
            |number: &usize| self.numbers.iter().any(|(id, at)| at == number && deaths.contains_key(id));
        let gone: Vec<usize> = (0..self.last.len()).filter(gone).collect();
        let mut longest = self.longest;
        for (prober, of) in self.last.iter().enumerate().filter(|(prober, _)| !gone.contains(prober)) {
            let targets = of.iter().enumerate().filter(|(to, _)| *to != prober && !gone.contains(to));
            longest = targets.map(|(_, last)| now - *last).fold(longest, Duration::max);
        }
        (longest.as_secs_f64() / interval.as_secs_f64()).round() as u32
    }
}
