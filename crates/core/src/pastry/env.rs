//! The environment of all parts: the configuration, the own contact, randomness, counters.

use super::config::Config;
use super::contact::{Contact, Generation};
use super::counters::Counters;
use super::message::{MessageId, RingTag};
use crate::rng::{Rng, Seed};
use crate::time::Instant;

/// The environment of all parts of one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Env {
    config: Config,
    own: Contact,
    ring: RingTag,
    rng: Rng,
    /// When the node ends at the latest, once it stops.
    stop_at: Option<Instant>,
    counters: Counters,
}

impl Env {
    pub(super) fn new(config: Config, seed: Seed) -> Self {
        let addr = config.advertise.unwrap_or(config.bind);
        Self {
            own: Contact { id: config.id, addr, generation: Generation(0) },
            ring: RingTag::new(&config.ring),
            rng: Rng::new(seed),
            stop_at: None,
            counters: Counters::default(),
            config,
        }
    }

    pub(super) fn set_own(&mut self, own: Contact) {
        self.own = own;
    }

    /// Begins to stop; the node ends at `at` at the latest.
    pub(super) fn stop(&mut self, at: Instant) {
        self.stop_at = Some(at);
    }

    pub(super) fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The counters, to increment.
    pub(super) fn count(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// A number for a message whose reply is not awaited.
    pub(super) fn next_message_id(&mut self) -> MessageId {
        MessageId(self.rng.next_u128())
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn own(&self) -> Contact {
        self.own
    }

    pub(super) fn ring(&self) -> RingTag {
        self.ring
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    /// When the node ends at the latest.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        self.stop_at
    }
}
