//! The known nodes of the mesh as a file that people can read and change: the document's JSON, in the data directory.
//!
//! The store keeps them too. The file is there because the document has one: a node can be given the nodes that
//! another one knows by copying it.

use std::io;
use std::path::{Path, PathBuf};

use annulus_core::node::{Command, Node, PartCommand, PartEvent, Reply};
use annulus_core::w3w::{self, KnownNode, known_nodes_from_json, known_nodes_to_json};
use annulus_net::Handle;

use crate::data_dir::{read_or_set_aside, replace};
use crate::services;

/// The name of the file.
const FILE: &str = "known_nodes.json";

/// The file.
#[derive(Debug)]
pub(crate) struct KnownNodes {
    dir: PathBuf,
}

impl KnownNodes {
    /// The file in this directory.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Reads the file. A file that cannot be parsed is renamed, so that a person can mend it; the node starts without
    /// it (MA-56).
    pub(crate) fn read(dir: Option<&Path>) -> Vec<KnownNode> {
        let Some(file) = dir.map(|dir| dir.join(FILE)) else { return Vec::new() };
        read_or_set_aside(&file, known_nodes_from_json).unwrap_or_default()
    }

    /// Replaces the file; a crash leaves the old one or the new one.
    fn write(&self, nodes: &[KnownNode]) -> io::Result<()> {
        replace(&self.dir, &self.dir.join(FILE), &known_nodes_to_json(nodes))
    }
}

/// Writes the file at the start and after each change of the known nodes, until the node ends.
pub(crate) async fn keep(node: Handle<Node>, file: Option<KnownNodes>) {
    let mut events = node.events();
    // Without the service there is nothing to keep.
    if node.bound().of(services::MESH).sockets.is_empty() {
        return;
    }
    let Some(mut file) = write_now(&node, file).await else { return };
    while let Some(event) = events.next().await {
        let PartEvent::Mesh(w3w::Event::Started { .. } | w3w::Event::KnownNodesChanged { .. }) = &event.event
        else {
            continue;
        };
        match write_now(&node, file).await {
            Some(written) => file = written,
            None => return,
        }
    }
}

/// Writes the file in a thread that may wait for the disk; `None` if the node has ended.
async fn write_now(node: &Handle<Node>, file: Option<KnownNodes>) -> Option<Option<KnownNodes>> {
    let w3w::Reply::Known(nodes) = ask(node, w3w::Command::Known).await? else { return None };
    let Some(file) = file else { return Some(None) };
    let write = move || {
        if let Err(error) = file.write(&nodes) {
            tracing::warn!(%error, "cannot write the known nodes; the store still has them");
        }
        file
    };
    tokio::task::spawn_blocking(write).await.ok().map(Some)
}

async fn ask(node: &Handle<Node>, command: w3w::Command) -> Option<w3w::Reply> {
    let command = Command { service: services::MESH, command: PartCommand::Mesh(command) };
    match node.command(command).await {
        Ok(Reply::Mesh(reply)) => Some(reply),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_file_is_the_documents_and_a_spoilt_one_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(KnownNodes::read(Some(dir.path())), []);
        let nodes = [KnownNode { ip: Ipv4Addr::new(10, 0, 0, 7), seen_at: 1_700_000_000 }];
        KnownNodes::new(dir.path()).write(&nodes).unwrap();
        let file = dir.path().join(FILE);
        assert_eq!(fs::read_to_string(&file).unwrap(), r#"{"10.0.0.7": "1700000000"}"#);
        assert_eq!(KnownNodes::read(Some(dir.path())), nodes);
        fs::write(&file, "{").unwrap();
        assert_eq!(KnownNodes::read(Some(dir.path())), []);
        assert_eq!(fs::read_to_string(dir.path().join("known_nodes.bad")).unwrap(), "{");
        assert!(!file.exists());
    }
}
