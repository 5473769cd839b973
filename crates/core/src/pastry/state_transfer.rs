//! State transfer: a node of the ring sends parts of its tables to joiners and to requesters (P-29 … P-31, PA-22).
//!
//! These functions own nothing; they work on the context.

use super::contact::Contact;
use super::lower::Cx;
use super::message::{About, Body, Envelope, Message, MessageId, Wanted};

/// The number of a transmission whose acknowledgement is not tracked.
pub(super) const UNTRACKED: u64 = u64::MAX;

/// A join message, whose key is the joiner's id (P-28, PA-41).
pub(super) fn join_message(id: MessageId, joiner: Contact, ttl: u8, lifetime_millis: u32) -> Message {
    let (attempt, key, to_node, hops, body) = (0, joiner.id, false, 0, Body::Join);
    let envelope = Envelope { id, attempt, key, to_node, origin: joiner, ttl, hops, lifetime_millis, body };
    Message::Route { transmission: UNTRACKED, envelope }
}

/// Answers a request for parts of the tables.
pub(super) fn answer_request(cx: &mut Cx<'_, '_>, from: Contact, token: u32, wanted: Wanted) {
    cx.count().requests_answered += 1;
    let (about, versions) = (About::Request { token }, cx.tables().versions());
    let state = Message::State { about, versions, tables: cx.tables().part(&wanted) };
    cx.send(from.addr, &state);
}

/// Sends a joiner the rows of the routing table that suit it and that no earlier hop sent. The first node adds its
/// neighbourhood set (P-30), the last one its leaf set (P-31).
pub(super) fn send_join_state(cx: &mut Cx<'_, '_>, envelope: &Envelope, last: bool) {
    let joiner = envelope.origin;
    let wanted = Wanted {
        leaf_set: last,
        neighbourhood: envelope.hops == 0,
        rows: cx.tables().rows_from(joiner.id, envelope.hops),
        cell: None,
    };
    let about = About::Join { id: envelope.id, hop: envelope.hops, last };
    let state = Message::State { about, versions: cx.tables().versions(), tables: cx.tables().part(&wanted) };
    cx.send(joiner.addr, &state);
    if last {
        check_id_conflict(cx, joiner);
    }
}

/// Forwards the join to the node that is known under the joiner's id at another address, so that it can object (PA-22).
pub(super) fn check_id_conflict(cx: &mut Cx<'_, '_>, joiner: Contact) {
    let Some(known) = cx.tables().contact(joiner.id).filter(|known| known.addr != joiner.addr) else {
        return;
    };
    let id = cx.lower.env.next_message_id();
    cx.send(known.addr, &join_message(id, joiner, 1, 0));
}

/// Objects to a joiner that has this node's id (PA-22).
pub(super) fn reject_duplicate_id(cx: &mut Cx<'_, '_>, joiner: Contact) {
    if joiner.addr != cx.own().addr {
        cx.send(joiner.addr, &Message::Refuse);
    }
}
