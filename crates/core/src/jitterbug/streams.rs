//! The streams of token_pass: those on which others offer a token, and those on which this node passed one that the
//! candidate may still read.
//!
//! The candidate's side: TP1 is answered with TP2 or TP3, or with a close, which refuses. TP4 follows a TP2; TP5 ends
//! with the FIN. Nothing that arrives here changes the node: it is buffered until the FIN, and the machine then commits
//! it or drops it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::Config;
use super::message::{Message, TokenId};
use super::records::Arrived;
use super::ring::NodeList;
use super::wire::{Kind, LIST_MAX, TP1_BYTES, decode_entry, decode_size, tp1};
use crate::tag::StreamId;
use crate::time::Instant;
use crate::wire::{DecodeError, Reader};

/// How many bytes may be read before the offer is answered.
pub(super) const OFFER_CREDIT: usize = TP1_BYTES;
/// How many bytes may be under way after that.
pub(super) const CREDIT: usize = 64 * 1024;

/// How many streams one address may have open to this node. A node has one at a time; a flood from one address must
/// leave room for the ring.
const STREAMS_PER_SOURCE_MAX: usize = 4;

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// TP2: our list differs.
    SendList,
    /// TP3: our list is the same.
    SameList,
    /// No answer: the offer is refused.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// TP1 is incomplete.
    Offer(Vec<u8>),
    /// TP4: its undecoded bytes, and how many entries are missing once its head is known.
    List { token: TokenId, bytes: Vec<u8>, missing: Option<usize>, list: NodeList },
    /// TP5: no bytes yet.
    Handover { token: TokenId, list: Option<NodeList> },
    /// TP5: its data so far.
    Data(Arrived),
    /// The offer was refused; the peer is to close.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Incoming {
    from: IpAddr,
    deadline: Instant,
    stage: Stage,
}

/// All streams but the one of a pass under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Streams {
    incoming: BTreeMap<StreamId, Incoming>,
    /// Streams on which this node passed the token, and until when the candidate may read it.
    lingering: BTreeMap<StreamId, Instant>,
    data_bytes: usize,
    streams_max: usize,
    data_bytes_max: usize,
}

impl Streams {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            incoming: BTreeMap::new(),
            lingering: BTreeMap::new(),
            data_bytes: 0,
            streams_max: config.streams_max,
            data_bytes_max: config.data_bytes_max,
        }
    }

    /// Adds a stream that a peer opened. Returns false if there are too many, in all or of this peer.
    pub(super) fn accept(&mut self, stream: StreamId, from: IpAddr, deadline: Instant) -> bool {
        let same = self.incoming.values().filter(|incoming| incoming.from == from).count();
        if self.incoming.len() >= self.streams_max || same >= STREAMS_PER_SOURCE_MAX {
            return false;
        }
        self.incoming.insert(stream, Incoming { from, deadline, stage: Stage::Offer(Vec::new()) });
        true
    }

    /// Reads the next bytes. Returns the answer to the offer, if they complete it. `own_hash` is that of our list;
    /// `takes` says whether this node would take that token from that address.
    pub(super) fn push(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        own_hash: i32,
        takes: impl Fn(TokenId, IpAddr) -> bool,
    ) -> Result<Option<Answer>, DecodeError> {
        let Some(incoming) = self.incoming.get_mut(&stream) else { return Ok(None) };
        let mut answered = None;
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut incoming.stage {
                Stage::Offer(head) => {
                    let Some((token, hash)) = offer(head, &mut rest)? else { break };
                    let answer = match (takes(token, incoming.from), hash == own_hash) {
                        (false, _) => Answer::Refused,
                        (true, true) => Answer::SameList,
                        (true, false) => Answer::SendList,
                    };
                    answered = Some(answer);
                    incoming.stage = after_offer(token, answer);
                }
                Stage::List { token, bytes, missing, list } => {
                    bytes.extend_from_slice(rest);
                    let used = entries(bytes, missing, list)?;
                    if *missing != Some(0) {
                        bytes.drain(..used);
                        break;
                    }
                    rest = &rest[rest.len() - (bytes.len() - used)..];
                    incoming.stage = Stage::Handover { token: *token, list: Some(core::mem::take(list)) };
                }
                Stage::Handover { token, list } => {
                    if Kind::of(rest[0])? != Kind::Tp5 {
                        return Err(DecodeError::Kind);
                    }
                    rest = &rest[1..];
                    let (from, token, list) = (incoming.from, *token, list.take());
                    incoming.stage = Stage::Data(Arrived { from, token, list, data: Vec::new() });
                }
                Stage::Data(arrived) => {
                    let own = arrived.data.len() + rest.len();
                    if own > self.data_bytes_max || self.data_bytes + rest.len() > 2 * self.data_bytes_max {
                        return Err(DecodeError::Limit("data"));
                    }
                    self.data_bytes += rest.len();
                    arrived.data.extend_from_slice(rest);
                    break;
                }
                Stage::Refused => break,
            }
        }
        Ok(answered)
    }

    /// The peer that opened a stream.
    pub(super) fn source(&self, stream: StreamId) -> Option<IpAddr> {
        self.incoming.get(&stream).map(|incoming| incoming.from)
    }

    /// Whether the time of a peer's stream is over (JA-45). After a pause of this process its bytes may come before the timer.
    pub(super) fn is_over(&self, stream: StreamId, now: Instant) -> bool {
        self.incoming.get(&stream).is_some_and(|incoming| incoming.deadline < now)
    }

    /// Handles the peer's FIN. Returns the token, if it is complete; `None` for a stream that was refused or forgotten.
    pub(super) fn finish(&mut self, stream: StreamId) -> Option<Result<Arrived, DecodeError>> {
        match self.remove(stream)? {
            Stage::Data(arrived) => Some(Ok(arrived)),
            Stage::Refused => None,
            _ => Some(Err(DecodeError::Truncated)),
        }
    }

    /// Forgets a stream of a peer.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.remove(stream);
    }

    /// Notes that a pass was committed on this stream: the candidate may read until then.
    pub(super) fn linger(&mut self, stream: StreamId, until: Instant) {
        self.lingering.insert(stream, until);
    }

    /// Notes that a stream which this node opened is closed.
    pub(super) fn closed(&mut self, stream: StreamId) {
        self.lingering.remove(&stream);
    }

    /// Takes a stream of a peer that timed out.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<StreamId> {
        let over = self.incoming.iter().find(|(_, incoming)| incoming.deadline <= now);
        let stream = *over?.0;
        self.forget(stream);
        Some(stream)
    }

    /// Takes a stream whose candidate had long enough to read.
    pub(super) fn pop_lingered(&mut self, now: Instant) -> Option<StreamId> {
        let stream = *self.lingering.iter().find(|(_, until)| **until <= now)?.0;
        self.lingering.remove(&stream);
        Some(stream)
    }

    /// Takes any stream of a peer.
    pub(super) fn pop_incoming(&mut self) -> Option<StreamId> {
        let stream = *self.incoming.first_key_value()?.0;
        self.forget(stream);
        Some(stream)
    }

    /// When the next stream of a peer times out. All have the same timeout, so it is that of the oldest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.incoming.values().map(|incoming| incoming.deadline).min()
    }

    pub(super) fn linger_deadline(&self) -> Option<Instant> {
        self.lingering.values().min().copied()
    }

    /// Whether more bytes of a stream are wanted.
    pub(super) fn wants_more(&self, stream: StreamId) -> bool {
        self.incoming
            .get(&stream)
            .is_some_and(|incoming| !matches!(incoming.stage, Stage::Refused | Stage::Offer(_)))
    }

    fn remove(&mut self, stream: StreamId) -> Option<Stage> {
        let incoming = self.incoming.remove(&stream)?;
        if let Stage::Data(arrived) = &incoming.stage {
            self.data_bytes -= arrived.data.len();
        }
        Some(incoming.stage)
    }
}

/// Collects a TP1; the bytes after it stay in `rest`.
fn offer(head: &mut Vec<u8>, rest: &mut &[u8]) -> Result<Option<(TokenId, i32)>, DecodeError> {
    let (now, later) = rest.split_at(rest.len().min(TP1_BYTES - head.len()));
    head.extend_from_slice(now);
    *rest = later;
    let mut reader = Reader::new(head);
    if Kind::of(reader.u8()?)? != Kind::Tp1 {
        return Err(DecodeError::Kind);
    }
    match tp1(&mut reader) {
        Ok(Message::Tp1 { token_id, node_list_hash }) => Ok(Some((token_id.id(), node_list_hash))),
        Err(DecodeError::Truncated) => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Err(DecodeError::Kind),
    }
}

fn after_offer(token: TokenId, answer: Answer) -> Stage {
    match answer {
        Answer::SendList => Stage::List { token, bytes: Vec::new(), missing: None, list: NodeList::new() },
        Answer::SameList => Stage::Handover { token, list: None },
        Answer::Refused => Stage::Refused,
    }
}

/// Reads as many entries as are complete. Returns their bytes. Never allocates by the declared size (JA-35).
fn entries(bytes: &[u8], missing: &mut Option<usize>, list: &mut NodeList) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut used = 0;
    if missing.is_none() {
        if Kind::of(reader.u8()?)? != Kind::Tp4 {
            return Err(DecodeError::Kind);
        }
        match decode_size(&mut reader) {
            Ok(size) => *missing = Some(size),
            Err(DecodeError::Truncated) => return Ok(0),
            Err(error) => return Err(error),
        }
        used = bytes.len() - reader.remaining();
    }
    let left = missing.get_or_insert(LIST_MAX);
    while *left > 0 {
        match decode_entry(&mut reader) {
            Ok(node) => list.append(node),
            Err(DecodeError::Truncated) => break,
            Err(error) => return Err(error),
        };
        *left -= 1;
        used = bytes.len() - reader.remaining();
    }
    Ok(used)
}
