//! What is on its way to everybody: updates about members, and messages of users, each with its share of a packet.

use std::collections::VecDeque;

use super::message::Message;
use super::queue::{Broadcast, BroadcastQueue, Pushed};
use super::status::{Incarnation, Status};
use super::wire::Coded;
use crate::id::Id;
use crate::tag::RequestId;

/// How often a node passes anything on at least, where user messages have their share. Nothing repairs a user message
/// that was missed, and what is told of a newcomer is told most often to the newcomer itself: with the usual two or four
/// times in a small group, somebody else hears of it only when tables are compared.
const TRANSMIT_LIMIT_MIN: u32 = 8;

/// One update or user message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    coded: Coded,
    /// About whom and what; `None` of a user message.
    about: Option<(Id, Status)>,
    /// Who waits for it to be handed on for the first time (SA-13).
    waiter: Option<RequestId>,
}

impl Update {
    /// From a message; its waiter is told when it first goes out.
    pub(super) fn new(message: &Message<'_>, waiter: Option<RequestId>) -> Self {
        let incarnation = match message {
            Message::Join { incarnation, .. }
            | Message::Alive { incarnation, .. }
            | Message::Suspect { incarnation, .. }
            | Message::Dead { incarnation, .. } => *incarnation,
            _ => Incarnation::default(),
        };
        let status = message.state().map(|state| Status::new(incarnation, state));
        Self { coded: Coded::new(message), about: message.subject().zip(status), waiter }
    }
}

impl Broadcast for Update {
    type Subject = Id;

    fn subject(&self) -> Option<Id> {
        self.about.map(|(id, _)| id)
    }

    /// Newer, or of the same age: another accuser of the same suspicion is worth telling (Lifeguard).
    fn invalidates(&self, old: &Self) -> bool {
        self.about.map(|(_, status)| status) >= old.about.map(|(_, status)| status)
    }

    fn size(&self) -> usize {
        self.coded.size()
    }
}

/// The queues, and who waits to get into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gossip {
    members: BroadcastQueue<Update>,
    /// User messages, if they have a share of their own; otherwise they wait among the others.
    users: BroadcastQueue<Update>,
    /// How much of a packet is for user messages, in percent; `None` is one queue for all.
    share: Option<u8>,
    /// What user messages have saved up of their share, in bytes: a large one must not wait for ever.
    credit: usize,
    /// How many user messages wait in a queue.
    user_count: usize,
    user_max: usize,
    /// Pushes that found the queue full, oldest first (S-98, SA-45).
    blocked: VecDeque<(RequestId, Update)>,
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

    /// Spreads a update about a member. It never waits for room: at most one per member is there (SA-45).
    pub(super) fn broadcast_update(&mut self, update: Update) -> Pushed {
        self.members.push(update)
    }

    /// Spreads a user message of our own, which may have to wait for room.
    pub(super) fn push_user(&mut self, update: Update, request: RequestId, wait: bool) -> UserPush {
        if self.has_room() && self.blocked.is_empty() {
            self.insert_user(update);
            return UserPush::Queued;
        }
        if !wait || self.blocked.len() >= self.blocked_max {
            return UserPush::Full;
        }
        self.blocked.push_back((request, update));
        UserPush::Blocked
    }

    /// Passes a user message of somebody else on; false if there is no room, and it ends here.
    pub(super) fn relay_user(&mut self, update: Update) -> bool {
        let room = self.has_room();
        if room {
            self.insert_user(update);
        }
        room
    }

    /// Appends what fits into `room` bytes of a packet; who waited for it is put into `handed`.
    pub(super) fn fill(&mut self, bytes: &mut Vec<u8>, room: usize, limit: u32, handed: &mut Vec<RequestId>) {
        let mut used = 0;
        let mut take = |update: &Update| {
            used += update.size();
            bytes.extend_from_slice(update.coded.bytes());
            handed.extend(update.waiter);
        };
        match self.share {
            None => self.members.select(room, limit, &mut take),
            Some(percent) => {
                // Users get what they saved up, updates what is left of the packet (memberlist's users starve:
                // #299), and users once more if they got nothing.
                self.credit = (self.credit + room * usize::from(percent) / 100).min(room);
                let limit = limit.max(TRANSMIT_LIMIT_MIN);
                self.users.select(self.credit, limit, &mut take);
                let by_users = used;
                self.credit = if self.users.is_empty() { 0 } else { self.credit - by_users.min(self.credit) };
                let mut take = |update: &Update| {
                    used += update.size();
                    bytes.extend_from_slice(update.coded.bytes());
                    handed.extend(update.waiter);
                };
                self.members.select(room - by_users, limit, &mut take);
                let left = room - used;
                if by_users == 0 {
                    self.users.select(left, limit, |update| {
                        bytes.extend_from_slice(update.coded.bytes());
                        handed.extend(update.waiter);
                    });
                }
            }
        }
    }

    /// Lets those in who wait for room, and tells who they are. Call it after every packet.
    pub(super) fn settle(&mut self) -> Vec<RequestId> {
        let over = self.members.take_finished().into_iter().chain(self.users.take_finished());
        self.user_count -= over.filter(|(update, _)| update.about.is_none()).count();
        let mut let_in = Vec::new();
        while self.has_room()
            && let Some((request, update)) = self.blocked.pop_front()
        {
            self.insert_user(update);
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

    /// How many updates and how many user messages wait to be sent.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.members.len() + self.users.len() - self.user_count, self.user_count)
    }

    fn has_room(&self) -> bool {
        self.user_max == 0 || self.user_count < self.user_max
    }

    fn insert_user(&mut self, update: Update) {
        self.user_count += 1;
        (if self.share.is_some() { &mut self.users } else { &mut self.members }).push(update);
    }

    /// What waits about members, in order of priority.
    #[cfg(test)]
    pub(super) fn updates(&self) -> impl Iterator<Item = (Id, Status, u32)> {
        self.members.iter().filter_map(|(update, sent)| update.about.map(|(id, status)| (id, status, sent)))
    }
}
