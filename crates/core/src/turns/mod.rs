//! Exclusive turns: leases that a majority of declared voters grants.
//!
//! An *asker* wants a name, such as `billing`. It sends an `Ask` to all *voters*. Each voter grants at most one lease
//! of a name at a time. With grants of a majority the asker has the *turn*, and its number, the *fence*, is greater
//! than that of every earlier turn. `docs/spec/turns.md` has the clauses, numbered TU-n.
//!
//! # The files
//!
//! | file | part |
//! |---|---|
//! | `machine.rs`, `storing.rs` | the [`Machine`] implementation: matches, delegates, and applies the effects of the parts |
//! | `config.rs`, `message.rs`, `wire.rs`, `record.rs` | settings, messages, bytes, and the record of the group |
//! | `membership.rs` | the group: founding, reading the others, recovery of a lost disk, the wait after a start |
//! | `voter.rs`, `queue.rs` | leases, numbers and the durable bound; the queue of a name at this voter |
//! | `asker.rs`, `name.rs`, `attempt.rs` | the requests of this node, the grants that make a turn, and the expiry of a turn |
//! | `numbers.rs`, `releases.rs` | the numbers this node has seen, and the Releases it repeats |
//! | `keeping.rs` | the validity of a lease with its margin for clock drift; when a command under a turn gets TERM and KILL; used by the asker, the guard and the simulator |
//! | `disk.rs`, `effects.rs` | the operations under way, and the queue of effects that only the machine empties |
//!
//! # The messages
//!
//! | message | a voter | an asker |
//! |---|---|---|
//! | `Ask` | grants, or answers `held`, `behind`, `resting` | – |
//! | `Answer` | – | counts it if its nonce is under way |
//! | `Release` | ends the lease of that session, calls the first waiter, confirms | – |
//! | `Released` | – | stops repeating the Release to that voter |
//! | `Free` | – | sends an `Ask` at once, if it still wants the name |
//! | `Offer`, `Accepted` | establish the group | – |
//! | `Read`, `State` | answers with its record, bound and standing | learns the group and the floors |
//!
//! # Why turns are exclusive
//!
//! L is the length of a lease. Every clock runs within ±10 % of real time and keeps running while the computer is
//! suspended.
//!
//! 1. *One voter.* Its leases of one key do not overlap (TU-12). A lease lasts at least L/1.1 of real time after it
//!    was granted: only time and the Release of its own session end it. A crash forgets leases, but the voter
//!    *rests*: it grants nothing for L after a start (TU-19). After the loss of its disk it rests as well (TU-21).
//! 2. *One holder.* An Ask that was sent at t gives validity until t + 0.8 L by the holder's clock. That is at most t +
//!    0.8 L/0.9 = t + 0.889 L. Each voter granted it after t, so its lease lasts at least until t + L/1.1 = t + 0.909
//!    L. While a turn is valid, its leases are therefore in force at a majority of voters.
//! 3. *Two holders.* Two valid turns of one key would need two majorities at one moment. They share a voter, which would have
//!    two leases of one key in force: a contradiction to 1.
//! 4. *Fences.* The majorities of the first Asks of two turns share a voter. It granted one after the other, and it grants
//!    first Asks with rising numbers only. The bound keeps that across crashes (TU-11), the floor that it reads after
//!    its rest across lost disks (TU-21). By 3 the order of the numbers is the order of the turns. A renewal gives no
//!    new number, and an expired turn is not renewed, so no turn is split by another.
//! 5. *Commands.* Validity is H = 0.8 L. The guard kills a command when H/8 is left (TU-33): it ends before validity
//!    does.
//!
//! Two variants look harmless and break this. If a session is used for two attempts, a late Release of the first frees
//! a voter that is counted in the second. If a resting voter grants renewals, it completes a majority for a delayed
//! renewal, although it granted a newer turn before its crash.

mod asker;
mod attempt;
mod config;
mod disk;
mod effects;
mod heard;
pub mod keeping;
mod machine;
mod membership;
mod message;
mod name;
mod numbers;
mod queue;
mod record;
mod recovery;
mod releases;
mod storing;
mod voter;
mod wire;

#[cfg(test)]
mod tests;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::net::SocketAddr;

use serde::{Serialize, Serializer};

pub use config::{Config, ConfigError, Fault, PORT, VOTERS_MAX};
pub use disk::{BOUND_KEY, RECORD_KEY, SNAPSHOT_KEY};
pub use machine::{Counters, SPACE, Turns, UDP};
pub use message::{
    Answer, Ask, Body, Ended, Group, Key, LeaseSeen, Message, Standing, State, Verdict, VoterEntry,
};
pub use record::Record;
pub use wire::{MESSAGE_BYTES_MAX, decode, encode};

#[cfg(doc)]
use crate::Machine;
use crate::id::Id;
use crate::store::StoreFault;
use crate::time::{Instant, micros};

/// The id of a turn: 128 bits that the client draws. A repeated request with the same id is the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u128);

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for TurnId {
    type Err = ParseTurnIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or(ParseTurnIdError)
    }
}

impl Serialize for TurnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not the id of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a turn is 32 hexadecimal digits")]
pub struct ParseTurnIdError;

/// The commands of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Requests a turn. The reply comes with the turn, or when the wait is over.
    Lock(Lock),
    /// The keep-alive of a turn's client. The reply has the rest of the validity.
    Keep(TurnId),
    /// Returns how much is left of a turn; this does not keep it.
    Check(TurnId),
    /// Ends a turn, or the wait for one.
    Release(TurnId),
    /// Resumes a turn that an earlier process of this agent got in the same boot (TU-35).
    Resume(Resume),
    /// Queries the voters for the holder of a name: each answer is an [`Event::LeaseSeen`] with the nonce of the reply.
    Query(String),
    /// Returns the status of the node.
    Status,
    /// Founds a new group although the old one may exist. An operator confirms that no command runs (TU-28).
    Refound,
    /// Declares that this voter's disk is a copy or a backup: it rests, reads the bounds of the others, and votes again
    /// (TU-22).
    Renew,
}

/// A request for a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The name.
    pub name: String,
    /// The turn, drawn by the client.
    pub turn: TurnId,
    /// How long to wait; zero tries once.
    pub wait: Duration,
    /// How long the turn may last.
    pub limit: Duration,
    /// Whether the turn lapses unless a client in another process sends `Keep`.
    pub attended: bool,
}

/// A turn from before this agent's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The name.
    pub name: String,
    /// The turn.
    pub turn: TurnId,
    /// Its session, as granted.
    pub session: u64,
    /// Its number, as granted.
    pub fence: u64,
    /// The end of its validity by the clock that all processes of this boot share, in microseconds.
    pub deadline_micros: u64,
    /// How long it may still last, in microseconds.
    pub limit_micros: u64,
}

/// The replies to commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The turn is granted.
    Granted(Grant),
    /// The turn continues.
    Kept {
        /// How long it is valid, in microseconds.
        left_micros: u64,
        /// The end of its validity by the clock of this boot, in microseconds.
        deadline_micros: u64,
    },
    /// The turn is over; the reason.
    Lost(LostReason),
    /// The turn, or the wait for it, was ended on request.
    Released,
    /// The wait was withdrawn, or another request took it over.
    Withdrawn,
    /// Another node holds the name, as far as is known.
    NotFree(Option<Blocker>),
    /// Too few voters answered.
    NoMajority {
        /// How many did.
        have: usize,
        /// How many must.
        need: usize,
    },
    /// Too many requests, or the turn's id is in use for another name.
    Full,
    /// The query was sent; the answers are events with this nonce.
    Asked {
        /// The nonce.
        nonce: u64,
    },
    /// The status of the node.
    Status(Box<Status>),
    /// The command is done, or under way.
    Done,
    /// This node is not a voter, or has no record yet.
    NotVoter,
    /// The node is stopping, or has not started.
    Stopping,
}

/// A granted turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// The name.
    pub name: String,
    /// The turn.
    pub turn: TurnId,
    /// Its number: greater than that of every earlier turn of the name.
    pub fence: u64,
    /// Its session; a client presents it to an agent that was restarted.
    pub session: u64,
    /// The end of its validity by the clock of this boot, in microseconds.
    pub deadline_micros: u64,
    /// How long it is valid, in microseconds.
    pub left_micros: u64,
}

impl Grant {
    fn of(now: Instant, turn: &attempt::Turn, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            turn: turn.turn,
            fence: turn.number,
            session: turn.session,
            deadline_micros: turn.until().as_micros(),
            left_micros: micros(turn.until().since(now)),
        }
    }
}

/// The node that holds a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// The node.
    pub by: Id,
    /// Its fence.
    pub fence: u64,
    /// How much of its lease is left, in microseconds; it may renew it.
    pub left_micros: u64,
}

impl Blocker {
    fn at(self, now: Instant, until: Instant) -> Self {
        Self { left_micros: micros(until.since(now)), ..self }
    }
}

/// Why a turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostReason {
    /// No majority of voters renewed it in time.
    NoMajority,
    /// Its limit is reached.
    Limit,
    /// A majority of voters answer that another node has the name: this machine's clock was stopped.
    Taken,
    /// Its client did not keep it.
    Unattended,
    /// The node stops.
    Stopping,
    /// There is no such turn here.
    Unknown,
}

/// The events of `turns`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// This node has a turn.
    TurnGranted {
        /// The name.
        name: String,
        /// The turn.
        turn: TurnId,
        /// Its number.
        fence: u64,
    },
    /// A turn of this node was released.
    TurnReleased {
        /// The name.
        name: String,
        /// The turn.
        turn: TurnId,
        /// Its number.
        fence: u64,
    },
    /// A turn of this node was lost.
    TurnLost {
        /// The name.
        name: String,
        /// The turn.
        turn: TurnId,
        /// Its number.
        fence: u64,
        /// The reason.
        reason: LostReason,
    },
    /// All voters have written the record of a group.
    GroupFounded {
        /// The group.
        group: Group,
    },
    /// This voter has the record of a founded group on its disk.
    VoterReady {
        /// The group.
        group: Group,
    },
    /// This voter has lost its record and reads the others.
    VoterRecovering,
    /// This voter does not vote until an operator decides.
    VoterHalted {
        /// The reason.
        reason: &'static str,
    },
    /// The voters of the record are not those of the configuration, or the group is another than before.
    VotersDiffer {
        /// This node.
        at: SocketAddr,
        /// The group.
        group: Group,
    },
    /// A voter answered a query.
    LeaseSeen {
        /// The nonce of the query.
        nonce: u64,
        /// The voter.
        from: SocketAddr,
        /// The lease there.
        #[serde(flatten)]
        lease: LeaseSeen,
    },
    /// The disk refused a write.
    StoreFailed {
        /// The cause.
        fault: StoreFault,
    },
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The group that this node sends its Asks to.
    pub group: Option<Group>,
    /// Its epoch.
    pub epoch: u32,
    /// The boot in which this agent runs, as 32 hexadecimal digits; deadlines are comparable within it.
    pub boot_id: Option<String>,
    /// The length of a lease, in microseconds.
    pub lease_micros: u64,
    /// How many grants make a turn.
    pub majority: usize,
    /// Whether this node votes.
    pub standing: Standing,
    /// Why it must not vote.
    pub halted: Option<&'static str>,
    /// How long it still rests, in microseconds.
    pub resting_micros: u64,
    /// The voters.
    pub voters: Vec<VoterStatus>,
    /// The turns of this node and its waiting requests.
    pub turns: Vec<TurnStatus>,
}

/// A voter as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoterStatus {
    /// Its address.
    pub addr: SocketAddr,
    /// Its id, if it sent it.
    pub id: Option<Id>,
    /// Its standing, as it reports it.
    pub standing: Option<Standing>,
    /// Its group, as it reports it.
    pub group: Option<Group>,
    /// How long ago it answered, in microseconds; none if it never did.
    pub answered_micros_ago: Option<u64>,
}

/// A turn of this node, or a request for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnStatus {
    /// The name.
    pub name: String,
    /// The turn.
    pub turn: TurnId,
    /// Its number; none while it waits.
    pub fence: Option<u64>,
    /// How long it is valid, or how long it still waits, in microseconds.
    pub left_micros: u64,
    /// The node that holds the name, for a request that waits: another one, or this one for another client.
    pub waits_for: Option<Blocker>,
}
