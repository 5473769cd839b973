//! An event as one JSON object: the form that the API, the command line and simulation traces share.

use serde::Serialize;

/// The version of the form. A field may be added without a new one; none is removed or changed.
pub const EVENTS_VERSION: u8 = 1;

/// One event of one node, flat: these fields, then those of the event itself.
#[derive(Clone, Debug, Serialize)]
pub struct EventLine<'a, E> {
    /// [`EVENTS_VERSION`].
    pub v: u8,
    /// Its number among the events of this node since its start.
    pub seq: u64,
    /// When it happened, in microseconds since the Unix epoch (in a simulation: since its start).
    pub at_micros: u64,
    /// The node's name.
    pub node: &'a str,
    /// The event.
    #[serde(flatten)]
    pub event: &'a E,
}

impl<'a, E> EventLine<'a, E> {
    /// An event in the present form.
    #[must_use]
    pub fn new(seq: u64, at_micros: u64, node: &'a str, event: &'a E) -> Self {
        Self { v: EVENTS_VERSION, seq, at_micros, node, event }
    }
}
