//! The feed of the page: sections that are sampled while a client watches, and the events of the journal between them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::sse::Event;
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Sections, View};
use crate::agent::Journal;
use crate::agent::journal::{Next, Position};

/// The time between two samples.
const INTERVAL: Duration = Duration::from_millis(400);

/// The events of a snapshot: as many as the log of the page has room for.
const NEWS_MAX: usize = 150;

/// Events that come many times a second and say nothing once they are past.
const FREQUENT: [&str; 7] = [
    "token_taken",
    "token_passed",
    "state_entered",
    "message_forwarded",
    "delivered",
    "turn_began",
    "turn_ended",
];

/// One page of one view. Clones share it.
#[derive(Clone)]
pub(crate) struct Page {
    shared: Arc<Shared>,
}

struct Shared {
    view: Box<dyn View>,
    samples: watch::Sender<Arc<Sections>>,
    is_sampling: AtomicBool,
    leaving: watch::Receiver<bool>,
}

impl Page {
    /// A page of this view; its streams end when `leaving` becomes true.
    pub(crate) fn new(view: impl View, leaving: watch::Receiver<bool>) -> Self {
        let (samples, is_sampling) = (watch::Sender::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { view: Box::new(view), samples, is_sampling, leaving }) }
    }

    /// Everything as it is now, the last events, and the position in the journal from which events go on.
    pub(crate) async fn snapshot(&self) -> Value {
        let last = self.shared.view.journal().map(|journal| journal.last(NEWS_MAX, is_rare));
        let (position, news) = last.unzip();
        let news: Vec<Value> =
            news.iter().flatten().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let sections = self.shared.view.sections().await;
        json!({ "v": 1, "position": position.map(|at| at.to_string()), "sections": sections, "news": news })
    }

    /// The inside of one node.
    pub(crate) async fn node(&self, name: &str) -> Option<Value> {
        self.shared.view.node(name).await
    }

    /// Changed sections and events from `position` on, or from now on.
    pub(crate) fn follow(
        &self,
        position: Option<Position>,
    ) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
        let journal = self.shared.view.journal();
        let viewer = journal.map(|journal| Viewer {
            position: position.unwrap_or_else(|| journal.end()),
            bell: journal.bell(),
            samples: self.subscribe(),
            leaving: self.shared.leaving.clone(),
            sent: Sections::new(),
            journal,
        });
        futures_util::stream::unfold(viewer, async |viewer| {
            let mut viewer = viewer?;
            let event = viewer.next().await?;
            Some((Ok(event), Some(viewer)))
        })
    }

    fn subscribe(&self) -> watch::Receiver<Arc<Sections>> {
        let receiver = self.shared.samples.subscribe();
        if !self.shared.is_sampling.swap(true, Ordering::AcqRel) {
            tokio::spawn(sample(Arc::clone(&self.shared)));
        }
        receiver
    }
}

/// Whether the line of an event belongs into a snapshot.
fn is_rare(line: &str) -> bool {
    !FREQUENT.iter().any(|event| line.contains(&format!("\"event\":\"{event}\"")))
}

/// Samples as long as a client watches.
async fn sample(shared: Arc<Shared>) {
    loop {
        if shared.samples.receiver_count() == 0 {
            // A later viewer must not begin with an old state.
            shared.samples.send_replace(Arc::default());
            shared.is_sampling.store(false, Ordering::Release);
            // A client may have subscribed between the two.
            if shared.samples.receiver_count() == 0 || shared.is_sampling.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        let sections = shared.view.sections().await;
        shared.samples.send_replace(Arc::new(sections));
        tokio::time::sleep(INTERVAL).await;
    }
}

/// A client that watches.
struct Viewer {
    journal: Arc<Journal>,
    position: Position,
    bell: watch::Receiver<u64>,
    samples: watch::Receiver<Arc<Sections>>,
    leaving: watch::Receiver<bool>,
    /// The sections as this viewer has them.
    sent: Sections,
}

impl Viewer {
    async fn next(&mut self) -> Option<Event> {
        loop {
            // Seen first, asked second: an event between the two rings the bell again.
            self.bell.borrow_and_update();
            match self.journal.after(self.position) {
                Next::Line(next, line) => {
                    self.position = next;
                    return Some(Event::default().event("news").id(next.to_string()).data(line));
                }
                Next::Missed(next, missed) => {
                    self.position = next;
                    let data = json!({ "v": 1, "missed": missed }).to_string();
                    return Some(Event::default().event("missed").id(next.to_string()).data(data));
                }
                Next::Wait => {}
            }
            if let Some(changed) = self.changed() {
                return Some(Event::default().event("sections").data(changed));
            }
            tokio::select! {
                rung = self.bell.changed() => rung.ok()?,
                sampled = self.samples.changed() => sampled.ok()?,
                _ = self.leaving.wait_for(|leaving| *leaving) => return None,
            }
        }
    }

    /// The sections that this viewer does not have yet, as JSON.
    fn changed(&mut self) -> Option<String> {
        let now = Arc::clone(&self.samples.borrow_and_update());
        let changed: Sections = (now.iter())
            .filter(|(name, value)| self.sent.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        if changed.is_empty() {
            return None;
        }
        let text = serde_json::to_string(&changed).ok();
        self.sent.extend(changed);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::StreamExt as _;

    use super::*;
    use crate::page::Boxed;

    /// A view that counts how often it is sampled.
    struct Counting {
        samples: Arc<AtomicUsize>,
        journal: Arc<Journal>,
    }

    impl View for Counting {
        fn sections(&self) -> Boxed<'_, Sections> {
            let sample = self.samples.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Sections::from([("nodes", json!(sample))]) })
        }

        fn node<'a>(&'a self, _: &'a str) -> Boxed<'a, Option<Value>> {
            Box::pin(async { None })
        }

        fn journal(&self) -> Option<Arc<Journal>> {
            Some(Arc::clone(&self.journal))
        }
    }

    fn page(leaving: watch::Receiver<bool>) -> (Page, Arc<AtomicUsize>, Arc<Journal>) {
        let (samples, journal) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Journal::new("red".into(), 1, 100)));
        let view = Counting { samples: Arc::clone(&samples), journal: Arc::clone(&journal) };
        (Page::new(view, leaving), samples, journal)
    }

    /// Waits until the task that samples has ended.
    async fn idle(page: &Page) {
        while page.shared.is_sampling.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn nothing_is_sampled_without_a_watcher() {
        let (_leave, leaving) = watch::channel(false);
        let (page, samples, journal) = page(leaving);
        journal.push(1, &json!({ "event": "x" }));
        tokio::task::yield_now().await;
        assert!(!page.shared.is_sampling.load(Ordering::Acquire));
        assert_eq!(samples.load(Ordering::Relaxed), 0);
        let mut one = Box::pin(page.follow(None));
        let mut other = Box::pin(page.follow(None));
        for _ in 0..3 {
            assert!(one.next().await.is_some() && other.next().await.is_some());
        }
        assert_eq!(samples.load(Ordering::Relaxed), 3, "viewers share a sample");
        drop((one, other));
        idle(&page).await;
        let last = samples.load(Ordering::Relaxed);
        assert!(last <= 4, "one sample may have been under way");
        let mut late = Box::pin(page.follow(None));
        assert!(late.next().await.is_some(), "a viewer who comes later is served");
        assert!(samples.load(Ordering::Relaxed) > last);
    }

    #[tokio::test]
    async fn a_snapshot_has_the_last_events_without_the_frequent_ones() {
        let (page, _, journal) = page(watch::channel(false).1);
        for event in ["token_taken", "member_died", "token_taken"] {
            journal.push(1, &json!({ "event": event }));
        }
        let snapshot = page.snapshot().await;
        let events: Vec<&Value> =
            snapshot["news"].as_array().unwrap().iter().map(|line| &line["event"]).collect();
        assert_eq!(events, ["member_died"]);
        assert_eq!(snapshot["position"], journal.end().to_string());
    }
}
