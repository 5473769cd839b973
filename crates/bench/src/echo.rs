//! The measured machine: it echoes datagrams and streams.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use annulus_core::{
    Bound, Endpoints, Instant, Listener, ListenerId, Machine, Now, Outbox, Refusal, RequestId, Socket,
    SocketId, StoreReply, StreamEvent, StreamId, VisitCounter,
};

/// Its datagram socket.
pub(crate) const UDP: SocketId = SocketId::new(0);
/// Its listener.
pub(crate) const TCP: ListenerId = ListenerId::new(0);
/// How much of a stream may be in our hands: as much as is read and not yet taken by the kernel again.
const WINDOW_BYTES: usize = 256 * 1024;

/// Echoes its input.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    stopped: bool,
}

impl Machine for Echo {
    type Command = Infallible;
    type Reply = Infallible;
    type Event = ();

    fn endpoints(&self) -> Endpoints {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Endpoints {
            sockets: vec![Socket { id: UDP, name: "echo/udp", bind, broadcast: Vec::new() }],
            listeners: vec![Listener { id: TCP, name: "echo/tcp", bind, streams_max: 16 }],
            spaces: Vec::new(),
        }
    }

    fn handle_start(&mut self, _now: Now, _bound: &Bound, _out: &mut Outbox<'_, Self>) {}

    fn handle_datagram(
        &mut self,
        _now: Now,
        socket: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        out.send(socket, from, bytes);
        Ok(())
    }

    fn handle_stream(
        &mut self,
        _now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        match event {
            StreamEvent::Accepted { .. } => out.read(stream, WINDOW_BYTES),
            StreamEvent::Data(bytes) => out.write(stream, bytes),
            StreamEvent::Sent { bytes, .. } => out.read(stream, bytes),
            StreamEvent::Finished => out.finish(stream),
            StreamEvent::Connected { .. } | StreamEvent::Confirmed { .. } | StreamEvent::Closed(_) => {}
        }
        Ok(())
    }

    fn handle_stored(&mut self, _now: Now, _reply: StoreReply<'_>, _out: &mut Outbox<'_, Self>) {}

    fn handle_command(&mut self, _: Now, _: RequestId, command: Infallible, _: &mut Outbox<'_, Self>) {
        match command {}
    }

    fn handle_timeout(&mut self, _now: Now, _out: &mut Outbox<'_, Self>) {}

    fn handle_stop(&mut self, _now: Now, _out: &mut Outbox<'_, Self>) {
        self.stopped = true;
    }

    fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }

    fn counters(&self, _visit: VisitCounter<'_>) {}
}
