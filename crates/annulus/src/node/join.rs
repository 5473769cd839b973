//! Joining: which services are in their group, and why one is not.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::node::{Command, Node, PartCommand, PartEvent};
use annulus_core::{pastry, swim};
use annulus_net::{Events, Handle};
use tokio::sync::watch;

use crate::services;

/// The interval between two look-ups of host names that did not lead to a member.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// The reason why a node is not in its group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No address of the join list answers.
    #[error("no seed answers: {}: check that a node of the same ring runs there", list(.tried))]
    NoSeedAnswers {
        /// The addresses and host names that were tried.
        tried: Vec<String>,
    },
    /// The nodes that answer are of another ring.
    #[error(
        "the node at {at} is of another ring: give both the same ring name, or join through another node"
    )]
    WrongRing {
        /// The address of the seed.
        at: SocketAddr,
    },
    /// Another node uses the id of this one.
    #[error(
        "another node at {at} uses the id of this one: its data directory is a copy; give one of the two an empty one"
    )]
    IdTaken {
        /// Its address, if it is known.
        at: String,
    },
    /// Another member has the name of this node. Both run, but the name identifies neither of them.
    #[error("the member at {at} has the name {name:?} too: give one of the two another name")]
    NameTaken {
        /// The name.
        name: String,
        /// The address of the other member.
        at: SocketAddr,
    },
    /// `route` found no node of its ring in time.
    #[error(
        "`route` has not joined its ring after {tries} tries: check that a member of the same ring runs it"
    )]
    NoRing {
        /// The number of tries.
        tries: u32,
    },
    /// The time was over before anything was certain.
    #[error("the node has not joined in time: wait longer, or check that its seeds can be reached")]
    TimedOut,
    /// The node has ended.
    #[error("the node has ended: start it again")]
    Stopped,
}

fn list(tried: &[String]) -> String {
    tried.join(", ")
}

/// The progress of a node's joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Whether a member answered.
    is_member: bool,
    /// Whether `route` is in its ring.
    is_in_ring: bool,
    /// Seeds that did not answer, with the number of tries.
    silent: BTreeMap<SocketAddr, u32>,
    /// A seed of another ring.
    wrong_ring: Option<SocketAddr>,
    /// The address of a node with the same id.
    id_taken: Option<String>,
    /// A member with the same name.
    name_taken: Option<(String, SocketAddr)>,
    /// The tries of `route` that failed.
    ring_tries: u32,
}

/// Watches the joins of a node.
#[derive(Debug)]
pub(super) struct JoinWatch {
    progress: watch::Receiver<Progress>,
    needs_member: bool,
    needs_ring: bool,
    tried: Vec<String>,
}

impl JoinWatch {
    /// Watches the events of a node that does not run yet, and looks up the host names of its join list until a member
    /// answers.
    pub(super) fn start(handle: &Handle<Node>, seeds: &[SocketAddr], hosts: Vec<String>) -> Self {
        let (progress, seen) = watch::channel(Progress::default());
        let bound = handle.bound();
        let needs_member = !(seeds.is_empty() && hosts.is_empty());
        let needs_ring = !bound.of(services::ROUTE).listeners.is_empty();
        let tried = seeds.iter().map(ToString::to_string).chain(hosts.iter().cloned()).collect();
        tokio::spawn(observe(join_events(handle), progress));
        if !hosts.is_empty() {
            tokio::spawn(look_up(handle.clone(), hosts, seen.clone()));
        }
        Self { progress: seen, needs_member, needs_ring, tried }
    }

    /// Waits until everything that this node runs is in its group.
    pub(super) async fn joined(&self, handle: &Handle<Node>, within: Duration) -> Result<(), JoinError> {
        let mut progress = self.progress.clone();
        let is_decided = |progress: &Progress| {
            let is_in =
                (progress.is_member || !self.needs_member) && (progress.is_in_ring || !self.needs_ring);
            is_in || progress.id_taken.is_some()
        };
        let decided = tokio::time::timeout(within, progress.wait_for(is_decided));
        let last = tokio::select! {
            decided = decided => match decided {
                Ok(Ok(progress)) => progress.clone(),
                Ok(Err(_)) => return Err(JoinError::Stopped),
                Err(_) => self.progress.borrow().clone(),
            },
            _ = handle.ended() => return Err(JoinError::Stopped),
        };
        self.verdict(&last)
    }

    fn verdict(&self, progress: &Progress) -> Result<(), JoinError> {
        if let Some(at) = &progress.id_taken {
            return Err(JoinError::IdTaken { at: at.clone() });
        }
        if self.needs_member && !progress.is_member {
            if let Some(at) = progress.wrong_ring {
                return Err(JoinError::WrongRing { at });
            }
            return Err(if progress.silent.is_empty() && self.tried.is_empty() {
                JoinError::TimedOut
            } else {
                JoinError::NoSeedAnswers { tried: self.tried.clone() }
            });
        }
        if self.needs_ring && !progress.is_in_ring {
            return Err(JoinError::NoRing { tries: progress.ring_tries });
        }
        if let Some((name, at)) = progress.name_taken.clone() {
            return Err(JoinError::NameTaken { name, at });
        }
        Ok(())
    }
}

/// Subscribes to the events that concern joins.
fn join_events(handle: &Handle<Node>) -> Events<Node> {
    handle.events_where(|event| {
        matches!(
            event.event,
            PartEvent::Members(
                swim::Event::Joined { .. }
                    | swim::Event::JoinFailed { .. }
                    | swim::Event::WrongRing { .. }
                    | swim::Event::IdConflict { .. }
                    | swim::Event::NameConflict { .. }
            ) | PartEvent::Route(
                pastry::Event::Joined { .. } | pastry::Event::JoinFailed { .. } | pastry::Event::IdTaken
            )
        )
    })
}

/// Notes the events that concern joins, until the node ends.
async fn observe(mut events: Events<Node>, progress: watch::Sender<Progress>) {
    while let Some(event) = events.next().await {
        progress.send_modify(|progress| match &event.event {
            PartEvent::Members(swim::Event::Joined { .. }) => progress.is_member = true,
            PartEvent::Members(swim::Event::JoinFailed { addr }) => {
                *progress.silent.entry(*addr).or_default() += 1;
            }
            PartEvent::Members(swim::Event::WrongRing { addr }) => progress.wrong_ring = Some(*addr),
            PartEvent::Members(swim::Event::IdConflict { addr }) => {
                progress.id_taken = Some(addr.to_string());
            }
            PartEvent::Members(swim::Event::NameConflict { name, addr, .. }) => {
                progress.name_taken = Some((name.clone(), *addr));
            }
            PartEvent::Route(pastry::Event::Joined { .. }) => progress.is_in_ring = true,
            PartEvent::Route(pastry::Event::JoinFailed { tries }) => progress.ring_tries = *tries,
            PartEvent::Route(pastry::Event::IdTaken) => progress.id_taken = Some("an unknown address".into()),
            _ => {}
        });
    }
}

/// Resolves host names and joins through their addresses, until a member answers.
async fn look_up(handle: Handle<Node>, hosts: Vec<String>, mut progress: watch::Receiver<Progress>) {
    loop {
        let mut addrs = Vec::new();
        for host in &hosts {
            match tokio::net::lookup_host(host).await {
                Ok(found) => addrs.extend(found),
                Err(error) => tracing::warn!(host, %error, "cannot look up a seed; it is tried again"),
            }
        }
        if !addrs.is_empty() {
            let command = PartCommand::Members(swim::Command::Join { addrs });
            if handle.command(Command { service: services::MEMBERS, command }).await.is_err() {
                return;
            }
        }
        tokio::select! {
            joined = progress.wait_for(|progress| progress.is_member) => {
                let _ = joined;
                return;
            }
            () = tokio::time::sleep(LOOKUP_INTERVAL) => {}
            _ = handle.ended() => return,
        }
    }
}
