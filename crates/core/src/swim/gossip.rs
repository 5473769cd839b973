//! What is on its way to everybody: rumours about members, and messages of users, each with its share of a packet.

use std::collections::VecDeque;

use super::message::Message;
use super::queue::{Broadcast, BroadcastQueue, Pushed};
use super::standing::{Incarnation, Standing};
use super::wire::Coded;
use crate::id::Id;
use crate::tag::RequestId;

/// How often a node passes anything on at least, where user messages have their share. Nothing repairs a user message
/// that was missed, and what is told of a newcomer is told most often to the newcomer itself: with the usual two or four
/// times in a small group, somebody else hears of it only when tables are compared.
const TRANSMITS_LEAST: u32 = 8;

/// One rumour or user message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rumour {
    coded: Coded,
    /// About whom and what; `None` of a user message.
    about: Option<(Id, Standing)>,
    /// Who waits for it to be handed on for the first time (SA-13).
    waiter: Option<RequestId>,
}

impl Rumour {
    /// From a message; its waiter is told when it first goes out.
    pub(super) fn new(message: &Message<'_>, waiter: Option<RequestId>) -> Self {
        let incarnation = match message {
            Message::Join { incarnation, .. }
            | Message::Alive { incarnation, .. }
            | Message::Suspect { incarnation, .. }
            | Message::Dead { incarnation, .. } => *incarnation,
            _ => Incarnation::default(),
        };
        let standing = message.state().map(|state| Standing::new(incarnation, state));
        Self { coded: Coded::new(message), about: message.subject().zip(standing), waiter }
    }
}

impl Broadcast for Rumour {
    type Subject = Id;

    fn subject(&self) -> Option<Id> {
        self.about.map(|(id, _)| id)
    }

    /// Newer, or of the same age: another accuser of the same suspicion is worth telling (Lifeguard).
    fn invalidates(&self, old: &Self) -> bool {
        self.about.map(|(_, standing)| standing) >= old.about.map(|(_, standing)| standing)
    }

    fn size(&self) -> usize {
        self.coded.size()
    }
}

/// The queues, and who waits to get into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gossip {
    members: BroadcastQueue<Rumour>,
    /// User messages, if they have a share of their own; otherwise they wait among the others.
    users: BroadcastQueue<Rumour>,
    /// How much of a packet is for user messages, in percent; `None` is one queue for all.
    share: Option<u8>,
    /// What user messages have saved up of their share, in bytes: a large one must not wait for ever.
    credit: usize,
    /// How many user messages wait in a queue.
    user_count: usize,
    user_max: usize,
    /// Pushes that found the queue full, oldest first (S-98, SA-45).
    blocked: VecDeque<(RequestId, Rumour)>,
    blocked_max: usize,
}

/// What became of a user's push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserPush {
    /// It is on its way.
    Queued,
    /// It waits for room; the request is answered then.
    Blocked,
    /// There is no room even to wait.
    Full,
}

impl Gossip {
    pub(super) fn new(share: Option<u8>, user_max: usize, blocked_max: usize) -> Self {
        Self {
            members: BroadcastQueue::new(),
            users: BroadcastQueue::new(),
            share,
            credit: 0,
            user_count: 0,
            user_max,
            blocked: VecDeque::new(),
            blocked_max,
        }
    }

    /// Spreads a rumour about a member. It never waits for room: at most one per member is there (SA-45).
    pub(super) fn spread(&mut self, rumour: Rumour) -> Pushed {
        self.members.push(rumour)
    }

    /// Spreads a user message of our own, which may have to wait for room.
    pub(super) fn push_user(&mut self, rumour: Rumour, request: RequestId, wait: bool) -> UserPush {
        if self.has_room() && self.blocked.is_empty() {
            self.insert_user(rumour);
            return UserPush::Queued;
        }
        if !wait || self.blocked.len() >= self.blocked_max {
            return UserPush::Full;
        }
        self.blocked.push_back((request, rumour));
        UserPush::Blocked
    }

    /// Passes a user message of somebody else on; false if there is no room, and it ends here.
    pub(super) fn relay_user(&mut self, rumour: Rumour) -> bool {
        let room = self.has_room();
        if room {
            self.insert_user(rumour);
        }
        room
    }

    /// Appends what fits into `room` bytes of a packet; who waited for it is put into `handed`.
    pub(super) fn fill(&mut self, bytes: &mut Vec<u8>, room: usize, limit: u32, handed: &mut Vec<RequestId>) {
        let mut used = 0;
        let mut take = |rumour: &Rumour| {
            used += rumour.size();
            bytes.extend_from_slice(rumour.coded.bytes());
            handed.extend(rumour.waiter);
        };
        match self.share {
            None => self.members.select(room, limit, &mut take),
            Some(percent) => {
                // Users get what they saved up, rumours what is left of the packet (memberlist's users starve:
                // #299), and users once more if they got nothing.
                self.credit = (self.credit + room * usize::from(percent) / 100).min(room);
                let limit = limit.max(TRANSMITS_LEAST);
                self.users.select(self.credit, limit, &mut take);
                let by_users = used;
                self.credit = if self.users.is_empty() { 0 } else { self.credit - by_users.min(self.credit) };
                let mut take = |rumour: &Rumour| {
                    used += rumour.size();
                    bytes.extend_from_slice(rumour.coded.bytes());
                    handed.extend(rumour.waiter);
                };
                self.members.select(room - by_users, limit, &mut take);
                let left = room - used;
                if by_users == 0 {
                    self.users.select(left, limit, |rumour| {
                        bytes.extend_from_slice(rumour.coded.bytes());
                        handed.extend(rumour.waiter);
                    });
                }
            }
        }
    }

    /// Lets those in who wait for room, and tells who they are. Call it after every packet.
    pub(super) fn settle(&mut self) -> Vec<RequestId> {
        let over = self.members.take_finished().into_iter().chain(self.users.take_finished());
        self.user_count -= over.filter(|(rumour, _)| rumour.about.is_none()).count();
        let mut let_in = Vec::new();
        while self.has_room()
            && let Some((request, rumour)) = self.blocked.pop_front()
        {
            self.insert_user(rumour);
            let_in.push(request);
        }
        let_in
    }

    /// Ends everything that is on its way.
    pub(super) fn stop(&mut self) {
        self.members.clear();
        self.users.clear();
        self.members.take_finished();
        self.users.take_finished();
        self.user_count = 0;
    }

    /// Sends those away who wait for room: they are to be told.
    pub(super) fn turn_away(&mut self) -> Vec<RequestId> {
        self.blocked.drain(..).map(|(request, _)| request).collect()
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.users.is_empty()
    }

    /// How many rumours and how many user messages wait to be sent.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.members.len() + self.users.len() - self.user_count, self.user_count)
    }

    fn has_room(&self) -> bool {
        self.user_max == 0 || self.user_count < self.user_max
    }

    fn insert_user(&mut self, rumour: Rumour) {
        self.user_count += 1;
        (if self.share.is_some() { &mut self.users } else { &mut self.members }).push(rumour);
    }

    /// What waits about members, in order of priority.
    #[cfg(test)]
    pub(super) fn rumours(&self) -> impl Iterator<Item = (Id, Standing, u32)> {
        self.members
            .iter()
            .filter_map(|(rumour, sent)| rumour.about.map(|(id, standing)| (id, standing, sent)))
    }
}
