//! Commands of the application.

use core::time::Duration;

use super::contents::{META_BYTES_MAX, OwnContents};
use super::gossip::{Update, UserPush};
use super::machine::{Out, Swim};
use super::member::Member;
use super::members::Slot;
use super::message::Message;
use super::status::{State, Status};
use super::suspicions::Suspicions;
use super::{Command, Info, MemberStatus, Node, Reply};
use crate::id::Id;
use crate::tag::RequestId;
use crate::time::{Now, micros};

impl Swim {
    /// Executes a command; `None` if the reply comes later.
    pub(super) fn command(
        &mut self,
        now: Now,
        request: RequestId,
        command: Command,
        out: Out<'_, '_>,
    ) -> Option<Reply> {
        if let Some(refusal) = self.refusal(&command) {
            return Some(refusal);
        }
        Some(match command {
            Command::Start => self.start_again(now, out),
            Command::Stop => self.pause(now, false, out),
            Command::Close => self.pause(now, true, out),
            Command::Join { addrs } => {
                let cx = &mut self.lower.cx(now, out);
                if cx.lower.env.is_leaving() {
                    cx.lower.env.set_leaving(false);
                    cx.lower.raise_to(cx.lower.own_incarnation().next());
                    cx.announce(None);
                }
                let joining = addrs.iter().filter(|addr| self.joining.join(cx, **addr)).count();
                if joining == 0 { Reply::NoAddress } else { Reply::Joining { addrs: joining } }
            }
            Command::Leave { timeout } => return self.leave(now, request, timeout, out),
            Command::Update { timeout } => {
                self.lower.raise_to(self.lower.own_incarnation().next());
                let waits = self.wait(now, request, timeout);
                self.lower.cx(now, out).announce(waits.then_some(request));
                return (!waits).then_some(Reply::Done);
            }
            Command::SetMeta { meta } => self.set_meta(now, &meta, out),
            Command::Broadcast { data, wait } => return self.broadcast(request, &data, wait),
            Command::ForceLeave { id, prune } => self.force_leave(now, id, prune, out),
            Command::LocalNode => {
                let own = self.lower.members.get(self.lower.env.me());
                Reply::LocalNode(Node::new(own.id(), own.contents()))
            }
            Command::Members { all } => Reply::Members(self.statuses(now, all)),
            Command::MemberCount => Reply::Count(self.lower.members.live()),
            Command::Rtt { from, to } => Reply::Rtt(self.rtt(from, to).map(micros)),
            Command::Info => Reply::Info(self.info()),
        })
    }

    /// The round-trip time between two members: measured if one is the local node, else estimated from their
    /// coordinates.
    #[must_use]
    pub fn rtt(&self, from: Option<Id>, to: Id) -> Option<Duration> {
        let (own, members) = (self.lower.env.id(), &self.lower.members);
        if from.unwrap_or(own) == to {
            return members.member(to).map(|_| Duration::ZERO);
        }
        let from = from.filter(|from| *from != own);
        let measured = members.member(to).and_then(Member::rtt).filter(|_| from.is_none());
        let place = |id: Id| {
            if id == own { Some(self.prober.coordinate()) } else { members.member(id)?.coordinate() }
        };
        match (measured, from) {
            (Some(rtt), _) => Some(rtt.estimate()),
            (None, None) => Some(self.prober.coordinate().rtt_to(&place(to)?)),
            (None, Some(from)) => Some(place(from)?.rtt_to(&place(to)?)),
        }
    }

    /// All known members, and those that failed or left in the last [`Config::keep_failed`](super::Config::keep_failed)
    /// (SA-33b), in order of ids.
    #[must_use]
    pub fn all_members(&self, now: Now) -> Vec<MemberStatus> {
        self.statuses(now, true)
    }

    /// Leaves (SA-12): broadcasts a Dead of this node with its own incarnation, which this node will not refute.
    pub(super) fn broadcast_leave(&mut self, now: Now, waiter: Option<RequestId>, out: Out<'_, '_>) {
        self.lower.env.set_leaving(true);
        let (id, me, incarnation) = (self.lower.env.id(), self.lower.env.me(), self.lower.own_incarnation());
        self.lower.members.merge(me, Status::new(incarnation, State::Left), None);
        let header = self.lower.env.last_header();
        self.lower.cx(now, out).broadcast_update(Message::Dead { header, id, incarnation }, waiter);
    }

    /// Answers the commands that wait for an update to be sent, or for room in the queue (SF-15).
    pub(super) fn end_waiting(&mut self, reply: &Reply, out: Out<'_, '_>) {
        self.lower.dissemination.end_waiting(&mut self.lower.packets, reply, out);
    }

    /// The reason why a command cannot be executed now.
    fn refusal(&self, command: &Command) -> Option<Reply> {
        let needs_start = matches!(
            command,
            Command::Join { .. } | Command::Leave { .. } | Command::Update { .. } | Command::Broadcast { .. }
        );
        let tells =
            matches!(command, Command::Update { .. } | Command::SetMeta { .. } | Command::Broadcast { .. });
        if self.lower.env.stopping().is_some() {
            Some(Reply::Stopped)
        } else if needs_start && !self.lower.env.is_running() {
            Some(Reply::NotStarted)
        } else if tells && self.lower.env.is_leaving() {
            // An Alive would contradict the Dead that this node broadcast.
            Some(Reply::HasLeft)
        } else {
            None
        }
    }

    fn leave(
        &mut self,
        now: Now,
        request: RequestId,
        timeout: Option<Duration>,
        out: Out<'_, '_>,
    ) -> Option<Reply> {
        if self.lower.env.is_leaving() {
            return Some(Reply::Done);
        }
        let waits = self.wait(now, request, timeout);
        self.broadcast_leave(now, Some(request).filter(|_| waits), out);
        self.lower.cx(now, out).gossip_now();
        (!waits).then_some(Reply::Done)
    }

    /// Registers a command that waits for its update to be sent. Returns false if there is no other member to send to.
    fn wait(&mut self, now: Now, request: RequestId, timeout: Option<Duration>) -> bool {
        let until = timeout.map(|timeout| now.mono + timeout);
        !self.lower.selection.is_empty() && self.lower.dissemination.wait(request, until)
    }

    fn set_meta(&mut self, now: Now, meta: &[u8], out: Out<'_, '_>) -> Reply {
        let addrs: Vec<_> = self.lower.env.own_contents().borrow().addrs().collect();
        let Some(contents) = OwnContents::new(&addrs, meta) else {
            return Reply::TooLarge { bytes: meta.len(), bytes_max: META_BYTES_MAX };
        };
        self.lower.env.set_own_contents(contents);
        self.lower.raise_to(self.lower.own_incarnation().next());
        self.lower.cx(now, out).announce(None);
        Reply::Done
    }

    fn broadcast(&mut self, request: RequestId, data: &[u8], wait: bool) -> Option<Reply> {
        let bytes_max = self.lower.packets.user_bytes_max();
        if data.len() > bytes_max {
            return Some(Reply::TooLarge { bytes: data.len(), bytes_max });
        }
        if self.lower.selection.is_empty() {
            return Some(Reply::Done); // SF-16: there is no other member.
        }
        let header = self.lower.env.header(self.users.next_sequence());
        let user = Message::User { header, id: header.from, data };
        let update = Update::new(self.lower.packets.codec(), &user, None);
        self.lower.dissemination.wake();
        match self.lower.packets.gossip_mut().push_user(update, request, wait) {
            UserPush::Queued => Some(Reply::Done),
            UserPush::Blocked => None,
            UserPush::Full => Some(Reply::Full),
        }
    }

    /// Marks a member as left, because an operator knows that it will not return. A member that is alive refutes it.
    /// With `prune` the member is forgotten as well.
    fn force_leave(&mut self, now: Now, id: Id, prune: bool, out: Out<'_, '_>) -> Reply {
        let cx = &mut self.lower.cx(now, out);
        let slot = cx.lower.members.find(id).filter(|slot| *slot != cx.lower.env.me());
        let was_known = cx.lower.history.set_left(id) || slot.is_some();
        if let Some(slot) = slot {
            let incarnation = cx.lower.members.get(slot).incarnation();
            self.membership.end_member(cx, slot, Status::new(incarnation, State::Left), id);
            cx.lower.history.confirm_leave(slot);
            if prune {
                self.membership.forget(cx, slot);
            }
        }
        if prune {
            cx.lower.history.forget(id);
        }
        cx.lower.history.change(id, now.mono);
        if was_known { Reply::Done } else { Reply::NoSuchMember }
    }

    fn start_again(&mut self, now: Now, out: Out<'_, '_>) -> Reply {
        if self.lower.env.is_running() {
            return Reply::AlreadyStarted;
        }
        self.begin(now, out);
        Reply::Done
    }

    /// Stops failure detection without leaving (SA-14); `close` also drops queued updates.
    fn pause(&mut self, now: Now, close: bool, out: Out<'_, '_>) -> Reply {
        self.lower.env.set_running(false);
        self.prober.stop();
        self.sync.stop();
        self.joining.stop();
        self.joining.drop_replies();
        self.lower.suspicions = Suspicions::new(self.lower.env.settings().last_probe());
        if !close && !self.lower.selection.is_empty() && !self.lower.packets.gossip().is_empty() {
            self.lower.cx(now, out).gossip_once();
        }
        self.lower.dissemination.answer_sent(&mut self.lower.packets, out);
        self.lower.packets.gossip_mut().stop();
        self.lower.dissemination.set_next(None);
        self.end_waiting(&Reply::Stopped, out);
        Reply::Done
    }

    fn statuses(&self, now: Now, all: bool) -> Vec<MemberStatus> {
        let shown = self.lower.members.iter().filter(|(_, member)| all || member.state().is_live());
        let status = |(slot, member): (Slot, &Member)| {
            let ended = self.lower.history.ended(slot);
            MemberStatus {
                node: Node::new(member.id(), member.contents()),
                state: member.state(),
                incarnation: member.incarnation(),
                rtt_micros: member.rtt().map(|rtt| micros(rtt.estimate())),
                since_micros: ended.map(|(since, _)| since.as_micros()),
                by: ended.map(|(_, by)| by),
                is_self: slot == self.lower.env.me(),
            }
        };
        let mut statuses: Vec<MemberStatus> = shown.map(status).collect();
        if all {
            statuses.extend(self.lower.history.shown(now));
            statuses.sort_by_key(|status| status.node.id);
        }
        statuses
    }

    fn info(&self) -> Info {
        let (updates, users) = self.lower.packets.gossip().len();
        Info {
            id: self.lower.env.id(),
            incarnation: self.lower.own_incarnation(),
            period: self.lower.env.period(),
            live: self.lower.members.live(),
            known: self.lower.members.len(),
            past: self.lower.history.len(),
            health: self.prober.health().score(),
            updates,
            users,
            coordinate: self.prober.coordinate(),
        }
    }
}
