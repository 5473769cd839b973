//! A puppet that a driver runs, and everything that it reports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use annulus_core::contract::puppet::{Do, GARBAGE, Puppet, Saw, TCP, UDP};
use annulus_core::{CloseReason, StreamId};
use annulus_net::{BindError, Driver, Events, Handle, Options, Store};

/// A running puppet and everything it saw.
pub(crate) struct Stage {
    pub(crate) handle: Handle<Puppet>,
    pub(crate) events: Events<Puppet>,
}

impl Stage {
    /// Lets a puppet run.
    pub(crate) fn new(puppet: Puppet, options: Options) -> Self {
        Self::try_new(puppet, options).unwrap()
    }

    /// Lets a puppet run if it can be bound.
    pub(crate) fn try_new(puppet: Puppet, options: Options) -> Result<Self, BindError> {
        let (driver, handle) = Driver::bind(puppet, options)?;
        let events = handle.events();
        tokio::spawn(driver);
        Ok(Self { handle, events })
    }

    pub(crate) fn plain() -> Self {
        Self::new(Puppet::default(), patient())
    }

    pub(crate) fn udp(&self) -> SocketAddr {
        self.handle.bound().socket(UDP).unwrap()
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.handle.bound().listener(TCP).unwrap()
    }

    /// Gives the puppet steps to do; they are done when this returns.
    pub(crate) async fn tell(&self, what: impl IntoIterator<Item = Do>) -> StreamId {
        let command = self.handle.command(what.into_iter().collect());
        guard(command).await.unwrap().stream
    }

    /// The next that it saw and for which `pick` has a use; everything before it is passed over.
    pub(crate) async fn see<T>(&mut self, mut pick: impl FnMut(&Saw) -> Option<T>) -> T {
        loop {
            let event = guard(self.events.next()).await.expect("the puppet lives");
            if let Some(found) = pick(&event) {
                return found;
            }
        }
    }

    /// The next event, commands aside.
    pub(crate) async fn next(&mut self) -> Saw {
        self.see(|saw| (*saw != Saw::Command && *saw != Saw::Start).then(|| saw.clone())).await
    }

    /// All inputs of the puppet that no test step has taken, after a few more turns of the driver.
    pub(crate) async fn rest(&mut self) -> Vec<Saw> {
        for _ in 0..20 {
            self.tell([]).await;
            tokio::task::yield_now().await;
        }
        let mut rest = Vec::new();
        while let Some(event) = self.events.try_next() {
            if *event != Saw::Command && *event != Saw::Start {
                rest.push(Saw::clone(&event));
            }
        }
        rest
    }

    /// The stream that was accepted next.
    pub(crate) async fn accepted(&mut self) -> StreamId {
        self.see(|saw| match saw {
            Saw::Accepted(id, _) => Some(*id),
            _ => None,
        })
        .await
    }

    /// Why this stream was closed.
    pub(crate) async fn closed(&mut self, stream: StreamId) -> CloseReason {
        self.see(|saw| match saw {
            Saw::Closed(id, reason) if *id == stream => Some(*reason),
            _ => None,
        })
        .await
    }

    pub(crate) async fn counters(&self) -> annulus_net::DriverCounters {
        guard(self.handle.counters()).await.unwrap().driver
    }
}

/// Waits, but not for ever: a hang is a failure with a place.
#[track_caller]
pub(crate) fn guard<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(60), future).await {
            Ok(output) => output,
            Err(_) => panic!("nothing happened for a minute at {place}"),
        }
    }
}

/// The default limits, with long timeouts: on a loaded machine a sync alone may take seconds.
pub(crate) fn patient() -> Options {
    Options { grace: Duration::from_secs(60), ..Options::default() }
}

/// The same with a store.
pub(crate) fn with_store(store: Store) -> Options {
    Options { store, ..patient() }
}

/// Shares an event's content.
pub(crate) fn datagram(saw: &Saw) -> Option<(SocketAddr, Vec<u8>)> {
    match saw {
        Saw::Datagram(from, bytes) => Some((*from, bytes.clone())),
        _ => None,
    }
}

/// A store in a file that is removed with the returned directory.
pub(crate) fn file() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::File(directory.path().join("store.redb"));
    (directory, store)
}

/// Keeps an `Arc` event comparable.
pub(crate) fn owned(event: Option<Arc<Saw>>) -> Option<Saw> {
    event.map(|event| Saw::clone(&event))
}
