//! One TCP stream, kept to the rules of [`annulus_core::StreamEvent`].
//!
//! Nothing here calls the machine: each step returns its result, and the driver passes it on. Sockets are used
//! through [`TcpStream::try_io`] rather than tokio's own reads and writes. Both directions and the watch for a reset
//! share one socket, so none of them may borrow it exclusively.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use annulus_core::{CloseReason, Instant, KeepAlive, Payload, StreamId, Watch, Watched};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::bind;
use crate::chunks::{Chunks, SLICES_MAX};
use crate::gate::Gate;
use crate::ready::Signal;
use crate::transfer::{Connect, connect, peek, reason, receive, seen, send, send_vectored};

/// Writes wait for the end of the turn while they are fewer bytes than this, so that many small ones cost one call of
/// the system. A larger write goes out at once: a copy would cost more than it saves.
const GATHERED_BYTES_MAX: usize = 16 * 1024;
/// The same for writes that are not copied.
const SHARED_BYTES_MAX: usize = 256 * 1024;

/// One stream.
pub(crate) struct Stream {
    /// The id that the machine gave it.
    pub(crate) id: StreamId,
    /// The listener it came from, if it was accepted.
    pub(crate) listener: Option<usize>,
    /// Its waker.
    pub(crate) signal: Signal,
    /// Whether it is on the list of streams with something to report.
    pub(crate) reporting: bool,
    /// Whether it is on the list of streams to be flushed at the end of the turn.
    pub(crate) gathering: bool,
    /// Whether it is on the list of streams whose `TCP_INFO` is due.
    pub(crate) looking: bool,
    /// The other end.
    peer: IpAddr,
    /// Since when the gate cuts it off.
    held: Option<Instant>,
    link: Link,
    /// The read credit in bytes.
    credit: usize,
    reading: Reading,
    /// Written by the machine, not yet taken by the kernel.
    waiting: Chunks,
    fin: Fin,
    /// Taken by the kernel, not yet reported.
    sent: usize,
    /// Taken by the kernel and reported, since the stream was opened.
    reported: u64,
    /// The watch that the machine asked for.
    watched: Option<Box<Watched>>,
    /// Acknowledged by the peer's kernel, not yet reported.
    confirmed: usize,
    /// The close reason, not yet reported.
    closed: Option<CloseReason>,
    /// Resolves when the socket has an error. Only there while no read would find it.
    hangup: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum Link {
    Connecting(Connect),
    Up(Arc<TcpStream>),
    Down,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The kernel may have bytes.
    Maybe,
    /// It had none, and the signal is raised when it has.
    Armed,
    /// It has some, and they may not be read for want of credit.
    Held,
    /// The peer's FIN was read.
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fin {
    Open,
    /// Requested; it follows the queued bytes.
    Asked,
    /// The kernel has it; not yet reported.
    Taken,
    Reported,
}

/// The result of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes are in the buffer.
    Data(usize),
    /// The peer's FIN.
    Finished,
    /// Nothing until the signal, or until there is credit.
    Idle,
}

/// The next event for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// `Sent`.
    Sent { bytes: usize, fin: bool },
    /// `Confirmed`.
    Confirmed(usize),
    /// `Closed`.
    Closed(CloseReason),
}

impl Stream {
    /// A stream that a peer opened.
    pub(crate) fn accepted(
        id: StreamId,
        listener: usize,
        (socket, peer): (TcpStream, IpAddr),
        signal: Signal,
    ) -> Self {
        Self { listener: Some(listener), ..Self::new(id, peer, Link::Up(Arc::new(socket)), signal) }
    }

    /// A stream on its way to `to`. If the system will not even begin, it is closed already.
    pub(crate) fn connecting(id: StreamId, to: SocketAddr, from: Option<IpAddr>, signal: Signal) -> Self {
        match connect(to, from) {
            Ok(connect) => Self::new(id, to.ip(), Link::Connecting(connect), signal),
            Err(error) => {
                tracing::debug!(stream = %id, %to, %error, "cannot open");
                Self { closed: Some(reason(&error)), ..Self::new(id, to.ip(), Link::Down, signal) }
            }
        }
    }

    fn new(id: StreamId, peer: IpAddr, link: Link, signal: Signal) -> Self {
        Self {
            id,
            listener: None,
            signal,
            reporting: false,
            gathering: false,
            looking: false,
            peer,
            held: None,
            link,
            credit: 0,
            reading: Reading::Maybe,
            waiting: Chunks::default(),
            fin: Fin::Open,
            sent: 0,
            reported: 0,
            watched: None,
            confirmed: 0,
            closed: None,
            hangup: None,
        }
    }

    /// Holds it while the gate cuts its peer off: nothing is read, nothing is written. Afterwards it goes on.
    pub(crate) fn hold(&mut self, gate: &Gate, now: Instant) {
        let is_cut_off = gate.is_cut_off(self.peer);
        match (is_cut_off, self.held) {
            (true, None) => self.held = Some(now),
            (false, Some(_)) => {
                self.held = None;
                self.signal.raise();
            }
            _ => {}
        }
    }

    /// When a held stream is dead, as its machine wants it watched.
    fn dead_at(&self) -> Option<Instant> {
        Some(self.held? + self.watched.as_ref()?.watch().dead_after?)
    }

    /// Continues connecting: `Ready` with our end once it is established, with `None` if it failed.
    pub(crate) fn poll_connect(&mut self, tune: impl FnOnce(&TcpStream)) -> Poll<Option<SocketAddr>> {
        if self.held.is_some() {
            return Poll::Pending;
        }
        let Link::Connecting(connect) = &mut self.link else { return Poll::Pending };
        let connected = ready!(connect.as_mut().poll(&mut self.signal.context()));
        Poll::Ready(match connected.and_then(|socket| Ok((socket.local_addr()?, socket))) {
            Ok((local, socket)) => {
                tune(&socket);
                self.link = Link::Up(Arc::new(socket));
                Some(local)
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        })
    }

    /// Watches it as the machine wants, from now on.
    pub(crate) fn watch_for(&mut self, watch: Watch, keepalive: KeepAlive, now: Instant) {
        match &mut self.watched {
            Some(watched) => watched.change(watch, now),
            None => self.watched = Some(Box::new(Watched::new(watch, self.reported, now))),
        }
        self.probe(keepalive);
    }

    /// Sets the keep-alive of an idle stream: the machine's, or that of the options.
    pub(crate) fn probe(&self, keepalive: KeepAlive) {
        let (Link::Up(socket), Some(watched)) = (&self.link, &self.watched) else { return };
        let wanted = watched.watch().dead_after.map_or(keepalive, KeepAlive::within);
        // If it fails the peer is gone already, and the next read or write will say so.
        let _ = bind::probe(&**socket, wanted);
    }

    /// Reads its `TCP_INFO`.
    pub(crate) fn look(&mut self, now: Instant) {
        if self.held.is_some() {
            if self.dead_at().is_some_and(|at| at <= now) && self.closed.is_none() {
                self.time_out();
            }
            return;
        }
        let (Link::Up(socket), Some(watched)) = (&self.link, &mut self.watched) else { return };
        let Some(seen) = seen(socket, self.listener.is_none()) else {
            self.watched = None;
            return;
        };
        let looked = watched.look(seen, now);
        self.confirmed += looked.confirmed;
        if looked.dead && self.closed.is_none() {
            tracing::debug!(stream = %self.id, ?seen, "no acknowledgement: dead");
            self.time_out();
        }
    }

    fn time_out(&mut self) {
        self.reset();
        self.waiting = Chunks::default();
        self.closed = Some(CloseReason::TimedOut);
    }

    /// When to look next.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        let due = if self.held.is_some() {
            self.dead_at()
        } else {
            self.watched.as_ref().and_then(|watched| watched.due())
        };
        due.filter(|_| self.closed.is_none())
    }

    /// Grants credit.
    pub(crate) fn grant(&mut self, credit: usize) {
        self.credit = self.credit.saturating_add(credit);
        if self.reading == Reading::Held && credit > 0 {
            self.reading = Reading::Maybe;
            self.hangup = None;
            self.signal.raise();
        }
    }

    /// Writes: little of it at the end of the turn, much of it now. Bytes that the kernel does not take are kept.
    pub(crate) fn write(&mut self, bytes: Payload<'_>, bytes_max: usize) {
        if self.fin != Fin::Open || self.closed.is_some() {
            return;
        }
        let gathered_max = match bytes {
            Payload::Copied(_) => GATHERED_BYTES_MAX,
            Payload::Shared(_) => SHARED_BYTES_MAX,
        };
        if self.waiting.len() + bytes.len() <= gathered_max.min(bytes_max) {
            self.waiting.push(bytes);
            return;
        }
        self.flush();
        match bytes {
            Payload::Copied(bytes) => self.write_now(bytes, bytes_max),
            Payload::Shared(_) if self.closed.is_some() => {}
            Payload::Shared(_) if self.waiting.len() + bytes.len() > bytes_max => self.overrun(),
            Payload::Shared(_) => {
                self.waiting.push(bytes);
                self.flush();
            }
        }
    }

    /// Bytes that are to be copied only if the kernel does not take them.
    fn write_now(&mut self, mut bytes: &[u8], bytes_max: usize) {
        while self.waiting.is_empty() && !bytes.is_empty() {
            match self.try_write(bytes) {
                Poll::Ready(taken) if taken > 0 => bytes = &bytes[taken..],
                _ => break,
            }
        }
        if self.closed.is_some() || bytes.is_empty() {
            return;
        }
        if self.waiting.len() + bytes.len() > bytes_max {
            return self.overrun();
        }
        self.waiting.push(Payload::Copied(bytes));
    }

    fn overrun(&mut self) {
        self.reset();
        self.closed = Some(CloseReason::Overrun);
    }

    /// Ends our direction, behind the queued bytes.
    pub(crate) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Asked;
            self.flush();
        }
    }

    /// Writes the queued bytes and the FIN behind them, as far as the kernel takes them.
    pub(crate) fn flush(&mut self) {
        if self.held.is_some() {
            return;
        }
        while !self.waiting.is_empty() {
            let Link::Up(socket) = &self.link else { return };
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let taken = match self.waiting.slices(&mut slices) {
                1 => send(socket, &self.signal, &slices[0]),
                count => send_vectored(socket, &self.signal, &slices[..count]),
            };
            match self.note_taken(taken) {
                Poll::Ready(taken) if taken > 0 => self.waiting.advance(taken),
                _ => return,
            }
        }
        if let (Fin::Asked, Link::Up(socket)) = (self.fin, &self.link) {
            match SockRef::from(&**socket).shutdown(std::net::Shutdown::Write) {
                Ok(()) => self.fin = Fin::Taken,
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Reads the next bytes, at most as many as there is credit for.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Step {
        let is_shut = self.closed.is_some() || self.held.is_some();
        if is_shut || matches!(self.reading, Reading::Finished | Reading::Held) {
            return Step::Idle;
        }
        let Link::Up(socket) = &self.link else { return Step::Idle };
        let read = if self.credit == 0 {
            peek(socket, &self.signal)
        } else {
            let bytes_max = buffer.len().min(self.credit);
            receive(socket, &self.signal, &mut buffer[..bytes_max])
        };
        match read {
            Poll::Pending => self.reading = Reading::Armed,
            Poll::Ready(Ok(0)) => {
                self.reading = Reading::Finished;
                return Step::Finished;
            }
            Poll::Ready(Ok(_)) if self.credit == 0 => {
                self.reading = Reading::Held;
            }
            Poll::Ready(Ok(bytes)) => {
                self.credit -= bytes;
                return Step::Data(bytes);
            }
            Poll::Ready(Err(error)) => self.fail(&error),
        }
        Step::Idle
    }

    /// Looks whether the peer reset the stream while nothing is being read. To be called after every round of reads.
    pub(crate) fn poll_hangup(&mut self) {
        if self.held.is_some() {
            return;
        }
        if self.hangup.is_none() && self.is_unwatched() {
            self.watch();
        }
        let Some(hangup) = &mut self.hangup else { return };
        if hangup.as_mut().poll(&mut self.signal.context()).is_pending() {
            return;
        }
        self.hangup = None;
        let Link::Up(socket) = &self.link else { return };
        match socket.take_error() {
            Ok(Some(error)) | Err(error) => self.fail(&error),
            // Another call has already taken and reported the error.
            Ok(None) => self.fail(&io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Closes the socket so that the peer gets a reset.
    pub(crate) fn reset(&mut self) {
        self.hangup = None;
        if let Link::Up(socket) = std::mem::replace(&mut self.link, Link::Down) {
            // If it fails the stream is gone already, and a reset with it.
            let _ = SockRef::from(&*socket).set_linger(Some(std::time::Duration::ZERO));
        }
    }

    /// The next report for the machine, each once. After `Closed` the stream is to be dropped.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Report> {
        let fin = self.fin == Fin::Taken;
        if self.sent > 0 || fin {
            if fin {
                self.fin = Fin::Reported;
            }
            let bytes = std::mem::take(&mut self.sent);
            self.reported += bytes as u64;
            if let Some(watched) = &mut self.watched {
                watched.sent(bytes, now);
            }
            return Some(Report::Sent { bytes, fin });
        }
        if self.confirmed > 0 {
            return Some(Report::Confirmed(std::mem::take(&mut self.confirmed)));
        }
        if let Some(reason) = self.closed {
            return Some(Report::Closed(reason));
        }
        (self.fin == Fin::Reported && self.reading == Reading::Finished)
            .then_some(Report::Closed(CloseReason::Done))
    }

    /// Whether [`Stream::report`] has something.
    pub(crate) fn has_report(&self) -> bool {
        self.sent > 0
            || self.fin == Fin::Taken
            || self.confirmed > 0
            || self.closed.is_some()
            || (self.fin == Fin::Reported && self.reading == Reading::Finished)
    }

    /// Whether something written has not been handed to the kernel.
    pub(crate) fn is_waiting(&self) -> bool {
        self.closed.is_none() && !self.waiting.is_empty()
    }

    /// Whether everything written was handed to the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        self.closed.is_some() || (self.waiting.is_empty() && self.fin != Fin::Asked)
    }

    /// Whether it never stood.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Connecting(_))
    }

    /// The number of bytes that the kernel took; `Pending` arms the signal.
    fn try_write(&mut self, bytes: &[u8]) -> Poll<usize> {
        let (Link::Up(socket), None) = (&self.link, self.held) else { return Poll::Pending };
        let taken = send(socket, &self.signal, bytes);
        self.note_taken(taken)
    }

    fn note_taken(&mut self, taken: Poll<io::Result<usize>>) -> Poll<usize> {
        match taken {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(taken)) => {
                self.sent += taken;
                Poll::Ready(taken)
            }
            Poll::Ready(Err(error)) => {
                self.fail(&error);
                Poll::Ready(0)
            }
        }
    }

    /// Begins to watch for an error that no read will find.
    fn watch(&mut self) {
        if let Link::Up(socket) = &self.link {
            let socket = Arc::clone(socket);
            self.hangup = Some(Box::pin(async move {
                // It fails only when the runtime ends, and everything with it.
                let _ = socket.ready(Interest::ERROR).await;
            }));
        }
    }

    /// Whether no read will come that would find an error, and the stream is not about to end anyway.
    fn is_unwatched(&self) -> bool {
        match self.reading {
            Reading::Held => self.closed.is_none(),
            Reading::Finished => self.closed.is_none() && !matches!(self.fin, Fin::Taken | Fin::Reported),
            Reading::Maybe | Reading::Armed => false,
        }
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::trace!(stream = %self.id, %error, "stream error");
        self.hangup = None;
        self.link = Link::Down;
        self.waiting = Chunks::default();
        self.closed.get_or_insert(reason(error));
    }
}
