//! Updates about members and user messages on their way to all members, each kind with its share of a packet.

use std::collections::VecDeque;

use super::codec::Codec;
use super::message::Message;
use super::queue::{Broadcast, BroadcastQueue, Pushed};
use super::status::{Incarnation, Status};
use super::wire::Coded;
use crate::id::Id;
use crate::tag::RequestId;

/// The least transmit limit, where user messages have a share of the packet. Nothing repairs a missed user message.
/// Updates about a newcomer go mostly to the newcomer itself. With the usual limit of two or four in a small group,
/// others would learn of it only by a table comparison.
const TRANSMIT_LIMIT_MIN: u32 = 8;

/// One update or user message, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    coded: Coded,
    /// Its subject and status; `None` of a user message.
    about: Option<(Id, Status)>,
    /// The command that waits for the first transmission (SA-13).
    waiter: Option<RequestId>,
}

impl Update {
    /// Encodes a message. `waiter` gets its reply when the update is first sent.
    pub(super) fn new(codec: Codec, message: &Message<'_>, waiter: Option<RequestId>) -> Self {
        let incarnation = match message {
            Message::Join { incarnation, .. }
            | Message::Alive { incarnation, .. }
            | Message::Suspect { incarnation, .. }
            | Message::Dead { incarnation, .. } => *incarnation,
            _ => Incarnation::default(),
        };
        let status = message.state().map(|state| Status::new(incarnation, state));
        Self { coded: Coded::with(codec, message), about: message.subject().zip(status), waiter }
    }
}

impl Broadcast for Update {
    type Subject = Id;

    fn subject(&self) -> Option<Id> {
        self.about.map(|(id, _)| id)
    }

    /// A newer update, or one of equal status: another accuser of the same suspicion confirms it (Lifeguard).
    fn invalidates(&self, old: &Self) -> bool {
        self.about.map(|(_, status)| status) >= old.about.map(|(_, status)| status)
    }

    fn size(&self) -> usize {
        self.coded.size()
    }
}

/// The queues, and the user messages that wait for room in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gossip {
    members: BroadcastQueue<Update>,
    /// User messages, if they have a share of their own; otherwise they are in `members`.
    users: BroadcastQueue<Update>,
    /// The share of a packet for user messages, in percent; `None` is one queue for all.
    share: Option<u8>,
    /// The unused bytes of the share of user messages. They add up, so that a large message is sent in the end.
    credit: usize,
    /// The number of queued user messages.
    user_count: usize,
    user_max: usize,
    /// Pushes that found the queue full, oldest first (S-98, SA-45).
    blocked: VecDeque<(RequestId, Update)>,
    blocked_max: usize,
}

/// The result of pushing a user message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserPush {
    /// It is queued.
    Queued,
    /// It waits for room. The command gets its reply then.
    Blocked,
    /// Too many wait for room already.
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

    /// Queues an update about a member. It never waits for room: the queue has at most one per member (SA-45).
    pub(super) fn broadcast_update(&mut self, update: Update) -> Pushed {
        self.members.push(update)
    }

    /// Queues a user message of this node, or lets it wait for room.
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

    /// Queues a user message of another node. Returns false if there is no room; it is then not forwarded.
    pub(super) fn relay_user(&mut self, update: Update) -> bool {
        let room = self.has_room();
        if room {
            self.insert_user(update);
        }
        room
    }

    /// Appends the updates that fit into `room` bytes of a packet. The commands that waited for them go to `handed`.
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
                // User messages get their credit, updates the rest of the packet (memberlist's user messages starve:
                // #299), and user messages the remainder if they got nothing.
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

    /// Queues messages that waited for room, and returns their commands. Call it after every packet.
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

    /// Drops all queued messages.
    pub(super) fn stop(&mut self) {
        self.members.clear();
        self.users.clear();
        self.members.take_finished();
        self.users.take_finished();
        self.user_count = 0;
    }

    /// Drops the messages that wait for room. Returns their commands, which the caller must answer.
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

    /// The queued updates about members, in order of priority.
    #[cfg(test)]
    pub(super) fn updates(&self) -> impl Iterator<Item = (Id, Status, u32)> {
        self.members.iter().filter_map(|(update, sent)| update.about.map(|(id, status)| (id, status, sent)))
    }
}
