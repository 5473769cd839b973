//! Logs of level ERROR: in a simulation each of them is a violation.

use core::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Subscriber, with_default};
use tracing::{Event, Level, Metadata};

/// Runs something and gives the first error that was logged meanwhile by this thread.
pub(crate) fn watched<T>(run: impl FnOnce() -> T) -> (T, Option<String>) {
    let first = Arc::new(Mutex::new(None));
    let result = with_default(Watch { first: Arc::clone(&first) }, run);
    let logged = first.lock().map_or(None, |mut first| first.take());
    (result, logged)
}

/// Takes errors and nothing else, so that lesser logs cost next to nothing.
struct Watch {
    first: Arc<Mutex<Option<String>>>,
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.is_event()
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::ERROR)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::from(event.metadata().target()));
        event.record(&mut fields);
        if let Ok(mut first) = self.first.lock() {
            first.get_or_insert(fields.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        // Writing into a string cannot fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_kept_and_lesser_logs_are_not() {
        let (n, logged) = watched(|| {
            tracing::warn!("not this");
            tracing::error!(node = 3, "this");
            tracing::error!("nor this");
            7
        });
        assert_eq!(n, 7);
        let logged = logged.unwrap();
        assert!(logged.contains("message=this") && logged.contains("node=3"), "{logged}");
        assert_eq!(watched(|| tracing::debug!("nothing")).1, None);
    }
}
