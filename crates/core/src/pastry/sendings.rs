//! The sendings: messages of our own whose end is not known yet; and the questions that our applications are to
//! answer.

use std::collections::{BTreeMap, VecDeque};

use super::contact::Contact;
use super::message::{Envelope, MessageId};
use crate::id::Id;
use crate::tag::RequestId;
use crate::time::Instant;

/// How a message of our own ends well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By its delivery.
    Message,
    /// By an answer.
    Question,
    /// By its delivery, with the way it took.
    Trace,
}

/// A message of our own under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) request: RequestId,
    pub(super) kind: Kind,
    /// The message as it was first sent, to send it again; `None` once no retry is left.
    pub(super) again: Option<Box<Envelope>>,
    pub(super) retries: u8,
    pub(super) due: Instant,
    /// The node it was sent to last, and those before that.
    to: Option<Id>,
    earlier: Vec<Id>,
}

impl Sending {
    pub(super) fn new(
        request: RequestId,
        kind: Kind,
        again: Option<Box<Envelope>>,
        retries: u8,
        due: Instant,
    ) -> Self {
        Self { request, kind, again, retries, due, to: None, earlier: Vec::new() }
    }
}

/// The most nodes remembered that one message was sent to before. What one more says of it does not count.
const EARLIER_MAX: usize = 16;
/// How many bits of a message's number name its place among the sendings.
const PLACE_BITS: u32 = 20;
/// The place of a message that is no sending.
pub(super) const NO_PLACE: u64 = (1 << PLACE_BITS) - 1;

/// The messages of our own under way. The number of each names its place, so its receipt finds it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sendings {
    places: Vec<Option<(MessageId, Sending)>>,
    free: Vec<u32>,
    /// All have the same time, so the oldest ends first. Those that ended otherwise are dropped when they are first.
    order: VecDeque<(Instant, MessageId)>,
    sendings_max: usize,
}

impl Sendings {
    pub(super) fn new(sendings_max: usize) -> Self {
        let sendings_max = sendings_max.min(NO_PLACE as usize);
        Self { places: Vec::new(), free: Vec::new(), order: VecDeque::new(), sendings_max }
    }

    pub(super) fn has_room(&self) -> bool {
        self.places.len() - self.free.len() < self.sendings_max
    }

    /// The place that the next one will have.
    pub(super) fn next(&self) -> u64 {
        self.free.last().map_or(self.places.len() as u64, |place| u64::from(*place))
    }

    /// The number of a message: the `count`th of this life, at this place.
    pub(super) fn number(count: u64, place: u64) -> u64 {
        count << PLACE_BITS | place
    }

    /// Takes in a message whose number names the [next](Sendings::next) place.
    pub(super) fn insert(&mut self, id: MessageId, sending: Sending) {
        debug_assert_eq!(place(id) as u64, self.next(), "a place is taken in turn");
        let due = sending.due;
        let sending = Some((id, sending));
        match self.free.pop() {
            Some(place) => self.places[place as usize] = sending,
            None => self.places.push(sending),
        }
        self.order.push_back((due, id));
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        self.get(id).is_some()
    }

    /// Notes to whom a message was sent.
    pub(super) fn sent(&mut self, id: MessageId, to: Id) {
        let Some(Some((at, sending))) = self.places.get_mut(place(id)) else { return };
        if *at != id {
            return;
        }
        if let Some(before) = sending.to.replace(to)
            && before != to
            && sending.earlier.len() < EARLIER_MAX
            && !sending.earlier.contains(&before)
        {
            sending.earlier.push(before);
        }
    }

    /// Whether a message under way was ever sent to this node; `None` if it is none of ours, or has ended.
    pub(super) fn was_sent_to(&self, id: MessageId, to: Id) -> Option<bool> {
        let sending = self.get(id)?;
        Some(sending.to == Some(to) || sending.earlier.contains(&to))
    }

    /// How a message under way ends well.
    pub(super) fn kind(&self, id: MessageId) -> Option<Kind> {
        self.get(id).map(|sending| sending.kind)
    }

    pub(super) fn take(&mut self, id: MessageId) -> Option<Sending> {
        self.get(id)?;
        let (_, sending) = self.places[place(id)].take()?;
        self.free.push(place(id) as u32);
        self.drop_ended();
        Some(sending)
    }

    pub(super) fn expired(&mut self, now: Instant) -> Option<(MessageId, Sending)> {
        let &(due, id) = self.order.front()?;
        if due > now {
            return None;
        }
        self.take(id).map(|sending| (id, sending))
    }

    /// Ends all of them.
    pub(super) fn drain(&mut self) -> Vec<Sending> {
        self.order.clear();
        self.free.clear();
        self.places.drain(..).flatten().map(|(_, sending)| sending).collect()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(due, _)| *due)
    }

    fn get(&self, id: MessageId) -> Option<&Sending> {
        let (at, sending) = self.places.get(place(id))?.as_ref()?;
        (*at == id).then_some(sending)
    }

    /// Keeps the invariant that the first in the order waits. Of those behind it at most as many have ended as there is
    /// room for: then the order is made anew.
    fn drop_ended(&mut self) {
        while let Some(&(due, id)) = self.order.front()
            && self.get(id).is_none_or(|sending| sending.due != due)
        {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.sendings_max {
            let mut order = core::mem::take(&mut self.order);
            order.retain(|(due, id)| self.get(*id).is_some_and(|sending| sending.due == *due));
            self.order = order;
        }
    }
}

/// The place that a number names.
fn place(id: MessageId) -> usize {
    (id.0 as u64 & NO_PLACE) as usize
}

/// A question put to an application here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) origin: Contact,
    pub(super) hops: u8,
    due: Instant,
}

/// The questions that wait for their answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Questions {
    list: BTreeMap<MessageId, Question>,
    /// All have the same time, so the oldest ends first.
    order: VecDeque<MessageId>,
    questions_max: usize,
}

impl Questions {
    pub(super) fn new(questions_max: usize) -> Self {
        Self { list: BTreeMap::new(), order: VecDeque::new(), questions_max }
    }

    /// Notes a question; false if there is no room.
    pub(super) fn insert(&mut self, id: MessageId, origin: Contact, hops: u8, due: Instant) -> bool {
        if self.list.len() >= self.questions_max {
            return false;
        }
        if self.list.insert(id, Question { origin, hops, due }).is_none() {
            self.order.push_back(id);
        }
        true
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        self.list.contains_key(&id)
    }

    pub(super) fn take(&mut self, id: MessageId) -> Option<Question> {
        let question = self.list.remove(&id);
        self.drop_ended();
        question
    }

    pub(super) fn expired(&mut self, now: Instant) -> Option<(MessageId, Question)> {
        if self.deadline()? > now {
            return None;
        }
        let id = self.order.pop_front()?;
        let question = self.list.remove(&id);
        self.drop_ended();
        question.map(|question| (id, question))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.front().and_then(|id| self.list.get(id)).map(|question| question.due)
    }

    /// Keeps the invariant that the first in the order waits. Of those behind it at most as many have ended as there is
    /// room for: then the order is made anew.
    fn drop_ended(&mut self) {
        while self.order.front().is_some_and(|id| !self.list.contains_key(id)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.questions_max {
            self.order.retain(|id| self.list.contains_key(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pastry::Incarnation;

    #[test]
    fn one_question_that_nobody_answers_does_not_keep_others_out() {
        let origin = Contact { id: Id::MIN, addr: ([127, 0, 0, 1], 1).into(), incarnation: Incarnation(0) };
        let mut questions = Questions::new(3);
        let at = |number: u64| Instant::from_micros(number);
        assert!(questions.insert(MessageId(0), origin, 1, at(0)));
        for number in 1..100 {
            assert!(questions.insert(MessageId(number.into()), origin, 1, at(number)), "{number}");
            assert!(questions.take(MessageId(number.into())).is_some());
            assert!(questions.order.len() <= 7, "what is answered is forgotten");
        }
        assert!(questions.insert(MessageId(100), origin, 1, at(100)));
        assert!(questions.insert(MessageId(101), origin, 1, at(101)));
        assert!(!questions.insert(MessageId(102), origin, 1, at(102)), "three are open");
        assert_eq!(questions.expired(at(0)).map(|(id, _)| id), Some(MessageId(0)));
        assert_eq!(questions.deadline(), Some(at(100)), "the next in turn");
    }
}
