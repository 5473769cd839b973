//! Sockets as the system makes them, with the options that a machine relies on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use annulus_core::KeepAlive;
use socket2::{Domain, Protocol, SockRef, TcpKeepalive, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::options::Options;

/// The most streams that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The bytes that the kernel may hold unsent for a stream. It would take megabytes, and nothing overtakes what it took;
/// with a quarter of this, on the other hand, bulk slows down to two thirds.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 512 * 1024;

/// A socket for one address. It may send to broadcast addresses, and no other socket may have its address and port.
pub(crate) fn unicast(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv4() {
        socket.set_broadcast(true)?;
    }
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// A socket that receives datagrams to a broadcast address, beside other processes of this machine.
///
/// JA-22: SO_REUSEADDR lets them share the port, and the system gives each of them a copy. SO_REUSEPORT would let
/// them share it too, but would also spread datagrams over them where it can.
pub(crate) fn broadcast(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Whether datagrams to this address go to everyone on a network of ours.
///
/// The kernel answers this without a list of interfaces: it refuses to connect a socket without `SO_BROADCAST` to a
/// broadcast address. Nothing is sent. A wrong yes would steal another node's datagrams,
/// so everything but that very error is a no.
pub(crate) fn is_broadcast(address: SocketAddr) -> bool {
    let IpAddr::V4(ip) = address.ip() else { return false };
    if ip == Ipv4Addr::BROADCAST {
        return true;
    }
    let connect = || -> io::Result<()> {
        let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.connect(&SocketAddr::from((ip, 9)).into())
    };
    connect().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A listener. SO_REUSEADDR lets a restarted node bind its port while streams of its last run linger. It does not let
/// two processes listen at once.
pub(crate) fn listener(address: SocketAddr, options: &Options) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    if INHERITED {
        tune(&socket, options)?;
    }
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Sets the options of every stream: no delay of small writes, a short queue, quick retransmission, and probes when it is idle.
///
/// A stream that Linux accepts has them from its listener, which saves seven calls for each.
pub(crate) fn tune<'s>(socket: impl Into<SockRef<'s>>, options: &Options) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsFd as _;
        // CU-20. Kernels before 6.15 do not have it and wait as they always did.
        let _ = annulus_sys::set_rto_max(socket.as_fd(), options.rto_max);
    }
    probe(socket, options.keepalive)
}

/// Has an idle stream probed.
pub(crate) fn probe<'s>(socket: impl Into<SockRef<'s>>, keepalive: KeepAlive) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(keepalive.idle)
        .with_interval(keepalive.interval)
        .with_retries(keepalive.probes);
    socket.into().set_tcp_keepalive(&keepalive)
}

/// Whether an accepted stream has the options of its listener.
pub(crate) const INHERITED: bool = cfg!(target_os = "linux");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_broadcast_addresses() {
        assert!(is_broadcast("255.255.255.255:7".parse().unwrap()));
        assert!(is_broadcast("127.255.255.255:7".parse().unwrap()));
        assert!(!is_broadcast("127.0.0.2:7".parse().unwrap()));
        assert!(!is_broadcast("192.0.2.77:7".parse().unwrap()));
        assert!(!is_broadcast("[::1]:7".parse().unwrap()));
    }
}
