//! Members as applications see them, and the stream of their changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annulus_core::Id;
use annulus_core::swim::{Event, MemberStatus, Services, State, Swim, Tags};
use futures_core::Stream;

use crate::channel::ServiceEvents;
use crate::member_list::MemberList;

/// A member of a group and its known state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Member {
    /// Its id.
    pub id: Id,
    /// Its name; the first digits of its id if it has none.
    pub name: String,
    /// Its address.
    pub addr: Option<SocketAddr>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The addresses of its other services.
    pub services: Services,
    /// Alive, suspect, dead or left.
    pub state: State,
    /// The round-trip time to it, if it was measured.
    pub rtt: Option<Duration>,
    /// Since when it is dead or has left.
    pub since: Option<SystemTime>,
    /// Whether it is this node itself.
    pub is_self: bool,
}

impl From<MemberStatus> for Member {
    fn from(status: MemberStatus) -> Self {
        let MemberStatus { node, state, rtt_micros, since_micros, is_self, .. } = status;
        let Tags { name, services, tags } = Tags::decode(&node.meta).unwrap_or_default();
        let name = if name.is_empty() { node.id.to_string()[..8].to_owned() } else { name };
        Self {
            id: node.id,
            name,
            addr: node.addrs.first().copied(),
            tags,
            services,
            state,
            rtt: rtt_micros.map(Duration::from_micros),
            since: since_micros.map(|micros| UNIX_EPOCH + Duration::from_micros(micros)),
            is_self,
        }
    }
}

/// Something that happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "event", content = "member", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum MemberEvent {
    /// It joined or rejoined.
    Joined(Member),
    /// It has another address or other tags.
    Updated(Member),
    /// A probe of it failed.
    Suspected(Member),
    /// It refuted a suspicion.
    Recovered(Member),
    /// It did not refute in time.
    Died(Member),
    /// It left the group.
    Left(Member),
    /// Its application broadcast a message.
    Said {
        /// The member.
        by: Member,
        /// The bytes.
        data: Vec<u8>,
    },
}

type Resolving = Pin<Box<dyn Future<Output = VecDeque<MemberEvent>> + Send>>;

/// A stream of changes that carries members, from [`MemberList::member_events`].
pub struct MemberEvents {
    list: MemberList,
    events: ServiceEvents<Swim>,
    resolving: Option<Resolving>,
    resolved: VecDeque<MemberEvent>,
    /// The members that were given out as joined and have not gone since.
    present: BTreeSet<Id>,
}

impl MemberEvents {
    pub(crate) fn new(list: MemberList, events: ServiceEvents<Swim>) -> Self {
        let resolving: Resolving = Box::pin(present(list.clone()));
        let (resolved, present) = (VecDeque::new(), BTreeSet::new());
        Self { list, events, resolving: Some(resolving), resolved, present }
    }

    /// The next event; `None` after the end of the node. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<MemberEvent> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The number of events that did not fit into the queue.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.events.missed()
    }

    /// Whether an event is to be given out: a member that was present at the beginning does not join once more.
    fn is_new(&mut self, event: &MemberEvent) -> bool {
        match event {
            MemberEvent::Joined(member) => self.present.insert(member.id),
            MemberEvent::Died(member) | MemberEvent::Left(member) => {
                self.present.remove(&member.id);
                true
            }
            _ => true,
        }
    }
}

impl Stream for MemberEvents {
    type Item = MemberEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MemberEvent>> {
        let this = &mut *self;
        loop {
            while let Some(event) = this.resolved.pop_front() {
                if this.is_new(&event) {
                    return Poll::Ready(Some(event));
                }
            }
            if let Some(resolving) = &mut this.resolving {
                let Poll::Ready(resolved) = resolving.as_mut().poll(cx) else { return Poll::Pending };
                (this.resolving, this.resolved) = (None, resolved);
                continue;
            }
            match Pin::new(&mut this.events).poll_next(cx) {
                Poll::Ready(Some(event)) => {
                    let (list, event) = (this.list.clone(), event.into_inner());
                    this.resolving =
                        Some(Box::pin(async { resolve(list, event).await.into_iter().collect() }));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl std::fmt::Debug for MemberEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberEvents").field("events", &self.events).finish_non_exhaustive()
    }
}

/// The other members that live now, as joined.
async fn present(list: MemberList) -> VecDeque<MemberEvent> {
    let members = list.snapshot(false).await.unwrap_or_default().into_iter();
    members.filter(|member| !member.is_self).map(MemberEvent::Joined).collect()
}

/// The event with its member; `None` if it is about none, or about one that is forgotten by now.
async fn resolve(list: MemberList, event: Event) -> Option<MemberEvent> {
    let member = async |id| list.by_id(id).await.ok().flatten();
    Some(match event {
        Event::MemberJoined { id, .. } => MemberEvent::Joined(member(id).await?),
        Event::MemberUpdated { id, .. } => MemberEvent::Updated(member(id).await?),
        Event::MemberSuspected { id, .. } => MemberEvent::Suspected(member(id).await?),
        Event::MemberRecovered { id, .. } => MemberEvent::Recovered(member(id).await?),
        Event::MemberDied { id, .. } => MemberEvent::Died(member(id).await?),
        Event::MemberLeft { id, .. } => MemberEvent::Left(member(id).await?),
        Event::UserReceived { from, data, .. } => MemberEvent::Said { by: member(from).await?, data },
        _ => return None,
    })
}
