//! The journal: the last events of this agent, numbered, for clients that reconnect and resume.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use annulus::core::EventLine;
use serde::Serialize;
use tokio::sync::watch;

/// Where a client is in the journal: the start of the agent it talked to, and the last event it has.
///
/// Its text is the `id:` of the event stream; a client sends it as `Last-Event-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// When the agent started, in microseconds; another start is another numbering.
    pub(crate) start: u64,
    /// The number of the event.
    pub(crate) seq: u64,
}

impl Position {
    /// Reads the text of a position.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (start, seq) = text.split_once('-')?;
        Some(Self { start: u64::from_str_radix(start, 16).ok()?, seq: seq.parse().ok()? })
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}", self.start, self.seq)
    }
}

/// The last events, and a bell that rings for each new one.
#[derive(Debug)]
pub(crate) struct Journal {
    node: String,
    start: u64,
    kept_max: usize,
    lines: Mutex<Lines>,
    bell: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Lines {
    /// The number of the newest event; the first is 1.
    last: u64,
    kept: VecDeque<Arc<str>>,
}

/// The next item for a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This event.
    Line(Position, Arc<str>),
    /// So many events are gone; go on behind them.
    Missed(Position, u64),
    /// Nothing yet.
    Wait,
}

impl Journal {
    /// An empty journal of the node with this name, started at `start` (microseconds since the epoch).
    pub(crate) fn new(node: String, start: u64, kept_max: usize) -> Self {
        Self { node, start, kept_max, lines: Mutex::default(), bell: watch::Sender::new(0) }
    }

    /// Notes an event of this node.
    pub(crate) fn push<E: Serialize>(&self, at_micros: u64, event: &E) {
        self.push_of(&self.node, at_micros, event);
    }

    /// Notes an event of a node.
    pub(crate) fn push_of<E: Serialize>(&self, node: &str, at_micros: u64, event: &E) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = lines.last + 1;
        let line = EventLine::new(seq, at_micros, node, event);
        let Ok(line) = serde_json::to_string(&line) else {
            tracing::error!("an event cannot be written as JSON");
            return;
        };
        lines.last = seq;
        lines.kept.push_back(line.into());
        if lines.kept.len() > self.kept_max {
            lines.kept.pop_front();
        }
        drop(lines);
        self.bell.send_replace(seq);
    }

    /// Rings whenever an event comes.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// The start position of a client that wants only new events.
    pub(crate) fn end(&self) -> Position {
        let seq = self.lines.lock().unwrap_or_else(PoisonError::into_inner).last;
        Position { start: self.start, seq }
    }

    /// The last `max` kept events for which `wanted` holds, in order, and the position behind all of them.
    pub(crate) fn last(&self, max: usize, wanted: impl Fn(&str) -> bool) -> (Position, Vec<Arc<str>>) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = lines.kept.iter().rev().filter(|line| wanted(line)).take(max);
        let mut last: Vec<Arc<str>> = newest.map(Arc::clone).collect();
        last.reverse();
        (Position { start: self.start, seq: lines.last }, last)
    }

    /// The item behind `position`. One of an earlier start of this agent has missed everything before.
    pub(crate) fn after(&self, position: Position) -> Next {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = if position.start == self.start { position.seq.min(lines.last) } else { 0 };
        let gone = lines.last - lines.kept.len() as u64;
        if seen < gone {
            return Next::Missed(Position { start: self.start, seq: gone }, gone - seen);
        }
        match lines.kept.get((seen - gone) as usize) {
            Some(line) => Next::Line(Position { start: self.start, seq: seen + 1 }, Arc::clone(line)),
            None => Next::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Event {
        event: &'static str,
    }

    fn journal(events: u64) -> Journal {
        let journal = Journal::new("red".into(), 0xabc, 3);
        for _ in 0..events {
            journal.push(5, &Event { event: "x" });
        }
        journal
    }

    #[test]
    fn a_client_gets_every_event_once_in_order() {
        let journal = journal(2);
        let mut at = Position { start: 0xabc, seq: 0 };
        let mut seen = Vec::new();
        while let Next::Line(next, line) = journal.after(at) {
            seen.push(line.to_string());
            at = next;
        }
        let expected =
            [1, 2].map(|seq| format!(r#"{{"v":1,"seq":{seq},"at_micros":5,"node":"red","event":"x"}}"#));
        assert_eq!(seen, expected);
        assert_eq!((journal.after(at), at), (Next::Wait, journal.end()));
    }

    #[test]
    fn a_client_that_reconnects_late_gets_the_number_of_missed_events() {
        let journal = journal(10);
        let missed = journal.after(Position { start: 0xabc, seq: 2 });
        assert_eq!(missed, Next::Missed(Position { start: 0xabc, seq: 7 }, 5));
        assert!(matches!(journal.after(Position { start: 0xabc, seq: 7 }), Next::Line(..)));
    }

    #[test]
    fn the_last_events_are_those_that_are_wanted_in_order() {
        let journal = journal(2);
        journal.push(6, &Event { event: "y" });
        let (end, last) = journal.last(1, |line| line.contains(r#""event":"x""#));
        assert_eq!((end, last.len()), (journal.end(), 1));
        assert!(last[0].contains(r#""seq":2"#), "{last:?}");
    }

    #[test]
    fn a_position_of_another_start_begins_anew() {
        let journal = journal(2);
        assert!(matches!(journal.after(Position { start: 1, seq: 99 }), Next::Line(at, _) if at.seq == 1));
        assert!(matches!(journal.after(Position { start: 0xabc, seq: 99 }), Next::Wait), "from the future");
    }

    #[test]
    fn a_position_survives_its_text() {
        let at = Position { start: 0x5f, seq: 12 };
        assert_eq!(Position::parse(&at.to_string()), Some(at));
        assert_eq!(Position::parse("12"), None);
        assert_eq!(Position::parse("x-1"), None);
    }
}
