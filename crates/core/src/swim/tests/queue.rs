//! The broadcast queue.

use serde_json::Value;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    name: String,
    size: usize,
    about: Option<(u8, u32)>,
}

impl Broadcast for Named {
    type Subject = u8;

    fn subject(&self) -> Option<u8> {
        self.about.map(|(subject, _)| subject)
    }

    fn invalidates(&self, old: &Self) -> bool {
        self.about >= old.about
    }

    fn size(&self) -> usize {
        self.size
    }
}

fn named(name: &str, size: usize) -> Named {
    Named { name: name.to_owned(), size, about: None }
}

fn about(name: &str, subject: u8, age: u32) -> Named {
    Named { name: name.to_owned(), size: 10, about: Some((subject, age)) }
}

fn taken(queue: &mut BroadcastQueue<Named>, size: usize, limit: u32) -> Vec<String> {
    let mut names = Vec::new();
    queue.select(size, limit, |broadcast| names.push(broadcast.name.clone()));
    names
}

fn over(queue: &mut BroadcastQueue<Named>) -> Vec<(String, Done)> {
    queue.take_finished().into_iter().map(|(broadcast, why)| (broadcast.name, why)).collect()
}

#[test]
fn s_93_a_match_is_that_of_the_vector() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../tests/vectors/swim_goswim.json")).unwrap();
    let vector = &vectors["broadcast_queue_match"];
    let mut queue = BroadcastQueue::new();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    for start in vector["start"].as_array().unwrap() {
        let size = number(start, "size") as usize;
        queue.push_sent(named(start["name"].as_str().unwrap(), size), number(start, "transmits") as u32);
    }
    for call in vector["calls"].as_array().unwrap() {
        let names = |key: &str| -> Vec<String> {
            call[key].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let limit = number(call, "limit") as u32;
        assert_eq!(taken(&mut queue, number(call, "size") as usize, limit), names("returned"), "{call}");
        let mut done: Vec<String> = over(&mut queue).into_iter().map(|(name, _)| name).collect();
        done.sort();
        assert_eq!(done, names("done_called"), "{call}");
        let left: Vec<(String, u64)> =
            queue.iter().map(|(broadcast, sent)| (broadcast.name.clone(), u64::from(sent))).collect();
        let expected: Vec<(String, u64)> = call["left"]
            .as_array()
            .unwrap()
            .iter()
            .map(|left| (left["name"].as_str().unwrap().to_owned(), number(left, "transmits")))
            .collect();
        assert_eq!(left, expected, "{call}");
    }
}

#[test]
fn s_95_the_least_sent_broadcast_goes_first() {
    let mut queue = BroadcastQueue::new();
    queue.push_sent(named("twice", 1), 2);
    queue.push_sent(named("once", 9), 1);
    queue.push(named("new", 50));
    assert_eq!(taken(&mut queue, 100, 9), ["new", "once", "twice"]);
}

#[test]
fn s_96_at_equal_priority_the_smaller_goes_first_then_the_older() {
    let mut queue = BroadcastQueue::new();
    for (name, size) in [("large", 30), ("older", 20), ("newer", 20), ("small", 10)] {
        queue.push(named(name, size));
    }
    assert_eq!(taken(&mut queue, 100, 9), ["small", "older", "newer", "large"]);
}

#[test]
fn s_85_a_newer_broadcast_replaces_an_older_and_not_conversely() {
    let mut queue = BroadcastQueue::new();
    assert_eq!(queue.push(about("alive 1", 7, 1)), Pushed::Queued);
    assert_eq!(queue.push(about("alive 2", 7, 2)), Pushed::Queued);
    assert_eq!(queue.push(about("late 1", 7, 1)), Pushed::Stale);
    assert_eq!(queue.push(about("other", 8, 0)), Pushed::Queued);
    let invalidated = |name: &str| (name.to_owned(), Done::Invalidated);
    assert_eq!(over(&mut queue), [invalidated("alive 1"), invalidated("late 1")]);
    assert_eq!(taken(&mut queue, 100, 1), ["alive 2", "other"]);
}

#[test]
fn s_88_done_comes_exactly_once_with_its_reason() {
    let mut queue = BroadcastQueue::new();
    queue.push(named("limit", 10));
    taken(&mut queue, 100, 2);
    assert_eq!(over(&mut queue), []);
    taken(&mut queue, 100, 2);
    assert_eq!(over(&mut queue), [("limit".to_owned(), Done::Limit)]);
    assert_eq!(over(&mut queue), []);
    queue.push(about("stopped", 1, 1));
    queue.clear();
    assert_eq!(over(&mut queue), [("stopped".to_owned(), Done::Stopped)]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn s_89_transmissions_are_counted_and_a_shrunken_group_finishes_old_ones_unsent() {
    let mut queue = BroadcastQueue::new();
    queue.push_sent(named("often", 10), 5);
    assert_eq!(taken(&mut queue, 100, 3), Vec::<String>::new());
    assert_eq!(over(&mut queue), [("often".to_owned(), Done::Limit)]);
}

#[test]
fn s_94_the_size_is_the_number_of_queued_broadcasts() {
    let mut queue = BroadcastQueue::new();
    assert!(queue.is_empty());
    queue.push(about("one", 1, 1));
    queue.push(about("one again", 1, 2));
    queue.push(named("two", 1));
    assert_eq!(queue.len(), 2);
}

#[test]
fn a_limit_of_zero_counts_as_one() {
    let mut queue = BroadcastQueue::new();
    queue.push(named("one", 1));
    assert_eq!(taken(&mut queue, 10, 0), ["one"]);
    assert!(queue.is_empty());
}
