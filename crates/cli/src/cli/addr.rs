//! Addresses of nodes as people write them.

use std::net::{SocketAddr, ToSocketAddrs};

use super::UsageError;

/// Resolves these to addresses: a name may have several.
pub(super) fn look_up(texts: &[String]) -> Result<Vec<SocketAddr>, UsageError> {
    let mut addrs = Vec::new();
    for text in texts {
        let found = text.to_socket_addrs().map_err(|_| UsageError(unknown(text)))?;
        addrs.extend(found);
    }
    Ok(addrs)
}

fn unknown(text: &str) -> String {
    format!("{text:?} is no address of a node: give IP:PORT or NAME:PORT, such as 10.0.0.7:7946")
}
