//! What the application asks.

use core::time::Duration;

use super::contents::{META_BYTES_MAX, OwnContents};
use super::deadlines::Deadlines;
use super::gossip::{Rumour, UserPush};
use super::machine::{Out, Swim, Waiting};
use super::member::Member;
use super::message::{Header, Message};
use super::standing::{Standing, State};
use super::suspicions::Suspicions;
use super::{Command, Info, MemberStatus, Node, Reply};
use crate::id::Id;
use crate::tag::RequestId;
use crate::time::{Now, micros};

impl Swim {
    /// Does what is asked; `None` if the answer comes later.
    pub(super) fn command(
        &mut self,
        now: Now,
        request: RequestId,
        command: Command,
        out: Out<'_, '_>,
    ) -> Option<Reply> {
        let needs_start = matches!(
            command,
            Command::Join { .. } | Command::Leave { .. } | Command::Update { .. } | Command::Broadcast { .. }
        );
        if self.stopping.is_some() {
            return Some(Reply::Stopped);
        }
        if needs_start && !self.running {
            return Some(Reply::NotStarted);
        }
        let tells =
            matches!(command, Command::Update { .. } | Command::SetMeta { .. } | Command::Broadcast { .. });
        if tells && self.leaving {
            // Whatever it told of itself would contradict its goodbye.
            return Some(Reply::HasLeft);
        }
        Some(match command {
            Command::Start => self.start_again(now, out),
            Command::Stop => self.pause(false, out),
            Command::Close => self.pause(true, out),
            Command::Join { addrs } => {
                if self.leaving {
                    self.come_back();
                }
                let joining = addrs.iter().filter(|addr| self.join(now, **addr, out)).count();
                if joining == 0 { Reply::NoAddress } else { Reply::Joining { addrs: joining } }
            }
            Command::Leave { timeout } => return self.leave(now, request, timeout, out),
            Command::Update { timeout } => {
                self.raise_to(self.members.get(self.me).incarnation().next());
                if !self.wait(now, request, timeout) {
                    self.announce(None);
                    return Some(Reply::Done);
                }
                self.announce(Some(request));
                return None;
            }
            Command::SetMeta { meta } => self.set_meta(&meta),
            Command::Broadcast { data, wait } => return self.broadcast(request, &data, wait),
            Command::ForceLeave { id } => self.force_leave(now, id, out),
            Command::LocalNode => Reply::LocalNode(node_of(self.members.get(self.me))),
            Command::Members { all } => Reply::Members(self.statuses(all)),
            Command::MemberCount => Reply::Count(self.members.live()),
            Command::Rtt { from, to } => Reply::Rtt(self.rtt(from, to).map(micros)),
            Command::Info => Reply::Info(self.info()),
        })
    }

    /// The round-trip time between two members: measured if one is us, else by their coordinates.
    #[must_use]
    pub fn rtt(&self, from: Option<Id>, to: Id) -> Option<Duration> {
        if from.unwrap_or(self.id) == to {
            return self.members.member(to).map(|_| Duration::ZERO);
        }
        let from = from.filter(|from| *from != self.id);
        let measured = self.members.member(to).and_then(Member::rtt).filter(|_| from.is_none());
        let place = |id: Id| {
            if id == self.id { Some(self.coordinate) } else { self.members.member(id)?.coordinate() }
        };
        match (measured, from) {
            (Some(rtt), _) => Some(rtt.estimate()),
            (None, None) => Some(self.coordinate.rtt_to(&place(to)?)),
            (None, Some(from)) => Some(place(from)?.rtt_to(&place(to)?)),
        }
    }

    /// Says goodbye (SA-12): a Dead of our own, of our own incarnation, that we shall not contradict.
    pub(super) fn say_goodbye(&mut self, waiter: Option<RequestId>) {
        self.leaving = true;
        let incarnation = self.members.get(self.me).incarnation();
        self.members.merge(self.me, Standing::new(incarnation, State::Left), None);
        let header = Header { from: self.id, sequence: self.sequence };
        self.spread(Message::Dead { header, id: self.id, incarnation }, waiter);
    }

    /// Ends what waits: for a rumour to be handed on, or for room in the queue (SF-15).
    pub(super) fn end_waiting(&mut self, reply: &Reply, out: Out<'_, '_>) {
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.request);
        for request in waiting.chain(self.mail.gossip.turn_away()) {
            out.reply(request, reply.clone());
        }
    }

    fn leave(
        &mut self,
        now: Now,
        request: RequestId,
        timeout: Option<Duration>,
        out: Out<'_, '_>,
    ) -> Option<Reply> {
        if self.leaving {
            return Some(Reply::Done);
        }
        let waits = self.wait(now, request, timeout);
        self.say_goodbye(Some(request).filter(|_| waits));
        self.gossip_now(now, out);
        (!waits).then_some(Reply::Done)
    }

    /// Puts a command among those that wait for their rumour to be handed on; false if nobody is there to hear it.
    fn wait(&mut self, now: Now, request: RequestId, timeout: Option<Duration>) -> bool {
        let waits = !self.selection.is_empty() && self.waiting.len() < self.waiting_max;
        if waits {
            self.waiting.push(Waiting { request, until: timeout.map(|timeout| now.mono + timeout) });
        }
        waits
    }

    fn come_back(&mut self) {
        self.leaving = false;
        self.raise_to(self.members.get(self.me).incarnation().next());
        self.announce(None);
    }

    fn set_meta(&mut self, meta: &[u8]) -> Reply {
        let addrs: Vec<_> = self.own_contents.borrow().addrs().collect();
        let Some(contents) = OwnContents::new(&addrs, meta) else {
            return Reply::TooLarge { bytes: meta.len(), bytes_max: META_BYTES_MAX };
        };
        self.own_contents = contents;
        self.raise_to(self.members.get(self.me).incarnation().next());
        self.announce(None);
        Reply::Done
    }

    fn broadcast(&mut self, request: RequestId, data: &[u8], wait: bool) -> Option<Reply> {
        let bytes_max = self.mail.user_bytes_max();
        if data.len() > bytes_max {
            return Some(Reply::TooLarge { bytes: data.len(), bytes_max });
        }
        if self.selection.is_empty() {
            return Some(Reply::Done); // SF-16: nobody is there to hear it.
        }
        self.user_sequence = self.user_sequence.next();
        let header = Header { from: self.id, sequence: self.user_sequence };
        let rumour = Rumour::new(&Message::User { header, id: self.id, data }, None);
        self.wake_gossip();
        match self.mail.gossip.push_user(rumour, request, wait) {
            UserPush::Queued => Some(Reply::Done),
            UserPush::Blocked => None,
            UserPush::Full => Some(Reply::Full),
        }
    }

    /// An operator knows that a node will not come back: as if it had said goodbye. A living one contradicts.
    fn force_leave(&mut self, now: Now, id: Id, out: Out<'_, '_>) -> Reply {
        let forgotten = self.past.remove(id);
        self.keeper.change(id, now.mono);
        match self.members.find(id) {
            Some(slot) if slot != self.me => {
                let incarnation = self.members.get(slot).incarnation();
                let header = Header { from: id, sequence: self.sequence };
                self.dead(now, slot, Message::Dead { header, id, incarnation }, out);
                Reply::Done
            }
            _ if forgotten => Reply::Done,
            _ => Reply::NoSuchMember,
        }
    }

    fn start_again(&mut self, now: Now, out: Out<'_, '_>) -> Reply {
        if self.running {
            return Reply::AlreadyStarted;
        }
        self.begin(now, out);
        Reply::Done
    }

    /// Stops to detect failures without leaving (SA-14); `close` also drops what waits to be sent.
    fn pause(&mut self, close: bool, out: Out<'_, '_>) -> Reply {
        self.running = false;
        (self.next_tick, self.next_sync, self.next_retry) = (None, None, None);
        self.probes.take();
        self.joins.clear();
        self.suspicions = Suspicions::default();
        self.greetings = Deadlines::default();
        if !close && !self.selection.is_empty() && !self.mail.gossip.is_empty() {
            self.gossip_once(out);
        }
        self.answer_handed(out);
        self.mail.gossip.stop();
        self.next_gossip = None;
        self.end_waiting(&Reply::Stopped, out);
        Reply::Done
    }

    fn statuses(&self, all: bool) -> Vec<MemberStatus> {
        let shown = self.members.iter().filter(|(_, member)| all || member.state().is_live());
        let status = |(slot, member): (_, &Member)| MemberStatus {
            node: node_of(member),
            state: member.state(),
            incarnation: member.incarnation(),
            rtt_micros: member.rtt().map(|rtt| micros(rtt.estimate())),
            is_self: slot == self.me,
        };
        shown.map(status).collect()
    }

    fn info(&self) -> Info {
        let (rumours, users) = self.mail.gossip.len();
        Info {
            id: self.id,
            incarnation: self.members.get(self.me).incarnation(),
            period: self.period,
            live: self.members.live(),
            known: self.members.len(),
            past: self.past.len(),
            health: self.health.score(),
            rumours,
            users,
            coordinate: self.coordinate,
        }
    }
}

fn node_of(member: &Member) -> Node {
    let contents = member.contents();
    Node { id: member.id(), addrs: contents.addrs().collect(), meta: contents.meta().to_vec() }
}
