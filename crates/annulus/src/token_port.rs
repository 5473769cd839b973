//! The TCP port of `token` across restarts: the ring knows this node by it, so a restarted node binds it again if it
//! is free.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use annulus_core::Space;
use annulus_core::jitterbug::{IDENTITY_KEY, Identity, SPACE};
use annulus_net::Store;

use crate::services;

/// The port to listen on: that of the last run, if it is free; 0 if there is none or another process uses it.
pub(crate) fn token_port(store: &Store, addr: IpAddr) -> u16 {
    let space = Space { id: SPACE.in_service(services::TOKEN), name: "token" };
    // If the store cannot be opened, the later open of the driver reports the error.
    let kept = store.read(&space, IDENTITY_KEY).ok().flatten();
    let Some(port) = kept.and_then(|bytes| Identity::from_bytes(&bytes)).map(|identity| identity.tcp_port)
    else {
        return 0;
    };
    match TcpListener::bind(SocketAddr::new(addr, port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                port,
                "another process uses the port that token had: it takes a new one, and the ring learns of it"
            );
            0
        }
        // The later bind of the driver reports any other error.
        _ => port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_store_there_is_no_port() {
        assert_eq!(token_port(&Store::Memory, IpAddr::from([127, 0, 0, 1])), 0);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store.redb");
        #[cfg(feature = "disk")]
        assert_eq!(token_port(&Store::File(file.clone()), IpAddr::from([127, 0, 0, 1])), 0);
        assert!(!file.exists(), "looking makes nothing");
    }
}
