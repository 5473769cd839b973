//! The two options on real sockets.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use annulus_sys::{rto_max, set_rto_max, tcp_info};

fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let opened = TcpStream::connect(listener.local_addr()?)?;
    Ok((opened, listener.accept()?.0))
}

#[test]
fn acknowledged_bytes_include_the_syn_of_the_opener() -> std::io::Result<()> {
    let (opened, accepted) = pair()?;
    for (from, to, syn) in [(&opened, &accepted, 1), (&accepted, &opened, 0)] {
        let (mut writer, mut reader) = (from, to);
        writer.write_all(&[7; 1000])?;
        reader.read_exact(&mut [0; 1000])?;
        // On loopback the acknowledgement may lag behind the data by a moment.
        while tcp_info(from.as_fd())?.bytes_acked < 1000 + syn {
            std::thread::yield_now();
        }
        let info = tcp_info(from.as_fd())?;
        assert_eq!((info.bytes_acked, info.segments_in_flight, info.probes), (1000 + syn, 0, 0));
        assert!(info.last_ack_received < Duration::from_secs(60), "{info:?}");
        assert!(info.round_trip < Duration::from_secs(60), "{info:?}");
    }
    Ok(())
}

#[test]
fn a_socket_that_is_not_tcp_is_an_error() -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    assert!(tcp_info(socket.as_fd()).is_err());
    assert!(set_rto_max(socket.as_fd(), Duration::from_secs(1)).is_err());
    assert!(rto_max(socket.as_fd()).is_err());
    Ok(())
}

#[test]
fn the_bound_on_retransmission_is_inherited_where_the_kernel_has_it() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    if set_rto_max(listener.as_fd(), Duration::from_secs(2)).is_err() {
        return Ok(()); // Linux before 6.15.
    }
    let opened = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    assert_eq!(rto_max(accepted.as_fd())?, Duration::from_secs(2));
    assert_ne!(rto_max(opened.as_fd())?, Duration::from_secs(2));
    Ok(())
}
