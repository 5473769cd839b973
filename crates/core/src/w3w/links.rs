//! The connections: who is at the other end, what has been read of a frame, what has not been taken yet.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use super::frames::Frames;
use super::message::{Here, Message};
use super::nid::Nid;
use super::queue::Line;
use super::routes::Direction;
use crate::tag::StreamId;
use crate::time::Instant;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// We dialled and wait for the HERE of the node we expect.
    Dialling {
        /// Whom we expect, and where.
        expected: Here,
        /// Where else that node was said to be meanwhile (MA-24).
        otherwise: Option<SocketAddrV4>,
        /// Whether the stream stands.
        is_connected: bool,
    },
    /// We accepted and wait for the caller's HERE.
    Greeting,
    /// The peer is in the ring.
    Up {
        /// Who it is.
        nid: Nid,
        /// Where it accepts connections.
        at: SocketAddrV4,
    },
    /// We have ended our direction and read what still comes.
    Leaving {
        /// Who it was.
        nid: Nid,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) role: Role,
    pub(super) direction: Direction,
    /// The address at the other end.
    pub(super) peer: Ipv4Addr,
    pub(super) opened: Instant,
    /// Dialled because the connection before it broke (MA-30).
    pub(super) is_redial: bool,
    pub(super) frames: Frames,
    /// What its unfinished frame was when it was last counted.
    held_bytes: usize,
    pub(super) malformed: u32,
    /// When the connection was last tried, because it might be dead.
    pub(super) probed: Instant,
    /// Credit that is not granted yet because memory is short.
    pub(super) owed_bytes: usize,
    /// Written and not taken by the kernel yet: whose frame, and how much of it.
    writing: VecDeque<(Option<Line>, usize)>,
    unsent_bytes: usize,
    /// The message that is only partly written, and how much of its frame is.
    pub(super) part: Option<(Line, Message, usize)>,
    /// Lines that wait for their turn.
    pub(super) backlog: VecDeque<Line>,
}

impl Link {
    pub(super) fn new(
        role: Role,
        direction: Direction,
        peer: Ipv4Addr,
        now: Instant,
        body_bytes_max: usize,
    ) -> Self {
        Self {
            role,
            direction,
            peer,
            opened: now,
            is_redial: false,
            frames: Frames::new(body_bytes_max),
            held_bytes: 0,
            malformed: 0,
            probed: now,
            owed_bytes: 0,
            writing: VecDeque::new(),
            unsent_bytes: 0,
            part: None,
            backlog: VecDeque::new(),
        }
    }

    /// Who is in the ring by this connection.
    pub(super) fn nid(&self) -> Option<Nid> {
        if let Role::Up { nid, .. } = self.role { Some(nid) } else { None }
    }

    /// What its unfinished frame holds in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many bytes may be written now.
    pub(super) fn room(&self, unsent_bytes_max: usize) -> usize {
        unsent_bytes_max.saturating_sub(self.unsent_bytes)
    }

    /// `bytes` were written; with them the frame of `line` ends, if one does.
    pub(super) fn wrote(&mut self, line: Option<Line>, bytes: usize) {
        self.writing.push_back((line, bytes));
        self.unsent_bytes += bytes;
    }

    /// The kernel took so much more; the lines whose frames it has wholly taken.
    pub(super) fn sent(&mut self, mut bytes: usize) -> Vec<Line> {
        let mut done = Vec::new();
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        while let Some((line, left)) = self.writing.front_mut() {
            if *left > bytes {
                *left -= bytes;
                break;
            }
            bytes -= *left;
            done.extend(*line);
            self.writing.pop_front();
        }
        done
    }

    pub(super) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Every line that this connection has not delivered.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let written = self.writing.iter().filter_map(|(line, _)| *line);
        written.chain(self.part.iter().map(|(line, ..)| *line)).chain(self.backlog.iter().copied())
    }
}

/// All connections. A driver numbers accepted streams, we number dialled ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    links: BTreeMap<StreamId, Link>,
    opened: u64,
    /// What unfinished frames hold in memory, all together.
    held_bytes: usize,
}

impl Links {
    /// A number for a stream about to be opened.
    pub(super) fn allot(&mut self) -> StreamId {
        self.opened += 1;
        StreamId::opened(self.opened)
    }

    pub(super) fn insert(&mut self, stream: StreamId, link: Link) {
        self.links.insert(stream, link);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Link> {
        let link = self.links.remove(&stream)?;
        self.held_bytes -= link.held_bytes;
        Some(link)
    }

    /// Bytes of a connection were taken: what its unfinished frame holds has changed.
    pub(super) fn note_held(&mut self, stream: StreamId) {
        if let Some(link) = self.links.get_mut(&stream) {
            let held_bytes = link.frames.held_bytes();
            self.held_bytes = self.held_bytes - link.held_bytes + held_bytes;
            link.held_bytes = held_bytes;
        }
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Link> {
        self.links.get(&stream)
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Link> {
        self.links.get_mut(&stream)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Link)> {
        self.links.iter_mut().map(|(stream, link)| (*stream, link))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StreamId, &Link)> {
        self.links.iter().map(|(stream, link)| (*stream, link))
    }

    /// The dial under way to this node or to this address.
    pub(super) fn dialling(&self, nid: Nid, ip: Ipv4Addr) -> Option<StreamId> {
        let is_it = |link: &Link| match link.role {
            Role::Dialling { expected, .. } => expected.nid == nid || link.peer == ip,
            _ => false,
        };
        self.iter().find(|(_, link)| is_it(link)).map(|(stream, _)| stream)
    }

    pub(super) fn dials(&self) -> usize {
        self.links.values().filter(|link| matches!(link.role, Role::Dialling { .. })).count()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// What unfinished frames hold in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
