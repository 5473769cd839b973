//! System calls of streams: non-blocking connect, read and write, and the meaning of errors.

use std::future::Future;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Poll, ready};

use annulus_core::CloseReason;
use socket2::SockRef;
use tokio::io::{Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::ready::Signal;

/// A stream on its way.
pub(crate) type Connect = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The kernel's figures of a stream; `None` if it has none.
#[cfg(target_os = "linux")]
pub(crate) fn seen(socket: &TcpStream, is_opened: bool) -> Option<annulus_core::Seen> {
    use std::os::fd::AsFd as _;

    let info = annulus_sys::tcp_info(socket.as_fd()).ok()?;
    Some(annulus_core::Seen {
        // The SYN of the opener counts as a byte.
        acknowledged: info.bytes_acked.saturating_sub(u64::from(is_opened)),
        silent_for: info.last_ack_received,
        in_flight: info.segments_in_flight > 0,
        probes: info.probes,
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn seen(_: &TcpStream, _: bool) -> Option<annulus_core::Seen> {
    None
}

/// Begins to connect.
pub(crate) fn connect(to: SocketAddr, from: Option<IpAddr>) -> io::Result<Connect> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(from) = from {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    Ok(Box::pin(socket.connect(to)))
}

/// Whether bytes, or the end (zero), could be read; nothing is taken.
pub(crate) fn peek(socket: &TcpStream, signal: &Signal) -> Poll<io::Result<usize>> {
    let mut byte = [0];
    socket.poll_peek(&mut signal.context(), &mut ReadBuf::new(&mut byte))
}

/// Reads. Like tokio's own read, it takes a short read as the sign that the kernel is empty and saves the call that
/// would find it so.
pub(crate) fn receive(socket: &TcpStream, signal: &Signal, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    transfer(Interest::READABLE, socket, signal, buffer.len(), |mut socket| socket.read(buffer))
}

/// Writes, likewise.
pub(crate) fn send(socket: &TcpStream, signal: &Signal, bytes: &[u8]) -> Poll<io::Result<usize>> {
    transfer(Interest::WRITABLE, socket, signal, bytes.len(), |mut socket| socket.write(bytes))
}

/// Writes several pieces, likewise.
pub(crate) fn send_vectored(
    socket: &TcpStream,
    signal: &Signal,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let bytes_max = slices.iter().map(|slice| slice.len()).sum();
    transfer(Interest::WRITABLE, socket, signal, bytes_max, |mut socket| socket.write_vectored(slices))
}

fn transfer(
    interest: Interest,
    socket: &TcpStream,
    signal: &Signal,
    bytes_max: usize,
    mut call: impl FnMut(&socket2::Socket) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let ready = if interest.is_readable() {
            socket.poll_read_ready(&mut signal.context())
        } else {
            socket.poll_write_ready(&mut signal.context())
        };
        if let Err(error) = ready!(ready) {
            return Poll::Ready(Err(error));
        }
        let mut short = None;
        let done = socket.try_io(interest, || match call(&SockRef::from(socket))? {
            bytes if 0 < bytes && bytes < bytes_max => {
                short = Some(bytes);
                Err(io::ErrorKind::WouldBlock.into())
            }
            bytes => Ok(bytes),
        });
        match (short, done) {
            (Some(bytes), _) => return Poll::Ready(Ok(bytes)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (None, Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            (None, done) => return Poll::Ready(done),
        }
    }
}

/// The close reason for an error of the system.
pub(crate) fn reason(error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CloseReason::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
            CloseReason::Unreachable
        }
        io::ErrorKind::TimedOut => CloseReason::TimedOut,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => CloseReason::Reset,
        _ => CloseReason::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_a_meaning() {
        let meaning = |kind: io::ErrorKind| reason(&kind.into());
        assert_eq!(meaning(io::ErrorKind::ConnectionRefused), CloseReason::Refused);
        assert_eq!(meaning(io::ErrorKind::HostUnreachable), CloseReason::Unreachable);
        assert_eq!(meaning(io::ErrorKind::NetworkUnreachable), CloseReason::Unreachable);
        assert_eq!(meaning(io::ErrorKind::TimedOut), CloseReason::TimedOut);
        assert_eq!(meaning(io::ErrorKind::BrokenPipe), CloseReason::Reset);
        assert_eq!(meaning(io::ErrorKind::AddrNotAvailable), CloseReason::Failed);
        assert_eq!(reason(&io::Error::from_raw_os_error(24)), CloseReason::Failed, "too many open files");
    }
}
