//! Glue between services: forwards the changes that `members` reports to the other services, as commands.
//!
//! ```text
//! members ── alive, suspected, recovered, gone, round trips ──► route
//!         ── peers beyond the broadcast domain ──► token
//!         ── known nodes, names, suspicions and deaths ──► mesh
//! token   ◄─ ring_turns.rs: the turn of the ring waits for the token, then asks the voters ─► turns
//! ```
//!
//! The metadata of a member has the ports of its other services ([`Services`]). A service gets only members that run
//! it. It gets them as ordinary commands, so it cannot distinguish the glue from an application. Nothing flows back to
//! `members`: each service can be turned off.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::{Part, PartCommand};
use crate::id::Id;
use crate::swim::{Event, Services, State, Swim, Tags};
use crate::time::{Instant, Now};
use crate::{jitterbug, pastry, w3w};

/// The timer of the next peer list for `token`.
pub(super) const TIMER: &str = "node.glue";

/// The time for which changes are collected before `token` gets a new list: many members may come or go at once.
const LIST_DELAY: Duration = Duration::from_secs(1);

/// Changes of members that were not forwarded yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Glue {
    changes: Vec<MemberChange>,
    /// When `token` gets a new list.
    list_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MemberChange {
    Alive(Id),
    Suspected(Id),
    Recovered(Id),
    Died(Id),
    Left(Id),
    Measured(Id),
}

impl Glue {
    /// Notes an event of `members`.
    pub(super) fn on_event(&mut self, event: &Event) {
        self.changes.push(match *event {
            Event::MemberJoined { id, .. } | Event::MemberUpdated { id, .. } => MemberChange::Alive(id),
            Event::MemberSuspected { id, .. } => MemberChange::Suspected(id),
            Event::MemberRecovered { id, .. } => MemberChange::Recovered(id),
            Event::MemberDied { id, .. } => MemberChange::Died(id),
            Event::MemberLeft { id, .. } => MemberChange::Left(id),
            _ => return,
        });
    }

    /// Commands for the other services; each goes to the parts of its protocol.
    pub(super) fn commands(&mut self, now: Now, members: &mut Swim) -> Vec<PartCommand> {
        self.changes.extend(members.take_measured().map(MemberChange::Measured));
        let mut commands = Vec::new();
        for change in self.changes.drain(..) {
            if matches!(change, MemberChange::Alive(_) | MemberChange::Died(_) | MemberChange::Left(_)) {
                self.list_at.get_or_insert(now.mono + LIST_DELAY);
            }
            forward(change, members, &mut commands);
        }
        if self.list_at.is_some_and(|at| at <= now.mono) {
            self.list_at = None;
            commands.push(PartCommand::Token(jitterbug::Command::Ask(token_peers(members))));
        }
        commands
    }

    /// Drops the changes: no other service runs.
    pub(super) fn clear(&mut self) {
        self.changes.clear();
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.list_at.map(|at| (at, TIMER))
    }
}

/// Whether the glue forwards changes to a part.
pub(super) fn is_fed(part: &Part) -> bool {
    matches!(part, Part::Route(_) | Part::Token(_) | Part::Mesh(_))
}

fn forward(change: MemberChange, members: &Swim, commands: &mut Vec<PartCommand>) {
    let mut route = |command| commands.push(PartCommand::Route(command));
    match change {
        MemberChange::Alive(id) => {
            let Some((ip, services)) = listening(members, id) else { return };
            if let Some(port) = services.route {
                route(pastry::Command::MemberAlive { id, addr: SocketAddr::new(ip, port) });
            }
            if let (Some(_), IpAddr::V4(ip)) = (services.mesh, ip) {
                commands.push(PartCommand::Mesh(w3w::Command::AddKnown { ip }));
            }
            commands.extend(mesh_member(members, id));
            commands.extend(token_reach(members, id, jitterbug::Command::MemberReachable));
        }
        MemberChange::Suspected(id) => {
            route(pastry::Command::MemberSuspected(id));
            commands.push(mesh_presence(id, w3w::Presence::Suspected));
            commands.extend(token_reach(members, id, jitterbug::Command::MemberUnreachable));
        }
        MemberChange::Recovered(id) => {
            route(pastry::Command::MemberRecovered(id));
            commands.extend(mesh_member(members, id));
            commands.extend(token_reach(members, id, jitterbug::Command::MemberReachable));
        }
        MemberChange::Died(id) => {
            route(pastry::Command::MemberFailed(id));
            commands.push(mesh_presence(id, w3w::Presence::Dead));
            commands.extend(token_reach(members, id, jitterbug::Command::MemberUnreachable));
        }
        MemberChange::Left(id) => {
            route(pastry::Command::MemberLeft(id));
            commands.push(mesh_presence(id, w3w::Presence::Left));
        }
        MemberChange::Measured(id) => {
            let Some((ip, services)) = listening(members, id) else { return };
            if let (Some(port), Some(rtt)) = (services.route, members.rtt(None, id)) {
                route(pastry::Command::MemberRtt { id, addr: SocketAddr::new(ip, port), rtt });
            }
        }
    }
}

/// Whether a member is reachable. If it had the token and is not, the ring starts an election at once; a live holder
/// denies it (TU-40). A holder that reaches less than half of the ring loses its hold (TU-42).
fn token_reach(
    members: &Swim,
    id: Id,
    command: impl FnOnce(IpAddr) -> jitterbug::Command<jitterbug::Set>,
) -> Option<PartCommand> {
    let member = members.members().member(id).filter(|_| id != members.id())?;
    Some(PartCommand::Token(command(member.addr().ip())))
}

/// The report of a live member for `mesh`: its name, its address, and whether it knows letters.
fn mesh_member(members: &Swim, id: Id) -> Option<PartCommand> {
    let (ip, services) = listening(members, id)?;
    let nid = services.nid.as_ref()?.parse().ok()?;
    let name = Tags::decode(members.members().member(id)?.contents().meta()).ok()?.name;
    let ip = if let IpAddr::V4(ip) = ip { Some(ip) } else { None };
    let (presence, knows_letters) = (w3w::Presence::Alive, services.letters);
    Some(PartCommand::Mesh(w3w::Command::Member { nid, name, ip, presence, knows_letters }))
}

/// The report of a member's presence for `mesh`. A member's id is the first half of its NID.
fn mesh_presence(id: Id, presence: w3w::Presence) -> PartCommand {
    PartCommand::Mesh(w3w::Command::MemberPresence { id, presence })
}

/// The address of a live member other than this node, and the services that listen there.
fn listening(members: &Swim, id: Id) -> Option<(IpAddr, Services)> {
    let member =
        members.members().member(id).filter(|member| id != members.id() && member.state().is_live())?;
    let tags = Tags::decode(member.contents().meta()).ok()?;
    Some((member.addr().ip(), tags.services))
}

/// The live members that run `token`.
fn token_peers(members: &Swim) -> Vec<IpAddr> {
    let ids = members.members().iter().filter(|(_, member)| member.state() == State::Alive);
    ids.filter_map(|(_, member)| listening(members, member.id()))
        .filter_map(|(ip, services)| services.token.map(|_| ip))
        .take(jitterbug::PEERS_MAX)
        .collect()
}
