//! The handle of a machine of an application's own that runs beside the services of a node.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annulus_core::Service;
use annulus_core::node::{self, Command, Companion, Node as Machine, Own, Panicked, PartCommand, PartEvent};
use annulus_net::{Events, Stopped};
use futures_core::Stream;

use crate::node::Running;

/// The handle of a [`Companion`], from [`Node::companion`](crate::Node::companion). It is cheap to clone.
pub struct CompanionHandle<M> {
    node: Arc<Running>,
    service: Service,
    machine: PhantomData<fn() -> M>,
}

/// The error of a companion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompanionError {
    /// The part with this tag is another machine.
    #[error("the part with this tag is another machine: ask for it under the tag it was given")]
    OtherMachine,
    /// The machine panicked, at this command or before: nothing reaches it any more, and the node goes on without it.
    #[error("the machine panicked: mend it, and start the node again")]
    Panicked,
    /// The node has ended.
    #[error("the node has ended: start it again")]
    Stopped,
}

impl From<Stopped> for CompanionError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl<M: Companion> CompanionHandle<M> {
    pub(crate) fn new(node: &Arc<Running>, service: Service) -> Self {
        Self { node: Arc::clone(node), service, machine: PhantomData }
    }

    /// Gives a command and waits for its reply.
    ///
    /// # Errors
    /// If the node has ended, or the part is another machine.
    pub async fn command(&self, command: M::Command) -> Result<M::Reply, CompanionError> {
        let command = Command { service: self.service, command: PartCommand::Own(Own::new(command)) };
        match self.node.handle().command(command).await? {
            node::Reply::Own(reply) if reply.get::<Panicked>().is_some() => Err(CompanionError::Panicked),
            node::Reply::Own(reply) => reply.get::<M::Reply>().cloned().ok_or(CompanionError::OtherMachine),
            _ => Err(CompanionError::OtherMachine),
        }
    }

    /// Subscribes to its events from here on.
    #[must_use]
    pub fn events(&self) -> CompanionEvents<M> {
        let service = self.service;
        let events = self.node.handle().events_where(move |event| {
            event.service == service
                && matches!(&event.event, PartEvent::Own(event) if event.get::<M::Event>().is_some())
        });
        CompanionEvents { events, machine: PhantomData }
    }
}

impl<M> Clone for CompanionHandle<M> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node), service: self.service, machine: PhantomData }
    }
}

impl<M> fmt::Debug for CompanionHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompanionHandle").field("service", &self.service).finish_non_exhaustive()
    }
}

/// The events of a companion, as a stream.
pub struct CompanionEvents<M> {
    events: Events<Machine>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Companion> CompanionEvents<M> {
    /// The next event; `None` after the end of the node.
    pub async fn next(&mut self) -> Option<M::Event> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl<M: Companion> Stream for CompanionEvents<M> {
    type Item = M::Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<M::Event>> {
        loop {
            let Poll::Ready(event) = self.events.poll_next(cx) else { return Poll::Pending };
            let Some(event) = event else { return Poll::Ready(None) };
            if let PartEvent::Own(event) = &event.event
                && let Some(event) = event.get::<M::Event>()
            {
                return Poll::Ready(Some(event.clone()));
            }
        }
    }
}

impl<M> fmt::Debug for CompanionEvents<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompanionEvents").field("events", &self.events).finish()
    }
}
