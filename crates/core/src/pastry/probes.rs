//! The probes: questions "are you there?" under way, and the candidates that wait to be asked.
//!
//! A probe goes out in a datagram; if that is not answered it goes over a stream, which also works where datagrams do
//! not get through; if that is not answered either, the node is dead.
//!
//! Nodes with a seat, whom we doubt or have not measured, and nodes that others named have a queue and a number of probes
//! under way of their own: whoever names many nodes, or invents them, delays no verdict of ours.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::contact::Contact;
use crate::id::Id;
use crate::time::Instant;

/// How a probe travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Datagram,
    /// Over a stream; whether that stood when the probe was sent.
    Stream {
        connected: bool,
    },
}

/// Why a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// Others named it.
    Hearsay,
    /// It has, or had, a seat with us.
    Own,
    /// The same, and messages go around it until it is known whether it lives: it is asked first.
    Suspicion,
}

/// A question under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) contact: Contact,
    pub(super) via: Via,
    /// Whether the node may get a leaf seat: a join waits for these.
    pub(super) leaf: bool,
    ground: Ground,
    sent: Instant,
    first_sent: Instant,
    due: Instant,
}

impl Probe {
    /// The round-trip time that an answer now would mean.
    pub(super) fn sample(&self, now: Instant, by_stream: bool) -> Duration {
        match self.via {
            Via::Stream { connected } if by_stream => {
                // A stream that had to be opened first cost a round trip more.
                let elapsed = now.since(self.sent);
                if connected { elapsed } else { elapsed / 2 }
            }
            _ => now.since(self.first_sent),
        }
    }
}

/// What to do about a probe that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Ask once more, over a stream.
    Again { nonce: u64, contact: Contact },
    /// It does not answer.
    Dead { contact: Contact },
}

/// All probes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probes {
    waiting: BTreeMap<u64, Probe>,
    due: BTreeSet<(Instant, u64)>,
    /// Whom others named, those that may get a leaf seat first.
    hearsay: VecDeque<(Contact, bool)>,
    /// Those of our own, the suspected first.
    own: VecDeque<(Contact, bool, Ground)>,
    /// How many of our own are being asked.
    own_waiting: usize,
    /// Every node that waits or is being asked, and whether because others named it.
    pending: BTreeMap<Id, bool>,
    /// How many of those may get a leaf seat.
    leaf_pending: usize,
    next: u64,
    probes_max: usize,
    candidates_max: usize,
}

impl Probes {
    /// The numbers begin at `first`, a random one: nobody guesses them.
    pub(super) fn new(first: u64, probes_max: usize, candidates_max: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            hearsay: VecDeque::new(),
            own: VecDeque::new(),
            own_waiting: 0,
            pending: BTreeMap::new(),
            leaf_pending: 0,
            next: first,
            probes_max,
            candidates_max,
        }
    }

    /// Has a node asked, if it isn't being asked already; false if somebody is not asked because too many wait. `leaf` is
    /// whether it may get a leaf seat.
    pub(super) fn want(&mut self, contact: Contact, leaf: bool, ground: Ground) -> bool {
        let is_hearsay = ground == Ground::Hearsay;
        match self.pending.get(&contact.id) {
            // What others say of it may be about another address: it does not stand in for our own question.
            Some(true) if !is_hearsay => self.forget(contact.id),
            Some(false) if ground == Ground::Suspicion => {
                self.hasten(contact.id);
                return true;
            }
            Some(_) => return true,
            None => {}
        }
        if is_hearsay && self.hearsay.len() >= self.candidates_max {
            return false;
        }
        self.pending.insert(contact.id, is_hearsay);
        self.leaf_pending += usize::from(leaf);
        match ground {
            Ground::Hearsay if leaf => self.hearsay.push_front((contact, leaf)),
            Ground::Hearsay => self.hearsay.push_back((contact, leaf)),
            Ground::Own => self.own.push_back((contact, leaf, ground)),
            Ground::Suspicion => self.own.push_front((contact, leaf, ground)),
        }
        let shed = if self.own.len() > self.candidates_max { self.own.pop_back() } else { None };
        if let Some((contact, leaf, _)) = shed {
            self.pending.remove(&contact.id);
            self.leaf_pending -= usize::from(leaf);
        }
        shed.is_none()
    }

    /// A node that waits for its turn is suspected by now.
    fn hasten(&mut self, id: Id) {
        let at = self.own.iter().position(|(contact, _, ground)| contact.id == id && *ground == Ground::Own);
        if let Some((contact, leaf, _)) = at.and_then(|at| self.own.remove(at)) {
            self.own.push_front((contact, leaf, Ground::Suspicion));
        }
    }

    /// Whether there is somebody to ask now.
    pub(super) fn has_next(&self) -> bool {
        self.has_next_own() || self.has_next_hearsay()
    }

    fn has_next_own(&self) -> bool {
        !self.own.is_empty() && self.own_waiting < self.probes_max
    }

    fn has_next_hearsay(&self) -> bool {
        !self.hearsay.is_empty() && self.waiting.len() - self.own_waiting < self.probes_max
    }

    /// The next node to ask, with the number to ask under.
    pub(super) fn next(&mut self, now: Instant, timeout: Duration) -> Option<(u64, Contact)> {
        let (contact, leaf, ground) = if self.has_next_own() {
            self.own.pop_front()?
        } else if self.has_next_hearsay() {
            self.hearsay.pop_front().map(|(contact, leaf)| (contact, leaf, Ground::Hearsay))?
        } else {
            return None;
        };
        self.own_waiting += usize::from(ground != Ground::Hearsay);
        self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let (nonce, due) = (self.next, now + timeout);
        let probe = Probe { contact, via: Via::Datagram, leaf, ground, sent: now, first_sent: now, due };
        self.waiting.insert(nonce, probe);
        self.due.insert((due, nonce));
        Some((nonce, contact))
    }

    /// A probe was sent again, over a stream.
    pub(super) fn again(&mut self, nonce: u64, now: Instant, timeout: Duration, connected: bool) {
        if let Some(probe) = self.waiting.get_mut(&nonce) {
            probe.via = Via::Stream { connected };
            probe.sent = now;
            probe.due = now + timeout;
            self.due.insert((probe.due, nonce));
        }
    }

    /// The probe under this number.
    pub(super) fn get(&self, nonce: u64) -> Option<&Probe> {
        self.waiting.get(&nonce)
    }

    /// Ends the probe under this number.
    pub(super) fn take(&mut self, nonce: u64) -> Option<Probe> {
        let probe = self.waiting.remove(&nonce)?;
        self.due.remove(&(probe.due, nonce));
        self.pending.remove(&probe.contact.id);
        self.leaf_pending -= usize::from(probe.leaf);
        self.own_waiting -= usize::from(probe.ground != Ground::Hearsay);
        Some(probe)
    }

    /// What ran out. A probe to be sent [again](Probes::again) has no deadline until it is.
    pub(super) fn expired(&mut self, now: Instant) -> Option<Expired> {
        let &(due, nonce) = self.due.first()?;
        if due > now {
            return None;
        }
        self.due.pop_first();
        let probe = self.waiting.get(&nonce)?;
        let contact = probe.contact;
        if probe.via == Via::Datagram {
            return Some(Expired::Again { nonce, contact });
        }
        self.take(nonce);
        Some(Expired::Dead { contact })
    }

    /// Ends what concerns a node that turned out dead, or alive, by other means.
    pub(super) fn forget(&mut self, id: Id) {
        if self.pending.remove(&id).is_none() {
            return;
        }
        let leaf_pending = &mut self.leaf_pending;
        let mut keep = |contact: &Contact, leaf: bool| {
            let keep = contact.id != id;
            *leaf_pending -= usize::from(!keep && leaf);
            keep
        };
        self.hearsay.retain(|(contact, leaf)| keep(contact, *leaf));
        self.own.retain(|(contact, leaf, _)| keep(contact, *leaf));
        let nonce = self.waiting.iter().find(|(_, probe)| probe.contact.id == id).map(|(nonce, _)| *nonce);
        if let Some(nonce) = nonce {
            self.take(nonce);
        }
    }

    /// Whether the node is being asked, or waits to be.
    pub(super) fn is_pending(&self, id: Id) -> bool {
        self.pending.contains_key(&id)
    }

    /// How many candidates for the leaf set have not answered yet.
    pub(super) fn leaf_pending(&self) -> usize {
        self.leaf_pending
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pastry::contact::Incarnation;

    const SECOND: Duration = Duration::from_secs(1);

    fn contact(id: u128) -> Contact {
        Contact { id: Id::new(id), addr: ([127, 0, 0, 1], 1).into(), incarnation: Incarnation(1) }
    }

    #[test]
    fn a_node_is_asked_by_datagram_then_by_stream_then_dead() {
        let mut probes = Probes::new(7, 8, 8);
        let start = Instant::from_micros(1_000_000);
        assert!(
            probes.want(contact(5), true, Ground::Hearsay) && probes.want(contact(5), true, Ground::Hearsay),
            "once is enough"
        );
        let (nonce, asked) = probes.next(start, SECOND).unwrap();
        assert_eq!((asked, probes.next(start, SECOND)), (contact(5), None));
        assert_eq!(probes.expired(start), None);
        let later = start + SECOND;
        assert_eq!(probes.expired(later), Some(Expired::Again { nonce, contact: contact(5) }));
        probes.again(nonce, later, SECOND, false);
        assert_eq!((probes.expired(later), probes.leaf_pending()), (None, 1));
        assert_eq!(probes.expired(later + SECOND), Some(Expired::Dead { contact: contact(5) }));
        assert_eq!((probes.leaf_pending(), probes.is_idle(), probes.deadline()), (0, true, None));
    }

    #[test]
    fn leaf_candidates_go_first_and_both_limits_hold() {
        let mut probes = Probes::new(7, 2, 3);
        assert!(
            probes.want(contact(1), false, Ground::Hearsay)
                && probes.want(contact(2), false, Ground::Hearsay)
                && probes.want(contact(3), true, Ground::Hearsay)
        );
        assert!(!probes.want(contact(4), true, Ground::Hearsay), "the fourth does not wait");
        let asked: Vec<u128> = core::iter::from_fn(|| probes.next(Instant::ZERO, SECOND))
            .map(|(_, contact)| contact.id.number())
            .collect();
        assert_eq!(asked, [3, 1], "two at a time");
        probes.forget(Id::new(3));
        assert_eq!(probes.leaf_pending(), 0);
        assert!(probes.next(Instant::ZERO, SECOND).is_some());
    }

    #[test]
    fn p_5_the_time_of_a_request_is_what_it_took() {
        let mut probes = Probes::new(7, 2, 3);
        probes.want(contact(1), false, Ground::Hearsay);
        let (nonce, _) = probes.next(Instant::ZERO, SECOND).unwrap();
        let at = Instant::from_micros(300);
        assert_eq!(probes.get(nonce).unwrap().sample(at, false), Duration::from_micros(300));
        probes.again(nonce, Instant::from_micros(200), SECOND, false);
        assert_eq!(probes.get(nonce).unwrap().sample(at, true), Duration::from_micros(50));
    }

    #[test]
    fn what_others_name_does_not_delay_what_we_doubt() {
        let mut probes = Probes::new(7, 2, 3);
        for invented in 100..200 {
            probes.want(contact(invented), true, Ground::Hearsay);
        }
        assert_eq!(core::iter::from_fn(|| probes.next(Instant::ZERO, SECOND)).count(), 2);
        assert!(probes.want(contact(1), false, Ground::Own) && probes.want(contact(2), false, Ground::Own));
        assert!(
            probes.want(contact(2), false, Ground::Suspicion),
            "it was to be measured, and is in doubt now"
        );
        let asked = probes.next(Instant::ZERO, SECOND).map(|(_, contact)| contact.id.number());
        assert_eq!(asked, Some(2), "though as many are being asked as may be of those invented");
        // Somebody says that the node lives elsewhere: that is another question.
        let elsewhere = Contact { addr: ([127, 0, 0, 9], 1).into(), ..contact(5) };
        let mut probes = Probes::new(7, 2, 3);
        assert!(probes.want(elsewhere, true, Ground::Hearsay));
        assert!(probes.want(contact(5), true, Ground::Suspicion));
        assert_eq!(probes.next(Instant::ZERO, SECOND).map(|(_, contact)| contact), Some(contact(5)));
        assert_eq!((probes.next(Instant::ZERO, SECOND), probes.leaf_pending()), (None, 1));
    }

    #[test]
    fn our_own_have_a_limit_too_and_the_suspected_stay() {
        let mut probes = Probes::new(7, 2, 2);
        assert!(
            probes.want(contact(1), true, Ground::Own) && probes.want(contact(2), false, Ground::Suspicion)
        );
        assert!(!probes.want(contact(3), false, Ground::Suspicion), "one is not asked");
        assert!(!probes.is_pending(Id::new(1)) && probes.leaf_pending() == 0);
        assert!(probes.is_pending(Id::new(2)) && probes.is_pending(Id::new(3)));
        for id in [2, 3] {
            probes.forget(Id::new(id));
        }
        assert!(probes.is_idle() && !probes.has_next());
    }
}
