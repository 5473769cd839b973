//! The tags of the services. A tag is part of the store's format: it never changes.

use crate::tag::Service;

/// The tag of `members`. Tag 1 is reserved for `ping`.
pub const MEMBERS: Service = Service(2);

/// The tag of `token`.
pub const TOKEN: Service = Service(3);

/// The tag of `route`.
pub const ROUTE: Service = Service(4);

/// The tag of `mesh`.
pub const MESH: Service = Service(5);

/// The tag of `turns`, which runs where voters are configured.
pub const TURNS: Service = Service(8);
