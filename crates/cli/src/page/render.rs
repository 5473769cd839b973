//! A look into a node, as the JSON of the page.

use annulus::core::jitterbug::Edge;
use annulus::core::pastry::{CellStatus, PeerStatus};
use annulus::core::w3w::{self, Nid, SentState};
use serde_json::{Value, json};

use super::Look;
use crate::agent::http::milliseconds;

/// How many messages of an outbox are shown: those that are under way, and the last others.
const MAIL_MAX: usize = 12;

/// The ring id of a node in the mesh.
pub(crate) fn id_of(nid: Nid) -> String {
    nid.id().to_string()
}

/// The peers of a node in the mesh, by their ring ids.
pub(crate) fn peers_of(look: &Look) -> Vec<String> {
    look.peers.iter().map(|peer| id_of(peer.nid)).collect()
}

/// The edges of the generation graph.
pub(crate) fn edges_of(edges: &[Edge]) -> Value {
    serde_json::to_value(edges).unwrap_or_default()
}

/// The open messages of a node, newest first, and then the last others.
pub(crate) fn mail_of(from: &str, look: &Look) -> Vec<Value> {
    let is_open =
        |line: &&w3w::Sent| matches!(line.state, SentState::Waiting | SentState::UnderWay | SentState::Given);
    let (open, done): (Vec<_>, Vec<_>) = look.outbox.iter().rev().partition(is_open);
    let line = |line: &w3w::Sent| {
        json!({
            "from": from,
            "to": id_of(line.to),
            "number": line.number,
            "key": line.key.to_string(),
            "size": line.size,
            "state": line.state,
            "why": line.why,
            "custodians": line.custodians.iter().flatten().map(|nid| id_of(*nid)).collect::<Vec<_>>(),
            "sent_at": line.sent_at,
            "delivered_at": line.delivered_at,
        })
    };
    open.into_iter().chain(done).take(MAIL_MAX).map(line).collect()
}

/// Everything inside a node, for the inspector.
pub(crate) fn detail(look: &Look) -> Value {
    let tables = look.tables.as_ref().map(|tables| {
        json!({
            "active": tables.active,
            "clockwise": tables.clockwise.iter().map(peer).collect::<Vec<_>>(),
            "counter_clockwise": tables.counter_clockwise.iter().map(peer).collect::<Vec<_>>(),
            "cells": tables.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    });
    let token = look.token.as_ref().map(|token| {
        json!({
            "state": token.state,
            "host_id": token.host_id,
            "token_id": token.token_id,
            "nodes": token.nodes.len(),
            "fence": token.fence,
            "tenures": token.tenures,
            "loop_ms": token.loop_micros.map(milliseconds),
            "availability": token.availability,
        })
    });
    let mesh = look.mesh.as_ref().map(|mesh| {
        json!({
            "peers": peers_of(look),
            "inbox": mesh.inbox,
            "outbox": mesh.outbox,
            "waiting": mesh.waiting,
            "bytes": mesh.bytes,
        })
    });
    let members: Vec<Value> = (look.members.iter())
        .map(|member| {
            let rtt_ms = member.rtt_micros.map(milliseconds);
            json!({ "id": member.node.id, "state": member.state, "rtt_ms": rtt_ms })
        })
        .collect();
    json!({ "members": members, "tables": tables, "token": token, "mesh": mesh })
}

fn peer(status: &PeerStatus) -> Value {
    let rtt_ms = status.rtt_micros.map(|micros| milliseconds(micros.into()));
    json!({ "id": status.contact.id, "rtt_ms": rtt_ms, "suspected": status.suspected })
}

fn cell(status: &CellStatus) -> Value {
    let mut cell = peer(&status.peer);
    cell["row"] = status.row.into();
    cell["column"] = status.column.into();
    cell
}
