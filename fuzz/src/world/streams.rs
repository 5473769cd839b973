//! The streams of the world, with the rules that every driver keeps: no data without credit, none after the FIN,
//! nothing after the end.

use std::net::{Ipv4Addr, SocketAddr};

use annulus_core::{Action, CloseReason, Machine, Service, StreamEvent, StreamId};

/// Where the machine's end of an opened stream is.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);

#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Vec<Stream>,
    accepted: u64,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    connected: bool,
    credit: usize,
    /// The bytes that the machine wrote, and how many of them were reported as sent.
    written: Vec<u8>,
    reported: usize,
    finished: bool,
    fin_reported: bool,
    peer_finished: bool,
}

impl Stream {
    fn new(id: StreamId) -> Self {
        Self {
            id,
            connected: id.is_accepted(),
            credit: 0,
            written: Vec::new(),
            reported: 0,
            finished: false,
            fin_reported: false,
            peer_finished: false,
        }
    }
}

impl Streams {
    /// A new stream that a peer opened; `None` if there are too many.
    pub(super) fn accept(&mut self, service: Service, streams_max: usize) -> Option<StreamId> {
        let of_service = |stream: &&Stream| stream.id.is_accepted() && stream.id.service() == service;
        if self.open.iter().filter(of_service).count() >= streams_max {
            return None;
        }
        self.accepted += 1;
        let id = StreamId::accepted(self.accepted).in_service(service);
        self.open.push(Stream::new(id));
        Some(id)
    }

    /// How much of `length` bytes may come on the chosen stream now.
    pub(super) fn data(&mut self, choice: u8, length: usize) -> Option<(StreamId, usize)> {
        let stream = self.choose(choice).filter(|stream| stream.connected && !stream.peer_finished)?;
        let allowed = length.min(stream.credit);
        stream.credit -= allowed;
        (allowed > 0).then_some((stream.id, allowed))
    }

    /// Something that may happen to the chosen stream now, other than data.
    pub(super) fn news(&mut self, choice: u8, news: u8) -> Option<(StreamId, StreamEvent<'static>)> {
        let stream = self.choose(choice)?;
        let id = stream.id;
        if !stream.connected && news < 128 {
            stream.connected = true;
            return Some((id, StreamEvent::Connected { local: LOCAL }));
        }
        let done = stream.peer_finished && stream.fin_reported;
        let event = match news {
            _ if done => StreamEvent::Closed(CloseReason::Done),
            0..64 if !stream.peer_finished => {
                stream.peer_finished = true;
                StreamEvent::Finished
            }
            0..128 => {
                let unreported = stream.written.len() - stream.reported;
                let bytes = unreported.min(usize::from(news) + 1);
                stream.reported += bytes;
                let fin = stream.finished && bytes == unreported && !stream.fin_reported;
                stream.fin_reported |= fin;
                if bytes == 0 && !fin {
                    return None;
                }
                StreamEvent::Sent { bytes, fin }
            }
            128..192 if !stream.connected => StreamEvent::Closed(CloseReason::Refused),
            128..224 => StreamEvent::Closed(CloseReason::Reset),
            _ => StreamEvent::Closed(CloseReason::TimedOut),
        };
        if matches!(event, StreamEvent::Closed(_)) {
            self.open.retain(|stream| stream.id != id);
        }
        Some((id, event))
    }

    /// Performs an action of the machine on a stream; none, if it is gone.
    pub(super) fn carry_out<M: Machine>(&mut self, action: &Action<'_, M>) {
        match *action {
            Action::Open { stream, .. } => {
                assert!(!self.is_open(stream), "a number is used twice");
                self.open.push(Stream::new(stream));
            }
            Action::Write { stream, bytes } => {
                if let Some(stream) = self.find(stream) {
                    assert!(!stream.finished, "it writes behind its own FIN");
                    stream.written.extend_from_slice(&bytes);
                }
            }
            Action::Read { stream, credit } => {
                if let Some(stream) = self.find(stream) {
                    stream.credit += credit;
                }
            }
            Action::Finish { stream } => {
                if let Some(stream) = self.find(stream) {
                    stream.finished = true;
                }
            }
            Action::Abort { stream } => self.open.retain(|open| open.id != stream),
            _ => {}
        }
    }

    pub(super) fn is_open(&self, id: StreamId) -> bool {
        self.open.iter().any(|stream| stream.id == id)
    }

    /// The bytes that the machine wrote on the chosen stream.
    pub(super) fn written(&mut self, choice: u8) -> Option<&[u8]> {
        self.choose(choice).map(|stream| stream.written.as_slice())
    }

    fn choose(&mut self, choice: u8) -> Option<&mut Stream> {
        let count = self.open.len();
        self.open.get_mut(usize::from(choice).checked_rem(count)?)
    }

    fn find(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.open.iter_mut().find(|stream| stream.id == id)
    }
}
