//! What the application supplies: the first data, the next data, and how two become one.
//!
//! An application runs in one of two places. A quick one answers [`Answer::Now`] inside the machine. A slow one
//! answers [`Answer::Later`]: the machine then tells it with an event what is to be computed and waits for a
//! command, and goes on answering everybody meanwhile, so that no slowness makes a second leader (JA-49).

use core::fmt::Debug;
use core::time::Duration;

use serde::Serialize;

use super::checksum::{is_no_frame, unframe};
use super::message::{HostId, TokenId};
use crate::common::caught;
use crate::time::Wall;

/// What the ring carries.
///
/// `merge` must be a join (JA-41): the same from either side, in any grouping, `merge(x, x) = x`, and the
/// descendant where one side descends from the other; for it also runs when nothing was lost and only the token's id
/// is new. [`check_merge`] tries an application on samples.
pub trait Application {
    /// What a user may change in the data; it is done in the next tenure.
    type Change: Debug;

    /// The node starts: who it is, and what [`Next::keep`] last made durable.
    fn start(&mut self, host_id: HostId, kept: Option<&[u8]>);

    /// The data before any token came.
    fn initial(&mut self) -> Vec<u8>;

    /// Whether received data is whole and meaningful. A token with other data is not taken.
    fn accepts(&mut self, data: &[u8]) -> bool;

    /// Whether data that is not accepted is of another application. Data of this one that was cut short or damaged is not:
    /// the kernel of a killed leader sends a FIN too.
    fn is_foreign(&self, _data: &[u8]) -> bool {
        false
    }

    /// The data of this tenure.
    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next>;

    /// Two lines of data as one.
    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>>;

    /// The result of the last `next` is in use, and what it wanted kept is durable. Returns the number up to which
    /// changes are in the data now.
    fn used(&mut self) -> u64 {
        0
    }

    /// Whether two data say the same; if a merge says no more than what was received, no lines met.
    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        one == other
    }

    /// Takes a change in; it is to be in the data from the next tenure on. Returns its number, which is above those of
    /// all before it.
    ///
    /// # Errors
    /// If it cannot be: says why.
    fn change(&mut self, change: Self::Change) -> Result<u64, &'static str>;

    /// Takes the change of this number back; it is in no data yet.
    fn withdraw(&mut self, _number: u64) {}

    /// How often a host has led, by the data of the last tenure; `None` if the application does not count that. A candidate
    /// whose count stays behind while the token is lost after it is left out of the round.
    fn tenures_of(&self, _host: HostId) -> Option<u64> {
        None
    }

    /// Whether values that this node passed on were gone when the token came back.
    fn drops_values(&self) -> bool {
        false
    }

    /// This node has voters of exclusive turns: the data says so from the next tenure on (TU-31).
    fn declare_voters(&mut self, _group: &str) {}

    /// The group of voters that the data names, if it names one.
    fn voters(&self) -> Option<&str> {
        None
    }

    /// The greatest fence that was seen.
    fn greatest_fence(&self) -> u64 {
        0
    }

    /// What is to be kept for the next start, when the node ends in good order with this data.
    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>>;
}

/// An answer now, or later, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Here it is.
    Now(T),
    /// It is computed elsewhere: an event asks for it, a command brings it.
    Later,
    /// It cannot be computed: the data stays as it is (JA-41a).
    Failed(&'static str),
}

/// What a tenure makes of the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The data to pass on.
    pub data: Vec<u8>,
    /// A number that grows along the line of the token, if the application has one.
    pub fence: Option<u64>,
    /// What must be durable before any of this is used.
    pub keep: Option<Vec<u8>>,
}

/// What the application may know about a tenure that begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenureInfo {
    /// The node that leads.
    pub host_id: HostId,
    /// The token.
    pub token_id: TokenId,
    /// If we made the token ourselves: from which id, and how old our data was then.
    pub restored: Option<Restored>,
    /// The tokens that met in our hands since our last tenure: ours, theirs.
    pub merged: Vec<(TokenId, TokenId)>,
    /// The wall clock of this node.
    pub wall: Wall,
}

/// A token made by a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The id we had before.
    pub from: TokenId,
    /// How long our data had been as it was: so long others may have gone on without us knowing.
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

/// An application elsewhere: everything is asked by an event and answered by a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The data before any token came.
    pub initial: Vec<u8>,
    /// Whether received data must be a whole [frame](super::frame).
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

/// Tries whether an application's merge is a join, on all pairs and triples of these samples, and on samples that
/// descend from them by `next`.
///
/// # Errors
/// The law that does not hold, in words.
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
