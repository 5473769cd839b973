//! A channel to one service: to a machine that runs alone, or to a part of a node. A handle works with either.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annulus_core::node::{self, Node, PartCommand, PartEvent};
use annulus_core::pastry::Pastry;
use annulus_core::swim::Swim;
use annulus_core::turns::Turns;
use annulus_core::w3w::Mesh;
use annulus_core::{Machine, Service};
use annulus_net::{Counters, Ended, Events, Handle, Stopped, TryCommandError};
use futures_core::Stream;

use crate::node::Running;

/// A machine that can be a part of a node.
pub trait ServiceMachine:
    Machine<Command: Send, Reply: Send, Event: Clone + Send + Sync> + Sized + Send + 'static
{
    /// Its command as a command of a part.
    fn command(command: Self::Command) -> PartCommand;
    /// Its reply, if the part's reply is one.
    fn reply(reply: node::Reply) -> Option<Self::Reply>;
    /// Its event, if the part's event is one.
    fn event(event: &PartEvent) -> Option<&Self::Event>;
    /// The same, without a copy.
    fn into_event(event: PartEvent) -> Option<Self::Event>;
}

macro_rules! service_machine {
    ($machine:ty, $protocol:ident) => {
        impl ServiceMachine for $machine {
            fn command(command: Self::Command) -> PartCommand {
                PartCommand::$protocol(command)
            }

            fn reply(reply: node::Reply) -> Option<Self::Reply> {
                if let node::Reply::$protocol(reply) = reply { Some(reply) } else { None }
            }

            fn event(event: &PartEvent) -> Option<&Self::Event> {
                if let PartEvent::$protocol(event) = event { Some(event) } else { None }
            }

            fn into_event(event: PartEvent) -> Option<Self::Event> {
                if let PartEvent::$protocol(event) = event { Some(event) } else { None }
            }
        }
    };
}

service_machine!(Swim, Members);
service_machine!(Pastry, Route);
service_machine!(node::Token, Token);
service_machine!(Mesh, Mesh);
service_machine!(Turns, Turns);

/// A channel to a service.
pub(crate) enum Channel<M: ServiceMachine> {
    /// The machine runs alone.
    Alone(Handle<M>),
    /// The machine is a part of a node.
    Within {
        /// The node.
        node: Arc<Running>,
        /// The tag of the part.
        service: Service,
    },
}

impl<M: ServiceMachine> Channel<M> {
    /// A channel to a part of a node.
    pub(crate) fn within(node: &Arc<Running>, service: Service) -> Self {
        Self::Within { node: Arc::clone(node), service }
    }

    /// A channel to another service of the same node, and the address of its first listener.
    pub(crate) fn beside<O: ServiceMachine>(&self, service: Service) -> Option<(Channel<O>, SocketAddr)> {
        let Self::Within { node, .. } = self else { return None };
        let addr = node.handle().bound().of(service).listeners.first().map(|(_, addr)| *addr)?;
        Some((Channel::within(node, service), addr))
    }

    /// The node that the service is a part of.
    pub(crate) const fn node(&self) -> Option<&Arc<Running>> {
        match self {
            Self::Alone(_) => None,
            Self::Within { node, .. } => Some(node),
        }
    }

    /// Gives a command and waits for its reply.
    pub(crate) async fn command(&self, command: M::Command) -> Result<M::Reply, Stopped> {
        match self {
            Self::Alone(handle) => handle.command(command).await,
            Self::Within { node, service } => {
                let command = node::Command { service: *service, command: M::command(command) };
                M::reply(node.handle().command(command).await?).ok_or(Stopped)
            }
        }
    }

    /// Gives a command whose reply nobody reads. If too many commands wait, this waits too.
    pub(crate) async fn give(&self, command: M::Command) -> Result<(), Stopped> {
        match self {
            Self::Alone(handle) => handle.give(command).await,
            Self::Within { node, service } => {
                let command = node::Command { service: *service, command: M::command(command) };
                node.handle().give(command).await
            }
        }
    }

    /// Gives a command and ignores its reply. It can be called in `drop`: if the command queue is full, a spawned
    /// task waits for room.
    pub(crate) fn tell(&self, command: M::Command) {
        match self {
            Self::Alone(handle) => tell(handle, command),
            Self::Within { node, service } => {
                tell(node.handle(), node::Command { service: *service, command: M::command(command) });
            }
        }
    }

    /// Subscribes to the events from here on.
    pub(crate) fn events(&self) -> ServiceEvents<M> {
        self.events_where(|_| true)
    }

    /// Subscribes to the wanted events from here on.
    pub(crate) fn events_where(
        &self,
        wanted: impl Fn(&M::Event) -> bool + Send + 'static,
    ) -> ServiceEvents<M> {
        ServiceEvents(match self {
            Self::Alone(handle) => Source::Alone(handle.events_where(wanted)),
            Self::Within { node, service } => {
                Source::Within(node.handle().events_where(within::<M>(*service, wanted)))
            }
        })
    }

    /// The same, and none is left out. The machine must bound how many events are under way.
    pub(crate) fn every_event_where(
        &self,
        wanted: impl Fn(&M::Event) -> bool + Send + 'static,
    ) -> ServiceEvents<M> {
        ServiceEvents(match self {
            Self::Alone(handle) => Source::Alone(handle.every_event_where(wanted)),
            Self::Within { node, service } => {
                Source::Within(node.handle().every_event_where(within::<M>(*service, wanted)))
            }
        })
    }

    /// The counters of driver and machine; of a node those of all its parts.
    pub(crate) async fn counters(&self) -> Result<Counters, Stopped> {
        match self {
            Self::Alone(handle) => handle.counters().await,
            Self::Within { node, .. } => node.handle().counters().await,
        }
    }

    /// Stops the machine, and with it the node that it is a part of.
    pub(crate) async fn stop(&self) -> Ended {
        match self {
            Self::Alone(handle) => handle.stop().await,
            Self::Within { node, .. } => node.stop().await,
        }
    }
}

fn tell<M>(handle: &Handle<M>, command: M::Command)
where
    M: Machine<Command: Send, Reply: Send, Event: Send + Sync> + 'static,
{
    if let Err(TryCommandError::Full(command)) = handle.try_command(command)
        && let Ok(runtime) = tokio::runtime::Handle::try_current()
    {
        let handle = handle.clone();
        runtime.spawn(async move { handle.command(command).await.is_ok() });
    }
}

/// Whether an event of a node is a wanted one of this service.
fn within<M: ServiceMachine>(
    service: Service,
    wanted: impl Fn(&M::Event) -> bool + Send + 'static,
) -> impl Fn(&node::Event) -> bool + Send + 'static {
    move |event| event.service == service && M::event(&event.event).is_some_and(&wanted)
}

impl<M: ServiceMachine> Clone for Channel<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Alone(handle) => Self::Alone(handle.clone()),
            Self::Within { node, service } => Self::within(node, *service),
        }
    }
}

impl<M: ServiceMachine> fmt::Debug for Channel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone(handle) => handle.fmt(f),
            Self::Within { node, service } => {
                f.debug_tuple("Part").field(service).field(node.handle()).finish()
            }
        }
    }
}

/// The events of one service. A slow reader misses events that its queue cannot take; [`ServiceEvents::missed`]
/// counts them.
#[derive(Debug)]
pub struct ServiceEvents<M: ServiceMachine>(Source<M>);

#[derive(Debug)]
enum Source<M: ServiceMachine> {
    Alone(Events<M>),
    Within(Events<Node>),
}

impl<M: ServiceMachine> ServiceEvents<M> {
    /// The next event; `None` after the end of the node.
    pub async fn next(&mut self) -> Option<ServiceEvent<M>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// The next event if one is there already.
    pub(crate) fn try_next(&mut self) -> Option<ServiceEvent<M>> {
        match &mut self.0 {
            Source::Alone(events) => events.try_next().map(ServiceEvent::Alone),
            Source::Within(events) => events.try_next().map(ServiceEvent::Within),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServiceEvent<M>>> {
        match &mut self.0 {
            Source::Alone(events) => events.poll_next(cx).map(|event| event.map(ServiceEvent::Alone)),
            Source::Within(events) => events.poll_next(cx).map(|event| event.map(ServiceEvent::Within)),
        }
    }

    /// The number of events that did not fit into the queue.
    #[must_use]
    pub fn missed(&self) -> u64 {
        match &self.0 {
            Source::Alone(events) => events.missed(),
            Source::Within(events) => events.missed(),
        }
    }
}

impl<M: ServiceMachine> Stream for ServiceEvents<M> {
    type Item = ServiceEvent<M>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServiceEvent<M>>> {
        self.poll(cx)
    }
}

/// An event of one service; it dereferences to the machine's event.
#[derive(Clone, Debug)]
pub enum ServiceEvent<M: ServiceMachine> {
    /// The event of a machine that runs alone.
    Alone(Arc<M::Event>),
    /// The event of a part of a node.
    Within(Arc<node::Event>),
}

impl<M: ServiceMachine> ServiceEvent<M> {
    /// The machine's event; it is cloned only if another subscriber holds it too.
    #[must_use]
    pub fn into_inner(self) -> M::Event {
        match self {
            Self::Alone(event) => Arc::try_unwrap(event).unwrap_or_else(|event| (*event).clone()),
            Self::Within(event) => {
                let event = Arc::try_unwrap(event).unwrap_or_else(|event| (*event).clone());
                M::into_event(event.event).expect("only events of this service are given out")
            }
        }
    }
}

impl<M: ServiceMachine> Deref for ServiceEvent<M> {
    type Target = M::Event;

    fn deref(&self) -> &M::Event {
        match self {
            Self::Alone(event) => event,
            Self::Within(event) => M::event(&event.event).expect("only events of this service are given out"),
        }
    }
}
