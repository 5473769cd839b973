//! A listener: accepts connections up to its limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annulus_core::{Instant, ListenerId};
use tokio::net::{TcpListener, TcpStream};

use crate::bind;
use crate::error::{BindError, Place, is_exhausted};
use crate::options::Options;
use crate::ready::{Ready, Signal, Token};

/// The pause of a listener when the system is out of descriptors. The connection stays at the head of the accept
/// queue, so a retry at once would spin.
const REST: Duration = Duration::from_millis(100);

/// One listener.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The id that the machine gave it.
    pub(crate) id: ListenerId,
    /// Its waker.
    pub(crate) signal: Signal,
    /// Our end of every stream that is accepted, if it is the same for all.
    pub(crate) known: Option<SocketAddr>,
    /// Accepted streams that live.
    pub(crate) streams: usize,
    /// The limit of streams.
    pub(crate) streams_max: usize,
    /// It rests until then.
    pub(crate) resting: Option<Instant>,
    socket: TcpListener,
}

impl Listener {
    /// Binds a declared listener as number `index`; returns the bound address.
    pub(crate) fn bind(
        declared: &annulus_core::Listener,
        index: usize,
        options: &Options,
        ready: &Arc<Ready>,
    ) -> Result<(Self, SocketAddr), BindError> {
        let failed = |error| {
            BindError::new(Place { name: declared.name, address: declared.bind, protocol: "tcp" }, error)
        };
        let socket = bind::listener(declared.bind, options).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        let signal = Signal::new(ready, Token::Listener(index));
        let (id, streams_max) = (declared.id, declared.streams_max);
        let known = Some(local).filter(|local| !local.ip().is_unspecified());
        Ok((Self { id, signal, known, streams: 0, streams_max, resting: None, socket }, local))
    }

    /// The next stream; `Pending` arms the signal, or begins a rest.
    ///
    /// # Errors
    /// If the system could not accept one; there may be others behind it.
    pub(crate) fn accept(&mut self, now: Instant) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        if self.resting.is_some_and(|until| now < until) {
            return Poll::Pending;
        }
        self.resting = None;
        let accepted = self.socket.poll_accept(&mut self.signal.context());
        if let Poll::Ready(Err(error)) = &accepted
            && is_exhausted(error)
        {
            self.resting = Some(now + REST);
        }
        accepted
    }
}
