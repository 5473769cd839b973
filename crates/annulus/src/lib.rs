//! Know who is alive, find who owns a key, take turns and reach each other, with no server.
//!
//! This is the library that most people add: [`MemberList`] tells who is alive, [`Router`] gets
//! messages to the owner of a key. The machines without I/O are in
//! [`core`], the driver that runs them on tokio is in [`net`].

mod member_list;
mod router;
mod start;

pub use annulus_core as core;
pub use annulus_net as net;
pub use annulus_net::Options;
pub use member_list::{MemberList, MembersError};
pub use router::{Answer, Arrival, Delivered, Inbox, RouteError, Router};
pub use start::StartError;
