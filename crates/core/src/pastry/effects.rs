//! Effects: reports of a part to the parts above it. Only the machine acts on them.

use super::contact::Contact;
use crate::id::Id;

/// A report of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A node was inserted into the leaf set.
    NewLeaf(Id),
    /// Messages may go through a node again that was suspected or away.
    Recovered(Id),
    /// A node does not answer: messages for it move, its entries stay (PD-4).
    Away(Id),
    /// A node has been away for half of the time after which it is removed.
    StillAway(Id),
    /// A node has not answered for so long that its entries are removed.
    Dead(Contact),
    /// A node answered a probe; its leaf set has this digest.
    ProbeAnswered { contact: Contact, leaf_set_digest: u32 },
    /// The join is complete.
    Activated,
    /// A leaf does not know this node any more.
    ForgottenBy(Id),
    /// A leaf may not know this node.
    AnnounceTo(Id),
}
