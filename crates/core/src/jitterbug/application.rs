//! The application: it supplies the first data, the next data, and the merge of two data.
//!
//! An application runs in one of two places. A quick one answers [`Answer::Now`] inside the machine. A slow one
//! answers [`Answer::Later`]: the machine requests the computation with an event, and a command brings the result. The
//! machine handles other messages meanwhile, so that a slow application does not cause a second leader (JA-49).

use core::fmt::Debug;
use core::time::Duration;

use serde::Serialize;

use super::checksum::{is_no_frame, unframe};
use super::message::{HostId, TokenId};
use crate::common::caught;
use crate::time::Wall;

/// An application of the ring.
///
/// `merge` must be a join (JA-41): commutative, associative and idempotent. If one side descends from the other, the
/// result is the descendant. It also runs when nothing was lost and only the token's id is new. [`check_merge`] tries
/// an application on samples.
pub trait Application {
    /// A change of the data by a user; it is made in the next tenure.
    type Change: Debug;

    /// Starts with the host id of the node and the bytes that [`Next::keep`] last made durable.
    fn start(&mut self, host_id: HostId, kept: Option<&[u8]>);

    /// The data before any token came.
    fn initial(&mut self) -> Vec<u8>;

    /// Whether received data is complete and valid. A token with other data is not taken.
    fn accepts(&mut self, data: &[u8]) -> bool;

    /// Whether data that is not accepted is of another application. Data of this one that was cut short or damaged is not:
    /// the kernel of a killed leader sends a FIN too.
    fn is_foreign(&self, _data: &[u8]) -> bool {
        false
    }

    /// The data of this tenure.
    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next>;

    /// The merge of two branches of data.
    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>>;

    /// Confirms that the result of the last `next` is in use, and that its `keep` is durable. Returns the number of the
    /// last change in the data.
    fn used(&mut self) -> u64 {
        0
    }

    /// Whether two data are equal in meaning. If a merge equals the received data, no branches met.
    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        one == other
    }

    /// Takes a change, to be in the data from the next tenure on. Returns its number, which is above those of all
    /// before it.
    ///
    /// # Errors
    /// The reason why the change is refused.
    fn change(&mut self, change: Self::Change) -> Result<u64, &'static str>;

    /// Withdraws the change of this number; it is in no data yet.
    fn withdraw(&mut self, _number: u64) {}

    /// The number of tenures of a host in the last data; `None` if the application does not count them. A candidate is
    /// left out of the round if its count does not grow and the token is lost after it.
    fn tenures_of(&self, _host: HostId) -> Option<u64> {
        None
    }

    /// Whether values that this node passed on were missing when the token came back.
    fn drops_values(&self) -> bool {
        false
    }

    /// Declares that this node has voters of exclusive turns. The data says so from the next tenure on (TU-31).
    fn declare_voters(&mut self, _group: &str) {}

    /// The group of voters that the data names, if it names one.
    fn voters(&self) -> Option<&str> {
        None
    }

    /// The greatest fence seen.
    fn greatest_fence(&self) -> u64 {
        0
    }

    /// The bytes to store for the next start, when the node stops in good order with this data.
    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>>;
}

/// A result now, later, or never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The result.
    Now(T),
    /// The application computes it outside: an event requests it, a command brings it.
    Later,
    /// It cannot be computed: the data stays unchanged (JA-41a).
    Failed(&'static str),
}

/// The result of a tenure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The data to pass on.
    pub data: Vec<u8>,
    /// A number that grows along the branch of the token, if the application has one.
    pub fence: Option<u64>,
    /// The bytes that must be durable before the result is used.
    pub keep: Option<Vec<u8>>,
}

/// The facts about a new tenure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenureInfo {
    /// The node that leads.
    pub host_id: HostId,
    /// The token.
    pub token_id: TokenId,
    /// If this node made the token: its id before, and the age of its data then.
    pub restored: Option<Restored>,
    /// The tokens merged here since our last tenure: ours, theirs.
    pub merged: Vec<(TokenId, TokenId)>,
    /// The wall clock of this node.
    pub wall: Wall,
}

/// A token made by a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The id before.
    pub from: TokenId,
    /// The age of our data: for this long other nodes may have held the token without our knowledge.
    #[serde(rename = "time_without_token_micros", serialize_with = "as_micros")]
    pub time_without_token: Duration,
}

fn as_micros<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(crate::time::micros(*duration))
}

/// Calls an application that may panic (JA-41a).
pub(super) fn guarded<T>(call: impl FnOnce() -> Answer<T>) -> Answer<T> {
    caught(call).unwrap_or(Answer::Failed("it panicked"))
}

/// An application outside of the machine: every call is an event, answered by a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The data before any token came.
    pub initial: Vec<u8>,
    /// Whether received data must be a complete [frame](super::frame).
    pub framed: bool,
}

impl Application for Remote {
    type Change = core::convert::Infallible;

    fn start(&mut self, _: HostId, _: Option<&[u8]>) {}

    fn initial(&mut self) -> Vec<u8> {
        self.initial.clone()
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        !self.framed || unframe(data).is_ok()
    }

    fn is_foreign(&self, data: &[u8]) -> bool {
        self.framed && is_no_frame(data)
    }

    fn next(&mut self, _: &TenureInfo, _: &[u8]) -> Answer<Next> {
        Answer::Later
    }

    fn merge(&mut self, _: &[u8], _: &[u8]) -> Answer<Vec<u8>> {
        Answer::Later
    }

    fn change(&mut self, change: Self::Change) -> Result<u64, &'static str> {
        match change {}
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Checks that an application's merge is a join, on all pairs and triples of these samples, and on samples that descend
/// from them by `next`.
///
/// # Errors
/// The law that does not hold, as text.
pub fn check_merge<A: Application>(
    application: &mut A,
    samples: &[Vec<u8>],
    tenure: &TenureInfo,
) -> Result<(), String> {
    let mut merge = |own: &[u8], received: &[u8]| match application.merge(own, received) {
        Answer::Now(data) => Ok(data),
        other => Err(format!("merge gave {other:?} for {own:02x?} and {received:02x?}")),
    };
    let holds = |law: &str, left: Vec<u8>, right: Vec<u8>| {
        if left == right { Ok(()) } else { Err(format!("{law}: {left:02x?} is not {right:02x?}")) }
    };
    for a in samples {
        holds("merge(x, x) = x", merge(a, a)?, a.clone())?;
        for b in samples {
            let both = merge(a, b)?;
            holds("merge is the same from both sides", both.clone(), merge(b, a)?)?;
            holds("merge(ancestor, descendant) = descendant", merge(a, &both)?, both.clone())?;
            for c in samples {
                let right = merge(b, c)?;
                holds("merge is the same in any grouping", merge(&both, c)?, merge(a, &right)?)?;
            }
        }
    }
    for a in samples {
        if let Answer::Now(next) = application.next(tenure, a) {
            let Answer::Now(merged) = application.merge(a, &next.data) else {
                return Err("merge fails for data and what follows it".into());
            };
            holds("merge(x, next(x)) = next(x)", merged, next.data)?;
        }
    }
    Ok(())
}
