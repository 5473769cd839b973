//! The record of a member, as messages for another node.

use super::member::Member;
use super::message::{Header, Message, NodeView};
use super::sequence::Sequence;
use super::status::{State, Status};
use crate::id::Id;

/// Messages that describe a member to a node that may not know it; `by` is the accuser, if there is one.
pub(super) fn record(member: &Member, by: Id) -> impl Iterator<Item = Message<'_>> {
    let (id, status) = (member.id(), member.status());
    let header = Header { from: id, sequence: Sequence::default() };
    let node = NodeView { id, contents: member.contents() };
    let alive = Message::Alive { header, node, incarnation: member.contents_incarnation() };
    [Some(alive).filter(|_| status.state.is_live()), accusation(id, status, by)].into_iter().flatten()
}

/// The record of a member, with a death as a suspicion. The other side of a healed partition must not end live members,
/// and a node that is really dead does not refute.
pub(super) fn softened(member: &Member, me: Id) -> impl Iterator<Item = Message<'_>> {
    let (id, status) = (member.id(), member.status());
    let soft = (status.state == State::Dead)
        .then(|| accusation(id, Status { state: State::Suspect, ..status }, me))
        .flatten();
    let plain = soft.is_none().then(|| record(member, me));
    soft.into_iter().chain(plain.into_iter().flatten())
}

/// The accusation of a node, as a message; `None` for a node that is alive.
pub(super) fn accusation(id: Id, status: Status, by: Id) -> Option<Message<'static>> {
    let (incarnation, sequence) = (status.incarnation, Sequence::default());
    match status.state {
        State::Alive => None,
        State::Suspect => Some(Message::Suspect { header: Header { from: by, sequence }, id, incarnation }),
        State::Dead => {
            // SA-12: a Dead from the node itself means that it leaves; only the node itself sends that.
            Some(Message::Dead { header: Header { from: by, sequence }, id, incarnation })
        }
        State::Left => Some(Message::Dead { header: Header { from: id, sequence }, id, incarnation }),
    }
}
