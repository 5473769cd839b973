//! Messages from one member to another: acknowledged, and repeated until they are. They travel over `route`.

use annulus_core::Id;
use annulus_core::pastry::{AppName, Pastry};

use crate::channel::Channel;
use crate::member::Member;
use crate::member_list::{MemberList, MembersError};
use crate::router::{Arrival, Inbox, Router, SendOptions};

/// The application of `route` that carries these messages.
const APP: &str = "annulus.members";

/// A member as people or programs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberRef {
    /// By its id.
    Id(Id),
    /// By its name.
    Name(String),
}

impl From<Id> for MemberRef {
    fn from(id: Id) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for MemberRef {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

impl From<String> for MemberRef {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&Member> for MemberRef {
    fn from(member: &Member) -> Self {
        Self::Id(member.id)
    }
}

/// The messages that other members send to this one, from [`MemberList::messages`].
#[derive(Debug)]
pub struct MemberMessages {
    list: MemberList,
    inbox: Inbox,
}

/// A message of one member. Dropping it without [`MemberMessage::accept`] makes the sender repeat it.
#[derive(Debug)]
pub struct MemberMessage {
    /// The id of the sender.
    pub from: Id,
    /// The sender, if it is still known.
    pub member: Option<Member>,
    /// The bytes.
    pub data: Vec<u8>,
    arrival: Arrival,
}

impl MemberMessages {
    /// The next message; `None` once the node has ended.
    pub async fn next(&mut self) -> Option<MemberMessage> {
        let mut arrival = self.inbox.next().await?;
        let (from, data) = (arrival.origin.id, std::mem::take(&mut arrival.payload));
        let member = self.list.by_id(from).await.ok().flatten();
        Some(MemberMessage { from, member, data, arrival })
    }
}

impl MemberMessage {
    /// Accepts the message: its sender gets the acknowledgement.
    ///
    /// # Errors
    /// If the sender waits no longer.
    pub async fn accept(self) -> Result<(), MembersError> {
        self.arrival.accept().await.map_err(MembersError::not_delivered)
    }
}

impl MemberList {
    /// Sends bytes to one member, and returns when its application has accepted them ([`MemberList::messages`]). They are
    /// repeated until then, or until the deadline of `route`; a member may see them twice.
    ///
    /// # Errors
    /// [`MembersError::NeedsRoute`] if this node does not run `route`, [`MembersError::NoSuchMember`] or
    /// [`MembersError::AmbiguousName`] if no member is meant, [`MembersError::NotDelivered`] if it was not accepted.
    pub async fn send(&self, to: impl Into<MemberRef>, data: impl Into<Vec<u8>>) -> Result<(), MembersError> {
        let (router, to) = (self.router()?, self.resolve(to).await?);
        let sent = router.send_to(&app(), to, data, SendOptions::default()).await;
        sent.map(drop).map_err(MembersError::not_delivered)
    }

    /// Receives the messages of other members from here on. Without a receiver, senders get an error.
    ///
    /// # Errors
    /// [`MembersError::NeedsRoute`] if this node does not run `route`.
    pub async fn messages(&self) -> Result<MemberMessages, MembersError> {
        let inbox = self.router()?.inbox(&app()).await.map_err(MembersError::not_delivered)?;
        Ok(MemberMessages { list: self.clone(), inbox })
    }

    /// The id of the member that is meant. Among several of one name, a single live one is meant.
    ///
    /// # Errors
    /// [`MembersError::NoSuchMember`] or [`MembersError::AmbiguousName`].
    pub async fn resolve(&self, member: impl Into<MemberRef>) -> Result<Id, MembersError> {
        let name = match member.into() {
            MemberRef::Id(id) => return Ok(id),
            MemberRef::Name(name) => name,
        };
        let mut found = self.by_name(&name).await?;
        if found.iter().any(|member| member.state.is_live()) {
            found.retain(|member| member.state.is_live());
        }
        match &found[..] {
            [one] => Ok(one.id),
            [] => Err(MembersError::NoSuchMember),
            several => {
                Err(MembersError::AmbiguousName { name, ids: several.iter().map(|one| one.id).collect() })
            }
        }
    }

    fn router(&self) -> Result<Router, MembersError> {
        let beside: Option<(Channel<Pastry>, _)> = self.channel().beside(crate::services::ROUTE);
        beside.map(|(channel, addr)| Router::within(channel, addr)).ok_or(MembersError::NeedsRoute)
    }
}

fn app() -> AppName {
    AppName::new(APP).expect("the name is short")
}
