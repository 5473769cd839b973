//! What the parts of a node tell each other: `members` knows who is there, and the others need not find out again.
//!
//! ```text
//! members ── alive, suspected, recovered, gone, round trips ──► route
//!         ── who else takes turns, beyond the broadcast domain ──► token
//!         ── known nodes ──► mesh
//! ```
//!
//! A member tells in its metadata where its other services listen ([`Services`]); who does not run a service is not
//! named to it. What is told goes in as commands of the part it is told to, so that a part cannot tell the glue from
//! an application. Nothing is told the other way: each service can be turned off.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::{Part, PartCommand};
use crate::id::Id;
use crate::swim::{Event, Services, State, Swim, Tags};
use crate::time::{Instant, Now};
use crate::{jitterbug, pastry, w3w};

/// The timer that collects whom `token` is to ask.
pub(super) const TIMER: &str = "node.glue";

/// How long changes are collected before `token` gets a new list: members come and go in crowds.
const ASK_DELAY: Duration = Duration::from_secs(1);

/// What was heard of members and not yet told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Glue {
    heard: Vec<News>,
    /// When `token` gets a new list.
    ask_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum News {
    Alive(Id),
    Suspected(Id),
    Recovered(Id),
    Died(Id),
    Left(Id),
    Measured(Id),
}

impl Glue {
    /// Listens to what `members` tells the application.
    pub(super) fn hear(&mut self, event: &Event) {
        self.heard.push(match *event {
            Event::MemberJoined { id, .. } | Event::MemberUpdated { id, .. } => News::Alive(id),
            Event::MemberSuspected { id, .. } => News::Suspected(id),
            Event::MemberRecovered { id, .. } => News::Recovered(id),
            Event::MemberDied { id, .. } => News::Died(id),
            Event::MemberLeft { id, .. } => News::Left(id),
            _ => return,
        });
    }

    /// What `members` knows and the other parts do not yet; each command goes to the parts of its protocol.
    pub(super) fn commands(&mut self, now: Now, members: &mut Swim) -> Vec<PartCommand> {
        self.heard.extend(members.take_measured().map(News::Measured));
        let mut commands = Vec::new();
        for news in self.heard.drain(..) {
            if matches!(news, News::Alive(_) | News::Died(_) | News::Left(_)) {
                self.ask_at.get_or_insert(now.mono + ASK_DELAY);
            }
            tell(news, members, &mut commands);
        }
        if self.ask_at.is_some_and(|at| at <= now.mono) {
            self.ask_at = None;
            commands.push(PartCommand::Token(jitterbug::Command::Ask(askable(members))));
        }
        commands
    }

    /// There is nobody to tell.
    pub(super) fn forget(&mut self) {
        self.heard.clear();
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.ask_at.map(|at| (at, TIMER))
    }
}

/// Whether a part listens to the glue.
pub(super) fn is_fed(part: &Part) -> bool {
    matches!(part, Part::Route(_) | Part::Token(_) | Part::Mesh(_))
}

fn tell(news: News, members: &Swim, commands: &mut Vec<PartCommand>) {
    let mut route = |command| commands.push(PartCommand::Route(command));
    match news {
        News::Alive(id) => {
            let Some((ip, services)) = listening(members, id) else { return };
            if let Some(port) = services.route {
                route(pastry::Command::MemberAlive { id, addr: SocketAddr::new(ip, port) });
            }
            if let (Some(_), IpAddr::V4(ip)) = (services.mesh, ip) {
                commands.push(PartCommand::Mesh(w3w::Command::AddKnown { ip }));
            }
        }
        News::Suspected(id) => route(pastry::Command::MemberSuspected(id)),
        News::Recovered(id) => route(pastry::Command::MemberRecovered(id)),
        News::Died(id) => route(pastry::Command::MemberFailed(id)),
        News::Left(id) => route(pastry::Command::MemberLeft(id)),
        News::Measured(id) => {
            let Some((ip, services)) = listening(members, id) else { return };
            if let (Some(port), Some(rtt)) = (services.route, members.rtt(None, id)) {
                route(pastry::Command::MemberRtt { id, addr: SocketAddr::new(ip, port), rtt });
            }
        }
    }
}

/// Where a living member other than ourselves is, and what listens there.
fn listening(members: &Swim, id: Id) -> Option<(IpAddr, Services)> {
    let member =
        members.members().member(id).filter(|member| id != members.id() && member.state().is_live())?;
    let tags = Tags::decode(member.contents().meta()).ok()?;
    Some((member.addr().ip(), tags.services))
}

/// The living members that take turns.
fn askable(members: &Swim) -> Vec<IpAddr> {
    let ids = members.members().iter().filter(|(_, member)| member.state() == State::Alive);
    ids.filter_map(|(_, member)| listening(members, member.id()))
        .filter_map(|(ip, services)| services.token.map(|_| ip))
        .take(jitterbug::PEERS_MAX)
        .collect()
}
